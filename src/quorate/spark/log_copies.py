"""One copy of a log: the segments and snapshots of one directory, all of its batches as one array."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.spark.found_problems import Problem
from quorate.spark.log_places import LogPlace
from quorate.spark.log_scan import BATCH, TRUNCATED, FileScan, ScanCache
from quorate.storage.errors import StorageError
from quorate.storage.files import ReadOnlyFiles
from quorate.storage.metadata_files import Segment, list_segments
from quorate.storage.snapshots import SnapshotId, SnapshotReader

__all__ = ["PLACED", "LogCopy", "SnapshotFile", "read_copy"]

# A batch, and which copy and file it stands in
PLACED: Final = np.dtype([*BATCH.descr, ("copy", np.int32), ("file", np.int32)])
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_TOLD_MAX: Final = 100  # problems of one kind with one copy
_NO_BATCHES: Final = np.zeros(0, PLACED)


class SnapshotFile(NamedTuple):
    """A snapshot by its name; whether it is whole, only who reads it knows."""

    id: SnapshotId
    path: str

    def problem(self, cluster_id: str, cache: ScanCache) -> Problem | None:
        """What is wrong with it. It is looked at again only if the file has changed."""
        why = cache.verdict(self.path, self._why_not_whole)
        return Problem("corrupt", self.path, why, cluster_id, self.id.offset - 1) if why else None

    def _why_not_whole(self) -> str | None:
        try:
            with SnapshotReader(ReadOnlyFiles(), self.path, self.id.epoch) as reader:
                reader.verify()
        except StorageError as error:
            return str(error)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class LogCopy:
    place: LogPlace
    files: tuple[str, ...] = ()  # the segments, in order
    batches: NDArray[Any] = field(default_factory=_NO_BATCHES.copy)
    snapshots: tuple[SnapshotFile, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def end_offset(self) -> int:
        return int(self.batches["next_offset"][-1]) if len(self.batches) else 0

    @property
    def progress(self) -> tuple[int, int]:
        """How far it is, as voters compare their logs: the last epoch counts before the end."""
        return (int(self.batches["epoch"][-1]), self.end_offset) if len(self.batches) else (-1, 0)

    def numbered(self, number: int) -> NDArray[Any]:
        batches = self.batches.copy()
        batches["copy"] = number
        return batches


def read_copy(place: LogPlace, cache: ScanCache, from_offset: int = 0) -> LogCopy:
    """What is in a directory. Segments before the one that an offset is in are looked into only until one
    is found in which an epoch begins."""
    problems: list[Problem] = []
    segments = [one for one in _segments(place) if place.only in (None, Path(one.path).name)]
    begins = [one.base_offset for one in segments]
    parts: list[NDArray[Any]] = []
    for number, segment in reversed(list(enumerate(segments))):
        try:
            scan = cache.scan(segment.path)
        except OSError as error:
            text = str(error)
            problems.append(Problem("unreadable", segment.path, text, place.cluster_id, segment.base_offset))
            continue
        problems += _damages(scan, segment, place, is_last=number == len(segments) - 1)
        parts.insert(0, _placed(scan.batches, number))
        # Who leads and who votes is said where an epoch begins.
        if begins[number] <= from_offset and any(part["is_control"].any() for part in parts):
            break
    batches = np.concatenate(parts) if parts else _NO_BATCHES.copy()
    files = tuple(one.path for one in segments)
    batches = _ascending(batches, files, place, problems)
    snapshots = _snapshots(place)
    if not segments and not snapshots:
        problems.append(Problem("missing", place.directory, "no segment and no snapshot", place.cluster_id))
    return LogCopy(place, files, batches, snapshots, tuple(problems))


def _segments(place: LogPlace) -> list[Segment]:
    return list_segments(ReadOnlyFiles(), place.directory)


def _damages(scan: FileScan, segment: Segment, place: LogPlace, *, is_last: bool) -> Iterator[Problem]:
    for damage in scan.damages:
        offset = segment.base_offset if damage.offset is None else damage.offset
        tail = " (a log in use may end so)" if damage.kind == TRUNCATED and is_last else ""
        text = f"bytes {damage.position} to {damage.end - 1}: {damage.reason}{tail}"
        yield Problem(damage.kind, segment.path, text, place.cluster_id, offset)


def _snapshots(place: LogPlace) -> tuple[SnapshotFile, ...]:
    found = []
    for path in sorted(Path(place.directory).iterdir()):
        match = _SNAPSHOT.fullmatch(path.name)
        if match and place.only in (None, path.name):
            found.append(SnapshotFile(SnapshotId(int(match[1]), int(match[2])), str(path)))
    return tuple(found)


def _placed(batches: NDArray[Any], file: int) -> NDArray[Any]:
    placed = np.zeros(len(batches), PLACED)
    for name in BATCH.names or ():
        placed[name] = batches[name]
    placed["file"] = file
    return placed


def _ascending(
    batches: NDArray[Any], files: tuple[str, ...], place: LogPlace, problems: list[Problem]
) -> NDArray[Any]:
    """Without batches that are out of order; those are problems.

    Neither the offset nor the epoch of a batch is covered by its checksum. As few batches as possible are
    left out, so that one with a damaged offset does not cost all that follow it. Where as many would be left
    out either way, those go that fit least to what stands in front of them and behind them in the file.
    """
    befores, afters = batches[:-1], batches[1:]
    are_neighbours = (befores["file"] == afters["file"]) & (
        befores["position"] + befores["size_bytes"] == afters["position"]
    )
    follows = afters["base_offset"] == befores["next_offset"]
    offset_weights = _weights(are_neighbours, follows, ~follows)
    is_same = afters["epoch"] == befores["epoch"]
    begins_epoch = afters["is_control"] & (afters["epoch"] > befores["epoch"])
    epoch_weights = _weights(are_neighbours, is_same, ~is_same & ~begins_epoch)
    in_order = np.arange(len(batches))
    for kind, begin, end, weights in (
        ("offset", "base_offset", "next_offset", offset_weights),
        ("epoch", "epoch", "epoch", epoch_weights),
    ):
        some = batches[in_order]
        if (some[begin][1:] >= some[end][:-1]).all():
            continue
        kept = _heaviest_chain(some[begin].tolist(), some[end].tolist(), weights[in_order].tolist())
        is_out = np.ones(len(some), np.bool_)
        is_out[kept] = False
        for batch in some[is_out][:_TOLD_MAX]:
            text = f"a batch with {kind} {batch[begin]} among others that are in order"
            source, offset = files[int(batch["file"])], int(batch["base_offset"])
            problems.append(Problem("overlap", source, text, place.cluster_id, offset))
        in_order = in_order[kept]
    return batches[in_order]


_WEIGHT: Final = 8  # of a batch that nothing is known of: more than what two neighbours can say


def _weights(
    are_neighbours: NDArray[np.bool_], agree: NDArray[np.bool_], differ: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """What each batch counts: more if it fits to its neighbours, less if it does not."""
    said = np.where(are_neighbours, agree.astype(np.int64) - differ, 0)
    weights = np.full(len(said) + 1, _WEIGHT)
    weights[1:] += said
    weights[:-1] += said
    return weights


def _heaviest_chain(begins: list[int], ends: list[int], weights: list[int]) -> list[int]:
    """Which ranges to keep, so that none begins before one in front of it ends, and the most weight is kept.

    >>> _heaviest_chain([0, 900, 1, 2, 0, 3], [1, 901, 2, 3, 1, 4], [1] * 6)
    [0, 2, 3, 5]
    >>> _heaviest_chain([0, 5, 5, 6], [5, 6, 6, 7], [3, 1, 2, 3])
    [0, 2, 3]
    """
    reached: list[int] = []  # where the heaviest chains end, the lighter ones earlier...
    totals: list[int] = []  # ...what they weigh...
    at_end: list[int] = []  # ...and their last ranges
    before: list[int] = []
    for at, (begin, end, weight) in enumerate(zip(begins, ends, weights, strict=True)):
        longer = bisect_right(reached, begin)
        before.append(at_end[longer - 1] if longer else -1)
        total = weight + (totals[longer - 1] if longer else 0)
        place = bisect_left(reached, end)
        as_early = bisect_right(reached, end)
        if as_early and totals[as_early - 1] >= total:
            continue
        beaten = bisect_right(totals, total, place)
        reached[place:beaten] = [end]
        totals[place:beaten] = [total]
        at_end[place:beaten] = [at]
    kept = []
    at = at_end[-1] if at_end else -1
    while at >= 0:
        kept.append(at)
        at = before[at]
    return kept[::-1]
