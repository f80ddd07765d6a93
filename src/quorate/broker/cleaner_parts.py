"""Who takes part in compaction: who does the work, who remembers, what is set and what is counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from quorate.storage.compaction import CleanedGroup, Compacted, CompactionTask
from quorate.storage.partition_log import PartitionLog
from quorate.values import dataclass

__all__ = [
    "CleanedOffsets",
    "CleanerSettings",
    "CleanerStats",
    "CompactionFailedError",
    "Compactor",
    "CompactorLostError",
    "Swap",
]

Swap = Callable[[CleanedGroup], Awaitable[None]]


class CompactionFailedError(Exception):
    """A log could not be compacted. `is_damaged` if that is because of what is in it."""

    def __init__(self, reason: str, *, is_damaged: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_damaged = is_damaged


class CompactorLostError(Exception):
    """Whoever did the work is gone, and nobody knows why."""


class Compactor(Protocol):
    """Somebody who compacts logs, one at a time."""

    async def run(self, task: CompactionTask, swap: Swap, bytes_per_second: float) -> Compacted:
        """Does it; `swap` puts a group in place, and ends it if it raises. If this is cancelled, the work
        has ended when it returns. `CompactionFailedError` and `CompactorLostError` say what went wrong."""

    async def close(self) -> None: ...


class CleanedOffsets(Protocol):
    """How far logs are clean, remembered on disk."""

    def of(self, log: PartitionLog) -> int | None: ...
    async def store(self, log: PartitionLog, offset: int) -> None: ...
    async def forget(self, log: PartitionLog) -> None: ...
    def carry_over(self, log: PartitionLog, offset: int) -> None:
        """A log that has another directory now is clean as far as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """Kafka's `log.cleaner.*`, as they are now."""

    threads: int = 1
    dedupe_buffer_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 << 10
    io_max_bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000


@dataclass(slots=True)
class CleanerStats:
    """What has been done since the broker started, for whoever watches it."""

    runs: int = 0
    failures: int = 0
    given_up: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    records_read: int = 0
    records_kept: int = 0
    dirty_ratio_max: float = 0.0  # of all logs, at the last look
    last_look_ms: int = 0  # wall time
    last_run_ms: int = 0
    last_run_duration_ms: float = 0.0
    last_map_share: float = 0.0
