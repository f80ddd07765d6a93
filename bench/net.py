"""The server against a bare echo server: requests per second of the server's CPU time, on the same loop.

Both servers live in one forked process, which reports its own CPU time. The load comes from blocking sockets
in this process: they cost the servers the same.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import socket
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection

from bench.timing import Row
from quorate.net.routes import Route, RouteTable
from quorate.net.server import Server
from quorate.protocol import frame
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.api.produce_fetch import ProduceRequest, ProduceResponse

HOST = "127.0.0.1"
ROUNDS = 5
CLOSED_LOOP = 20  # connections with one request under way each
PIPELINED, DEPTH = 4, 32  # connections, and requests under way on each
MEGABYTE = 1 << 20


def section() -> list[Row]:
    loops = ["asyncio", *(["uvloop"] if find_spec("uvloop") else [])]
    return [row for loop in loops for row in against_echo(loop)]


def against_echo(loop: str) -> list[Row]:
    beat = HeartbeatRequest(group_id="orders-group", generation_id=12, member_id="consumer-1-" + "0" * 36)
    small = bytes(frame.encode_request(beat, 4, 7, "consumer-orders-1"))
    answer = len(frame.encode_response(HeartbeatResponse(error_code=0), 4, 7))
    large = bytes(frame.encode_request(_produce(bytes(MEGABYTE)), 9, 7, "producer"))
    large_answer = len(frame.encode_response(ProduceResponse(responses=[]), 9, 7))
    with _Servers(loop) as servers:
        closed = servers.compare(
            lambda port, is_echo: _Load(port, CLOSED_LOOP, small, len(small) if is_echo else answer), 400
        )
        tasks = servers.compare(
            lambda port, is_echo: _Load(port, CLOSED_LOOP, small, len(small) if is_echo else answer),
            400,
            servers.with_tasks,
        )
        pipelined = servers.compare(
            lambda port, is_echo: _Load(
                port, PIPELINED, small * DEPTH, DEPTH * (len(small) if is_echo else answer)
            ),
            250,
        )
        megabytes = servers.compare(
            lambda port, is_echo: _Load(port, 1, large, 1 if is_echo else large_answer),
            120,
            servers.served,
            servers.discard,
        )
    return [
        Row(f"{loop}: heartbeats in a closed loop, per CPU second: server / bare echo", closed, at_least=0.4),
        Row("  the same, with a handler that is a coroutine", tasks),
        Row(f"{loop}: heartbeats, {DEPTH} in flight, per CPU second: server / bare echo", pipelined),
        Row(f"{loop}: produce requests of 1 MB, CPU time: server / bare discard", 1 / megabytes, at_most=2),
    ]


def _produce(records: bytes) -> ProduceRequest:
    part = ProduceRequest.TopicProduceData
    partition = part.PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=1, timeout_ms=1, topic_data=[part(name="t", partition_data=[partition])])


class _Load:
    """Sends `data` on each connection, waits for the answers, and does it again."""

    def __init__(self, port: int, connections: int, data: bytes, answer_bytes: int) -> None:
        self._data = data
        self._answer_bytes = answer_bytes
        self._sockets = [socket.create_connection((HOST, port)) for _ in range(connections)]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, times: int) -> None:
        for _ in range(times):
            for one in self._sockets:
                one.sendall(self._data)
            for one in self._sockets:
                left = self._answer_bytes
                while left:
                    left -= len(one.recv(left))

    def close(self) -> None:
        for one in self._sockets:
            one.close()


class _Servers:
    """The servers in their process. Ports by what listens there."""

    def __init__(self, loop: str) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(loop, theirs))

    def __enter__(self) -> _Servers:
        self._process.start()
        self.echo, self.discard, self.served, self.with_tasks = self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send("end")
        self._process.join()

    def compare(
        self, load: Callable[[int, bool], _Load], times: int, port: int = 0, base_port: int = 0
    ) -> float:
        """Work per CPU second of a server over that of the base: the best round of each, in turns."""
        base, other = load(base_port or self.echo, True), load(port or self.served, False)
        best = [float("inf"), float("inf")]
        for side in (base, other):
            side.run(times // 10)
        for _ in range(ROUNDS):
            for index, side in enumerate((base, other)):
                started = self._cpu_seconds()
                side.run(times)
                best[index] = min(best[index], self._cpu_seconds() - started)
        base.close()
        other.close()
        return best[0] / best[1]

    def _cpu_seconds(self) -> float:
        self._pipe.send("cpu")
        return self._pipe.recv()


def _serve(loop: str, pipe: Connection) -> None:
    with asyncio.Runner(loop_factory=import_module(loop).new_event_loop) as runner:
        runner.run(_serve_until_told(pipe))


async def _serve_until_told(pipe: Connection) -> None:
    def heartbeat(*_: object) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=0)

    async def heartbeat_later(*_: object) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=0)

    def produce(*_: object) -> ProduceResponse:
        return ProduceResponse(responses=[])

    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    bare = [await loop.create_server(kind, HOST, 0) for kind in (_Echo, _Discard)]
    servers = []
    for handler in (heartbeat, heartbeat_later):
        table = RouteTable([Route(HeartbeatRequest, handler), Route(ProduceRequest, produce)])
        servers.append(Server("BENCH", table))
        await servers[-1].start(HOST, 0)

    def told() -> None:
        if pipe.recv() == "end":
            ended.set_result(None)
        else:
            pipe.send(time.process_time())

    loop.add_reader(pipe.fileno(), told)
    gc.collect()
    gc.freeze()
    pipe.send([one.sockets[0].getsockname()[1] for one in bare] + [one.port for one in servers])
    await ended
    loop.remove_reader(pipe.fileno())
    for one in bare:
        one.close()
    for server in servers:
        await server.close(timeout_ms=0)


class _Echo(asyncio.BufferedProtocol):
    """Says what it hears: what a loop costs without anything that we do."""

    buffer = memoryview(bytearray(256 * 1024))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


class _Discard(_Echo):
    """Answers a byte for every large request: what receiving costs without anything that we do."""

    received = 0
    expected = len(frame.encode_request(_produce(bytes(MEGABYTE)), 9, 7, "producer"))

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes
        if self.received == self.expected:
            self.received = 0
            self.transport.write(b"x")
