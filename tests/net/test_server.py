"""A server and what peers do to it: well-behaved ones, slow ones, broken ones and those that leave."""

import asyncio
import logging
import struct

import pytest
from nodes import (
    HOST,
    LARGE_ANSWER,
    LARGE_REQUEST,
    LARGE_VERSION,
    VERSION,
    Parked,
    answer_beat,
    beat,
    connected,
    encoded,
    raw,
    serving,
    wait_until,
)

import samples
from quorate.net.admitted import Admitted, ConnectionLimits
from quorate.net.client import ConnectionLost
from quorate.net.conversation import Conversation
from quorate.net.outgoing import Outgoing
from quorate.net.routes import NO_RESPONSE, Features, Route
from quorate.net.server import Server
from quorate.protocol.api import response_class
from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse, SyncGroupRequest
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse, ProduceRequest
from quorate.protocol.api.topics import MetadataRequest
from quorate.protocol.errors import ApiError, ErrorCode

API_VERSIONS = ApiVersionsRequest.__key__


LARGE_ROUTE = Route(SyncGroupRequest, lambda *_: LARGE_ANSWER)


async def conversations(server: Server) -> list[Conversation]:
    await wait_until(lambda: server.connections)
    return list(server._conversations)


def waiting_bytes(conversation: Conversation) -> int:
    return sum(end - begin for _, begin, end in conversation._in.waiting)


@pytest.fixture(autouse=True)
def _every_line(caplog) -> None:
    caplog.set_level(logging.INFO, "quorate.net")


def closing_lines(caplog) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.name == "quorate.net"]


# Requests and answers


async def test_every_request_makes_the_round_trip():
    asked, answers = [], {}

    def answer(_context, header, request):
        asked.append(request)
        return answers[header.request_api_key]

    async def answer_later(context, header, request):
        await asyncio.sleep(0)
        return answer(context, header, request)

    classes = [cls for cls in samples.REQUESTS if cls is not ApiVersionsRequest]
    routes = [
        Route(cls, answer if i % 2 else answer_later, versions=cls.__versions__)
        for i, cls in enumerate(classes)
    ]
    async with serving(*routes) as server, connected(server) as connection:
        for cls in classes:
            for version in {cls.__versions__[0], cls.__versions__[-1]}:
                source = samples.Seeded(f"{cls.__name__}/{version}")
                request = samples.message(cls, version, source)
                answers[cls.__key__] = samples.message(response_class(cls.__key__), version, source)
                response = await connection.request(request, version, timeout_ms=10_000)
                assert response == answers[cls.__key__]
                assert asked.pop() == request
        assert server.counters.requests > 150
        assert server.counters.bytes_received > 0


async def test_a_handler_learns_who_asks():
    contexts = []

    def answer(context, header, request):
        contexts.append((context, header.correlation_id))
        return answer_beat(context, header, request)

    async with serving(Route(HeartbeatRequest, answer)) as server, raw(server) as peer:
        for correlation_id, client_id in ((7, "first"), (8, "first"), (9, None)):
            peer.say(encoded(beat(), VERSION, correlation_id, client_id))
        await peer.beats(3)
        port = peer.writer.get_extra_info("sockname")[1]
    assert [(context.client_id, correlation_id) for context, correlation_id in contexts] == [
        ("first", 7),
        ("first", 8),
        ("", 9),
    ]
    context = contexts[0][0]
    assert (context.listener, context.client_host, context.client_port) == ("TEST", HOST, port)
    assert context.principal == "User:ANONYMOUS"


async def test_answers_come_in_the_order_of_requests():
    parked = Parked()
    async with serving(parked.route()) as server, raw(server) as peer:
        peer.ask_beats(range(3))
        await parked.is_asked(0)
        parked.release(2)
        parked.release(1)
        peer.ask_beats(range(3, 5))
        await wait_until(lambda: server.counters.bytes_received == 5 * len(encoded(beat(), VERSION, 0)))
        assert parked.calls == [0]  # a parked request blocks what is behind it
        for generation in (4, 3, 0):
            parked.release(generation)
        assert await peer.beats(5) == [(i, i) for i in range(5)]
        assert parked.calls == [0, 1, 2, 3, 4]


