"""What of the fetched bytes is for applications."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.client.fetched import fetched
from quorate.client.metadata import TopicPartition
from quorate.protocol.batch import ControlType, Record, build, build_control
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError

AT = TopicPartition("t", 0)


class Log:
    """Batches one after the other, and who aborted what."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.end_offset = 0
        self.aborted: list[tuple[int, int]] = []
        self.expected: list[int] = []  # offsets that are visible to who reads what is committed
        self._open: dict[int, list[int]] = {}

    def write(self, producer_id: int, count: int = 1, *, is_transactional: bool = True) -> None:
        offsets = range(self.end_offset, self.end_offset + count)
        self.data += build(
            [Record(offset, 0, None, b"%d" % offset) for offset in offsets],
            base_offset=self.end_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=is_transactional,
            leader_epoch=3,
        )
        if is_transactional:
            self._open.setdefault(producer_id, []).extend(offsets)
        else:
            self.expected += offsets
        self.end_offset += count

    def end(self, producer_id: int, kind: ControlType) -> None:
        self.data += build_control(
            [(kind, bytes(6))],
            timestamp=0,
            base_offset=self.end_offset,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
        )
        self.end_offset += 1
        offsets = self._open.pop(producer_id, [])
        if kind is ControlType.COMMIT:
            self.expected += offsets
        elif offsets:
            self.aborted.append((producer_id, offsets[0]))


steps = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["write", "alone", "commit", "abort"])), max_size=30
)


@given(steps)
def test_aborted_records_and_markers_are_left_out(chosen):
    log = Log()
    for producer_id, step in chosen:
        match step:
            case "write":
                log.write(producer_id, count=2)
            case "alone":
                log.write(9, is_transactional=False)
            case "commit":
                log.end(producer_id, ControlType.COMMIT)
            case "abort":
                log.end(producer_id, ControlType.ABORT)
    for producer_id in list(log._open):
        log.end(producer_id, ControlType.COMMIT)
    found = fetched(AT, 0, log.data, aborted=log.aborted)
    assert [one.offset for one in found.records()] == sorted(log.expected)
    assert found.next_offset == log.end_offset
    everything = [one.offset for one in fetched(AT, 0, log.data).records()]
    assert set(log.expected) <= set(everything)


def test_an_aborted_transaction_that_began_before_the_fetch():
    log = Log()
    log.write(1)
    log.write(1)
    log.end(1, ControlType.ABORT)
    log.write(1)
    log.end(1, ControlType.COMMIT)
    found = fetched(AT, 1, log.data, aborted=log.aborted)
    assert [one.offset for one in found.records()] == [3]


@pytest.mark.parametrize("codec", Codec)
def test_reading_begins_in_the_middle_of_a_batch(codec):
    data = build([Record(10 + i, i, b"k", b"%d" % i) for i in range(100)], base_offset=10, codec=codec)
    found = fetched(AT, 57, data)
    assert [one.offset for one in found.records()] == list(range(57, 110))
    columns = found.columns()
    assert columns.offset.tolist() == list(range(57, 110))
    assert columns.value(0) == b"47"
    assert columns.timestamp.tolist() == list(range(47, 100))
    assert found.next_offset == 110


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch():
    whole = build([Record(0, 0, None, b"a")]) + build(
        [Record(1, 0, None, b"b")], base_offset=1, leader_epoch=4
    )
    for cut in range(1, len(whole) // 2):
        found = fetched(AT, 0, whole[:-cut])
        assert ([one.value for one in found.records()], found.next_offset) == ([b"a"], 1)
    assert fetched(AT, 0, whole).leader_epoch == 4
    nothing = fetched(AT, 7, whole[:40])
    assert (list(nothing.records()), nothing.next_offset, nothing.leader_epoch) == ([], 7, -1)


def test_damage_is_noticed():
    data = build([Record(0, 0, None, b"abc")])
    data[-2] ^= 1
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        fetched(AT, 0, data)


def test_what_compaction_has_emptied_is_passed_over():
    data = build([], base_offset=5, last_offset=9)
    found = fetched(AT, 5, data)
    assert (list(found.records()), list(found.batches), found.next_offset) == ([], [], 10)
