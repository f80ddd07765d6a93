"""The server's end of one connection: requests in, answers out in the same order.

One request is under way at a time, as in Kafka: what stands behind a parked request waits, undecoded. So
answers are in order, side effects are in order, and a connection can hold up nobody but itself. Whatever
is answered at once is served in the callback of the read, and everything that one read led to leaves in one
write. Requests of a kind that can be answered together (`routes.Series`) are, if they came with one read, or
two by two if they are large: a megabyte that passes through leaves nothing else in the caches, so what serves
it has to come from memory each time. Those that look like one before are not even decoded (`shortcuts`). Only
a handler that waits costs a task.

The peer is slowed down instead of buffered: while it does not read its answers nothing is served to it, and
while too much of what it sent waits, nothing is read from it. What all connections hold together is bounded
by a `budget`.

How it ends:

- The peer closes its half: what has arrived is answered, then we close ours.
- Something malformed, a request that is not served, a handler that raises: answers that are ready leave, the
  rest is dropped, one line is logged.
- The server closes: the request under way is answered, the rest is dropped.
- The connection is lost: the request under way is cancelled. The conversation is over when that has ended.

A peer that has used more than its quota is answered as ever, and then not listened to for a while: it is
muted. One that connects too often is not listened to at all, and closed after a while.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from quorate.net.budget import SLACK_BYTES
from quorate.net.claims import Claims
from quorate.net.departures import DEPARTING_BYTES_MAX
from quorate.net.eventual import Eventual, Pending, pending
from quorate.net.file_sending import UnreadableRangeError
from quorate.net.framing import Frame, FrameReader
from quorate.net.incoming import Incoming
from quorate.net.outgoing import Outgoing
from quorate.net.remembering import Remembered
from quorate.net.routes import (
    Answer,
    AnswerTooLargeError,
    Handler,
    NoResponse,
    NoRoomError,
    RequestContext,
    Series,
)
from quorate.net.shortcuts import Said, Shortcut, Undecoded, Usual
from quorate.protocol.api import APIS
from quorate.protocol.api.connection import ApiVersionsRequest, RequestHeader
from quorate.protocol.errors import ApiError, ProtocolError
from quorate.protocol.frame import decode_request_header, encode_response_parts, read_request
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Buffer

if TYPE_CHECKING:
    from quorate.net.server import Server

__all__ = ["Conversation"]

_ROUTE_ID: Final = struct.Struct(">I")
_SIZE_AND_ROUTE_ID: Final = struct.Struct(">iI")
_KEY_AND_VERSION: Final = struct.Struct(">hh")
_SIZE_BYTES: Final = 4
# Of a request with its size: no smaller one is looked for among those that are known.
_KNOWN_BYTES_MIN: Final = 16
# A peer that is slower than this, while memory is short, is too slow.
_SLOW_BYTES_PER_S: Final = 256 * 1024


class Conversation(asyncio.BufferedProtocol):
    """One connection of a server."""

    __slots__ = (
        "_active_at",
        "_budget",
        "_claims",
        "_context",
        "_counters",
        "_has_waited",
        "_header",
        "_in",
        "_is_closing",
        "_is_eof",
        "_is_heavy",
        "_is_last",
        "_is_starved",
        "_is_writable",
        "_large_since",
        "_limits",
        "_loop",
        "_muted_until",
        "_next_turn",
        "_out",
        "_remembered",
        "_running",
        "_running_bytes",
        "_running_frame",
        "_server",
        "_throttle_time_ms",
        "_transport",
        "_unmute",
        "_unsent_bytes",
        "_usual",
        "get_buffer",
        "has_spoken",
        "held_bytes",
    )
    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]  # the reader's own, for one call less

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._limits = limits = server.limits
        self._counters = server.counters
        self._throttle_time_ms = server.throttle_time_ms
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._budget = server.budget
        self._claims = Claims(server.budget, limits.response_bytes_max, self._account)
        self._context = RequestContext(server.listener, "", 0, "")
        self._in = Incoming(server)
        self.get_buffer = self._in.reader.buffer
        # The answer that is waited for, and the header of its request.
        self._running: Pending[Answer] | None = None
        self._header: RequestHeader | None = None
        self._usual: Usual | None = None  # what it is most likely
        self._running_bytes = 0
        self._running_frame: Frame | None = None  # where it is, if it can be begun anew
        self._out = Outgoing(limits, loop, self._has_sent, self._cannot_send)
        self._remembered = Remembered()  # what may come again
        self._next_turn: asyncio.Handle | None = None
        self._is_writable = True
        self._is_eof = False
        self._is_last = False  # nothing follows what is waiting
        self._is_closing = False  # nothing is served any more
        self._active_at = loop.time()
        self.has_spoken = False  # something has arrived
        self._unsent_bytes = 0
        self.held_bytes = 0  # kept by the budget
        self._is_heavy = False  # an answer of some size was written
        self._is_starved = False  # it waits for memory
        self._has_waited = False  # for a part of the request that is arriving
        self._large_since = 0.0  # when that began
        self._unmute: asyncio.TimerHandle | None = None  # what ends it, while nothing is served to the peer
        self._muted_until = 0.0

    # Called by the server

    def finish(self) -> None:
        """Ends the conversation after the request that is under way."""
        self._in.waiting.clear()
        self._is_last = True
        if self._running is None:
            self._close()
        else:
            self._expect_the_end()

    def abort(self) -> None:
        """Ends the conversation now."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def expires_at(self) -> float:
        """When to give up on this connection, if nothing moves until then.

        A request that is parked has a deadline of its own, kept by its handler.
        """
        limits = self._limits
        if self._is_last or self._is_closing:
            return self._active_at + limits.drain_ms_max / 1000
        if self._running is not None and self._is_writable:
            return math.inf
        return max(self._active_at, self._muted_until) + limits.idle_ms_max / 1000

    def expire(self, now: float) -> None:
        """Gives up on this connection, unless the peer has taken something since this was asked last."""
        if self._transport is None:
            return
        unsent_bytes = self._out.unsent_bytes
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._active_at = now
            return
        self._counters.connections_expired += 1
        self._log("idle for too long", level=logging.INFO)
        self.abort()

    @property
    def client_host(self) -> str:
        return self._context.client_host

    # What `admitted` asks

    @property
    def listener(self) -> str:
        return self._context.listener

    @property
    def client_port(self) -> int:
        return self._context.client_port

    @property
    def active_at(self) -> float:
        return self._active_at

    @property
    def is_busy(self) -> bool:
        return self._running is not None or bool(self._in.waiting) or self._out.unsent_bytes > 0

    def displace(self) -> None:
        """Ends the conversation: another has its place."""
        self._server.displaced()
        self.abort()

    # Called by the budget

    def measure(self) -> int:
        held_bytes = self._in.held_bytes + self._running_bytes + self._claims.held_bytes
        if self._transport is not None:
            held_bytes += self._transport.get_write_buffer_size()
        self._is_heavy = self._is_heavy and held_bytes > SLACK_BYTES
        return held_bytes if held_bytes > SLACK_BYTES else 0

    def wanted_bytes(self) -> int:
        if self._claims.wanted_bytes:
            return self._claims.wanted_bytes
        reader = self._in.reader
        return reader.wanted_bytes() if reader.is_full else SLACK_BYTES

    def go_on(self) -> None:
        self._is_starved = False
        if self._transport is None or self._is_closing:
            self._budget.done(self)
            return
        if self._claims.wanted_bytes:
            self._claims.reserve()
            self._account()
            self._budget.done(self)
        elif self._in.reader.is_full:
            self._has_waited = True
            self._active_at = self._large_since = self._loop.time()
            self._in.reader.grow()
            self._account()
            self._regulate()
        else:
            self._budget.done(self)
        if self._in.waiting or not self._in.is_reading:
            self._serve_soon()

    def stall(self, now: float, patience_s: float) -> str | None:
        if self._transport is None or self._is_starved or self._running is not None:
            return None
        if self._in.reader.is_large:
            allowed_s = patience_s + self._in.reader.held_bytes / _SLOW_BYTES_PER_S
            return "its request arrives too slowly" if now - self._large_since > allowed_s else None
        unsent_bytes = self._out.unsent_bytes
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._active_at = now
        is_stalled = unsent_bytes > 0 and now - self._active_at > patience_s
        return "its answers are not taken" if is_stalled else None

    def shed(self, reason: str) -> None:
        self._log(reason)
        self.abort()

    def _account(self) -> None:
        """Tells the budget what this connection holds, if that has changed."""
        held_bytes = self.measure()
        if held_bytes != self.held_bytes:
            self._budget.settle(self, held_bytes)

    def _starve(self) -> None:
        """Stops until there is memory."""
        self._is_starved = True
        self._in.pause()
        self._budget.wait(self)

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self._context = RequestContext(
            self._server.listener, str(peer[0]), int(peer[1]), "", expect=self._claims.answering
        )
        self._in.open(self._transport)
        self._out.open(self._transport)
        refusal = self._server.admit(self)
        if refusal is not None:
            self._log(refusal)
            self.abort()
            return
        delay_ms = self._server.hold_back(self._context.client_host)
        self._is_last = delay_ms > 0
        turn_ms = delay_ms or self._server.turn_ms()
        if turn_ms is None:
            self._log("too many connections wait for their turn")
            self.abort()
        elif turn_ms:
            self._mute(turn_ms)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._is_closing = True
        self._in.close()
        self._out.close()
        if self._next_turn is not None:
            self._next_turn.cancel()
        if self._unmute is not None:
            self._unmute.cancel()
        if self._running is not None:
            self._account()
            self._running.cancel()
        else:
            self._server.forget(self)

    def buffer_updated(self, nbytes: int) -> None:
        self._active_at = self._loop.time()
        self.has_spoken = True
        self._counters.bytes_received += nbytes
        if self._is_last:
            return
        reader, waiting = self._in.reader, self._in.waiting
        if nbytes >= _KNOWN_BYTES_MIN:
            size, route_id = _SIZE_AND_ROUTE_ID.unpack_from(self._server.scratch)
            if size == nbytes - _SIZE_BYTES <= self._limits.request_bytes_max and self._is_at_rest(reader):
                shortcut = self._remembered.find(self._server.routes, route_id)
                if shortcut is None or not self._serve_known(shortcut, route_id, nbytes):
                    self._serve_alone(route_id, bytearray(self._server.scratch[:nbytes]))
                return
        had_own_buffer = reader.is_large
        waiting.extend(reader.received(nbytes))
        if reader.is_large != had_own_buffer:
            self._large_since = self._active_at
            if had_own_buffer and self._has_waited:
                self._has_waited = False
                self._budget.done(self)
        is_large_complete = had_own_buffer and reader.was_large
        if is_large_complete and len(waiting) == 1:
            self._serve_soon()  # the next may have come too, and two cost less than twice what one does
        if self._next_turn is None:
            self._serve()
        elif is_large_complete and len(waiting) > 1:
            self._next_turn.cancel()
            self._take_turn()
        else:
            self._regulate()
            self._account()
        if reader.is_full:
            self._starve()

    def eof_received(self) -> bool:
        self._is_eof = self._is_last = True
        self._active_at = self._loop.time()
        self.flush()
        self._expect_the_end()
        if self._transport is not None and self._transport.get_extra_info("sslcontext") is not None:
            return False  # TLS has no connections that are half closed
        return bool(self._in.waiting) or self._running is not None or self._out.is_sending

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._active_at = self._loop.time()
        if self._out.is_sending:
            self._out.drained()
            return
        self._is_writable = True
        # Not at once: a transport may call this from within the write that `_serve` is doing.
        self._serve_soon()

    # Serving

    def _serve_soon(self) -> None:
        if self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._next_turn = None
        self._serve()

    def _serve(self) -> None:
        """Answers what is waiting, as far as that is possible now."""
        limits, arrived, out = self._limits, self._in, self._out
        waiting, reader = arrived.waiting, arrived.reader
        served = 0
        while (
            waiting
            and self._running is None
            and self._is_writable
            and self._unmute is None
            and not self._claims.wanted_bytes
            and not self._is_closing
            and not self._claims.wanted_bytes  # or the next one was put back, until `go_on`
        ):
            if served >= limits.requests_per_turn_max:
                self._serve_soon()
                break
            if self._budget.is_over and self._must_wait():
                break
            if arrived.has_queued:
                self._tell_queued()
            buffer, begin, end = waiting.popleft()
            number = self._begin(buffer, begin, end)
            if not number:
                break  # there is no room for it now
            served += number
            if out.size_bytes >= limits.write_buffer_high_bytes:
                self.flush()
        if out.size_bytes:
            self.flush()
        if served:
            self._counters.requests += served
            if self._server.when_answered is not None:
                self._server.when_answered()
        if self._running is None and not waiting and not self._is_closing:
            if reader.refusal is not None:
                self._refuse(str(reader.refusal))
            elif self._is_last:
                self._close()
        if waiting:
            arrived.note_queued(self._loop.time())
        if waiting or not arrived.is_reading or reader.refusal is not None:
            self._regulate()
        if (
            self.held_bytes
            or self._is_heavy
            or waiting
            or self._running_bytes > SLACK_BYTES
            or reader.held_bytes > SLACK_BYTES
        ):
            self._account()

    def _must_wait(self) -> bool:
        """More is held than may be. A large request is served even so, because that gives it back; and so is
        one that room was set aside for."""
        _, begin, end = self._in.waiting[0]
        if end - begin > SLACK_BYTES or self._claims.held_bytes:
            return False
        if not self._is_starved:
            self._starve()
        return self._is_starved

    def _tell_queued(self) -> None:
        """The next request has waited for those before it."""
        waited_ms = (self._loop.time() - self._in.queued_since()) * 1000
        buffer, begin, end = self._in.waiting[0]
        if self._server.when_queued is not None and end - begin >= _SIZE_BYTES:
            (route_id,) = _ROUTE_ID.unpack_from(buffer, begin)
            self._server.when_queued(route_id, waited_ms)

    def _begin(self, buffer: bytearray, begin: int, end: int) -> int:
        """Serves one request, and those like it that are waiting if that is cheaper. How many; none if it has
        to wait for memory."""
        if end - begin < _SIZE_BYTES:
            self._refuse(f"a request of {end - begin} bytes")
            return 1
        (route_id,) = _ROUTE_ID.unpack_from(buffer, begin)
        shortcut = self._remembered.find(self._server.routes, route_id)
        if shortcut is not None and (number := self._take_shortcut(shortcut, route_id, (buffer, begin, end))):
            return number
        return self._decode(route_id, buffer, begin, end)

    def _decode(self, route_id: int, buffer: bytearray, begin: int, end: int) -> int:
        """Decodes one request and calls its handler, or that of a series if more of the kind are waiting. How
        many there were, or none if it has to wait for memory."""
        served = self._server.routes.by_route_id.get(route_id)
        frame = buffer, begin, end
        try:
            if served is None:
                self._not_served(buffer, begin, end)
                return 1
            header, request = read_request(route_id, buffer, begin, end, self._claims.decoding)
        except NoRoomError as error:
            return self._put_back(frame, error)
        except ProtocolError as error:
            self._refuse(str(error))
            return 1
        except Exception as error:
            self._refuse("the decoder failed", error)
            return 1
        number = self._handle(served, route_id, frame, header, request)
        if self._claims.held_bytes and self._running is None:
            self._release()
        return number

    def _handle(
        self,
        served: tuple[Handler, type[Response]],
        route_id: int,
        frame: Frame,
        header: RequestHeader,
        request: Request,
    ) -> int:
        """What is done with a request that was decoded."""
        routes, (_, begin, end) = self._server.routes, frame
        client_id = header.client_id or ""
        if client_id != self._context.client_id:
            self._context = replace(self._context, client_id=client_id)
        if self._in.waiting and route_id in routes.series:
            series = routes.series[route_id]
            requests = self._in.gathered(route_id, series, header, request)
            if len(requests) > 1:
                first = self._answer_together(series, requests)
                if route_id in routes.shortcuts:
                    self._remembered.learn(routes, route_id, self._context, header, request, first, frame)
                return len(requests)
        handler, response_cls = served
        try:
            answer = handler(self._context, header, request)
        except NoRoomError as error:
            return self._put_back(frame, error)
        except Exception as error:
            self._fail(header, error)
            return 1
        self._take(header, answer, response_cls, end - begin, frame)
        if (route_id in routes.shortcuts or route_id in routes.again) and self._unmute is None:
            self._remembered.learn(routes, route_id, self._context, header, request, answer, frame)
        return 1

    def _put_back(self, frame: Frame, error: NoRoomError) -> int:
        """A request has to wait for memory, unless it could wait for ever."""
        size_bytes = frame[2] - frame[1]
        if not self._claims.put_back(error.wanted_bytes, size_bytes):
            self._claims.wanted_bytes = 0
            self._refuse(
                f"it needs {error.wanted_bytes} bytes of memory, and {self._budget.limit_bytes} are for all"
            )
            return 1
        self._in.put_back(frame, self._loop.time())
        self._starve()
        return 0

    def _release(self) -> None:
        """What was claimed for a request is given back."""
        self._claims.release()
        self._account()
        if self._in.reader.is_full and not self._is_starved:
            self._starve()

    def _take(
        self,
        header: RequestHeader,
        answer: Any,
        response_cls: type[Response],
        size_bytes: int,
        frame: Frame | None = None,
    ) -> None:
        """What a handler has said to a request of that size; `frame` is where it is, if that stays there."""
        try:
            if answer.__class__ is response_cls:
                self._answer(header, answer)
                return
            if isinstance(answer, Eventual):
                running: Pending[Answer] = answer
            elif isinstance(answer, (Response, NoResponse)):
                self._check_and_answer(header, answer)
                return
            else:
                running = pending(answer)
        except Exception as error:
            self._fail(header, error)
            return
        self._wait_for(running, header, size_bytes, frame)

    def _wait_for(
        self, running: Pending[Answer], header: RequestHeader, size_bytes: int, frame: Frame | None = None
    ) -> None:
        self._running = running
        self._running_bytes = size_bytes
        self._running_frame = frame
        self._header = header
        running.add_done_callback(self._finished)

    # Shortcuts

    def _is_at_rest(self, reader: FrameReader) -> bool:
        """Whether nothing is on its way, in or out, and nothing is in the way of serving."""
        return (
            self._running is None
            and not self._in.waiting
            and self._is_writable
            and self._next_turn is None
            and self._unmute is None
            and not self._is_closing
            and not reader.held_bytes
            and not reader.was_large
            and not self.held_bytes
            and not self._is_heavy
            and not self._budget.is_over
        )

    def _serve_alone(self, route_id: int, frame: bytearray) -> None:
        """Serves the request that is all that has arrived, its size before it: what `_serve` would do."""
        self._counters.requests += self._decode(route_id, frame, _SIZE_BYTES, len(frame))
        if self._out.size_bytes:
            self._send()
        elif self._running is None and self._server.when_answered is not None:
            self._server.when_answered()
        if self._running_bytes > SLACK_BYTES or self.held_bytes:
            self._account()

    def _serve_known(self, shortcut: Shortcut, route_id: int, nbytes: int) -> bool:
        """Serves the request that is all that has arrived, where it is, if the shortcut knows it."""
        frame = (self._server.scratch, _SIZE_BYTES, nbytes)
        try:
            said = shortcut.serve(self._context, (frame,))
        except Exception as error:
            self._counters.requests += 1
            self._fail(decode_request_header(*frame)[0], error)
            return True
        if said is None:
            return False
        self._counters.requests += 1
        if not isinstance(said, Said):
            self._send_small(said[0])
            return True
        usual = said.usual
        if usual is not None and said.answer is usual.answer:
            self._send_small(usual.with_id(said.header.correlation_id))
            return True
        self._take_said(route_id, frame, said)
        if self._running is None or nbytes > SLACK_BYTES:
            self._serve()
        if self._running is None and self._server.when_answered is not None:
            self._server.when_answered()
        return True

    def _take_shortcut(self, shortcut: Shortcut, route_id: int, frame: Undecoded) -> int:
        """Serves a request, and others that wait behind it, if the shortcut knows them. How many."""
        arrived = self._in
        try:
            said = shortcut.serve(
                self._context, arrived.alike(route_id, frame) if arrived.waiting else (frame,)
            )
        except Exception as error:
            self._fail(decode_request_header(*frame)[0], error)
            return 1
        if said is None:
            return 0
        if isinstance(said, Said):
            self._take_said(route_id, frame, said)
            return 1
        arrived.drop(len(said) - 1)
        for answer in said:
            self._out.put_small(answer)
        return len(said)

    def _take_said(self, route_id: int, frame: Undecoded, said: Said) -> None:
        self._usual, answer, size_bytes = said.usual, said.answer, frame[2] - frame[1]
        if isinstance(answer, Eventual):
            self._wait_for(answer, said.header, size_bytes)
            return
        _, response_cls = self._server.routes.by_route_id[route_id]
        self._take(said.header, answer, response_cls, size_bytes)
        if self._running is None:
            self._usual = None

    def _answer_together(
        self, series: Series, requests: list[tuple[RequestHeader, Request]]
    ) -> Response | None:
        """What the first of them was answered."""
        header, _ = requests[0]
        try:
            answers = series.answer(self._context, requests)
            for (header, _), answer in zip(requests, answers, strict=True):
                self._answer(header, answer)
        except Exception as error:
            self._fail(header, error)
            return None
        return answers[0]

    def _finished(self, running: Pending[Answer]) -> None:
        """The handler that was waited for has ended."""
        header = self._header
        assert header is not None
        usual, frame = self._usual, self._running_frame
        self._running = self._header = self._usual = self._running_frame = None
        self._running_bytes = 0
        if self._claims.held_bytes:
            self._release()
        self._active_at = self._loop.time()
        if (
            isinstance(running, Eventual)
            and (answer := running.value) is not None
            and not self._out.size_bytes
            and self._is_at_rest(self._in.reader)
            and self._in.is_reading
            and not self._is_last
        ):
            self._answer_alone(header, answer, usual)
            return
        error = asyncio.CancelledError() if running.cancelled() else running.exception()
        if self._transport is None:
            # Nobody waits for the answer any more, but a handler that broke is still worth a line.
            if error is not None and not isinstance(error, asyncio.CancelledError):
                self._fail(header, error)
            self._server.forget(self)
            return
        if isinstance(error, NoRoomError) and frame is not None and not self._is_closing:
            self._put_back(frame, error)
        elif error is not None:
            self._fail(header, error)
        elif not self._is_closing:
            answer = running.result()
            try:
                if usual is not None and answer is usual.answer:
                    self._out.put_small(usual.with_id(header.correlation_id))
                else:
                    self._check_and_answer(header, answer)
            except Exception as encoding_error:
                self._fail(header, encoding_error)
        if self._next_turn is None:
            self._serve()

    def _answer_alone(self, header: RequestHeader, answer: Answer, usual: Usual | None) -> None:
        """Sends the answer that is all there was to wait for."""
        if usual is not None and answer is usual.answer:
            self._send_small(usual.with_id(header.correlation_id))
            return
        try:
            self._check_and_answer(header, answer)
        except Exception as error:
            self._fail(header, error)
            return
        if self._out.size_bytes:
            self._send()

    def _check_and_answer(self, header: RequestHeader, answer: Answer) -> None:
        if isinstance(answer, NoResponse):
            if answer.throttle_time_ms:
                self._mute(answer.throttle_time_ms)
            return
        if not isinstance(answer, Response) or answer.__key__ != header.request_api_key:
            raise TypeError(f"{type(answer).__name__} is no answer to {_name(header.request_api_key)}")
        self._answer(header, answer)

    def _answer(self, header: RequestHeader, response: Response) -> None:
        """Encodes an answer. It leaves with the next flush."""
        self._out.put(encode_response_parts(response, header.request_api_version, header.correlation_id))
        if self._throttle_time_ms is not None and (delay_ms := self._throttle_time_ms(response)):
            self._mute(delay_ms)

    # Muting

    def _mute(self, delay_ms: float) -> None:
        """Neither reads nor serves for a while."""
        if self._unmute is not None:
            self._unmute.cancel()
        self._muted_until = self._loop.time() + delay_ms / 1000
        self._unmute = self._loop.call_at(self._muted_until, self._listen_again)
        self._regulate()

    def _listen_again(self) -> None:
        self._unmute = None
        self._active_at = self._loop.time()
        self._regulate()
        if self._next_turn is None:
            self._serve()

    # Answers on their way

    def _send(self) -> None:
        """Sends what there is, with the answers of other connections if there are some."""
        server, out = self._server, self._out
        if out.size_bytes <= DEPARTING_BYTES_MAX and server.departures.crowding.is_expected():
            server.departures.add(out)
            return
        self.flush()
        if server.when_answered is not None:
            server.when_answered()
        if self._is_heavy:
            self._account()

    def _send_small(self, answer: Buffer) -> None:
        """The same of an answer that is whole, and small."""
        out, departures = self._out, self._server.departures
        if out.size_bytes:
            out.put_small(answer)  # it leaves with what is there
        elif departures.crowding.is_expected():
            out.put_small(answer)
            departures.add(out)
        else:
            self._write(answer)
            if self._server.when_answered is not None:
                self._server.when_answered()

    def _write(self, answer: Buffer) -> None:
        """Sends a small answer that nothing stands before."""
        if self._transport is not None:
            self._transport.write(answer)

    def flush(self) -> None:
        """Sends all answers that are there."""
        if self._out.size_bytes:
            if self._out.flush() > SLACK_BYTES:
                self._is_heavy = True
            if self._out.sender is not None and self._out.is_sending:
                self._is_writable = False

    def _has_sent(self) -> None:
        """What was waited for has left."""
        self._active_at = self._loop.time()
        if self._transport is None:
            return
        self._is_writable = True
        if self._is_closing:
            self._transport.close()
        else:
            self._serve_soon()

    def _cannot_send(self, error: Exception) -> None:
        """The connection is lost, or an answer cannot be completed."""
        if isinstance(error, UnreadableRangeError):
            self._counters.failed += 1
            self._log(f"an answer cannot be sent: {error}")
        self.abort()

    def _regulate(self) -> None:
        """Reads, or does not."""
        if not self._is_eof:
            self._in.regulate(is_held_up=self._unmute is not None or self._is_starved)

    # Ending

    def _not_served(self, buffer: bytearray, begin: int, end: int) -> None:
        key, version = _KEY_AND_VERSION.unpack_from(buffer, begin)
        if key == ApiVersionsRequest.__key__:
            header, _ = decode_request_header(buffer, begin, end)
            response = self._server.routes.unknown_api_versions()
            self._out.put(encode_response_parts(response, 0, header.correlation_id))
            return
        self._counters.unserved += 1
        self._log(f"{_name(key)} v{version} is not served here")
        self._close()

    def _refuse(self, reason: str, bug: Exception | None = None) -> None:
        self._counters.malformed += 1
        self._log(f"malformed request: {reason}", bug)
        self._close()

    def _fail(self, header: RequestHeader, error: BaseException) -> None:
        self._counters.failed += 1
        # What a handler says on purpose is an ApiError; anything else is a bug, and worth its traceback.
        expected = (ApiError, AnswerTooLargeError, asyncio.CancelledError)
        bug = None if isinstance(error, expected) else error
        self._log(
            f"{_name(header.request_api_key)} v{header.request_api_version},"
            f" correlation id {header.correlation_id}, failed: {type(error).__name__}: {error}",
            bug,
        )
        self._close()

    def _close(self) -> None:
        """Sends what is ready and closes. Nothing is served after that."""
        self._in.waiting.clear()
        self.flush()
        self._is_closing = True
        if self._transport is not None:
            if not self._out.is_sending:
                self._transport.close()
            self._expect_the_end()

    def _expect_the_end(self) -> None:
        """An end that waits for a handler or for the peer does not wait for ever."""
        if self._out.unsent_bytes > 0 or self._in.waiting or self._running is not None:
            self._server.watch(self.expires_at())

    def _log(self, reason: str, bug: BaseException | None = None, level: int = logging.WARNING) -> None:
        context = self._context
        self._server.logger.log(
            level,
            "connection closed: %s (listener %s, client %s:%d, client id %r)",
            reason,
            context.listener,
            context.client_host,
            context.client_port,
            context.client_id,
            exc_info=bug,
        )


def _name(key: int) -> str:
    return APIS[key][0] if key in APIS else f"key {key}"
