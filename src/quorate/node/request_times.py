"""How many requests there were, and how long they took, by kind: what stands around the handlers of a table.

Times are those of Kafka, as far as there is such a thing here:

    queue    the request had arrived and waited for its turn, behind others of its connection
    local    its handler was at work
    remote   it waited for something else: a commit, data, the controller
    total    from its arrival until there was an answer; sending that is not in it

Most requests are answered at once. For them this is one count, two looks at the clock and one more count:
what is known of them (local is total, the others are zero) is put together when somebody asks. The times of
others are only noted, and counted many at a time.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from quorate.net.eventual import Eventual, Pending, pending
from quorate.net.routes import (
    Again,
    Answer,
    FindAgain,
    Handler,
    NoResponse,
    RequestContext,
    RouteTable,
    Series,
)
from quorate.net.shortcuts import Said, Shortcut, Undecoded
from quorate.protocol.api import request_class
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Buffer

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["BOUNDS_MS", "Durations", "Note", "RequestMeters", "RequestTimes", "Settle"]

BOUNDS_MS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)

UNCOUNTED_MAX: Final = 1000  # times of one kind that are only noted
_BOUNDS: Final = np.array(BOUNDS_MS)
_SHORT_MS: Final = BOUNDS_MS[0]

_NETWORK: Final = "kafka_network_requestmetrics_"

# Is told of a request that was answered, with its answer.
Note = Callable[[RequestHeader, Any, Any], None]
# The same, with who asked and for how long the handler was at work: before the answer leaves, so that it can
# still say what follows from that.
Settle = Callable[[RequestContext, RequestHeader, Any, Any, float], None]


class Durations:
    """How often something took how long."""

    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.total_ms = 0.0

    def observe(self, duration_ms: float, times: int = 1) -> None:
        at = 0 if duration_ms <= _SHORT_MS else bisect_left(BOUNDS_MS, duration_ms)
        self.counts[at] += times
        self.total_ms += duration_ms * times

    def observe_all(self, durations_ms: NDArray[np.float64]) -> None:
        found = np.searchsorted(_BOUNDS, durations_ms)
        for at, times in enumerate(np.bincount(found, minlength=len(self.counts)).tolist()):
            self.counts[at] += times
        self.total_ms += float(durations_ms.sum())

    def buckets(self) -> list[tuple[str, float]]:
        """For each bound, how often it took no longer; the last one is all."""
        found, total = [], 0
        for bound, count in zip((*map(str, BOUNDS_MS), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found

    def plus(self, other: Durations) -> Durations:
        """Both together."""
        both = Durations()
        both.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        both.total_ms = self.total_ms + other.total_ms
        return both

    def plus_zeros(self, count: int) -> Durations:
        """The same, and that many that took no time."""
        both = self.plus(Durations())
        both.counts[0] += count
        return both


class RequestTimes:
    """The times of one kind of request."""

    __slots__ = ("_uncounted", "at_once", "local", "queue", "remote", "total", "waited_ms")

    def __init__(self) -> None:
        self.at_once = Durations()  # answered at once, and by nothing held up before
        # Of all others:
        self.queue = Durations()
        self.local = Durations()
        self.remote = Durations()
        self.total = Durations()
        # How long the request waited that is about to be handled: a connection says so before it calls.
        self.waited_ms = 0.0
        self._uncounted: list[tuple[float, float, float]] = []

    def observe(self, queue_ms: float, local_ms: float, remote_ms: float) -> None:
        self._uncounted.append((queue_ms, local_ms, remote_ms))
        if len(self._uncounted) >= UNCOUNTED_MAX:
            self._count()

    def _count(self) -> None:
        if self._uncounted:
            noted = np.array(self._uncounted)
            self._uncounted.clear()
            for durations, column in zip((self.queue, self.local, self.remote), noted.T, strict=True):
                durations.observe_all(column)
            self.total.observe_all(noted.sum(axis=1))

    @property
    def is_seen(self) -> bool:
        """Whether there was any request of the kind."""
        return any(self.at_once.counts) or any(self.total.counts) or bool(self._uncounted)

    def by_name(self) -> Iterator[tuple[str, Durations]]:
        self._count()
        at_once = sum(self.at_once.counts)
        yield "totaltimems", self.total.plus(self.at_once)
        yield "requestqueuetimems", self.queue.plus_zeros(at_once)
        yield "localtimems", self.local.plus(self.at_once)
        yield "remotetimems", self.remote.plus_zeros(at_once)


_Answered = tuple[Note, RequestHeader, Any, Any]


class _Count:
    """Of requests of one kind in one version."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests = 0


