"""The segments of a log, opened after whatever happened before.

What a crash can leave behind, and what becomes of it:

- A batch that was not synced, torn or lost: it and what follows go.
- Segments behind such a loss, whose own batches did reach the disk: they go, too. In a log without compaction
  they are known by the hole before them.
- Indexes that are missing, torn or behind: they are built again.
- Files of segments that were being deleted, and indexes without a log file: they are deleted.
- Segments that were being put in the place of others: that is finished, or undone (`cleaning`).

Segments are removed from the last to the first, and each removal is synced before the next: whenever this is
cut short, what is left is a log, only longer.

Reading is done aside, so that others need not wait for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from itertools import zip_longest
from typing import Final

from quorate.storage.cleaning import finish_swaps
from quorate.storage.epochs import LeaderEpochs
from quorate.storage.errors import StorageError
from quorate.storage.files import Files
from quorate.storage.limits import LogConfig
from quorate.storage.segment import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    BatchObserver,
    Recovered,
    Segment,
    segment_path,
)
from quorate.values import dataclass

__all__ = ["RecoveryReport", "open_segments", "remove_segment_files"]

_SEGMENT_FILE: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex)")


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What was found when a log was opened, for whoever tells the operator."""

    scanned_segments: int = 0
    rebuilt_indexes: Sequence[str] = ()  # log files whose indexes were bad, and why
    cut_bytes: int = 0
    dropped_segments: Sequence[str] = ()
    damage: str = ""  # why something was cut or dropped
    doubtful_from: int | None = None  # base offset of the first segment whose indexes were built again


async def open_segments(
    files: Files,
    directory: str,
    config: LogConfig,
    *,
    recovery_point: int | None,
    epochs: LeaderEpochs,
    observe: BatchObserver | None,
    now_ms: int,
) -> tuple[list[Segment], RecoveryReport]:
    """Opens all segments, and reads those that may have batches at or after the recovery point; none if that
    is None, because the log was closed in order. `epochs` is put right for what was read.

    Before the recovery point everything was synced. Damage there is no trace of a crash, and refused.
    """
    if finish_swaps(files, directory):
        await files.fsync_dir(directory)
    base_offsets = _sweep(files, directory)
    found = _Found()
    try:
        for base_offset, next_base_offset in zip_longest(base_offsets, base_offsets[1:]):
            is_suspect = recovery_point is not None and (
                next_base_offset is None or next_base_offset > recovery_point
            )
            if is_suspect and found.segments:
                found.damage = found.damage or _gap(found.segments[-1].next_offset, base_offset, config)
            if found.damage:
                found.dropped.append(base_offset)
                continue
            segment = Segment(files, directory, base_offset, config, now_ms, create=False)
            found.segments.append(segment)
            if is_suspect:
                await _recover(files, segment, found, epochs, observe)
            else:
                await _check(files, segment, found)
        await _drop(files, directory, found)
        for segment in found.segments[:-1]:
            segment.seal()
    except BaseException:
        for segment in found.segments:
            segment.close()
        raise
    return found.segments, RecoveryReport(
        scanned_segments=found.scanned,
        rebuilt_indexes=found.rebuilt,
        cut_bytes=found.cut_bytes,
        dropped_segments=[segment_path(directory, one, LOG_SUFFIX) for one in found.dropped],
        damage=found.damage,
        doubtful_from=found.doubtful_from,
    )


def remove_segment_files(files: Files, directory: str, base_offset: int) -> None:
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        path = segment_path(directory, base_offset, suffix)
        if files.exists(path):
            files.unlink(path)


@dataclass(slots=True)
class _Found:
    """What is known half way."""

    segments: list[Segment] = field(default_factory=list)
    scanned: int = 0
    rebuilt: list[str] = field(default_factory=list)
    damage: str = ""
    whole_bytes: int | None = None  # of the last segment, if there is damage after them
    dropped: list[int] = field(default_factory=list)  # base offsets of what comes behind the damage
    cut_bytes: int = 0
    doubtful_from: int | None = None

    def doubts(self, segment: Segment) -> None:
        if self.doubtful_from is None:
            self.doubtful_from = segment.base_offset


async def _recover(
    files: Files, segment: Segment, found: _Found, epochs: LeaderEpochs, observe: BatchObserver | None
) -> None:
    found.scanned += 1
    found.doubts(segment)
    epochs.truncate_from_end(segment.base_offset)
    recovered = await _recovered(files, segment, observe)
    for epoch, start_offset in recovered.epochs:
        epochs.assign(epoch, start_offset)
    if recovered.damage:
        found.damage = f"{segment.path}: {recovered.damage}"
        found.whole_bytes = recovered.whole_bytes


async def _recovered(files: Files, segment: Segment, observe: BatchObserver | None) -> Recovered:
    steps = segment.recover(observe)
    if segment.size_bytes == 0 and (found := next(steps)) is not None:
        return found  # as of most logs of a cluster with many: not worth opening a file for
    with segment.held():
        found = await files.aside(lambda: next(steps))
        while found is None:
            found = await files.aside(lambda: next(steps))
    for one in found.aborted:
        segment.transaction_index.append(one)
    return found


async def _check(files: Files, segment: Segment, found: _Found) -> None:
    problem = segment.check()
    if problem is not None:
        found.rebuilt.append(f"{segment.path}: {problem}")
        found.doubts(segment)
        damage = (await _recovered(files, segment, None)).damage
        if damage:
            raise StorageError(segment.path, f"{damage}, though it was synced: the disk damaged it")


async def _drop(files: Files, directory: str, found: _Found) -> None:
    """Removes what is behind the damage, then the damage itself."""
    for base_offset in reversed(found.dropped):
        found.cut_bytes += _size_bytes(files, segment_path(directory, base_offset, LOG_SUFFIX))
        remove_segment_files(files, directory, base_offset)
        await files.fsync_dir(directory)
    if found.whole_bytes is not None:
        found.cut_bytes += found.segments[-1].size_bytes - found.whole_bytes
        found.segments[-1].cut(found.whole_bytes)


def _sweep(files: Files, directory: str) -> list[int]:
    """Removes what is left of deleted segments. The base offsets of the others."""
    matches = [match for name in files.names(directory) if (match := _SEGMENT_FILE.fullmatch(name))]
    base_offsets = {int(match[1]) for match in matches if match[2] == LOG_SUFFIX}
    for match in matches:
        if int(match[1]) not in base_offsets:
            files.unlink(f"{directory}/{match[0]}")
    return sorted(base_offsets)


def _gap(end_offset: int, base_offset: int, config: LogConfig) -> str:
    """Why a segment does not continue a log that ends at `end_offset`; empty if it does."""
    if base_offset < end_offset:
        return f"a segment at offset {base_offset}, where the one before it ends at {end_offset}"
    if base_offset > end_offset and not config.is_compacted:
        return f"no batches from offset {end_offset} to {base_offset}"
    return ""


def _size_bytes(files: Files, path: str) -> int:
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()
