"""Work in lanes: so many at a time, in order, none behind another lane."""

from __future__ import annotations

import asyncio

import pytest

from quorate.broker.lanes import in_lanes


def test_each_lane_does_so_many_at_a_time_in_order():
    begun: list[str] = []
    most: dict[str, int] = {}

    async def scenario() -> None:
        under_way: dict[str, int] = {}

        async def work(item: str) -> None:
            lane = item[0]
            begun.append(item)
            under_way[lane] = under_way.get(lane, 0) + 1
            most[lane] = max(most.get(lane, 0), under_way[lane])
            await asyncio.sleep(0)
            under_way[lane] -= 1

        await in_lanes(
            [f"{lane}{number}" for number in range(5) for lane in "ab"], lambda one: one[0], 2, work
        )

    asyncio.run(scenario())
    assert most == {"a": 2, "b": 2}
    for lane in "ab":
        assert [one for one in begun if one[0] == lane] == [f"{lane}{number}" for number in range(5)]


def test_a_lane_that_stands_still_holds_up_no_other():
    done: list[str] = []

    async def scenario() -> None:
        others_are_done = asyncio.Event()

        async def work(item: str) -> None:
            if item == "slow":
                await others_are_done.wait()
            done.append(item)
            if len(done) == 3:
                others_are_done.set()

        await in_lanes(["slow", "a1", "a2", "a3"], lambda one: one[0], 1, work)

    asyncio.run(scenario())
    assert done == ["a1", "a2", "a3", "slow"]


def test_a_failure_ends_it():
    async def scenario() -> None:
        async def work(item: int) -> None:
            if item == 1:
                raise ValueError(item)
            assert item < 3, "not begun"
            await asyncio.sleep(60)

        await in_lanes(range(5), lambda _: 0, 3, work)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(scenario())
    assert [str(one) for one in raised.value.exceptions] == ["1"]


def test_nothing_to_do():
    asyncio.run(in_lanes([], lambda _: 0, 2, lambda _: asyncio.sleep(0)))
