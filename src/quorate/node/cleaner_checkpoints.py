"""How far each log is compacted: the `cleaner-offset-checkpoint` of each log directory."""

from __future__ import annotations

from quorate.storage.checkpoints import PartitionName
from quorate.storage.directory_names import parse_name
from quorate.storage.log_directories import LogDirectories, LogDirectory
from quorate.storage.partition_log import PartitionLog

__all__ = ["CleanerCheckpoints"]


class CleanerCheckpoints:
    """A `broker.cleaner.CleanedOffsets`, over the log directories that are in use."""

    def __init__(self, directories: LogDirectories) -> None:
        self._directories = directories

    def of(self, log: PartitionLog) -> int | None:
        directory, name = self._place_of(log)
        return None if directory is None else directory.cleaned_offsets.get(name)

    async def store(self, log: PartitionLog, offset: int) -> None:
        directory, name = self._place_of(log)
        if directory is not None:
            await directory.set_cleaned_offset(name, offset)

    async def forget(self, log: PartitionLog) -> None:
        """Durably: another log of this name must not be taken for it."""
        directory, name = self._place_of(log)
        if directory is not None and directory.cleaned_offsets.pop(name, None) is not None:
            await directory.store_cleaned_offsets()

    def carry_over(self, log: PartitionLog, offset: int) -> None:
        """Stored with the next one: until then it counts as never compacted, which is only more work."""
        directory, name = self._place_of(log)
        if directory is not None:
            directory.cleaned_offsets[name] = offset

    def _place_of(self, log: PartitionLog) -> tuple[LogDirectory | None, PartitionName]:
        found = parse_name(log.directory.rpartition("/")[2])
        assert found is not None, f"{log.directory} is that of a partition"
        return self._directories.of_path(log.directory), found.partition
