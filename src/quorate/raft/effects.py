"""What a step of the quorum asks its shell to do, as values.

The shell performs one `Effects` completely before it makes the next step, in this order:

1. `persist`: the election state, written and synced;
2. `truncate`: the end of the log is cut;
3. `append`: batches go to the end of the log, not yet synced;
4. `chunk`, `install`: bytes of a snapshot under way are stored; a complete one is verified and takes the
   place of the log, and its voters are reported with `Quorum.installed`;
5. `send` and `reply`: messages leave, with records and snapshot bytes read from disk where they say so;
6. `committed`, `leadership`: the state machine above is told.

What it finds in its log when it starts, it syncs first: `LogPositions` takes that for flushed. Whenever
something was appended the shell syncs the log, while it goes on, and reports how far with
`Quorum.flushed`. Nothing is ever in `send` or `reply` that rests on a sync that was not reported.
"""

from __future__ import annotations

from dataclasses import field

from quorate.protocol.types import Buffer
from quorate.raft.messages import Answer, Ask
from quorate.raft.positions import Position
from quorate.raft.voters import Endpoint, ReplicaKey
from quorate.values import dataclass

__all__ = [
    "Chunk",
    "Effects",
    "ElectionState",
    "Leadership",
    "Peer",
    "ReadLog",
    "ReadSnapshot",
    "Reply",
    "Send",
]


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What must survive a restart: the epoch, who leads it, and whom we voted for in it."""

    epoch: int = 0
    leader_id: int = -1
    voted: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom to send to. A bootstrap server has a negative id of our own making."""

    id: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Send:
    """An ask, numbered: the shell reports its answer, or its failure, under this number."""

    number: int
    to: Peer
    ask: Ask


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Fill the answer's records from the log: whole batches from this offset on, at least one."""

    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """Fill the answer's size and data from a snapshot; if it is gone or too short, say so instead."""

    snapshot: Position
    byte_position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to an ask that was received under a token."""

    token: object
    answer: Answer
    read: ReadLog | ReadSnapshot | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a snapshot that is being fetched."""

    snapshot: Position
    byte_position: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads from now on. `epoch_start_offset` is given when it is this node."""

    epoch: int
    leader_id: int | None
    epoch_start_offset: int | None = None


@dataclass(slots=True)
class Effects:
    persist: ElectionState | None = None
    truncate: int | None = None
    append: list[Buffer] = field(default_factory=list)
    chunk: Chunk | None = None
    install: Position | None = None
    send: list[Send] = field(default_factory=list)
    reply: list[Reply] = field(default_factory=list)
    committed: int | None = None
    leadership: Leadership | None = None

    @property
    def is_empty(self) -> bool:
        return self == Effects()
