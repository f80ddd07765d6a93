"""Whether it pays to wait for others: if enough came together last time, they will again."""

from __future__ import annotations

from typing import Final

__all__ = ["Crowding"]

CROWD: Final = 2
"""So many that came together are enough."""

ALONE_MAX: Final = 64
"""After so many that came alone, one waits to find out whether it still is."""


class Crowding:
    """Of things of one kind, such as answers that could leave together.

    >>> answers = Crowding()
    >>> answers.came(3)
    >>> answers.is_expected()
    True
    >>> answers.came(1)
    >>> [answers.is_expected() for _ in range(ALONE_MAX + 1)].index(True) == ALONE_MAX
    True
    """

    __slots__ = ("_is_crowded", "_left_alone")

    def __init__(self) -> None:
        self._is_crowded = False
        self._left_alone = ALONE_MAX

    def is_expected(self) -> bool:
        """Whether one should wait for others. Who does has to say how many came."""
        if self._is_crowded:
            return True
        self._left_alone -= 1
        return self._left_alone < 0

    def came(self, number: int) -> None:
        """So many were there in the end, the one that waited among them."""
        self._is_crowded = number >= CROWD
        self._left_alone = ALONE_MAX
