"""What a partition remembers of its producers: enough to take each batch once, and to know what is in doubt.

**Idempotence.** A producer numbers its records, and sends a batch again until it is answered. For each
producer id the last five batches are remembered, as many as a client keeps under way: one that comes again is
answered with where it is already, one that leaves out a number is refused.

**Epochs.** A producer that takes over an id has a higher epoch, and begins again at number 0. Whoever still
uses the lower one is refused, so that a producer that was believed dead cannot write any more.

**Transactions.** One begins with the first transactional batch of a producer, and ends with a marker, a
control batch that its coordinator writes. What comes after the beginning of an open transaction is
*unstable*: readers of committed data must wait. It stays so until the marker is below the high watermark,
because until then the marker can get lost. An aborted transaction is reported with what its end left stable,
for the transaction index.

Batches of clients are checked before they are appended (`check`), markers too (`check_marker`). Everything
that is in the log is then taken as it is (`update`, `finish`): a leader has checked it, when it was one.

**Room.** So many producers are remembered and no more, of a partition and of a node (`producer_room`). Those
that have written nothing for longest are forgotten first, as if they had expired; one with an open
transaction never is.

**Snapshots.** `freeze` gives what is known now, and it does not change after that: whoever is changed next is
changed as a copy. So a snapshot can be written bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorate.protocol.batch import BatchHeader
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer
from quorate.storage.indexes import AbortedTransaction
from quorate.storage.producer_room import ProducerRoom
from quorate.storage.producer_state import (
    Marker,
    ProducerEntry,
    ProducerState,
    RememberedBatch,
    read_marker,
)

__all__ = ["ProducerDraft", "ProducerStates"]


class ProducerStates:
    """What is known of all producers of a partition.

    >>> from quorate.protocol.batch import Record, build, read_header
    >>> states = ProducerStates()
    >>> producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    >>> first = read_header(build([Record(0, 7, None, b"")], **producer))
    >>> states.check(first)
    >>> states.update(first)
    >>> states.check(first).base_offset
    0
    """

    __slots__ = ("_frozen_at", "_open", "_room", "_states", "unreplicated")

    def __init__(self, room: ProducerRoom | None = None) -> None:
        self._room = ProducerRoom() if room is None else room
        self._frozen_at = -1  # who wrote nothing since then must not be changed, but copied
        self._states: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}  # transactions by their first offset, which increases; the producer
        self.unreplicated: dict[int, int] = {}  # first offset of finished ones; where their marker is

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ProducerStates) and self._states == other._states and self._open == other._open
        )

    __hash__ = None  # type: ignore[assignment]

    def of(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction began that is open, or whose end can still get lost."""
        first_open = next(iter(self._open), None)
        if not self.unreplicated:
            return first_open
        first_unreplicated = min(self.unreplicated)
        return first_unreplicated if first_open is None else min(first_open, first_unreplicated)

    @property
    def open_transactions(self) -> list[tuple[int, int]]:
        """Their first offsets and producers, in order."""
        return list(self._open.items())

    # Before something is appended

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """The batch that this one, of a client, repeats. Raises `ApiError` if it must not be appended."""
        state = self._states.get(header.producer_id)
        # one that is not known may begin with any number: what came before may have been forgotten
        return state.check(header) if state is not None else None

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Raises `ApiError` if it comes from a coordinator, or is for a producer, that was replaced."""
        state = self._states.get(header.producer_id)
        if state is None:
            return
        state.check_epoch(header.producer_epoch)
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {header.producer_id}: a marker of coordinator epoch {marker.coordinator_epoch},"
                f" after one of epoch {state.coordinator_epoch}",
            )

    # After something was appended

    def update(self, header: BatchHeader) -> None:
        """Takes a batch of data into account."""
        producer_id = header.producer_id
        if producer_id < 0:
            return
        state = self._to_change(producer_id)
        had_transaction = state.transaction_first_offset is not None
        state.update(header)
        if not had_transaction and state.transaction_first_offset is not None:
            self._open[state.transaction_first_offset] = producer_id

    def replace(self, states: Iterable[ProducerState]) -> None:
        """Takes several batches into account, of which it is known what they come to."""
        for state in states:
            known = self._states.get(state.producer_id)
            first_offset = state.transaction_first_offset
            if first_offset is not None and (known is None or known.transaction_first_offset is None):
                self._open[first_offset] = state.producer_id
                self._open = dict(sorted(self._open.items()))
            self._to_change(state.producer_id)  # which makes room, and notes that it was used
            state.used = self._room.clock
            self._states[state.producer_id] = state

    def finish(self, header: BatchHeader, marker: Marker) -> AbortedTransaction | None:
        """Takes the end of a transaction into account. What to record, if it was aborted and had data."""
        producer_id = header.producer_id
        state = self._to_change(producer_id)
        first_offset = state.transaction_first_offset
        state.finish(header.producer_epoch, marker)
        if first_offset is None:
            return None
        self._open.pop(first_offset, None)
        self.unreplicated[first_offset] = header.base_offset
        if not marker.is_abort:
            return None
        last_stable_offset = next(iter(self._open), header.base_offset + 1)
        return AbortedTransaction(producer_id, first_offset, header.base_offset, last_stable_offset)

    def take(self, header: BatchHeader, buffer: Buffer) -> AbortedTransaction | None:
        """Takes any batch into account; `header.position` is its place in the buffer."""
        if header.producer_id < 0:
            return None
        if not header.is_control:
            self.update(header)
            return None
        marker = read_marker(buffer, header)
        return self.finish(header, marker) if marker is not None else None

    def replicated_to(self, high_watermark: int) -> None:
        """Markers below the high watermark cannot get lost any more."""
        self.unreplicated = {
            first_offset: last_offset
            for first_offset, last_offset in self.unreplicated.items()
            if last_offset >= high_watermark
        }

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers whose last batch is so old, unless they have an open transaction. How many."""
        expired = [
            state.producer_id
            for state in self._states.values()
            if state.transaction_first_offset is None and now_ms - state.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._states[producer_id]
        return len(expired)

    # Room

    def _to_change(self, producer_id: int) -> ProducerState:
        """The state of a producer that writes now. One that was not known may take the place of others."""
        room = self._room
        room.clock += 1
        state = self._states.get(producer_id)
        if state is None:
            excess = len(self._states) + 1 - room.partition_max
            if excess > 0:
                self.forget_until(room.age_to_forget(self.ages(), excess))
            state = self._states[producer_id] = ProducerState(producer_id)
            state.used = room.clock
            room.entered(self)
        elif state.used <= self._frozen_at:
            state = self._states[producer_id] = state.copy()
        state.used = room.clock
        return state

    def ages(self) -> list[int]:
        """When each of those who may be forgotten wrote last."""
        return [one.used for one in self._states.values() if one.transaction_first_offset is None]

    def forget_until(self, used: int) -> None:
        """Forgets who wrote nothing since then, unless it has an open transaction."""
        self._states = {
            producer_id: state
            for producer_id, state in self._states.items()
            if state.used > used or state.transaction_first_offset is not None
        }

    def taken_over(self, room: ProducerRoom) -> ProducerStates:
        """The same for another log. This one is not used any more."""
        made = ProducerStates(room)
        made._states, made._open, made.unreplicated = self._states, self._open, self.unreplicated
        if len(made):
            room.entered(made)
        return made

    def leave(self) -> None:
        """What is known here counts no more: something else has taken its place, or the log is closed."""
        self._room.left(self)

    # As a snapshot

    def freeze(self) -> list[ProducerState]:
        """What is known now. None of it changes any more."""
        self._frozen_at = self._room.clock
        return list(self._states.values())

    def entries(self) -> list[ProducerEntry]:
        return [state.entry() for state in self._states.values()]

    @classmethod
    def of_entries(cls, entries: Iterable[ProducerEntry], room: ProducerRoom | None = None) -> ProducerStates:
        """As far as there is room: what is the last in the log is kept, and producers of which there is no
        batch any more, only the epoch that the end of a transaction has given them."""
        made = cls(room)
        ordered = sorted(entries, key=_age_of_entry)
        excess = len(ordered) - made._room.partition_max
        for index, entry in enumerate(ordered):
            first_offset = entry.current_txn_first_offset
            if first_offset >= 0:
                made._open[first_offset] = entry.producer_id
            elif index < excess:
                continue
            state = made._states[entry.producer_id] = ProducerState.of_entry(entry)
            made._room.clock += 1
            state.used = made._room.clock
            made._room.entered(made)
        made._open = dict(sorted(made._open.items()))
        return made


class ProducerDraft:
    """What producers will be like when batches are appended that are not yet: so that several can be checked
    before all of them are written at once."""

    __slots__ = ("_changed", "_states")

    def __init__(self, states: ProducerStates) -> None:
        self._states = states
        self._changed: dict[int, ProducerState] = {}

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """See `ProducerStates.check`."""
        state = self._changed.get(header.producer_id)
        return self._states.check(header) if state is None else state.check(header)

    def update(self, header: BatchHeader) -> None:
        """This one will be appended."""
        producer_id = header.producer_id
        state = self._changed.get(producer_id)
        if state is None:
            known = self._states.of(producer_id)
            state = known.copy() if known is not None else ProducerState(producer_id)
            self._changed[producer_id] = state
        state.update(header)

    def commit(self) -> None:
        """They were appended."""
        if self._changed:
            self._states.replace(self._changed.values())
            self._changed = {}


def _age_of_entry(entry: ProducerEntry) -> tuple[bool, int]:
    return entry.last_offset < 0, entry.last_offset
