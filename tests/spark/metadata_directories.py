"""Copies of metadata logs on disk, to read: written batch by batch, whole or as somebody damaged them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from histories import encoded
from quorate.metadata import records as r
from quorate.protocol.batch import ControlType, Record, build, build_control
from quorate.protocol.codec import encode
from quorate.raft.records import LeaderChangeMessage
from quorate.storage.files import RealFiles
from quorate.storage.snapshots import SnapshotId, SnapshotWriter, snapshot_path

CLUSTER = "cluster-1"
NOOP = encoded(r.NoOpRecord())


def data(offset: int, epoch: int, count: int = 1, value: bytes = NOOP, time_ms: int = 1_000) -> bytes:
    stored = [Record(offset + at, time_ms + offset, None, value) for at in range(count)]
    return bytes(build(stored, base_offset=offset, leader_epoch=epoch))


def leads(offset: int, epoch: int, leader: int = 1, voters: Sequence[int] = (1, 2, 3)) -> bytes:
    """The batch with which an epoch begins."""
    ids = [LeaderChangeMessage.Voter(voter_id=one) for one in voters]
    message = LeaderChangeMessage(version=0, leader_id=leader, voters=ids, granting_voters=ids)
    controls = [(ControlType.LEADER_CHANGE, bytes(encode(message, 0)))]
    return bytes(build_control(controls, timestamp=1_000, base_offset=offset, leader_epoch=epoch))


def copy_of(
    root: Path,
    *segments: tuple[int, Iterable[bytes]],
    node_id: int = 1,
    cluster_id: str | None = CLUSTER,
    snapshots: Iterable[SnapshotId] = (),
) -> Path:
    """A log directory: each segment is its first offset and its batches."""
    directory = root / "__cluster_metadata-0"
    directory.mkdir(parents=True, exist_ok=True)
    if cluster_id is not None:
        about = f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
        (root / "meta.properties").write_text(about)
    for begin, batches in segments:
        (directory / f"{begin:020d}.log").write_bytes(b"".join(batches))
    for snapshot in snapshots:
        write_snapshot(directory, snapshot)
    return root


def write_snapshot(directory: Path, snapshot: SnapshotId, values: Sequence[bytes] = (NOOP, NOOP)) -> Path:
    path = snapshot_path(str(directory), snapshot)

    async def write() -> None:
        with SnapshotWriter(
            RealFiles(), path, snapshot.epoch, timestamp_ms=9_000, last_contained_log_timestamp_ms=5_000
        ) as writer:
            writer.append(values)
            await writer.freeze()

    asyncio.run(write())
    return Path(path)
