"""Whoever is told to be quiet is answered at once, and not listened to for as long. Over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager

from nodes import HOST, VERSION, RawPeer, beat, encoded, raw, wait_until

from quorate.net.limits import Limits
from quorate.net.routes import NO_RESPONSE, NoResponse, Route, RouteTable, throttle_time_ms
from quorate.net.server import Server
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse

LONG_MS = 600_000
SHORT_MS = 50


class Handler:
    """Answers heartbeats, and remembers when: each says what it is throttled for, by its generation."""

    def __init__(self) -> None:
        self.served: list[tuple[str, float]] = []

    def __call__(self, _context, _header, request: HeartbeatRequest):
        self.served.append((request.member_id, asyncio.get_running_loop().time()))
        if request.member_id == "unanswered":
            return NoResponse(request.generation_id) if request.generation_id else NO_RESPONSE
        return HeartbeatResponse(error_code=0, throttle_time_ms=request.generation_id)

    @property
    def members(self) -> list[str]:
        return [member for member, _ in self.served]


class Later(Handler):
    """Answers after a turn of the loop."""

    async def __call__(self, context, header, request):
        await asyncio.sleep(0)
        return super().__call__(context, header, request)


@asynccontextmanager
async def serving(handler, connection_delay_ms=None, **limits):
    server = Server(
        "TEST",
        RouteTable([Route(HeartbeatRequest, handler)]),
        limits=Limits(**limits),
        throttle_time_ms=throttle_time_ms,
        connection_delay_ms=connection_delay_ms,
    )
    await server.start(HOST, 0)
    try:
        yield server
    finally:
        await server.close(timeout_ms=0)
        assert server.connections == 0


def ask(peer: RawPeer, member: str, throttle_ms: int = 0, version: int = VERSION) -> None:
    peer.say(encoded(beat(throttle_ms, member), version, 1))


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_the_answer_comes_at_once_and_the_next_request_is_read_after_the_throttle():
    for handler in (Handler(), Later()):
        async with serving(handler) as server, raw(server) as peer, raw(server) as other:
            ask(peer, "first", SHORT_MS)
            ask(peer, "second")
            await peer.frame()
            ask(other, "other")
            await other.frame()
            assert handler.members == ["first", "other"], "only one connection is muted"
            await peer.frame()
            assert handler.members == ["first", "other", "second"]
            waited_s = handler.served[2][1] - handler.served[0][1]
            assert waited_s >= SHORT_MS / 1000 * 0.99


async def test_nothing_is_read_while_muted():
    handler = Handler()
    async with serving(handler) as server, raw(server) as peer:
        ask(peer, "first", LONG_MS)
        await peer.frame()
        received = server.counters.bytes_received
        ask(peer, "second")
        await turns()
        assert server.counters.bytes_received == received
        assert handler.members == ["first"]


async def test_what_was_read_together_waits():
    handler = Handler()
    async with serving(handler) as server, raw(server) as peer:
        peer.say(encoded(beat(LONG_MS, "first"), VERSION, 1) + encoded(beat(0, "second"), VERSION, 2))
        await peer.frame()
        await turns()
        assert handler.members == ["first"]


async def test_versions_that_cannot_say_it_are_muted_too():
    handler = Handler()
    async with serving(handler) as server, raw(server) as peer:
        ask(peer, "first", LONG_MS, version=0)
        frame = await peer.frame()
        assert len(frame) == 6, "a correlation id and an error: no time"
        ask(peer, "second", version=0)
        await turns()
        assert handler.members == ["first"]


async def test_requests_that_are_not_answered_are_muted_too():
    handler = Handler()
    async with serving(handler) as server, raw(server) as peer:
        ask(peer, "unanswered")
        ask(peer, "unanswered", LONG_MS)
        ask(peer, "last")
        await wait_until(lambda: len(handler.served) == 2)
        await turns()
        assert handler.members == ["unanswered", "unanswered"]


async def test_a_muted_connection_is_not_idle():
    handler = Handler()
    async with serving(handler, idle_ms_max=20) as server, raw(server) as peer, raw(server) as idle:
        ask(peer, "first", 300)
        ask(peer, "second")
        await peer.frame()
        assert await idle.reader.read() == b"", "the other one was idle"
        await peer.frame()
        assert handler.members == ["first", "second"]


async def test_a_peer_that_leaves_while_it_is_muted_is_forgotten_with_the_server():
    async with serving(Handler()) as server:
        async with raw(server) as peer:
            ask(peer, "first", LONG_MS)
            await peer.frame()
        await server.close(timeout_ms=0)
        assert server.connections == 0


async def test_a_server_that_closes_does_not_wait_for_the_muted():
    async with serving(Handler()) as server, raw(server) as peer:
        ask(peer, "first", LONG_MS)
        await peer.frame()
        await server.close(timeout_ms=LONG_MS)
        assert await peer.reader.read() == b""


async def test_a_connection_that_is_one_too_many_is_held_back_and_closed():
    handler, delays_ms = Handler(), [0, SHORT_MS]
    async with (
        serving(handler, lambda host: delays_ms.pop(0) if host == HOST else 0) as server,
        raw(server) as welcome,
        raw(server) as surplus,
    ):
        ask(welcome, "welcome")
        await welcome.frame()
        ask(surplus, "surplus")
        with contextlib.suppress(ConnectionResetError):  # what it said was not read
            assert await surplus.reader.read() == b""
        assert handler.members == ["welcome"]
        assert server.counters.connections_held_back == 1


async def test_a_server_without_throttles_mutes_nobody():
    handler = Handler()
    server = Server("TEST", RouteTable([Route(HeartbeatRequest, handler)]))
    await server.start(HOST, 0)
    async with raw(server) as peer:
        ask(peer, "first", LONG_MS)
        ask(peer, "second")
        await peer.frame()
        await peer.frame()
    await server.close(timeout_ms=0)
