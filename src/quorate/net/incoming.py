"""The requests of one connection that have arrived and were not looked at, and whether more are read.

While too much of what the peer sent waits nothing is read from it, and it notices by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Final

from quorate.net.framing import Frame, FrameReader
from quorate.net.routes import NoRoomError, Series
from quorate.net.shortcuts import Undecoded
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.frame import read_request
from quorate.protocol.message import Request

if TYPE_CHECKING:
    from quorate.net.server import Server

__all__ = ["Incoming"]

_ROUTE_ID: Final = Struct(">I")


class Incoming:
    """`waiting` are whole requests; what there is of the next one is with the `reader`."""

    __slots__ = ("_budget", "_limits", "_queued_at", "_transport", "is_reading", "reader", "waiting")

    def __init__(self, server: Server) -> None:
        limits = server.limits
        self._limits = limits
        self._budget = server.budget
        self._transport: asyncio.Transport | None = None
        self.reader = FrameReader(
            server.scratch, limits.request_bytes_max, limits.frame_bytes_at_once, server.budget, server.spares
        )
        self.waiting: deque[Frame] = deque()
        self._queued_at: deque[float] = deque()  # when those of them arrived that could not be served at once
        self.is_reading = True

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def close(self) -> None:
        """Nobody is there any more."""
        self._transport = None
        self.waiting.clear()
        self.reader.drop()

    @property
    def held_bytes(self) -> int:
        """The memory of all of it."""
        return self.reader.held_bytes + self._waiting_bytes()

    def _waiting_bytes(self) -> int:
        return sum(end - begin for _, begin, end in self.waiting)

    # How long they wait

    @property
    def has_queued(self) -> bool:
        """Whether the next one could not be served when it came."""
        return bool(self._queued_at)

    def note_queued(self, now: float) -> None:
        """What is waiting now has to wait."""
        while len(self._queued_at) < len(self.waiting):
            self._queued_at.append(now)

    def queued_since(self) -> float:
        """When the next one came, which is going to be served."""
        return self._queued_at.popleft()

    def put_back(self, frame: Frame, now: float) -> None:
        """The next one cannot be served yet."""
        self.waiting.appendleft(frame)
        self._queued_at.appendleft(now)

    # Those of one kind, which are cheaper to serve together

    def alike(self, route_id: int, frame: Undecoded) -> list[Undecoded]:
        """A request, and those of its kind that wait right behind it."""
        found = [frame]
        if not self._budget.is_over:
            for other in islice(self.waiting, self._limits.requests_per_turn_max - 1):
                if not _is_of(route_id, other):
                    break
                found.append(other)
        return found

    def gathered(
        self, route_id: int, series: Series, header: RequestHeader, request: Request
    ) -> list[tuple[RequestHeader, Request]]:
        """A request, and those waiting behind it that can be answered together with it, which do not wait any
        more. What is wrong with another one, or that it is large, is found when its own turn comes."""
        found = [(header, request)]
        waiting, client_id, takes = self.waiting, header.client_id, series.takes
        if not takes(header, request) or self._budget.is_over:
            return found
        while waiting and len(found) < self._limits.requests_per_turn_max and _is_of(route_id, waiting[0]):
            try:
                header, request = read_request(route_id, *waiting[0], _nothing)
            except Exception:
                break
            if header.client_id != client_id or not takes(header, request):
                break
            found.append((header, request))
            self.drop(1)
        return found

    def drop(self, number: int) -> None:
        """So many of those that waited have been served."""
        for _ in range(number):
            self.waiting.popleft()
            if self._queued_at:
                self._queued_at.popleft()

    # Reading

    def pause(self) -> None:
        """Reads nothing for now."""
        if self.is_reading and self._transport is not None and not self._transport.is_closing():
            self.is_reading = False
            self._transport.pause_reading()

    def regulate(self, *, is_held_up: bool) -> None:
        """Stops reading when too much is waiting, and goes on when half of that is left; unless something
        else holds it up."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        limits = self._limits
        requests = len(self.waiting)
        request_bytes = self._waiting_bytes()
        reader = self.reader
        is_held_up = is_held_up or reader.refusal is not None or reader.is_full
        is_held_up = is_held_up or (self._budget.is_short and requests > 0)
        if self.is_reading:
            if (
                is_held_up
                or requests >= limits.requests_in_flight_max
                or request_bytes >= limits.request_bytes_in_flight_max
            ):
                self.is_reading = False
                transport.pause_reading()
        elif (
            not is_held_up
            and requests <= limits.requests_in_flight_max // 2
            and request_bytes <= limits.request_bytes_in_flight_max // 2
        ):
            self.is_reading = True
            transport.resume_reading()


def _nothing(asked_bytes: int, _allowed_bytes: int) -> int:
    raise NoRoomError(asked_bytes)


def _is_of(route_id: int, frame: Frame) -> bool:
    buffer, begin, end = frame
    return end - begin >= _ROUTE_ID.size and _ROUTE_ID.unpack_from(buffer, begin)[0] == route_id
