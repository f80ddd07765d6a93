"""Members that come one after the other, and are heard together."""

import asyncio

from broker.serving import in_loop
from quorate.broker.coordinators_gathering import LOOKS_MAX, QUIET_S, TOGETHER_MAX, Gathering


class Hearing:
    def __init__(self):
        self.times = 0

    def hear(self):
        self.times += 1


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


@in_loop
async def test_all_are_heard_once_when_nobody_comes_any_more():
    gathering, hearings = Gathering(), [Hearing(), Hearing()]
    for _ in range(5):
        for one in hearings:
            gathering.add(one)
    assert [one.times for one in hearings] == [0, 0]
    await until(lambda: any(one.times for one in hearings))
    assert [one.times for one in hearings] == [1, 1]
    gathering.add(hearings[0])
    await until(lambda: hearings[0].times == 2)
    assert hearings[1].times == 1


@in_loop
async def test_whoever_comes_for_ever_keeps_nobody_waiting_for_ever():
    gathering, hearing = Gathering(), Hearing()
    added = 0
    while not hearing.times:
        gathering.add(hearing)
        added += 1
        await asyncio.sleep(0)  # in every turn of the loop, however long that takes
    assert added >= LOOKS_MAX


@in_loop
async def test_so_many_wait_for_nobody():
    gathering, hearing = Gathering(), Hearing()
    for _ in range(TOGETHER_MAX):
        assert not gathering.is_full
        gathering.add(hearing)
    assert gathering.is_full
    gathering.end()
    assert (hearing.times, gathering.is_full) == (1, False)
    await asyncio.sleep(2 * QUIET_S)
    assert hearing.times == 1


@in_loop
async def test_one_that_breaks_keeps_no_other_from_being_heard():
    seen = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
    gathering, broken, other = Gathering(), Hearing(), Hearing()
    broken.hear = lambda: 1 / 0
    for one in (broken, other):
        gathering.add(one)
    await until(lambda: other.times)
    assert [type(one) for one in seen] == [ZeroDivisionError]
