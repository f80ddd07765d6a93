"""What a coordinator has decided and not yet written, and what it has written that is not yet committed.

All that is decided in one turn of the loop is one batch of the log, however many requests led to it: it costs
one write, and one wait. Records are encoded as they come, so that nothing is left to do for each of them when
the batch is written, and the answers of a whole batch are held as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from quorate.coordinator.effects import Effects, LogRecord, Moment, Producer
from quorate.coordinator.log_format import encode
from quorate.protocol.batch import HEADER_BYTES, NO_PRODUCER_ID, build_encoded
from quorate.protocol.record import encode_plain_record

__all__ = ["Held", "OpenBatch", "encoded_from"]

_NOBODY: Final = Producer(NO_PRODUCER_ID, -1)


def encoded_from(number: int, records: Sequence[LogRecord]) -> bytes:
    """Records as they stand in a batch, the first of them at a number."""
    if len(records) == 1:
        return encode_plain_record(number, *encode(records[0]))
    return b"".join([encode_plain_record(at, *encode(record)) for at, record in enumerate(records, number)])


class Held(NamedTuple):
    """Steps whose answers wait until what they have written, or rest on, is committed."""

    last_offset: int
    deadline_ms: float
    steps: list[Effects]


class OpenBatch:
    """The records of the steps of one turn of the loop. All have the time of the first."""

    __slots__ = ("_sections", "count", "moment", "producer", "size_bytes", "steps")

    def __init__(self, producer: Producer | None, moment: Moment) -> None:
        self.producer = producer
        self.steps: list[Effects] = []
        self.size_bytes = HEADER_BYTES
        self.count = 0  # of the records
        self._sections: list[bytes] = []
        self.moment = moment

    def takes(self, producer: Producer | None, size_bytes: int, limit_bytes: int) -> bool:
        """Whether so many bytes more, of this producer, can be part of it."""
        return self.producer == producer and self.size_bytes + size_bytes <= limit_bytes

    def add(self, step: Effects, encoded: bytes) -> None:
        """The records of a step, encoded from the number on that comes next."""
        self._sections.append(encoded)
        self.size_bytes += len(encoded)
        self.count += len(step.records)
        self.steps.append(step)

    def build(self) -> bytearray:
        """The batch, as it is appended."""
        producer = self.producer or _NOBODY
        return build_encoded(
            b"".join(self._sections),
            self.count,
            base_offset=0,
            leader_epoch=-1,
            timestamp=self.moment.wall_ms,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            is_transactional=self.producer is not None,
        )
