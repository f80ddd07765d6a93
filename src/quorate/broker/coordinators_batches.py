"""What a coordinator has decided and not yet written, and what it has written that is not yet committed.

All that is decided in one turn of the loop is one batch of the log, however many requests led to it: it costs
one write, and one wait. Records are encoded as they come, so that nothing is left to do for each of them when
the batch is written, and the answers of a whole batch are held as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from quorate.coordinator.effects import Answer, LogRecord, Moment, Producer, Written
from quorate.coordinator.log_format import encode
from quorate.protocol.batch import HEADER_BYTES, NO_PRODUCER_ID, build_encoded
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Response
from quorate.protocol.record import encode_plain_record

__all__ = ["Held", "OpenBatch", "PlainStep", "PlainWritten", "encoded_from"]

S_contra = TypeVar("S_contra", contravariant=True)

_NOBODY: Final = Producer(NO_PRODUCER_ID, -1)


def encoded_from(number: int, records: Sequence[LogRecord]) -> bytes:
    """Records as they stand in a batch, the first of them at a number."""
    if len(records) == 1:
        return encode_plain_record(number, *encode(records[0]))
    return b"".join([encode_plain_record(at, *encode(record)) for at, record in enumerate(records, number)])


class PlainStep(Protocol[S_contra]):
    """A step that is known but for some numbers. It leads to records of one time, and to an answer that
    whoever asks knows already, so that there is nothing to be made of them but bytes."""

    @property
    def count(self) -> int:
        """How many records it has."""

    @property
    def batch_bytes(self) -> int:
        """Of the batch that they are by themselves."""

    @property
    def answer(self) -> Response: ...
    def refuse(self, code: ErrorCode) -> Response: ...

    def is_taken(self, shard: S_contra, moment: Moment) -> bool:
        """Whether it is, and this plainly. If not, nothing has happened."""

    def batch(self, numbers: Sequence[int], wall_ms: int, offset: int, leader_epoch: int) -> bytearray:
        """What is written, by itself, at its place in the log."""

    def section(self, number: int, numbers: Sequence[int], wall_ms: int) -> bytes:
        """The same as a part of a batch, from the record of that number on."""

    def records(self, numbers: Sequence[int], wall_ms: int) -> Sequence[LogRecord]:
        """The same, for who wants to know what it means."""

    def apply(self, shard: S_contra, numbers: Sequence[int], wall_ms: int, offset: int) -> None:
        """It is in the log, its first record at an offset."""


class PlainWritten:
    """What was written of a plain step. A `Written`, whose records are made only if somebody asks."""

    __slots__ = ("_numbers", "_step", "_wall_ms", "answers")

    def __init__(
        self, step: PlainStep[Any], numbers: Sequence[int], wall_ms: int, answers: Sequence[Answer]
    ) -> None:
        self._step = step
        self._numbers = numbers
        self._wall_ms = wall_ms
        self.answers = answers

    @property
    def records(self) -> Sequence[LogRecord]:
        return self._step.records(self._numbers, self._wall_ms)


class Held(NamedTuple):
    """Steps whose answers wait until what they have written, or rest on, is committed."""

    last_offset: int
    deadline_ms: float
    steps: list[Written]


class OpenBatch:
    """The records of the steps of one turn of the loop. All have the time of the first."""

    __slots__ = ("_sections", "count", "moment", "producer", "size_bytes", "steps")

    def __init__(self, producer: Producer | None, moment: Moment) -> None:
        self.producer = producer
        self.steps: list[Written] = []
        self.size_bytes = HEADER_BYTES
        self.count = 0  # of the records
        self._sections: list[bytes] = []
        self.moment = moment

    def takes(self, producer: Producer | None, size_bytes: int, limit_bytes: int) -> bool:
        """Whether so many bytes more, of this producer, can be part of it."""
        return self.producer == producer and self.size_bytes + size_bytes <= limit_bytes

    def add(self, step: Written, count: int, encoded: bytes) -> None:
        """So many records of a step, encoded from the number on that comes next."""
        self._sections.append(encoded)
        self.size_bytes += len(encoded)
        self.count += count
        self.steps.append(step)

    def build(self, offset: int, leader_epoch: int, codec: Codec) -> bytearray:
        """The batch, as it is appended at that place."""
        producer = self.producer or _NOBODY
        return build_encoded(
            b"".join(self._sections),
            self.count,
            base_offset=offset,
            leader_epoch=leader_epoch,
            timestamp=self.moment.wall_ms,
            codec=codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            is_transactional=self.producer is not None,
        )