async def test_whoever_counts_answers_is_called_when_they_have_left(monkeypatch):
    counted, left, flush = [], [], Outgoing.flush

    def flushed(out):
        left.append(flush(out))
        return left[-1]

    monkeypatch.setattr(Outgoing, "flush", flushed)
    async with serving(Route(HeartbeatRequest, answer_beat)) as server, raw(server) as peer:
        server.when_answered = lambda: counted.append((server.counters.requests, sum(left)))
        peer.ask_beats(range(3))
        await peer.beats(3)
        assert counted[-1] == (3, sum(left))
        assert all(sent_bytes > 0 for _, sent_bytes in counted)


async def test_requests_that_are_not_answered():
    """Produce with acks=0 has effects, and nothing is said about it."""
    produced = []

    def produce(_context, _header, request):
        produced.append(request.timeout_ms)
        return NO_RESPONSE

    async def produce_later(context, header, request):
        await asyncio.sleep(0)
        return produce(context, header, request)

    for handler in (produce, produce_later):
        routes = Route(ProduceRequest, handler), Route(HeartbeatRequest, answer_beat)
        async with serving(*routes) as server, raw(server) as peer:
            peer.ask(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 9, 5)
            peer.ask_beats(range(6, 7))
            peer.ask(ProduceRequest(acks=0, timeout_ms=2, topic_data=[]), 9, 7)
            peer.ask_beats(range(8, 9))
            assert await peer.beats(2) == [(6, 6), (8, 8)]
            assert server.counters.requests == 4
    assert produced == [1, 2, 1, 2]


async def test_bytes_after_a_request_are_ignored():
    """As Apache does: librdkafka sends some, when it asks for the metadata of all topics."""
    async with serving() as server, raw(server) as peer:
        for extra in (1, 3, 200):
            data = encoded(beat(extra), VERSION, extra) + b"\x01" * extra
            peer.say(struct.pack(">i", len(data) - 4) + data[4:])
        assert await peer.beats(3) == [(1, 1), (3, 3), (200, 200)]


async def test_large_answers_arrive_whole():
    records = bytes(range(256)) * 20_000

    def fetch(_context, _header, _request):
        data = FetchResponse.FetchableTopicResponse.PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=0,
            aborted_transactions=[],
            records=memoryview(records),
        )
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[data, data])
        return FetchResponse(responses=[topic])

    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    async with serving(Route(FetchRequest, fetch)) as server, connected(server) as connection:
        answers = await asyncio.gather(
            *(connection.request(request, 12, timeout_ms=30_000) for _ in range(4))
        )
    for answer in answers:
        assert [partition.records for partition in answer.responses[0].partitions] == [records, records]


async def test_large_requests_can_be_changed_where_they_are():
    """A batch is given its offset in the memory that it was received into, small or large."""
    stamped = []

    def produce(_context, _header, request):
        records = request.topic_data[0].partition_data[0].records
        records[:8] = b"stamped!"
        stamped.append(bytes(records))
        return NO_RESPONSE

    part = ProduceRequest.TopicProduceData
    async with serving(Route(ProduceRequest, produce)) as server, raw(server) as peer:
        for size in (100, 70_000, 3_000_000):
            partition = part.PartitionProduceData(index=0, records=bytes(size))
            topic = part(name="t", partition_data=[partition])
            peer.ask(ProduceRequest(acks=0, timeout_ms=1, topic_data=[topic]), 9, 0)
        await wait_until(lambda: len(stamped) == 3)
    assert stamped == [b"stamped!" + bytes(size - 8) for size in (100, 70_000, 3_000_000)]


async def test_a_connection_that_asks_a_lot_does_not_keep_others_waiting():
    order = []

    def answer(context, header, request):
        order.append(context.client_id)
        return answer_beat(context, header, request)

    async with (
        serving(Route(HeartbeatRequest, answer), requests_per_turn_max=2) as server,
        raw(server) as busy,
        connected(server) as modest,
    ):
        busy.ask_beats(range(4000))
        await wait_until(lambda: order)
        await modest.request(beat(), VERSION, timeout_ms=10_000)
        assert await busy.beats(4000) == [(i, i) for i in range(4000)]
    assert order.index("quorate") < 3900


# ApiVersions


async def test_api_versions_in_an_unknown_version_is_answered_in_version_0():
    async with serving() as server, raw(server) as peer:
        for version in (5, 99, 0x7FFF):
            peer.say(struct.pack(">ihhih2sB3s", 16, 18, version, version, 2, b"me", 0, b"???"))
            correlation_id, response = await peer.response(API_VERSIONS, 0)
            assert correlation_id == version
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert response.api_keys == [
                ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)
            ]
        peer.ask(ApiVersionsRequest(client_software_name="me", client_software_version="1"), 4, 7)
        correlation_id, response = await peer.response(API_VERSIONS, 4)
        assert (correlation_id, response.error_code) == (7, 0)
        assert [one.api_key for one in response.api_keys] == [12, 18]


