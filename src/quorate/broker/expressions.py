"""Looks up the regular expressions of groups, a part in each turn of the loop, and others go on in between.

All coordinators of a broker share the turns, and groups take them one after the other: one whose expression
takes long to match delays the others by a turn each, and no request by more than that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from quorate.broker.coordinators import Hosted
from quorate.coordinator.shard import GroupShard
from quorate.coordinator.topic_matches import Allowance, TopicMatches

__all__ = ["PAUSE_S", "STEPS_IN_A_TURN", "Expressions"]

STEPS_IN_A_TURN: Final = 1_000_000
"""Some 5 ms of the worst expressions, or 2,000 ordinary names."""
PAUSE_S: Final = 0.005
"""Between two turns."""


class Expressions:
    """Those of all groups that this broker coordinates."""

    def __init__(self, find: Callable[[int], Hosted[GroupShard] | None]) -> None:
        """`find` knows the coordinator of a partition, if it is here and serves."""
        self.matches = TopicMatches()
        self._find = find
        self._waiting: deque[tuple[int, str]] = deque()
        self._timer: asyncio.Handle | None = None

    def look_soon(self, partition: int, group_id: str) -> None:
        """A group's expressions are to be looked up."""
        self._waiting.append((partition, group_id))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        allowance = Allowance(STEPS_IN_A_TURN)
        try:
            for _ in range(len(self._waiting)):
                if allowance.is_spent:
                    break
                self._look(*self._waiting.popleft(), allowance)
        finally:
            self._timer = (
                asyncio.get_running_loop().call_later(PAUSE_S, self._turn) if self._waiting else None
            )

    def _look(self, partition: int, group_id: str, allowance: Allowance) -> None:
        hosted = self._find(partition)
        if hosted is None:
            return  # its group is another's now, or has to be loaded again
        hosted.perform(partial(hosted.shard.resolve, group_id, allowance))
        if hosted.shard.is_resolving(group_id):
            self._waiting.append((partition, group_id))
