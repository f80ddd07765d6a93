"""What the active controller alone remembers of brokers: when each was last heard of, and how far it is.

It is kept by broker id and epoch, so a process that was replaced cannot keep its successor's session alive.
A sign of life counts when it arrives, before anything is decided about it; but only from an incarnation that
is already known here. Who is known is decided by whoever checked its epoch: `restart`, `begin` and `touch`.

    restart   this controller became active: every unfenced broker has a full session before it is judged
    begin     a new incarnation is registered; it holds nobody off before its first heartbeat
    contact   a heartbeat arrived
    touch     a heartbeat was looked at, its epoch is the registered one
    expire    the broker was fenced because it fell silent; its next heartbeat makes it alive again
    end       the broker was allowed to shut down, and is gone
    forget    the broker was unregistered

`end` is more than Apache Kafka 4 does. There a broker that was stopped in order holds its id until its last
heartbeat is as old as a session, and a quick restart is refused as a duplicate all that time. But whoever was
told to shut down has said that it wants to go, is fenced and leads nothing: its successor may have the id.

A heartbeat costs the same with ten brokers and with ten thousand. It only moves `contact_ms`; the heap of
deadlines is put right when a deadline is asked for, where each session moves at most once per timeout.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import Final

from quorate.values import dataclass

__all__ = ["Session", "Sessions"]

_NEVER: Final = -math.inf
_GRACE_MS: Final = 1  # so that whoever waits for a deadline does not come a rounding error too early
_GARBAGE_MIN: Final = 64


@dataclass(slots=True)
class Session:
    """One incarnation of a broker, as its heartbeats tell."""

    broker_id: int
    epoch: int
    contact_ms: float = _NEVER
    metadata_offset: int = -1  # how far it said it has read the metadata log
    shutdown_offset: int = -1  # what all others must have read before it may go; -1 if it is not going
    check: str = ""  # the check that held it back last, so that the same is not said twice
    want_fence: bool = False  # whether it said last that it does not want to be unfenced
    has_left: bool = False  # it was allowed to shut down
    deadline_ms: float = math.inf  # under which it stands in the heap; infinity if nobody waits for it

    def ms_since_contact(self, now_ms: float) -> int | None:
        """In whole milliseconds, for people; None if it was never heard of, or is gone."""
        return None if self.contact_ms == _NEVER else round(now_ms - self.contact_ms)


class Sessions:
    """The sessions of all brokers. A session lives for `timeout_ms` after the last sign of life."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}
        # Deadlines with the broker's id and epoch. One may be too early or of the past, none is too late.
        self._deadlines: list[tuple[float, int, int]] = []

    def restart(self, brokers: Iterable[tuple[int, int]], now_ms: float) -> None:
        """A controller became active: everyone of these (ids and epochs) has a full session before it.

        Give it the unfenced brokers. A fenced one needs no time to be heard of: nobody waits for it.
        """
        self._sessions = {}
        self._deadlines = []
        for broker_id, epoch in brokers:
            session = self._sessions[broker_id] = Session(broker_id, epoch)
            self._heard(session, now_ms)

    def of(self, broker_id: int) -> Session | None:
        """What is remembered of a broker, of the incarnation that was registered last."""
        return self._sessions.get(broker_id)

    def is_alive(self, broker_id: int, epoch: int, now_ms: float) -> bool:
        """Whether this incarnation was heard of within the timeout."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            return False
        return session.contact_ms + self.timeout_ms >= now_ms

    def silence_ms(self, broker_id: int, epoch: int, now_ms: float) -> int | None:
        """How long ago this incarnation was heard of; None if it never was, or is gone."""
        session = self._sessions.get(broker_id)
        return session.ms_since_contact(now_ms) if session is not None and session.epoch == epoch else None

    # Life

    def begin(self, broker_id: int, epoch: int) -> None:
        """A new incarnation is registered. What was known of the one before is dropped."""
        self._sessions[broker_id] = Session(broker_id, epoch)

    def contact(self, broker_id: int, epoch: int, now_ms: float) -> None:
        """A heartbeat arrived. One of an incarnation that is not known here counts for nothing yet."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch and not session.has_left:
            self._heard(session, now_ms)

    def touch(
        self, broker_id: int, epoch: int, metadata_offset: int, now_ms: float, *, want_fence: bool = False
    ) -> None:
        """A heartbeat was looked at: its epoch is the registered one."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = Session(broker_id, epoch)
        session.metadata_offset = metadata_offset
        session.want_fence = want_fence
        session.has_left = False
        self._heard(session, now_ms)

    def withhold(self, broker_id: int, check: str) -> None:
        """Remembers what holds a broker back; nothing does if `check` is empty."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.check = check

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """A broker is going: the others must have read the log up to an offset. The first one counts."""
        session = self._sessions[broker_id]
        if session.shutdown_offset < 0:
            session.shutdown_offset = offset

    def expire(self, broker_id: int, epoch: int) -> None:
        """A broker fell silent and was fenced for it. One that was shutting down no longer is."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.shutdown_offset = -1
            session.check = ""
            session.deadline_ms = math.inf

    def end(self, broker_id: int) -> None:
        """A broker was allowed to shut down: from now on its id is free for its successor."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.contact_ms = _NEVER
            session.shutdown_offset = -1
            session.check = ""
            session.has_left = True
            session.deadline_ms = math.inf

    def forget(self, broker_id: int) -> None:
        """A broker was unregistered."""
        self._sessions.pop(broker_id, None)

    # Deadlines

    @property
    def deadline_ms(self) -> float:
        """When the next session has run out if nothing is heard until then; infinity if there is none."""
        while self._deadlines:
            session = self._waiting(self._deadlines[0])
            if session is None:
                heapq.heappop(self._deadlines)
            elif session.deadline_ms < self._due_ms(session):
                self._move_first(session, self._due_ms(session))
            else:
                return session.deadline_ms
        return math.inf

    def next_expired(self, now_ms: float) -> tuple[int, int] | None:
        """The id and epoch of the one that has been silent for longest, if that is too long.

        It is not named again, unless `expire` is not called for it: then the fencing has failed, and it is
        due once more a timeout later, after all the others.
        """
        if self.deadline_ms > now_ms:
            return None
        session = self._sessions[self._deadlines[0][1]]
        self._move_first(session, now_ms + self.timeout_ms)
        return session.broker_id, session.epoch

    def slowest(self, brokers: Iterable[int]) -> tuple[int, float]:
        """Which of these has read least of the metadata log, and up to where; `(-1, inf)` if there are none.

        Give it the active ones. One that has not said yet has read nothing, as far as we know.
        """
        offset, broker_id = min(((self._offset_of(one), one) for one in brokers), default=(math.inf, -1))
        return broker_id, offset

    # Inside

    def _offset_of(self, broker_id: int) -> float:
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.metadata_offset

    def _heard(self, session: Session, now_ms: float) -> None:
        session.contact_ms = max(session.contact_ms, now_ms)
        if session.deadline_ms == math.inf:
            session.deadline_ms = self._due_ms(session)
            heapq.heappush(self._deadlines, (session.deadline_ms, session.broker_id, session.epoch))
            self._sweep()

    def _due_ms(self, session: Session) -> float:
        return session.contact_ms + self.timeout_ms + _GRACE_MS

    def _move_first(self, session: Session, deadline_ms: float) -> None:
        session.deadline_ms = deadline_ms
        heapq.heapreplace(self._deadlines, (deadline_ms, session.broker_id, session.epoch))

    def _waiting(self, entry: tuple[float, int, int]) -> Session | None:
        """Whose deadline it is; nobody's if it was given up."""
        deadline_ms, broker_id, epoch = entry
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch or session.deadline_ms != deadline_ms:
            return None
        return session

    def _sweep(self) -> None:
        """Brokers that come and go leave deadlines behind: swept once they are more than those that count."""
        if len(self._deadlines) > 2 * len(self._sessions) + _GARBAGE_MIN:
            self._deadlines = sorted({entry for entry in self._deadlines if self._waiting(entry)})
