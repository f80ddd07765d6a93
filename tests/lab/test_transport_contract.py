"""What asyncio's transports do, in stdlib, in uvloop if it is there, and in the simulator.

These scenarios are what "the simulator is honest" means. Each runs in every kind of loop, in the simulator
with several seeds, which split and join segments differently.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from running import run_process

from quorate.lab.world import World

Scenario = Callable[[], Coroutine[Any, Any, None]]
Runner = Callable[[Scenario], None]

BIG = bytes(range(256)) * 65536  # more than all buffers between two processes together


def in_stdlib(scenario: Scenario) -> None:
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(scenario())


def in_uvloop(scenario: Scenario) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def in_simulator(seed: int, *, like_uvloop: bool) -> Runner:
    def run(scenario: Scenario) -> None:
        with World(seed, like_uvloop=like_uvloop) as world:
            run_process(world, "n1", lambda _: scenario())

    return run


RUNNERS: dict[str, Runner] = {
    "stdlib": in_stdlib,
    **{f"simulator-{seed}": in_simulator(seed, like_uvloop=False) for seed in range(4)},
    **{f"uvloop-like-simulator-{seed}": in_simulator(seed, like_uvloop=True) for seed in range(2)},
}
if importlib.util.find_spec("uvloop"):
    RUNNERS["uvloop"] = in_uvloop


class Recorder(asyncio.Protocol):
    """Remembers what happened to it; subclasses say what it does then."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.received = bytearray()
        self.transport: Any = None
        self.lost: list[BaseException | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        if not self.received:
            self.events.append("data")
        self.received += data

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else f"lost {type(exc).__name__}")
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Patient(Recorder):
    """Keeps its side open when the other one has ended."""

    def eof_received(self) -> bool | None:
        super().eof_received()
        return True


class Deaf(Recorder):
    """Stops reading at the first data."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.lost and len(self.received) == len(data):
            self.transport.pause_reading()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def settle() -> None:
    """Long enough for everything that is going to happen: to see that something does not."""
    await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def connected(
    client_factory: Callable[[], Any] = Recorder, server_factory: Callable[[], Any] = Recorder
) -> AsyncIterator[tuple[Any, Any]]:
    """A client and the server's end of its connection."""
    accepted: list[Any] = []

    def accept() -> Any:
        accepted.append(server_factory())
        return accepted[-1]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(accept, "127.0.0.1", 0)
    _, client = await loop.create_connection(client_factory, "127.0.0.1", server.sockets[0].getsockname()[1])
    await until(lambda: accepted and accepted[0].transport is not None)
    try:
        yield client, accepted[0]
    finally:
        server.close()
        await server.wait_closed()
        for end in (client, accepted[0]):
            if not end.lost:
                end.transport.abort()
                await until(lambda end=end: end.lost)


async def everything_arrives_in_order() -> None:
    async with connected() as (client, server):
        expected = b""
        for number in range(200):
            message = b"%d " % number * (number % 7)
            expected += message
            client.transport.write(message)
            if number % 20 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(server.received) == len(expected))
        assert server.received == expected


async def close_flushes_first() -> None:
    async with connected() as (client, server):
        client.transport.write(b"last words")
        client.transport.close()
        assert client.transport.is_closing()
        assert client.events == ["made"], "connection_lost comes later, never inside close()"
        await until(lambda: client.lost and server.lost)
        assert server.received == b"last words"
        assert server.events == ["made", "data", "eof", "lost"]
        assert client.events == ["made", "lost"]


async def close_flushes_a_big_backlog() -> None:
    async with connected() as (client, server):
        client.transport.write(BIG)
        client.transport.close()
        assert client.transport.get_write_buffer_size() > 0
        await until(lambda: client.lost and server.lost)
        assert server.received == BIG
        assert [event for event in client.events if event != "resume"] == ["made", "pause", "lost"]


async def closing_twice_is_harmless() -> None:
    async with connected() as (client, _server):
        client.transport.close()
        client.transport.close()
        client.transport.abort()
        await until(lambda: client.lost)
        await settle()
        assert client.lost == [None]


