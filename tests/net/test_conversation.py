"""A conversation without a socket. Whatever bytes come in, it answers, waits or closes; it never raises."""

import asyncio
import logging
import random
import struct

from nodes import VERSION, answer_beat, beat, encoded

from quorate.net.conversation import Conversation
from quorate.net.routes import Route, RouteTable, Series
from quorate.net.server import Server
from quorate.protocol.api.groups import HeartbeatRequest
from quorate.protocol.api.topics import MetadataRequest

ROUNDS = 3000


class Transport:
    """Takes everything, and remembers whether it was closed."""

    def __init__(self) -> None:
        self.written = 0
        self.closed = False

    def get_extra_info(self, _name):
        return None  # as for a peer that is gone already

    def set_write_buffer_limits(self, **_) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += len(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        assert not self.closed

    resume_reading = pause_reading


def damaged(rng: random.Random) -> bytes:
    """Some good requests, with bytes changed, removed and added."""
    data = bytearray()
    for i in range(rng.randrange(1, 5)):
        request, version = rng.choice([(beat(i), VERSION), (MetadataRequest(topics=None), 9)])
        data += encoded(request, version, i)
    for _ in range(rng.randrange(4)):
        position = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[position] = rng.randrange(256)
        elif kind == 1:
            del data[position : position + rng.randrange(1, 9)]
        elif kind == 2:
            data[position:position] = rng.randbytes(rng.randrange(9))
        else:
            data[position:position] = struct.pack(">ihh", rng.randrange(-2, 40), rng.randrange(20), 5)
        data = data or bytearray(b"\0")
    return bytes(data)


async def test_any_bytes():
    rng = random.Random(1)
    quiet = logging.Logger("quiet")
    quiet.disabled = True
    server = Server("FUZZ", RouteTable([Route(HeartbeatRequest, answer_beat)]), logger=quiet)
    endings, answered_bytes = {True: 0, False: 0}, 0
    try:
        for _ in range(ROUNDS):
            transport = Transport()
            conversation = Conversation(server, asyncio.get_running_loop())
            conversation.connection_made(transport)
            data = damaged(rng)
            while data and not transport.closed:
                buffer = conversation.get_buffer(-1)
                count = rng.randrange(1, min(len(data), len(buffer)) + 1)
                buffer[:count] = data[:count]
                data = data[count:]
                conversation.buffer_updated(count)
            endings[transport.closed] += 1
            conversation.connection_lost(None)
            answered_bytes += transport.written
    finally:
        await server.close(timeout_ms=0)
    assert min(endings.values()) > ROUNDS // 20  # both are tried
    assert server.counters.malformed > 0
    assert server.counters.unserved > 0
    assert answered_bytes > 0


async def test_large_requests_are_served_two_by_two():
    """Those that have come: one alone waits no longer than to the end of the turn, and so do small ones."""
    taken = []

    def several(context, requests):
        taken.append([request.generation_id for _, request in requests])
        return [answer_beat(context, header, request) for header, request in requests]

    def one(context, header, request):
        return several(context, [(header, request)])[0]

    series = Series(lambda _header, _request: True, several)
    server = Server("LARGE", RouteTable([Route(HeartbeatRequest, one, series=series)]))
    conversation, transport = Conversation(server, asyncio.get_running_loop()), Transport()
    conversation.connection_made(transport)
    padding = bytes(server.limits.read_buffer_bytes)  # what follows a request is ignored

    def say(generation, padding=padding):
        frame = encoded(beat(generation), VERSION, generation)
        data = struct.pack(">i", len(frame) - 4 + len(padding)) + frame[4:] + padding
        while data:
            buffer = conversation.get_buffer(-1)
            count = min(len(data), len(buffer))
            buffer[:count] = data[:count]
            data = data[count:]
            conversation.buffer_updated(count)

    try:
        say(0)
        assert taken == []
        say(1)
        assert taken == [[0, 1]]
        say(2)
        assert taken == [[0, 1]]
        await asyncio.sleep(0)
        assert taken == [[0, 1], [2]]
        say(3)
        say(4, padding=b"")
        say(5, padding=b"")
        await asyncio.sleep(0)
        assert taken[2:] == [[3, 4, 5]]
        say(6, padding=b"")
        assert taken[3:] == [[6]]
    finally:
        conversation.connection_lost(None)
        await server.close(timeout_ms=0)
