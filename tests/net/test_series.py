"""Requests that came with one read and are answered together."""

import struct

from nodes import VERSION, answer_beat, beat, encoded, raw, serving

from quorate.net.routes import Route, RouteTable, Series, route_id
from quorate.protocol.api.groups import HeartbeatRequest, SyncGroupRequest
from quorate.protocol.frame import encode_request


class Together:
    """Answers heartbeats, and remembers which of them came together. Those of generation 99 come alone."""

    def __init__(self):
        self.taken = []
        self.route = Route(HeartbeatRequest, self.one, series=Series(self.takes, self.several))

    def takes(self, _header, request):
        return request.generation_id != 99

    def one(self, context, header, request):
        self.taken.append([request.generation_id])
        return answer_beat(context, header, request)

    def several(self, context, requests):
        self.taken.append([request.generation_id for _, request in requests])
        return [answer_beat(context, header, request) for header, request in requests]


def said(*generations, client_id="me"):
    return b"".join(
        encode_request(beat(generation), VERSION, generation, client_id) for generation in generations
    )


async def test_what_came_with_one_read_is_answered_together_and_in_order():
    together = Together()
    async with serving(together.route) as server, raw(server) as peer:
        peer.say(said(*range(10)))
        assert await peer.beats(10) == [(i, i) for i in range(10)]
        peer.say(said(10))
        assert await peer.beats(1) == [(10, 10)]
        assert server.counters.requests == 11
    assert together.taken == [list(range(10)), [10]]


async def test_what_cannot_be_one_of_several_ends_a_series():
    together = Together()
    async with serving(together.route) as server, raw(server) as peer:
        peer.say(said(0, 1, 99, 2, 3, 4, 99, 99, 5))
        assert len(await peer.beats(9)) == 9
    assert together.taken == [[0, 1], [99], [2, 3, 4], [99], [99], [5]]


async def test_another_client_id_ends_a_series():
    together = Together()
    async with serving(together.route) as server, raw(server) as peer:
        peer.say(said(0, 1) + said(2, 3, client_id="you") + said(4))
        assert await peer.beats(5) == [(i, i) for i in range(5)]
    assert together.taken == [[0, 1], [2, 3], [4]]


async def test_another_kind_or_version_of_request_ends_a_series():
    together = Together()
    other = encoded(beat(7), 3, 7)
    async with serving(together.route) as server, raw(server) as peer:
        peer.say(said(0, 1) + other + said(2, 3))
        assert await peer.beats(2) == [(0, 0), (1, 1)]
        assert (await peer.response(HeartbeatRequest.__key__, 3))[0] == 7
        assert await peer.beats(2) == [(2, 2), (3, 3)]
    assert together.taken == [[0, 1], [7], [2, 3]]


async def test_a_series_is_no_longer_than_a_turn():
    together = Together()
    async with serving(together.route, requests_per_turn_max=4) as server, raw(server) as peer:
        peer.say(said(*range(10)))
        assert await peer.beats(10) == [(i, i) for i in range(10)]
    assert together.taken == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


async def test_what_is_malformed_is_refused_when_those_before_it_are_answered():
    together = Together()
    async with serving(together.route) as server, raw(server) as peer:
        bad = struct.pack(">ihh", 4, HeartbeatRequest.__key__, VERSION)
        peer.say(said(0, 1) + bad + said(2))
        assert await peer.beats(2) == [(0, 0), (1, 1)]
        assert await peer.is_closed()
        assert server.counters.malformed == 1
    assert together.taken == [[0, 1]]


async def test_a_series_that_breaks_ends_the_connection(caplog):
    together = Together()

    def fail(_context, _requests):
        raise ZeroDivisionError

    route = Route(HeartbeatRequest, together.one, series=Series(together.takes, fail))
    async with serving(route) as server, raw(server) as peer:
        peer.say(said(99, 0, 1))
        assert await peer.beats(1) == [(99, 99)]
        assert await peer.is_closed()
        assert server.counters.failed == 1
    assert "ZeroDivisionError" in caplog.text


def test_a_table_knows_the_series_of_its_routes():
    together = Together()
    table = RouteTable([together.route, Route(SyncGroupRequest, together.one)])
    assert table.series[route_id(HeartbeatRequest.__key__, VERSION)] is together.route.series
    assert not [at for at in table.series if at >> 16 == SyncGroupRequest.__key__]
