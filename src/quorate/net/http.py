"""A small HTTP server: what operators and scrapers ask a node.

    server = HttpServer({"/v1/brokers/{id}": describe_broker})
    await server.start("127.0.0.1", 8080)
    ...
    await server.close(timeout_ms=1000)

Almost everything is read-only. What changes something is a pattern that begins with `POST `; it is served to
this machine alone, and to no page of a browser.

HTTP itself is h11's; here is the connection around it. One request is under way per connection; while it is,
nothing more is read. Each phase of a connection has a deadline that no trickle of bytes puts off:

    IDLE      no byte of a request has arrived             idle_ms_max
    READING   a request has begun                          read_ms_max
    SERVING   a handler is at it                           serve_ms_max, then 503
    WRITING   the peer has not taken all of the answer     write_ms_max
    ENDING    we have said all; the peer may not have      drain_ms_max

To end politely is to close our half and to read on until the peer has closed its own: a socket that is closed
with bytes unread would reset the connection, and the peer might never see the answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import Enum, auto
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from quorate.net.http_hosts import is_addressed_to
from quorate.values import dataclass

__all__ = ["HttpError", "HttpHandler", "HttpLimits", "HttpResponse", "HttpServer"]

_QUERY_FIELDS_MAX: Final = 32
_STATE_THAT_MAY_ANSWER: Final = (h11.IDLE, h11.SEND_RESPONSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What one peer may ask of us."""

    connections_max: int = 64
    head_bytes_max: int = 16 * 1024  # request line and headers
    idle_ms_max: int = 60_000
    read_ms_max: int = 10_000
    serve_ms_max: int = 10_000
    write_ms_max: int = 30_000
    drain_ms_max: int = 2_000


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    body: bytes
    content_type: str

    @classmethod
    def json(cls, content: object, status: int = 200) -> HttpResponse:
        body = json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"
        return cls(status, body, "application/json")

    @classmethod
    def text(cls, content: str, status: int = 200) -> HttpResponse:
        return cls(status, content.encode(), "text/plain; charset=utf-8")


