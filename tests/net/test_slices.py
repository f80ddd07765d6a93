"""Work in slices: what is done at once, who gets a turn in between, and how it ends."""

import asyncio

import pytest

from quorate.net.eventual import Eventual
from quorate.net.slices import STEPS_PER_SLICE, in_slices


def counting(steps, done):
    """Work of so many steps, which notes how many are done."""
    try:
        for _ in range(steps):
            done.append(None)
            yield None
    finally:
        done.append("closed")
    return "the end"


def test_work_of_one_slice_is_done_at_once():
    assert in_slices(counting(STEPS_PER_SLICE - 1, [])) == "the end"


def test_others_get_their_turn_between_slices():
    async def scenario():
        done = []
        answer = in_slices(counting(3 * STEPS_PER_SLICE, done))
        seen = [len(done)]
        while not answer.done():
            await asyncio.sleep(0)
            seen.append(len(done))
        assert answer.result() == "the end"
        return seen

    seen = asyncio.run(scenario())
    assert seen[:3] == [STEPS_PER_SLICE, 2 * STEPS_PER_SLICE, 3 * STEPS_PER_SLICE]


def test_what_is_waited_for_comes_back_as_a_value():
    async def scenario():
        there, failing = Eventual(), asyncio.get_running_loop().create_future()

        async def later():
            await asyncio.sleep(0)
            return 3

        def work():
            found = [(yield there), (yield later())]
            try:
                yield failing
            except ValueError as error:
                found.append(str(error))
            return found

        answer = in_slices(work())
        assert not answer.done()
        there.set_result(1)
        failing.set_exception(ValueError("no"))
        return await answer

    assert asyncio.run(scenario()) == [1, 3, "no"]


def test_what_is_there_already_is_no_call_within_a_call():
    async def scenario():
        there = Eventual()
        there.set_result(1)

        def work():
            total = 0
            for _ in range(5000):
                total += yield there
            return total

        return await in_slices(work())

    assert asyncio.run(scenario()) == 5000


@pytest.mark.parametrize("steps", [0, 2 * STEPS_PER_SLICE])
def test_work_that_fails_fails_its_answer(steps):
    def work():
        for _ in range(steps):
            yield None
        raise ValueError("no")
        yield None

    async def scenario():
        await in_slices(work())

    with pytest.raises(ValueError, match="no"):
        asyncio.run(scenario())


def test_work_that_nobody_waits_for_ends_where_it_is():
    async def scenario():
        done = []
        in_slices(counting(10 * STEPS_PER_SLICE, done)).cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert done == [None] * STEPS_PER_SLICE + ["closed"]

        awaited = Eventual()

        def waiting():
            yield awaited

        answer = in_slices(waiting())
        answer.cancel()
        assert awaited.cancelled()

    asyncio.run(scenario())
