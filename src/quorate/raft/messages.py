"""What replicas say to each other, as plain values.

These are the requests and responses of the protocol without what is the same in all of them: one cluster,
one topic, one partition. `wire` turns them into protocol messages and back.
"""

from __future__ import annotations

from typing import Final

from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Buffer
from quorate.raft.positions import Position
from quorate.raft.voters import Endpoint, ReplicaKey, Voter
from quorate.values import dataclass

__all__ = [
    "HIGH_WATERMARK_UNKNOWN",
    "AddVoter",
    "Answer",
    "Ask",
    "BeginEpoch",
    "EndEpoch",
    "Fetch",
    "FetchAnswer",
    "FetchSnapshot",
    "Probe",
    "ProbeAnswer",
    "RemoveVoter",
    "SnapshotAnswer",
    "UpdateVoter",
    "Vote",
    "VoteAnswer",
]

HIGH_WATERMARK_UNKNOWN: Final = -1
_NO_POSITION: Final = Position(-1, -1)


@dataclass(frozen=True, slots=True)
class Vote:
    """Will you vote for me, or, with `pre_vote`, would you?"""

    epoch: int
    candidate: ReplicaKey
    last: Position
    pre_vote: bool
    voter: ReplicaKey | None = None  # whom the candidate believes to ask


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """I lead this epoch."""

    epoch: int
    leader_id: int
    endpoints: tuple[Endpoint, ...] = ()
    voter: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """I no longer lead this epoch; these should try to succeed me, in this order."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """My log ends here, durably. What comes next?"""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    max_wait_ms: int = 0
    max_bytes: int = 8 << 20
    high_watermark: int = (1 << 63) - 1  # what the replica knows; the largest value: do not wake me for it


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """The bytes of this snapshot from this position on."""

    epoch: int
    replica: ReplicaKey
    snapshot: Position
    byte_position: int
    max_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class AddVoter:
    voter: Voter
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True)
class Probe:
    """Which levels of `kraft.version` do you support? Asked of a node that is to become a voter."""


Ask = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot | AddVoter | RemoveVoter | UpdateVoter | Probe


@dataclass(frozen=True, slots=True)
class Answer:
    """What every answer says: an error or none, and who leads which epoch as far as is known."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int = -1
    leader_id: int = -1
    leader_endpoint: Endpoint | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class VoteAnswer(Answer):
    granted: bool = False


@dataclass(frozen=True, slots=True)
class FetchAnswer(Answer):
    high_watermark: int = HIGH_WATERMARK_UNKNOWN
    log_start_offset: int = -1
    diverging: Position | None = None
    snapshot: Position | None = None
    records: Buffer = b""


@dataclass(frozen=True, slots=True)
class ProbeAnswer(Answer):
    kraft_versions: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class SnapshotAnswer(Answer):
    snapshot: Position = _NO_POSITION
    size_bytes: int = 0
    byte_position: int = 0
    data: Buffer = b""
