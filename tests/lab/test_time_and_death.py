"""Time, tasks and threads of simulated nodes, and how they die."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import run_process

from quorate.lab.clock import MachineClock
from quorate.lab.clockwork import Livelock, NodeDead
from quorate.lab.world import MS, SECOND, SeedFailed, World
from quorate.node.host import Host


@pytest.fixture
def world() -> Any:
    with World(1, like_uvloop=False) as world:
        yield world


def start(world: World, main: Any, name: str = "n1") -> None:
    world.add_machine(name)
    world.start(name, main)


# Clocks and timers


@given(st.integers(0, 2**64), st.floats(0, 1e5), st.integers(0, 10**15))
def test_a_deadline_is_the_first_instant_at_which_the_clock_shows_it(
    seed: int, delay_s: float, now_ns: int
) -> None:
    clock = MachineClock(random.Random(seed), now_ns)
    deadline_s = clock.monotonic_s(now_ns) + delay_s
    instant_ns = clock.instant_ns(deadline_s)
    assert clock.monotonic_s(instant_ns) >= deadline_s
    assert clock.monotonic_s(instant_ns - 2) < deadline_s


@given(st.integers(0, 1000), st.lists(st.floats(1e-9, 10), min_size=1, max_size=10), st.floats(0.5, 2))
def test_timers_are_never_early_although_clocks_drift(seed: int, delays_s: list[float], rate: float) -> None:
    early: list[float] = []

    async def main(_: Host) -> None:
        loop = asyncio.get_running_loop()
        for delay_s in delays_s:
            deadline_s = loop.time() + delay_s
            await asyncio.sleep(delay_s)
            early.extend([delay_s] if loop.time() < deadline_s else [])

    with World(seed, like_uvloop=False) as world:
        start(world, main)
        world.run_for(SECOND)
        world.set_clock_rate("n1", rate)
        assert world.run_until_condition(lambda: bool(world.exits), 1000 * SECOND)
        world.check()
    assert not early


def test_a_changed_clock_moves_timers_that_are_set_already(world: World) -> None:
    woke_ns: list[int] = []

    async def main(_: Host) -> None:
        await asyncio.sleep(10)
        woke_ns.append(world.now_ns)

    start(world, main)
    world.run_until(1 * SECOND)
    world.set_clock_rate("n1", 2.0)
    world.run_until(20 * SECOND)
    assert 5.4 * SECOND < woke_ns[0] < 5.6 * SECOND


def test_equal_deadlines_keep_their_order(world: World) -> None:
    fired: list[int] = []

    async def main(_: Host) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + 1
        for number in range(20):
            loop.call_at(when, fired.append, number)
        await asyncio.sleep(2)

    run_process(world, "n1", main)
    assert fired == list(range(20))


def test_timers_like_those_of_uvloop_are_coarse_and_unordered_within_a_millisecond() -> None:
    fired: list[int] = []
    early: list[float] = []

    async def main(_: Host) -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_later(0.1 + number / 100_000, fired.append, number)
        for _ in range(50):
            deadline_s = loop.time() + 0.0104
            await asyncio.sleep(0.0104)
            early.append(deadline_s - loop.time())
        while loop.time() < deadline_s + 1.0001:  # a node that checks again gets on
            await asyncio.sleep(deadline_s + 1.0001 - loop.time())

    with World(1, like_uvloop=True) as world:
        run_process(world, "n1", main)
    assert sorted(fired) == list(range(20)) != fired
    assert 0 < max(early) < 0.001


def test_wall_time_jumps_and_monotonic_time_does_not(world: World) -> None:
    async def main(host: Host) -> None:
        loop = asyncio.get_running_loop()
        before_ms, before_s = host.wall_ms(), loop.time()
        world.machines["n1"].clock.jump_wall(-5000)
        assert -5001 <= host.wall_ms() - before_ms <= -4999
        assert loop.time() == before_s

    run_process(world, "n1", main)


def test_a_reboot_resets_monotonic_time_only(world: World) -> None:
    shown: list[tuple[float, int]] = []

    async def main(host: Host) -> None:
        shown.append((asyncio.get_running_loop().time(), host.wall_ms()))
        await asyncio.sleep(1000)

    start(world, main)
    world.run_for(100 * SECOND)
    world.power_loss("n1")
    world.restart("n1")
    world.run_for(SECOND)
    (_, wall_ms), (uptime_s, later_ms) = shown
    assert uptime_s < 60
    assert 99_000 < later_ms - wall_ms < 101_000


# asyncio


def test_the_usual_tools_work(world: World) -> None:
    async def child(number: int) -> int:
        await asyncio.sleep(number / 100)
        return number

    async def main(_: Host) -> None:
        assert await asyncio.gather(*(child(number) for number in range(5))) == [0, 1, 2, 3, 4]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.1)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child(number)) for number in (3, 1, 2)]
        assert [task.result() for task in tasks] == [3, 1, 2]
        queue: asyncio.Queue[int] = asyncio.Queue()
        asyncio.get_running_loop().call_later(0.1, queue.put_nowait, 7)
        assert await queue.get() == 7
        assert await asyncio.to_thread(sum, [1, 2]) == 3

    run_process(world, "n1", main)
    world.check()


def test_streams_work(world: World) -> None:
    async def main(_: Host) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.readline()).upper())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "localhost", 7)
        reader, writer = await asyncio.open_connection("localhost", 7)
        writer.write(b"hello\n")
        assert await reader.read() == b"HELLO\n"
        writer.close()
        server.close()

    run_process(world, "n1", main)
    world.check()


@pytest.mark.parametrize(
    "attempt",
    [
        lambda loop: loop.add_reader(0, print),
        lambda loop: loop.add_signal_handler(2, print),
        lambda loop: loop.sock_connect(None, None),
        lambda loop: loop.start_tls(None, None, None),
        lambda loop: loop.subprocess_exec(None),
        lambda loop: loop.create_datagram_endpoint(None),
        lambda loop: loop.run_forever(),
        lambda loop: loop.set_debug(True),
        lambda loop: loop.create_connection(asyncio.Protocol, "n1", 1, ssl=True),
        lambda loop: loop.create_server(asyncio.Protocol, sock=object(), port=1),
    ],
)
def test_what_cannot_be_simulated_is_refused(world: World, attempt: Callable[[Any], Any]) -> None:
    async def main(_: Host) -> None:
        with pytest.raises(NotImplementedError, match="cannot be simulated"):
            await attempt(asyncio.get_running_loop())

    run_process(world, "n1", main)


def test_nodes_cannot_share_a_queue(world: World) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def main(_: Host) -> None:
        await queue.get()

    start(world, main, "n1")
    start(world, main, "n2")
    world.run_for(SECOND)
    with pytest.raises(SeedFailed, match="different event loop"):
        world.check()


def test_work_in_an_executor_takes_time_and_has_no_running_loop(world: World) -> None:
    at_ns: list[int] = []

    def work() -> str:
        at_ns.append(world.now_ns)
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return "done"

    def fail() -> None:
        raise ZeroDivisionError

    async def main(host: Host) -> None:
        loop = asyncio.get_running_loop()
        asked_ns = world.now_ns
        assert await loop.run_in_executor(host.executor, work) == "done"
        assert asked_ns < at_ns[0] < world.now_ns
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(host.executor, fail)

    run_process(world, "n1", main)


# Watching


def test_a_livelock_is_reported_with_its_culprit(world: World) -> None:
    async def busy_waiting(_: Host) -> None:
        while True:
            await asyncio.sleep(0)

    start(world, busy_waiting)
    with pytest.raises(Livelock, match=r"n1\.1 .*busy_waiting"):
        world.run_for(SECOND)


def test_a_failing_callback_fails_the_seed(world: World) -> None:
    async def main(_: Host) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    start(world, main)
    world.run_for(2 * SECOND)
    with pytest.raises(SeedFailed, match="ZeroDivisionError"):
        world.check()


def test_a_task_that_nobody_asks_for_its_exception_fails_the_seed(world: World) -> None:
    async def main(_: Host) -> None:
        asyncio.get_running_loop().create_task(asyncio.wait_for(asyncio.sleep(5), 0.1))
        await asyncio.sleep(1)

    start(world, main)
    world.run_for(2 * SECOND)
    with pytest.raises(SeedFailed, match="never retrieved"):
        world.check()


def test_a_node_that_ends_is_recorded(world: World) -> None:
    async def main(host: Host) -> None:
        await asyncio.sleep(1)
        if host.name == "n2":
            raise OSError("disk on fire")
        if host.name == "n3":
            raise SystemExit(3)

    for name in ("n1", "n2", "n3"):
        start(world, main, name)
    world.run_for(2 * SECOND)
    assert {end.node: type(end.exception) for end in world.exits} == {
        "n1.1": type(None),
        "n2.1": OSError,
        "n3.1": SystemExit,
    }
    assert len(world.problems) == 2
    assert not any(map(world.is_running, ("n1", "n2", "n3")))


def test_exits_can_be_tolerated() -> None:
    async def main(_: Host) -> None:
        raise OSError("disk on fire")

    with World(1, tolerate=lambda end: isinstance(end.exception, OSError)) as world:
        start(world, main)
        world.run_for(SECOND)
        assert world.exits
        world.check()


def test_checkers_run_after_each_step(world: World) -> None:
    balance = [0]

    async def main(_: Host) -> None:
        await asyncio.sleep(1)
        balance[0] = -1
        await asyncio.sleep(1)

    def check() -> None:
        assert balance[0] >= 0, "broke"

    world.after_each_step(check)
    start(world, main)
    with pytest.raises(AssertionError, match="broke"):
        world.run_for(10 * SECOND)
    assert SECOND * 0.9 < world.now_ns < SECOND * 1.1


def test_text_says_what_happened_last() -> None:
    async def sleepy(_: Host) -> None:
        while True:
            await asyncio.sleep(1)

    with World(1, lines_per_node_max=5) as world:
        start(world, sleepy)
        world.run_for(100 * SECOND)
        lines = world.trace.lines("n1.1")
        assert len(lines) == 5
        assert "sleepy" in lines[-1]


# Pause and death


def test_a_paused_node_does_nothing_and_then_goes_on(world: World) -> None:
    ticks_ns: list[int] = []

    async def main(_: Host) -> None:
        while True:
            await asyncio.sleep(0.1)
            ticks_ns.append(world.now_ns)

    start(world, main)
    world.run_until(SECOND)
    world.pause("n1", 3 * SECOND)
    world.run_until(10 * SECOND)
    assert not [tick_ns for tick_ns in ticks_ns if SECOND < tick_ns < 4 * SECOND]
    assert ticks_ns[-1] > 9 * SECOND


@pytest.mark.parametrize("end", ["kill", "power_loss"])
def test_nothing_of_a_killed_node_runs_again(world: World, end: str) -> None:
    ran: list[str] = []

    class Guarded:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_: object) -> None:
            ran.append("aexit")

    async def stubborn() -> None:
        while True:
            try:
                async with Guarded():
                    await asyncio.sleep(1)
            except asyncio.CancelledError:
                ran.append("except")
            finally:
                ran.append("finally")

    async def main(_: Host) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(5, ran.append, "timer")
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(stubborn())

    start(world, main)
    world.run_until(SECOND // 2)
    getattr(world, end)("n1")
    steps = world.trace.steps
    world.run_for(1000 * SECOND)
    gc.collect()
    assert ran == []
    assert world.trace.steps == steps
    world.close()
    assert ran != [], "only the end of the world closes coroutines"


def test_what_only_a_timer_of_a_dead_node_refers_to_stays(world: World) -> None:
    ran: list[str] = []

    def suspended(name: str) -> Any:
        def generate() -> Iterator[None]:
            try:
                yield
            finally:
                ran.append(name)

        generator = generate()
        next(generator)
        return generator

    async def main(_: Host) -> None:
        asyncio.get_running_loop().call_later(5, print, suspended("set before"))
        await asyncio.sleep(100)

    start(world, main)
    world.run_for(SECOND)
    process = world.machines["n1"].process
    assert process is not None
    world.kill("n1")
    process.call_soon(print, suspended("called after"))
    process.call_later(5, print, suspended("set after"))
    world.run_for(10 * SECOND)
    gc.collect()
    assert ran == []


def test_code_after_a_crash_has_no_effect(world: World) -> None:
    ran: list[str] = []

    async def main(host: Host) -> None:
        file = host.files.open("f", create=True)
        other = host.files.open("g", create=True)
        try:
            file.append([b"x" * 100])
        finally:
            ran.append("unwinding")
            with contextlib.suppress(Exception):  # NodeDead is not an Exception
                other.append([b"y"])
            ran.append("never")

    start(world, main)
    world.crash_at_operation("n1", 2)
    world.run_for(SECOND)
    assert ran == ["unwinding"]
    assert not world.is_running("n1")
    world.check()

    async def look(host: Host) -> int:
        return host.files.open("g").size()

    assert run_process(world, "n1", look) == 0


def test_the_dead_cannot_act(world: World) -> None:
    hosts: list[Host] = []
    transports: list[asyncio.Transport] = []

    async def main(host: Host) -> None:
        hosts.append(host)
        loop = asyncio.get_running_loop()
        await loop.create_server(asyncio.Protocol, host.name, 7)
        transports.append((await loop.create_connection(asyncio.Protocol, host.name, 7))[0])
        await asyncio.sleep(100)

    start(world, main)
    world.run_for(SECOND)
    process = world.machines["n1"].process
    assert process is not None
    world.kill("n1")
    effects: list[Callable[[], object]] = [
        lambda: hosts[0].files.open("f", create=True),
        lambda: hosts[0].files.names(""),
        lambda: hosts[0].files.make_directory("d"),
        lambda: transports[0].write(b"x"),
        transports[0].close,
        transports[0].abort,
        lambda: process.create_task(asyncio.sleep(1)),
        lambda: process.run_in_executor(None, print),
    ]
    for effect in effects:
        with pytest.raises(NodeDead):
            effect()
    assert process.call_soon(print) is not None, "scheduling is harmless: it never runs"


def test_a_restarted_node_is_a_new_process_with_its_own_randomness(world: World) -> None:
    draws: list[float] = []

    async def main(host: Host) -> None:
        draws.append(host.random.random())
        await asyncio.sleep(100)

    start(world, main)
    world.run_for(SECOND)
    world.restart("n1")
    world.kill("n1")
    world.kill("n1")
    world.restart("n1")
    world.run_for(MS)
    assert len(draws) == 2
    assert draws[0] != draws[1]