async def test_features_may_change_while_the_server_runs():
    epochs = iter((1, 2))
    now = lambda: Features(finalized={"group.version": 1}, finalized_epoch=next(epochs))  # noqa: E731
    async with serving(features=now) as server:
        async with connected(server) as connection:
            assert connection.api_versions.finalized_features_epoch == 1
        async with connected(server) as connection:
            assert connection.api_versions.finalized_features_epoch == 2


# What closes a connection

TOO_LARGE = struct.pack(">i", 1001)
GOOD = encoded(beat(5), VERSION, 5)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (TOO_LARGE, "a frame of 1001 bytes, and 1000 are allowed"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\x80\0\0\0", "a frame of -2147483648 bytes"),
        (struct.pack(">i", 0), "a request of 0 bytes"),
        (struct.pack(">ih", 2, 12), "a request of 2 bytes"),
        (struct.pack(">ihh", 4, 12, 4), "RequestHeader v2, field correlation_id"),
        (struct.pack(">ihh", 4, 18, 99), "RequestHeader v2, field correlation_id"),
        (struct.pack(">i", len(GOOD) - 5) + GOOD[4:-1], "HeartbeatRequest v4"),
        (struct.pack(">i", 100) + GOOD[4:12] + b"\xff" * 92, "RequestHeader v2"),
        (encoded(MetadataRequest(topics=[]), 5, 1), "Metadata v5 is not served here"),
        (struct.pack(">ihhi", 8, 12, 99, 1), "Heartbeat v99 is not served here"),
        (struct.pack(">ihhi", 8, 12, -1, 1), "Heartbeat v-1 is not served here"),
        (struct.pack(">ihhi", 8, 1000, 0, 1), "key 1000 v0 is not served here"),
        (struct.pack(">ihhi", 8, -5, 0, 1), "key -5 v0 is not served here"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_bad_requests_close_the_connection(data, reason, at_once, caplog):
    """After the good ones before them were answered, and with one line in the log."""
    async with serving(request_bytes_max=1000) as server, connected(server) as other:
        async with raw(server) as peer:
            if at_once:
                peer.say(GOOD + data + GOOD)
            else:
                for byte in GOOD + data:
                    peer.say(bytes([byte]))
                    await peer.writer.drain()
            assert await peer.beats(1) == [(5, 5)]
            assert await peer.is_closed()
        assert server.counters.malformed + server.counters.unserved == 1
        await other.request(beat(), VERSION, timeout_ms=10_000)  # nobody else notices
    [line] = closing_lines(caplog)
    assert reason in line
    assert "client id 'raw'" in line


@pytest.mark.parametrize("error", [ApiError(ErrorCode.INVALID_REQUEST, "no"), ValueError("no")])
@pytest.mark.parametrize("kind", ["at once", "later", "wrong answer", "bad answer", "large answer"])
async def test_a_handler_that_fails_closes_the_connection(error, kind, caplog):
    def fail(_context, _header, _request):
        if kind == "wrong answer":
            return ApiVersionsResponse(error_code=0, api_keys=[])
        if kind == "bad answer":
            return HeartbeatResponse(error_code="none")
        raise error

    async def fail_later(context, header, request):
        await asyncio.sleep(0)
        return fail(context, header, request)

    handler = fail_later if kind == "later" else fail
    async with serving(
        Route(HeartbeatRequest, handler if kind != "large answer" else answer_beat),
        Route(MetadataRequest, answer_beat),
        response_bytes_max=1000 if kind != "large answer" else 7,
    ) as server:
        async with raw(server) as peer:
            peer.ask(beat(), VERSION, 77)
            peer.ask(beat(), VERSION, 78)
            assert await peer.is_closed()
        assert server.counters.failed == 1
    [line] = closing_lines(caplog)
    assert "Heartbeat v4, correlation id 77, failed:" in line


async def test_a_part_that_cannot_be_sent(caplog):
    def fetch(_context, _header, _request):
        data = FetchResponse.FetchableTopicResponse.PartitionData(
            partition_index=0, error_code=0, high_watermark=0, aborted_transactions=[], records=range(9)
        )
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])])

    async with serving(Route(FetchRequest, fetch)) as server, connected(server) as connection:
        with pytest.raises(ConnectionLost):
            await connection.request(
                FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12, timeout_ms=10_000
            )
    assert "a part of the response is a range" in closing_lines(caplog)[0]


