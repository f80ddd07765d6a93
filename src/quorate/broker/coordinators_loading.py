"""A coordinator's state from its partition of the log: a fold over it, from beginning to end."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol

from quorate.broker.partition import Partition
from quorate.coordinator import log_format
from quorate.coordinator.effects import LogRecord
from quorate.protocol.batch import (
    NO_PRODUCER_ID,
    BatchHeader,
    ControlType,
    batches,
    control_type,
    records,
    validate,
)

__all__ = ["Foldable", "Replayed", "mark", "replay"]

READ_BYTES: Final = 128 << 10  # at a time, so that loading does not hold up the loop


class Foldable(Protocol):
    """A state that is a fold over records, those of transactions only once these are committed."""

    def apply(self, record: LogRecord, offset: int, producer_id: int = -1) -> None: ...
    def commit_transaction(self, producer_id: int) -> None: ...
    def abort_transaction(self, producer_id: int) -> None: ...


class Replayed(NamedTuple):
    end_offset: int
    records: int  # that say something of the state


async def replay(partition: Partition, shard: Foldable) -> Replayed:
    """Applies all that is in the log, and lets others go on after each piece."""
    offset, number = partition.log.start_offset, 0
    while offset < partition.log.end_offset:  # which may have moved to another directory meanwhile
        data = partition.log.read(max(offset, partition.log.start_offset), READ_BYTES)
        for header in batches(data):
            validate(data, header.position)
            number += _apply(shard, data, header, offset)
            offset = header.next_offset
        await asyncio.sleep(0)
    return Replayed(offset, number)


def _apply(shard: Foldable, data: memoryview, header: BatchHeader, first_offset: int) -> int:
    """Applies a batch. How many records it has that are not before an offset."""
    if header.is_control:
        for record in records(data, header):
            mark(shard, control_type(record), header.producer_id)
        return 0
    number = 0
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in records(data, header):
        if record.offset >= first_offset and record.key is not None:
            known = log_format.decode(record.key, record.value)
            if known is not None:
                shard.apply(known, record.offset, producer_id)
                number += 1
    return number


def mark(shard: Foldable, kind: ControlType | None, producer_id: int) -> None:
    """A transaction has ended."""
    if kind is ControlType.COMMIT:
        shard.commit_transaction(producer_id)
    elif kind is ControlType.ABORT:
        shard.abort_transaction(producer_id)
