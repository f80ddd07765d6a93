"""Answers of coordinators on their way to those who asked.

They leave in the next turn of the loop, or when what was decided has been written: whoever gets one may ask
again at once, and must find everything in order.
"""

from __future__ import annotations

import asyncio
from typing import Any

from quorate.net.eventual import Eventual
from quorate.protocol.message import Message

__all__ = ["Delivery"]


class Delivery:
    """The answers of all coordinators of a broker."""

    __slots__ = ("_answers", "is_awaited", "is_under_way")

    def __init__(self) -> None:
        self._answers: list[tuple[Eventual[Any], Message]] = []
        self.is_awaited = False
        """Somebody is going to call `now`."""
        self.is_under_way = False
        """Answers are leaving, and their askers may ask again meanwhile."""

    def put(self, asker: Eventual[Any], response: Message) -> None:
        self._answers.append((asker, response))

    def soon(self) -> None:
        """All that were put leave."""
        if self._answers and not self.is_awaited:
            self.is_awaited = True
            asyncio.get_running_loop().call_soon(self.now)

    def now(self) -> None:
        self.is_awaited = False
        answers, self._answers = self._answers, []
        was_under_way, self.is_under_way = self.is_under_way, True
        for asker, response in answers:
            try:
                if not asker.done():
                    asker.set_result(response)
            except Exception as error:  # of one of them; the others have done nothing wrong
                context = {"message": "an answer was not delivered", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
        self.is_under_way = was_under_way
