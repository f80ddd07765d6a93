"""Answers of several connections that leave together."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from nodes import VERSION, beat, encoded, raw, serving

from quorate.net.conversation import Conversation
from quorate.net.crowding import ALONE_MAX
from quorate.net.departures import TOGETHER_MAX, Departures
from quorate.net.routes import Route, RouteTable
from quorate.net.server import Server
from quorate.protocol import frame
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse

TAKEN = HeartbeatResponse(error_code=0)
OTHER = HeartbeatResponse(error_code=27)


class Waiting:
    def __init__(self, number, left):
        self.flush = lambda: left.append(number)


def crowded(departures, left):
    """As it is after some have left together."""
    for number in range(TOGETHER_MAX):
        departures.add(Waiting(number, left))


async def test_those_of_one_turn_leave_when_it_ends():
    left, counted = [], []
    departures = Departures(lambda: counted.append(list(left)))
    for number in range(3):
        departures.add(Waiting(number, left))
    assert left == []
    await asyncio.sleep(0)
    assert left == [0, 1, 2]
    assert counted == [[0, 1, 2]]
    assert departures.crowding.is_expected()


async def test_several_answers_of_one_connection_are_no_crowd():
    departures, left = Departures(None), []
    one = Waiting(1, left)
    for _ in range(TOGETHER_MAX):
        departures.add(one)
    await asyncio.sleep(0)
    assert left == [1]
    assert not departures.crowding.is_expected()


async def test_so_many_leave_at_once_and_those_behind_them_when_the_turn_ends():
    left = []
    departures = Departures(None)
    for number in range(TOGETHER_MAX + 2):
        departures.add(Waiting(number, left))
    assert left == list(range(TOGETHER_MAX))
    await asyncio.sleep(0)
    assert left == list(range(TOGETHER_MAX + 2))


async def test_who_comes_alone_waits_only_now_and_then():
    departures, left = Departures(None), []
    waited = 0
    for number in range(10 * (ALONE_MAX + 1)):
        if departures.crowding.is_expected():
            waited += 1
            departures.add(Waiting(number, left))
            await asyncio.sleep(0)
    assert waited == len(left) == 10


async def test_when_nobody_comes_with_them_any_more_they_leave_alone_again():
    departures, left = Departures(None), []
    crowded(departures, left)
    assert departures.crowding.is_expected()
    departures.add(Waiting(99, left))
    await asyncio.sleep(0)
    assert left[-1] == 99
    assert not departures.crowding.is_expected()


# On connections


class Transport:
    """Takes what is written, piece by piece."""

    def __init__(self):
        self.written = []
        self.is_closed = False

    def get_extra_info(self, _name):
        return None

    def set_write_buffer_limits(self, **_):
        pass

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        assert not self.is_closed
        self.written.append(bytes(data))

    def writelines(self, parts):
        self.write(b"".join(parts))

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

    def pause_reading(self):
        pass

    resume_reading = pause_reading


class Peer:
    """A connection that has been answered once, so that its heartbeat is known."""

    def __init__(self, server):
        self.transport = Transport()
        self.conversation = Conversation(server, asyncio.get_running_loop())
        self.conversation.connection_made(self.transport)
        self.say(0)
        assert self.answered() == [0]

    def say(self, *numbers, generation=1):
        data = b"".join(encoded(beat(generation), VERSION, number, "me") for number in numbers)
        buffer = self.conversation.get_buffer(-1)
        buffer[: len(data)] = data
        self.conversation.buffer_updated(len(data))

    def answered(self):
        """The correlation ids of all answers so far."""
        data, found = b"".join(self.transport.written), []
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            found.append(
                frame.decode_response(HeartbeatRequest.__key__, VERSION, data[4:size])[0].correlation_id
            )
            data = data[size:]
        return found


@contextmanager
def crowd(number) -> Iterator[list[Peer]]:
    """Connections of which several had something to say in one turn."""
    route = Route(
        HeartbeatRequest,
        lambda _context, _header, request: TAKEN if request.generation_id == 1 else OTHER,
        again=lambda _context, _header, request, _answer: lambda: request.generation_id == 1,
    )
    server = Server("TEST", RouteTable([route]))
    peers = [Peer(server) for _ in range(number)]
    crowded(server.departures, [])
    yield peers
    for peer in peers:
        peer.conversation.connection_lost(None)
    assert server.connections == 0


async def test_answers_leave_in_the_order_of_their_requests():
    with crowd(2) as (one, other):
        one.say(1)
        other.say(1)
        assert (one.answered(), other.answered()) == ([0], [0])
        one.say(2)
        one.say(3, generation=2)  # the long way
        one.say(4)
        await asyncio.sleep(0)
        assert (one.answered(), other.answered()) == ([0, 1, 2, 3, 4], [0, 1])


async def test_an_answer_leaves_before_its_connection_ends():
    with crowd(3) as (finished, half_closed, lost):
        for peer in (finished, half_closed, lost):
            peer.say(1)
        finished.conversation.finish()
        assert finished.answered() == [0, 1]
        assert finished.transport.is_closed
        assert not half_closed.conversation.eof_received()  # so the transport closes, with all it was given
        assert half_closed.answered() == [0, 1]
        lost.conversation.connection_lost(None)
        await asyncio.sleep(0)
        assert lost.answered() == [0]


async def test_many_clients_are_answered():
    route = Route(HeartbeatRequest, lambda *_: TAKEN, again=lambda *_: lambda: True)

    async def talk(server, client):
        async with raw(server) as peer:
            for number in range(200):
                peer.say(encoded(beat(1), VERSION, 1000 * client + number, "me"))
                assert (await peer.response(HeartbeatRequest.__key__, VERSION))[0] == 1000 * client + number

    async with serving(route) as server:
        async with asyncio.TaskGroup() as group:
            for client in range(20):
                group.create_task(talk(server, client))
        assert server.counters.requests == 4000


async def test_one_that_cannot_leave_keeps_no_other_back():
    seen, left = [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
    departures, broken = Departures(None), Waiting(0, left)
    broken.flush = lambda: 1 / 0
    for one in (broken, Waiting(1, left)):
        departures.add(one)
    await asyncio.sleep(0)
    assert left == [1]
    assert [type(one) for one in seen] == [ZeroDivisionError]
