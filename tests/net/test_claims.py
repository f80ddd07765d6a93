"""The memory of requests and answers beside their bytes: it is claimed before it is taken, and who finds no
room waits for it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from net.nodes import VERSION, RawPeer, answer_beat, beat, encoded, wait_until
from net.test_budget import Flood
from quorate.net.budget import Budget
from quorate.net.eventual import Eventual
from quorate.net.routes import RequestContext, Route, Series
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import DescribeGroupsRequest, DescribeGroupsResponse, HeartbeatRequest
from quorate.protocol.bounds import item_bytes
from quorate.protocol.types import STRING

KIB, MIB = 1 << 10, 1 << 20
GROUPS = 8_000
CLAIMED_BYTES = GROUPS * item_bytes(STRING)
"""Of a request for so many groups, about half a megabyte."""
BESIDE_BYTES = 300_000  # what such a request has itself, and the next ones


def describe(correlation_id: int, count: int = GROUPS) -> bytes:
    request = DescribeGroupsRequest(groups=[f"group-{number:05}" for number in range(count)])
    return encoded(request, 4, correlation_id)


async def answer_id(peer: RawPeer) -> int:
    return int.from_bytes((await peer.frame())[:4], "big")


class Handler:
    """Answers when it is told to, and notes what was held when it was asked."""

    def __init__(self, budget: Budget, answer_bytes: int = 0) -> None:
        self.budget = budget
        self.answer_bytes = answer_bytes
        self.held: list[int] = []
        self.may_answer = asyncio.Event()

    def at_once(self, context: RequestContext, _header: Any, _request: Any) -> DescribeGroupsResponse:
        context.expect(self.answer_bytes)
        self.held.append(self.budget.used_bytes)
        return DescribeGroupsResponse(groups=[])

    async def later(self, context: RequestContext, header: Any, request: Any) -> DescribeGroupsResponse:
        answer = self.at_once(context, header, request)
        await self.may_answer.wait()
        return answer


def flood(budget: Budget, handler: Callable[..., Any], **limits: int) -> Flood:
    return Flood(
        budget, Route(DescribeGroupsRequest, handler), Route(HeartbeatRequest, answer_beat), **limits
    )


async def test_what_a_request_is_decoded_to_is_held_until_it_is_answered():
    budget = Budget(8 * MIB, 2 * MIB)
    handler = Handler(budget)
    async with flood(budget, handler.at_once) as server:
        (peer,) = await server.peers(1)
        peer.say(describe(7))
        assert await answer_id(peer) == 7
        assert handler.held[0] >= CLAIMED_BYTES
        await wait_until(lambda: budget.used_bytes == 0)


async def test_who_finds_no_room_waits_for_it():
    budget = Budget(CLAIMED_BYTES * 2 + BESIDE_BYTES, BESIDE_BYTES)
    handler = Handler(budget)
    async with flood(budget, handler.later) as server:
        one, other = await server.peers(2)
        one.say(describe(1))
        await wait_until(lambda: handler.held)
        other.say(describe(2))
        await wait_until(lambda: budget.waiting == 1)
        assert len(handler.held) == 1
        handler.may_answer.set()
        assert await answer_id(one) == 1
        assert await answer_id(other) == 2
        assert server.within()


async def test_what_waits_is_answered_in_order():
    budget = Budget(CLAIMED_BYTES * 2 + BESIDE_BYTES, BESIDE_BYTES)
    handler = Handler(budget)
    async with flood(budget, handler.later) as server:
        one, other = await server.peers(2)
        one.say(describe(1))
        await wait_until(lambda: handler.held)
        other.say(describe(2) + encoded(beat(), VERSION, 3) + describe(4, count=1))
        await wait_until(lambda: budget.waiting == 1)
        handler.may_answer.set()
        assert await answer_id(one) == 1
        assert [await answer_id(other) for _ in range(3)] == [2, 3, 4]


async def test_who_could_wait_for_ever_is_refused(caplog):
    budget = Budget(CLAIMED_BYTES // 2, 1)
    handler = Handler(budget)
    async with flood(budget, handler.at_once) as server:
        (peer,) = await server.peers(1)
        peer.say(describe(7))
        assert await peer.is_closed()
    assert handler.held == []
    assert "bytes of memory" in caplog.text


async def test_an_answer_that_could_not_be_sent_is_refused_before_it_is_built(caplog):
    handler = Handler(Budget(), answer_bytes=MIB + 1)
    async with flood(handler.budget, handler.at_once, response_bytes_max=MIB) as server:
        (peer,) = await server.peers(1)
        peer.say(describe(7, count=1))
        assert await peer.is_closed()
    assert handler.held == []
    (line,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert f"its answer would have some {MIB + 1} bytes" in line.getMessage()
    assert line.exc_info is None


async def test_a_large_answer_waits_for_room_too():
    budget = Budget(4 * MIB, MIB)
    for handle in ("at_once", "later"):
        waiting, handler = Handler(budget, MIB), Handler(budget, MIB)
        handler.may_answer.set()
        async with flood(budget, waiting.later) as holding, flood(budget, getattr(handler, handle)) as server:
            (one,), (other,) = await holding.peers(1), await server.peers(1)
            one.say(describe(1, count=1))
            await wait_until(lambda waiting=waiting: waiting.held)
            other.say(describe(2, count=1))
            await wait_until(lambda: budget.waiting == 1)
            assert handler.held == []
            waiting.may_answer.set()
            assert await answer_id(one) == 1
            assert await answer_id(other) == 2
            assert handler.held[0] >= 2 * MIB


async def test_who_has_all_the_room_there_is_does_not_wait_for_more():
    """The request behind it is held, too: together they are more than may be."""
    budget = Budget(4 * MIB, MIB)
    waiting, handler = Handler(budget, MIB), Handler(budget, MIB)
    async with flood(budget, waiting.later) as holding, flood(budget, handler.at_once) as server:
        (one,), (other,) = await holding.peers(1), await server.peers(1)
        one.say(describe(1, count=1))
        await wait_until(lambda: waiting.held)
        other.say(describe(2, count=1) + describe(3, count=1))
        await wait_until(lambda: budget.waiting == 1)
        waiting.may_answer.set()
        assert await answer_id(one) == 1
        assert [await answer_id(other) for _ in range(2)] == [2, 3]


class Growing:
    """Says only after a while how large its answer will be, and notes how often it was asked."""

    def __init__(self, answer_bytes: int) -> None:
        self.answer_bytes = answer_bytes
        self.asked = 0

    async def __call__(self, context: RequestContext, *_: Any) -> DescribeGroupsResponse:
        self.asked += 1
        await asyncio.sleep(0)
        context.expect(self.answer_bytes)
        await asyncio.sleep(0)
        return DescribeGroupsResponse(groups=[])


async def test_who_waits_is_not_asked_again_until_there_is_room():
    budget = Budget(4 * MIB, MIB)
    holder, growing = Handler(budget, MIB), Growing(MIB)
    async with flood(budget, holder.later) as holding, flood(budget, growing) as server:
        (one,), (other, third) = await holding.peers(1), await server.peers(2)
        one.say(describe(1, count=1))
        await wait_until(lambda: holder.held)
        other.say(describe(2, count=1))
        await wait_until(lambda: budget.waiting == 1)
        for number in range(100):  # many turns of the loop
            third.say(encoded(beat(), VERSION, number))
            assert await answer_id(third) == number
        assert growing.asked == 1
        holder.may_answer.set()
        assert await answer_id(one) == 1
        assert await answer_id(other) == 2
        assert growing.asked == 2
        await wait_until(lambda: budget.used_bytes == 0)


async def test_nothing_is_read_of_a_request_that_there_is_no_room_for_while_the_one_before_it_is_served():
    budget = Budget(4 * MIB, 100 * KIB)
    holder, handler = Handler(budget, 2 * MIB - 70 * KIB), Handler(budget)
    async with flood(budget, holder.later) as holding, flood(budget, handler.later) as server:
        (one,), (other,) = await holding.peers(1), await server.peers(1)
        one.say(describe(1, count=1))
        await wait_until(lambda: holder.held)
        large = describe(3, count=40_000)
        other.say(describe(2, count=2_000) + large[: 8 * KIB])
        await wait_until(lambda: budget.waiting == 1)
        other.say(large[8 * KIB :])
        holder.may_answer.set()
        assert await answer_id(one) == 1
        await wait_until(lambda: handler.held)
        handler.may_answer.set()
        assert await answer_id(other) == 2
        assert await answer_id(other) == 3


async def test_a_request_that_waits_again_is_the_one_that_was_asked_last():
    budget = Budget(4 * MIB, MIB)
    holder, growing = Handler(budget, MIB), Growing(MIB)

    def handle(context: RequestContext, header: RequestHeader, request: Any) -> Any:
        if header.correlation_id != 2:
            return growing(context, header, request)
        answer: Eventual[DescribeGroupsResponse] = Eventual()
        answer.set_result(DescribeGroupsResponse(groups=[]))
        return answer

    async with flood(budget, holder.later) as holding, flood(budget, handle) as server:
        (one,), (other,) = await holding.peers(1), await server.peers(1)
        one.say(describe(1, count=1))
        await wait_until(lambda: holder.held)
        other.say(describe(2, count=1) + describe(3, count=1))
        assert await answer_id(other) == 2
        await wait_until(lambda: budget.waiting == 1)
        holder.may_answer.set()
        assert await answer_id(other) == 3


async def test_requests_that_take_much_memory_are_not_answered_together():
    budget = Budget(8 * MIB, 2 * MIB)
    handler = Handler(budget)
    together: list[int] = []

    def several(_context: RequestContext, requests: Any) -> list[DescribeGroupsResponse]:
        together.append(len(requests))
        return [DescribeGroupsResponse(groups=[]) for _ in requests]

    series = Series(lambda *_: True, several)
    async with Flood(budget, Route(DescribeGroupsRequest, handler.at_once, series=series)) as server:
        (peer,) = await server.peers(1)
        peer.say(b"".join(describe(number, count=2_000) for number in range(6)))
        assert [await answer_id(peer) for _ in range(6)] == list(range(6))
        peer.say(b"".join(describe(number, count=2) for number in range(6)))
        assert [await answer_id(peer) for _ in range(6)] == list(range(6))
    assert together == [6]
