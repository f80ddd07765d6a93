"""Who gets a vote: every role, every ask."""

from __future__ import annotations

import pytest
from memory_node import endpoint_of, voter_of

from quorate.protocol.types import Uuid
from quorate.raft.election import grants, is_log_up_to_date, is_well_formed, successor_delay_ms
from quorate.raft.messages import Vote
from quorate.raft.positions import Position
from quorate.raft.state import Candidate, Follower, Leader, Prospective, Resigned, Role, Tally, Unattached
from quorate.raft.voters import ReplicaKey, VoterSet

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
ME, OTHER, THIRD = ReplicaKey(1, A), ReplicaKey(2, A), ReplicaKey(3, A)
THREE = VoterSet.of(map(voter_of, (ME, OTHER, THIRD)))
OURS = Position(10, 4)
BETTER, WORSE = Position(10, 4), Position(9, 4)


@pytest.mark.parametrize(
    ("theirs", "is_good"),
    [
        (Position(10, 4), True),
        (Position(11, 4), True),
        (Position(9, 4), False),
        (Position(1, 5), True),  # a later epoch, however short
        (Position(99, 3), False),
    ],
)
def test_logs_are_compared_by_epoch_first(theirs: Position, is_good: bool) -> None:
    assert is_log_up_to_date(theirs, OURS) is is_good


def tally() -> Tally:
    return Tally(THREE, ME)


def follower(has_fetched: bool, voted: ReplicaKey | None = None) -> Follower:
    return Follower(5, 3, endpoint_of(3), 0.0, voted, has_fetched)


NO_BUT_PRE = (False, False, True, False)

# role, then: a vote with a better log, with a worse one; a pre-vote with a better log, with a worse one
MATRIX: list[tuple[str, Role, tuple[bool, bool, bool, bool]]] = [
    ("leader", Leader(5, 0, 0.0), (False, False, False, False)),
    ("follower", follower(has_fetched=True), (False, False, False, False)),
    ("follower before its first fetch", follower(has_fetched=False), NO_BUT_PRE),
    ("follower that voted", follower(has_fetched=False, voted=OTHER), NO_BUT_PRE),
    ("candidate", Candidate(5, 0.0, tally()), NO_BUT_PRE),
    ("resigned", Resigned(5, 0.0), NO_BUT_PRE),
    ("unattached", Unattached(5, 0.0), (True, False, True, False)),
    ("unattached with a leader", Unattached(5, 0.0, 3), NO_BUT_PRE),
    ("unattached, voted for it", Unattached(5, 0.0, -1, OTHER), (True, True, True, False)),
    ("unattached, voted for it by id", Unattached(5, 0.0, -1, ReplicaKey(2)), (True, True, True, False)),
    (
        "unattached, voted for its old disk",
        Unattached(5, 0.0, -1, ReplicaKey(2, B)),
        (False, False, True, False),
    ),
    ("unattached, voted for another", Unattached(5, 0.0, -1, THIRD), NO_BUT_PRE),
    ("prospective", Prospective(5, 0.0, tally()), (True, False, True, False)),
    ("prospective with a leader", Prospective(5, 0.0, tally(), 3), NO_BUT_PRE),
    ("prospective, voted for it", Prospective(5, 0.0, tally(), -1, None, OTHER), (True, True, True, False)),
    (
        "prospective, voted for another",
        Prospective(5, 0.0, tally(), -1, None, THIRD),
        (False, False, True, False),
    ),
    (
        "prospective, voted for itself",
        Prospective(5, 0.0, tally(), -1, None, ME),
        (False, False, True, False),
    ),
]


@pytest.mark.parametrize(("role", "expected"), [row[1:] for row in MATRIX], ids=[row[0] for row in MATRIX])
def test_who_grants_what(role: Role, expected: tuple[bool, bool, bool, bool]) -> None:
    asks = [Vote(5, OTHER, last, pre_vote) for pre_vote in (False, True) for last in (BETTER, WORSE)]
    assert tuple(grants(role, ask, OURS) for ask in asks) == expected


@pytest.mark.parametrize(
    ("last", "pre_vote", "is_good"),
    [
        (Position(0, 0), False, True),
        (Position(7, 4), False, True),
        (Position(7, 5), False, False),  # nothing is written yet in the epoch that it wants
        (Position(7, 5), True, True),  # but one that only asks has not raised it
        (Position(7, 6), True, False),
        (Position(-1, 4), False, False),
        (Position(7, -1), True, False),
    ],
)
def test_what_a_candidate_may_say(last: Position, pre_vote: bool, is_good: bool) -> None:
    assert is_well_formed(Vote(5, OTHER, last, pre_vote)) is is_good


@pytest.mark.parametrize(
    ("successors", "delay_ms"),
    [
        ([], 0),  # the leader restarted and knows nobody: anyone
        ([1], 0),
        ([2], 1000),
        ([1, 2, 3, 4], 0),
        ([2, 1, 3, 4], 125),
        ([2, 3, 1, 4], 250),
        ([2, 3, 4, 1], 500),
        ([2, 1], 500),
        ([2, 3, 4], 1000),
    ],
)
def test_successors_come_one_after_the_other(successors: list[int], delay_ms: int) -> None:
    keys = tuple(ReplicaKey(node_id, A) for node_id in successors)
    assert successor_delay_ms(keys, ME, 1000) == delay_ms


# Counting


def tally_of(count: int, *, is_voter: bool = True) -> Tally:
    ids = range(1, count + 1) if is_voter else range(2, count + 2)
    return Tally(VoterSet.of(voter_of(ReplicaKey(node_id, A)) for node_id in ids), ME)


def test_the_own_vote_is_implied() -> None:
    votes = tally_of(3)
    assert (votes.granting, votes.unanswered, votes.is_won, votes.is_lost) == ([1], [2, 3], False, False)
    votes.record(3, True)
    assert (votes.granting, votes.unanswered, votes.is_won) == ([1, 3], [2], True)


def test_who_has_no_vote_has_none_for_itself() -> None:
    votes = tally_of(2, is_voter=False)
    assert votes.granting == []
    votes.record(2, True)
    assert not votes.is_won
    votes.record(3, True)
    assert votes.is_won


def test_another_disk_has_no_vote() -> None:
    assert Tally(THREE, ReplicaKey(1, B)).granting == []


def test_an_election_is_lost_when_it_cannot_be_won() -> None:
    votes = tally_of(5)
    votes.record(2, False)
    votes.record(3, False)
    assert not votes.is_lost
    votes.record(4, False)
    assert votes.is_lost


def test_only_voters_are_counted() -> None:
    votes = tally_of(3)
    votes.record(9, True)
    assert votes.granting == [1]


def test_alone_one_has_won() -> None:
    assert tally_of(1).is_won
