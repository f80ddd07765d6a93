"""A server to talk to, a raw peer that says whatever it likes, and messages to exchange."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from quorate.net.admitted import Admitted
from quorate.net.client import Connection
from quorate.net.limits import Limits
from quorate.net.routes import Features, Route, RouteTable
from quorate.net.server import Server
from quorate.protocol import frame
from quorate.protocol.api.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from quorate.protocol.message import Request, Response

HOST = "127.0.0.1"
VERSION = 4  # of Heartbeat


def beat(generation: int = 0, member: str = "m") -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)


def answer_beat(_context, _header, request: HeartbeatRequest) -> HeartbeatResponse:
    """Answers with the generation as throttle time, so that a test can tell answers apart."""
    return HeartbeatResponse(error_code=0, throttle_time_ms=request.generation_id)


# A request of some size whose answer is larger: what a peer sends that does not read.
LARGE_REQUEST = SyncGroupRequest(
    group_id="x" * 20_000,
    generation_id=1,
    member_id="m",
    protocol_type="p",
    protocol_name="n",
    assignments=[],
)
LARGE_ANSWER = SyncGroupResponse(error_code=0, protocol_name="p", assignment=bytes(50_000))
LARGE_VERSION = 5


async def wait_until(condition: Callable[[], object]) -> None:
    """Gives the loop turns until something is so. The deadline of the test is the deadline."""
    while not condition():
        await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(
    *routes: Route,
    features: Features | None = None,
    logger: logging.Logger | None = None,
    port: int = 0,
    admitted: Admitted | None = None,
    connection_turn_ms: Callable[[str], float | None] | None = None,
    **limits: int,
) -> AsyncIterator[Server]:
    """A server with these routes, Heartbeat if there are none, and these limits."""
    table = RouteTable(routes or [Route(HeartbeatRequest, answer_beat)], features)
    server = Server(
        "TEST",
        table,
        limits=Limits(**limits),
        logger=logger,
        admitted=admitted,
        connection_turn_ms=connection_turn_ms,
    )
    await server.start(HOST, port)
    try:
        yield server
    finally:
        await server.close(timeout_ms=0)
        assert server.connections == 0


@asynccontextmanager
async def connected(server: Server, **limits: int) -> AsyncIterator[Connection]:
    connection = await Connection.connect(HOST, server.port, timeout_ms=10_000, limits=Limits(**limits))
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def raw(server: Server) -> AsyncIterator[RawPeer]:
    reader, writer = await asyncio.open_connection(HOST, server.port)
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()


class RawPeer:
    """Says bytes to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, request: Request, version: int, correlation_id: int) -> None:
        self.say(encoded(request, version, correlation_id))

    def ask_beats(self, generations: range) -> None:
        self.say(b"".join(encoded(beat(generation), VERSION, generation) for generation in generations))

    def ask_much_and_not_read(self, count: int) -> None:
        """Asks for more than sockets can hold, and stops reading soon."""
        self.reader._limit = 1000
        self.writer.transport.set_write_buffer_limits(high=1 << 30)
        self.say(encoded(LARGE_REQUEST, LARGE_VERSION, 1) * count)

    def read_again(self) -> None:
        self.reader._limit = 1 << 20

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def response(self, key: int, version: int) -> tuple[int, Response]:
        """The next response, and its correlation id."""
        header, response = frame.decode_response(key, version, await self.frame())
        return header.correlation_id, response

    async def beats(self, count: int) -> list[tuple[int, int]]:
        """Correlation id and generation of that many answers to heartbeats."""
        answers = [await self.response(HeartbeatRequest.__key__, VERSION) for _ in range(count)]
        return [(correlation_id, answer.throttle_time_ms) for correlation_id, answer in answers]

    def reset(self) -> None:
        """Ends the connection with a reset, which is noticed where an orderly end would wait for answers."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    async def is_closed(self) -> bool:
        """Waits for the end, and says whether nothing came before it."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


def encoded(request: Request, version: int, correlation_id: int, client_id: str | None = "raw") -> bytes:
    return bytes(frame.encode_request(request, version, correlation_id, client_id))


class Parked:
    """A handler that answers a heartbeat when the test says so."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.cancelled: list[int] = []
        self._may_answer: dict[int, asyncio.Event] = {}

    def release(self, generation: int) -> None:
        self._event(generation).set()

    async def is_asked(self, generation: int) -> None:
        await wait_until(lambda: generation in self.calls)

    def route(self) -> Route:
        return Route(HeartbeatRequest, self.handle)

    async def handle(self, context, header, request: HeartbeatRequest) -> HeartbeatResponse:
        self.calls.append(request.generation_id)
        try:
            await self._event(request.generation_id).wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.generation_id)
            raise
        return answer_beat(context, header, request)

    def _event(self, generation: int) -> asyncio.Event:
        return self._may_answer.setdefault(generation, asyncio.Event())
