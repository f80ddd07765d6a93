"""The roles of a replica. Exactly one of these is held at a time; `quorum` moves from one to the next.

    Unattached   knows no leader that it can reach; a voter waits for its election timeout
    Prospective  asks whether it would be elected, without disturbing anyone
    Candidate    asks to be elected, in a new epoch
    Leader       was elected by a majority
    Follower     fetches from a leader
    Resigned     led this epoch and no longer does; it still answers as its leader

An observer, who is no voter, is only ever Unattached or Follower (or Leader and Resigned, for a leader that
has removed itself).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from quorate.raft.messages import Fetch, FetchAnswer
from quorate.raft.positions import Position
from quorate.raft.voters import Endpoint, ReplicaKey, VoterSet
from quorate.values import dataclass

__all__ = [
    "TRANSITIONS",
    "Candidate",
    "Download",
    "Follower",
    "Leader",
    "Parked",
    "Progress",
    "Prospective",
    "Resigned",
    "Role",
    "SafetyError",
    "Tally",
    "Unattached",
    "is_allowed",
]


class SafetyError(Exception):
    """Something that must never happen did: going on could lose committed records."""


class Tally:
    """Votes of a set of voters, the local one implied."""

    __slots__ = ("_answers", "_me", "_voters")

    def __init__(self, voters: VoterSet, me: ReplicaKey) -> None:
        self._voters = voters
        self._me = me
        self._answers: dict[int, bool] = {me.id: True} if voters.contains(me) else {}

    def record(self, voter_id: int, granted: bool) -> None:
        if self._voters.get(voter_id) is not None:
            self._answers[voter_id] = granted

    @property
    def unanswered(self) -> list[int]:
        return [voter.key.id for voter in self._voters if voter.key.id not in self._answers]

    @property
    def granting(self) -> list[int]:
        return [voter_id for voter_id, granted in sorted(self._answers.items()) if granted]

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self._voters.majority

    @property
    def is_lost(self) -> bool:
        return len(self.granting) + len(self.unanswered) < self._voters.majority


@dataclass(slots=True)
class Unattached:
    epoch: int
    deadline_ms: float
    leader_id: int = -1  # one whose endpoint is not known
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Prospective:
    epoch: int
    deadline_ms: float
    tally: Tally
    leader_id: int = -1
    leader_endpoint: Endpoint | None = None
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Candidate:
    epoch: int
    deadline_ms: float
    tally: Tally


@dataclass(slots=True)
class Progress:
    """What a leader knows of another replica."""

    offset: int = -1  # everything below is on its disk
    last_fetch_ms: float = float("-inf")
    last_fetch_wall_ms: int = -1
    caught_up_wall_ms: int = -1
    end_at_last_fetch: int = -1  # where our log ended when it last fetched


@dataclass(slots=True)
class Parked:
    """A fetch that waits for records or for a new high watermark."""

    token: object
    ask: Fetch
    answer: FetchAnswer
    deadline_ms: float


@dataclass(slots=True)
class Leader:
    epoch: int
    start_offset: int  # of its LeaderChange record
    check_quorum_deadline_ms: float
    replicas: dict[ReplicaKey, Progress] = field(default_factory=dict)
    fetched: dict[int, None] = field(default_factory=dict)  # voters heard since the check began
    begin_due_ms: dict[int, float] = field(default_factory=dict)
    parked: list[Parked] = field(default_factory=list)
    is_announced: bool = False


@dataclass(slots=True)
class Download:
    """A snapshot that is being fetched."""

    snapshot: Position
    byte_position: int = 0


@dataclass(slots=True)
class Follower:
    epoch: int
    leader_id: int
    endpoint: Endpoint
    fetch_deadline_ms: float
    voted: ReplicaKey | None = None
    has_fetched: bool = False
    is_leader_silent: bool = False  # for observers, who do not elect another one
    download: Download | None = None
    update_due_ms: float = float("-inf")


@dataclass(slots=True)
class Resigned:
    epoch: int
    deadline_ms: float
    successors: tuple[ReplicaKey, ...] = ()
    unacked: dict[int, None] = field(default_factory=dict)


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned

_HIGHER, _SAME = "higher epoch", "same epoch"

# Which role may follow which, and in which epoch. What is not here must never happen.
TRANSITIONS: Final[Mapping[tuple[type, type], tuple[str, ...]]] = {
    (Unattached, Unattached): (_HIGHER, _SAME),
    (Unattached, Prospective): (_SAME,),
    (Unattached, Follower): (_HIGHER, _SAME),
    (Prospective, Unattached): (_HIGHER, _SAME),
    (Prospective, Prospective): (_SAME,),  # after granting a vote, the tally starts again
    (Prospective, Candidate): (_HIGHER,),
    (Prospective, Follower): (_HIGHER, _SAME),
    (Candidate, Unattached): (_HIGHER,),
    (Candidate, Prospective): (_SAME,),
    (Candidate, Follower): (_HIGHER, _SAME),
    (Candidate, Leader): (_SAME,),
    (Leader, Unattached): (_HIGHER,),
    (Leader, Follower): (_HIGHER,),
    (Leader, Resigned): (_SAME,),
    (Follower, Unattached): (_HIGHER,),
    (Follower, Prospective): (_SAME,),
    (Follower, Follower): (_HIGHER, _SAME),
    (Resigned, Unattached): (_HIGHER,),
    (Resigned, Follower): (_HIGHER,),
}


def is_allowed(old: Role, new: Role) -> bool:
    if new.epoch < old.epoch:
        return False
    epochs = TRANSITIONS.get((type(old), type(new)), ())
    return (_HIGHER if new.epoch > old.epoch else _SAME) in epochs
