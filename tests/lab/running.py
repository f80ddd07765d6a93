"""Runs one coroutine as the whole life of a simulated process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from quorate.lab.world import SECOND, World
from quorate.node.host import Host

T = TypeVar("T")


def run_process(world: World, name: str, main: Callable[[Host], Coroutine[Any, Any, T]]) -> T:
    """Starts a process, runs the world until it has ended, and gives its result or raises what it raised."""
    results: list[T] = []

    async def whole(host: Host) -> None:
        results.append(await main(host))

    if name not in world.machines:
        world.add_machine(name)
    exits = len(world.exits)
    world.start(name, whole)
    world.run_until_condition(
        lambda: len(world.exits) > exits or not world.is_running(name), world.now_ns + 1000 * SECOND
    )
    if len(world.exits) == exits:
        raise Unfinished(f"{name} was killed" if not world.is_running(name) else f"{name} did not end")
    error = world.exits[-1].exception
    if error is not None:
        world.problems[:] = [problem for problem in world.problems if problem.exception is not error]
        raise error
    return results[0]


class Unfinished(Exception):  # noqa: N818
    """A process did not come to its own end."""
