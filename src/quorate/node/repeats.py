"""Events that come again and again are told once in a while, with how many of them there were.

Under overload a heartbeat of every broker may be late every time. To write each of them down would push
everything else out of a journal of limited size, at the very time when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from quorate.controller.events import Event, HeartbeatTimedOut, RequestTimedOut

__all__ = ["Repeats"]

EVERY_S: Final = 10.0
KNOWN_MAX: Final = 10_000  # what is remembered, as a rule one for each broker


class Repeats:
    """What was told when, of what repeats itself."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told: dict[Hashable, tuple[float, int]] = {}  # when last, and how many were not since

    def untold(self, event: Event) -> int | None:
        """How many like it were not told since the last that was; None if this one is not to be told."""
        key = _sameness(event)
        if key is None:
            return 0
        now_s = self._now_s()
        told_at, untold = self._told.pop(key, (None, 0))
        if told_at is not None and now_s - told_at < EVERY_S:
            self._told[key] = told_at, untold + 1
            return None
        self._told[key] = now_s, 0
        if len(self._told) > KNOWN_MAX:
            del self._told[next(iter(self._told))]
        return untold


def _sameness(event: Event) -> Hashable | None:
    """What those have in common of which one stands for all; None if each counts."""
    if isinstance(event, HeartbeatTimedOut):
        return event.kind, event.broker_id, event.epoch
    if isinstance(event, RequestTimedOut):
        return event.kind, event.request
    return None
