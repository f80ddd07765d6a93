"""What a partition remembers of its producers."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import pack

import pytest
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import given
from hypothesis import strategies as st
from partition_logs import a_marker, a_produced

from quorate.protocol.batch import BatchHeader, ControlType, build, build_control, read_header, stamp
from quorate.protocol.codec import decode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.indexes import AbortedTransaction
from quorate.storage.producer_snapshots import decode_snapshot, encode_entries, encode_snapshot
from quorate.storage.producer_state import RememberedBatch, read_marker
from quorate.storage.producer_states import ProducerDraft, ProducerStates
from quorate.storage.producers import ProducerSnapshot

LAST = (1 << 31) - 1


def header_of(buffer: bytearray, base_offset: int) -> BatchHeader:
    stamp(buffer, 0, base_offset, 0)
    return read_header(buffer)


def given_batches(*batches: tuple[int, int, int], producer_id: int = 7) -> ProducerStates:
    """After batches of (epoch, sequence, count), from offset 100 on."""
    states = ProducerStates()
    offset = 100
    for epoch, sequence, count in batches:
        states.update(header_of(a_produced(producer_id, sequence, count, epoch=epoch), offset))
        offset += count
    return states


def verdict(states: ProducerStates, buffer: bytearray) -> object:
    """The offset of a duplicate, None for the next batch, or the error."""
    try:
        found = states.check(read_header(buffer))
    except ApiError as error:
        return error.code
    return found.base_offset if found else None


# Sequences


@pytest.mark.parametrize(
    ("known", "sent", "expected"),
    [
        ([], (0, 0, 1), None),
        ([], (3, 17, 1), None),  # what came before may have been forgotten
        ([(0, 0, 3)], (0, 3, 2), None),
        ([(0, 0, 3)], (0, 0, 3), 100),
        ([(0, 0, 3)], (0, 0, 2), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),  # not the same batch
        ([(0, 0, 3)], (0, 4, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([(0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1)], (0, 0, 1), 100),
        (
            [(0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1), (0, 5, 1)],
            (0, 0, 1),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ),
        ([(2, 0, 1)], (1, 1, 1), ErrorCode.INVALID_PRODUCER_EPOCH),
        ([(2, 0, 1)], (1, 0, 1), ErrorCode.INVALID_PRODUCER_EPOCH),
        ([(2, 0, 1)], (3, 0, 1), None),
        ([(2, 0, 1)], (3, 1, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([(2, 0, 1), (3, 0, 1)], (3, 0, 1), 101),  # that of the new epoch
        ([(0, LAST - 1, 2)], (0, 0, 1), None),
        ([(0, LAST - 1, 2)], (0, LAST - 1, 2), 100),
        ([(0, LAST - 1, 4)], (0, 2, 1), None),
        ([(0, LAST - 1, 4)], (0, LAST - 1, 4), 100),
        ([(0, LAST - 1, 4)], (0, 3, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_the_next_batch_is_taken_a_duplicate_is_found_and_others_are_refused(
    known: list[tuple[int, int, int]], sent: tuple[int, int, int], expected: object
) -> None:
    epoch, sequence, count = sent
    assert verdict(given_batches(*known), a_produced(7, sequence, count, epoch=epoch)) == expected


def test_a_refusal_says_what_was_expected() -> None:
    states = given_batches((0, 0, 3))
    with pytest.raises(ApiError, match="producer 7: sequence 5 in epoch 0, after 2"):
        states.check(read_header(a_produced(7, 5)))


@dataclass
class Naive:
    """Remembers every batch that was taken."""

    epoch: int = -1
    taken: list[tuple[int, int, int]] = field(default_factory=list)  # of this epoch: first, last, offset

    def verdict(self, epoch: int, first: int, last: int) -> object:
        if self.epoch < 0:
            return None
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > self.epoch:
            return None if first == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for known_first, known_last, offset in self.taken[-5:]:
            if (known_first, known_last) == (first, last):
                return offset
        expected = 0 if not self.taken or self.taken[-1][1] == LAST else self.taken[-1][1] + 1
        return None if first == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def take(self, epoch: int, first: int, last: int, offset: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.taken = epoch, []
        self.taken.append((first, last, offset))


SENDS = st.tuples(
    st.integers(1, 2),  # producer
    st.sampled_from([0, 0, 0, 0, 0, 1, -1]),  # a change of epoch
    st.one_of(st.just("next"), st.just("next"), st.integers(1, 7), st.sampled_from(["gap", "zero"])),
    st.integers(1, 4),  # records
)


@given(st.lists(SENDS, max_size=60), st.sampled_from([0, LAST - 6, LAST]), st.booleans())
def test_it_comes_to_the_same_verdicts_as_remembering_everything(
    sends: list[tuple[int, int, object, int]], first_sequence: int, is_draft: bool
) -> None:
    committed = ProducerStates()
    states = ProducerDraft(committed) if is_draft else committed
    models: dict[int, Naive] = {}
    offset = 0
    for producer_id, epoch_change, what, more in sends:
        count = more
        model = models.setdefault(producer_id, Naive())
        epoch = max(0, model.epoch + epoch_change)
        next_sequence = (model.taken[-1][1] + 1) & LAST if model.taken else first_sequence
        sequence = next_sequence
        if isinstance(what, int) and model.taken:
            sequence, last, _ = model.taken[-min(what, len(model.taken))]
            count = ((last - sequence) & LAST) + 1
        elif what == "gap":
            sequence = (next_sequence + 1) & LAST
        elif what == "zero":
            sequence = 0
        buffer = a_produced(producer_id, sequence, count, epoch=epoch)
        header = header_of(buffer, offset)
        expected = model.verdict(epoch, sequence, header.last_sequence)
        assert verdict(states, buffer) == expected  # type: ignore[arg-type]
        if expected is None:
            states.update(header)
            model.take(epoch, sequence, header.last_sequence, offset)
            offset += count
    if isinstance(states, ProducerDraft):
        assert len(committed) == 0, "a draft changes nothing"
        states.commit()
    for producer_id, model in models.items():
        state = committed.of(producer_id)
        taken = [(batch.first_sequence, batch.last_sequence, batch.base_offset) for batch in state.batches]
        assert (state.epoch, taken) == (model.epoch, model.taken[-5:])


# Transactions


def test_what_comes_after_an_open_transaction_is_unstable() -> None:
    states = ProducerStates()
    states.update(header_of(a_produced(1, 0, 2), 0))
    assert states.first_unstable_offset is None
    states.update(header_of(a_produced(7, 0, 2, is_transactional=True), 2))
    states.update(header_of(a_produced(8, 0, 2, is_transactional=True), 4))
    states.update(header_of(a_produced(7, 2, 2, is_transactional=True), 6))
    assert (states.first_unstable_offset, states.open_transactions) == (2, [(2, 7), (4, 8)])
    marker = a_marker(7, is_abort=True)
    aborted = states.take(header_of(marker, 8), marker)
    assert aborted == AbortedTransaction(7, first_offset=2, last_offset=8, last_stable_offset=4)
    assert states.first_unstable_offset == 2, "the marker can still get lost"
    states.replicated_to(8)
    assert states.first_unstable_offset == 2
    states.replicated_to(9)
    assert states.first_unstable_offset == 4
    marker = a_marker(8, is_abort=False)
    assert states.take(header_of(marker, 9), marker) is None
    states.replicated_to(10)
    assert (states.first_unstable_offset, states.open_transactions) == (None, [])


def test_the_last_abort_leaves_everything_up_to_its_marker_stable() -> None:
    states = ProducerStates()
    states.update(header_of(a_produced(7, 0, 2, is_transactional=True), 2))
    marker = a_marker(7, is_abort=True)
    aborted = states.take(header_of(marker, 4), marker)
    assert aborted == AbortedTransaction(7, first_offset=2, last_offset=4, last_stable_offset=5)


def test_a_marker_without_data_changes_only_the_epoch() -> None:
    states = given_batches((0, 0, 3))
    marker = a_marker(7, is_abort=True, epoch=1, coordinator_epoch=4, timestamp=2000)
    assert states.take(header_of(marker, 103), marker) is None
    state = states.of(7)
    assert (state.epoch, state.coordinator_epoch, state.last_timestamp_ms) == (1, 4, 2000)
    assert verdict(states, a_produced(7, 3, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert verdict(states, a_produced(7, 3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(states, a_produced(7, 0, epoch=1)) is None
    unknown = a_marker(9, is_abort=False)
    assert states.take(header_of(unknown, 104), unknown) is None
    assert states.of(9).epoch == 0


def test_markers_of_replaced_coordinators_and_producers_are_refused() -> None:
    states = given_batches((2, 0, 1))
    good = a_marker(7, is_abort=False, epoch=2, coordinator_epoch=5)
    states.take(header_of(good, 101), good)
    for marker, code in [
        (good, None),
        (a_marker(7, is_abort=False, epoch=3, coordinator_epoch=5), None),
        (a_marker(7, is_abort=False, epoch=1, coordinator_epoch=5), ErrorCode.INVALID_PRODUCER_EPOCH),
        (a_marker(7, is_abort=False, epoch=2, coordinator_epoch=4), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (a_marker(8, is_abort=False, epoch=0, coordinator_epoch=0), None),
    ]:
        header = read_header(marker)
        try:
            states.check_marker(header, read_marker(marker, header))
            found = None
        except ApiError as error:
            found = error.code
        assert found is code


def test_a_producer_in_a_transaction_must_not_step_out_of_it() -> None:
    states = ProducerStates()
    states.update(header_of(a_produced(7, 0, is_transactional=True), 0))
    assert verdict(states, a_produced(7, 1)) is ErrorCode.INVALID_TXN_STATE
    assert verdict(states, a_produced(7, 1, is_transactional=True)) is None


def test_batches_of_coordinators_have_no_sequence_but_an_epoch() -> None:
    states = ProducerStates()
    offsets = a_produced(7, -1, 2, epoch=3, is_transactional=True)
    assert verdict(states, offsets) is None
    states.update(header_of(offsets, 0))
    assert verdict(states, offsets) is None, "never a duplicate"
    assert verdict(states, a_produced(7, -1, 2, epoch=2, is_transactional=True)) is (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )
    assert states.of(7).last_sequence == -1


def test_other_control_batches_end_no_transaction() -> None:
    change = build_control([(ControlType.LEADER_CHANGE, bytes(6))], timestamp=0, producer_id=7)
    emptied = build([], producer_id=7, producer_epoch=0, is_control=True, is_transactional=True)
    for buffer in (change, emptied):
        assert read_marker(buffer, read_header(buffer)) is None
    short = build_control([(ControlType.ABORT, bytes(3))], timestamp=0, producer_id=7)
    with pytest.raises(ApiError, match="no epoch of a coordinator"):
        read_marker(short, read_header(short))


def test_a_draft_of_transactions_is_committed_in_the_order_of_the_log() -> None:
    states = ProducerStates()
    draft = ProducerDraft(states)
    draft.update(header_of(a_produced(7, 0), 0))
    draft.update(header_of(a_produced(8, 0, is_transactional=True), 1))
    draft.update(header_of(a_produced(7, 1, is_transactional=True), 2))
    assert states.first_unstable_offset is None
    draft.commit()
    assert states.open_transactions == [(1, 8), (2, 7)]


# Forgetting


def test_silent_producers_are_forgotten_unless_they_are_in_a_transaction() -> None:
    states = ProducerStates()
    states.update(header_of(a_produced(1, 0, timestamp=1000), 0))
    states.update(header_of(a_produced(2, 0, timestamp=1001), 1))
    states.update(header_of(a_produced(3, 0, timestamp=10, is_transactional=True), 2))
    assert states.expire(now_ms=1999, expiration_ms=1000) == 0
    assert states.expire(now_ms=2000, expiration_ms=1000) == 1
    assert [state.producer_id for state in states] == [2, 3]
    assert verdict(states, a_produced(1, 55)) is None


# Snapshots


def test_a_snapshot_is_what_kafka_writes() -> None:
    states = given_batches((2, 10, 3), (2, 13, 2))
    states.update(header_of(a_produced(8, 0, 2, is_transactional=True, timestamp=5000), 105))
    marker = a_marker(9, is_abort=True, epoch=1, coordinator_epoch=6, timestamp=6000)
    states.take(header_of(marker, 107), marker)
    entries = [
        (7, 2, 14, 104, 1, 1001, -1, -1),
        (8, 0, 1, 106, 1, 5001, -1, 105),
        (9, 1, -1, -1, 0, 6000, 6, -1),
    ]
    body = pack(">i", 3) + b"".join(pack(">qhiqiqiq", *entry) for entry in entries)
    data = encode_snapshot([encode_entries(states)])
    assert decode(ProducerSnapshot, 1, data, 2).producer_entries == [
        ProducerSnapshot.ProducerEntry(**entry._asdict()) for entry in states.entries()
    ]
    assert data == pack(">hI", 1, crc32c(body)) + body
    again = decode_snapshot(data)
    assert encode_snapshot([encode_entries(again)]) == data
    assert again.open_transactions == states.open_transactions == [(105, 8)]
    assert list(again.of(7).batches) == [RememberedBatch(13, 14, 103, 104, 1001)]
    assert verdict(again, a_produced(7, 13, 2, epoch=2)) == 103
    assert verdict(again, a_produced(7, 10, 3, epoch=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(again, a_produced(7, 15, epoch=2)) is None


def test_a_sequence_that_wrapped_is_found_again_in_a_snapshot() -> None:
    again = decode_snapshot(encode_snapshot([encode_entries(given_batches((0, LAST - 1, 5)))]))
    assert again.of(7).batches[0] == RememberedBatch(LAST - 1, 2, 100, 104, 1004)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:5], "5 bytes are no producer snapshot"),
        (lambda data: b"\x00\x02" + data[2:], "version 2, not 1"),
        (lambda data: data[:-1], "checksum"),
        (lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:], "checksum"),
        (lambda data: pack(">hI", 1, crc32c(data[6:-1])) + data[6:-1], "45 bytes are not 1 producers"),
    ],
)
def test_a_damaged_snapshot_is_noticed(damage, reason: str) -> None:  # type: ignore[no-untyped-def]
    data = encode_snapshot([encode_entries(given_batches((0, 0, 1)))])
    with pytest.raises(ValueError, match=reason):
        decode_snapshot(damage(data))


def test_states_are_compared_by_what_they_know() -> None:
    assert given_batches((0, 0, 1)) == given_batches((0, 0, 1))
    assert given_batches((0, 0, 1)) != given_batches((0, 0, 2))
    assert given_batches((0, 0, 1)).of(7) != 7
    assert "epoch=0" in repr(given_batches((0, 0, 1)).of(7))
