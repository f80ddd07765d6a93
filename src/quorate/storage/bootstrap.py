"""What formatting leaves for the first start of a cluster, each a snapshot that is never replicated.

`bootstrap.checkpoint`, in every log directory, has the records that the first active controller writes into
an empty metadata log: the levels of features and perhaps credentials. The snapshot 0-0 of the metadata log
has no records, only the voters, and exists where the quorum can be changed while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quorate.raft.records import VotersRecord
from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import Files
from quorate.storage.snapshots import SnapshotId, SnapshotReader, SnapshotWriter, snapshot_path

__all__ = ["BOOTSTRAP_NAME", "FIRST_SNAPSHOT", "read_bootstrap", "write_bootstrap", "write_first_voters"]

BOOTSTRAP_NAME: Final = "bootstrap.checkpoint"
FIRST_SNAPSHOT: Final = SnapshotId(offset=0, epoch=0)

_KRAFT_VERSION_WITH_VOTERS: Final = 1


async def write_bootstrap(
    files: Files, directory: str, values: Sequence[bytes], *, timestamp_ms: int
) -> None:
    """Writes the encoded records that the metadata log begins with."""
    path = f"{directory}/{BOOTSTRAP_NAME}"
    with SnapshotWriter(
        files, path, FIRST_SNAPSHOT.epoch, timestamp_ms=timestamp_ms, last_contained_log_timestamp_ms=0
    ) as writer:
        writer.append(values)
        await writer.freeze()


def read_bootstrap(files: Files, directory: str) -> list[bytes]:
    """The encoded records that the metadata log begins with."""
    path = f"{directory}/{BOOTSTRAP_NAME}"
    if not files.exists(path):
        raise StorageError(path, "missing: the directory was not formatted")
    with SnapshotReader(files, path, FIRST_SNAPSHOT.epoch) as reader:
        return list(reader.values())


async def write_first_voters(
    files: Files, metadata_directory: str, voters: VotersRecord, *, timestamp_ms: int
) -> None:
    """Writes the snapshot 0-0, from which a quorum that can be changed knows its first voters.

    The directory is that of the metadata log, and is made if there is none.
    """
    with storage_errors(metadata_directory):
        files.make_directory(metadata_directory)
        await files.fsync_dir(metadata_directory.rpartition("/")[0])
    with SnapshotWriter(
        files,
        snapshot_path(metadata_directory, FIRST_SNAPSHOT),
        FIRST_SNAPSHOT.epoch,
        timestamp_ms=timestamp_ms,
        last_contained_log_timestamp_ms=timestamp_ms,
        kraft_version=_KRAFT_VERSION_WITH_VOTERS,
        voters=voters,
    ) as writer:
        await writer.freeze()