async def abort_is_a_clean_end_for_the_peer() -> None:
    async with connected() as (client, server):
        client.transport.write(b"half a fra")
        client.transport.abort()
        assert client.events == ["made"], "connection_lost comes later, never inside abort()"
        await until(lambda: client.lost and server.lost)
        assert server.received == b"half a fra"
        assert server.lost == [None]
        assert client.lost == [None]


async def abort_drops_the_backlog() -> None:
    async with connected() as (client, server):
        client.transport.write(BIG)
        client.transport.abort()
        await until(lambda: client.lost and server.lost)
        assert len(server.received) < len(BIG)


async def abort_with_unread_data_resets_the_peer() -> None:
    async with connected(server_factory=Deaf) as (client, server):
        client.transport.write(b"a")
        await until(lambda: server.received)
        client.transport.write(b"b")
        await settle()
        server.transport.abort()
        await until(lambda: client.lost and server.lost)
        assert isinstance(client.lost[0], ConnectionResetError)
        assert server.lost == [None]


async def half_close_leaves_the_other_direction_open() -> None:
    async with connected(server_factory=Patient) as (client, server):
        client.transport.write(b"question")
        client.transport.write_eof()
        await until(lambda: "eof" in server.events)
        server.transport.write(b"answer")
        await until(lambda: client.received == b"answer")
        assert not client.lost
        assert not server.lost
        server.transport.close()
        await until(lambda: client.lost and server.lost)
        assert client.events == ["made", "data", "eof", "lost"]


async def no_write_after_write_eof() -> None:
    async with connected(server_factory=Patient) as (client, _server):
        client.transport.write_eof()
        with pytest.raises(RuntimeError):
            client.transport.write(b"too late")


async def eof_closes_unless_it_is_refused() -> None:
    async with connected() as (client, server):
        client.transport.write_eof()
        await until(lambda: client.lost and server.lost)
        assert server.events == ["made", "eof", "lost"]
        assert client.events == ["made", "eof", "lost"]


async def writing_is_paused_inside_write_and_resumed_later() -> None:
    async with connected(server_factory=Deaf) as (client, server):
        client.transport.set_write_buffer_limits(high=100_000, low=20_000)
        client.transport.write(b"first")
        await until(lambda: server.received)
        assert client.events == ["made"]
        client.transport.write(BIG)
        assert client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() > 100_000
        await settle()
        assert client.events == ["made", "pause"], "nobody reads"
        server.transport.resume_reading()
        await until(lambda: len(server.received) == 5 + len(BIG))
        await until(lambda: client.events == ["made", "pause", "resume"])
        assert client.transport.get_write_buffer_size() <= 20_000


async def limits_must_make_sense() -> None:
    async with connected() as (client, _server):
        with pytest.raises(ValueError, match="high"):
            client.transport.set_write_buffer_limits(high=1, low=2)
        client.transport.set_write_buffer_limits(high=8)
        assert client.transport.get_write_buffer_limits() == (2, 8)


async def paused_reading_sees_neither_data_nor_end() -> None:
    async with connected(server_factory=Deaf) as (client, server):
        client.transport.write(b"a")
        await until(lambda: server.received)
        client.transport.write(b"b")
        client.transport.close()
        await settle()
        assert server.received == b"a"
        assert server.events == ["made", "data"]
        server.transport.resume_reading()
        await until(lambda: server.lost)
        assert server.received == b"ab"
        assert server.events == ["made", "data", "eof", "lost"]


async def paused_reading_does_not_see_a_reset() -> None:
    async with connected(client_factory=Deaf, server_factory=Deaf) as (client, server):
        client.transport.write(b"a")
        server.transport.write(b"a")
        await until(lambda: server.received and client.received)
        client.transport.write(b"unread")
        await settle()
        server.transport.abort()
        await until(lambda: server.lost)
        await settle()
        assert not client.lost
        client.transport.resume_reading()
        await until(lambda: client.lost)
        assert isinstance(client.lost[0], ConnectionResetError)


