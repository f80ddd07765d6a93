"""Work for many items, in lanes: each lane does so many at a time, and no lane waits for another.

A disk that is asked for too much at once is no faster than one that is asked in turn, and several disks
should not wait for the slowest of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from typing import TypeVar

__all__ = ["in_lanes"]

Item = TypeVar("Item")


async def in_lanes(
    items: Iterable[Item],
    lane_of: Callable[[Item], Hashable],
    width: int,
    work: Callable[[Item], Awaitable[object]],
) -> None:
    """Does the work for every item, in the order of each lane. If it fails for one, what is under way is
    cancelled, the rest is not begun, and the errors are raised together."""
    lanes: dict[Hashable, list[Item]] = {}
    for item in items:
        lanes.setdefault(lane_of(item), []).append(item)

    async def do(waiting: Iterator[Item]) -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as tasks:
        for lane in lanes.values():
            waiting = iter(lane)
            for _ in range(min(width, len(lane))):
                tasks.create_task(do(waiting))