class RequestMeters:
    """`measure` puts meters around the handlers of a table. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self.counts: dict[tuple[type[Request], int], _Count] = {}
        self.times: dict[type[Request], RequestTimes] = {}
        self._by_route_id: dict[int, RequestTimes] = {}
        # What was answered at once, and is noted when the answers have left.
        self._answered: list[_Answered] = []

    def measure(
        self,
        table: RouteTable,
        notes: Mapping[type[Request], Note] | None = None,
        settle: Settle | None = None,
    ) -> None:
        """`notes` are told of the requests of their kinds, `settle` of all. Whoever calls the handlers has to
        call `catch_up` as well."""
        clock = asyncio.get_running_loop().time if self._clock is None else self._clock
        for at, (handler, response_cls) in table.by_route_id.items():
            cls, version = request_class(at >> 16), at & 0xFFFF
            count = self.counts.setdefault((cls, version), _Count())
            times = self.times.setdefault(cls, RequestTimes())
            self._by_route_id[at] = times
            note = (notes or {}).get(cls)
            measured = _measured(
                handler, response_cls, count, times, clock, note, settle, self._answered.append
            )
            table.by_route_id[at] = measured, response_cls
            if at in table.series:
                table.series[at] = _measured_series(table.series[at], count, times, clock, note, settle)
            if at in table.again:
                table.again[at] = _counted_again(table.again[at], count, times)
            if at in table.shortcuts:
                table.shortcuts[at] = partial(
                    _MeasuredShortcut, table.shortcuts[at], count, times, clock, note
                )

    def queued(self, route_id: int, waited_ms: float) -> None:
        """A request that waited for its turn is going to be handled next."""
        times = self._by_route_id.get(route_id)
        if times is not None:
            times.waited_ms = waited_ms

    def catch_up(self) -> None:
        """Tells of what was answered at once since the last time."""
        if self._answered:
            answered = self._answered[:]
            self._answered.clear()
            for note, header, request, answer in answered:
                note(header, request, answer)

    # Asking

    def counted(self) -> Iterator[tuple[dict[str, str], int]]:
        """The labels of each count."""
        for (cls, version), count in sorted(
            self.counts.items(), key=lambda one: (_name(one[0][0]), one[0][1])
        ):
            if count.requests:
                yield {"request": _name(cls), "version": str(version)}, count.requests

    def collect(self) -> Iterator[Metric]:
        """The times; counts are in `counted`."""
        from prometheus_client.metrics_core import HistogramMetricFamily

        kinds = sorted(self.times.items(), key=lambda one: _name(one[0]))
        seen = [(_name(cls), dict(times.by_name())) for cls, times in kinds if times.is_seen]
        for name, about in _ABOUT.items():
            family = HistogramMetricFamily(_NETWORK + name, about, labels=["request"])
            for kind, durations in seen:
                found = durations[name]
                family.add_metric([kind], buckets=found.buckets(), sum_value=found.total_ms)
            yield family


_ABOUT: Final = {
    "totaltimems": "From the arrival of a request until there was an answer.",
    "requestqueuetimems": "How long requests waited behind others of their connection.",
    "localtimems": "How long their handlers were at work.",
    "remotetimems": "How long they waited for something else.",
}


def _measured(
    handler: Handler,
    response_cls: type[Response],
    count: _Count,
    times: RequestTimes,
    clock: Callable[[], float],
    note: Note | None,
    settle: Settle | None,
    note_later: Callable[[_Answered], None],
) -> Handler:
    at_once = times.at_once
    at_once_counts = at_once.counts

    def handle(context: RequestContext, header: RequestHeader, request: Any) -> Any:
        count.requests += 1
        waited_ms = times.waited_ms
        begun = clock()
        answer = handler(context, header, request)
        local_ms = (clock() - begun) * 1000
        if answer.__class__ is response_cls or isinstance(answer, (Response, NoResponse)):
            if waited_ms:
                times.waited_ms = 0.0
                times.observe(waited_ms, local_ms, 0.0)
            elif local_ms <= _SHORT_MS:  # `observe`, without a search
                at_once_counts[0] += 1
                at_once.total_ms += local_ms
            else:
                at_once.observe(local_ms)
            if settle is not None:
                settle(context, header, request, answer, local_ms)
            if note is not None:
                note_later((note, header, request, answer))
            return answer
        times.waited_ms = 0.0
        running: Pending[Answer] = answer if isinstance(answer, Eventual) else pending(answer)
        # Before the connection hears of it, which has yet to ask.
        running.add_done_callback(partial(answered, context, header, request, waited_ms, local_ms, clock()))
        return running

    def answered(
        context: RequestContext,
        header: RequestHeader,
        request: Any,
        waited_ms: float,
        local_ms: float,
        parked: float,
        running: Pending[Answer],
    ) -> None:
        """Something that was waited for is there; unless it was given up, or has failed."""
        if isinstance(running, Eventual):
            answer = running.value
        elif running.cancelled() or running.exception() is not None:
            return
        else:
            answer = running.result()
        if answer is None:
            return
        times.observe(waited_ms, local_ms, (clock() - parked) * 1000)
        if note is not None:
            note(header, request, answer)
        if settle is not None:
            settle(context, header, request, answer, local_ms)

    return handle


def _measured_series(
    series: Series,
    count: _Count,
    times: RequestTimes,
    clock: Callable[[], float],
    note: Note | None,
    settle: Settle | None,
) -> Series:
    """All of a series took as long as each other, and have waited as long as the first."""

    def answer(context: RequestContext, requests: Sequence[tuple[RequestHeader, Any]]) -> Sequence[Response]:
        number = len(requests)
        count.requests += number
        waited_ms, times.waited_ms = times.waited_ms, 0.0
        begun = clock()
        answers = series.answer(context, requests)
        local_ms = (clock() - begun) * 1000 / number
        if waited_ms:
            for _ in requests:
                times.observe(waited_ms, local_ms, 0.0)
        else:
            times.at_once.observe(local_ms, number)
        for (header, request), one in zip(requests, answers, strict=True):
            if note is not None:
                note(header, request, one)
            if settle is not None:
                settle(context, header, request, one, local_ms)
        return answers

    return Series(series.takes, answer)


def _counted_again(find_again: FindAgain, count: _Count, times: RequestTimes) -> FindAgain:
    """What is answered as before takes less time than can be told. It is not settled, and nobody takes note
    of it."""
    at_once_counts = times.at_once.counts

    def find(context: RequestContext, header: RequestHeader, request: Any, answer: Response) -> Again | None:
        again = find_again(context, header, request, answer)
        if again is None:
            return None

        def counted() -> bool:
            if not again():
                return False
            count.requests += 1
            if times.waited_ms:
                times.observe(times.waited_ms, 0.0, 0.0)
                times.waited_ms = 0.0
            else:
                at_once_counts[0] += 1
            return True

        return counted

    return find


class _MeasuredShortcut:
    """What it answers at once has taken as long for each, and has waited as long as the first; who does that
    counts for himself what a note would. Nothing is settled: shortcuts are not taken where there are
    quotas."""

    __slots__ = ("_at_once", "_clock", "_count", "_note", "_shortcut", "_times", "learn")

    def __init__(
        self,
        make: Callable[[], Shortcut],
        count: _Count,
        times: RequestTimes,
        clock: Callable[[], float],
        note: Note | None,
    ) -> None:
        self._note = note
        self._shortcut = make()
        self._count = count
        self._times = times
        self._at_once = times.at_once
        self._clock = clock
        self.learn = self._shortcut.learn

    def serve(self, context: RequestContext, frames: Sequence[Undecoded]) -> Sequence[Buffer] | Said | None:
        times, clock = self._times, self._clock
        begun = clock()
        said = self._shortcut.serve(context, frames)
        if said is None:
            return None
        ended = clock()
        took_ms = (ended - begun) * 1000
        if not times.waited_ms and took_ms <= _SHORT_MS and said.__class__ is tuple and len(said) == 1:
            self._count.requests += 1
            self._at_once.counts[0] += 1  # `observe`, without a search
            self._at_once.total_ms += took_ms
            return said
        waited_ms, times.waited_ms = times.waited_ms, 0.0
        if isinstance(said, Said):
            self._count.requests += 1
            return self._taken(said, waited_ms, took_ms, ended)
        number = len(said)
        self._count.requests += number
        local_ms = took_ms / number
        if waited_ms:
            for _ in said:
                times.observe(waited_ms, local_ms, 0.0)
        else:
            times.at_once.observe(local_ms, number)
        return said

    def _taken(self, said: Said, waited_ms: float, local_ms: float, ended: float) -> Said:
        """What was said at a time. The answer may have to be waited for."""
        if isinstance(said.answer, (Response, NoResponse)):
            self._times.observe(waited_ms, local_ms, 0.0)
            if self._note is not None:
                self._note(said.header, None, said.answer)
            return said
        running: Pending[Answer] = pending(said.answer)
        running.add_done_callback(partial(self._answered, said.header, waited_ms, local_ms, ended))
        return Said(said.header, cast("Awaitable[Answer]", running), said.usual)

    def _answered(
        self,
        header: RequestHeader,
        waited_ms: float,
        local_ms: float,
        parked: float,
        running: Pending[Answer],
    ) -> None:
        if not running.cancelled() and running.exception() is None:
            self._times.observe(waited_ms, local_ms, (self._clock() - parked) * 1000)
            if self._note is not None:
                self._note(header, None, running.result())


def _name(cls: type[Request]) -> str:
    return cls.__name__.removesuffix("Request")
