"""Requests that a peer sends again in the same words."""

import asyncio

from nodes import VERSION, beat, encoded, raw, serving

from quorate.net.repetition import REPEATED_BYTES_MAX, REPEATED_MAX
from quorate.net.routes import Route, RouteTable, throttle_time_ms
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.errors import ApiError, ErrorCode

TAKEN = HeartbeatResponse(error_code=ErrorCode.NONE)


class Coordinator:
    """Takes heartbeats, until told to do something else. Those of generation 99 it does not know again."""

    def __init__(self):
        self.seen = []  # who asked, and what
        self.again = 0  # how often it knew one without being asked
        self.next_answers = []
        self.route = Route(HeartbeatRequest, self, again=self.find_again)

    def find_again(self, _context, _header, request, answer):
        assert answer.__key__ == HeartbeatRequest.__key__
        return None if request.generation_id == 99 else self.is_taken_again

    def is_taken_again(self):
        if self.next_answers:
            return False
        self.again += 1
        return True

    def __call__(self, context, header, request):
        self.seen.append((context.client_id, header.correlation_id, request.generation_id))
        answer = self.next_answers.pop(0) if self.next_answers else TAKEN
        if isinstance(answer, Exception):
            raise answer
        return answer


async def beats(peer, *correlation_ids, generation=1, client_id="me", version=VERSION):
    """One after the other, each sent when the one before was answered. The errors that were answered."""
    found = []
    for number in correlation_ids:
        peer.say(encoded(beat(generation), version, number, client_id))
        answered, response = await peer.response(HeartbeatRequest.__key__, version)
        assert answered == number
        found.append(response.error_code)
    return found


async def test_what_is_said_again_is_decoded_once_and_answered_each_time():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        assert await beats(peer, 1, 2, -3, 2**31 - 1) == [0, 0, 0, 0]
        counters = server.counters
        assert counters.requests == 4
        assert counters.bytes_received == 4 * len(encoded(beat(1), VERSION, 1, "me"))
    assert coordinator.seen == [("me", 1, 1)]
    assert coordinator.again == 3


async def test_whatever_differs_is_decoded():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        await beats(peer, 1, 2)
        await beats(peer, 3, generation=2)
        await beats(peer, 4, generation=2, client_id="us")
        await beats(peer, 5, generation=2, client_id="us", version=3)
        await beats(peer, 6, generation=1)  # the first was not forgotten
    assert coordinator.seen == [("me", 1, 1), ("me", 3, 2), ("us", 4, 2), ("us", 5, 2)]
    assert coordinator.again == 2


async def test_another_answer_is_given_to_the_same_words():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        assert await beats(peer, 1, 2) == [0, 0]
        coordinator.next_answers = [HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)]
        assert await beats(peer, 3, 4, 5) == [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    assert [number for _, number, _ in coordinator.seen] == [1, 3]


async def test_an_answer_that_has_to_be_waited_for_is_waited_for():
    coordinator = Coordinator()
    answer = asyncio.get_running_loop().create_future()
    async with serving(coordinator.route) as server, raw(server) as peer:
        await beats(peer, 1)
        coordinator.next_answers = [answer]
        peer.say(encoded(beat(1), VERSION, 2, "me") * 2)
        while len(coordinator.seen) < 2:
            await asyncio.sleep(0)
        answer.set_result(TAKEN)
        assert [one for one, _ in await peer.beats(2)] == [2, 2]
        assert server.counters.requests == 3


async def test_a_handler_that_fails_ends_the_connection():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        await beats(peer, 1, 2)
        coordinator.next_answers = [ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)]
        peer.say(encoded(beat(1), VERSION, 3, "me"))
        assert await peer.is_closed()
        assert server.counters.failed == 1


async def test_so_does_one_that_fails_to_know_it_again():
    def fails():
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)

    async with (
        serving(Route(HeartbeatRequest, lambda *_: TAKEN, again=lambda *_: fails)) as server,
        raw(server) as peer,
    ):
        await beats(peer, 1)
        peer.say(encoded(beat(1), VERSION, 2, "me"))
        assert await peer.is_closed()
        assert server.counters.failed == 1


async def test_several_that_came_together_or_in_pieces_are_told_apart():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        await beats(peer, 1, 2)
        peer.say(b"".join(encoded(beat(1), VERSION, number, "me") for number in (3, 4, 5)))
        assert [one for one, _ in await peer.beats(3)] == [3, 4, 5]
        whole = encoded(beat(1), VERSION, 6, "me")
        for size in (2, 9, len(whole) - 1):
            peer.say(whole[:size])
            received = server.counters.bytes_received + size
            while server.counters.bytes_received < received:
                await asyncio.sleep(0)
            peer.say(whole[size:])
            assert [one for one, _ in await peer.beats(1)] == [6]
    assert coordinator.again == 7


async def test_what_is_unlikely_to_come_again_is_not_remembered():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        await beats(peer, 1, 2, generation=99)
        for number in (3, 4):
            peer.say(encoded(beat(1, "m" * REPEATED_BYTES_MAX), VERSION, number))
            await peer.beats(1)
    assert len(coordinator.seen) == 4


async def test_other_routes_are_asked_from_then_on():
    before, after = Coordinator(), Coordinator()
    async with serving(before.route) as server, raw(server) as peer:
        await beats(peer, 1, 2)
        server.routes = RouteTable([after.route])
        await beats(peer, 3, 4)
    assert [(len(one.seen), one.again) for one in (before, after)] == [(1, 1), (1, 1)]


async def test_who_has_to_be_quiet_is_not_listened_to():
    coordinator = Coordinator()
    coordinator.next_answers = [HeartbeatResponse(error_code=0, throttle_time_ms=1)] * 3
    async with serving(coordinator.route) as server:
        server.throttle_time_ms = throttle_time_ms
        async with raw(server) as peer:
            await beats(peer, 1, 2, 3)
    assert len(coordinator.seen) == 3


async def test_a_connection_may_speak_for_several_members_but_not_for_any_number():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        for _ in range(2):
            for generation in range(1, REPEATED_MAX + 1):
                await beats(peer, 1, generation=generation)
        assert len(coordinator.seen) == REPEATED_MAX
        await beats(peer, 1, generation=REPEATED_MAX + 1)  # now all others are forgotten
        await beats(peer, 1, generation=1)
    assert len(coordinator.seen) == REPEATED_MAX + 2
