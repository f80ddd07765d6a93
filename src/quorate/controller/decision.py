"""What decisions are made from, and what they come to.

A decision is a function `decide_...(situation, request) -> Decision`. It reads the situation and changes
nothing: the records do, once they are appended. What cannot be granted is an `ApiError`, or an error in the
reply where only a part of the request fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final, Protocol, TypeVar

from quorate.controller.events import Event
from quorate.controller.mutation_quota import MutationQuota
from quorate.controller.sessions import Sessions
from quorate.controller.settings import ControllerSettings
from quorate.metadata.image import ClusterImage
from quorate.metadata.partition_changes import PartitionChanges
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Record, Response
from quorate.values import dataclass

__all__ = [
    "RECORDS_MAX",
    "Asker",
    "Change",
    "Decision",
    "Random",
    "Situation",
    "check_count",
    "count_records",
]

RECORDS_MAX: Final = 10_000  # in one batch, and for one request of a user

Change = Record | PartitionChanges

T = TypeVar("T")


class Random(Protocol):
    """The part of `random.Random` that decisions use."""

    def randrange(self, stop: int, /) -> int: ...
    def shuffle(self, x: list[T], /) -> None: ...
    def randbytes(self, n: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and in which version of the request; and whether a broker has passed it on."""

    api_version: int = 0
    principal: str = "User:ANONYMOUS"
    client_id: str = ""
    is_forwarded: bool = False


@dataclass(slots=True)
class Situation:
    """Everything that a decision may read. `image` is the newest one, uncommitted records included."""

    image: ClusterImage
    sessions: Sessions
    settings: ControllerSettings
    random: Random
    now_ms: float  # monotonic
    wall_ms: int
    next_offset: int  # where the first record of this decision will stand
    asker: Asker = field(default_factory=Asker)
    voters: tuple[int, ...] = ()  # the ids of all controllers that vote, registered or not
    mutations: MutationQuota | None = None  # None where nobody is held back


@dataclass(frozen=True, slots=True)
class Decision:
    """Records to append, the reply for when they are committed, and what there is to say about it.

    An atomic decision must fit into one batch. `then` is called with the offset of the last record, or, if
    there are none, of the last one in the log, once they are appended and applied: for what only this
    controller remembers.
    """

    reply: Response | None = None
    records: Sequence[Change] = ()
    events: Sequence[Event] = ()
    is_atomic: bool = False
    then: Callable[[int], None] | None = None


def count_records(records: Sequence[Change]) -> int:
    return sum(len(one) if isinstance(one, PartitionChanges) else 1 for one in records)


def check_count(records: Sequence[Change]) -> None:
    """What a user asks for in one request has its limit."""
    count = count_records(records)
    if count > RECORDS_MAX:
        reason = f"this would take {count} records; one request may take {RECORDS_MAX}: ask for less at once"
        raise ApiError(ErrorCode.POLICY_VIOLATION, reason)
