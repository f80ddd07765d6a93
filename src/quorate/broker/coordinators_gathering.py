"""Members that come one after the other are heard together.

When a program with hundreds of members starts, they come in many turns of the loop, and each that is heard
alone is given what it has to hand to others right after. So who was announced is heard when nobody has come
for a moment, or when so many have."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

__all__ = ["LOOKS_MAX", "QUIET_S", "TOGETHER_MAX", "Gathering"]

QUIET_S: Final = 0.002
"""So long nobody else has come. It is next to nothing beside what a member waits for otherwise: Apache holds
back records of coordinators for 5 ms, and assignments, by default, for a second."""
LOOKS_MAX: Final = 10
"""After so many times as long nobody waits for others any more."""
TOGETHER_MAX: Final = 512
"""So many are heard at once, which holds up the loop for some 30 ms. With half as many, 500 members of a
group cost twice as much: what one wave is given, the next one takes away."""


class Hearing(Protocol):
    def hear(self) -> None:
        """Hears those who were announced here."""
        ...


class Gathering:
    """Who was announced to the coordinators of a broker, and not heard yet."""

    __slots__ = ("_hearing", "_looks", "_number", "_seen", "_timer", "is_full")

    def __init__(self) -> None:
        self._hearing: deque[Hearing] = deque()
        self._number = self._seen = self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_full = False

    def add(self, hearing: Hearing) -> None:
        """One was announced."""
        if hearing not in self._hearing:
            self._hearing.append(hearing)
        self._number += 1
        self.is_full = self._number >= TOGETHER_MAX
        if self._timer is None:
            self._look_later()

    def end(self) -> None:
        """All are heard now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._number, self._looks, self.is_full = 0, 0, False
        try:
            while self._hearing:
                self._hearing.popleft().hear()
        finally:
            if self._hearing:  # one of them has a bug, and the others do not suffer from it
                self._look_later()

    def _look_later(self) -> None:
        self._seen = self._number
        self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._look)

    def _look(self) -> None:
        self._looks += 1
        if self._number > self._seen and self._looks < LOOKS_MAX:
            self._look_later()
        else:
            self.end()