async def test_the_log_of_somebody_else():
    lines = []
    logger = logging.Logger("mine")
    handler = logging.Handler()
    handler.emit = lines.append
    logger.addHandler(handler)
    async with serving(logger=logger) as server, raw(server) as peer:
        peer.say(b"\xff" * 10)
        assert await peer.is_closed()
    assert len(lines) == 1


# Peers that leave, and peers that are slow


async def test_bytes_that_come_one_by_one():
    async with serving() as server, raw(server) as peer:
        for byte in b"".join(encoded(beat(i), VERSION, i) for i in range(3)):
            received = server.counters.bytes_received
            peer.say(bytes([byte]))
            await wait_until(lambda received=received: server.counters.bytes_received == received + 1)
        assert await peer.beats(3) == [(0, 0), (1, 1), (2, 2)]


async def test_a_peer_that_closes_its_half_gets_its_answers(caplog):
    parked = Parked()
    async with serving(parked.route()) as server, raw(server) as peer:
        peer.ask_beats(range(3))
        peer.writer.write_eof()
        await parked.is_asked(0)
        for generation in range(3):
            parked.release(generation)
        assert await peer.beats(3) == [(0, 0), (1, 1), (2, 2)]
        assert await peer.is_closed()
        await wait_until(lambda: server.connections == 0)
    assert closing_lines(caplog) == []


async def test_half_a_frame_and_then_the_end_is_nothing_special(caplog):
    async with serving() as server, raw(server) as peer:
        peer.say(GOOD + GOOD[:20])
        peer.writer.write_eof()
        assert await peer.beats(1) == [(5, 5)]
        assert await peer.is_closed()
    assert closing_lines(caplog) == []


async def test_a_half_closed_connection_does_not_wait_for_ever(caplog):
    parked = Parked()
    async with serving(parked.route(), drain_ms_max=20) as server, raw(server) as peer:
        peer.ask_beats(range(1))
        peer.writer.write_eof()
        await wait_until(lambda: parked.cancelled == [0])
        assert await peer.is_closed()
        assert server.counters.connections_expired == 1
    assert len(closing_lines(caplog)) == 1


async def test_a_request_is_cancelled_when_its_connection_is_lost(caplog):
    parked = Parked()
    async with serving(parked.route()) as server:
        async with raw(server) as peer:
            peer.ask_beats(range(2))
            await parked.is_asked(0)
            peer.reset()
            await wait_until(lambda: parked.cancelled == [0])
        await wait_until(lambda: server.connections == 0)
    assert parked.calls == [0]
    assert closing_lines(caplog) == []


async def test_a_handler_that_breaks_after_its_connection_was_lost_is_still_logged(caplog):
    async def handle(_context, _header, _request):
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("cleaning up")

    async with serving(Route(HeartbeatRequest, handle)) as server:
        async with raw(server) as peer:
            peer.ask_beats(range(1))
            await wait_until(lambda: server.counters.requests == 1)
            peer.reset()
        await wait_until(lambda: server.connections == 0)
    [line] = closing_lines(caplog)
    assert "ValueError: cleaning up" in line


async def test_a_peer_that_does_not_read_is_not_served():
    """Our memory has a bound: answers are not made, requests are not read, and nothing is lost."""
    total, high_bytes, in_flight = 1000, 200_000, 8
    calls = []

    def answer(_context, _header, _request):
        calls.append(1)
        return LARGE_ANSWER

    async with (
        serving(
            Route(SyncGroupRequest, answer),
            write_buffer_high_bytes=high_bytes,
            write_buffer_low_bytes=high_bytes // 2,
            requests_in_flight_max=in_flight,
        ) as server,
        raw(server) as peer,
    ):
        peer.ask_much_and_not_read(total)
        [conversation] = await conversations(server)
        await wait_until(lambda: not conversation._is_writable and not conversation._in.is_reading)
        request_bytes = len(encoded(LARGE_REQUEST, LARGE_VERSION, 1))
        assert len(calls) < total
        assert conversation._transport.get_write_buffer_size() < 2 * high_bytes + 51_000
        assert waiting_bytes(conversation) <= in_flight * request_bytes + server.limits.read_buffer_bytes
        assert server.counters.bytes_received < total * request_bytes
        peer.read_again()
        for _ in range(total):
            assert len(await peer.frame()) > 50_000
        assert len(calls) == total


