"""The log directories of a broker: where its partitions are.

Several disks, a directory each. A disk that fails takes its directory out, and the partitions in it, not the
broker. What is in a directory:

- `topic-N`: a partition.
- `topic-N.<id>-delete`: one that was deleted: the name goes first, in an instant; the files follow.
- `topic-N.<id>-future`: a copy that will replace the one in another directory.
- `topic-N.<id>-stray`: one that the cluster no longer assigns to this broker; kept for people to look at.
- `__cluster_metadata-0`, which belongs to the quorum, and is left alone here.

Opening a directory takes its lock, checks whose it is, and reads its checkpoints. From then on it does not
count as left in order, until `close_in_order` says so; which it must not while there are logs in it that
should have been recovered and were not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from quorate.protocol.types import Uuid
from quorate.storage.checkpoints import (
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
from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import File, Files, RemovesDirectories
from quorate.storage.lock import lock_directory
from quorate.storage.meta_properties import check_meta_properties, load_meta_properties

__all__ = [
    "DirectoryKind",
    "LogDirectories",
    "LogDirectory",
    "PartitionDirectory",
    "parse_name",
    "renamed",
]

_METADATA_NAME: Final = "__cluster_metadata-0"
_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_RENAMED: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)\.([^\s.]+)-(delete|future|stray)")
_NAME_CHARACTERS_MAX: Final = 255
NO_BROKER_EPOCH: Final = -1


class DirectoryKind(Enum):
    """What a directory of a partition is."""

    CURRENT = ""
    DELETED = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDirectory(NamedTuple):
    """A directory of a partition, by the name that it has."""

    name: str
    partition: PartitionName
    kind: DirectoryKind


def parse_name(name: str) -> PartitionDirectory | None:
    """Whose directory it is; None if it is no partition's.

    >>> parse_name("orders-2.c41f-delete")
    PartitionDirectory(name='orders-2.c41f-delete', partition=..., kind=<DirectoryKind.DELETED: 'delete'>)
    """
    match = _RENAMED.fullmatch(name)
    kind = DirectoryKind(match[4]) if match else DirectoryKind.CURRENT
    match = match or _NAME.fullmatch(name)
    if match is None or name == _METADATA_NAME:
        return None
    return PartitionDirectory(name, PartitionName(match[1], int(match[2])), kind)


def renamed(partition: PartitionName, unique: Uuid, kind: DirectoryKind) -> str:
    """What a directory is called that is not, or no longer, the current one. Long topics are cut: the rest
    makes it unique."""
    assert kind is not DirectoryKind.CURRENT
    suffix = f"-{partition.partition}.{unique.hex()}-{kind.value}"
    return partition.topic[: _NAME_CHARACTERS_MAX - len(suffix)] + suffix


class LogDirectory:
    """One directory, in use by this process until it is closed."""

    def __init__(self, files: Files, path: str, directory_id: Uuid | None, lock: File | None) -> None:
        self.path = path
        self.directory_id = directory_id
        self.was_closed_in_order = False
        # What the checkpoints say, of partitions that are here:
        self.recovery_points: dict[PartitionName, int] = {}
        self.start_offsets: dict[PartitionName, int] = {}
        self.high_watermarks: dict[PartitionName, int] = {}
        self.partitions: set[PartitionName] = set()  # whose replicas are here
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
            made.partitions = {one.partition for one in made.listing() if one.kind is DirectoryKind.CURRENT}
            made.recovery_points = made._load(RECOVERY_POINTS_NAME)
            made.start_offsets = made._load(START_OFFSETS_NAME)
            made.high_watermarks = made._load(HIGH_WATERMARKS_NAME)
        except StorageError:
            if lock is not None:
                lock.close()
            raise
        unopened = made._closed_in_order if made.was_closed_in_order else made._suspects
        unopened.update(made.partitions)
        return made

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

    # Deleting

    async def rename(self, partition: PartitionName, unique: Uuid, kind: DirectoryKind) -> str:
        """Takes a partition away, durably, whose log is closed. The new name of its directory."""
        name = renamed(partition, unique, kind)
        with storage_errors(self.path_of(partition)):
            self._files.rename(self.path_of(partition), f"{self.path}/{name}")
            await self._files.fsync_dir(self.path)
        self.partitions.discard(partition)
        self._closed_in_order.discard(partition)
        self._suspects.discard(partition)
        for offsets in (self.recovery_points, self.start_offsets, self.high_watermarks):
            offsets.pop(partition, None)
        return name

    def delete(self, name: str) -> None:
        """Deletes the files of a directory that was renamed. If that is cut short, it can be done again."""
        path = f"{self.path}/{name}"
        with storage_errors(path):
            for file_name in self._files.names(path):
                self._files.unlink(f"{path}/{file_name}")
            if isinstance(self._files, RemovesDirectories):
                self._files.remove_directory(path)

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
        self.recovery_points = dict(offsets)
        await store_checkpoint(self._files, self.path, RECOVERY_POINTS_NAME, offsets)

    async def store_start_offsets(self, offsets: Mapping[PartitionName, int]) -> None:
        """Only of logs whose first segment begins before."""
        self.start_offsets = dict(offsets)
        await store_checkpoint(self._files, self.path, START_OFFSETS_NAME, offsets)

    async def store_high_watermarks(self, offsets: Mapping[PartitionName, int]) -> None:
        self.high_watermarks = dict(offsets)
        await store_checkpoint(self._files, self.path, HIGH_WATERMARKS_NAME, offsets)

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
            previous_epoch = NO_BROKER_EPOCH if offline else _agreed_epoch(files, online)
        except StorageError:
            for directory in online:
                directory.close()
            raise
        return cls(online, offline, previous_epoch)

    def holding(self, partition: PartitionName) -> LogDirectory | None:
        """The directory that has a partition."""
        return next((one for one in self.online if partition in one.partitions), None)

    def choose(self) -> LogDirectory:
        """Where a new replica goes: the directory with the fewest, the first of several."""
        if not self.online:
            raise StorageError(", ".join(self.offline), "no log directory is online")
        return min(self.online, key=lambda one: len(one.partitions))

    def of_path(self, path: str) -> LogDirectory | None:
        """The directory in use that a file or directory is in."""
        return next((one for one in self.online if f"{path}/".startswith(f"{one.path}/")), None)

    def take_offline(self, directory: LogDirectory, reason: str) -> None:
        """Its disk failed: nothing in it is touched any more. Its lock stays, so that no one else does."""
        if directory in self.online:
            self.online.remove(directory)
            self.offline[directory.path] = reason

    def close(self) -> None:
        for directory in self.online:
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


def _agreed_epoch(files: Files, online: Sequence[LogDirectory]) -> int:
    """The broker epoch that all directories were left in order with."""
    epochs = {load_clean_shutdown(files, directory.path) for directory in online}
    epoch = epochs.pop()
    return epoch if epoch is not None and not epochs else NO_BROKER_EPOCH
