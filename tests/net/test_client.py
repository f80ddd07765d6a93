"""The client's end of a connection, against servers that behave and servers that do not."""

import asyncio
import struct
from contextlib import asynccontextmanager

import pytest
from nodes import (
    HOST,
    LARGE_ANSWER,
    LARGE_REQUEST,
    LARGE_VERSION,
    VERSION,
    Parked,
    beat,
    connected,
    serving,
    wait_until,
)

from quorate.net.client import Connection, ConnectionLost
from quorate.net.limits import Limits
from quorate.net.routes import NO_RESPONSE, Features, Route, RouteTable
from quorate.protocol import frame
from quorate.protocol.api.connection import ApiVersionsResponse
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse, SyncGroupRequest
from quorate.protocol.api.produce_fetch import ProduceRequest
from quorate.protocol.api.topics import MetadataRequest
from quorate.protocol.errors import ApiError, ErrorCode, ProtocolError

ENTRY = ApiVersionsResponse.ApiVersion


@asynccontextmanager
async def scripted(talk):
    """A server that does what `talk(reader, writer)` does, once per connection. Yields its port."""
    ended = asyncio.Event()
    writers = {}

    async def serve(reader, writer):
        writers[writer] = None
        try:
            await talk(reader, writer)
            await ended.wait()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
            del writers[writer]

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        ended.set()
        for writer in list(writers):
            writer.transport.abort()
        await wait_until(lambda: not writers)


async def read_request(reader):
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    data = await reader.readexactly(size)
    return frame.decode_request_header(data)[0]


async def negotiate(reader, writer):
    header = await read_request(reader)
    keys = [ENTRY(api_key=12, min_version=0, max_version=4), ENTRY(api_key=18, min_version=0, max_version=4)]
    response = ApiVersionsResponse(error_code=0, api_keys=keys)
    writer.write(frame.encode_response(response, header.request_api_version, header.correlation_id))


def answer(correlation_id: int, generation: int = 0) -> bytes:
    response = HeartbeatResponse(error_code=0, throttle_time_ms=generation)
    return bytes(frame.encode_response(response, VERSION, correlation_id))


async def connect(port: int, **limits: int) -> Connection:
    return await Connection.connect(HOST, port, timeout_ms=10_000, limits=Limits(**limits))


# Asking


async def test_many_callers_ask_at_once_and_each_gets_its_answer():
    async with serving() as server, connected(server, requests_in_flight_max=7) as connection:
        answers = await asyncio.gather(
            *(connection.request(beat(i), VERSION, timeout_ms=10_000) for i in range(500))
        )
        assert [one.throttle_time_ms for one in answers] == list(range(500))


async def test_not_more_than_the_limit_are_under_way():
    parked = Parked()
    async with serving(parked.route()) as server, connected(server, requests_in_flight_max=2) as connection:
        negotiation_bytes = server.counters.bytes_received
        calls = [
            asyncio.ensure_future(connection.request(beat(i), VERSION, timeout_ms=10_000)) for i in range(4)
        ]
        await parked.is_asked(0)
        assert (len(connection._in_flight), len(connection._waiting)) == (2, 2)
        calls[1].cancel()  # on its way: its answer will be ignored
        calls[2].cancel()  # not on its way, and never will be
        for generation in range(4):
            parked.release(generation)
        assert (await calls[0]).throttle_time_ms == 0
        assert (await calls[3]).throttle_time_ms == 3
        assert parked.calls == [0, 1, 3]
        assert server.counters.bytes_received > negotiation_bytes


async def test_sending_without_an_answer():
    produced = []

    def produce(_context, _header, request):
        produced.append(request.timeout_ms)
        return NO_RESPONSE

    routes = Route(ProduceRequest, produce), Parked().route()
    async with serving(*routes) as server, connected(server) as connection:
        for i in range(3):
            request = ProduceRequest(acks=0, timeout_ms=i, topic_data=[])
            await connection.send(request, connection.version_for(ProduceRequest), timeout_ms=10_000)
        await wait_until(lambda: produced == [0, 1, 2])
        assert not connection._in_flight


