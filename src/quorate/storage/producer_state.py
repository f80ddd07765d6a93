"""What a partition remembers of one producer: its epoch, its last batches, and the transaction that is open.

What the rules are for is said in `producer_states`.
"""

from __future__ import annotations

from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from quorate.protocol.batch import BatchHeader, ControlType, control_type, records
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer

__all__ = ["Marker", "ProducerEntry", "ProducerState", "RememberedBatch", "read_marker"]

_REMEMBERED_BATCHES: Final = 5
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_NO_EPOCH: Final = -1
_NO_SEQUENCE: Final = -1
_NO_OFFSET: Final = -1
_remembered_fields: Final = itemgetter(0, 6, 8, 11)  # base offset, last delta, newest time, base sequence
_MARKER_VALUE: Final = Struct(">hi")  # version, epoch of the coordinator


class RememberedBatch(NamedTuple):
    """A batch that a producer has sent."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry(NamedTuple):
    """What a snapshot keeps of a producer, in the order of `producers.ProducerSnapshot`: the last batch
    alone."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class Marker(NamedTuple):
    """The end of a transaction, as its coordinator writes it."""

    is_abort: bool
    coordinator_epoch: int
    timestamp_ms: int


def read_marker(buffer: Buffer, header: BatchHeader) -> Marker | None:
    """What a control batch says; None if it ends no transaction, or compaction has emptied it."""
    if not header.record_count:
        return None
    record = records(buffer, header)[0]
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        reason = f"control record at offset {record.offset}: no epoch of a coordinator"
        raise ApiError(ErrorCode.INVALID_RECORD, reason)
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return Marker(kind is ControlType.ABORT, coordinator_epoch, record.timestamp)


class ProducerState:
    """What is known of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
        "transaction_first_offset",
        "used",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = _NO_EPOCH
        self.batches: tuple[RememberedBatch, ...] = ()
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.transaction_first_offset: int | None = None
        self.used = 0  # when it wrote last: see `ProducerRoom.clock`

    @property
    def last_sequence(self) -> int:
        """Of the last batch; -1 without one, or if it had none."""
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerState) and self._fields() == other._fields()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = ("producer_id", "epoch", "coordinator_epoch", "last_timestamp_ms", "transaction_first_offset")
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return f"ProducerState({fields}, batches={list(self.batches)})"

    def copy(self) -> ProducerState:
        made = ProducerState(self.producer_id)
        made.batches = self.batches
        made.epoch = self.epoch
        made.coordinator_epoch = self.coordinator_epoch
        made.last_timestamp_ms = self.last_timestamp_ms
        made.transaction_first_offset = self.transaction_first_offset
        made.used = self.used
        return made

    def entry(self) -> ProducerEntry:
        last = self.batches[-1] if self.batches else None
        first_offset = self.transaction_first_offset
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            last.last_sequence if last else _NO_SEQUENCE,
            last.last_offset if last else _NO_OFFSET,
            last.last_offset - last.base_offset if last else 0,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            _NO_OFFSET if first_offset is None else first_offset,
        )

    @classmethod
    def of_entry(cls, entry: ProducerEntry) -> ProducerState:
        made = cls(entry.producer_id)
        made.epoch = entry.epoch
        made.coordinator_epoch = entry.coordinator_epoch
        made.last_timestamp_ms = entry.timestamp
        if entry.last_offset >= 0:
            made.batches = (_remembered(entry),)
        if entry.current_txn_first_offset >= 0:
            made.transaction_first_offset = entry.current_txn_first_offset
        return made

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """The batch that this one repeats; None if it is the next one. Refuses all others."""
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch == self.epoch and sequence >= 0:
            if sequence != (self.last_sequence + 1) & _SEQUENCE_MASK:
                return self._duplicate_of(header)
        elif sequence > 0 and epoch > self.epoch:
            raise self._refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {sequence} at the beginning of epoch {epoch}, which is 0",
            )
        else:  # a new epoch, or a batch of a coordinator, which has no sequence
            self.check_epoch(epoch)
        if self.transaction_first_offset is not None and not header.is_transactional:
            raise self._refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"a batch without transaction, in one that began at offset {self.transaction_first_offset}",
            )
        return None

    def check_epoch(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise self._refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch}, but {self.epoch} is in use"
            )

    def update(self, header: BatchHeader) -> None:
        """A batch was appended."""
        if header.producer_epoch != self.epoch:
            self.batches = ()
            self.epoch = header.producer_epoch
        base_offset, delta, timestamp_ms, sequence = _remembered_fields(header)
        last_sequence = (sequence + delta) & _SEQUENCE_MASK if sequence >= 0 else _NO_SEQUENCE
        fields = (sequence, last_sequence, base_offset, base_offset + delta, timestamp_ms)
        self.batches = (*self.batches[1 - _REMEMBERED_BATCHES :], tuple.__new__(RememberedBatch, fields))
        self.last_timestamp_ms = timestamp_ms
        if self.transaction_first_offset is None and header.is_transactional:
            self.transaction_first_offset = header.base_offset

    def finish(self, epoch: int, marker: Marker) -> None:
        """A marker was appended. One that raises the epoch leaves no sequence to go on from."""
        if epoch != self.epoch:
            self.batches = ()
            self.epoch = epoch
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp_ms = marker.timestamp_ms
        self.transaction_first_offset = None

    def _duplicate_of(self, header: BatchHeader) -> RememberedBatch:
        first_sequence, last_sequence = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        raise self._refusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {first_sequence} in epoch {self.epoch}, after {self.last_sequence}",
        )

    def _refusal(self, code: ErrorCode, reason: str) -> ApiError:
        return ApiError(code, f"producer {self.producer_id}: {reason}")

    def _fields(self) -> tuple[object, ...]:
        return (
            self.producer_id,
            self.epoch,
            self.batches,
            self.coordinator_epoch,
            self.last_timestamp_ms,
            self.transaction_first_offset,
        )


def _remembered(entry: ProducerEntry) -> RememberedBatch:
    has_sequence = entry.last_sequence >= 0
    return RememberedBatch(
        (entry.last_sequence - entry.offset_delta) & _SEQUENCE_MASK if has_sequence else _NO_SEQUENCE,
        entry.last_sequence,
        entry.last_offset - entry.offset_delta,
        entry.last_offset,
        entry.timestamp,
    )
