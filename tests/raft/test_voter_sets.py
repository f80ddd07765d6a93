"""Who votes: sets, and their history along the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_node import endpoint_of, voter_of

from quorate.protocol.codec import decode, encode
from quorate.protocol.types import Uuid
from quorate.raft.records import VotersRecord
from quorate.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet, majority_of

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)


def keys(*ids: int) -> list[ReplicaKey]:
    return [ReplicaKey(node_id, A) for node_id in ids]


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(voter_of(key) for key in keys(*ids))


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_majority_is_more_than_half(count: int, majority: int) -> None:
    assert majority_of(count) == majority
    assert voters(*range(count)).majority == majority


@pytest.mark.parametrize(
    ("entry", "key", "matches"),
    [
        (ReplicaKey(1, A), ReplicaKey(1, A), True),
        (ReplicaKey(1, A), ReplicaKey(1, B), False),  # another disk
        (ReplicaKey(1, A), ReplicaKey(1), False),
        (ReplicaKey(1, A), ReplicaKey(2, A), False),
        (ReplicaKey(1), ReplicaKey(1, A), True),  # a static voter is whoever has its id
        (ReplicaKey(1), ReplicaKey(1), True),
        (ReplicaKey(1), ReplicaKey(2, A), False),
    ],
)
def test_a_voter_is_known_by_its_key(entry: ReplicaKey, key: ReplicaKey, matches: bool) -> None:
    assert voter_of(entry).matches(key) is matches
    assert VoterSet.of([voter_of(entry)]).contains(key) is matches
    assert VoterSet.of([voter_of(entry)]).is_only(key) is matches


def test_a_set_is_changed_one_voter_at_a_time() -> None:
    three = voters(2, 1, 3)
    assert [voter.key.id for voter in three] == [1, 2, 3]
    assert three.get(2) == voter_of(ReplicaKey(2, A))
    assert three.get(4) is None
    assert three.plus(voter_of(ReplicaKey(0, A))) == voters(0, 1, 2, 3)
    assert three.minus(ReplicaKey(2, A)) == voters(1, 3)
    assert three.minus(ReplicaKey(2, B)) == three
    moved = Voter(ReplicaKey(2, A), (endpoint_of(9),), (0, 1))
    assert three.updated(moved).get(2) == moved
    assert three.updated(voter_of(ReplicaKey(7, A))) == three
    assert not three.is_only(ReplicaKey(1, A))


def test_an_id_stands_once_in_a_set() -> None:
    with pytest.raises(AssertionError):
        voters(1, 2).plus(voter_of(ReplicaKey(2, B)))


def test_a_set_survives_its_record() -> None:
    three = voters(1, 2, 3)
    data = encode(three.to_record(), 0)
    assert VoterSet.from_record(decode(VotersRecord, 0, data)) == three


# The history


def history(*offsets: int, static: VoterSet | None = None) -> VoterHistory:
    """Sets {1}, {1, 2}, ... at these offsets, and the level 1 at the first."""
    one = VoterHistory(static)
    for index, offset in enumerate(offsets):
        one.add_voters(offset, voters(*range(1, index + 2)))
        if index == 0:
            one.add_version(offset, 1)
    return one


def test_static_voters_count_until_there_is_a_record() -> None:
    one = history(static=voters(7, 8))
    assert (one.latest, one.latest_offset, one.kraft_version) == (voters(7, 8), None, 0)
    one.add_voters(5, voters(1))
    assert (one.latest, one.latest_offset) == (voters(1), 5)
    one.truncate(5)
    assert one.latest == voters(7, 8)


@pytest.mark.parametrize(
    ("end_offset", "latest", "version"),
    [(0, 0, 0), (3, 0, 0), (4, 1, 1), (6, 1, 1), (7, 2, 1), (9, 2, 1), (10, 3, 1), (99, 3, 1)],
)
def test_what_is_cut_off_does_not_count(end_offset: int, latest: int, version: int) -> None:
    one = history(3, 6, 9)
    written, level = one.at(end_offset)
    assert (0 if written is None else len(written), level) == (latest, version)
    one.truncate(end_offset)
    assert (len(one.latest), one.kraft_version) == (latest, version)


@pytest.mark.parametrize(
    ("start_offset", "left"), [(0, 3), (3, 3), (4, 3), (6, 3), (7, 2), (9, 2), (10, 1), (99, 1)]
)
def test_a_snapshot_covers_all_but_the_newest(start_offset: int, left: int) -> None:
    one = history(3, 6, 9)
    before = one.at(start_offset)
    one.trim(start_offset)
    assert len(one.undecided(0)) - 1 == left  # (the static set is before them)
    assert one.at(start_offset) == before
    assert one.latest == voters(1, 2, 3)


def test_a_snapshot_begins_again() -> None:
    one = history(3, 6, static=voters(7))
    one.reset(voters(4, 5), 1, 20)
    assert (one.latest, one.latest_offset, one.kraft_version) == (voters(4, 5), 19, 1)
    one.truncate(20)
    assert one.latest == voters(4, 5)
    one.reset(None, 0, 30)
    assert (one.latest, one.latest_offset, one.kraft_version) == (voters(7), None, 0)


def test_the_first_checkpoint_is_before_the_log() -> None:
    one = VoterHistory()
    one.reset(voters(1), 1, 0)
    assert one.latest_offset == -1


def test_the_order_is_that_of_the_log() -> None:
    one = history(3)
    with pytest.raises(AssertionError):
        one.add_voters(3, voters(1))
    with pytest.raises(AssertionError):
        one.add_version(2, 1)


@pytest.mark.parametrize(
    ("high_watermark", "sizes"),
    [(0, [1, 1, 2, 3]), (3, [1, 1, 2, 3]), (4, [1, 2, 3]), (7, [2, 3]), (9, [2, 3]), (10, [3]), (99, [3])],
)
def test_undecided_are_the_last_committed_set_and_those_after_it(
    high_watermark: int, sizes: list[int]
) -> None:
    one = history(3, 6, 9, static=voters(7))
    assert [len(each) for each in one.undecided(high_watermark)] == sizes


@given(st.lists(st.integers(0, 30), unique=True), st.integers(0, 31))
def test_cutting_is_the_same_as_never_having_written(offsets: list[int], end_offset: int) -> None:
    offsets.sort()
    cut = history(*offsets)
    cut.truncate(end_offset)
    assert repr(cut) == repr(history(*[offset for offset in offsets if offset < end_offset]))
