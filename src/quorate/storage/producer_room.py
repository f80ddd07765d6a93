"""How many producers are remembered: of a partition, and of all partitions of a node together.

Anybody can make up producer ids, and each takes about half a kilobyte for as long as it is remembered. So
there is a limit. When it is reached, those that have written nothing for longest are forgotten, some at once,
so that looking for them costs next to nothing for each. Time is counted in batches: `clock` is how many were
taken into account since the node began, whatever their timestamps say.

To be forgotten means what it means to be expired (`producer.id.expiration.ms`): the next batch is taken
whatever its number is, so one that was appended before, and is sent again only now, is there twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from quorate.storage.producer_states import ProducerStates

__all__ = ["ProducerRoom"]

_AT_ONCE: Final = 16  # one in so many is forgotten besides what is too much


class ProducerRoom:
    """The limits, and who is within them. `clock` is advanced by whoever takes a batch into account."""

    __slots__ = ("_left", "_occupied", "clock", "node_max", "partition_max")

    def __init__(self, partition_max: int = 10_000, node_max: int = 100_000) -> None:
        self.partition_max = partition_max
        self.node_max = node_max
        self.clock = 0
        self._left = node_max  # so many may come before it is worth while to count them
        self._occupied: dict[int, ProducerStates] = {}  # partitions that had a producer, by identity

    def __len__(self) -> int:
        return sum(map(len, self._occupied.values()))

    def entered(self, states: ProducerStates) -> None:
        """A partition has one producer more."""
        self._occupied.setdefault(id(states), states)
        self._left -= 1
        if self._left < 0:
            self._make_room()

    def left(self, states: ProducerStates) -> None:
        """The producers of a partition count no more."""
        self._occupied.pop(id(states), None)

    def age_to_forget(self, ages: Sequence[int], excess: int) -> int:
        """Whoever wrote nothing since this time is to be forgotten, so that there are so many fewer, and some
        more; never the one that writes now. -1, which is nobody's, if there is none that may be."""
        if not ages:
            return -1
        at = min(excess + len(ages) // _AT_ONCE, len(ages)) - 1
        return min(int(np.partition(np.array(ages, np.int64), at)[at]), self.clock - 1)

    def _make_room(self) -> None:
        """Counts who is there: some may have expired or gone since. Then forgets as many as are too many."""
        self._occupied = {key: one for key, one in self._occupied.items() if len(one)}
        excess = len(self) - self.node_max
        if excess > 0:
            ages = [age for one in self._occupied.values() for age in one.ages()]
            until = self.age_to_forget(ages, excess)
            for one in self._occupied.values():
                one.forget_until(until)
        self._left = max(self.node_max - len(self), self.node_max // _AT_ONCE)
