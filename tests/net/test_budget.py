"""The memory of all connections together: floods of large requests, slow peers, and who goes first."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from net.nodes import (
    LARGE_VERSION,
    VERSION,
    answer_beat,
    beat,
    encoded,
    raw,
    serving,
    wait_until,
)
from quorate.net.admitted import Admitted, ConnectionLimits
from quorate.net.budget import SLACK_BYTES, Budget
from quorate.net.framing import SHORT_READ_BYTES
from quorate.net.limits import Limits
from quorate.net.routes import Route, RouteTable
from quorate.net.server import Server
from quorate.protocol.api.groups import (
    HeartbeatRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

KIB, MIB = 1 << 10, 1 << 20
PEERS = 24


def large(size_bytes: int) -> bytes:
    """A request of that size, as it is sent."""
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="m",
        protocol_type="p",
        protocol_name="n",
        assignments=[SyncGroupRequest.Assignment(member_id="m", assignment=bytes(size_bytes))],
    )
    return encoded(request, LARGE_VERSION, 1)


def answer_small(*_):
    return SyncGroupResponse(error_code=0, protocol_name="p", assignment=b"")


class Flood:
    """A server with a budget, and peers."""

    def __init__(self, budget: Budget, *routes: Route, **limits: int) -> None:
        self.budget = budget
        table = RouteTable(
            routes or [Route(HeartbeatRequest, answer_beat), Route(SyncGroupRequest, answer_small)]
        )
        settings = {"frame_bytes_at_once": 64 * KIB, "request_bytes_max": 2 * MIB} | limits
        self.server = Server("TEST", table, limits=Limits(**settings), budget=budget)
        self._closing = AsyncExitStack()

    async def __aenter__(self):
        await self.server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        await self._closing.aclose()
        await self.server.close(timeout_ms=0)
        assert self.budget.used_bytes == 0
        assert self.budget.waiting == 0

    async def peers(self, count: int):
        return [await self._closing.enter_async_context(raw(self.server)) for _ in range(count)]

    def within(self) -> bool:
        slack_bytes = self.server.connections * 2 * SHORT_READ_BYTES
        return self.budget.peak_bytes <= self.budget.limit_bytes + slack_bytes


async def test_without_a_flood_nobody_holds_anything():
    async with Flood(Budget(4 * MIB, 2 * MIB)) as flood:
        (peer,) = await flood.peers(1)
        peer.ask_beats(range(200))
        assert len(await peer.beats(200)) == 200
        assert flood.budget.peak_bytes <= SLACK_BYTES * 4


async def test_a_flood_of_large_requests_is_served_within_the_budget():
    async with Flood(Budget(4 * MIB, 2 * MIB)) as flood:
        peers = await flood.peers(PEERS)
        request = large(MIB)
        for peer in peers:
            peer.say(request)
        answers = await asyncio.gather(*(peer.frame() for peer in peers))
        assert len(answers) == PEERS
        assert flood.within()
        assert flood.budget.peak_bytes > MIB
        assert flood.budget.shed == 0


async def test_requests_that_arrive_bit_by_bit_are_all_completed():
    """Together they are more than the budget: half complete they would wait for each other for ever."""
    async with Flood(Budget(4 * MIB, 2 * MIB)) as flood:
        peers = await flood.peers(PEERS)
        request = large(MIB)

        async def trickle(peer):
            for begin in range(0, len(request), 32 * KIB):
                peer.say(request[begin : begin + 32 * KIB])
                await asyncio.sleep(0)
            return await peer.frame()

        assert len(await asyncio.gather(*map(trickle, peers))) == PEERS
        assert flood.within()
        assert flood.budget.shed == 0


async def test_small_requests_go_on_while_large_ones_wait():
    async with Flood(Budget(4 * MIB, 2 * MIB)) as flood:
        *peers, other = await flood.peers(PEERS)
        announced = large(MIB)
        for peer in peers:
            peer.say(announced[: 512 * KIB])  # and not the rest
        await wait_until(lambda: flood.budget.is_short and flood.budget.waiting)
        other.ask_beats(range(20))
        assert len(await other.beats(20)) == 20
        for peer in peers:
            peer.say(announced[512 * KIB :])
        await asyncio.gather(*(peer.frame() for peer in peers))
        assert flood.within()


async def test_peers_that_announce_and_do_not_send_are_ended_when_others_need_the_memory():
    budget = Budget(4 * MIB, 2 * MIB, patience_ms=50)
    async with Flood(budget) as flood:
        *silent, honest = await flood.peers(PEERS)
        for peer in silent:
            peer.say(large(MIB)[: 200 * KIB])
        await wait_until(lambda: budget.waiting)
        honest.say(large(MIB))
        await honest.frame()
        assert budget.shed > 0
        assert flood.within()


async def test_nobody_is_ended_while_nobody_waits():
    budget = Budget(64 * MIB, 2 * MIB, patience_ms=1)
    async with Flood(budget) as flood:
        peers = await flood.peers(3)
        for peer in peers:
            peer.say(large(MIB)[: 200 * KIB])
        await wait_until(lambda: budget.used_bytes >= 3 * 200 * KIB)
        other = (await flood.peers(1))[0]
        for _ in range(20):
            other.ask_beats(range(1))
            await other.beats(1)
        assert budget.shed == 0
        assert flood.server.connections == 4


async def test_parked_requests_hold_what_they_brought():
    release = asyncio.Event()

    async def park(*_):
        await release.wait()
        return answer_small()

    budget = Budget(8 * MIB, 2 * MIB)
    async with Flood(budget, Route(SyncGroupRequest, park)) as flood:
        peers = await flood.peers(3)
        for peer in peers:
            peer.say(large(MIB))
        await wait_until(lambda: budget.used_bytes >= 3 * MIB)
        release.set()
        await asyncio.gather(*(peer.frame() for peer in peers))
        await wait_until(lambda: budget.used_bytes == 0)


async def test_slow_readers_are_accounted_and_ended_when_there_is_no_room():
    """A small request has a large answer: beyond the budget the next has to wait, and who does not read
    goes."""
    answer = SyncGroupResponse(error_code=0, protocol_name="p", assignment=bytes(3 * MIB))
    budget = Budget(16 * MIB, 2 * MIB, patience_ms=50)
    routes = Route(SyncGroupRequest, lambda *_: answer), Route(HeartbeatRequest, answer_beat)
    async with Flood(budget, *routes) as flood:
        readers = await flood.peers(PEERS)
        for peer in readers:
            peer.reader._limit = 1000  # it stops reading soon
            peer.say(large(10) * 3)
        await wait_until(lambda: budget.shed)
        (other,) = await flood.peers(1)
        other.ask_beats(range(5))
        assert len(await other.beats(5)) == 5
        # What was under way when it was noticed is one answer.
        assert budget.peak_bytes <= budget.limit_bytes + 3 * MIB + PEERS * SLACK_BYTES


async def test_half_open_connections_give_everything_back():
    budget = Budget(4 * MIB, 2 * MIB)
    async with Flood(budget, idle_ms_max=50) as flood:
        for peer in await flood.peers(8):
            peer.say(large(MIB)[: 300 * KIB])
        await wait_until(lambda: budget.used_bytes)
        await wait_until(lambda: not flood.server.connections)
        assert budget.used_bytes == 0


async def test_a_peer_that_is_gone_does_not_keep_its_turn():
    budget = Budget(4 * MIB, 2 * MIB)
    async with Flood(budget) as flood:
        *others, last = await flood.peers(10)
        for peer in others:
            peer.say(large(MIB)[: 600 * KIB])
        await wait_until(lambda: budget.waiting)
        for peer in others:
            peer.reset()
        last.say(large(MIB))
        await last.frame()
        await wait_until(lambda: not budget.waiting)


async def test_a_budget_may_be_no_larger_than_one_request():
    budget = Budget(2 * MIB, MIB, patience_ms=200)
    async with Flood(budget, request_bytes_max=2 * MIB) as flood:
        peers = await flood.peers(4)
        for peer in peers:
            peer.say(large(MIB))
        answers = await asyncio.gather(*(peer.frame() for peer in peers), return_exceptions=True)
        assert any(isinstance(one, bytes) for one in answers)
        assert flood.within()


async def test_a_pipeline_of_small_requests_is_bounded_while_memory_is_short():
    release = asyncio.Event()

    async def park(*_):
        await release.wait()
        return answer_beat(None, None, beat())

    budget = Budget(4 * MIB, 2 * MIB)
    routes = Route(HeartbeatRequest, park), Route(SyncGroupRequest, answer_small)
    async with Flood(budget, *routes) as flood:
        *hogs, pipelining = await flood.peers(10)
        for peer in hogs:
            peer.say(large(MIB)[: 600 * KIB])
        await wait_until(lambda: budget.is_short)
        pipelining.ask_beats(range(5000))
        for _ in range(50):
            await asyncio.sleep(0)
        assert flood.within()
        for peer in hogs:
            peer.reset()
        release.set()
        assert len(await pipelining.beats(5000)) == 5000


# Connections from one address


async def test_connections_from_one_address_are_limited():
    admitted = Admitted(ConnectionLimits(per_address_max=2))
    async with serving(admitted=admitted) as server, raw(server) as one, raw(server) as other:
        one.ask_beats(range(1))
        other.ask_beats(range(1))
        await one.beats(1)
        await other.beats(1)
        async with raw(server) as third:
            assert await third.is_closed()
        assert server.counters.connections_refused == 1
        other.reset()
        await wait_until(lambda: server.connections == 1)
        async with raw(server) as fourth:
            fourth.ask_beats(range(1))
            await fourth.beats(1)


# The rules by themselves


class Holder:
    """Somebody who wants so much."""

    def __init__(self, wanted_bytes: int) -> None:
        self.held_bytes = 0
        self.wanted = wanted_bytes
        self.is_gone_on = False

    def measure(self) -> int:
        return self.held_bytes

    def wanted_bytes(self) -> int:
        return self.wanted

    def go_on(self) -> None:
        self.is_gone_on = True

    def stall(self, _now: float, _patience_s: float) -> None:
        return None

    def shed(self, reason: str) -> None:
        raise AssertionError(reason)


async def test_nobody_overtakes_and_the_first_has_a_part_of_its_own():
    budget = Budget(10 * MIB, 2 * MIB)
    hog, first, second, small = Holder(0), Holder(2 * MIB), Holder(2 * MIB), Holder(64 * KIB)
    budget.settle(hog, 8 * MIB)
    for one in (first, second, small):
        budget.wait(one)
    assert (first.is_gone_on, second.is_gone_on, small.is_gone_on) == (True, False, False)
    budget.settle(first, 2 * MIB)
    budget.done(first)
    assert not second.is_gone_on  # what the first holds is still held
    budget.settle(hog, 5 * MIB)
    assert (second.is_gone_on, small.is_gone_on) == (True, True)
    for one in (hog, first, second, small):
        budget.forget(one)
    assert budget.used_bytes == 0


async def test_what_is_set_aside_is_not_there():
    budget = Budget(10 * MIB, 2 * MIB)
    assert budget.fits(8 * MIB)
    budget.set_aside(3 * MIB)
    assert not budget.fits(8 * MIB)
    assert budget.fits(5 * MIB)
    budget.set_aside(100 * MIB)  # half is left, whatever others need
    assert budget.limit_bytes == 5 * MIB


@pytest.mark.parametrize("count", [1, 7])
async def test_queued_requests_tell_how_long_they_waited(count):
    waited = []
    release = asyncio.Event()

    async def park(_context, _header, request):
        await release.wait()
        return answer_beat(None, None, request)

    async with serving(Route(HeartbeatRequest, park)) as server, raw(server) as peer:
        server.when_queued = lambda route, ms: waited.append((route, ms))
        peer.ask_beats(range(count + 1))
        await wait_until(lambda: server.counters.requests == 1)
        await wait_until(
            lambda: server.counters.bytes_received >= (count + 1) * len(encoded(beat(), VERSION, 0))
        )
        release.set()
        await peer.beats(count + 1)
        assert len(waited) == count
        assert {route >> 16 for route, _ in waited} == {HeartbeatRequest.__key__}
        assert all(ms >= 0 for _, ms in waited)