class HttpError(Exception):
    """A request that cannot be granted. `more` goes into the answer beside the message."""

    def __init__(self, status: int, message: str, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.more = more

    def response(self) -> HttpResponse:
        return HttpResponse.json({"error": str(self), **self.more}, self.status)


# Is given what the braces of its pattern stand for, and the query: of a key that stands twice, the last one.
HttpHandler = Callable[[Mapping[str, str], Mapping[str, str]], Awaitable[HttpResponse]]


class HttpServer:
    """One listener. `routes` are handlers by pattern, `/v1/brokers/{id}`; they answer GET unless the pattern
    says otherwise: `POST /v1/loggers/{name}`."""

    def __init__(
        self,
        routes: Mapping[str, HttpHandler],
        *,
        limits: HttpLimits | None = None,
        logger: logging.Logger | None = None,
        names: Collection[str] | None = None,
    ) -> None:
        """`names` are what requests may be addressed to, see `http_hosts`; None is anything."""
        self.limits = HttpLimits() if limits is None else limits
        self.logger = logging.getLogger("quorate.http") if logger is None else logger
        self._routes = [_route(pattern, handler) for pattern, handler in routes.items()]
        self.has_posts = any(method == "POST" for method, _, _ in self._routes)
        self._connections: dict[_HttpConnection, None] = {}
        self.names = names
        self._listening: asyncio.Server | None = None
        self._port = 0
        self._is_over = asyncio.Event()
        self.is_closing = False

    async def start(self, host: str | None, port: int) -> None:
        """Listens. Port 0 means any port that is free: see `port`."""
        assert self._listening is None, "a server starts once"
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: _HttpConnection(self, loop), host, port)
        self._port = port or self._listening.sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._port, "the server has not started"
        return self._port

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def close(self, *, timeout_ms: int) -> None:
        """Stops listening, lets requests that are under way be answered, and then ends what is left."""
        self.is_closing = True
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.finish()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._all_over()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._all_over()
        if self._listening is not None:
            await self._listening.wait_closed()

    async def answer(self, target: bytes, method: str = "GET") -> HttpResponse:
        """The response to a request; never an exception but cancellation."""
        try:
            handler, params, query = self._find(target, method)
            return await handler(params, query)
        except HttpError as error:
            return error.response()
        except Exception:
            self.logger.exception("request failed target=%r", target)
            return HttpError(500, "this is a mistake of the node; its log has more").response()

    def _find(self, target: bytes, method: str) -> tuple[HttpHandler, dict[str, str], dict[str, str]]:
        try:
            parts = urlsplit(target.decode("ascii"))
            query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX))
        except ValueError:
            raise HttpError(400, "the target of the request makes no sense") from None
        segments = [unquote(segment) for segment in parts.path.split("/")]
        others = set()
        for served, pattern, handler in self._routes:
            params = _match(pattern, segments)
            if params is not None:
                if served == method:
                    return handler, params, query
                others.add(served)
        if others:
            raise HttpError(405, f"only {' and '.join(sorted(others))} is served there")
        raise HttpError(404, f"there is no {parts.path}")

    async def _all_over(self) -> None:
        while self._connections:
            self._is_over.clear()
            await self._is_over.wait()

    # Called by connections

    def admit(self, connection: _HttpConnection) -> str | None:
        """Counts a connection in, until it is forgotten; or says why it is not served."""
        self._connections[connection] = None
        count, count_max = len(self._connections), self.limits.connections_max
        if count <= count_max and not self.is_closing:
            return None
        if count > 2 * count_max or self.is_closing:
            connection.abort()  # not even a refusal is for free
        self.logger.warning("connection refused connections=%d is_closing=%s", count, self.is_closing)
        return "there are too many connections"

    def forget(self, connection: _HttpConnection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._is_over.set()


def _route(pattern: str, handler: HttpHandler) -> tuple[str, tuple[str, ...], HttpHandler]:
    """
    >>> _route("/metrics", None)[:2], _route("POST /v1/it", None)[:2]
    (('GET', ('', 'metrics')), ('POST', ('', 'v1', 'it')))
    """
    method, _, path = pattern.rpartition(" ")
    return method or "GET", tuple(path.split("/")), handler


def _match(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    """What the braces of a pattern stand for; None if it is another path.

    >>> _match(("", "brokers", "{id}"), ["", "brokers", "3"])
    {'id': '3'}
    """
    if len(pattern) != len(segments):
        return None
    params = {}
    for expected, found in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            params[expected.strip("{}")] = found
        elif expected != found:
            return None
    return params


class _Phase(Enum):
    IDLE = auto()
    READING = auto()
    SERVING = auto()
    WRITING = auto()
    ENDING = auto()


class _HttpConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._http = h11.Connection(h11.SERVER, server.limits.head_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._phase = _Phase.IDLE
        self._timer: asyncio.TimerHandle | None = None
        self._request: h11.Request | None = None
        self._running: asyncio.Task[HttpResponse] | None = None
        self._is_writable = True
        self._is_last = False  # after what is under way, nothing
        self._is_eof = False  # the peer has closed its half

    # Called by the server

    def finish(self) -> None:
        """Ends the connection after the request that is under way."""
        self._is_last = True
        if self._phase in (_Phase.IDLE, _Phase.READING):
            self._end()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # We are told whenever the peer leaves bytes of ours untaken, and when it has taken all.
        self._transport.set_write_buffer_limits(high=0, low=0)
        refusal = self._server.admit(self)
        if refusal is None:
            self._enter(_Phase.IDLE)
        else:
            self._is_last = True
            self._send(HttpError(503, refusal).response())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            self._running.cancel()
        else:
            self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.ENDING or self._is_last:
            return
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        """A peer that has closed its half still gets the answer to what it has asked."""
        self._is_eof = self._is_last = True
        return self._phase in (_Phase.SERVING, _Phase.WRITING)

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        if self._phase is _Phase.WRITING:
            # Not at once: a transport may call this from within the write.
            self._loop.call_soon(self._written)

    # Requests

    def _advance(self) -> None:
        """Looks at what has arrived, as far as that is possible now."""
        while self._phase in (_Phase.IDLE, _Phase.READING) and self._transport is not None:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error)
                return
            if event is h11.NEED_DATA:
                if self._phase is _Phase.IDLE and self._http.trailing_data[0]:
                    self._enter(_Phase.READING)
                return
            if event is h11.PAUSED:
                return
            if isinstance(event, h11.Request):
                self._enter(_Phase.READING)
                self._request = event
                refusal = self._refusal(event)
                if refusal is not None:
                    # What it wants to send us is of no interest.
                    self._is_last = True
                    self._send(refusal.response())
            elif isinstance(event, h11.EndOfMessage):
                self._begin()
            # A request may come with a body, which means nothing.

    def _refusal(self, request: h11.Request) -> HttpError | None:
        """Why a request is not even looked for: it is meant for another, or not everyone may send it."""
        names = self._server.names
        for name, value in request.headers:
            if name == b"host" and names is not None and not is_addressed_to(value.decode("latin-1"), names):
                return HttpError(
                    403,
                    f"the Host header names {value.decode('latin-1')[:100]!r}, which is not this node: use an"
                    " address or a name of its own, or have the operator add the name to quorate.admin.hosts",
                )
        if request.method == b"GET":
            return None
        if request.method != b"POST" or not self._server.has_posts:
            return HttpError(405, "only GET is served")
        if not self._is_from_here():
            return HttpError(403, "what changes something is served to this machine alone")
        if any(name == b"origin" for name, _ in request.headers):
            return HttpError(403, "what changes something is not served to pages of a browser")
        return None

    def _is_from_here(self) -> bool:
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        try:
            address = ip_address(str(peer[0]).partition("%")[0])
        except (TypeError, IndexError, ValueError):
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return bool((mapped or address).is_loopback)

    def _begin(self) -> None:
        request, transport = self._request, self._transport
        assert request is not None
        assert transport is not None
        self._enter(_Phase.SERVING)
        transport.pause_reading()
        self._running = self._loop.create_task(self._server.answer(request.target, request.method.decode()))
        self._running.add_done_callback(self._answered)

    def _answered(self, running: asyncio.Task[HttpResponse]) -> None:
        self._running = None
        if self._transport is None:
            self._server.forget(self)
        elif running.cancelled():
            self._send(HttpError(503, "this takes too long").response())
        else:
            self._send(running.result())

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        self._server.logger.warning("malformed request: %s", error)
        self._is_last = True
        if self._http.our_state in _STATE_THAT_MAY_ANSWER:
            self._send(HttpError(error.error_status_hint, f"malformed request: {error}").response())
        else:
            self._end()

    # Answers

    def _send(self, response: HttpResponse) -> None:
        try:
            self._write(response)
        except (h11.LocalProtocolError, ValueError):
            self._server.logger.exception("an answer that is not HTTP")
            self.abort()

    def _write(self, response: HttpResponse) -> None:
        transport = self._transport
        assert transport is not None
        is_head = self._request is not None and self._request.method == b"HEAD"
        headers = [
            ("content-type", response.content_type),
            ("content-length", str(len(response.body))),
            ("cache-control", "no-store"),
        ]
        if response.status == 405:
            headers.append(("allow", "GET, POST" if self._server.has_posts else "GET"))
        if self._is_last or self._server.is_closing:
            headers.append(("connection", "close"))
        head = h11.Response(
            status_code=response.status, headers=headers, reason=HTTPStatus(response.status).phrase.encode()
        )
        parts = [
            self._http.send(head),
            b"" if is_head else self._http.send(h11.Data(data=response.body)),
            self._http.send(h11.EndOfMessage()),
        ]
        self._enter(_Phase.WRITING)
        transport.write(b"".join(part or b"" for part in parts))
        if self._is_writable:
            self._loop.call_soon(self._written)

    def _written(self) -> None:
        """The peer has taken the whole answer: another request may follow, if both want that."""
        if self._phase is not _Phase.WRITING or not self._is_writable or self._transport is None:
            return
        if self._is_last or self._server.is_closing or self._http.our_state is not h11.DONE:
            self._end()
            return
        try:
            self._http.start_next_cycle()
        except h11.LocalProtocolError:
            self._end()  # the request has not ended, or the peer does not want another
            return
        self._request = None
        self._enter(_Phase.IDLE)
        self._transport.resume_reading()
        self._advance()  # what came together with the last request

    # Ending

    def _end(self) -> None:
        transport = self._transport
        if transport is None or self._phase is _Phase.ENDING:
            return
        has_all = self._is_eof or self._phase is _Phase.IDLE  # nothing that the peer sent is unread
        self._enter(_Phase.ENDING)
        if has_all:
            transport.close()
        elif not transport.is_closing():
            transport.write_eof()
            transport.resume_reading()

    def _enter(self, phase: _Phase) -> None:
        """Sets the deadline of a phase. One that goes on keeps the deadline that it has."""
        if phase is self._phase and self._timer is not None:
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
        limits = self._server.limits
        limit_ms = {
            _Phase.IDLE: limits.idle_ms_max,
            _Phase.READING: limits.read_ms_max,
            _Phase.SERVING: limits.serve_ms_max,
            _Phase.WRITING: limits.write_ms_max,
            _Phase.ENDING: limits.drain_ms_max,
        }[phase]
        self._timer = self._loop.call_later(limit_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self._phase is _Phase.SERVING and self._running is not None:
            self._running.cancel()  # `_answered` has something to say
        elif self._phase is _Phase.IDLE:
            self._end()
        else:
            self.abort()
