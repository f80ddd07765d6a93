"""The HTTP server and its peers: well-behaved ones, slow ones, broken ones and those that leave."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager, suppress

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import HOST, wait_until

from quorate.lab.world import SECOND, World
from quorate.net.http import HttpError, HttpLimits, HttpResponse, HttpServer
from quorate.node.host import Host

PORT = 8080


class Handlers:
    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.under_way = 0
        self.cancelled = 0

    async def echo(self, params, query):
        return HttpResponse.json({"params": dict(params), "query": dict(query)})

    async def hello(self, _params, _query):
        return HttpResponse.text("hello\n")

    async def large(self, _params, query):
        return HttpResponse.text("x" * int(query["bytes"]))

    async def refuse(self, _params, _query):
        raise HttpError(421, "not here", controller_id=7)

    async def break_down(self, _params, _query):
        raise RuntimeError("a mistake")

    async def not_json(self, _params, _query):
        return HttpResponse.json({"time": float("nan")})

    async def not_http(self, _params, _query):
        return HttpResponse(200, b"", "text/plain\r\nx: y")

    async def parked(self, _params, _query):
        self.under_way += 1
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return HttpResponse.text("at last")

    def routes(self):
        return {
            "/": self.hello,
            "/echo/{id}": self.echo,
            "/echo/{id}/{what}": self.echo,
            "/large": self.large,
            "/refused": self.refuse,
            "/broken": self.break_down,
            "/not-json": self.not_json,
            "/not-http": self.not_http,
            "/parked": self.parked,
        }


@asynccontextmanager
async def serving(**limits: int):
    handlers = Handlers()
    server = HttpServer(handlers.routes(), limits=HttpLimits(**limits))
    server.handlers = handlers
    await server.start(HOST, 0)
    try:
        yield server
    finally:
        await server.close(timeout_ms=0)
        assert server.connections == 0


@asynccontextmanager
async def peer(server: HttpServer):
    reader, writer = await asyncio.open_connection(HOST, server.port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


class Peer:
    """A client that says what it likes, and reads with h11."""

    def __init__(self, reader, writer) -> None:
        self.reader = reader
        self.writer = writer
        self.http = h11.Connection(h11.CLIENT)

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, method: str = "GET"):
        """The next answer: status, headers, body."""
        self.http.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        self.http.send(h11.EndOfMessage())
        body, response = b"", None
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                self.http.receive_data(await self.reader.read(65536))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
        if self.http.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self.http.start_next_cycle()
        headers = {name.decode(): value.decode() for name, value in response.headers}
        return response.status_code, headers, body

    async def get(self, target: str):
        self.say(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        return await self.answer()

    async def is_closed(self) -> bool:
        """Waits for the end, and says whether nothing came before it."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


# Requests and answers


async def test_requests_follow_each_other_on_one_connection():
    async with serving() as server, peer(server) as client:
        for _ in range(3):
            status, headers, body = await client.get("/")
            assert (status, body) == (200, b"hello\n")
            assert headers["content-type"] == "text/plain; charset=utf-8"
            assert "connection" not in headers
        assert server.connections == 1


async def test_requests_that_arrive_together_are_answered_in_order():
    async with serving() as server, peer(server) as client:
        asks = [f"GET /echo/{number} HTTP/1.1\r\nhost: x\r\n\r\n".encode() for number in range(50)]
        client.say(b"".join(asks))
        for number in range(50):
            _, _, body = await client.answer()
            assert json.loads(body)["params"] == {"id": str(number)}


async def test_path_and_query_are_taken_apart():
    async with serving() as server, peer(server) as client:
        _, headers, body = await client.get("/echo/a%2Fb/why?ids=1,2&from=&from=7&x=%20")
        assert headers["content-type"] == "application/json"
        assert json.loads(body) == {
            "params": {"id": "a/b", "what": "why"},
            "query": {"ids": "1,2", "from": "7", "x": " "},
        }
        _, _, body = await client.get("http://elsewhere:80/echo/1?a=b")
        assert json.loads(body) == {"params": {"id": "1"}, "query": {"a": "b"}}


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/nothing", 404),
        ("/echo", 404),
        ("/echo/1/2/3", 404),
        ("//", 404),
        ("*", 404),
        ("http://[::1", 400),
        ("/?" + "&".join("abcdefghij" * 4), 400),
        ("/refused", 421),
        ("/broken", 500),
        ("/not-json", 500),
    ],
)
async def test_what_goes_wrong_is_an_answer_and_the_connection_lives_on(target, status):
    async with serving() as server, peer(server) as client:
        found, headers, body = await client.get(target)
        assert found == status
        assert headers["content-type"] == "application/json"
        assert json.loads(body)["error"]
        assert (await client.get("/"))[0] == 200


