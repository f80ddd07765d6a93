"""Work that grows with what was asked is done in slices, and others get their turn in between.

A handler that answers for each of many items is written as a generator that yields after each of them, and
returns the answer. The first slice is done at once, and most work is done with that. What is left goes on in
later turns of the loop, a slice at a time: so a request with a million items holds up nobody but those behind
it on its own connection.

    def work() -> Work[DescribeGroupsResponse]:
        groups = []
        for one in request.groups:
            groups.append(describe(one))
            yield None
        return DescribeGroupsResponse(groups=groups)

    return in_slices(work())

What has to be waited for is yielded as well, and comes back as the value of the `yield`. A step that takes
longer than others yields for how many it counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, Final, TypeVar, cast

from quorate.net.eventual import Eventual, Pending, pending

__all__ = ["STEPS_PER_SLICE", "Work", "in_slices"]

T = TypeVar("T")

# A step takes some microseconds.
STEPS_PER_SLICE: Final = 250

# Yields None after each step, for how many it counts, or something to wait for; returns what comes of it.
Work = Generator[Awaitable[Any] | int | None, Any, T]


def in_slices(work: Work[T]) -> T | Eventual[T]:
    """What comes of some work, if a slice is all that it takes; else something that will have it.

    If nobody waits for that any more, the work ends where it is.
    """
    try:
        awaited = _slice_of(work)
    except StopIteration as end:
        return cast("T", end.value)
    rest = _Rest(work)
    rest.go_on_after(awaited)
    return rest.answer


def _slice_of(work: Work[Any]) -> Awaitable[Any] | None:
    """Does a slice of the work. What it waits for then, if anything."""
    left = STEPS_PER_SLICE
    while left > 0:
        said = next(work)
        if said is None:
            left -= 1
        elif isinstance(said, int):
            left -= said
        else:
            return said
    return None


class _Rest:
    """Work that takes more than one slice."""

    __slots__ = ("_awaited", "_loop", "_work", "answer")

    def __init__(self, work: Work[Any]) -> None:
        self.answer: Eventual[Any] = Eventual()
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._awaited: Pending[Any] | None = None
        self.answer.add_done_callback(self._is_over)

    def go_on_after(self, awaited: Awaitable[Any] | int | None) -> None:
        if awaited is None or isinstance(awaited, int):
            self._loop.call_soon(self._go_on)
        else:
            self._awaited = running = pending(awaited)
            if running.done():  # in a turn of its own, or many of them would be calls within calls
                self._loop.call_soon(self._is_there, running)
            else:
                running.add_done_callback(self._is_there)

    def _go_on(self) -> None:
        if not self.answer.done():
            self._take(lambda: _slice_of(self._work))

    def _is_there(self, awaited: Pending[Any]) -> None:
        self._awaited = None
        if self.answer.done():
            return
        if awaited.cancelled():
            self.answer.cancel()
        elif (error := awaited.exception()) is not None:
            self._take(lambda: self._work.throw(error))
        else:
            self._take(lambda: self._work.send(awaited.result()))

    def _take(self, step: Any) -> None:
        try:
            awaited = step()
        except StopIteration as end:
            self.answer.set_result(end.value)
        except Exception as error:
            self.answer.set_exception(error)
        else:
            self.go_on_after(awaited)

    def _is_over(self, answer: Eventual[Any]) -> None:
        if answer.cancelled():
            if self._awaited is not None:
                self._awaited.cancel()
            # Not from within itself, if what it has just begun was the end of whoever waits.
            self._loop.call_soon(self._work.close)
