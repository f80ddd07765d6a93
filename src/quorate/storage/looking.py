"""What is in a log directory, for who only looks: Quorate's or Apache Kafka's, in use or not.

Nothing is locked, recovered or written. Where a log ends is found from its last index entry on, so that a
gigabyte of segment is not read for it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from quorate.protocol.types import Uuid
from quorate.storage.bootstrap import BOOTSTRAP_NAME
from quorate.storage.checkpoints import (
    HIGH_WATERMARKS_NAME,
    RECOVERY_POINTS_NAME,
    START_OFFSETS_NAME,
    PartitionName,
    has_clean_shutdown,
    load_checkpoint,
)
from quorate.storage.directory_names import DirectoryKind, parse_name
from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import Files
from quorate.storage.meta_properties import MetaProperties, load_meta_properties
from quorate.storage.metadata_files import METADATA_DIRECTORY, Segment, list_segments
from quorate.storage.partition_metadata import read_topic_id
from quorate.storage.quorum_state import QUORUM_STATE_NAME, QuorumState, load_quorum_state
from quorate.storage.scan import walk
from quorate.storage.snapshots import SnapshotId, list_snapshots
from quorate.values import dataclass

__all__ = ["DirectoryContents", "LogRange", "MetadataContents", "ReplicaContents", "look_into"]

_INDEX_ENTRY: Final = struct.Struct(">ii")
_INDEX_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets of a log, and what it takes on disk."""

    start_offset: int
    end_offset: int
    segment_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MetadataContents:
    """The metadata log of a node."""

    log: LogRange | None
    snapshots: Sequence[SnapshotId]
    quorum_state: QuorumState | None


@dataclass(frozen=True, slots=True)
class ReplicaContents:
    """A replica of a partition. What checkpoints say may lag behind; None if they say nothing."""

    partition: PartitionName
    kind: DirectoryKind
    topic_id: Uuid | None
    log: LogRange | None
    high_watermark: int | None
    recovery_point: int | None


@dataclass(frozen=True, slots=True)
class DirectoryContents:
    path: str
    meta: MetaProperties | None
    has_bootstrap: bool
    is_in_order: bool  # closed by the last broker that used it
    metadata: MetadataContents | None
    replicas: Sequence[ReplicaContents]


def look_into(files: Files, path: str) -> DirectoryContents:
    """What is in a log directory; a `StorageError` if it cannot be read."""
    with storage_errors(path):
        names = files.names(path)
    checkpoints = {
        name: load_checkpoint(files, path, name)
        for name in (HIGH_WATERMARKS_NAME, RECOVERY_POINTS_NAME, START_OFFSETS_NAME)
    }
    return DirectoryContents(
        path,
        load_meta_properties(files, path),
        BOOTSTRAP_NAME in names,
        has_clean_shutdown(files, path),
        _metadata(files, f"{path}/{METADATA_DIRECTORY}") if METADATA_DIRECTORY in names else None,
        [one for name in names if (one := _replica(files, path, name, checkpoints)) is not None],
    )


def _metadata(files: Files, directory: str) -> MetadataContents:
    snapshots = list_snapshots(files, directory)
    state = None
    if files.exists(f"{directory}/{QUORUM_STATE_NAME}"):
        state = load_quorum_state(files, directory)
    return MetadataContents(_log_range(files, directory, 0), snapshots, state)


def _replica(
    files: Files, path: str, name: str, checkpoints: Mapping[str, Mapping[PartitionName, int]]
) -> ReplicaContents | None:
    found = parse_name(name)
    if found is None:
        return None
    at = found.partition
    start_offset = checkpoints[START_OFFSETS_NAME].get(at, 0)
    return ReplicaContents(
        at,
        found.kind,
        read_topic_id(files, f"{path}/{name}"),
        _log_range(files, f"{path}/{name}", start_offset),
        checkpoints[HIGH_WATERMARKS_NAME].get(at),
        checkpoints[RECOVERY_POINTS_NAME].get(at),
    )


def _log_range(files: Files, directory: str, start_offset: int) -> LogRange | None:
    segments = list_segments(files, directory)
    if not segments:
        return None
    sizes = [_size(files, one.path) for one in segments]
    start = max(start_offset, segments[0].base_offset)
    return LogRange(start, _end_offset(files, segments[-1]), len(segments), sum(sizes))


def _size(files: Files, path: str) -> int:
    with storage_errors(path):
        file = files.open(path)
        try:
            return file.size()
        finally:
            file.close()


def _end_offset(files: Files, segment: Segment) -> int:
    """The offset after the last whole batch."""
    position = _last_indexed(files, segment.path.removesuffix(".log") + ".index")
    end_offset = segment.base_offset
    with storage_errors(segment.path):
        file = files.open(segment.path)
        try:
            for _, header in walk(file, min(position, file.size()), file.size()):
                end_offset = header.next_offset
        except StorageError:
            pass  # a batch that is being written, or was when the node ended
        finally:
            file.close()
    return end_offset


def _last_indexed(files: Files, path: str) -> int:
    """The position of the last batch that an index names; 0 if it names none. Apache's end in zeros."""
    if not files.exists(path):
        return 0
    with storage_errors(path):
        file = files.open(path)
        try:
            data = file.read(0, min(file.size(), _INDEX_BYTES_MAX)).rstrip(b"\0")
        finally:
            file.close()
    whole = -(-len(data) // _INDEX_ENTRY.size) * _INDEX_ENTRY.size
    if not whole:
        return 0
    _, position = _INDEX_ENTRY.unpack(data.ljust(whole, b"\0")[-_INDEX_ENTRY.size :])
    return max(0, int(position))
