"""A fetch that found too little: it waits at what it has looked at, and at all that rests in its session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from quorate.broker.fetch_sessions import FetchSession, Wanted
from quorate.broker.handlers.fetch_answers import Found
from quorate.broker.partition import Partition
from quorate.broker.waiting import DataWait
from quorate.net.eventual import Eventual, Pending, pending
from quorate.protocol.api.produce_fetch import FetchResponse

__all__ = ["ParkedFetch"]


class ParkedFetch:
    """Until there is enough, as far as `available` tells, or something has changed, or time is up. Then
    `read_again` makes the answer, or something that will be it.

    `with_records` are the places, in what was looked at, of those that had some: it has just been found out
    that all others have none.
    """

    __slots__ = (
        "_available",
        "_bytes",
        "_found",
        "_loading",
        "_min_bytes",
        "_read_again",
        "_session",
        "_total_bytes",
        "_wait",
        "answer",
    )

    def __init__(
        self,
        looked_at: Sequence[Found],
        with_records: Sequence[int],
        session: FetchSession | None,
        max_wait_ms: float,
        min_bytes: int,
        available: Callable[[Found], float],
        read_again: Callable[[], FetchResponse | Awaitable[FetchResponse]],
    ) -> None:
        self.answer: Eventual[FetchResponse] = Eventual()
        self._read_again = read_again
        self._loading: Pending[FetchResponse] | None = None  # what was found, from a disk
        self._found = list(looked_at)
        self._session = session
        self._min_bytes = min_bytes
        self._available = available
        self._bytes: list[float] = [0] * len(self._found)
        self._total_bytes = 0.0
        partitions = []
        for one in self._found:
            assert one.partition is not None
            partitions.append(one.partition)
        self._wait = DataWait(partitions, max_wait_ms, self._is_enough, self._go_on)
        if session is not None:
            session.parked = self
        self.answer.add_done_callback(self._is_answered)
        if with_records and any(map(self._is_enough, with_records)):
            self._wait.finish()

    def join(self, one: Wanted) -> None:
        partition = one.rests_at
        assert isinstance(partition, Partition)
        found = Found(one)
        found.partition = partition
        found.leader_epoch = partition.leader_epoch
        self._found.append(found)
        self._bytes.append(0)
        self._wait.join(partition)

    def finish(self) -> None:
        """It waits no longer, and will be answered."""
        self._wait.finish()
        self._leave()

    def _leave(self) -> None:
        if self._session is not None and self._session.parked is self:
            self._session.parked = None

    def _is_enough(self, number: int) -> bool:
        before, self._bytes[number] = self._bytes[number], self._available(self._found[number])
        self._total_bytes += self._bytes[number] - before
        return self._total_bytes >= self._min_bytes

    # Answering

    def _go_on(self) -> None:
        """It has waited long enough."""
        if self.answer.done():
            return  # nobody wants it any more
        self._leave()
        try:
            made = self._read_again()
        except Exception as error:
            self.answer.set_exception(error)
            return
        if isinstance(made, FetchResponse):
            self.answer.set_result(made)
        else:
            self._loading = pending(made)
            self._loading.add_done_callback(self._is_loaded)

    def _is_loaded(self, made: Pending[FetchResponse]) -> None:
        if self.answer.done():
            return
        if made.cancelled():
            self.answer.cancel()
        elif (error := made.exception()) is not None:
            self.answer.set_exception(cast("Exception", error))
        else:
            self.answer.set_result(made.result())

    def _is_answered(self, answer: Eventual[FetchResponse]) -> None:
        """If it was given up, nobody waits for anything any more."""
        if answer.cancelled():
            self.finish()
            if self._loading is not None:
                self._loading.cancel()
