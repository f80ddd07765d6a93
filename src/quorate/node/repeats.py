"""Events that come again and again are told once in a while, with how many of them there were.

Under overload a heartbeat of every broker may be late every time; clients may ask to join a group that will
not have them, or commit while the log takes nothing, a thousand times a second. To write each of these down
would push everything else out of a journal of limited size, at the very time when it is needed. What explains
a rebalance is never left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quorate.controller.events import Event, HeartbeatTimedOut, RequestTimedOut
from quorate.coordinator.events import GroupAppendRefused, MemberRefused

__all__ = ["Repeats"]

EVERY_S: Final = 10.0
KNOWN_MAX: Final = 10_000  # what is remembered, as a rule one for each broker, and each refusal of a group


class Repeats:
    """What was told when, of what repeats itself."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told: dict[int, tuple[float, int]] = {}  # when last, and how many were not since

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


def _sameness(event: Event) -> int | None:
    """What those have in common of which one stands for all; None if each counts.

    It is a hash: the name of a group may be long, and is chosen by somebody else.
    """
    match event:
        case HeartbeatTimedOut():
            return hash((event.kind, event.broker_id, event.epoch))
        case RequestTimedOut():
            return hash((event.kind, event.request))
        case MemberRefused():
            return hash((event.kind, event.group_id, event.request, event.error))
        case GroupAppendRefused() if event.offsets == event.records:
            return hash((event.kind, event.group_ids, event.error))
        case _:
            return None