async def test_a_peer_that_never_reads_is_given_up(caplog):
    async with serving(LARGE_ROUTE, idle_ms_max=50) as server, raw(server) as peer:
        peer.ask_much_and_not_read(1000)
        await wait_until(lambda: server.counters.connections_expired == 1)
        await wait_until(lambda: server.connections == 0)
    assert "idle for too long" in closing_lines(caplog)[0]


async def test_a_parked_request_stops_reading_when_too_much_waits_behind_it():
    parked = Parked()
    async with serving(parked.route(), requests_in_flight_max=4) as server, raw(server) as peer:
        peer.ask_beats(range(4000))
        await parked.is_asked(0)
        [conversation] = await conversations(server)
        await wait_until(lambda: not conversation._in.is_reading)
        assert waiting_bytes(conversation) <= server.limits.read_buffer_bytes
        for generation in range(4000):
            parked.release(generation)
        assert await peer.beats(4000) == [(i, i) for i in range(4000)]


async def test_idle_connections_are_closed_and_busy_ones_are_not(caplog):
    parked = Parked()
    async with serving(parked.route(), idle_ms_max=100) as server, raw(server) as idle, raw(server) as busy:
        busy.ask_beats(range(1))
        await parked.is_asked(0)
        assert await idle.is_closed()
        await wait_until(lambda: server.connections == 1)
        assert server.counters.connections_expired == 1
        parked.release(0)
        assert await busy.beats(1) == [(0, 0)]
        assert await busy.is_closed()  # now it is idle, too
    assert ["idle for too long" in line for line in closing_lines(caplog)] == [True, True]


async def test_whoever_comes_when_all_places_are_taken_has_that_of_one_who_is_idle(caplog):
    admitted = Admitted(ConnectionLimits(connections_max=2))
    async with serving(admitted=admitted) as server, raw(server) as idle, connected(server) as busy:
        await busy.request(beat(), VERSION, timeout_ms=10_000)
        for number in range(3):
            async with connected(server) as other:
                await other.request(beat(), VERSION, timeout_ms=10_000)
                if not number:
                    assert await idle.is_closed()
                await busy.request(beat(), VERSION, timeout_ms=10_000)
                assert server.connections <= 3  # one may still be ending
            await wait_until(lambda: server.connections == 1)
        assert server.counters.connections_displaced == 1
        assert server.counters.connections_refused == 0
    assert "all connections are taken" in caplog.text


async def test_a_connection_that_came_too_fast_is_served_when_it_is_its_turn():
    turns = iter([600_000.0, 1.0, 0.0, None])
    async with (
        serving(connection_turn_ms=lambda _: next(turns)) as server,
        raw(server) as much_later,
        raw(server) as soon,
        raw(server) as at_once,
    ):
        for one in (much_later, soon, at_once):
            one.ask_beats(range(1))
        assert await at_once.beats(1) == [(0, 0)]
        assert await soon.beats(1) == [(0, 0)]
        assert server.counters.requests == 2
        assert server.counters.connections_held_back == 0
        assert server.connections == 3
        async with raw(server) as one_too_many:
            assert await one_too_many.is_closed()
        assert server.counters.connections_refused == 1


# The end of the server


async def test_closing_lets_requests_under_way_finish():
    parked = Parked()
    async with serving(parked.route()) as server, raw(server) as peer, raw(server) as idle:
        peer.ask_beats(range(2))
        await parked.is_asked(0)
        closing = asyncio.ensure_future(server.close(timeout_ms=30_000))
        assert await idle.is_closed()
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection(HOST, server.port)
        peer.ask_beats(range(2, 4))
        parked.release(0)
        assert await peer.beats(1) == [(0, 0)]
        await closing
        assert await peer.is_closed()
    assert parked.calls == [0]


async def test_closing_does_not_wait_for_ever():
    parked = Parked()
    async with serving(parked.route()) as server, raw(server) as peer:
        peer.ask_beats(range(1))
        await parked.is_asked(0)
        await server.close(timeout_ms=1)
        assert parked.cancelled == [0]
        assert await peer.is_closed()


async def test_closing_a_server_that_a_peer_does_not_read_from():
    async with serving(LARGE_ROUTE) as server, raw(server) as peer:
        peer.ask_much_and_not_read(1000)
        [conversation] = await conversations(server)
        await wait_until(lambda: not conversation._is_writable)
        await server.close(timeout_ms=1)
