"""The metadata log of a cluster out of all the copies of it that there are, and how it is read in pieces.

The copy that is furthest, as voters compare their logs, is the reference. What it lacks, because it was
deleted or is damaged, comes from the others where they agree with it. A copy that disagrees where no two
copies of one log can is of another cluster with the same id, or was tampered with: it is left out, and
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.protocol.batch import BatchHeader, validate
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer
from quorate.spark.confirmation import agreed_end, confirmed_by_epoch, confirmed_by_majority, voters_of
from quorate.spark.found_problems import Problem
from quorate.spark.log_copies import LogCopy, SnapshotFile, read_copy
from quorate.spark.log_places import LogPlace
from quorate.spark.log_scan import ScanCache
from quorate.spark.metadata_columns import LOSS, RETENTION, Place, decode_batches, snapshot_time_ms

__all__ = ["CHUNK_BYTES", "Chunk", "ClusterLog", "read_chunk", "read_clusters", "windows_of"]

CHUNK_BYTES: Final = 32 << 20  # one task's
_DECODE_BYTES: Final = 4 << 20  # decoded together


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Batches that follow each other in a file, or a snapshot, to be read by one task."""

    cluster_id: str
    path: str
    position: int = 0
    size_bytes: int = 0
    snapshot_offset: int | None = None
    expected_offset: int | None = None
    gap: str = LOSS
    is_confirmed: bool = True
    first_offset: int = 0
    end_offset: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ClusterLog:
    """What is known of the log of one cluster. `needed` are the snapshots without which it is not whole."""

    cluster_id: str
    copies: tuple[LogCopy, ...]
    batches: NDArray[Any]
    needed: tuple[SnapshotFile, ...]
    begin_offset: int  # what is below is not read from the log
    expected_offset: int  # of its first record, if nothing is missing
    confirmed_end: int
    problems: tuple[Problem, ...]

    @property
    def end_offset(self) -> int:
        ends = [one.id.offset for one in self.needed]
        return max(ends + [int(end) for end in self.batches["next_offset"][-1:]], default=0)

    def epoch_at(self, offset: int) -> int | None:
        """In which epoch a record was written; None if it is not there."""
        at = int(np.searchsorted(self.batches["next_offset"], offset, side="right"))
        if at < len(self.batches) and self.batches["base_offset"][at] <= offset:
            return int(self.batches["epoch"][at])
        return None

    def chunks(self, start_offset: int = 0, end_offset: int | None = None) -> list[Chunk]:
        """The range as pieces, in order; each snapshot that is needed comes before what follows it."""
        end_offset = self.end_offset if end_offset is None else end_offset
        found = [
            Chunk(
                cluster_id=self.cluster_id,
                path=snapshot.path,
                size_bytes=Path(snapshot.path).stat().st_size,
                snapshot_offset=snapshot.id.offset - 1,
                gap=RETENTION if snapshot.id.offset == self.begin_offset else LOSS,
            )
            for snapshot in self.needed
            if start_offset <= max(0, snapshot.id.offset - 1) < max(1, end_offset)
        ]
        batches = self.batches
        is_inside = (batches["next_offset"] > max(start_offset, self.begin_offset)) & (
            batches["base_offset"] < end_offset
        )
        found += self._log_chunks(np.flatnonzero(is_inside), max(start_offset, self.begin_offset), end_offset)
        return found

    def _log_chunks(self, at: NDArray[Any], start_offset: int, end_offset: int) -> Iterator[Chunk]:
        if not len(at):
            return
        some = self.batches[at]
        is_confirmed = some["next_offset"] <= self.confirmed_end
        piece = np.cumsum(some["size_bytes"]) // CHUNK_BYTES
        begins = np.ones(len(some), np.bool_)
        begins[1:] = (some["file"][1:] != some["file"][:-1]) | (some["copy"][1:] != some["copy"][:-1])
        begins[1:] |= some["position"][1:] != (some["position"] + some["size_bytes"])[:-1]
        begins[1:] |= (is_confirmed[1:] != is_confirmed[:-1]) | (piece[1:] != piece[:-1])
        starts = np.flatnonzero(begins).tolist()
        for start, end in zip(starts, [*starts[1:], len(some)], strict=True):
            first, last, before = some[start], some[end - 1], int(at[start]) - 1
            expected = int(self.batches["next_offset"][before]) if before >= 0 else self.expected_offset
            yield Chunk(
                cluster_id=self.cluster_id,
                path=self.copies[int(first["copy"])].files[int(first["file"])],
                position=int(first["position"]),
                size_bytes=int(last["position"] + last["size_bytes"] - first["position"]),
                expected_offset=expected,
                gap=LOSS if before >= 0 or self.needed else RETENTION,
                is_confirmed=bool(is_confirmed[start]),
                first_offset=start_offset,
                end_offset=end_offset,
            )


