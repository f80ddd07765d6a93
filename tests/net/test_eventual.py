"""Answers that are given later, and at once: see `net.eventual`."""

import asyncio

import pytest

from quorate.net.eventual import Eventual, pending


def test_listeners_are_told_in_their_order_and_at_once():
    told = []
    answer = Eventual()
    answer.add_done_callback(lambda one: told.append(("first", one.result())))
    answer.add_done_callback(lambda one: told.append(("second", one.result())))
    assert not answer.done()
    answer.set_result(7)
    assert answer.done()
    assert told == [("first", 7), ("second", 7)]
    answer.add_done_callback(lambda one: told.append(("late", one.result())))
    assert told[-1] == ("late", 7)


def test_nobody_waits_any_more():
    told = []
    answer = Eventual()
    answer.add_done_callback(lambda one: told.append(one.cancelled()))
    assert answer.cancel()
    assert told == [True]
    assert answer.done()
    assert not answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        answer.result()


def test_tasks_can_wait_for_it():
    async def scenario():
        answer, early = Eventual(), Eventual()
        early.set_result("early")

        async def wait():
            return await early, await answer

        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        answer.set_result("late")  # within a task, which must not be entered from another
        assert not waiting.done()
        return await waiting

    assert asyncio.run(scenario()) == ("early", "late")


def test_a_task_that_was_cancelled_is_not_told():
    async def scenario():
        answer = Eventual()

        async def wait():
            return await answer

        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        answer.set_result("nobody listens")
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())


def test_what_is_pending_already_stays_what_it_is():
    async def scenario():
        answer = Eventual()
        assert pending(answer) is answer
        future = asyncio.get_running_loop().create_future()
        assert pending(future) is future
        future.cancel()

    asyncio.run(scenario())
