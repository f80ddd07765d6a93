"""Whether it pays to wait for others: if enough came together last time, they will again."""

from __future__ import annotations

from typing import Final

__all__ = ["Crowding"]

ALONE_MAX: Final = 64
"""After so many that came alone, one waits to find out whether it still is."""


class Crowding:
    """Of things of one kind, such as answers that could leave together. From how many on that pays is for
    whoever waits to say.

    >>> answers = Crowding(2)
    >>> answers.came(3)
    >>> answers.is_expected()
    True
    >>> answers.came(1)
    >>> [answers.is_expected() for _ in range(ALONE_MAX + 1)].index(True) == ALONE_MAX
    True
    """

    __slots__ = ("_crowd", "_left_alone", "is_crowded")

    def __init__(self, crowd: int) -> None:
        self._crowd = crowd
        self.is_crowded = False
        """Whether enough came last time. If not, ask `is_expected`."""
        self._left_alone = ALONE_MAX

    def is_expected(self) -> bool:
        """Whether one should wait for others. Who does has to say how many came."""
        if self.is_crowded:
            return True
        self._left_alone -= 1
        return self._left_alone < 0

    def came(self, number: int) -> None:
        """So many were there in the end, the one that waited among them."""
        self.is_crowded = number >= self._crowd
        self._left_alone = ALONE_MAX
