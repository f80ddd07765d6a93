"""What a leader makes of where its replicas are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_node import voter_of

from quorate.protocol.types import Uuid
from quorate.raft.replication import (
    OBSERVER_SESSION_MS,
    high_watermark,
    is_quorum_heard,
    progress_of,
    record_fetch,
    successors,
)
from quorate.raft.state import Leader, Progress
from quorate.raft.voters import ReplicaKey, VoterSet, majority_of

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
ME = ReplicaKey(1, A)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, A)


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(voter_of(key(node_id)) for node_id in ids)


@given(
    st.dictionaries(st.integers(1, 9), st.integers(-1, 20), min_size=1),
    st.sets(st.integers(1, 9), min_size=1, max_size=7),
    st.integers(0, 20),
)
def test_it_is_what_a_majority_has(offsets: dict[int, int], voter_ids: set[int], mine: int) -> None:
    replicas = {key(node_id): Progress(offset) for node_id, offset in offsets.items() if node_id != 1}
    value = high_watermark(voters(*voter_ids), ME, mine, replicas)
    reached = [mine if node_id == 1 else offsets.get(node_id, -1) for node_id in voter_ids]

    def is_on_majority(end_offset: int) -> bool:
        return sum(offset >= end_offset for offset in reached) >= majority_of(len(reached))

    assert is_on_majority(value)
    assert not is_on_majority(value + 1)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, -1),
        ({2: 5}, 5),
        ({2: 5, 3: 7}, 7),
        ({2: 15, 3: 17}, 15),  # further than our own disk
        ({9: 8, 8: 8}, -1),  # observers
    ],
)
def test_of_three_voters_with_our_disk_at_ten(others: dict[int, int], expected: int) -> None:
    replicas = {key(node_id): Progress(offset) for node_id, offset in others.items()}
    assert high_watermark(voters(1, 2, 3), ME, 10, replicas) == expected


def test_a_leader_that_left_is_not_counted() -> None:
    replicas = {key(2): Progress(5), key(3): Progress(7)}
    assert high_watermark(voters(2, 3), ME, 99, replicas) == 5


def test_another_disk_is_not_counted() -> None:
    assert high_watermark(voters(1, 2), ME, 10, {ReplicaKey(2, B): Progress(5)}) == -1


def test_of_a_static_voter_the_newest_disk_counts() -> None:
    """It came back with an empty disk: what the old one had is gone, and must neither count nor hide it."""
    static = VoterSet.of(voter_of(ReplicaKey(node_id)) for node_id in (1, 2, 3))
    leader = Leader(1, 0, 0.0)
    record_fetch(leader, ReplicaKey(2, A), 8, 9, 100.0, 100)
    assert high_watermark(static, ME, 9, leader.replicas) == 8
    record_fetch(leader, ReplicaKey(2, B), 3, 9, 200.0, 200)
    assert high_watermark(static, ME, 9, leader.replicas) == 3
    record_fetch(leader, ReplicaKey(2, B), 9, 9, 300.0, 300)
    assert high_watermark(static, ME, 9, leader.replicas) == 9


@pytest.mark.parametrize(
    ("voter_ids", "heard", "is_enough"),
    [
        ((1,), [], True),
        ((1, 2), [], False),
        ((1, 2), [2], True),
        ((1, 2, 3), [2], True),
        ((1, 2, 3, 4, 5), [2], False),
        ((1, 2, 3, 4, 5), [2, 5], True),
        ((1, 2, 3, 4, 5), [2, 9], False),  # an observer
        ((2, 3), [2], False),  # a leader that has removed itself is no part of the majority
        ((2, 3), [2, 3], True),
    ],
)
def test_whether_enough_voters_were_heard(
    voter_ids: tuple[int, ...], heard: list[int], is_enough: bool
) -> None:
    leader = Leader(1, 0, 0.0, fetched=dict.fromkeys(heard))
    assert is_quorum_heard(leader, voters(*voter_ids), ME) is is_enough


def test_progress_may_go_back() -> None:
    """KAFKA-12181: a replica without its disk starts again."""
    leader = Leader(1, 0, 0.0)
    record_fetch(leader, key(2), 9, 9, 1.0, 1)
    record_fetch(leader, key(2), 0, 9, 2.0, 2)
    assert progress_of(leader.replicas, voters(1, 2), key(2)).offset == 0


def test_when_a_replica_was_caught_up() -> None:
    leader = Leader(1, 0, 0.0)
    record_fetch(leader, key(2), 0, 10, 100.0, 100)
    progress = leader.replicas[key(2)]
    assert progress.caught_up_wall_ms == -1
    record_fetch(leader, key(2), 10, 20, 200.0, 200)  # it has what there was at its last fetch
    assert progress.caught_up_wall_ms == 100
    record_fetch(leader, key(2), 20, 20, 300.0, 300)  # it has everything
    assert progress.caught_up_wall_ms == 300


def test_observers_are_forgotten_after_a_while() -> None:
    leader = Leader(1, 0, 0.0)
    record_fetch(leader, key(7), 0, 1, 0.0, 0)
    record_fetch(leader, key(8), 0, 1, OBSERVER_SESSION_MS + 1.0, 0)
    assert list(leader.replicas) == [key(8)]


def test_successors_are_those_with_the_longest_logs() -> None:
    leader = Leader(1, 0, 0.0, {key(2): Progress(5), key(3): Progress(7), key(9): Progress(99)})
    assert successors(leader, voters(1, 2, 3, 4, 5), ME) == (key(3), key(2), key(4), key(5))