async def a_writer_that_waits_sees_a_reset_although_reading_is_paused() -> None:
    async with connected(client_factory=Deaf, server_factory=Deaf) as (client, server):
        client.transport.write(b"a")
        server.transport.write(b"a")
        await until(lambda: server.received and client.received)
        client.transport.write(BIG)
        await settle()
        server.transport.abort()
        await until(lambda: client.lost)
        assert isinstance(client.lost[0], ConnectionResetError)


async def after_a_refused_end_only_writing_finds_the_reset() -> None:
    async with connected(client_factory=Patient) as (client, server):
        server.transport.close()
        await until(lambda: server.lost and "eof" in client.events)
        client.transport.write(b"into the void")
        await settle()
        assert not client.lost, "nobody polls a socket whose input has ended"
        client.transport.write(b"again")
        await until(lambda: client.lost)
        assert isinstance(client.lost[0], BrokenPipeError)


async def what_is_written_while_closing_is_ignored() -> None:
    async with connected() as (client, server):
        client.transport.close()
        client.transport.write(b"nobody gets this")
        await until(lambda: server.lost)
        assert not server.received


async def an_exception_in_data_received_ends_the_connection() -> None:
    class Failing(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError(data)

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with connected(server_factory=Failing) as (client, server):
        client.transport.write(b"a")
        await until(lambda: client.lost and server.lost)
        assert isinstance(server.lost[0], ZeroDivisionError)
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]


async def an_exception_in_eof_received_ends_the_connection() -> None:
    class Failing(Recorder):
        def eof_received(self) -> bool | None:
            raise ZeroDivisionError

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with connected(server_factory=Failing) as (client, server):
        client.transport.write_eof()
        await until(lambda: client.lost and server.lost)
        assert isinstance(server.lost[0], ZeroDivisionError)
        assert len(reported) == 1


async def only_bytes_can_be_written() -> None:
    async with connected() as (client, server):
        with pytest.raises(TypeError):
            client.transport.write("text")
        client.transport.write(b"")
        client.transport.write(bytearray(b"a"))
        client.transport.write(memoryview(b"bc")[1:])
        client.transport.writelines([b"d", bytearray(b"e")])
        await until(lambda: len(server.received) == 4)
        assert server.received == b"acde"


class Buffered(asyncio.BufferedProtocol):
    """Reads into a buffer of its own."""

    buffer_bytes = 100

    def __init__(self) -> None:
        self.received = bytearray()
        self.events: list[str] = []
        self.lost: list[BaseException | None] = []
        self.transport: Any = None
        self._buffer = bytearray(self.buffer_bytes)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= self.buffer_bytes
        self.received += self._buffer[:nbytes]

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


async def a_buffered_protocol_gets_everything() -> None:
    async with connected(server_factory=Buffered) as (client, server):
        data = BIG[:30_000]
        client.transport.write(data)
        client.transport.close()
        await until(lambda: server.lost)
        assert server.received == data
        assert server.events == ["eof"]


async def a_buffered_protocol_may_pause() -> None:
    class Pausing(Buffered):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    async with connected(server_factory=Pausing) as (client, server):
        client.transport.write(b"x" * 250)
        await until(lambda: server.received)
        await settle()
        assert len(server.received) <= 100
        while len(server.received) < 250:
            before = len(server.received)
            server.transport.resume_reading()
            await until(lambda before=before: len(server.received) > before)


async def an_empty_buffer_ends_the_connection() -> None:
    class Empty(Buffered):
        buffer_bytes = 0

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with connected(server_factory=Empty) as (client, server):
        client.transport.write(b"a")
        await until(lambda: server.lost)
        assert isinstance(server.lost[0], RuntimeError)


async def a_protocol_can_be_exchanged() -> None:
    async with connected() as (client, server):
        other = Recorder()
        client.transport.write(b"a")
        await until(lambda: server.received)
        server.transport.set_protocol(other)
        assert server.transport.get_protocol() is other
        client.transport.write(b"b")
        client.transport.close()
        await until(lambda: other.lost)
        assert other.received == b"b"
        server.lost.append(None)


