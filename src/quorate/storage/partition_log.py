"""The log of a partition: batches, what is remembered of their producers, and which transactions were aborted.

(Signatures first; the bodies follow.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quorate.protocol.batch import BatchHeader
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer, Uuid
from quorate.storage.epochs import EpochEnd, LeaderEpochs
from quorate.storage.file_ranges import FileRange
from quorate.storage.files import Files
from quorate.storage.indexes import AbortedTransaction
from quorate.storage.limits import LogConfig
from quorate.storage.time_lookup import TimedOffset

__all__ = ["Appended", "PartitionLog", "Produced"]


class Appended(NamedTuple):
    """Where a batch is in the log; if it is a duplicate, where it was already."""

    base_offset: int
    last_offset: int
    is_duplicate: bool
    timestamp_ms: int  # the largest of the batch


class Produced(NamedTuple):
    """A batch of a client, validated: the buffer it lies in, and its header as it is there now."""

    buffer: bytearray | memoryview
    header: BatchHeader


class PartitionLog:
    """One replica's log, owned by whoever opened it. `PartitionLog.open` makes it."""

    @classmethod
    async def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        topic_id: Uuid,
        now_ms: int,
        recovery_point: int | None,
        start_offset: int = 0,
    ) -> PartitionLog:
        """`recovery_point` is None after a clean shutdown."""
        raise NotImplementedError

    @property
    def directory(self) -> str:
        raise NotImplementedError

    @property
    def start_offset(self) -> int:
        raise NotImplementedError

    @property
    def end_offset(self) -> int:
        raise NotImplementedError

    @property
    def flushed_offset(self) -> int:
        """The recovery point."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        raise NotImplementedError

    @property
    def epochs(self) -> LeaderEpochs:
        raise NotImplementedError

    @property
    def first_unstable_offset(self) -> int | None:
        """The LSO is the smaller of this and the high watermark."""
        raise NotImplementedError

    # Writing: synchronous. StorageError if the disk fails.

    def append_produced(
        self, buffer: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> Appended:
        """One batch. ApiError if the producer's epoch or sequence is wrong, or it fits into no segment."""
        raise NotImplementedError

    def append_many(
        self, produced: Sequence[Produced], leader_epoch: int, now_ms: int
    ) -> list[Appended | ApiError]:
        """The same for several, in one write. One answer for each, in order."""
        raise NotImplementedError

    def append_control(self, buffer: bytearray | memoryview, leader_epoch: int, now_ms: int) -> Appended:
        """A marker of a transaction coordinator. ApiError if it comes from one that was replaced."""
        raise NotImplementedError

    def append_replicated(self, data: Buffer, now_ms: int, *, epoch_max: int | None = None) -> int:
        """What a leader has: the whole batches of a fetch, checksums checked (ApiError CORRUPT_MESSAGE), up
        to the first one of an epoch above `epoch_max`. The new end offset. AppendError if they do not go on
        where the log ends."""
        raise NotImplementedError

    def assign_epoch(self, epoch: int) -> None:
        """This replica leads from the end of the log on."""
        raise NotImplementedError

    def replicated_to(self, high_watermark: int) -> None:
        """Tells it the high watermark: transactions whose marker is below it are stable."""
        raise NotImplementedError

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that were silent for so long. How many."""
        raise NotImplementedError

    # Reading: synchronous. ApiError OFFSET_OUT_OF_RANGE outside of start to end.

    def read(
        self, offset: int, max_bytes: int, *, before_offset: int | None = None, at_least_one: bool = True
    ) -> memoryview:
        """Whole batches; empty if there are none."""
        raise NotImplementedError

    def range(
        self, offset: int, max_bytes: int, *, before_offset: int | None = None, at_least_one: bool = True
    ) -> FileRange | None:
        """The same bytes, still in their file; None if there are none."""
        raise NotImplementedError

    def offset_for_time(self, timestamp_ms: int, *, before_offset: int | None = None) -> TimedOffset | None:
        raise NotImplementedError

    def max_timestamp(self, *, before_offset: int | None = None) -> TimedOffset | None:
        raise NotImplementedError

    def end_offset_of(self, epoch: int) -> EpochEnd:
        raise NotImplementedError

    def aborted_between(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        raise NotImplementedError

    # Waiting for the disk

    async def flush(self) -> int:
        raise NotImplementedError

    async def truncate_to(self, offset: int) -> int:
        """The new end offset."""
        raise NotImplementedError

    async def restart_at(self, offset: int, now_ms: int) -> None:
        raise NotImplementedError

    async def delete_until(self, offset: int, now_ms: int) -> None:
        raise NotImplementedError

    async def apply_retention(
        self, high_watermark: int, retention_bytes: int, retention_ms: int, now_ms: int
    ) -> int:
        """How many segments were deleted. -1 is no limit."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def abandon(self) -> None:
        raise NotImplementedError