# Reading pieces


def read_chunk(chunk: Chunk, types: frozenset[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, some megabytes at a time. Raises if the file is no longer what it was."""
    ts_ms = -1
    expected_offset, gap = chunk.expected_offset, chunk.gap
    for buffer, headers in windows_of(chunk.path, chunk.position, chunk.size_bytes):
        if chunk.snapshot_offset is not None and headers[0].base_offset == 0:
            ts_ms = snapshot_time_ms(buffer, headers[0])
        place = Place(
            cluster_id=chunk.cluster_id,
            is_confirmed=chunk.is_confirmed,
            snapshot_offset=chunk.snapshot_offset,
            snapshot_ts_ms=ts_ms,
            expected_offset=expected_offset,
            gap=gap,
            first_offset=chunk.first_offset,
            end_offset=chunk.end_offset,
            types=types,
        )
        found = decode_batches([buffer] * len(headers), headers, place)
        if found.num_rows:
            yield found
        expected_offset = headers[-1].next_offset


def windows_of(path: str, position: int, size_bytes: int) -> Iterator[tuple[Buffer, list[BatchHeader]]]:
    """The batches in a part of a file, some megabytes at a time, their checksums checked."""
    with Path(path).open("rb") as file:
        end = position + size_bytes
        size_bytes = _DECODE_BYTES
        while position < end:
            file.seek(position)
            window = file.read(min(size_bytes, end - position))
            headers, reason = _whole_batches(window)
            if headers:
                yield window, headers
                position += headers[-1].end
                size_bytes = _DECODE_BYTES
            elif len(window) < min(size_bytes, end - position) or size_bytes >= end - position:
                text = f"{path} at byte {position} is not what it was when the work was planned: {reason}"
                raise OSError(text)
            else:
                size_bytes *= 2  # one batch that is larger than a window


def _whole_batches(window: bytes) -> tuple[list[BatchHeader], str]:
    """The batches at the beginning of some bytes, and why there are no more."""
    headers: list[BatchHeader] = []
    at = 0
    try:
        while at < len(window):
            header = validate(window, at)
            headers.append(header)
            at = header.end
    except ApiError as error:
        return headers, error.message
    return headers, "the file is shorter than it was"


# Copies of one log


def read_clusters(
    places: Sequence[LogPlace], cache: ScanCache, from_offset: Callable[[str], int] = lambda _: 0
) -> list[ClusterLog]:
    """The logs of all clusters that have a copy in one of these places; copies of one cluster become one."""
    by_cluster: dict[str, list[LogPlace]] = {}
    for place in places:
        by_cluster.setdefault(place.cluster_id, []).append(place)
    found = []
    for cluster_id, some in sorted(by_cluster.items()):
        start = from_offset(cluster_id)
        copies = [read_copy(place, cache, start) for place in some]
        found.append(_merged(cluster_id, copies, start, cache))
    return found


def _merged(cluster_id: str, found: Sequence[LogCopy], from_offset: int, cache: ScanCache) -> ClusterLog:
    copies = tuple(sorted(found, key=lambda copy: copy.progress, reverse=True))
    reference = copies[0]
    problems = [problem for copy in copies for problem in copy.problems]
    batches = reference.numbered(0)
    agreeing = [reference]
    for number, copy in enumerate(copies[1:], start=1):
        conflict = _conflict(reference, copy)
        if conflict is not None:
            problems.append(conflict)
            if conflict.kind == "conflict":
                continue
        agreeing.append(copy)
        batches = _filled(batches, copy.numbered(number), agreed_end(reference.batches, copy.batches))
    snapshots = _Snapshots(cluster_id, agreeing, problems, cache)
    needed, begin_offset = _needed(batches, snapshots, from_offset)
    is_continued = 0 < from_offset >= begin_offset  # what is before was read before
    has_snapshot = any(one.id.offset == begin_offset for one in needed)
    expected_offset = begin_offset if has_snapshot or is_continued else 0
    newest = snapshots.newest()
    confirmed_end = max(
        newest.id.offset if newest else 0,
        confirmed_by_epoch(batches),
        confirmed_by_majority(batches, agreeing, voters_of(reference)),
    )
    within = np.flatnonzero(
        (batches["base_offset"] < confirmed_end) & (batches["next_offset"] > confirmed_end)
    )
    if len(within):
        confirmed_end = int(batches["next_offset"][within[0]])  # a batch is committed as a whole
    problems += _losses(cluster_id, copies, batches, begin_offset, expected_offset)
    return ClusterLog(
        cluster_id, copies, batches, needed, begin_offset, expected_offset, confirmed_end, tuple(problems)
    )


def _filled(batches: NDArray[Any], others: NDArray[Any], agreed: int) -> NDArray[Any]:
    """With what the reference lacks and another copy has, where they agree or before the reference begins."""
    if not len(others):
        return batches
    if not len(batches):
        return others
    is_before = (others["next_offset"] <= batches["base_offset"][0]) & (
        others["epoch"] <= batches["epoch"][0]
    )
    others = others[is_before | (others["next_offset"] <= agreed)]
    after = np.searchsorted(batches["base_offset"], others["base_offset"], side="right")
    is_free = np.ones(len(others), np.bool_)
    has_before, has_after = after > 0, after < len(batches)
    is_free[has_before] &= batches["next_offset"][after[has_before] - 1] <= others["base_offset"][has_before]
    is_free[has_after] &= batches["base_offset"][after[has_after]] >= others["next_offset"][has_after]
    both = np.concatenate([batches, others[is_free]])
    return both[np.argsort(both["base_offset"], kind="stable")] if is_free.any() else batches


def _conflict(reference: LogCopy, copy: LogCopy) -> Problem | None:
    """Where a copy differs from the reference, and whether that can be."""
    one, other = reference.batches, copy.batches
    _, at, other_at = np.intersect1d(
        one["base_offset"], other["base_offset"], assume_unique=True, return_indices=True
    )
    differs = (one["epoch"][at] != other["epoch"][other_at]) | (one["crc"][at] != other["crc"][other_at])
    if not differs.any():
        return None
    where = np.flatnonzero(differs)
    is_impossible = one["epoch"][at[where]] == other["epoch"][other_at[where]]
    cluster_id, source = copy.place.cluster_id, copy.place.directory
    if is_impossible.any():
        offset = int(one["base_offset"][at[where[int(is_impossible.argmax())]]])
        text = (
            f"offset {offset} has other content than in {reference.place.directory}, in the same epoch:"
            " these are two clusters with one id, or one copy was changed; this one is left out"
        )
        return Problem("conflict", source, text, cluster_id, offset)
    offset = int(one["base_offset"][at[where[0]]])
    text = (
        f"from offset {offset} on, what this copy has was never committed:"
        f" {reference.place.directory} has records of a later epoch there"
    )
    return Problem("diverged", source, text, cluster_id, offset)


class _Snapshots:
    """The snapshots of all copies, each looked at before it is used."""

    def __init__(
        self, cluster_id: str, copies: Sequence[LogCopy], problems: list[Problem], cache: ScanCache
    ) -> None:
        self._cache = cache
        self._cluster_id = cluster_id
        self._files = sorted(
            (one for copy in copies for one in copy.snapshots), key=lambda one: (one.id.offset, one.path)
        )
        self._problems = problems
        self._verdicts: dict[str, bool] = {}

    def first_from(self, offset: int) -> SnapshotFile | None:
        return next((one for one in self._files if one.id.offset >= offset and self._is_whole(one)), None)

    def last_before(self, offset: int) -> SnapshotFile | None:
        return next(
            (one for one in reversed(self._files) if one.id.offset < offset and self._is_whole(one)), None
        )

    def newest(self) -> SnapshotFile | None:
        return next((one for one in reversed(self._files) if self._is_whole(one)), None)

    def _is_whole(self, snapshot: SnapshotFile) -> bool:
        if snapshot.path not in self._verdicts:
            problem = snapshot.problem(self._cluster_id, self._cache)
            self._verdicts[snapshot.path] = problem is None
            if problem is not None:
                self._problems.append(problem)
        return self._verdicts[snapshot.path]


def _needed(
    batches: NDArray[Any], snapshots: _Snapshots, from_offset: int
) -> tuple[tuple[SnapshotFile, ...], int]:
    """The snapshots that stand for what the log has not, and where the log is read from."""
    needed: list[SnapshotFile] = []
    begin_offset = int(batches["base_offset"][0]) if len(batches) else 0
    if from_offset and begin_offset <= from_offset:
        first = None
    elif not len(batches):
        first = snapshots.newest()
    else:
        first = snapshots.first_from(begin_offset) or snapshots.last_before(begin_offset)
        if begin_offset == 0 and first is not None and first.id.offset > 0:
            first = None
    if first is not None:
        needed.append(first)
        begin_offset = first.id.offset
    for at in np.flatnonzero(batches["base_offset"][1:] > batches["next_offset"][:-1]).tolist():
        lost_from, lost_to = int(batches["next_offset"][at]), int(batches["base_offset"][at + 1])
        if lost_from >= begin_offset:
            bridge = snapshots.first_from(lost_to) or snapshots.last_before(lost_to)
            if bridge is not None and bridge.id.offset > lost_from:
                needed.append(bridge)
    return tuple(dict.fromkeys(needed)), begin_offset


def _losses(
    cluster_id: str, copies: Sequence[LogCopy], batches: NDArray[Any], begin_offset: int, expected_offset: int
) -> Iterator[Problem]:
    """Offsets that neither a batch nor a snapshot stands for."""
    if not len(batches):
        return
    source, first = copies[0].place.directory, int(batches["base_offset"][0])
    if first > expected_offset > 0:
        text = f"offsets {expected_offset} to {first - 1} are missing between the snapshot and the log"
        yield Problem("loss", source, text, cluster_id, expected_offset)
    elif first > expected_offset:
        text = f"the log begins at offset {first}, and there is no snapshot of what was before"
        yield Problem("no_snapshot", source, text, cluster_id, first)
    for at in np.flatnonzero(batches["base_offset"][1:] > batches["next_offset"][:-1]).tolist():
        lost_from, lost_to = int(batches["next_offset"][at]), int(batches["base_offset"][at + 1])
        if lost_to > begin_offset:
            batch = batches[at + 1]
            path = copies[int(batch["copy"])].files[int(batch["file"])]
            text = f"offsets {lost_from} to {lost_to - 1} are missing"
            yield Problem("loss", path, text, cluster_id, lost_from)
