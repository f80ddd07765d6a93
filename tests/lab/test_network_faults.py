"""What partitions, dead processes and lost power look like from the other end of a connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quorate.lab.wires import Link
from quorate.lab.world import MS, SECOND, SeedFailed, World
from quorate.node.host import Host

PORT = 9092


class End(asyncio.Protocol):
    """One end of the connection under test, with the instants at which it heard something."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.transport: Any = None
        self.heard: list[tuple[int, bytes]] = []
        self.lost_ns: int | None = None
        self.error: BaseException | None = None

    @property
    def text(self) -> bytes:
        return b"".join(data for _, data in self.heard)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard.append((self._world.now_ns, data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_ns, self.error = self._world.now_ns, exc


class Pair:
    """A world with a connection from n1 to n2. `act` does something as one of the nodes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clients: list[End] = []
        self.servers: list[End] = []
        self.errors: list[OSError] = []
        for name in ("n1", "n2", "n3"):
            world.add_machine(name)
            world.start(name, self._serve)
        world.run_for(10 * MS)
        self.connect()
        assert world.run_until_condition(lambda: bool(self.clients and self.servers), 5 * SECOND)
        world.run_for(10 * MS)

    async def _serve(self, host: Host) -> None:
        def accept() -> End:
            self.servers.append(End(self.world))
            return self.servers[-1]

        await asyncio.get_running_loop().create_server(accept, host.name, PORT)
        await asyncio.sleep(1e6)

    def act(self, name: str, action: Callable[[], object]) -> None:
        process = self.world.machines[name].process
        assert process is not None
        process.call_soon(action)
        self.world.run_for(1)

    def connect(self, to: str = "n2") -> None:
        async def connect() -> None:
            try:
                _, end = await asyncio.get_running_loop().create_connection(lambda: End(self.world), to, PORT)
                self.clients.append(end)
            except OSError as error:
                self.errors.append(error)

        tasks: list[Any] = []
        self.act("n1", lambda: tasks.append(asyncio.get_running_loop().create_task(connect())))

    @property
    def client(self) -> End:
        return self.clients[0]

    @property
    def server(self) -> End:
        return self.servers[0]

    def send(self, data: bytes) -> None:
        self.act("n1", lambda: self.client.transport.write(data))

    def reply(self, data: bytes) -> None:
        self.act("n2", lambda: self.server.transport.write(data))


@pytest.fixture(params=[1, 2, 3])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with World(request.param) as world:
        world.network.wires.default = Link(tail_probability=0.0)
        yield Pair(world)


def cut(world: World, *ways: tuple[str, str]) -> None:
    for one, to in ways or (("n1", "n2"), ("n2", "n1")):
        world.network.cut(one, to)


def heal(world: World) -> None:
    world.network.heal_all()


def test_after_an_outage_an_old_connection_resumes_late_and_a_new_one_works_at_once(pair: Pair) -> None:
    world = pair.world
    pair.send(b"before ")
    world.run_for(10 * MS)
    cut(world)
    pair.send(b"during ")
    world.run_for(9 * SECOND)
    pair.send(b"more")
    assert pair.server.text == b"before "
    heal(world)
    healed_ns = world.now_ns
    pair.connect()
    world.run_for(10 * MS)
    assert len(pair.servers) == 2, "a new connection works at once"
    world.run_for(10 * SECOND)
    assert pair.server.text == b"before during more", "nothing is lost, doubled or reordered"
    resumed_ns = pair.server.heard[-1][0]
    assert 3 * SECOND < resumed_ns - healed_ns < 5 * SECOND, "retransmitted after 0.2, 0.6, ... 6.2, 12.6 s"


def test_what_is_on_the_wire_when_it_is_cut_must_be_sent_again(pair: Pair) -> None:
    pair.send(b"late")
    cut(pair.world)
    pair.world.run_for(SECOND)
    assert pair.server.text == b""
    heal(pair.world)
    pair.world.run_for(SECOND)
    assert pair.server.text == b"late"


def test_unacknowledged_data_ends_in_a_timeout_and_the_idle_side_never_learns(pair: Pair) -> None:
    cut(pair.world)
    pair.send(b"anybody?")
    pair.world.run_for(31 * SECOND)
    assert isinstance(pair.client.error, TimeoutError)
    pair.world.run_for(1000 * SECOND)
    assert pair.server.lost_ns is None
    heal(pair.world)
    pair.reply(b"hello?")
    pair.world.run_for(SECOND)
    assert isinstance(pair.server.error, ConnectionResetError)


def test_a_one_way_cut_stalls_both_directions_after_a_while(pair: Pair) -> None:
    world = pair.world
    cut(world, ("n1", "n2"))
    pair.reply(b"a")
    world.run_for(100 * MS)
    assert pair.client.text == b"a", "the other direction still works"
    world.run_for(SECOND)
    pair.reply(b"b")
    world.run_for(5 * SECOND)
    assert pair.client.text == b"a", "but without acknowledgements its sender only repeats itself"
    pair.send(b"c")
    world.run_for(31 * SECOND)
    assert isinstance(pair.server.error, TimeoutError)
    assert isinstance(pair.client.error, TimeoutError)


def test_a_one_way_cut_that_heals_loses_nothing(pair: Pair) -> None:
    cut(pair.world, ("n1", "n2"))
    for number in range(10):
        pair.reply(b"%d" % number)
        pair.send(b"%d" % number)
        pair.world.run_for(SECOND)
    heal(pair.world)
    pair.world.run_for(20 * SECOND)
    assert pair.client.text == pair.server.text == b"0123456789"


def test_what_waits_is_not_overtaken_when_one_direction_heals_first(pair: Pair) -> None:
    world = pair.world
    cut(world, ("n2", "n1"))
    pair.send(b"a")
    world.run_for(10 * MS)
    cut(world, ("n1", "n2"))
    pair.send(b"b")
    world.network.heal("n1", "n2")
    pair.send(b"c")
    world.run_for(10 * MS)
    heal(world)
    world.run_for(5 * SECOND)
    assert pair.server.text == b"abc"


def test_what_flies_is_sent_again_before_what_waits(pair: Pair) -> None:
    world = pair.world
    world.network.set_latency("n1", "n2", Link(base_ns=SECOND, tail_probability=0.0))
    cut(world, ("n2", "n1"))
    pair.send(b"a")
    world.run_for(300 * MS)
    pair.send(b"b")
    cut(world, ("n1", "n2"))
    world.run_for(5 * SECOND)
    heal(world)
    world.run_for(20 * SECOND)
    assert pair.server.text == b"ab"


def test_room_that_was_read_during_an_outage_returns_after_it(pair: Pair) -> None:
    world, data = pair.world, b"x" * 3_000_000
    cut(world, ("n1", "n2"))
    pair.reply(data)
    world.run_for(5 * SECOND)
    assert 0 < len(pair.client.text) < len(data), "one window, and no acknowledgement for more"
    heal(world)
    world.run_for(20 * SECOND)
    assert pair.client.text == data


def test_a_cut_between_others_is_not_felt(pair: Pair) -> None:
    cut(pair.world, ("n1", "n3"), ("n3", "n2"))
    pair.send(b"a")
    pair.reply(b"b")
    pair.world.run_for(100 * MS)
    assert (pair.server.text, pair.client.text) == (b"a", b"b")


def test_a_killed_process_says_goodbye(pair: Pair) -> None:
    pair.reply(b"last words")
    pair.world.kill("n2")
    pair.world.run_for(100 * MS)
    assert pair.client.text == b"last words"
    assert pair.client.lost_ns is not None
    assert pair.client.error is None
    pair.connect()
    pair.world.run_for(100 * MS)
    assert isinstance(pair.errors[0], ConnectionRefusedError)


def test_a_process_killed_before_it_read_everything_resets(pair: Pair) -> None:
    pair.act("n2", pair.server.transport.pause_reading)
    pair.send(b"unread")
    pair.world.run_for(100 * MS)
    pair.world.kill("n2")
    pair.world.run_for(100 * MS)
    assert isinstance(pair.client.error, ConnectionResetError)


def test_what_reaches_a_dead_process_is_answered_with_a_reset(pair: Pair) -> None:
    pair.world.pause("n1", 10 * SECOND)  # so that it does not notice the end
    pair.world.kill("n2")
    pair.world.run_for(SECOND)
    assert pair.client.lost_ns is None
    pair.world.run_for(20 * SECOND)
    assert pair.client.lost_ns is not None


def test_lost_power_is_silence_and_then_a_reset(pair: Pair) -> None:
    world = pair.world
    world.power_loss("n2")
    pair.send(b"are you there?")
    world.run_for(5 * SECOND)
    assert pair.client.lost_ns is None
    world.restart("n2")
    world.run_for(10 * SECOND)
    assert isinstance(pair.client.error, ConnectionResetError)
    assert pair.server.text == b""


def test_lost_power_for_long_is_a_timeout(pair: Pair) -> None:
    pair.world.power_loss("n2")
    pair.send(b"are you there?")
    pair.world.run_for(31 * SECOND)
    assert isinstance(pair.client.error, TimeoutError)


def test_who_waits_for_a_machine_without_power_waits_for_ever(pair: Pair) -> None:
    pair.world.power_loss("n2")
    pair.world.run_for(10_000 * SECOND)
    assert pair.client.lost_ns is None


def test_connecting_is_tried_again_until_something_gets_through(pair: Pair) -> None:
    world = pair.world
    cut(world, ("n2", "n1"))
    pair.connect()
    world.run_for(int(1.5 * SECOND))
    heal(world)
    healed_ns = world.now_ns
    assert world.run_until_condition(lambda: len(pair.clients) == 2, world.now_ns + 5 * SECOND)
    assert 1.4 * SECOND < world.now_ns - healed_ns < 1.6 * SECOND, "after 1 and 3 seconds"


def test_connecting_to_nowhere_ends_after_two_minutes(pair: Pair) -> None:
    pair.world.power_loss("n2")
    pair.connect()
    pair.world.run_for(126 * SECOND)
    assert not pair.errors
    pair.world.run_for(2 * SECOND)
    assert isinstance(pair.errors[0], TimeoutError)


def test_an_unknown_name_does_not_resolve(pair: Pair) -> None:
    pair.connect("nowhere")
    pair.world.run_for(SECOND)
    assert isinstance(pair.errors[0], socket.gaierror)


def test_one_lost_segment_delays_all_behind_it(pair: Pair) -> None:
    sent_ns = pair.world.now_ns
    pair.send(b"a")
    pair.world.network.lose_packets("n1", "n2")
    pair.send(b"b")
    pair.world.run_for(SECOND)
    assert pair.server.text == b"ab"
    assert all(200 * MS <= heard_ns - sent_ns < 210 * MS for heard_ns, _ in pair.server.heard)


def test_connections_can_be_reset_in_the_middle(pair: Pair) -> None:
    pair.world.network.reset_connections("n2", "n1")
    pair.world.run_for(SECOND)
    assert isinstance(pair.client.error, ConnectionResetError)
    assert isinstance(pair.server.error, ConnectionResetError)


def test_a_link_can_be_slow_in_one_direction(pair: Pair) -> None:
    pair.world.network.set_latency("n1", "n2", Link(base_ns=3 * SECOND))
    pair.send(b"a")
    pair.reply(b"b")
    pair.world.run_for(SECOND)
    assert (pair.server.text, pair.client.text) == (b"", b"b")
    pair.world.run_for(3 * SECOND)
    assert pair.server.text == b"a"


def test_a_buffer_changed_after_write_is_found(pair: Pair) -> None:
    buffer = bytearray(b"abc")
    pair.send(memoryview(buffer)[1:])  # type: ignore[arg-type]
    buffer[1] = ord("x")
    pair.world.run_for(SECOND)
    assert pair.server.text == b"bc", "what was written at the time"
    with pytest.raises(SeedFailed, match="buffer was changed"):
        pair.world.check()


def test_a_paused_peer_receives_everything_when_it_goes_on(pair: Pair) -> None:
    pair.world.pause("n2", 5 * SECOND)
    for number in range(10):
        pair.send(b"%d" % number)
        pair.world.run_for(100 * MS)
    pair.connect()
    pair.world.run_for(100 * MS)
    assert len(pair.clients) == 2, "the kernel of a paused process accepts connections"
    assert pair.server.text == b""
    pair.world.run_for(10 * SECOND)
    assert pair.server.text == b"0123456789"
    assert len(pair.servers) == 2


def test_backpressure_reaches_the_writer_through_an_outage(pair: Pair) -> None:
    world, data = pair.world, b"x" * 3_000_000
    cut(world)
    pair.send(data)
    world.run_for(5 * SECOND)
    assert pair.client.transport.get_write_buffer_size() > 2_000_000
    heal(world)
    world.run_for(20 * SECOND)
    assert len(pair.server.text) == len(data)
    assert pair.client.transport.get_write_buffer_size() == 0


def test_two_listeners_cannot_have_one_port(pair: Pair) -> None:
    async def listen() -> None:
        with pytest.raises(OSError, match="already"):
            await asyncio.get_running_loop().create_server(asyncio.Protocol, None, PORT)

    tasks: list[Any] = []
    pair.act("n1", lambda: tasks.append(asyncio.get_running_loop().create_task(listen())))
    pair.world.run_for(SECOND)
    assert tasks[0].exception() is None
