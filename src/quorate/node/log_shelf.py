"""The log directories of a running broker: logs are opened in them, deleted, and closed in order.

A disk that fails takes its directory out; whoever must know is told. What was deleted or moved away while the
broker was not running is set aside, and so is another topic of the same name, deleted and created again.

What the checkpoints say of a log must never be taken for something else of the same name: where it begins, it
would begin there, too. So before a name is used again, the checkpoints forget it. Nor may they say that a log
is synced beyond its end: what is appended there after a cut would not be looked at after a crash. So a log
that was cut is not appended to before the checkpoints know. Where many are cut at the same time, one store
does for all that wait.

Copies of replicas that move to another directory are in `future_logs`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from quorate.broker.partition import Partition, TopicPartition
from quorate.broker.settings import BrokerSettings
from quorate.broker.topic_config import TopicConfig
from quorate.metadata.partitions import UNASSIGNED
from quorate.node.config import NodeConfig
from quorate.node.host import Host
from quorate.protocol.types import Uuid
from quorate.storage.checkpoints import PartitionName
from quorate.storage.directory_names import DirectoryKind
from quorate.storage.errors import StorageError
from quorate.storage.log_directories import LogDirectories, LogDirectory
from quorate.storage.partition_log import PartitionLog
from quorate.storage.partition_metadata import read_topic_id
from quorate.storage.producer_room import ProducerRoom

__all__ = ["DirectoryShelf"]

PREFERENCES_MAX: Final = 10_000  # for replicas that may never come


class DirectoryShelf:
    """A `broker.replicas.LogShelf`."""

    def __init__(self, host: Host, directories: LogDirectories, producers: ProducerRoom) -> None:
        self.producers = producers
        self._host = host
        self._directories = directories
        self._logger = logging.getLogger(f"quorate.broker.{host.name}")
        self._logs: dict[PartitionName, PartitionLog] = {}  # that are open
        # Which the checkpoints may still have, by directory:
        self._deleted: set[tuple[str, PartitionName]] = set()
        self._preferred: dict[PartitionName, str] = {}  # where replicas shall begin that are not here yet
        self._saving = asyncio.Lock()
        self.when_failed: Callable[[LogDirectory, StorageError], None] | None = None
        self.all_failed = asyncio.Event()

    @classmethod
    async def open(cls, host: Host, config: NodeConfig, settings: BrokerSettings) -> DirectoryShelf:
        paths = [path.rstrip("/") for path in config.log_directories if path]
        directories = await LogDirectories.open(
            host.files,
            paths,
            cluster_id=settings.cluster_id,
            node_id=settings.broker_id,
            locked=() if config.is_of_zookeeper else (config.metadata_directory,),
        )
        shelf = cls(host, directories, config.producer_room())
        for path, reason in directories.offline.items():
            shelf._logger.error("log directory offline path=%s reason=%s", path, reason)
        for directory in list(directories.online):
            try:
                if not directories.offline:
                    directory.finish_deletions()  # else what is deleted here may be all that is left of it
                await directory.begin()
            except StorageError as error:
                shelf.fail_directory(directory, error)
        if not directories.online:
            await shelf.close_directories()
            raise StorageError(", ".join(directories.offline), "no log directory can be used")
        return shelf

    @property
    def directories(self) -> LogDirectories:
        return self._directories

    @property
    def directory_ids(self) -> list[Uuid]:
        return [one.directory_id for one in self._directories.online if one.directory_id is not None]

    @property
    def previous_epoch(self) -> int:
        return self._directories.previous_broker_epoch

    # Logs

    async def set_aside_others(self, assigned: Iterable[TopicPartition]) -> None:
        """Sets aside what is here and not ours, if this is all that was assigned to us when we registered."""
        ours = {PartitionName(key.topic, key.partition_id): key.topic_id for key in assigned}
        for directory in list(self._directories.online):
            try:
                for name in sorted(directory.partitions):
                    await self._set_aside_unless(directory, name, ours.get(name))
                for name in sorted(directory.futures):
                    await self._drop_future_unless(directory, name, ours.get(name))
            except StorageError as error:
                self.fail_directory(directory, error)

    async def _set_aside_unless(
        self, directory: LogDirectory, name: PartitionName, topic_id: Uuid | None
    ) -> bool:
        """Sets a log aside, unless it is that of a topic. Whether it was."""
        found = read_topic_id(self._host.files, directory.path_of(name))
        if topic_id is not None and found in (None, topic_id):
            return False
        unique = Uuid(self._host.random.randbytes(16))
        stray = await directory.rename(name, unique, DirectoryKind.STRAY)
        self._deleted.add((directory.path, name))
        self._logger.warning("set aside directory=%s/%s topic_id=%s", directory.path, stray, found)
        return True

    async def _drop_future_unless(
        self, directory: LogDirectory, name: PartitionName, topic_id: Uuid | None
    ) -> None:
        """Drops a copy, unless it is that of a topic."""
        path = f"{directory.path}/{directory.futures[name].name}"
        if topic_id is None or read_topic_id(self._host.files, path) != topic_id:
            await self.drop_future(directory, name)

    async def drop_future(self, directory: LogDirectory, name: PartitionName) -> None:
        """Takes a copy away whose log is closed: its name at once, its files after that."""
        deleted = await directory.drop_future(name)
        self._deleted.add((directory.path, name))
        if deleted is not None:
            await directory.delete_gently(deleted)

    async def open_log(self, key: TopicPartition, config: TopicConfig, directory_id: Uuid) -> PartitionLog:
        """The log of a replica, recovered; in the directory where it is, or was assigned to, or with room."""
        name = PartitionName(key.topic, key.partition_id)
        directory = self._directories.holding(name) or self._place_for(key, directory_id)
        try:
            if name in directory.partitions:
                await self._set_aside_unless(directory, name, key.topic_id)
            elif self._directories.future_of(name) is not None:
                await self._use_or_drop_future(key, name, directory)
            await self.forget_deleted(name, directory)
            directory.partitions.add(name)
            log = await PartitionLog.open(
                self._host.files,
                directory.path_of(name),
                # One that was compacted lacks offsets, whatever its topic is now.
                replace(config.log, is_compacted=True) if name in directory.cleaned_offsets else config.log,
                topic_id=key.topic_id,
                now_ms=self._host.wall_ms(),
                recovery_point=directory.take_recovery_point(name),
                start_offset=directory.start_offsets.get(name, 0),
                room=self.producers,
            )
        except StorageError as error:
            self.fail_directory(directory, error)
            raise
        self._logs[name] = log
        try:
            await self._lower(name, log)  # recovery may have cut something, or a crash came before this
            if directory not in self._directories.online:
                raise StorageError(directory.path, self._directories.offline[directory.path])
        except StorageError as error:
            del self._logs[name]
            log.abandon()
            self.fail_directory(directory, error)
            raise
        log.call_when_cut(lambda: self._lower(name, log))
        directory.opened(name)
        self._report(key, log)
        return log

    async def _lower(self, name: PartitionName, log: PartitionLog) -> None:
        """Stores checkpoints that say no more of a log than is true of it, if they do."""
        directory = self._directories.of_path(log.directory)
        if directory is not None and directory.cleaned_offsets.get(name, 0) > log.end_offset:
            # What comes in the place of what was cut is not compacted.
            await directory.set_cleaned_offset(name, log.end_offset)
        if directory is not None and self._says_too_much(directory, name):
            async with self._saving:
                if self._says_too_much(directory, name):
                    recovery_points, start_offsets = directory.recovery_points, directory.start_offsets
                    wrong = [one for one in recovery_points if self._says_too_much(directory, one)]
                    flushed = {one: self._logs[one].flushed_offset for one in wrong}
                    starts = {one: self._logs[one].start_offset for one in wrong}
                    await directory.store_recovery_points(recovery_points | flushed)
                    if any(start_offsets.get(one, 0) > offset for one, offset in starts.items()):
                        await self._store_starts(directory, start_offsets | starts)

    def _says_too_much(self, directory: LogDirectory, name: PartitionName) -> bool:
        log = self._logs.get(name)
        return log is not None and (
            directory.recovery_points.get(name, 0) > log.flushed_offset
            or directory.start_offsets.get(name, 0) > log.start_offset
        )

    def _place_for(self, key: TopicPartition, directory_id: Uuid) -> LogDirectory:
        """Where a log begins that was not found. If it may be on a disk that failed, it must not begin anew:
        an empty replica would be taken for one that has everything."""
        name = PartitionName(key.topic, key.partition_id)
        is_moving = self._directories.future_of(name) is not None
        is_known = any(one.directory_id == directory_id for one in self._directories.online)
        is_new = directory_id == UNASSIGNED
        if self._directories.offline and (is_moving or not (is_known or is_new)):
            offline = ", ".join(self._directories.offline)
            raise StorageError(offline, f"{key} may be there, and the directory is offline")
        preferred = self._preferred.pop(name, None)
        for one in self._directories.online:
            if one.path == preferred:
                return one
        for one in self._directories.online:
            if one.directory_id == directory_id:
                return one
        return self._directories.choose()

    async def _use_or_drop_future(
        self, key: TopicPartition, name: PartitionName, directory: LogDirectory
    ) -> None:
        """There is a copy, and what it was made from is gone with its disk. If the cluster knows the replica
        to be where the copy is, the copy had caught up before, and is far better than nothing."""
        future_in = self._directories.future_of(name)
        assert future_in is not None
        path = f"{future_in.path}/{future_in.futures[name].name}"
        if future_in is directory and read_topic_id(self._host.files, path) == key.topic_id:
            self._logger.warning("a copy takes the place of its original path=%s partition=%s", path, key)
            await self.forget_deleted(name, directory)
            directory.give_name(name)
            await directory.sync_names()
        else:
            await self.drop_future(future_in, name)

    def prefer(self, name: PartitionName, path: str) -> None:
        """A replica shall begin in this directory, if it comes here."""
        self._preferred.pop(name, None)
        self._preferred[name] = path
        while len(self._preferred) > PREFERENCES_MAX:
            self._preferred.pop(next(iter(self._preferred)))

    async def forget_deleted(self, name: PartitionName, directory: LogDirectory) -> None:
        """What the checkpoints of a directory say of a name is not about what begins there now."""
        if (directory.path, name) in self._deleted:
            await self.store(directory)
            self._deleted.discard((directory.path, name))

    async def store(self, directory: LogDirectory) -> None:
        """Stores the checkpoints of a directory, with what it knows."""
        async with self._saving:
            await self._store(
                directory, directory.high_watermarks, directory.recovery_points, directory.start_offsets
            )
            await directory.store_cleaned_offsets()

    def _report(self, key: TopicPartition, log: PartitionLog) -> None:
        found = log.recovery
        if found.damage:
            self._logger.warning(
                "recovered partition=%s end_offset=%d cut_bytes=%d reason=%s",
                key,
                log.end_offset,
                found.cut_bytes,
                found.damage,
            )

    def path_holding(self, key: TopicPartition) -> str:
        """The directory that has a log; empty if none has."""
        directory = self._directories.holding(PartitionName(key.topic, key.partition_id))
        return "" if directory is None else directory.path

    def high_watermark_of(self, key: TopicPartition) -> int:
        name = PartitionName(key.topic, key.partition_id)
        directory = self._directories.holding(name)
        return 0 if directory is None else directory.high_watermarks.get(name, 0)

    def directory_of(self, log: PartitionLog) -> Uuid:
        """The id of the directory that a log is in, which may have failed."""
        return self._directories.id_of_path(log.directory) or UNASSIGNED

    async def delete_log(self, key: TopicPartition, log: PartitionLog) -> None:
        """Deletes a replica: its name at once, its files after that."""
        name = PartitionName(key.topic, key.partition_id)
        self._logs.pop(name, None)
        directory = self._directories.of_path(log.directory)
        if directory is None:
            return
        self._deleted.add((directory.path, name))
        try:
            await log.close()
            unique = Uuid(self._host.random.randbytes(16))
            renamed = await directory.rename(name, unique, DirectoryKind.DELETED)
            directory.delete(renamed)
        except StorageError as error:
            self.fail_directory(directory, error)

    async def delete_leftover(self, topic: str, partition_id: int) -> None:
        """Deletes what is here of a replica that is not open, if anything is."""
        name = PartitionName(topic, partition_id)
        directory = self._directories.holding(name)
        if directory is None or name in self._logs:
            return
        self._deleted.add((directory.path, name))
        try:
            unique = Uuid(self._host.random.randbytes(16))
            directory.delete(await directory.rename(name, unique, DirectoryKind.DELETED))
        except StorageError as error:
            self.fail_directory(directory, error)

    def replaced(self, key: TopicPartition, log: PartitionLog, was_in: LogDirectory) -> None:
        """Another log has taken the place of the one of a replica, which was in this directory."""
        name = PartitionName(key.topic, key.partition_id)
        self._logs[name] = log
        log.call_when_cut(lambda: self._lower(name, log))
        self._deleted.add((was_in.path, name))

    async def save(self, partitions: Sequence[Partition]) -> None:
        """Stores the checkpoints of all directories, if there is anything new. What they say of other logs
        stays."""
        if not partitions and not self._deleted:
            return
        async with self._saving:
            deleted = set(self._deleted)
            for directory in list(self._directories.online):
                mine = {
                    _name(one): one
                    for one in partitions
                    if self._logs.get(_name(one)) is one.log
                    and self._directories.of_path(one.log.directory) is directory
                }
                starts = {name: one.log.start_offset for name, one in mine.items()}
                try:
                    await self._store(
                        directory,
                        directory.high_watermarks | {name: one.high_watermark for name, one in mine.items()},
                        directory.recovery_points
                        | {name: one.log.flushed_offset for name, one in mine.items()},
                        directory.start_offsets | starts,
                    )
                except StorageError as error:
                    self.fail_directory(directory, error)
            self._deleted -= deleted

    async def _store(
        self,
        directory: LogDirectory,
        high_watermarks: Mapping[PartitionName, int],
        recovery_points: Mapping[PartitionName, int],
        start_offsets: Mapping[PartitionName, int],
    ) -> None:
        await directory.store_high_watermarks(high_watermarks)
        await directory.store_recovery_points(recovery_points)
        await self._store_starts(directory, start_offsets)

    async def _store_starts(self, directory: LogDirectory, offsets: Mapping[PartitionName, int]) -> None:
        await directory.store_start_offsets({name: one for name, one in offsets.items() if one})

    # Failing and ending

    def fail(self, log: PartitionLog, error: StorageError) -> None:
        """The disk under a log has failed."""
        directory = self._directories.of_path(log.directory)
        if directory is not None:
            self.fail_directory(directory, error)

    def fail_directory(self, directory: LogDirectory, error: StorageError) -> None:
        """The disk under a directory has failed."""
        if directory not in self._directories.online or error.is_of_handles:
            return
        self._logger.error("log directory offline path=%s reason=%s", directory.path, error)
        self._directories.take_offline(directory, str(error))
        if self.when_failed is not None:
            self.when_failed(directory, error)
        if not self._directories.online:
            self.all_failed.set()

    @property
    def offline_paths(self) -> list[str]:
        return list(self._directories.offline)

    async def mark_clean(self, broker_epoch: int) -> None:
        """Everything that was opened was closed in order: nothing need be recovered. If nothing could be
        opened, because the broker never became one, it is as the one before has left it."""
        epoch = self.previous_epoch if broker_epoch < 0 else broker_epoch
        for directory in list(self._directories.online):
            if directory.is_in_order:
                await directory.close_in_order(epoch)
            else:
                self._logger.info("not all logs were recovered directory=%s", directory.path)

    async def close_directories(self) -> None:
        self._directories.close()


def _name(partition: Partition) -> PartitionName:
    return PartitionName(partition.key.topic, partition.key.partition_id)
