"""The metadata log in files, for who only looks: Quorate's or Apache Kafka's, a copy or one in use.

Nothing is locked, recovered or written. A log that is being written may end in the middle of a batch: it is
read up to there. How much of it is committed, files do not say; a log that was cut off from its quorum may
end in records that never counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from quorate.metadata.history import History
from quorate.protocol.batch import HEADER_BYTES, BatchHeader, read_header
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer
from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import Files
from quorate.storage.scan import DamageError, scan
from quorate.storage.snapshots import SnapshotId, SnapshotReader, list_snapshots, snapshot_path

__all__ = [
    "METADATA_DIRECTORY",
    "Segment",
    "history_of_directory",
    "history_of_segment",
    "history_of_snapshot",
    "list_segments",
    "log_directory_in",
    "segment_batches",
]

METADATA_DIRECTORY: Final = "__cluster_metadata-0"

_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_SNAPSHOT: Final = re.compile(r"(?:.*/)?(\d{20})-(\d{10})\.checkpoint")


class Segment(NamedTuple):
    base_offset: int
    path: str


def log_directory_in(files: Files, path: str) -> str:
    """The directory of the metadata log, which is given itself or is in the one that is given."""
    path = path.rstrip("/") or "/"
    inside = f"{path}/{METADATA_DIRECTORY}"
    if files.exists(inside):
        return inside
    if files.exists(path) and (list_segments(files, path) or list_snapshots(files, path)):
        return path
    raise StorageError(path, "no metadata log: there is no " + METADATA_DIRECTORY + " in it, and no segment")


def list_segments(files: Files, directory: str) -> list[Segment]:
    """The segments of a directory, the first one first."""
    with storage_errors(directory):
        matches = [(_SEGMENT.fullmatch(name), name) for name in files.names(directory)]
    return [Segment(int(match[1]), f"{directory}/{name}") for match, name in matches if match]


def segment_batches(files: Files, path: str) -> Iterator[tuple[BatchHeader, Buffer]]:
    """The batches of a segment up to its end, or to where it is not whole."""
    with storage_errors(path):
        file = files.open(path)
        try:
            for batch in scan(file):
                yield batch.header, memoryview(batch.buffer)[batch.header.position : batch.header.end]
        except DamageError:
            return
        finally:
            file.close()


def history_of_directory(files: Files, path: str, offset: int | None = None) -> History:
    """What a node has: the latest snapshot from before an offset, and the log from there on.

    Without an offset the history ends where the log does.
    """
    directory = log_directory_in(files, path)
    segments = list_segments(files, directory)
    usable = [
        one
        for one in list_snapshots(files, directory)
        if one.offset > 0 and (offset is None or one.offset <= offset + 1)
    ]
    start_offset = usable[-1].offset if usable else 0
    log = _log(files, segments, start_offset)
    if not usable:
        return History(log)
    found = history_of_snapshot(files, snapshot_path(directory, usable[-1]))
    return History(log, found.snapshot, found.snapshot_end_offset, found.snapshot_epoch)


def history_of_segment(files: Files, path: str) -> History:
    return History(batch for _, batch in segment_batches(files, path))


def history_of_snapshot(files: Files, path: str) -> History:
    """A snapshot alone. One not called after an offset (`bootstrap.checkpoint`) is from before everything."""
    match = _SNAPSHOT.fullmatch(path)
    named = SnapshotId(int(match[1]), int(match[2])) if match else SnapshotId(0, _first_epoch(files, path))
    with SnapshotReader(files, path, named.epoch) as reader:
        batches = [memoryview(data)[header.position : header.end] for header, data in reader.batches()]
    return History((), batches, named.offset, named.epoch)


def _log(files: Files, segments: list[Segment], start_offset: int) -> Iterator[Buffer]:
    """The batches from the segment on that an offset is in."""
    before = [one.base_offset for one in segments if one.base_offset <= start_offset]
    first = before[-1] if before else 0
    for segment in segments:
        if segment.base_offset >= first:
            for _, batch in segment_batches(files, segment.path):
                yield batch


def _first_epoch(files: Files, path: str) -> int:
    with storage_errors(path):
        file = files.open(path)
        try:
            return read_header(file.read(0, HEADER_BYTES)).partition_leader_epoch
        except ApiError as error:
            raise StorageError(path, f"not a snapshot: {error.message}") from None
        finally:
            file.close()
