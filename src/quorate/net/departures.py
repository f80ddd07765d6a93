"""Small answers of several connections leave together.

An answer that is sent wakes the client that waits for it, and that costs the sender more than to make it. If
it is one client that has many connections, as a program with many consumers, it has to be woken only once. So
if requests of several connections come in one turn of the loop, their answers leave when it ends, or when
there are so many; where they come one by one, each leaves at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from quorate.net.crowding import Crowding

__all__ = ["DEPARTING_BYTES_MAX", "TOGETHER_MAX", "Departures"]

TOGETHER_MAX: Final = 32
"""With so many answers they leave even if the turn goes on: who gets them can go on while others are
served."""

DEPARTING_BYTES_MAX: Final = 4 * 1024
"""Larger answers do not wait for others: sending them costs more than to wake somebody."""


class Departing(Protocol):
    """Whoever has an answer that is to leave."""

    def flush(self) -> object:
        """Sends what there is, if it has not left meanwhile."""


class Departures:
    """Those of one listener. `when_left` is called when some have left."""

    __slots__ = ("_held", "_is_awaited", "_when_left", "crowding")

    def __init__(self, when_left: Callable[[], None] | None) -> None:
        self._when_left = when_left
        self.crowding = Crowding()
        """Whether an answer should wait for others: then it has to be added."""
        self._held: dict[Departing, None] = {}  # in their order
        self._is_awaited = False  # the end of the turn

    def add(self, departing: Departing) -> None:
        """Whose answer leaves with others. It is told when, and once for all of its answers."""
        self._held[departing] = None
        if len(self._held) >= TOGETHER_MAX:
            self._leave()
        elif not self._is_awaited:
            self._is_awaited = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_awaited = False
        if self._held:
            self._leave()

    def _leave(self) -> None:
        held, self._held = self._held, {}
        self.crowding.came(len(held))
        for one in held:
            try:
                one.flush()
            except Exception as error:  # of one of them; the others have done nothing wrong
                context = {"message": "an answer could not leave", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
        if self._when_left is not None:
            self._when_left()
