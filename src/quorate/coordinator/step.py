"""One step of the group coordinator while it is being taken: when it is, and what has come of it so far."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from quorate.coordinator.deadlines import Deadlines
from quorate.coordinator.effects import Answer, Effects, LogRecord, Moment, Producer, Ticket
from quorate.coordinator.settings import GroupSettings
from quorate.metadata.event import Event
from quorate.protocol.message import Message
from quorate.protocol.message import Record as Declared
from quorate.values import plain_members

__all__ = ["AGAIN_MIN_MS", "DELETIONS", "EXPIRY", "REASON_MAX", "Step", "Timer", "TimerKind"]

AGAIN_MIN_MS: Final = 1_000
"""What was waited for in vain is not looked at again before that. Members say themselves how long they are to
be waited for, and may say that it is no time at all: a coordinator would do nothing else but look."""

REASON_MAX: Final = 255
"""How many characters of a client's reason are kept."""


@plain_members
class TimerKind(Enum):
    """What is waited for. The values are names for people."""

    SESSION = "session"  # of a member, or of an id that was given out
    JOIN = "join"  # of a group: members may come back until then
    SYNC = "sync"  # of a group: members must have asked for their assignment by then
    # Of consumer groups: see `consumer_leaving.expire`.
    MEMBER_SESSION = "member session"
    MEMBER_JOIN = "member join"  # a member of the classic protocol must have come back by then
    MEMBER_SYNC = "member sync"  # and asked for its assignment
    REVOCATION = "revocation"  # a member must have given partitions back by then
    EXPIRY = "expiry"  # of the shard: offsets are looked through
    DELETIONS = "deletions"  # of the shard: offsets of deleted topics are left to be forgotten

    # Each is there once. That of `Enum` is a function in Python, and every heartbeat looks a timer up.
    __hash__ = object.__hash__


class Timer(NamedTuple):
    """A deadline's key: there is one of each kind for each group and member."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


EXPIRY: Final = Timer(TimerKind.EXPIRY)
DELETIONS: Final = Timer(TimerKind.DELETIONS)


class Step:
    """What `Effects` are made of."""

    __slots__ = (
        "_is_answered_at_once",
        "_producer",
        "_reads_uncommitted",
        "answers",
        "deadlines",
        "events",
        "now_ms",
        "records",
        "settings",
        "wall_ms",
    )

    def __init__(self, settings: GroupSettings, deadlines: Deadlines[Timer], moment: Moment) -> None:
        self.settings = settings
        self.deadlines = deadlines
        self.now_ms, self.wall_ms = moment
        self.records: list[LogRecord] = []
        self.answers: list[Answer] = []
        self.events: list[Event] = []
        self._reads_uncommitted = False
        self._is_answered_at_once = False
        self._producer: Producer | None = None

    def write(self, key: Declared, value: Declared | None) -> None:
        self.records.append(LogRecord(key, value))

    def write_for(self, producer: Producer) -> None:
        """All records of this step are part of a producer's transaction."""
        self._producer = producer

    def answer(self, ticket: Ticket, response: Message) -> None:
        self.answers.append(Answer(ticket, response))

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def read_uncommitted(self) -> None:
        """Something is answered that rests on records which may not be committed yet."""
        self._reads_uncommitted = True

    def answer_at_once(self) -> None:
        """What is answered does not rest on what this step writes."""
        self._is_answered_at_once = True

    def set_timer(self, timer: Timer, after_ms: float) -> None:
        self.deadlines.set(timer, self.now_ms + after_ms)

    def set_timer_again(self, timer: Timer, after_ms: float) -> None:
        """Sets a timer that has come, while nothing else has happened that it could come of."""
        self.set_timer(timer, max(after_ms, AGAIN_MIN_MS))

    def put_off(self, timer: Timer) -> None:
        """A timer that is set, for what may just have been tried in vain, comes no sooner than that."""
        due_ms, soonest_ms = self.deadlines.get(timer), self.now_ms + AGAIN_MIN_MS
        if due_ms is not None and due_ms < soonest_ms:
            self.deadlines.set(timer, soonest_ms)

    def cancel_timer(self, timer: Timer) -> None:
        self.deadlines.cancel(timer)

    def effects(self) -> Effects:
        return Effects(
            self.records,
            self.answers,
            self.events,
            self._reads_uncommitted,
            self._is_answered_at_once,
            self._producer,
        )
