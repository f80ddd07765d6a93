"""The metadata log of a node on disk: log, snapshots and election state in one directory, opened in order.

Opening finds out whether the directory is ours, takes its lock, recovers the log, and puts right what a crash
may have left: a snapshot that was fetched but whose log was not yet emptied. What the log and the latest
snapshot say about voters is read to the very end, committed or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from quorate.metadata.sections import Section
from quorate.node.config import ConfigError, NodeConfig
from quorate.protocol import batch as batches
from quorate.protocol.types import Buffer, Uuid
from quorate.raft.control import control_records_in
from quorate.raft.effects import Chunk, ElectionState
from quorate.raft.positions import LogPositions, Position
from quorate.raft.voters import ReplicaKey, VoterHistory, VoterSet
from quorate.raft.wire import METADATA_TOPIC, METADATA_TOPIC_ID
from quorate.storage.bootstrap import read_bootstrap
from quorate.storage.errors import StorageError
from quorate.storage.files import File, Files
from quorate.storage.limits import LogConfig
from quorate.storage.lock import lock_directory
from quorate.storage.log import Log
from quorate.storage.meta_properties import MetaProperties, check_meta_properties, load_meta_properties
from quorate.storage.quorum_state import QuorumState, load_quorum_state, store_quorum_state
from quorate.storage.snapshots import (
    SnapshotDownload,
    SnapshotId,
    SnapshotReader,
    SnapshotWriter,
    delete_snapshot,
    list_snapshots,
    remove_leftovers,
    snapshot_path,
)
from quorate.values import dataclass

__all__ = ["PARTITION_DIRECTORY", "MetadataLog"]

PARTITION_DIRECTORY: Final = f"{METADATA_TOPIC}-0"
_READ_BYTES: Final = 1 << 20


@dataclass(slots=True)
class MetadataLog:
    """The open log. `positions` and `voters` are for the quorum, which keeps them up to date."""

    files: Files
    directory: str
    cluster_id: str
    directory_id: Uuid
    positions: LogPositions
    voters: VoterHistory
    election_state: ElectionState
    bootstrap_records: list[bytes]
    log: Log
    lock: File
    download: SnapshotDownload | None = None
    downloaded: Position | None = None

    @classmethod
    async def open(cls, files: Files, config: NodeConfig, now_ms: int) -> MetadataLog:
        root = config.metadata_directory
        meta = _meta_properties(files, config, root, None)
        if meta.cluster_id is None or meta.directory_id is None:
            raise StorageError(root, "meta.properties has no cluster.id or no directory.id")
        for other in config.log_directories:
            if other:
                _check_other(files, config, other.rstrip("/"), meta.cluster_id)
        lock = lock_directory(files, root)
        try:
            return await cls._open_locked(files, config, now_ms, meta.cluster_id, meta.directory_id, lock)
        except BaseException:
            lock.close()
            raise

    @classmethod
    async def _open_locked(
        cls, files: Files, config: NodeConfig, now_ms: int, cluster_id: str, directory_id: Uuid, lock: File
    ) -> MetadataLog:
        root = config.metadata_directory
        directory = f"{root}/{PARTITION_DIRECTORY}"
        log_config = LogConfig(segment_bytes=config["metadata.log.segment.bytes"])
        log = await Log.open(files, directory, log_config, now_ms=now_ms, topic_id=METADATA_TOPIC_ID)
        try:
            # The log alone would wait for its first batch; but our vote is stored here too, and earlier.
            await files.fsync_dir(root)
        except OSError as error:
            raise StorageError.of(root, error) from error
        snapshots = await _usable_snapshots(files, directory, log, now_ms)
        voters = VoterHistory(config.static_voters)
        if snapshots:
            with SnapshotReader(
                files, snapshot_path(directory, snapshots[-1]), snapshots[-1].epoch
            ) as reader:
                reader.verify()  # before anything is said to others
                head = reader.head()
            written = None if head.voters is None else VoterSet.from_record(head.voters)
            voters.reset(written, head.kraft_version, snapshots[-1].offset)
        positions = LogPositions(
            log.start_offset,
            log.end_offset,
            [(one.epoch, one.start_offset) for one in log.epochs],
            [Position(*one) for one in snapshots],
        )
        opened = cls(
            files,
            directory,
            cluster_id,
            directory_id,
            positions,
            voters,
            _election_state(load_quorum_state(files, directory)),
            read_bootstrap(files, root),
            log,
            lock,
        )
        opened._read_voters(snapshots[-1].offset if snapshots else 0)
        return opened

    def _read_voters(self, after_offset: int) -> None:
        """What the log says about voters, after what the latest snapshot says."""
        offset = max(after_offset, self.log.start_offset)
        for batch, _ in self.batches(offset, self.log.end_offset):
            header = batches.read_header(batch)
            if header.base_offset < after_offset:
                continue
            control = control_records_in(batch, header)
            for at, version in control.versions:
                self.voters.add_version(at, version)
            for at, voters in control.voters:
                self.voters.add_voters(at, voters)

    async def close(self) -> None:
        """Ends the use of the log, once what is being synced has come to its end."""
        try:
            await self.log.close()
        except StorageError:
            self.log.abandon()  # whoever needed it has been told
        finally:
            self.lock.close()

    # The election state

    async def persist(self, state: ElectionState, voters: VoterSet, kraft_version: int) -> None:
        stored = QuorumState(
            leader_epoch=state.epoch,
            leader_id=None if state.leader_id < 0 else state.leader_id,
            voted_id=None if state.voted is None else state.voted.id,
            voter_ids=tuple(voter.key.id for voter in voters),
        )
        if state.voted is not None:
            stored = QuorumState(
                stored.leader_epoch,
                stored.leader_id,
                stored.voted_id,
                state.voted.directory,
                stored.voter_ids,
            )
        await store_quorum_state(self.files, self.directory, stored, data_version=min(1, kraft_version))
        self.election_state = state

    # The log

    def append(self, buffers: Sequence[Buffer], now_ms: int) -> None:
        self.log.append(buffers, now_ms)

    async def truncate(self, end_offset: int) -> None:
        await self.log.truncate_to(end_offset)

    async def flush(self) -> None:
        await self.log.flush()

    def read(self, offset: int, max_bytes: int) -> Buffer:
        return self.log.read(offset, max_bytes)

    def batches(self, offset: int, end_offset: int) -> Iterator[tuple[Buffer, int]]:
        """Whole batches from an offset on that end at or before another, each with the offset after it."""
        while offset < end_offset:
            view = self.log.read(offset, _READ_BYTES, before_offset=end_offset)
            if not len(view):
                return
            for header in batches.batches(view):
                if header.next_offset > end_offset:
                    return
                yield view[header.position : header.end], header.next_offset
                offset = header.next_offset

    # Snapshots

    async def write_snapshot(
        self,
        snapshot: Position,
        sections: Sequence[Section],
        last_timestamp_ms: int,
        voters: VoterSet | None,
        kraft_version: int,
        now_ms: int,
    ) -> None:
        """Writes a snapshot of our own."""
        path = snapshot_path(self.directory, SnapshotId(*snapshot))
        with SnapshotWriter(
            self.files,
            path,
            snapshot.epoch,
            timestamp_ms=now_ms,
            last_contained_log_timestamp_ms=last_timestamp_ms,
            kraft_version=kraft_version,
            voters=None if voters is None or kraft_version == 0 else voters.to_record(),
        ) as writer:
            writer.append_sections(sections)
            await writer.freeze()

    def store_chunk(self, chunk: Chunk) -> None:
        """Keeps the next piece of a snapshot that is being fetched; a first piece begins anew."""
        if chunk.byte_position == 0 or self.downloaded != chunk.snapshot or self.download is None:
            if self.download is not None:
                self.download.abort()
            path = snapshot_path(self.directory, SnapshotId(*chunk.snapshot))
            self.download = SnapshotDownload(self.files, path, chunk.snapshot.epoch)
            self.downloaded = chunk.snapshot
        self.download.append(chunk.byte_position, chunk.data)

    async def install(self, snapshot: Position, now_ms: int) -> tuple[VoterSet | None, int]:
        """Makes a fetched snapshot the beginning of the log. Returns the voters and the version in it."""
        assert self.download is not None
        assert self.downloaded == snapshot
        download, self.download = self.download, None
        await download.freeze()
        await self.log.restart_at(snapshot.offset, now_ms)
        for one in list_snapshots(self.files, self.directory):
            if one < SnapshotId(*snapshot):
                delete_snapshot(self.files, self.directory, one)
        with self._reader(snapshot) as reader:
            head = reader.head()
        return (None if head.voters is None else VoterSet.from_record(head.voters)), head.kraft_version

    def read_snapshot(
        self, snapshot: Position, byte_position: int, max_bytes: int
    ) -> tuple[int, bytes] | None:
        """The size of a snapshot and bytes of it; None if it is gone."""
        if not self.files.exists(snapshot_path(self.directory, SnapshotId(*snapshot))):
            return None
        with self._reader(snapshot) as reader:
            return reader.size_bytes, reader.raw(byte_position, max_bytes)

    def snapshot_batches(self, snapshot: Position) -> list[Buffer]:
        """All batches of a snapshot, checked to its end."""
        with self._reader(snapshot) as reader:
            return [data[header.position : header.end] for header, data in reader.batches()]

    def _reader(self, snapshot: Position) -> SnapshotReader:
        return SnapshotReader(
            self.files, snapshot_path(self.directory, SnapshotId(*snapshot)), snapshot.epoch
        )

    def start_to_keep(self, *, bytes_max: int, age_ms_max: int, now_ms: int) -> Position | None:
        """The snapshot that the log could start at, because there is too much before it or it is too old.

        The newest snapshot always stays, so the limits are soft. None if nothing has to go.
        """
        snapshots = [one for one in self.positions.snapshots if one.offset > 0]
        start: Position | None = None
        while len(snapshots) > 1 and self._is_too_much(snapshots, bytes_max, age_ms_max, now_ms):
            snapshots.pop(0)
            start = snapshots[0]
        return start

    async def delete_before(self, start: Position, now_ms: int) -> None:
        """Deletes what a snapshot makes superfluous. Nobody may count on it any more when this begins."""
        for one in list_snapshots(self.files, self.directory):
            if one.offset < start.offset:
                delete_snapshot(self.files, self.directory, one)
        await self.log.delete_until(start.offset, now_ms)

    def _is_too_much(
        self, snapshots: Sequence[Position], bytes_max: int, age_ms_max: int, now_ms: int
    ) -> bool:
        size_bytes = self.log.size_bytes
        for one in snapshots:
            with self._reader(one) as reader:
                size_bytes += reader.size_bytes
        if 0 <= bytes_max < size_bytes:
            return True
        with self._reader(snapshots[0]) as reader:
            age_ms = now_ms - reader.head().last_contained_log_timestamp_ms
        return 0 <= age_ms_max < age_ms


def _check_other(files: Files, config: NodeConfig, path: str, cluster_id: str) -> None:
    """Refuses a log directory of others, or one that nobody has formatted. A disk that fails, or is gone,
    takes its directory out and not the node: see `storage.log_directories`."""
    try:
        _meta_properties(files, config, path, cluster_id)
    except StorageError as error:
        is_failing = isinstance(error.__cause__, OSError) or not files.exists(path)
        if path == config.metadata_directory or not is_failing:
            raise


def _meta_properties(
    files: Files, config: NodeConfig, directory: str, cluster_id: str | None
) -> MetaProperties:
    meta = load_meta_properties(files, directory) if files.exists(directory) else None
    if meta is None:
        raise ConfigError(f"{config.path}: {directory} is not formatted: quorate storage format")
    check_meta_properties(directory, meta, cluster_id=cluster_id, node_id=config.node_id)
    return meta


async def _usable_snapshots(files: Files, directory: str, log: Log, now_ms: int) -> list[SnapshotId]:
    """The snapshots that go with the log, after putting right what a crash may have left undone."""
    remove_leftovers(files, directory)
    snapshots = list_snapshots(files, directory)
    latest = snapshots[-1] if snapshots else SnapshotId(0, 0)
    if latest.offset > 0 and (latest.epoch, latest.offset) > (log.epochs.latest_epoch or 0, log.end_offset):
        # It was fetched, and the log it replaces was not emptied yet.
        with SnapshotReader(files, snapshot_path(directory, latest), latest.epoch) as reader:
            reader.verify()
        await log.restart_at(latest.offset, now_ms)
    kept = []
    for one in snapshots:
        if one.offset < log.start_offset:
            delete_snapshot(files, directory, one)
        else:
            kept.append(one)
    if log.start_offset > 0 and not kept:
        raise StorageError(
            directory, f"the log starts at {log.start_offset}, and there is no snapshot of before"
        )
    return kept


def _election_state(stored: QuorumState) -> ElectionState:
    voted = None if stored.voted_id is None else ReplicaKey(stored.voted_id, stored.voted_directory_id)
    return ElectionState(stored.leader_epoch, -1 if stored.leader_id is None else stored.leader_id, voted)
