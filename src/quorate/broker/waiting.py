"""Requests that wait: producers for a commit, consumers and followers for data. Nobody polls.

A wait is entered at every partition that it depends on, and is told when one of them changes; it ends once,
by what it waited for or by its deadline, and is then nowhere any more. How many there may be is bounded by
the connections: each has one request under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final, Protocol

from quorate.protocol.errors import ErrorCode

__all__ = ["CommitQueue", "CommitWait", "DataWait", "Watched"]

_order: Final = count()


class Watched(Protocol):
    """What a `DataWait` is entered at."""

    data_waits: dict[DataWait, None]


class CommitWait:
    """A produce request with acks=all: ends when all its partitions have committed, or have failed.

    `errors` has an entry for each partition that failed, by the number under which it was entered.
    """

    __slots__ = ("_handle", "_left", "done", "errors")

    def __init__(self, partitions: int, timeout_ms: float) -> None:
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self.errors: dict[int, ErrorCode] = {}
        self._left = set(range(partitions))
        self._handle = loop.call_later(timeout_ms / 1000, self._time_out)

    def finished(self, number: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """One of the partitions is done with it."""
        self._left.discard(number)
        if error is not ErrorCode.NONE:
            self.errors[number] = error
        if not self._left and not self.done.done():
            self._handle.cancel()
            self.done.set_result(None)

    def _time_out(self) -> None:
        for number in self._left:
            self.errors[number] = ErrorCode.REQUEST_TIMED_OUT
        self._left.clear()
        if not self.done.done():
            self.done.set_result(None)


class CommitQueue:
    """The commit waits of one partition, by the offset that they need the high watermark to pass."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, CommitWait, int]] = []

    def add(self, last_offset: int, wait: CommitWait, number: int) -> None:
        heappush(self._heap, (last_offset, next(_order), wait, number))

    def committed(self, high_watermark: int, error: ErrorCode) -> None:
        """Everything below the high watermark is committed; with an error if too few are in sync for it."""
        while self._heap and self._heap[0][0] < high_watermark:
            _, _, wait, number = heappop(self._heap)
            wait.finished(number, error)

    def fail(self, error: ErrorCode) -> None:
        """Nobody can wait here any longer."""
        heap, self._heap = self._heap, []
        for _, _, wait, number in heap:
            wait.finished(number, error)


class DataWait:
    """A fetch that found too little: ends when `is_enough` says so, or by its deadline."""

    __slots__ = ("_handle", "_is_enough", "_watched", "done")

    def __init__(self, watched: list[Watched], timeout_ms: float, is_enough: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self._is_enough = is_enough
        self._watched = watched
        self._handle = loop.call_later(timeout_ms / 1000, self.finish)
        for one in watched:
            one.data_waits[self] = None

    def look(self) -> None:
        """Something has changed at one of the partitions."""
        if self._is_enough():
            self.finish()

    def finish(self) -> None:
        """It ends, whatever there is. Also for a wait that was given up."""
        self._handle.cancel()
        for one in self._watched:
            one.data_waits.pop(self, None)
        self._watched = []
        if not self.done.done():
            self.done.set_result(None)
