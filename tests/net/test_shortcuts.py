"""Requests that are served without being decoded."""

import asyncio

from nodes import VERSION, beat, encoded, raw, serving

from quorate.net.eventual import Eventual
from quorate.net.routes import Route, RouteTable
from quorate.net.shortcuts import Said, Usual
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.frame import decode_request, encode_response

KEY = HeartbeatRequest.__key__


def answer(code):
    return HeartbeatResponse(error_code=code)


class Known:
    """A shortcut for heartbeats of generation 1, and what a connection has shown it."""

    def __init__(self):
        self.learnt = []
        self.shown = []
        self.serve_one = self.answer_one

    def learn(self, context, header, request, said, frame):
        buffer, begin, end = frame
        assert decode_request(bytes(buffer[begin:end]))[1] == request
        self.learnt.append((context.client_id, header.correlation_id, said.error_code))

    def serve(self, _context, frames):
        self.shown.append(len(frames))
        found = []
        for buffer, begin, end in frames:
            header, request = decode_request(bytes(buffer[begin:end]))
            if request.generation_id != 1:
                break
            said = self.serve_one(header)
            if isinstance(said, Said):
                return found or said
            found.append(said)
        return found or None

    def answer_one(self, header):
        return bytes(encode_response(answer(11), VERSION, header.correlation_id))


class Coordinator:
    def __init__(self):
        self.known = Known()
        self.asked = []
        self.route = Route(HeartbeatRequest, self, shortcut=lambda: self.known)

    def __call__(self, _context, header, _request):
        self.asked.append(header.correlation_id)
        return answer(22)


def said(number, generation=1):
    return encoded(beat(generation), VERSION, number, "me")


async def answers(peer, count):
    found = []
    for _ in range(count):
        number, response = await peer.response(KEY, VERSION)
        found.append((number, response.error_code))
    return found


async def test_a_connection_learns_from_the_first_and_then_asks_its_shortcut():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        for number in (1, 2, 3):
            peer.say(said(number))
            (found,) = await answers(peer, 1)
            assert found == (number, 22 if number == 1 else 11)
        assert server.counters.requests == 3
    assert coordinator.known.learnt == [("me", 1, 22)]
    assert coordinator.asked == [1]


async def test_what_it_does_not_know_goes_the_long_way_in_order():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        peer.say(said(0))
        await answers(peer, 1)
        peer.say(b"".join(said(number, 2 if number in (3, 4) else 1) for number in range(1, 7)))
        found = await answers(peer, 6)
        assert found == [(number, 22 if number in (3, 4) else 11) for number in range(1, 7)]
        assert server.counters.requests == 7
    assert coordinator.asked == [0, 3, 4]
    assert coordinator.known.shown[0] == 6


async def test_an_answer_may_come_later_and_holds_up_what_is_behind_it():
    coordinator = Coordinator()
    known = coordinator.known
    usual = Usual(answer(0), encode_response(answer(0), VERSION, 0))
    waiting = []

    def later(header):
        waiting.append(Eventual())
        return Said(header, waiting[-1], usual)

    async with serving(coordinator.route) as server, raw(server) as peer:
        peer.say(said(0))
        await answers(peer, 1)
        known.serve_one = later
        for at, given in enumerate((usual.answer, answer(7))):
            peer.say(said(10 * at + 1) + said(10 * at + 2, 2))
            while len(waiting) == at:
                await asyncio.sleep(0)
            assert coordinator.asked[-1] != 10 * at + 2
            waiting[at].set_result(given)
            assert await answers(peer, 2) == [(10 * at + 1, given.error_code), (10 * at + 2, 22)]
        assert server.counters.requests == 5


async def test_one_that_is_lost_is_given_up():
    coordinator = Coordinator()
    eventual = Eventual()
    async with serving(coordinator.route) as server:
        async with raw(server) as peer:
            peer.say(said(0))
            await answers(peer, 1)
            coordinator.known.serve_one = lambda header: Said(header, eventual)
            peer.say(said(1))
            while not coordinator.known.shown:
                await asyncio.sleep(0)
            peer.reset()
        while server.connections:
            await asyncio.sleep(0)
        assert eventual.cancelled()


async def test_a_shortcut_that_fails_ends_the_connection(caplog):
    coordinator = Coordinator()

    def fail(_):
        raise RuntimeError("a bug")

    async with serving(coordinator.route) as server, raw(server) as peer:
        for at, data in enumerate((said(1), said(1) + said(2))):
            async with raw(server) as one:
                one.say(said(0))
                await answers(one, 1)
                coordinator.known.serve_one = fail
                one.say(data)
                assert await one.is_closed()
                coordinator.known.serve_one = coordinator.known.answer_one
            assert server.counters.failed == at + 1
        assert "a bug" in caplog.text
        peer.say(said(3))
        assert await answers(peer, 1) == [(3, 22)]


async def test_other_routes_have_other_shortcuts():
    coordinator = Coordinator()
    async with serving(coordinator.route) as server, raw(server) as peer:
        peer.say(said(1))
        await answers(peer, 1)
        server.routes = RouteTable([Route(HeartbeatRequest, lambda *_: answer(33))])
        peer.say(said(2) + said(3))
        assert await answers(peer, 2) == [(2, 33), (3, 33)]