async def test_a_server_that_does_not_read_slows_the_client_down():
    parked = Parked()
    high_bytes = 100_000
    async with (
        serving(parked.route(), Route(SyncGroupRequest, lambda *_: LARGE_ANSWER)) as server,
        connected(
            server,
            write_buffer_high_bytes=high_bytes,
            write_buffer_low_bytes=high_bytes // 2,
            requests_in_flight_max=100_000,
        ) as connection,
    ):
        first = asyncio.ensure_future(connection.request(beat(), VERSION, timeout_ms=20_000))
        await parked.is_asked(0)
        calls = []
        while connection._is_writable:
            calls.append(
                asyncio.ensure_future(connection.request(LARGE_REQUEST, LARGE_VERSION, timeout_ms=20_000))
            )
            await asyncio.sleep(0)
        assert connection._transport.get_write_buffer_size() < high_bytes + 21_000
        parked.release(0)
        await asyncio.gather(first, *calls)


# Versions


async def test_the_highest_version_that_both_know():
    routes = Route(HeartbeatRequest, lambda *_: None, versions=range(1, 4))
    features = Features(finalized_epoch=5)
    async with serving(routes, features=features) as server, connected(server) as connection:
        assert connection.version_for(HeartbeatRequest) == 3
        assert connection.version_for(HeartbeatRequest, 2) == 2
        assert connection.version_for(HeartbeatRequest, 99) == 3
        for cap, request in ((0, HeartbeatRequest), (None, MetadataRequest)):
            with pytest.raises(ApiError, match=request.__name__) as caught:
                connection.version_for(request, cap)
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert connection.api_versions.finalized_features_epoch == 5


@pytest.mark.parametrize("offered", [[ENTRY(api_key=18, min_version=0, max_version=2)], []])
async def test_a_server_that_knows_only_older_versions(offered):
    asked = []

    async def talk(reader, writer):
        while True:
            header = await read_request(reader)
            asked.append(header.request_api_version)
            is_known = header.request_api_version <= (2 if offered else 0)
            code = 0 if is_known else ErrorCode.UNSUPPORTED_VERSION
            response = ApiVersionsResponse(error_code=code, api_keys=offered)
            version = header.request_api_version if is_known else 0
            writer.write(frame.encode_response(response, version, header.correlation_id))

    async with scripted(talk) as port:
        connection = await connect(port)
        assert connection.api_versions.api_keys == offered
        await connection.close()
    assert asked == ([4, 2] if offered else [4, 3, 2, 1, 0])


async def test_a_server_that_refuses_to_say_its_versions():
    async def talk(reader, writer):
        while True:
            header = await read_request(reader)
            response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
            writer.write(frame.encode_response(response, 0, header.correlation_id))

    async with scripted(talk) as port:
        with pytest.raises(ApiError, match="answered ApiVersions v0 with error 35"):
            await connect(port)


async def test_a_software_name_is_given():
    seen = []

    class Table(RouteTable):
        def _api_versions(self, context, header, request):
            seen.append((request.client_software_name, request.client_software_version))
            return super()._api_versions(context, header, request)

    async with serving() as server:
        server.routes = Table([])
        async with connected(server):
            pass
    assert seen == [("quorate", "0.1.0")]


# Losing the connection


async def test_nobody_listens():
    async with serving() as server:
        port = server.port
    with pytest.raises(ConnectionLost, match=f"{HOST}:{port}"):
        await connect(port)


async def test_a_server_that_never_answers_the_first_question():
    async with scripted(lambda *_: asyncio.sleep(0)) as port:
        with pytest.raises(ConnectionLost, match="no answer in time"):
            await Connection.connect(HOST, port, timeout_ms=20)


async def test_two_requests_that_have_no_time_left():
    parked = Parked()
    async with serving(parked.route()) as server, connected(server) as connection:
        requests = [connection.request(beat(number), VERSION, timeout_ms=0) for number in range(2)]
        lost = await asyncio.gather(*requests, return_exceptions=True)
    assert [str(one).partition(": ")[2] for one in lost] == ["no answer in time"] * 2


async def test_no_answer_in_time_ends_the_connection_and_a_later_one_is_ignored():
    parked = Parked()
    async with serving(parked.route()) as server, connected(server) as connection:
        slow = asyncio.ensure_future(connection.request(beat(0), VERSION, timeout_ms=10_000))
        await parked.is_asked(0)
        with pytest.raises(ConnectionLost, match="no answer in time"):
            await connection.request(beat(1), VERSION, timeout_ms=20)
        parked.release(0)
        parked.release(1)
        with pytest.raises(ConnectionLost, match="no answer in time"):
            await slow
        assert connection.is_lost
        with pytest.raises(ConnectionLost, match="no answer in time"):
            await connection.request(beat(2), VERSION, timeout_ms=10_000)
        await wait_until(lambda: server.connections == 0)


