"""One copy of a log: the segments and snapshots of one directory, all of its batches as one array."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.spark.found_problems import Problem
from quorate.spark.log_places import LogPlace
from quorate.spark.log_scan import BATCH, TRUNCATED, ScanCache
from quorate.storage.errors import StorageError
from quorate.storage.files import ReadOnlyFiles
from quorate.storage.metadata_files import list_segments
from quorate.storage.snapshots import SnapshotId, SnapshotReader

__all__ = ["PLACED", "LogCopy", "SnapshotFile", "read_copy"]

# A batch, and which copy and file it stands in
PLACED: Final = np.dtype([*BATCH.descr, ("copy", np.int32), ("file", np.int32)])
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_NO_BATCHES: Final = np.zeros(0, PLACED)


class SnapshotFile(NamedTuple):
    """A snapshot by its name; whether it is whole, only who reads it knows."""

    id: SnapshotId
    path: str

    def problem(self, cluster_id: str) -> Problem | None:
        """What is wrong with it."""
        try:
            with SnapshotReader(ReadOnlyFiles(), self.path, self.id.epoch) as reader:
                reader.verify()
        except StorageError as error:
            return Problem("corrupt", self.path, str(error), cluster_id, self.id.offset - 1)
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
    """What is in a directory. Segments that end before an offset are not looked into."""
    problems: list[Problem] = []
    segments = [one for one in _segments(place) if place.only in (None, Path(one.path).name)]
    begins = [one.base_offset for one in segments]
    skipped = sum(begin <= from_offset for begin in begins[1:])
    parts: list[NDArray[Any]] = []
    for number, segment in enumerate(segments):
        if number < skipped:
            continue
        try:
            scan = cache.scan(segment.path)
        except OSError as error:
            problems.append(
                Problem("unreadable", segment.path, str(error), place.cluster_id, segment.base_offset)
            )
            continue
        is_last = number == len(segments) - 1
        for damage in scan.damages:
            offset = segment.base_offset if damage.offset is None else damage.offset
            tail = " (a log in use may end so)" if damage.kind == TRUNCATED and is_last else ""
            text = f"bytes {damage.position} to {damage.end - 1}: {damage.reason}{tail}"
            problems.append(Problem(damage.kind, segment.path, text, place.cluster_id, offset))
        parts.append(_placed(scan.batches, number))
    batches = np.concatenate(parts) if parts else _NO_BATCHES.copy()
    files = tuple(one.path for one in segments)
    batches = _ascending(batches, files, place, problems)
    snapshots = _snapshots(place)
    if not segments and not snapshots:
        problems.append(Problem("missing", place.directory, "no segment and no snapshot", place.cluster_id))
    return LogCopy(place, files, batches, snapshots, tuple(problems))


def _segments(place: LogPlace) -> list[Any]:
    return list_segments(ReadOnlyFiles(), place.directory)


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
    """Without batches that begin before the end of what came before them; those are problems."""
    if not len(batches):
        return batches
    reached = np.concatenate([[0], np.maximum.accumulate(batches["next_offset"])[:-1]])
    is_behind = batches["base_offset"] < reached
    for batch, end in zip(batches[is_behind][:100], reached[is_behind][:100], strict=True):
        text = f"a batch at offset {batch['base_offset']} after one that ends at {end - 1}"
        source = files[int(batch["file"])]
        problems.append(Problem("overlap", source, text, place.cluster_id, int(batch["base_offset"])))
    return batches[~is_behind]
