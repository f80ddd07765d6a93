"""A few toy nodes that talk, write files and use what asyncio offers, to see that runs can be repeated.

Run as a program it prints the trace hash of each seed given.
"""

from __future__ import annotations

import asyncio
import sys

from quorate.lab.faults import Fault, draw_faults, heal_everything, schedule
from quorate.lab.guard import guard
from quorate.lab.world import SECOND, Exit, World
from quorate.node.host import Host
from quorate.storage.files import replace_file

NAMES = ("n1", "n2", "n3", "n4")
PORT = 9000


class Lines(asyncio.Protocol):
    """Cuts a stream in lines; a server answers them, a client waits for them."""

    def __init__(self, lines: asyncio.Queue[bytes] | None) -> None:
        self._lines = lines
        self._rest = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._lines is not None:
                self._lines.put_nowait(line)
            elif self.transport is not None:
                self.transport.write(line[::-1] + b"\n")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.transport = None
        if self._lines is not None:
            self._lines.put_nowait(b"")


async def toy_node(host: Host) -> None:
    """Serves, asks all others at once again and again, and keeps a counter on disk."""
    host.files.make_directory("data")
    await asyncio.get_running_loop().create_server(lambda: Lines(None), host.name, PORT)
    async with asyncio.TaskGroup() as group:
        group.create_task(_count(host))
        group.create_task(_ask_all(host))


async def _count(host: Host) -> None:
    count = 0
    while True:
        count += 1
        await replace_file(host.files, "data/count", b"%d %d" % (count, host.wall_ms()))
        await asyncio.get_running_loop().run_in_executor(host.executor, host.files.names, "data")
        await asyncio.sleep(host.random.uniform(0, 0.2))


async def _ask_all(host: Host) -> None:
    while True:
        others = [name for name in NAMES if name != host.name]
        tasks = [asyncio.create_task(_ask(host, name)) for name in others]
        done, pending = await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        for task in (*done, *pending):  # sets: in the order of whatever their hash is
            task.cancel()
            host.files.open(f"data/{await _outcome(task)}", create=True).close()
        await asyncio.sleep(host.random.uniform(0, 0.1))


async def _outcome(task: asyncio.Task[str]) -> str:
    return (await asyncio.gather(task, return_exceptions=True))[0].__class__.__name__


async def _ask(host: Host, name: str) -> str:
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    async with asyncio.timeout(2):
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: Lines(lines), name, PORT)
    try:
        for number in range(host.random.randrange(1, 10)):
            transport.write(b"%s %d\n" % (host.name.encode(), number))
            async with asyncio.timeout(2):
                if not await lines.get():
                    return "ended"
    finally:
        transport.close()
    return "ok"


def run_toy(seed: int, duration_ns: int = 3 * SECOND, faults: list[Fault] | None = None) -> World:
    """Runs a seed with its faults, or with those given, then heals everything and lets it recover."""
    with World(seed, tolerate=_disk_failed) as world:
        for name in NAMES:
            world.add_machine(name)
            world.start(name, toy_node)
        drawn = draw_faults(world.random("faults", "all"), NAMES, duration_ns) if faults is None else faults
        schedule(world, drawn)
        with guard(world):
            world.run_until(duration_ns)
            heal_everything(world)
            world.run_for(SECOND)
        world.check()
        return world


def _disk_failed(end: Exit) -> bool:
    """Nodes stop when their disk fails, which the toy's task group wraps."""
    error = end.exception
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return isinstance(error, OSError)


if __name__ == "__main__":
    junk = [object() for _ in range(10_000)]  # other addresses than in other processes
    for seed in sys.argv[1:]:
        world = run_toy(int(seed))
        print(seed, world.trace.digest(), world.trace.steps)
