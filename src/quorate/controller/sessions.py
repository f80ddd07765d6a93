"""What the active controller alone remembers of brokers: when each was last heard of, and how far it is.

It is kept by broker id and epoch, so a process that was replaced cannot keep its successor's session alive.
A sign of life counts when it arrives, before anything is decided about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Session", "Sessions"]


@dataclass(slots=True)
class Session:
    """One incarnation of a broker, as its heartbeats tell."""

    broker_id: int
    epoch: int
    contact_ms: float
    metadata_offset: int = -1  # how far it said it has read the metadata log
    shutdown_offset: int = -1  # what all others must have read before it may go; -1 if it is not going
    check: str = ""  # the check that held it back last, so that the same is not said twice


class Sessions:
    """The sessions of all brokers. A session lives for `timeout_ms` after the last sign of life."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}

    def restart(self, brokers: Iterable[tuple[int, int]], now_ms: float) -> None:
        """A controller became active: everyone of these (ids and epochs) has a full session before it."""
        self._sessions = {broker_id: Session(broker_id, epoch, now_ms) for broker_id, epoch in brokers}

    def of(self, broker_id: int) -> Session | None:
        return self._sessions.get(broker_id)
