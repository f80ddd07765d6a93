"""Which role may follow which."""

from __future__ import annotations

from random import Random

import pytest
from memory_node import endpoint_of, voter_of

from quorate.raft.positions import LogPositions
from quorate.raft.quorum import Quorum
from quorate.raft.state import (
    TRANSITIONS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    SafetyError,
    Tally,
    Unattached,
)
from quorate.raft.voters import ReplicaKey, VoterHistory, VoterSet

ME = ReplicaKey(1)
THREE = VoterSet.of(voter_of(ReplicaKey(node_id)) for node_id in (1, 2, 3))
NAMES = ("Unattached", "Prospective", "Candidate", "Leader", "Follower", "Resigned")

# The rules once more, in another form: from a role (line) to a role (column), in the same or a higher epoch.
ALLOWED = """
             Unattached  Prospective  Candidate  Leader  Follower  Resigned
Unattached   same,higher same         -          -       same,higher -
Prospective  same,higher same         higher     -       same,higher -
Candidate    higher      same         -          same    same,higher -
Leader       higher      -            -          -       higher    same
Follower     higher      same         -          -       same,higher -
Resigned     higher      -            -          -       higher    -
"""


def allowed() -> dict[tuple[str, str], str]:
    header, *lines = [line.split() for line in ALLOWED.strip().splitlines()]
    return {(line[0], to): cell for line in lines for to, cell in zip(header, line[1:], strict=True)}


def role(name: str, epoch: int) -> Role:
    roles: dict[str, Role] = {
        "Unattached": Unattached(epoch, 0.0),
        "Prospective": Prospective(epoch, 0.0, Tally(THREE, ME)),
        "Candidate": Candidate(epoch, 0.0, Tally(THREE, ME)),
        "Leader": Leader(epoch, 0, 0.0),
        "Follower": Follower(epoch, 2, endpoint_of(2), 0.0),
        "Resigned": Resigned(epoch, 0.0),
    }
    return roles[name]


def quorum() -> Quorum:
    return Quorum(ME, (endpoint_of(1),), log=LogPositions(), voters=VoterHistory(THREE), random=Random(1))


@pytest.mark.parametrize("old", NAMES)
@pytest.mark.parametrize("new", NAMES)
@pytest.mark.parametrize(("kind", "epoch"), [("lower", 4), ("same", 5), ("higher", 6)])
def test_every_pair(old: str, new: str, kind: str, epoch: int) -> None:
    one = quorum()
    one.role = role(old, 5)
    if kind in allowed()[old, new].split(","):
        one.become(role(new, epoch))
        assert one.epoch == epoch
    else:
        with pytest.raises(SafetyError, match=rf"{old}@5 may not become {new}@{epoch}"):
            one.become(role(new, epoch))


def test_the_table_says_nothing_else() -> None:
    pairs = {(old.__name__, new.__name__) for old, new in TRANSITIONS}
    assert pairs == {pair for pair, cell in allowed().items() if cell != "-"}


def test_nobody_follows_itself() -> None:
    one = quorum()
    with pytest.raises(SafetyError, match="itself"):
        one.become(Follower(3, 1, endpoint_of(1), 0.0))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_known_to_be_committed_stays_known_unless_it_could_mislead(name: str) -> None:
    """A new leader must not show an old value: others might know more. Who resigned shows none."""
    one = quorum()
    one.role = role("Leader" if name == "Resigned" else "Candidate", 5)
    one.log.append(4, 0, 9)
    one.commit(9)
    epoch = 6 if name in ("Unattached", "Follower") else 5
    if name == "Candidate":
        one.role = role("Prospective", 4)
    one.become(role(name, epoch))
    assert one.high_watermark == (None if name == "Resigned" else 9)
    assert one.committed_offset == 9
