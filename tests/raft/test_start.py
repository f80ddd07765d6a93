"""What a replica is when it starts, by what it finds on its disk."""

from __future__ import annotations

from random import Random

import pytest
from memory_node import endpoint_of, voter_of

from quorate.raft.effects import ElectionState
from quorate.raft.positions import LogPositions
from quorate.raft.quorum import Now, Quorum
from quorate.raft.state import Candidate, Follower, Leader, Resigned, SafetyError, Unattached
from quorate.raft.voters import ReplicaKey, VoterHistory, VoterSet

ME, OTHER = ReplicaKey(1), ReplicaKey(2)
NOW = Now(100.0, 100)


def started(
    stored: ElectionState,
    *,
    me: ReplicaKey = ME,
    voter_ids: tuple[int, ...] = (1, 2, 3),
    last_epoch: int = 0,
    can_vote: bool = True,
) -> Quorum:
    log = LogPositions()
    if last_epoch:
        log.append(last_epoch, 0, 1)
    voters = VoterSet.of(voter_of(ReplicaKey(node_id)) for node_id in voter_ids)
    quorum = Quorum(
        me,
        (endpoint_of(me.id),),
        log=log,
        voters=VoterHistory(voters),
        random=Random(1),
        can_vote=can_vote,
    )
    effects = quorum.start(stored, NOW)
    if effects.persist is not None:
        stored = effects.persist
    assert stored == quorum.election_state, "what is on disk is what the replica relies on"
    return quorum


@pytest.mark.parametrize(
    ("stored", "role"),
    [
        (ElectionState(), Unattached),
        (ElectionState(3), Unattached),
        (ElectionState(3, leader_id=1), Resigned),
        (ElectionState(3, voted=ME), Candidate),
        (ElectionState(3, voted=OTHER), Unattached),
        (ElectionState(3, leader_id=2), Follower),
        (ElectionState(3, leader_id=2, voted=OTHER), Follower),
        (ElectionState(3, leader_id=2, voted=ME), Follower),  # it stood, and lost
        (ElectionState(3, leader_id=9), Unattached),
    ],
)
def test_a_voter(stored: ElectionState, role: type) -> None:
    quorum = started(stored)
    assert type(quorum.role) is role
    assert quorum.epoch == stored.epoch
    assert quorum.high_watermark is None
    assert quorum.deadline_ms < float("inf")


def test_a_log_that_is_newer_than_the_file() -> None:
    quorum = started(ElectionState(3, leader_id=1, voted=None), last_epoch=4)
    assert isinstance(quorum.role, Unattached)
    assert quorum.election_state == ElectionState(4)


def test_a_log_that_is_as_new_as_the_file() -> None:
    assert isinstance(started(ElectionState(4, leader_id=1), last_epoch=4).role, Resigned)


def test_a_vote_without_an_id() -> None:
    with pytest.raises(SafetyError, match="without an id"):
        started(ElectionState(3, voted=OTHER), me=ReplicaKey(-1))


def test_an_observer_never_stands() -> None:
    for stored in (ElectionState(3), ElectionState(3, voted=ReplicaKey(7)), ElectionState(3, leader_id=9)):
        quorum = started(stored, me=ReplicaKey(7))
        assert isinstance(quorum.role, Unattached)
        assert quorum.deadline_ms == float("inf")


def test_a_broker_never_votes_for_itself_whatever_its_id() -> None:
    quorum = started(ElectionState(3, voted=ME), can_vote=False)
    assert isinstance(quorum.role, Unattached)
    assert quorum.deadline_ms == float("inf")


@pytest.mark.parametrize(
    ("stored", "epoch"),
    [
        (ElectionState(), 1),
        (ElectionState(3, voted=ME), 3),  # had it won, that would be written
        (ElectionState(3, leader_id=1), 5),  # never again 3, and 4 is nobody's
        (ElectionState(3, leader_id=2), 4),
    ],
)
def test_the_only_voter_leads_at_once(stored: ElectionState, epoch: int) -> None:
    quorum = started(stored, voter_ids=(1,))
    assert isinstance(quorum.role, Leader)
    assert quorum.epoch == epoch


def test_the_only_voter_is_not_a_broker() -> None:
    assert isinstance(started(ElectionState(), voter_ids=(1,), can_vote=False).role, Unattached)
