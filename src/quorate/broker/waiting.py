"""Requests that wait: producers for a commit, consumers and followers for data. Nobody polls.

A wait is entered at every partition that it depends on, and is told when one of them changes; it ends once,
by what it waited for, by its deadline or because nobody wants to know any more, and is then nowhere. How many
there may be is bounded by the connections: each has one request under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from quorate.protocol.errors import ErrorCode

__all__ = ["CommitQueue", "CommitWait", "DataWait", "Watched"]


class Watched(Protocol):
    """What a `DataWait` is entered at: the waits, and the number under which each has entered it."""

    data_waits: dict[DataWait, int]


class CommitWait:
    """A produce request with acks=all: ends when all its partitions have committed, or have failed.

    `errors` has an entry for each partition that failed, by the number under which it was entered.
    """

    __slots__ = ("_handle", "_left", "done", "errors")

    def __init__(self, partitions: int, timeout_ms: float) -> None:
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self.errors: dict[int, ErrorCode] = {}
        # The numbers that are not done, and the queue that each waits in once it does.
        self._left: dict[int, CommitQueue | None] = dict.fromkeys(range(partitions))
        self._handle = loop.call_later(max(0.0, timeout_ms / 1000), self._time_out)

    def entered(self, number: int, queue: CommitQueue) -> None:
        """One of the partitions will tell."""
        if number in self._left:
            self._left[number] = queue

    def finished(self, number: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """One of the partitions is done with it."""
        if number not in self._left:
            return
        del self._left[number]
        if error is not ErrorCode.NONE:
            self.errors[number] = error
        if not self._left:
            self.end()

    def end(self) -> None:
        """It ends, whatever is left: also for a wait that was given up."""
        self._handle.cancel()
        for number, queue in self._left.items():
            if queue is not None:
                queue.forget(self, number)
        self._left = {}
        if not self.done.done():
            self.done.set_result(None)

    def _time_out(self) -> None:
        for number in self._left:
            self.errors[number] = ErrorCode.REQUEST_TIMED_OUT
        self.end()


class CommitQueue:
    """The commit waits of one partition, and the offset that each needs the high watermark to pass."""

    __slots__ = ("offsets",)

    def __init__(self) -> None:
        self.offsets: dict[tuple[CommitWait, int], int] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, last_offset: int, wait: CommitWait, number: int) -> None:
        self.offsets[wait, number] = last_offset
        wait.entered(number, self)

    def forget(self, wait: CommitWait, number: int) -> None:
        self.offsets.pop((wait, number), None)

    def committed(self, high_watermark: int, error: ErrorCode) -> None:
        """Everything below the high watermark is committed; with an error if too few are in sync for it."""
        # All are looked at: whoever sends a batch again waits for an offset that is older than others here.
        over = [entry for entry, last_offset in self.offsets.items() if last_offset < high_watermark]
        self._finish(over, error)

    def fail(self, error: ErrorCode) -> None:
        """Nobody can wait here any longer."""
        self._finish(list(self.offsets), error)

    def _finish(self, entries: list[tuple[CommitWait, int]], error: ErrorCode) -> None:
        for entry in entries:
            del self.offsets[entry]
        for wait, number in entries:
            wait.finished(number, error)


class DataWait:
    """A fetch that found too little: ends when `is_enough` says so of one of the watched, or by its deadline.

    `is_enough` is asked with the place, in what is watched, of the one that has changed. `when_over` is
    called in the turn of the loop after the one in which it ends: until then more may come, and whoever
    changes something is not called back into.
    """

    __slots__ = ("_handle", "_is_enough", "_is_over", "_loop", "_watched", "_when_over")

    def __init__(
        self,
        watched: Sequence[Watched],
        timeout_ms: float,
        is_enough: Callable[[int], bool],
        when_over: Callable[[], None],
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._is_enough = is_enough
        self._when_over = when_over
        self._is_over = False
        self._watched = list(watched)
        self._handle = loop.call_later(timeout_ms / 1000 if timeout_ms > 0 else 0.0, self.finish)
        for number, one in enumerate(watched):
            one.data_waits[self] = number

    def join(self, one: Watched) -> None:
        """Watches one more, as the last of them."""
        if not self._is_over:
            one.data_waits[self] = len(self._watched)
            self._watched.append(one)

    def look(self, number: int) -> None:
        """Something has changed at one of the watched."""
        if self._is_enough(number):
            self.finish()

    def finish(self) -> None:
        """It ends, whatever there is. Also for a wait that was given up."""
        if self._is_over:
            return
        self._is_over = True
        self._handle.cancel()
        for one in self._watched:
            one.data_waits.pop(self, None)
        self._watched = []
        self._loop.call_soon(self._when_over)
