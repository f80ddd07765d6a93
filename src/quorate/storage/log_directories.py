"""The log directories of a broker: where its partitions are.

Several disks, a directory each. A disk that fails takes its directory out, and the partitions in it, not the
broker. What is in a directory is called as `directory_names` says.

Opening a directory takes its lock, checks whose it is, and reads its checkpoints. From then on it does not
count as left in order, until `close_in_order` says so; which it must not while there are logs in it that
should have been recovered and were not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from quorate.protocol.types import Uuid
from quorate.storage.checkpoints import (
    CLEANED_NAME,
    HIGH_WATERMARKS_NAME,
    RECOVERY_POINTS_NAME,
    START_OFFSETS_NAME,
    PartitionName,
    delete_clean_shutdown,
    has_clean_shutdown,
    load_checkpoint,
    load_clean_shutdown,
    store_checkpoint,
    store_clean_shutdown,
)
from quorate.storage.directory_names import DirectoryKind, PartitionDirectory, parse_name, renamed
from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import File, Files, RemovesDirectories
from quorate.storage.lock import lock_directory
from quorate.storage.meta_properties import check_meta_properties, load_meta_properties

__all__ = ["LogDirectories", "LogDirectory"]

NO_BROKER_EPOCH: Final = -1


class LogDirectory:
    """One directory, in use by this process until it is closed."""

    def __init__(self, files: Files, path: str, directory_id: Uuid | None, lock: File | None) -> None:
        self.path = path
        self.directory_id = directory_id
        self.was_closed_in_order = False
        self.left_by_epoch: int | None = None  # of the broker that closed it in order, if it said
        # What the checkpoints say, of partitions that are here:
        self.recovery_points: dict[PartitionName, int] = {}
        self.start_offsets: dict[PartitionName, int] = {}
        self.high_watermarks: dict[PartitionName, int] = {}
        self.cleaned_offsets: dict[PartitionName, int] = {}
        self._storing_cleaned = asyncio.Lock()
        self.partitions: set[PartitionName] = set()  # whose replicas are here
        self.futures: dict[PartitionName, PartitionDirectory] = {}  # whose replicas will be here
        self._closed_in_order: set[PartitionName] = set()  # and were not opened since
        self._suspects: set[PartitionName] = set()  # that were not, nor recovered since
        self._files = files
        self._lock = lock

    @classmethod
    async def open(
        cls, files: Files, path: str, *, cluster_id: str | None, node_id: int, is_locked: bool = False
    ) -> LogDirectory:
        """Takes a directory into use. `StorageError` if it is another's, or not formatted, or its disk fails.
        It may be locked by this process already, for the metadata log."""
        lock = None if is_locked else lock_directory(files, path)
        try:
            meta = load_meta_properties(files, path)
            if meta is None:
                raise StorageError(path, "the directory is not formatted: it has no meta.properties")
            check_meta_properties(path, meta, cluster_id=cluster_id, node_id=node_id)
            made = cls(files, path, meta.directory_id, lock)
            made.was_closed_in_order = has_clean_shutdown(files, path)
            if made.was_closed_in_order:
                made.left_by_epoch = load_clean_shutdown(files, path)
            made.partitions = {one.partition for one in made.listing() if one.kind is DirectoryKind.CURRENT}
            made._load_checkpoints()
        except StorageError:
            if lock is not None:
                lock.close()
            raise
        for partition in made.partitions:
            made._found(partition)
        return made

    def _found(self, partition: PartitionName) -> None:
        """There is a log, which nobody has opened yet."""
        (self._closed_in_order if self.was_closed_in_order else self._suspects).add(partition)

    def _load_checkpoints(self) -> None:
        self.recovery_points = self._load(RECOVERY_POINTS_NAME)
        self.start_offsets = self._load(START_OFFSETS_NAME)
        self.high_watermarks = self._load(HIGH_WATERMARKS_NAME)
        try:
            self.cleaned_offsets = self._load(CLEANED_NAME)
        except StorageError as error:
            if isinstance(error.__cause__, OSError):
                raise
            self.cleaned_offsets = {}  # what is compacted once more than necessary is none the worse

    def _load(self, name: str) -> dict[PartitionName, int]:
        """A checkpoint. What it says of a partition that was deleted must not be taken for that of another
        one of the same name."""
        found = load_checkpoint(self._files, self.path, name)
        return {one: offset for one, offset in found.items() if one in self.partitions}

    def listing(self) -> list[PartitionDirectory]:
        """The directories of partitions, by name."""
        with storage_errors(self.path):
            return [found for name in self._files.names(self.path) if (found := parse_name(name))]

    def path_of(self, partition: PartitionName) -> str:
        return f"{self.path}/{partition}"

    def take_recovery_point(self, partition: PartitionName) -> int | None:
        """What `PartitionLog.open` has to know: None if the log was closed in order, which is so once. After
        that, `opened` has to know."""
        self._suspects.add(partition)
        if partition in self._closed_in_order:
            self._closed_in_order.remove(partition)
            return None
        return self.recovery_points.get(partition, 0)

    def opened(self, partition: PartitionName) -> None:
        """The log of a partition is open, and recovered."""
        self._suspects.discard(partition)

    @property
    def log_count(self) -> int:
        """Replicas that are here, or will be."""
        return len(self.partitions) + len(self.futures)

    # Names

    async def rename(self, partition: PartitionName, unique: Uuid, kind: DirectoryKind) -> str:
        """Takes a partition away, durably, whose log is closed. The new name of its directory."""
        name = self.take_name(partition, unique.hex(), kind)
        await self.sync_names()
        return name

    def take_name(self, partition: PartitionName, unique: str, kind: DirectoryKind) -> str:
        """The same, durable only after `sync_names`."""
        name = renamed(partition, unique, kind)
        self._rename(str(partition), name)
        self.partitions.discard(partition)
        self._forget(partition)
        return name

    def begin_future(self, partition: PartitionName, unique: Uuid) -> str:
        """There will be a copy here. The path of its directory, which opening the log makes."""
        assert partition not in self.partitions, f"{partition} is in {self.path}"
        name = renamed(partition, unique.hex(), DirectoryKind.FUTURE)
        self.futures[partition] = PartitionDirectory(name, partition, DirectoryKind.FUTURE, unique.hex())
        return f"{self.path}/{name}"

    async def drop_future(self, partition: PartitionName) -> str | None:
        """Takes a copy away, durably, whose log is closed. The new name of its directory, if it had one."""
        future = self.futures.pop(partition)
        self._forget(partition)
        with storage_errors(f"{self.path}/{future.name}"):
            if not self._files.exists(f"{self.path}/{future.name}"):
                return None
        name = renamed(partition, future.unique, DirectoryKind.DELETED)
        self._rename(future.name, name)
        await self.sync_names()
        return name

    def give_name(self, partition: PartitionName) -> None:
        """A copy is the replica now; durable after `sync_names`."""
        self._rename(self.futures.pop(partition).name, str(partition))
        self.partitions.add(partition)

    async def sync_names(self) -> None:
        with storage_errors(self.path):
            await self._files.fsync_dir(self.path)

    def _rename(self, name: str, new_name: str) -> None:
        with storage_errors(f"{self.path}/{name}"):
            self._files.rename(f"{self.path}/{name}", f"{self.path}/{new_name}")

    def _forget(self, partition: PartitionName) -> None:
        self._closed_in_order.discard(partition)
        self._suspects.discard(partition)
        for offsets in (self.recovery_points, self.start_offsets, self.high_watermarks, self.cleaned_offsets):
            offsets.pop(partition, None)

    # Copies that a process has left behind

    def keep_future(self, future: PartitionDirectory) -> None:
        """A copy can be gone on with."""
        self.futures[future.partition] = future
        self._found(future.partition)

    async def finish_move(self, future: PartitionDirectory) -> None:
        """Gives a copy its name that has replaced the one elsewhere. What the checkpoints say of it was
        written before that."""
        self.keep_future(future)
        self.give_name(future.partition)
        await self.sync_names()
        self._load_checkpoints()

    async def discard(self, future: PartitionDirectory) -> None:
        """Takes a copy away that is one too many."""
        self._rename(future.name, renamed(future.partition, future.unique, DirectoryKind.DELETED))
        await self.sync_names()

    # Deleting

    def delete(self, name: str) -> None:
        """Deletes the files of a directory that was renamed. If that is cut short, it can be done again."""
        path = f"{self.path}/{name}"
        with storage_errors(path):
            for file_name in self._files.names(path):
                self._files.unlink(f"{path}/{file_name}")
            if isinstance(self._files, RemovesDirectories):
                self._files.remove_directory(path)

    async def delete_gently(self, name: str) -> None:
        """The same, while others have their turn between two files: large ones take long."""
        path = f"{self.path}/{name}"
        with storage_errors(path):
            for file_name in self._files.names(path):
                self._files.unlink(f"{path}/{file_name}")
                await asyncio.sleep(0)
        self.delete(name)

    def finish_deletions(self) -> list[str]:
        """Deletes what was to be deleted when the last process ended. The names."""
        names = [one.name for one in self.listing() if one.kind is DirectoryKind.DELETED]
        for name in names:
            self.delete(name)
        return names

    # Checkpoints

    async def begin(self) -> None:
        """Logs may be changed from now on: if this process ends, they have to be recovered."""
        await delete_clean_shutdown(self._files, self.path)

    async def store_recovery_points(self, offsets: Mapping[PartitionName, int]) -> None:
        self.recovery_points = offsets = self._of_those_here(offsets)
        await store_checkpoint(self._files, self.path, RECOVERY_POINTS_NAME, offsets)

    async def store_start_offsets(self, offsets: Mapping[PartitionName, int]) -> None:
        """Only of logs whose first segment begins before."""
        self.start_offsets = offsets = self._of_those_here(offsets)
        await store_checkpoint(self._files, self.path, START_OFFSETS_NAME, offsets)

    async def store_high_watermarks(self, offsets: Mapping[PartitionName, int]) -> None:
        self.high_watermarks = offsets = self._of_those_here(offsets)
        await store_checkpoint(self._files, self.path, HIGH_WATERMARKS_NAME, offsets)

    async def set_cleaned_offset(self, partition: PartitionName, offset: int) -> None:
        """A log is compacted up to here; or was cut, and is no further than this."""
        self.cleaned_offsets[partition] = offset
        await self.store_cleaned_offsets()

    async def store_cleaned_offsets(self) -> None:
        async with self._storing_cleaned:
            self.cleaned_offsets = self._of_those_here(self.cleaned_offsets)
            await store_checkpoint(self._files, self.path, CLEANED_NAME, self.cleaned_offsets)

    def _of_those_here(self, offsets: Mapping[PartitionName, int]) -> dict[PartitionName, int]:
        """Without what was taken away after it was asked how far each log is."""
        return {
            one: offset for one, offset in offsets.items() if one in self.partitions or one in self.futures
        }

    @property
    def is_in_order(self) -> bool:
        """Whether every log here was opened, and so recovered, or need not be."""
        return not self._suspects

    async def close_in_order(self, broker_epoch: int) -> None:
        """All logs that were opened are closed, and the checkpoints stored."""
        assert self.is_in_order
        await store_clean_shutdown(self._files, self.path, broker_epoch)
        self.close()

    def close(self) -> None:
        """Gives back the lock."""
        if self._lock is not None:
            self._lock.close()


class LogDirectories:
    """All log directories of a broker: those in use, and those that failed, with the reason."""

    def __init__(
        self, online: Sequence[LogDirectory], offline: Mapping[str, str], previous_epoch: int
    ) -> None:
        self.online = list(online)
        self.offline = dict(offline)
        self.cordoned: frozenset[str] = frozenset()  # paths of those that get no new replicas
        self._failed: list[LogDirectory] = []  # since they were opened
        self._ids = {one.path: one.directory_id for one in online}
        self.previous_broker_epoch = previous_epoch
        """Of the broker that left all of them in order; -1 if none did."""

    @classmethod
    async def open(
        cls,
        files: Files,
        paths: Iterable[str],
        *,
        cluster_id: str | None,
        node_id: int,
        locked: Collection[str] = (),
    ) -> LogDirectories:
        """Opens all directories; of some this process may have the lock already. `StorageError` if one is
        another's or in use, or if none is left; one whose disk fails is offline."""
        online: list[LogDirectory] = []
        offline: dict[str, str] = {}
        try:
            for path in paths:
                try:
                    opened = LogDirectory.open(
                        files, path, cluster_id=cluster_id, node_id=node_id, is_locked=path in locked
                    )
                    online.append(await opened)
                except StorageError as error:
                    if not isinstance(error.__cause__, OSError):
                        raise
                    offline[path] = str(error)
            _check_together(online, offline)
            await _finish_moves(online, offline)
            _check_together(online, offline)
            previous_epoch = NO_BROKER_EPOCH if offline else _agreed_epoch(online)
        except StorageError:
            for directory in online:
                directory.close()
            raise
        return cls(online, offline, previous_epoch)

    def holding(self, partition: PartitionName) -> LogDirectory | None:
        """The directory that has a partition."""
        return next((one for one in self.online if partition in one.partitions), None)

    def choose(self) -> LogDirectory:
        """Where a new replica goes: the directory with the fewest, the first of several. A replica that
        nobody should have placed on this broker, because all are cordoned, is better there than nowhere."""
        if not self.online:
            raise StorageError(", ".join(self.offline), "no log directory is online")
        free = [one for one in self.online if one.path not in self.cordoned]
        return min(free or self.online, key=lambda one: one.log_count)

    def future_of(self, partition: PartitionName) -> LogDirectory | None:
        """The directory that a copy of a partition is in, or will be."""
        return next((one for one in self.online if partition in one.futures), None)

    def id_of_path(self, path: str) -> Uuid | None:
        """The id of the directory that a file or directory is in, even if it has failed since it was opened;
        None if it was not, or has none."""
        return next((one for at, one in self._ids.items() if f"{path}/".startswith(f"{at}/")), None)

    def of_path(self, path: str) -> LogDirectory | None:
        """The directory in use that a file or directory is in."""
        return next((one for one in self.online if f"{path}/".startswith(f"{one.path}/")), None)

    def take_offline(self, directory: LogDirectory, reason: str) -> None:
        """Its disk failed: nothing in it is touched any more. Its lock stays, so that no one else does."""
        if directory in self.online:
            self.online.remove(directory)
            self.offline[directory.path] = reason
            self._failed.append(directory)

    def close(self) -> None:
        for directory in (*self.online, *self._failed):
            directory.close()


