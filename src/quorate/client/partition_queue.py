"""The records on their way to one partition: gathered into batches, numbered, sent, sent again.

Theory of operation. Records join the newest batch until it is full or has waited long enough. When a batch is
first sent it gets the next sequence numbers of the producer, which it keeps: a broker that sees them again
answers as it did the first time, and one that misses the numbers before them refuses. So:

- Sent batches stay in `sent`, in order, until their fate is known. There are at most five, because a broker
  recognises the last five batches of a producer.
- After a failure that may pass, nothing new is sent until everything before it is through. The batches that
  are still unanswered are sent again, oldest first, one at a time until one succeeds: a broker that knows
  nothing of a producer accepts any number as the first, so a second batch must never arrive before the first.
- A success proves that everything before it was written too, whatever became of the answers.
- A refusal (OUT_OF_ORDER_SEQUENCE_NUMBER) proves that the batch is not among the last five. If a batch before
  it is still under way, the refusal only says that it came too early. After a restart a broker recognises the
  last batch only, so a refusal of an old one is no verdict either, as long as a later one may be recognised.
- When every sent batch has been refused, none of them was written. If one before them had failed for good,
  its numbers are the gap. If not, the broker has lost what it had acknowledged: the oldest batch fails, so
  that somebody hears of it. In both cases the rest goes on under a new identity (a higher epoch), from 0.

Without sequence numbers order can be kept only by sending one batch at a time.

This module decides, and touches nothing: time comes in as an argument, what was decided goes out as values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Final, NamedTuple

from quorate.protocol.batch import HEADER_BYTES, NO_PRODUCER_ID, Record, build, read_header, records
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.values import dataclass

__all__ = ["Batch", "Fate", "Identity", "PartitionQueue", "record_size"]

SEQUENCE_MAX: Final = 0x7FFFFFFF

# Length, attributes, timestamp, offset, key length, value length, number of headers: at most this much.
_RECORD_OVERHEAD_BYTES: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD_BYTES: Final = 10


def record_size(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> int:
    """The bytes that a record takes up at most, without compression."""
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += _HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size


class Identity(NamedTuple):
    """As whom a producer writes to a partition: its id, and an epoch that outranks the lower ones."""

    producer_id: int
    epoch: int


class State(Enum):
    """What a sent batch is waiting for."""

    IN_FLIGHT = "an answer"
    AGAIN = "being sent again"
    REFUSED = "an earlier batch"


@dataclass(slots=True, eq=False)
class Batch:
    """Records that go together. `receipts` are what the producer gave with each of them."""

    created_at: float
    records: list[Record] = field(default_factory=list)
    receipts: list[Any] = field(default_factory=list)
    size_bytes: int = HEADER_BYTES
    # Once it has been sent:
    state: State = State.IN_FLIGHT
    data: bytearray | None = None
    base_sequence: int = -1
    is_proven: bool = False  # it is known to be written; only its offset may still come
    follows_gap: bool = False  # the numbers before it belong to one that has failed for good

    def __len__(self) -> int:
        return len(self.receipts)

    def encode(self, codec: Codec, identity: Identity | None) -> bytearray:
        """The bytes to send: the same ones every time, until the batch is numbered anew."""
        if self.data is None:
            producer_id, epoch = (NO_PRODUCER_ID, -1) if identity is None else identity
            self.data = build(
                self.records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.base_sequence,
            )
            self.records = []  # they are in the bytes
        return self.data

    def take_apart(self) -> None:
        """Makes the records out of the bytes again."""
        if self.data is not None:
            self.records = records(self.data, read_header(self.data))
            self.data = None

    def halves(self) -> tuple[Batch, Batch]:
        """Two batches of the same records, with the same numbers."""
        self.take_apart()
        middle = len(self) // 2
        parts = []
        for part in (slice(0, middle), slice(middle, None)):
            kept = [record._replace(offset=offset) for offset, record in enumerate(self.records[part])]
            half = Batch(self.created_at, kept, self.receipts[part], state=State.AGAIN)
            half.size_bytes += sum(record_size(one.key, one.value, one.headers) for one in kept)
            if self.base_sequence >= 0:
                half.base_sequence = _after(self.base_sequence, part.start or 0)
            parts.append(half)
        parts[0].follows_gap = self.follows_gap
        return parts[0], parts[1]


class Fate(NamedTuple):
    """What became of a batch: written at an offset (-1 if nobody said which), or an error."""

    batch: Batch
    base_offset: int
    error: Exception | None = None


class PartitionQueue:
    """All batches for one partition that have no fate yet."""

    def __init__(
        self, *, batch_bytes_max: int, linger: float, in_flight_max: int, is_numbered: bool = True
    ) -> None:
        self.identity: Identity | None = None
        self.former: Identity | None = None  # the one whose numbers were given up
        self.sent: list[Batch] = []
        self.waiting: deque[Batch] = deque()
        self.retry_at = 0.0
        self.failures = 0  # in a row
        self._is_numbered = is_numbered
        self._in_flight_max = in_flight_max if is_numbered else 1
        self._window = 1  # until a first success, and after a failure
        self._next_sequence = 0
        self._ends_with_gap = False  # the last numbers that were given belong to one that has failed for good
        self._is_fresh = True  # nothing has been written under this identity
        self._batch_bytes_max = batch_bytes_max
        self._linger = linger

    def __bool__(self) -> bool:
        return bool(self.sent or self.waiting)

    def batches(self) -> Iterator[Batch]:
        yield from self.sent
        yield from self.waiting

    @property
    def wants_identity(self) -> bool:
        return self._is_numbered and self.identity is None

    # In

    def append(
        self,
        receipt: Any,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        size_bytes: int,
        now: float,
    ) -> bool:
        """Adds a record. Whether that made a batch ready that was not, or began one whose time runs."""
        waiting = self.waiting
        is_new = not waiting or waiting[-1].size_bytes + size_bytes > self._batch_bytes_max
        if is_new:
            waiting.append(Batch(now))
        batch = waiting[-1]
        batch.records.append(Record(len(batch.receipts), timestamp, key, value, headers))
        batch.receipts.append(receipt)
        batch.size_bytes += size_bytes
        return is_new or batch.size_bytes >= self._batch_bytes_max

    # Out

    def next(self, now: float, *, is_flushing: bool = False) -> Batch | None:
        """The batch to send now, if any; it is then in flight."""
        if now < self.retry_at or self.wants_identity:
            return None
        in_flight = sum(batch.state is State.IN_FLIGHT for batch in self.sent)
        if in_flight >= self._window:
            return None
        for batch in self.sent:
            if batch.state is State.AGAIN:
                batch.state = State.IN_FLIGHT
                return batch
        if len(self.sent) > in_flight or len(self.sent) >= self._window or not self.waiting:
            return None
        if not is_flushing and now < self.ready_at():
            return None
        batch = self.waiting.popleft()
        if self._is_numbered:
            batch.base_sequence = self._next_sequence
            self._next_sequence = _after(self._next_sequence, len(batch))
        batch.follows_gap, self._ends_with_gap = self._ends_with_gap, False
        batch.state = State.IN_FLIGHT
        self.sent.append(batch)
        return batch

    def ready_at(self) -> float:
        """When the oldest batch that has not been sent has waited long enough."""
        if len(self.waiting) > 1 or self.waiting[0].size_bytes >= self._batch_bytes_max:
            return 0.0
        return self.waiting[0].created_at + self._linger

    # What became of it

    def succeeded(self, batch: Batch, base_offset: int) -> list[Fate]:
        """A broker has written the batch, now or before."""
        place = self._place(batch)
        if place is None:
            return []
        before, after = self.sent[:place], self.sent[place + 1 :]
        fates = []
        for earlier in before:
            if not self._is_numbered:
                continue
            earlier.is_proven = True
            earlier.follows_gap = False
            if earlier.state is not State.IN_FLIGHT:
                fates.append(Fate(earlier, -1))
        for later in after:
            if later.state is State.REFUSED:
                later.state = State.AGAIN  # it had come too early
        gone = {id(fate.batch) for fate in fates} | {id(batch)}
        self.sent = [one for one in self.sent if id(one) not in gone]
        self._window = self._in_flight_max
        self._is_fresh = False
        self.failures = 0
        self.retry_at = 0.0
        return [*fates, Fate(batch, base_offset)]

    def to_be_retried(self, batch: Batch, retry_at: float) -> list[Fate]:
        """It failed in a way that may pass, or its answer was lost."""
        if self._place(batch) is None:
            return []
        if batch.is_proven:
            self.sent.remove(batch)
            return [Fate(batch, -1)]
        batch.state = State.AGAIN
        self._window = 1
        self.failures += 1
        self.retry_at = max(self.retry_at, retry_at)
        return []

    def refused(self, batch: Batch, error: ApiError) -> list[Fate]:
        """A broker misses the numbers before this batch."""
        if self._place(batch) is None:
            return []
        if batch.is_proven:
            self.sent.remove(batch)
            return [Fate(batch, -1)]
        batch.state = State.REFUSED
        self._window = 1
        if error.code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # It says that it has forgotten us, not that it has lost anything. If there was nothing to forget,
            # a new identity would not help.
            self.sent[0].follows_gap = not self._is_fresh
        return self._judge(error)

    def failed(self, batch: Batch, error: Exception) -> list[Fate]:
        """It is given up. Its numbers may be missing from now on."""
        place = self._place(batch)
        if place is None:
            return []
        self.sent.remove(batch)
        if batch.is_proven:
            return [Fate(batch, -1)]
        if place < len(self.sent):
            self.sent[place].follows_gap = True
        else:
            self._ends_with_gap = True
        return [Fate(batch, -1, error), *self._judge(error)]

    def too_large(self, batch: Batch, error: Exception) -> list[Fate]:
        """A broker will not take a batch of this size: two halves may pass, one record cannot be halved.

        Sizes are checked before numbers, so earlier attempts failed too, even if nobody heard of it.
        """
        if len(batch) < 2:
            return self.failed(batch, error)
        place = self._place(batch)
        if place is not None:
            self.sent[place : place + 1] = batch.halves()
            self._window = 1
        return []

    def expire(self, now: float, patience: float, error: Exception) -> list[Fate]:
        """Gives up what has waited too long. What is in flight may still be answered."""
        fates: list[Fate] = []
        for batch in list(self.sent):
            if batch.created_at + patience <= now and batch.state is not State.IN_FLIGHT:
                fates += self.failed(batch, error)
        while self.waiting and self.waiting[0].created_at + patience <= now:
            fates.append(Fate(self.waiting.popleft(), -1, error))
        return fates

    def expires_first(self) -> float | None:
        """When the batch was made that will expire first."""
        times = [one.created_at for one in self.sent if one.state is not State.IN_FLIGHT]
        times += [self.waiting[0].created_at] if self.waiting else []
        return min(times, default=None)

    def identify(self, identity: Identity) -> None:
        """Numbers everything that is not written anew, as somebody of whom no broker has heard."""
        self.identity = identity
        self._next_sequence = 0
        self._ends_with_gap = False
        self._is_fresh = True
        self._window = 1
        for batch in self.sent:
            batch.take_apart()
            batch.state = State.AGAIN
            batch.follows_gap = False
            batch.base_sequence = self._next_sequence
            self._next_sequence = _after(self._next_sequence, len(batch))

    def drop_all(self, error: Exception) -> list[Fate]:
        """The end: nothing more will be sent."""
        fates = [Fate(batch, -1, error) for batch in self.batches()]
        self.sent.clear()
        self.waiting.clear()
        return fates

    def _place(self, batch: Batch) -> int | None:
        return next((place for place, one in enumerate(self.sent) if one is batch), None)

    def _judge(self, error: Exception) -> list[Fate]:
        """If everything that was sent has been refused, the numbers are of no more use."""
        if not self.sent or any(batch.state is not State.REFUSED for batch in self.sent):
            return []
        fates = [] if self.sent[0].follows_gap else [Fate(self.sent.pop(0), -1, error)]
        self.former, self.identity = self.identity, None
        return fates


def _after(sequence: int, count: int) -> int:
    """
    >>> _after(SEQUENCE_MAX, 1), _after(SEQUENCE_MAX - 1, 5)
    (0, 3)
    """
    return (sequence + count) & SEQUENCE_MAX