async def test_an_error_says_more_if_it_knows_more():
    async with serving() as server, peer(server) as client:
        _, _, body = await client.get("/refused")
        assert json.loads(body) == {"error": "not here", "controller_id": 7}


async def test_a_mistake_of_ours_is_logged_and_not_shown(caplog):
    async with serving() as server, peer(server) as client:
        _, _, body = await client.get("/broken")
    assert b"a mistake of the node" in body
    assert "RuntimeError: a mistake" in caplog.text


async def test_an_answer_that_is_not_http_ends_the_connection(caplog):
    async with serving() as server, peer(server) as client:
        client.say(b"GET /not-http HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await client.is_closed()
    assert "an answer that is not HTTP" in caplog.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"])
async def test_only_get_is_served(method):
    async with serving() as server, peer(server) as client:
        client.say(f"{method} / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello".encode())
        status, headers, body = await client.answer(method)
        assert status == 405
        assert headers["allow"] == "GET"
        assert headers["connection"] == "close"
        assert bool(body) is (method != "HEAD")
        assert await client.is_closed()


async def test_a_refusal_is_read_although_the_peer_goes_on_sending():
    async with serving() as server, peer(server) as client:
        client.say(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n" + bytes(500_000))
        status, _, _ = await client.answer("POST")
        assert status == 405
        client.say(bytes(500_000))
        client.writer.write_eof()
        assert await client.is_closed()


async def test_a_get_may_have_a_body_that_means_nothing():
    async with serving() as server, peer(server) as client:
        client.say(b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello")
        assert (await client.answer())[0] == 200
        assert (await client.get("/"))[0] == 200


async def test_a_peer_of_http_1_0_gets_one_answer():
    async with serving() as server, peer(server) as client:
        client.say(b"GET / HTTP/1.0\r\n\r\n")
        status, headers, _ = await client.answer()
        assert (status, headers["connection"].lower()) == (200, "close")
        assert await client.is_closed()


async def test_a_peer_that_wants_no_more_is_let_go():
    async with serving() as server, peer(server) as client:
        client.say(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await client.answer())[0] == 200
        assert await client.is_closed()


async def test_a_large_answer_to_a_slow_reader_arrives_whole():
    async with serving() as server, peer(server) as client:
        client.say(b"GET /large?bytes=20000000 HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
        for _ in range(2):
            status, _, body = await client.answer()
            assert (status, len(body)) == (200, 20_000_000)


# Malformed requests


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no host
        (b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost : x\r\n\r\n", 400),
        (b"GET / HTML/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: many\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: odd\r\n\r\n", 501),
        (b"GET /" + b"a" * 20_000, 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 5_000, 431),
    ],
)
async def test_what_is_not_http_is_refused_and_the_connection_ends(data, status):
    async with serving() as server, peer(server) as client:
        client.say(data)
        found, headers, body = await client.answer()
        assert found == status
        assert headers["connection"] == "close"
        assert json.loads(body)["error"].startswith("malformed request")
        client.writer.write_eof()
        assert await client.is_closed()


async def test_a_body_that_is_malformed_ends_the_connection():
    async with serving() as server, peer(server) as client:
        client.say(b"GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n")
        assert (await client.answer())[0] == 400
        client.writer.write_eof()
        assert await client.is_closed()


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"GET / HTTP/1.1\r\n", b"host: x\r\n", b"\r\n"])))
def test_no_bytes_make_it_raise(chunks):
    async def scenario(host: Host) -> None:
        server = HttpServer(Handlers().routes())
        await server.start(host.name, PORT)
        reader, writer = await asyncio.open_connection(host.name, PORT)
        for chunk in chunks:
            writer.write(chunk)
            await asyncio.sleep(0.001)
        writer.write_eof()
        await reader.read()
        writer.close()
        await server.close(timeout_ms=100)
        assert server.connections == 0

    with World(1) as world:
        world.add_machine("server")
        world.start("server", scenario)
        assert world.run_until_condition(lambda: bool(world.exits), 100 * SECOND)
        world.check()


# Peers that are slow, or leave


async def test_an_idle_connection_is_closed():
    async with serving(idle_ms_max=1) as server, peer(server) as client:
        assert await client.is_closed()
        await wait_until(lambda: not server.connections)


async def test_a_request_that_takes_too_long_to_arrive_is_given_up():
    """However often another byte of it comes."""
    async with serving(read_ms_max=300) as server, peer(server) as client:
        client.say(b"GET / HTTP/1.1\r\n")
        await wait_until(lambda: server.connections)

        def trickle() -> bool:
            with suppress(RuntimeError):  # uvloop's, if the connection has just been closed
                client.say(b"x")
            return not server.connections

        await wait_until(trickle)
        assert await client.is_closed()


