"""One partition's batches: gathering, numbering, and what each answer does to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.client.partition_queue import SEQUENCE_MAX, Batch, Identity, PartitionQueue, record_size
from quorate.protocol.batch import HEADER_BYTES, Record, records, validate_produced
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.record import encode_record

GAP = ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "t-0")
FORGOTTEN = ApiError(ErrorCode.UNKNOWN_PRODUCER_ID, "t-0")
INVALID = ApiError(ErrorCode.INVALID_RECORD, "t-0")
SIZE = record_size(None, b"x")


def queue(records_per_batch: int = 1, linger: float = 0.0, *, is_numbered: bool = True) -> PartitionQueue:
    made = PartitionQueue(
        batch_bytes_max=HEADER_BYTES + records_per_batch * SIZE,
        linger=linger,
        in_flight_max=5,
        is_numbered=is_numbered,
    )
    if is_numbered:
        made.identify(Identity(7, 0))
    return made


def fill(made: PartitionQueue, names: str, now: float = 0.0) -> None:
    for name in names:
        made.append(name, 1000, None, name.encode(), (), SIZE, now)


def sent(made: PartitionQueue, now: float = 0.0) -> list[Batch]:
    """All batches that may be sent now."""
    found = []
    while (batch := made.next(now)) is not None:
        found.append(batch)
    return found


def opened(made: PartitionQueue, names: str) -> list[Batch]:
    """The batches of these records, all in flight: the first one has succeeded, as `-`."""
    fill(made, "-")
    (first,) = sent(made)
    made.succeeded(first, 0)
    fill(made, names)
    return sent(made)


def names(fates) -> list[tuple[str, int]]:
    return [("".join(fate.batch.receipts), fate.base_offset) for fate in fates if fate.error is None]


def errors(fates) -> list[str]:
    return ["".join(fate.batch.receipts) for fate in fates if fate.error is not None]


@given(
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=4),
    st.integers(-(1 << 60), 1 << 60),
)
def test_a_record_is_never_larger_than_it_was_taken_for(key, value, headers, timestamp):
    try:
        encoded = encode_record(Record(1000, timestamp, key, value, headers), 0, 0)
    except UnicodeEncodeError:
        return
    assert len(encoded) <= record_size(key, value, headers)


def test_records_join_a_batch_until_it_is_full_or_has_waited():
    made = queue(records_per_batch=3, linger=5.0)
    fill(made, "ab", now=1.0)
    assert made.next(5.9) is None
    assert made.ready_at() == 6.0
    fill(made, "cd", now=2.0)
    (batch,) = sent(made, 2.0)
    assert batch.receipts == ["a", "b", "c"]
    made.succeeded(batch, 0)
    assert made.next(6.9) is None
    assert [batch.receipts for batch in sent(made, 7.0)] == [["d"]]


def test_flushing_does_not_wait():
    made = queue(records_per_batch=3, linger=5.0)
    fill(made, "a")
    assert made.next(0.0) is None
    assert made.next(0.0, is_flushing=True) is not None


def test_batches_are_numbered_in_turn_and_at_most_five_are_in_flight():
    made = queue(records_per_batch=2)
    batches = opened(made, "abcdefghijklm")
    assert [one.base_sequence for one in batches] == [1, 3, 5, 7, 9]
    data = batches[1].encode(Codec.GZIP, made.identity)
    header = validate_produced(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 3)
    assert [one.value for one in records(data, header)] == [b"c", b"d"]
    assert batches[1].encode(Codec.GZIP, made.identity) is data
    assert names(made.succeeded(batches[0], 40)) == [("ab", 40)]
    assert len(sent(made)) == 1


def test_the_first_batch_goes_alone():
    made = queue()
    fill(made, "abc")
    assert [one.receipts for one in sent(made)] == [["a"]]


def test_numbers_go_on_at_zero():
    made = queue(records_per_batch=2)
    made._next_sequence = SEQUENCE_MAX
    fill(made, "abc")
    first = made.next(0.0)
    made.succeeded(first, 0)
    assert first.base_sequence == SEQUENCE_MAX
    assert made.next(0.0).base_sequence == 1


def test_after_a_failure_everything_is_sent_again_in_order_and_one_by_one():
    made = queue()
    a, b, c = opened(made, "abc")
    fill(made, "d")
    assert made.to_be_retried(a, retry_at=10.0) == []
    assert made.to_be_retried(b, retry_at=9.0) == []
    assert sent(made, 9.9) == []
    assert sent(made, 10.0) == []  # c is still under way
    assert made.to_be_retried(c, retry_at=10.0) == []
    assert sent(made, 10.0) == [a]
    assert names(made.succeeded(a, 1)) == [("a", 1)]
    again = sent(made, 10.0)
    assert again[:2] == [b, c]
    assert again[2].receipts == ["d"]


def test_who_came_too_early_is_sent_again_after_who_was_late():
    made = queue()
    a, b, c = opened(made, "abc")
    made.to_be_retried(a, 0.0)
    assert made.refused(b, GAP) == []
    assert made.refused(c, GAP) == []
    assert sent(made) == [a]
    assert names(made.succeeded(a, 1)) == [("a", 1)]
    assert sent(made) == [b, c]


def test_a_success_proves_that_what_came_before_is_written():
    """A restarted broker recognises the last batch of a producer only."""
    made = queue()
    a, b, c = opened(made, "abc")
    for batch in (a, b, c):
        made.to_be_retried(batch, 0.0)
    assert sent(made) == [a]
    assert made.refused(a, GAP) == []
    assert sent(made) == [b]
    assert made.refused(b, GAP) == []
    assert sent(made) == [c]
    assert names(made.succeeded(c, 3)) == [("a", -1), ("b", -1), ("c", 3)]
    assert not made


def test_what_is_proven_while_it_is_under_way_cannot_fail():
    made = queue()
    a, b = opened(made, "ab")
    assert names(made.succeeded(b, 2)) == [("b", 2)]
    assert names(made.to_be_retried(a, 0.0)) == [("a", -1)]


def test_if_all_are_refused_acknowledged_records_are_lost_and_the_rest_begins_anew():
    made = queue(records_per_batch=2)
    first, second = opened(made, "abcd")
    assert made.refused(second, GAP) == []
    fates = made.refused(first, GAP)
    assert errors(fates) == ["ab"]
    assert made.wants_identity
    assert made.former == (7, 0)
    assert sent(made) == []
    made.identify(Identity(7, 1))
    assert sent(made) == [second]
    header = validate_produced(second.encode(Codec.NONE, made.identity))
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_a_batch_that_failed_leaves_a_gap_and_nobody_is_blamed_for_it():
    made = queue()
    a, b, c = opened(made, "abc")
    assert errors(made.failed(a, INVALID)) == ["a"]
    assert made.refused(b, GAP) == []
    assert made.refused(c, GAP) == []
    assert made.wants_identity
    made.identify(Identity(7, 1))
    assert sent(made) == [b]


def test_a_gap_is_not_closed_by_the_success_of_who_came_before_it():
    """One fails for a moment, the next for good, and the third comes too early."""
    made = queue()
    a, b, c = opened(made, "abc")
    made.to_be_retried(a, 0.0)
    assert errors(made.failed(b, INVALID)) == ["b"]
    assert made.refused(c, GAP) == []
    assert sent(made) == [a]
    assert names(made.succeeded(a, 1)) == [("a", 1)]
    assert sent(made) == [c]
    assert made.refused(c, GAP) == []  # that is because of b: nothing is lost
    assert made.wants_identity
    made.identify(Identity(7, 1))
    assert sent(made) == [c]


def test_a_gap_at_the_end_is_not_closed_by_who_came_before_it_either():
    made = queue()
    a, b = opened(made, "ab")
    made.to_be_retried(a, 0.0)
    assert errors(made.failed(b, INVALID)) == ["b"]
    assert sent(made) == [a]
    assert names(made.succeeded(a, 1)) == [("a", 1)]
    fill(made, "c")
    (c,) = sent(made)
    assert made.refused(c, GAP) == []
    assert made.wants_identity


def test_a_gap_is_closed_by_a_success():
    made = queue()
    a, b, c = opened(made, "abc")
    made.failed(a, INVALID)  # but it was written
    assert names(made.succeeded(b, 2)) == [("b", 2)]
    assert errors(made.refused(c, GAP)) == ["c"]


def test_a_broker_that_has_forgotten_us_has_lost_nothing():
    made = queue()
    (a,) = opened(made, "a")
    assert made.refused(a, FORGOTTEN) == []
    made.identify(Identity(7, 1))
    assert sent(made) == [a]
    assert errors(made.refused(a, FORGOTTEN)) == ["a"]  # it cannot have forgotten what is new


def test_a_batch_that_is_too_large_is_halved_and_keeps_its_numbers():
    made = queue(records_per_batch=5)
    first, second = opened(made, "abcdfghijk")
    assert made.too_large(first, INVALID) == []
    made.refused(second, GAP)
    halves = sent(made)
    assert [one.receipts for one in halves] == [["a", "b"]]
    made.succeeded(halves[0], 1)
    others = sent(made)
    assert [one.receipts for one in others] == [["c", "d", "f"], list("ghijk")]
    assert [one.base_sequence for one in others] == [first.base_sequence + 2, second.base_sequence]
    data = others[0].encode(Codec.NONE, made.identity)
    assert [(one.offset, one.value) for one in records(data, validate_produced(data))] == [
        (0, b"c"),
        (1, b"d"),
        (2, b"f"),
    ]


def test_a_single_record_cannot_be_halved():
    made = queue()
    (a,) = opened(made, "a")
    assert errors(made.too_large(a, INVALID)) == ["a"]


def test_what_waits_too_long_is_given_up_unless_it_is_under_way():
    made = queue(linger=100.0)
    a, b = opened_at(made, "ab", now=10.0)
    fill(made, "c", now=20.0)
    made.to_be_retried(b, 0.0)
    assert made.expires_first() == 10.0
    assert errors(made.expire(15.0, 5.0, INVALID)) == ["b"]
    assert errors(made.expire(25.0, 5.0, INVALID)) == ["c"]
    assert made.expires_first() is None
    assert names(made.succeeded(a, 1)) == [("a", 1)]


def opened_at(made: PartitionQueue, text: str, now: float) -> list[Batch]:
    fill(made, "-" + text, now)
    first = made.next(now)
    made.succeeded(first, 0)
    return sent(made, now)


def test_without_numbers_one_batch_at_a_time():
    made = queue(is_numbered=False)
    fill(made, "abc")
    (a,) = sent(made)
    assert a.encode(Codec.NONE, made.identity)
    assert validate_produced(a.data).base_sequence == -1
    made.succeeded(a, 0)
    (b,) = sent(made)
    made.to_be_retried(b, 0.0)
    assert sent(made) == [b]


def test_what_is_not_its_own_is_ignored():
    made = queue()
    (a,) = opened(made, "a")
    made.drop_all(INVALID)
    for answer in (
        made.succeeded(a, 0),
        made.to_be_retried(a, 0.0),
        made.refused(a, GAP),
        made.failed(a, GAP),
    ):
        assert answer == []


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_survives_being_numbered_anew(codec):
    made = queue(records_per_batch=3)
    (batch,) = opened(made, "abc")
    before = batch.encode(codec, made.identity)
    made.identify(Identity(9, 3))
    after = batch.encode(codec, made.identity)
    assert records(before, validate_produced(before)) == records(after, validate_produced(after))
    assert validate_produced(after).producer_id == 9
