"""Copies of logs in another log directory: begun, gone on with, dropped, or put in the place of the log.

The replacement happens in one instant, which survives `kill -9` and power failures at every step, and there
are never two logs that both claim to be the replica, nor none. `t-0` is the log, `t-0.u-future` its copy:

1. The copy has everything, synced as far as the log is, and its directory's checkpoints know where it begins.
2. What was appended since then is copied, the log is renamed `t-0.u-delete`, with the id `u` of the copy, and
   the copy is used from now on. No other code runs in between. Whoever starts after this moment finds a log
   that was replaced, and its copy (`storage.log_directories`); whoever starts after a moment before it finds
   a log, and a copy that can be gone on with.
3. The new names are synced, and the copy is renamed `t-0`.
4. Some time later, when nobody can be reading it any more, the old log is deleted.

Until 3 is done neither of the two counts anything as synced, so nothing that was is lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from quorate.broker.partition import TopicPartition
from quorate.broker.topic_config import TopicConfig
from quorate.metadata.partitions import UNASSIGNED
from quorate.node.host import Host
from quorate.node.log_shelf import DirectoryShelf
from quorate.protocol.types import Uuid
from quorate.storage.checkpoints import PartitionName
from quorate.storage.directory_names import DirectoryKind
from quorate.storage.errors import StorageError
from quorate.storage.files import MeasuresSpace, Space
from quorate.storage.log_directories import LogDirectory
from quorate.storage.partition_log import PartitionLog

__all__ = ["FutureLogs"]

DELETE_DELAY_S: Final = 60.0  # Kafka's file.delete.delay.ms
UNKNOWN_SPACE: Final = Space(-1, -1)


class _Replaced(NamedTuple):
    """A log that is not used any more, and where its files are."""

    log: PartitionLog
    directory: LogDirectory
    name: str
    delete_at: float


class FutureLogs:
    """A `broker.directory_moves.FutureShelf`, and what is asked about log directories. Paths are absolute
    here, as people and programs name them."""

    def __init__(self, host: Host, shelf: DirectoryShelf, paths: Iterable[str]) -> None:
        self._host = host
        self._shelf = shelf
        self._directories = shelf.directories
        self._paths = {self.absolute(path): path.rstrip("/") for path in paths}
        self._absolute = {path: name for name, path in self._paths.items()}
        self._replaced: list[_Replaced] = []
        self._has_replaced = asyncio.Event()
        self._logger = logging.getLogger(f"quorate.broker.{host.name}")

    # Directories

    @property
    def paths(self) -> list[str]:
        """All that are configured, in their order."""
        return list(self._paths)

    def is_known(self, path: str) -> bool:
        return path in self._paths

    def is_online(self, path: str) -> bool:
        return self._online(path) is not None

    def is_any_offline(self) -> bool:
        return bool(self._directories.offline)

    def path_of(self, log: PartitionLog) -> str:
        path = log.directory.rpartition("/")[0]
        return self._absolute.get(path) or self.absolute(path)

    def absolute(self, path: str) -> str:
        """As it is called here."""
        return os.path.abspath(path)  # noqa: PTH100

    def id_of(self, path: str) -> Uuid:
        """Also of one that has failed since it was opened; UNASSIGNED if it has none."""
        return self._directories.id_of_path(self._paths[path]) or UNASSIGNED

    def cordon(self, paths: Collection[str]) -> None:
        """These, and no others, get no new replicas."""
        self._directories.cordoned = frozenset(self._paths[one] for one in paths)

    def is_cordoned(self, path: str) -> bool:
        return self._paths[path] in self._directories.cordoned

    def cordoned_ids(self) -> list[Uuid]:
        """Of those that can be used."""
        return [self.id_of(one) for one in self._paths if self.is_cordoned(one) and self.is_online(one)]

    def space(self, path: str) -> Space:
        """How much there is; `StorageError` if the disk does not say."""
        if not isinstance(self._host.files, MeasuresSpace):
            return UNKNOWN_SPACE
        try:
            return self._host.files.space(self._paths[path])
        except OSError as error:
            raise StorageError.of(path, error) from error

    def prefer(self, topic: str, partition_id: int, path: str) -> None:
        """A replica that is not here yet shall begin in this directory."""
        self._shelf.prefer(PartitionName(topic, partition_id), self._paths[path])

    def _online(self, path: str) -> LogDirectory | None:
        return next((one for one in self._directories.online if one.path == self._paths.get(path)), None)

    # Copies

    def found(self, key: TopicPartition) -> str | None:
        """The directory in which there is a copy."""
        directory = self._directories.future_of(_name(key))
        return None if directory is None else self.absolute(directory.path)

    async def open(self, key: TopicPartition, config: TopicConfig, path: str) -> PartitionLog:
        """The copy of a log in another directory, as far as it is; or a new one."""
        name, directory = _name(key), self._online(path)
        if directory is None:
            raise StorageError(path, "the log directory is offline")
        try:
            if name in directory.futures:
                place = f"{directory.path}/{directory.futures[name].name}"
            else:
                await self._shelf.forget_deleted(name, directory)
                place = directory.begin_future(name, Uuid(self._host.random.randbytes(16)))
            log = await PartitionLog.open(
                self._host.files,
                place,
                config.log,
                topic_id=key.topic_id,
                now_ms=self._host.wall_ms(),
                recovery_point=directory.take_recovery_point(name),
                room=self._shelf.producers,
            )
        except StorageError as error:
            self._shelf.fail_directory(directory, error)
            raise
        directory.opened(name)
        return log

    async def drop(self, key: TopicPartition, path: str, log: PartitionLog | None) -> None:
        """Takes a copy away."""
        if log is not None:
            await log.retire()
        name, directory = _name(key), self._online(path)
        if directory is None or name not in directory.futures:
            return
        try:
            await self._shelf.drop_future(directory, name)
        except StorageError as error:
            self._shelf.fail_directory(directory, error)

    def fail(self, log: PartitionLog, error: StorageError) -> None:
        """The disk under a log or a copy has failed."""
        self._shelf.fail(log, error)

    # Replacing

    async def replace(
        self,
        key: TopicPartition,
        log: PartitionLog,
        copy: PartitionLog,
        catch_up: Callable[[], bool],
        use: Callable[[PartitionLog], None],
    ) -> bool:
        """Puts a copy in the place of its original. `catch_up` copies what is missing, at once, or says that
        it is too much; then nothing has happened. `use` is told in the instant when it is done."""
        name = _name(key)
        source = self._directories.of_path(log.directory)
        target = self._directories.of_path(copy.directory)
        if source is None or target is None or name not in target.futures:
            return False
        async with log.undisturbed():
            if not catch_up():
                return False
            await self._prepare(name, log, copy, target)
            async with copy.undisturbed():
                if target not in self._directories.online or source not in self._directories.online:
                    return False
                if not catch_up() or list(log.epochs) != list(copy.epochs):
                    return False
                try:
                    copy.adopt_producers(log)
                except StorageError as error:
                    self._shelf.fail_directory(target, error)
                    raise
                await self._commit(key, log, copy, source, target, use)
        return True

    async def _prepare(
        self, name: PartitionName, log: PartitionLog, copy: PartitionLog, target: LogDirectory
    ) -> None:
        """The copy is on disk, and so is what the checkpoints say of a log of its name."""
        try:
            copy.adopt_epochs(log)
            await copy.flush()
            source = self._directories.holding(name)
            target.recovery_points[name] = copy.flushed_offset
            target.start_offsets[name] = copy.start_offset
            target.high_watermarks[name] = 0 if source is None else source.high_watermarks.get(name, 0)
            await self._shelf.store(target)
        except StorageError as error:
            self._shelf.fail_directory(target, error)
            raise

    async def _commit(
        self,
        key: TopicPartition,
        log: PartitionLog,
        copy: PartitionLog,
        source: LogDirectory,
        target: LogDirectory,
        use: Callable[[PartitionLog], None],
    ) -> None:
        name = _name(key)
        unique = target.futures[name].unique
        try:
            deleted = source.take_name(name, unique, DirectoryKind.DELETED)
        except StorageError as error:
            self._shelf.fail_directory(source, error)
            raise
        use(copy)
        log.is_now_in(f"{source.path}/{deleted}")
        self._shelf.replaced(key, copy, source)
        try:
            await source.sync_names()
        except StorageError as error:
            self._shelf.fail_directory(source, error)  # the replica is not there any more
        try:
            target.give_name(name)
            copy.is_now_in(target.path_of(name))
            await target.sync_names()
        except StorageError as error:
            self._shelf.fail_directory(target, error)
            raise
        delete_at = asyncio.get_running_loop().time() + DELETE_DELAY_S
        self._replaced.append(_Replaced(log, source, deleted, delete_at))
        self._has_replaced.set()

    async def delete_replaced(self) -> None:
        """Deletes logs that were replaced, again and again, when nobody can be reading them any more."""
        while True:
            self._has_replaced.clear()
            if not self._replaced:
                await self._has_replaced.wait()
            await asyncio.sleep(max(0.0, self._replaced[0].delete_at - asyncio.get_running_loop().time()))
            log, directory, name, _ = self._replaced.pop(0)
            await log.retire()
            if directory in self._directories.online:
                try:
                    await directory.delete_gently(name)
                except StorageError as error:
                    self._shelf.fail_directory(directory, error)

    async def close(self) -> None:
        """Closes logs that were replaced. The next start deletes them."""
        while self._replaced:
            await self._replaced.pop().log.retire()


def _name(key: TopicPartition) -> PartitionName:
    return PartitionName(key.topic, key.partition_id)
