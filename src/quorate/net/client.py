"""The client's end of one connection: requests out, responses back in the same order.

    connection = await Connection.connect("127.0.0.1", 9092, timeout_ms=1000)
    version = connection.version_for(HeartbeatRequest)
    response = await connection.request(HeartbeatRequest(...), version, timeout_ms=1000)

Any number of callers may ask at once; up to a limit their requests are under way together. A request that
is not answered in time ends the connection: after a partition an old connection can be silent for minutes
while a new one works at once, and an answer that comes later must not be taken for another. So a connection
is used until it is lost, and then forgotten.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterator
from ssl import SSLContext
from typing import Final, cast

from quorate import __version__
from quorate.net.framing import FrameReader, scratch_buffer
from quorate.net.limits import Limits
from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.errors import ApiError, ErrorCode, ProtocolError
from quorate.protocol.frame import decode_response, encode_request
from quorate.protocol.message import Request, Response

__all__ = ["Connection", "ConnectionLost"]

_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_MAX: Final = 0x7FFF_FFFF
_API_VERSIONS_START: Final = struct.Struct(">ih")  # correlation id, error code: the same in all versions

_SOFTWARE_NAME: Final = "quorate"


class ConnectionLost(ConnectionError):  # noqa: N818
    """The connection could not be made, has ended, or was given up because an answer did not come in time.

    Whether the request was carried out is not known.
    """


class Connection(asyncio.BufferedProtocol):
    """A connection to one node. See `connect`."""

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_in_flight",
        "_is_gone",
        "_is_writable",
        "_limits",
        "_loop",
        "_loss",
        "_out",
        "_reader",
        "_timer",
        "_timer_at",
        "_transport",
        "_waiting",
        "address",
        "api_versions",
    )

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        limits: Limits,
        scratch: memoryview,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.address = address
        # What the node said about itself when the connection was made: versions and features.
        self.api_versions = ApiVersionsResponse(error_code=0, api_keys=[])
        self._client_id = client_id
        self._limits = limits
        self._loop = loop
        self._reader = FrameReader(scratch, limits.response_bytes_max, limits.frame_bytes_at_once)
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._in_flight: deque[_Call] = deque()
        self._waiting: deque[_Call] = deque()  # for their turn to be sent
        self._out: list[bytearray] = []
        self._is_writable = True
        # One timer for all calls, never later than the earliest deadline.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # uvloop's handle of a time that has passed does not know it
        self._loss: str | None = None
        self._is_gone = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        timeout_ms: float,
        client_id: str = "quorate",
        limits: Limits | None = None,
        scratch: memoryview | None = None,
        tls: SSLContext | None = None,
    ) -> Connection:
        """Connects, with TLS if it is given, and asks which versions the other end speaks.

        Connections of one loop may share the `scratch` buffer that they read into.
        """
        limits = Limits() if limits is None else limits
        scratch = scratch_buffer(limits.read_buffer_bytes) if scratch is None else scratch
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        made = cls((host, port), client_id, limits, scratch, loop)
        try:
            async with asyncio.timeout_at(deadline):
                if tls is None:
                    await loop.create_connection(lambda: made, host, port)
                else:
                    await loop.create_connection(lambda: made, host, port, ssl=tls, server_hostname=host)
        except TimeoutError as error:
            raise ConnectionLost(f"{host}:{port}: not connected after {timeout_ms:g} ms") from error
        except OSError as error:
            raise ConnectionLost(f"{host}:{port}: {error}") from error
        is_ready = False
        try:
            await made._negotiate(deadline)
            is_ready = True
        finally:
            if not is_ready:
                made.abort("the versions were not agreed on")
        return made

    async def request(self, request: Request, version: int, *, timeout_ms: float) -> Response:
        """The response to a request.

        `ConnectionLost` if there is none; `ProtocolError` if it is not a response, or if the request cannot
        be encoded in this version (which the connection survives).
        """
        answer = await self._call(request, version, self._loop.time() + timeout_ms / 1000, is_answered=True)
        return cast("Response", answer)

    async def send(self, request: Request, version: int, *, timeout_ms: float) -> None:
        """Sends a request that will not be answered: Produce with acks=0. Waits while too much is unsent."""
        await self._call(request, version, self._loop.time() + timeout_ms / 1000, is_answered=False)

    def version_for(self, request: type[Request], cap: int | None = None) -> int:
        """The highest version of a request that both ends know, and that is not above the cap."""
        ours = request.__versions__
        for theirs in self.api_versions.api_keys:
            if theirs.api_key == request.__key__:
                last = min(ours.stop - 1, theirs.max_version)
                last = last if cap is None else min(last, cap)
                if last >= max(ours.start, theirs.min_version):
                    return last
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"{self._name()} has no version of {request.__name__} that we have"
        )

    @property
    def is_lost(self) -> bool:
        return self._loss is not None

    async def close(self) -> None:
        """Ends the connection, and returns when it is gone. Whoever waits for an answer gets none."""
        self.abort("closed by us")
        await self._is_gone.wait()

    def abort(self, reason: str) -> None:
        """Ends the connection now. Every caller that waits gets `ConnectionLost` with this reason."""
        if self._loss is not None:
            return
        self._loss = reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for call in self._calls():
            if not call.answer.done():
                call.answer.set_exception(ConnectionLost(f"{self._name()}: {reason}"))
        self._in_flight.clear()
        self._waiting.clear()
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(
            high=self._limits.write_buffer_high_bytes, low=self._limits.write_buffer_low_bytes
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.abort("closed by the other end" if exc is None else str(exc))
        self._is_gone.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._loss is not None:
            return
        for buffer, begin, end in self._reader.received(nbytes):
            self._receive(buffer, begin, end)
            if self.is_lost:
                return
        if self._reader.refusal is not None:
            self.abort(str(self._reader.refusal))
        elif self._waiting:
            self._send_waiting()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._loop.call_soon(self._send_waiting)

    # Calls

    def _call(
        self, request: Request, version: int, deadline: float, *, is_answered: bool
    ) -> asyncio.Future[Response | None]:
        """What the answer will be in."""
        if self._loss is not None:
            raise ConnectionLost(f"{self._name()}: {self._loss}")
        correlation_id = self._correlation_id
        frame = encode_request(request, version, correlation_id, self._client_id)
        if len(frame) > self._limits.request_bytes_max:
            reason = f"is a request of {len(frame)} bytes"
            raise ProtocolError(type(request).__name__, version, "", None, reason)
        self._correlation_id = correlation_id + 1 if correlation_id < _CORRELATION_ID_MAX else 0
        answer: asyncio.Future[Response | None] = self._loop.create_future()
        call = _Call(correlation_id, request.__key__, version, frame, deadline, is_answered, answer)
        self._waiting.append(call)
        self._expect(deadline)
        self._send_waiting()
        return answer

    def _send_waiting(self) -> None:
        """Sends as many as may be under way.

        The first request leaves at once. Others follow at the end of the loop's turn, in one write: what made
        one caller ask (an event, a batch of answers) often made several ask.
        """
        waiting, in_flight, out = self._waiting, self._in_flight, self._out
        is_alone = not in_flight and not out
        while waiting and self._is_writable and len(in_flight) < self._limits.requests_in_flight_max:
            call = waiting.popleft()
            if call.answer.done():
                continue  # the caller went away
            if call.is_answered:
                in_flight.append(call)
            else:
                call.answer.set_result(None)
            if not out and not is_alone:
                self._loop.call_soon(self._flush)
            out.append(call.frame)
            call.frame = bytearray()
        if is_alone:
            self._flush()

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None and not self._transport.is_closing():
            self._out = []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _receive(self, buffer: bytearray, begin: int, end: int) -> None:
        if not self._in_flight:
            self.abort("the other end answered what nobody asked")
            return
        call = self._in_flight.popleft()
        answer = call.answer
        try:
            _check_correlation_id(call, buffer, begin, end)
            if answer.done():
                return  # the caller went away
            version = call.version
            if call.key == ApiVersionsRequest.__key__ and _is_unknown_version(buffer, begin, end):
                version = (
                    0  # whatever we asked: the other end does not know our version, and says so in this one
                )
            _, response = decode_response(call.key, version, buffer, begin, end)
        except ProtocolError as error:
            if not answer.done():
                answer.set_exception(error)
            self.abort(f"malformed response: {error}")
            return
        answer.set_result(response)

    async def _negotiate(self, deadline: float) -> None:
        """Asks for versions and features, in the highest version that the other end has."""
        version = max(ApiVersionsRequest.__versions__)
        while True:
            request = ApiVersionsRequest(
                client_software_name=_SOFTWARE_NAME, client_software_version=__version__
            )
            response = cast(
                "ApiVersionsResponse", await self._call(request, version, deadline, is_answered=True)
            )
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                offered = [one.max_version for one in response.api_keys if one.api_key == request.__key__]
                version = max(0, min([version - 1, *offered]))
                continue
            if response.error_code != ErrorCode.NONE:
                code = response.error_code
                known = code in ErrorCode.__members__.values()
                raise ApiError(
                    ErrorCode(code) if known else ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{self._name()} answered ApiVersions v{version} with error {code}",
                )
            self.api_versions = response
            return

    # Deadlines

    def _expect(self, deadline: float) -> None:
        """Makes sure that somebody looks when this deadline has passed."""
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        self._timer = None
        deadlines = [call.deadline for call in self._calls()]
        if not deadlines:
            return
        if self._loop.time() >= min(deadlines):
            self.abort("no answer in time")
        else:
            self._expect(min(deadlines))

    def _calls(self) -> Iterator[_Call]:
        yield from self._in_flight
        yield from self._waiting

    def _name(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


class _Call:
    """A request, and the answer that somebody waits for: None once it is sent, if there will be no answer.

    A caller that went away leaves a cancelled answer.
    """

    __slots__ = ("answer", "correlation_id", "deadline", "frame", "is_answered", "key", "version")

    def __init__(
        self,
        correlation_id: int,
        key: int,
        version: int,
        frame: bytearray,
        deadline: float,
        is_answered: bool,
        answer: asyncio.Future[Response | None],
    ) -> None:
        self.correlation_id = correlation_id
        self.key = key
        self.version = version
        self.frame = frame
        self.deadline = deadline
        self.is_answered = is_answered
        self.answer = answer


def _check_correlation_id(call: _Call, buffer: bytearray, begin: int, end: int) -> None:
    if end - begin < _CORRELATION_ID.size:
        reason = f"a response of {end - begin} bytes"
        raise ProtocolError("ResponseHeader", None, "correlation_id", None, reason)
    (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, begin)
    if correlation_id != call.correlation_id:
        reason = f"is {correlation_id}, and the oldest unanswered request has {call.correlation_id}"
        raise ProtocolError("ResponseHeader", None, "correlation_id", None, reason)


def _is_unknown_version(buffer: bytearray, begin: int, end: int) -> bool:
    if end - begin < _API_VERSIONS_START.size:
        return False
    _, error_code = _API_VERSIONS_START.unpack_from(buffer, begin)
    return bool(error_code == ErrorCode.UNSUPPORTED_VERSION)
