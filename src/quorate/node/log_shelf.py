"""The log directories of a running broker: logs are opened in them, deleted, and closed in order.

A disk that fails takes its directory out; whoever must know is told. A directory that holds another topic of
the same name, deleted and created again while the broker was away, is set aside before the new one begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from quorate.broker.partition import Partition, TopicPartition
from quorate.broker.settings import BrokerSettings
from quorate.broker.topic_config import TopicConfig
from quorate.metadata.partitions import LOST, MIGRATING, UNASSIGNED
from quorate.node.config import NodeConfig
from quorate.node.host import Host
from quorate.protocol.types import Uuid
from quorate.storage.checkpoints import PartitionName
from quorate.storage.errors import StorageError
from quorate.storage.log_directories import DirectoryKind, LogDirectories, LogDirectory
from quorate.storage.partition_log import PartitionLog
from quorate.storage.partition_metadata import read_topic_id

__all__ = ["DirectoryShelf"]

_RESERVED = (MIGRATING, UNASSIGNED, LOST)


class DirectoryShelf:
    """A `broker.replicas.LogShelf`."""

    def __init__(self, host: Host, directories: LogDirectories) -> None:
        self._host = host
        self._directories = directories
        self._logger = logging.getLogger(f"quorate.broker.{host.name}")
        self.when_failed: Callable[[Sequence[Uuid]], None] | None = None

    @classmethod
    async def open(cls, host: Host, config: NodeConfig, settings: BrokerSettings) -> DirectoryShelf:
        paths = [path.rstrip("/") for path in config.log_directories if path]
        directories = await LogDirectories.open(
            host.files,
            paths,
            cluster_id=settings.cluster_id,
            node_id=settings.broker_id,
            locked=(config.metadata_directory,),
        )
        shelf = cls(host, directories)
        for directory in directories.online:
            directory.finish_deletions()
            await directory.begin()
        return shelf

    @property
    def directory_ids(self) -> list[Uuid]:
        return [one.directory_id for one in self._directories.online if one.directory_id is not None]

    @property
    def previous_epoch(self) -> int:
        return self._directories.previous_broker_epoch

    # Logs

    async def open_log(self, key: TopicPartition, config: TopicConfig, directory_id: Uuid) -> PartitionLog:
        """The log of a replica, recovered; in the directory where it is, or was assigned to, or with room."""
        name = PartitionName(key.topic, key.partition_id)
        directory = self._directories.holding(name)
        if directory is not None:
            found = read_topic_id(self._host.files, directory.path_of(name))
            if found is not None and found != key.topic_id:
                unique = Uuid(self._host.random.randbytes(16))
                stray = await directory.rename(name, unique, DirectoryKind.STRAY)
                self._logger.warning("set aside directory=%s/%s topic_id=%s", directory.path, stray, found)
                directory = None
        if directory is None:
            directory = self._assigned(directory_id) or self._directories.choose()
            directory.partitions.add(name)
        try:
            return await PartitionLog.open(
                self._host.files,
                directory.path_of(name),
                config.log,
                topic_id=key.topic_id,
                now_ms=self._host.wall_ms(),
                recovery_point=directory.take_recovery_point(name),
                start_offset=directory.start_offsets.get(name, 0),
            )
        except StorageError as error:
            self._fail(directory, error)
            raise

    def _assigned(self, directory_id: Uuid) -> LogDirectory | None:
        if directory_id in _RESERVED:
            return None
        return next((one for one in self._directories.online if one.directory_id == directory_id), None)

    def high_watermark_of(self, key: TopicPartition) -> int:
        name = PartitionName(key.topic, key.partition_id)
        directory = self._directories.holding(name)
        return 0 if directory is None else directory.high_watermarks.get(name, 0)

    def directory_of(self, log: PartitionLog) -> Uuid:
        """The id of the directory that a log is in."""
        directory = self._directories.of_path(log.directory)
        return UNASSIGNED if directory is None or directory.directory_id is None else directory.directory_id

    async def delete_log(self, key: TopicPartition, log: PartitionLog) -> None:
        """Deletes a replica: its name at once, its files after that."""
        directory = self._directories.of_path(log.directory)
        if directory is None:
            return
        name = PartitionName(key.topic, key.partition_id)
        try:
            await log.close()
            unique = Uuid(self._host.random.randbytes(16))
            renamed = await directory.rename(name, unique, DirectoryKind.DELETED)
            directory.delete(renamed)
        except StorageError as error:
            self._fail(directory, error)

    async def save(self, partitions: Sequence[Partition]) -> None:
        """Stores the checkpoints of all directories."""
        for directory in list(self._directories.online):
            mine = [one for one in partitions if self._directories.of_path(one.log.directory) is directory]
            try:
                await directory.store_high_watermarks({_name(one): one.high_watermark for one in mine})
                await directory.store_recovery_points({_name(one): one.log.flushed_offset for one in mine})
                await directory.store_start_offsets({_name(one): one.log.start_offset for one in mine})
            except StorageError as error:
                self._fail(directory, error)

    # Failing and ending

    def fail(self, log: PartitionLog, error: StorageError) -> None:
        """The disk under a log has failed."""
        directory = self._directories.of_path(log.directory)
        if directory is not None:
            self._fail(directory, error)

    def _fail(self, directory: LogDirectory, error: StorageError) -> None:
        self._logger.error("log directory offline path=%s reason=%s", directory.path, error)
        self._directories.take_offline(directory, str(error))
        if self.when_failed is not None and directory.directory_id is not None:
            self.when_failed([directory.directory_id])

    async def mark_clean(self, broker_epoch: int) -> None:
        """Everything was closed in order: nothing need be recovered."""
        for directory in list(self._directories.online):
            await directory.close_in_order(broker_epoch)

    async def close_directories(self) -> None:
        self._directories.close()


def _name(partition: Partition) -> PartitionName:
    return PartitionName(partition.key.topic, partition.key.partition_id)