def _check_together(online: Sequence[LogDirectory], offline: Mapping[str, str]) -> None:
    if not online:
        raise StorageError(", ".join(offline) or "log.dirs", "no log directory can be used")
    ids: dict[Uuid, str] = {}
    homes: dict[PartitionName, str] = {}
    for directory in online:
        if directory.directory_id is not None:
            other = ids.setdefault(directory.directory_id, directory.path)
            if other != directory.path:
                reason = f"its directory.id is {directory.directory_id}, as that of {other}"
                raise StorageError(directory.path, reason)
        for partition in sorted(directory.partitions):
            other = homes.setdefault(partition, directory.path)
            if other != directory.path:
                raise StorageError(directory.path_of(partition), f"{partition} is in {other} as well")


async def _finish_moves(online: list[LogDirectory], offline: dict[str, str]) -> None:
    """Copies that have replaced the replica elsewhere, and have not got its name yet, get it. Of other copies
    at most one of each partition stays, and none beside the replica itself: they can be made again."""
    listings = {directory: directory.listing() for directory in online}
    every = [one for listing in listings.values() for one in listing]
    current = {one.partition for one in every if one.kind is DirectoryKind.CURRENT}
    replaced = {(one.partition, one.unique) for one in every if one.kind is DirectoryKind.DELETED}
    kept: set[PartitionName] = set()
    for directory, listing in listings.items():
        futures = [one for one in listing if one.kind is DirectoryKind.FUTURE]
        finished = [
            one for one in futures if one.partition not in current and (one.partition, one.unique) in replaced
        ]
        try:
            for one in finished:
                await directory.finish_move(one)
            for one in [one for one in futures if one not in finished]:
                if one.partition in directory.partitions or one.partition in kept:
                    await directory.discard(one)
                else:
                    directory.keep_future(one)
                    kept.add(one.partition)
        except StorageError as error:
            directory.close()
            online.remove(directory)
            offline[directory.path] = str(error)


def _agreed_epoch(online: Sequence[LogDirectory]) -> int:
    """The broker epoch that all directories were left in order with."""
    epochs = {directory.left_by_epoch for directory in online}
    epoch = epochs.pop()
    return epoch if epoch is not None and not epochs else NO_BROKER_EPOCH
