"""Cutting a node off from addresses on purpose."""

import asyncio
from random import Random

import pytest

from quorate.net.client import ConnectionLost
from quorate.net.connections import Connections
from quorate.net.gate import Gate
from quorate.net.routes import Route, RouteTable
from quorate.net.server import Server
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse

BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
PATIENCE_MS = 60_000


async def served() -> Server:
    async def answer(_context: object, _header: object, _request: object) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=0)

    server = Server("PLAINTEXT", RouteTable([Route(HeartbeatRequest, answer)]))
    await server.start("127.0.0.1", 0)
    return server


async def test_a_cut_ends_connections_and_no_other_is_made_before_it_is_healed():
    gate, server = Gate(), await served()
    address = "127.0.0.1", server.port
    connections = Connections(rng=Random(1), gate=gate)
    try:
        await connections.request(address, BEAT, timeout_ms=PATIENCE_MS)
        gate.set_cut([address])
        with pytest.raises(ConnectionLost, match="not connected after"):
            await connections.request(address, BEAT, timeout_ms=50)
        waiting = asyncio.create_task(connections.request(address, BEAT, timeout_ms=PATIENCE_MS))
        while server.connections:
            await asyncio.sleep(0.001)
        assert not waiting.done()
        gate.set_cut([])
        assert (await waiting).error_code == 0
    finally:
        await connections.close()
        await server.close(timeout_ms=0)


async def test_what_is_not_cut_is_reached():
    gate, server = Gate(), await served()
    gate.set_cut([("127.0.0.1", 1)])
    connections = Connections(rng=Random(1), gate=gate)
    try:
        answer = await connections.request(("127.0.0.1", server.port), BEAT, timeout_ms=PATIENCE_MS)
        assert answer.error_code == 0
        assert not gate.may_connect(("127.0.0.1", 1))
    finally:
        await connections.close()
        await server.close(timeout_ms=0)
