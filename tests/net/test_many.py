"""Answers for each of many items: how often they are made, what they come to, and what is told before."""

import asyncio

import pytest

from quorate.net.eventual import Eventual
from quorate.net.many import FEW, answers_for_each
from quorate.net.routes import RequestContext
from quorate.net.slices import in_slices
from quorate.protocol.api.groups import DeleteGroupsResponse
from quorate.protocol.codec import decode, encode

Result = DeleteGroupsResponse.DeletableGroupResult
KIND = Result, DeleteGroupsResponse, 2


class Asked:
    def __init__(self):
        self.made = []
        self.expected = []
        self.context = RequestContext("PLAINTEXT", "", 0, "", expect=self.expected.append)

    def answer(self, name):
        self.made.append(name)
        return Result(group_id=name, error_code=len(name))

    async def ask(self, names, key=str, answer=None):
        def work():
            results = yield from answers_for_each(self.context, names, answer or self.answer, KIND, key)
            return DeleteGroupsResponse(throttle_time_ms=0, results=results)

        made = in_slices(work())
        response = await made if isinstance(made, Eventual) else made
        return [one.group_id for one in decode(DeleteGroupsResponse, 2, encode(response, 2)).results]


@pytest.mark.parametrize("times", [1, FEW, FEW + 1, 30 * FEW])
def test_every_item_is_answered_in_its_place(times):
    names = ["a", "bb", "a"] * times
    asked = Asked()
    assert asyncio.run(asked.ask(names)) == names


def test_what_is_named_again_is_answered_as_before():
    asked = Asked()
    asyncio.run(asked.ask(["a", "bb"] * 10 * FEW))
    assert asked.made == ["a", "bb"]


def test_without_a_key_each_is_an_item_of_its_own():
    asked = Asked()
    asyncio.run(asked.ask(["a"] * 2 * FEW, key=None))
    assert asked.made == ["a"] * 2 * FEW


def test_what_the_answer_comes_to_is_told_when_a_few_items_are_there():
    asked = Asked()
    names = ["a"] * 10 * FEW
    asyncio.run(asked.ask(names))
    [expected_bytes] = asked.expected
    assert expected_bytes == len(names) * len(
        encode(DeleteGroupsResponse(throttle_time_ms=0, results=[asked.answer("a")]), 2)
    ) - 6 * len(names)


def test_it_is_told_again_when_it_comes_to_much_more():
    asked = Asked()
    asyncio.run(asked.ask([f"{number:{1 if number < 5 * FEW else 1000}}" for number in range(10 * FEW)]))
    assert len(asked.expected) > 1
    assert asked.expected == sorted(asked.expected)


def test_nothing_more_is_made_of_an_answer_that_cannot_be_sent():
    class TooLargeError(Exception):
        pass

    def refuse(_):
        raise TooLargeError

    asked = Asked()
    asked.context = RequestContext("PLAINTEXT", "", 0, "", expect=refuse)
    with pytest.raises(TooLargeError):
        asyncio.run(asked.ask([str(number) for number in range(10 * FEW)]))
    assert len(asked.made) == FEW


@pytest.mark.parametrize("times", [1, FEW])
def test_answers_may_have_to_be_waited_for(times):
    async def later(name):
        await asyncio.sleep(0)
        return Result(group_id=name, error_code=0)

    names = ["a", "b"] * times
    assert asyncio.run(Asked().ask(names, answer=later)) == names


def turns(names, size_bytes):
    """In how many turns of the loop so many are answered whose answers are so large."""

    async def count():
        asked = Asked()
        answered = asyncio.ensure_future(
            asked.ask(names, answer=lambda name: Result(group_id=name.ljust(size_bytes), error_code=0))
        )
        number = 0
        while not answered.done():
            await asyncio.sleep(0)
            number += 1
        return number

    return asyncio.run(count())


@pytest.mark.parametrize("count", [FEW, 2 * FEW])
def test_large_items_are_made_a_few_in_a_turn(count):
    names = [str(number) for number in range(count)]
    assert turns(names, 30_000) >= count // 10
    assert turns(names[:9], 30_000) < 5
