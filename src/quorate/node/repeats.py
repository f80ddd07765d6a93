"""Events that come again and again are told once in a while, with how many of them there were.

Under overload a heartbeat of every broker may be late every time; clients may ask to join a group that will
not have them, or commit while the log takes nothing, a thousand times a second. To write each of these down
would push everything else out of a journal of limited size, at the very time when it is needed. What explains
a rebalance is never left out.

Anybody can make up names of groups, as many as there is time for. So groups that are not there are not told
apart, and of others only so many are in a while: then one refusal stands for those of all the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quorate.controller.events import Event, HeartbeatTimedOut, RequestTimedOut
from quorate.coordinator.events import GroupAppendRefused, MemberRefused
from quorate.protocol.errors import ErrorCode

__all__ = ["Repeats"]

EVERY_S: Final = 10.0
GROUPS_MAX: Final = 100  # that are told apart in that time
KNOWN_MAX: Final = 10_000  # what is remembered, as a rule one for each broker, and each refusal of a group


class Repeats:
    """What was told when, of what repeats itself."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told: dict[int, tuple[float, int]] = {}  # when last, and how many were not since
        self._groups_since_s = -EVERY_S
        self._groups = 0  # that were told apart since then

    def untold(self, event: Event) -> int | None:
        """How many like it were not told since the last that was; None if this one is not to be told."""
        same = _sameness(event)
        if same is None:
            return 0
        now_s = self._now_s()
        # Hashes are remembered: the name of a group may be long, and is chosen by somebody else.
        groups = _told_apart(event)
        key = hash((same, groups))
        if groups and not self._may_tell_apart(key, now_s):
            key = hash((same, ()))
        told_at, untold = self._told.pop(key, (None, 0))
        if told_at is not None and now_s - told_at < EVERY_S:
            self._told[key] = told_at, untold + 1
            return None
        self._told[key] = now_s, 0
        if len(self._told) > KNOWN_MAX:
            del self._told[next(iter(self._told))]
        return untold

    def _may_tell_apart(self, key: int, now_s: float) -> bool:
        """Whether this stands for its groups alone: it did so just now, or there were not too many others."""
        told_at, _ = self._told.get(key, (-EVERY_S, 0))
        if now_s - told_at < EVERY_S:
            return True
        if now_s - self._groups_since_s >= EVERY_S:
            self._groups_since_s, self._groups = now_s, 0
        if self._groups == GROUPS_MAX:
            return False
        self._groups += 1
        return True


def _sameness(event: Event) -> tuple[object, ...] | None:
    """What those have in common of which one stands for all, beside their groups; None if each counts."""
    match event:
        case HeartbeatTimedOut():
            return event.kind, event.broker_id, event.epoch
        case RequestTimedOut():
            return event.kind, event.request
        case MemberRefused():
            return event.kind, event.request, event.error
        case GroupAppendRefused() if event.offsets == event.records:
            return event.kind, event.error
        case _:
            return None


def _told_apart(event: Event) -> tuple[str, ...]:
    """The groups it concerns, as far as they are told apart."""
    match event:
        case MemberRefused() if event.error != ErrorCode.GROUP_ID_NOT_FOUND.name:
            return (event.group_id,)
        case GroupAppendRefused():
            return event.group_ids
        case _:
            return ()
