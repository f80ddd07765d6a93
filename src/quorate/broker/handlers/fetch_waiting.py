"""A fetch that found too little: it waits at what it has looked at, and at all that rests in its session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from quorate.broker.fetch_sessions import FetchSession, Wanted
from quorate.broker.handlers.fetch_answers import Found
from quorate.broker.partition import Partition
from quorate.broker.waiting import DataWait

__all__ = ["ParkedFetch"]


class ParkedFetch:
    """Until there is enough, as far as `available` tells, or something has changed, or time is up.

    `with_records` are the places, in what was looked at, of those that had some: it has just been found out
    that all others have none.
    """

    __slots__ = ("_available", "_bytes", "_found", "_min_bytes", "_session", "_total_bytes", "_wait")

    def __init__(
        self,
        looked_at: Sequence[Found],
        with_records: Sequence[int],
        session: FetchSession | None,
        max_wait_ms: float,
        min_bytes: int,
        available: Callable[[Found], float],
    ) -> None:
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
        self._wait = DataWait(partitions, max_wait_ms, self._is_enough)
        if session is not None:
            session.parked = self
        if any(map(self._is_enough, with_records)):
            self._wait.finish()

    @property
    def done(self) -> asyncio.Future[None]:
        return self._wait.done

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
        """It waits no longer: also if it was given up."""
        self._wait.finish()
        if self._session is not None and self._session.parked is self:
            self._session.parked = None

    def _is_enough(self, number: int) -> bool:
        before, self._bytes[number] = self._bytes[number], self._available(self._found[number])
        self._total_bytes += self._bytes[number] - before
        return self._total_bytes >= self._min_bytes
