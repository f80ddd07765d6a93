"""Answers that are given later, and at once: see `net.eventual`."""

import asyncio

import pytest

from quorate.net.eventual import Eventual, afterwards, pending


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


def test_a_task_that_was_cancelled_waits_no_more():
    async def scenario():
        answer = Eventual()

        async def wait():
            return await answer

        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert answer.cancelled()

    asyncio.run(scenario())


def test_what_is_pending_already_stays_what_it_is():
    async def scenario():
        answer = Eventual()
        assert pending(answer) is answer
        future = asyncio.get_running_loop().create_future()
        assert pending(future) is future
        future.cancel()

    asyncio.run(scenario())


def test_it_may_fail():
    told = []
    answer = Eventual()
    answer.add_done_callback(lambda one: told.append(one.exception()))
    error = ValueError("no")
    answer.set_exception(error)
    assert told == [error]
    with pytest.raises(ValueError, match="no"):
        answer.result()


class Story:
    """Something that is waited for, and what comes after it, with all that happens to both."""

    def __init__(self, go_on=None):
        self.done = asyncio.get_running_loop().create_future()
        self.seen = []
        self.answer = afterwards(self.done, lambda: self.seen.append("ended"), go_on or self._go_on)
        self.answer.add_done_callback(lambda _: self.seen.append("told"))

    def _go_on(self):
        self.seen.append("went on")
        return 7


def test_what_comes_afterwards():
    async def scenario():
        story = Story()
        story.done.set_result(None)
        assert story.seen == []  # whoever is done is not called back into
        await asyncio.sleep(0)
        assert story.seen == ["ended", "went on", "told"]
        assert story.answer.result() == 7

    asyncio.run(scenario())


def test_what_comes_afterwards_may_have_to_wait_itself():
    async def scenario():
        second = asyncio.get_running_loop().create_future()
        story = Story(lambda: second)
        story.done.set_result(None)
        await asyncio.sleep(0)
        assert story.seen == ["ended"]
        second.set_result("late")
        assert await story.answer == "late"

    asyncio.run(scenario())


def test_what_comes_afterwards_may_fail_at_once_or_later():
    async def scenario():
        def fail():
            raise ValueError("at once")

        story = Story(fail)
        story.done.set_result(None)
        with pytest.raises(ValueError, match="at once"):
            await story.answer
        second = asyncio.get_running_loop().create_future()
        story = Story(lambda: second)
        story.done.set_result(None)
        second.set_exception(ValueError("later"))
        with pytest.raises(ValueError, match="later"):
            await story.answer

    asyncio.run(scenario())


def test_nobody_wants_to_know_what_comes_afterwards():
    async def scenario():
        story = Story()
        story.answer.cancel()
        assert story.done.cancelled()
        assert story.seen == ["ended", "told"]
        await asyncio.sleep(0)
        assert story.seen == ["ended", "told"]
        second = asyncio.get_running_loop().create_future()
        story = Story(lambda: second)
        story.done.set_result(None)
        await asyncio.sleep(0)
        story.answer.cancel()
        assert second.cancelled()
        await asyncio.sleep(0)
        assert story.seen == ["ended", "told"]

    asyncio.run(scenario())


def test_what_came_afterwards_was_given_up_by_others():
    async def scenario():
        second = asyncio.get_running_loop().create_future()
        story = Story(lambda: second)
        story.done.set_result(None)
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await story.answer

    asyncio.run(scenario())