async def both_ends_know_their_names() -> None:
    async with connected() as (client, server):
        assert client.transport.get_extra_info("peername") == server.transport.get_extra_info("sockname")
        assert client.transport.get_extra_info("sockname") == server.transport.get_extra_info("peername")
        assert client.transport.get_extra_info("nothing", 5) == 5


async def nobody_listens() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Recorder, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(Recorder, "127.0.0.1", port)


async def a_closed_server_keeps_its_connections() -> None:
    loop = asyncio.get_running_loop()
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    transport, client = await loop.create_connection(
        Recorder, "127.0.0.1", server.sockets[0].getsockname()[1]
    )
    await until(lambda: accepted and accepted[0].transport)
    server.close()
    assert not server.is_serving()
    transport.write(b"still here")
    await until(lambda: accepted[0].received == b"still here")
    transport.close()
    await until(lambda: client.lost and accepted[0].lost)


async def a_cancelled_connection_attempt_leaves_nothing() -> None:
    loop = asyncio.get_running_loop()
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    task = asyncio.ensure_future(loop.create_connection(Recorder, "127.0.0.1", port))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle()
    assert all(protocol.lost for protocol in accepted)
    server.close()


SCENARIOS: list[Scenario] = [
    everything_arrives_in_order,
    close_flushes_first,
    close_flushes_a_big_backlog,
    closing_twice_is_harmless,
    abort_is_a_clean_end_for_the_peer,
    abort_drops_the_backlog,
    abort_with_unread_data_resets_the_peer,
    half_close_leaves_the_other_direction_open,
    no_write_after_write_eof,
    eof_closes_unless_it_is_refused,
    writing_is_paused_inside_write_and_resumed_later,
    limits_must_make_sense,
    paused_reading_sees_neither_data_nor_end,
    paused_reading_does_not_see_a_reset,
    a_writer_that_waits_sees_a_reset_although_reading_is_paused,
    after_a_refused_end_only_writing_finds_the_reset,
    what_is_written_while_closing_is_ignored,
    an_exception_in_data_received_ends_the_connection,
    an_exception_in_eof_received_ends_the_connection,
    only_bytes_can_be_written,
    a_buffered_protocol_gets_everything,
    a_buffered_protocol_may_pause,
    an_empty_buffer_ends_the_connection,
    a_protocol_can_be_exchanged,
    both_ends_know_their_names,
    nobody_listens,
    a_closed_server_keeps_its_connections,
    a_cancelled_connection_attempt_leaves_nothing,
]


@pytest.mark.parametrize("world", RUNNERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_all_loops_agree(scenario: Scenario, world: str) -> None:
    RUNNERS[world](scenario)


# Where the real loops differ, the simulator takes the stricter side.


@pytest.mark.parametrize("world", RUNNERS)
def test_writing_after_the_end(world: str) -> None:
    async def scenario() -> None:
        async with connected() as (client, _server):
            client.transport.abort()
            await until(lambda: client.lost)
            if world == "stdlib":
                client.transport.write(b"ignored")
            else:
                with pytest.raises(RuntimeError):
                    client.transport.write(b"too late")

    RUNNERS[world](scenario)


@pytest.mark.parametrize("world", RUNNERS)
def test_pausing_inside_connection_made(world: str) -> None:
    class Hasty(Recorder):
        refused = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            try:
                transport.pause_reading()
            except RuntimeError:
                self.refused = True

    async def scenario() -> None:
        async with connected(server_factory=Hasty) as (client, server):
            client.transport.write(b"a")
            await settle()
            assert server.refused == ("simulator" in world)
            assert bool(server.received) == (world != "stdlib"), "uvloop reads on"

    RUNNERS[world](scenario)


@pytest.mark.parametrize("world", RUNNERS)
def test_low_water_mark_that_nobody_set(world: str) -> None:
    async def scenario() -> None:
        async with connected() as (client, _server):
            low_bytes, high_bytes = client.transport.get_write_buffer_limits()
            assert high_bytes == 65536
            assert low_bytes == (16 if "uvloop" in world else 16384)

    RUNNERS[world](scenario)