async def test_a_request_whose_caller_went_away_is_still_expected():
    """Otherwise a dead connection would be used again and again by callers that are impatient."""
    parked = Parked()
    async with serving(parked.route()) as server, connected(server) as connection:
        call = asyncio.ensure_future(connection.request(beat(0), VERSION, timeout_ms=50))
        await parked.is_asked(0)
        call.cancel()
        await wait_until(lambda: connection.is_lost)


async def test_the_deadline_of_an_answered_request_ends_nothing():
    parked = Parked()
    async with serving(parked.route()) as server, connected(server) as connection:
        parked.release(0)
        await connection.request(beat(0), VERSION, timeout_ms=20)
        timer = connection._timer
        call = asyncio.ensure_future(connection.request(beat(1), VERSION, timeout_ms=10_000))
        await wait_until(lambda: connection._timer is not timer)  # it has fired, and was set again
        assert not connection.is_lost
        parked.release(1)
        assert (await call).throttle_time_ms == 1


async def test_everybody_learns_that_the_server_died():
    parked = Parked()
    async with serving(parked.route()) as server:
        connection = await connect(server.port, requests_in_flight_max=2)
        calls = [
            asyncio.ensure_future(connection.request(beat(i), VERSION, timeout_ms=20_000)) for i in range(4)
        ]
        await parked.is_asked(0)
        await server.close(timeout_ms=0)
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionLost] * 4
    await connection.close()


async def test_closing_fails_who_waits():
    parked = Parked()
    async with serving(parked.route()) as server, connected(server) as connection:
        call = asyncio.ensure_future(connection.request(beat(0), VERSION, timeout_ms=20_000))
        await parked.is_asked(0)
        await connection.close()
        with pytest.raises(ConnectionLost, match="closed by us"):
            await call
        await connection.close()


# Answers that are none


@pytest.mark.parametrize(
    ("data", "first", "second"),
    [
        (answer(2), ProtocolError, ConnectionLost),  # of the second
        (answer(7), ProtocolError, ConnectionLost),  # of nobody
        (answer(1)[:4] + b"\xff" * 200, ProtocolError, ConnectionLost),
        (struct.pack(">i", 2) + b"\0\0", ProtocolError, ConnectionLost),
        (struct.pack(">i", 5) + answer(1)[4:9], ProtocolError, ConnectionLost),
        (struct.pack(">i", -3), ConnectionLost, ConnectionLost),
        (struct.pack(">i", 1001), ConnectionLost, ConnectionLost),
        (answer(1) + answer(1), HeartbeatResponse, ProtocolError),
        (answer(1) + answer(2) + answer(3), HeartbeatResponse, HeartbeatResponse),
        (answer(1)[:9], ConnectionLost, ConnectionLost),  # and then the end
    ],
)
async def test_malformed_answers_end_the_connection(data, first, second):
    async def talk(reader, writer):
        await negotiate(reader, writer)
        await read_request(reader)
        await read_request(reader)
        writer.write(data)
        if len(data) < 10:
            writer.close()

    async with scripted(talk) as port:
        connection = await connect(port, response_bytes_max=1000)
        results = await asyncio.gather(
            *(connection.request(beat(), VERSION, timeout_ms=20_000) for _ in range(2)),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [first, second]
        await wait_until(lambda: connection.is_lost)
        await connection.close()


async def test_a_request_that_cannot_be_encoded_does_not_end_the_connection():
    async with serving() as server, connected(server, request_bytes_max=10_000) as connection:
        for bad, reason in ((beat("x"), "generation_id"), (beat(member="m" * 20_000), "20033 bytes")):
            with pytest.raises(ProtocolError, match=reason):
                await connection.request(bad, VERSION, timeout_ms=10_000)
        assert (await connection.request(beat(3), VERSION, timeout_ms=10_000)).throttle_time_ms == 3


async def test_correlation_ids_start_again_before_they_overflow():
    async with serving() as server, connected(server) as connection:
        connection._correlation_id = 2**31 - 1
        for generation in range(3):
            response = await connection.request(beat(generation), VERSION, timeout_ms=10_000)
            assert response.throttle_time_ms == generation
        assert connection._correlation_id == 2
