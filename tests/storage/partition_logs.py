"""Batches of producers, and partition logs to test with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stored_batches import FILES, SMALL

from quorate.protocol.batch import (
    BatchHeader,
    ControlType,
    Record,
    batches,
    build,
    build_control,
    read_header,
    validate_produced,
)
from quorate.protocol.types import Uuid
from quorate.storage.files import Files
from quorate.storage.indexes import AbortedTransaction
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import Appended, PartitionLog, Produced
from quorate.storage.producer_state import ProducerState
from quorate.storage.producer_states import ProducerStates

TOPIC_ID = Uuid.parse("35t8hOT8SJuCXqRxLi11Zg")


def a_produced(
    producer_id: int = -1,
    sequence: int = -1,
    count: int = 1,
    *,
    epoch: int | None = None,
    is_transactional: bool = False,
    timestamp: int = 1000,
    value_bytes: int = 10,
) -> bytearray:
    """A batch as a client sends it."""
    return build(
        [Record(index, timestamp + index, None, bytes(value_bytes)) for index in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch if epoch is not None else (0 if producer_id >= 0 else -1),
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def a_marker(
    producer_id: int, *, is_abort: bool, epoch: int = 0, coordinator_epoch: int = 0, timestamp: int = 1000
) -> bytearray:
    """The end of a transaction."""
    kind = ControlType.ABORT if is_abort else ControlType.COMMIT
    value = bytes(2) + coordinator_epoch.to_bytes(4, "big")
    return build_control(
        [(kind, value)],
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
    )


def as_produced(buffer: bytearray) -> Produced:
    return Produced(buffer, validate_produced(buffer))


def produce(log: PartitionLog, buffer: bytearray, leader_epoch: int = 0) -> Appended:
    return log.append_produced(buffer, validate_produced(buffer), leader_epoch, 0)


async def opened_partition(
    directory: Path | str,
    config: LogConfig = SMALL,
    *,
    files: Files = FILES,
    recovery_point: int | None = 0,
    start_offset: int = 0,
) -> PartitionLog:
    return await PartitionLog.open(
        files,
        str(directory),
        config,
        topic_id=TOPIC_ID,
        now_ms=0,
        recovery_point=recovery_point,
        start_offset=start_offset,
    )


def stored(log: PartitionLog) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of a log, as a reader gets it."""
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 300)
        assert data, f"nothing at {offset}, before the end at {log.end_offset}"
        for header in batches(data):
            batch = bytes(data[header.position : header.end])
            yield read_header(batch), batch
            offset = header.next_offset


def replayed(log: PartitionLog) -> tuple[ProducerStates, list[AbortedTransaction]]:
    """What all batches of a log say of producers and transactions, from the first to the last."""
    states = ProducerStates()
    aborted = [found for header, batch in stored(log) if (found := states.take(header, batch))]
    return states, aborted


def check_producers(log: PartitionLog) -> None:
    """What the log knows is what its batches say, though not always as many of them."""
    states, aborted = replayed(log)
    assert log.producers.entries() == sorted_like(states, log.producers)
    assert log.producers.open_transactions == states.open_transactions
    for state in log.producers:
        known = states.of(state.producer_id)
        assert known is not None
        remembered, expected = _without_times(state), _without_times(known)
        assert remembered == expected[len(expected) - len(remembered) :]
        assert bool(remembered) == bool(expected)
    assert log.aborted_between(0, log.end_offset) == aborted


def _without_times(state: ProducerState) -> list[tuple[int, ...]]:
    """A snapshot has one time for each producer, that of the last batch or marker."""
    return [batch[:4] for batch in state.batches]


def sorted_like(states: ProducerStates, other: ProducerStates) -> list[object]:
    order = [state.producer_id for state in other]
    return sorted(states.entries(), key=lambda entry: order.index(entry.producer_id))