async def test_an_answer_that_is_not_taken_is_given_up():
    async with serving(write_ms_max=300) as server, peer(server) as client:
        client.reader._limit = 1
        client.say(b"GET /large?bytes=30000000 HTTP/1.1\r\nhost: x\r\n\r\n")
        await wait_until(lambda: server.connections)
        await wait_until(lambda: not server.connections)


async def test_a_peer_that_never_closes_its_half_is_left_alone_in_the_end():
    async with serving(drain_ms_max=300) as server, peer(server) as client:
        client.say(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n")
        assert (await client.answer("POST"))[0] == 405
        await wait_until(lambda: not server.connections)


async def test_a_handler_that_takes_too_long_is_cancelled_and_the_peer_told():
    async with serving(serve_ms_max=500) as server, peer(server) as client:
        status, _, body = await client.get("/parked")
        assert status == 503
        assert b"too long" in body
        assert server.handlers.cancelled == 1
        assert (await client.get("/"))[0] == 200


async def test_a_peer_that_closes_its_half_gets_its_answer():
    async with serving() as server, peer(server) as client:
        client.say(b"GET /parked HTTP/1.1\r\nhost: x\r\n\r\n")
        client.writer.write_eof()
        await wait_until(lambda: server.handlers.under_way)
        server.handlers.may_answer.set()
        assert (await client.answer())[2] == b"at last"
        assert await client.is_closed()
        await wait_until(lambda: not server.connections)


async def test_a_peer_that_is_gone_when_the_answer_is_ready_harms_nobody():
    async with serving() as server:
        async with peer(server) as client:
            client.say(b"GET /parked HTTP/1.1\r\nhost: x\r\n\r\n")
            await wait_until(lambda: server.handlers.under_way)
        server.handlers.may_answer.set()
        await wait_until(lambda: not server.connections)
        async with peer(server) as client:
            assert (await client.get("/"))[0] == 200


async def test_one_connection_too_many_is_told_so_and_the_others_live(caplog):
    caplog.set_level(logging.WARNING, "quorate.http")
    async with serving(connections_max=2) as server, peer(server) as first, peer(server) as second:
        assert (await first.get("/"))[0] == 200
        assert (await second.get("/"))[0] == 200
        async with peer(server) as third:
            assert (await third.answer())[0] == 503
            assert await third.is_closed()
        await wait_until(lambda: server.connections == 2)
        assert (await first.get("/"))[0] == 200
    assert "connection refused" in caplog.text


async def test_far_too_many_connections_are_not_even_told():
    async with serving(connections_max=1) as server, peer(server), peer(server), peer(server) as third:
        assert await third.is_closed()


# The end


async def test_closing_lets_the_request_under_way_be_answered():
    async with serving() as server, peer(server) as client, peer(server) as idle:
        assert (await idle.get("/"))[0] == 200
        client.say(b"GET /parked HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
        await wait_until(lambda: server.handlers.under_way)
        closing = asyncio.create_task(server.close(timeout_ms=20_000))
        assert await idle.is_closed()
        server.handlers.may_answer.set()
        status, headers, body = await client.answer()
        assert (status, headers["connection"], body) == (200, "close", b"at last")
        assert await client.is_closed()
        client.writer.close()
        await closing
        assert server.handlers.under_way == 1


async def test_closing_waits_no_longer_than_it_is_told():
    async with serving() as server, peer(server) as client:
        client.say(b"GET /parked HTTP/1.1\r\nhost: x\r\n\r\n")
        await wait_until(lambda: server.handlers.under_way)
        await server.close(timeout_ms=1)
        assert server.handlers.cancelled == 1
        assert await client.is_closed()


def test_it_runs_unchanged_in_a_simulated_world():
    bodies = []

    async def serve(_host: Host) -> None:
        server = HttpServer(Handlers().routes())
        await server.start(None, PORT)
        await asyncio.Event().wait()

    async def ask(_host: Host) -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        client = Peer(reader, writer)
        for _ in range(5):
            bodies.append((await client.get("/large?bytes=300000"))[2])  # noqa: PERF401
        writer.close()

    with World(3) as world:
        for name in ("server", "client"):
            world.add_machine(name)
        world.start("server", serve)
        world.start("client", ask)
        assert world.run_until_condition(lambda: len(bodies) == 5, 100 * SECOND)
        world.check()
    assert bodies == [b"x" * 300_000] * 5
