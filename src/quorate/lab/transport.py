"""The transport that a protocol sees: asyncio's contract over a simulated socket.

Where stdlib's transport and uvloop's agree, this one does the same, in the same order; `tests/lab` compares
all three. Where they differ, this one is as strict as the stricter: `write` after `connection_lost` raises,
and so does `pause_reading` inside `connection_made`, which uvloop silently ignores.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

from quorate.lab.node_loop import NodeLoop
from quorate.lab.tcp import Part, Socket

__all__ = ["StreamTransport"]

RECEIVE_BYTES_MAX = 256 * 1024
_HIGH_WATER_BYTES = 64 * 1024
_UVLOOP_LOW_WATER_BYTES = 16


class StreamTransport(asyncio.Transport):
    """One end of a connection, in the process."""

    def __init__(self, loop: NodeLoop, socket: Socket, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._socket = socket
        self._protocol: Any = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._backlog: deque[Part] = deque()
        self._backlog_bytes = 0
        self._high_bytes = _HIGH_WATER_BYTES
        self._low_bytes = _UVLOOP_LOW_WATER_BYTES if loop.like_uvloop else _HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._started = False
        self._in_connection_made = False
        self._reading_paused = False
        self._read_due = False
        self._input_ended = False
        self._output_ended = False
        self._closing = False
        self._lost = False  # connection_lost is on its way
        self._over = False  # connection_lost has been called
        self._extra_info = {"peername": socket.out.target.address, "sockname": socket.address}
        self._trace_code = loop.clockwork.trace.code("write")
        socket.reader = self

    def start(self, waiter: asyncio.Future[None] | None = None) -> None:
        """Calls connection_made; reading and whoever waits begin after it, as in asyncio."""
        self._in_connection_made = True
        try:
            self._protocol.connection_made(self)
        finally:
            self._in_connection_made = False
            self._loop.call_soon(self._start_reading)
            if waiter is not None:
                self._loop.call_soon(_wake, waiter)

    # What the protocol may do

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra_info.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._closing and not self._reading_paused

    def pause_reading(self) -> None:
        self._loop.gate()
        if self._in_connection_made:
            raise RuntimeError("pause_reading() inside connection_made() has no effect in uvloop")
        if self.is_reading():
            self._reading_paused = True

    def resume_reading(self) -> None:
        self._loop.gate()
        if self._reading_paused and not self._closing:
            self._reading_paused = False
            self._read_later()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_bytes, self._low_bytes = high, low
        self._maybe_pause_writing()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._loop.gate()
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"write() needs a bytes-like object, not {type(data).__name__}")
        if self._over:
            raise RuntimeError("write() after connection_lost() raises in uvloop: forget the transport there")
        if self._output_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost or not len(data):
            return
        part = _part(data)
        self._loop.clockwork.trace.note(self._trace_code, zlib.crc32(part[0]))
        if not self._backlog:
            try:
                taken = self._socket.send(part)
            except OSError as error:
                self._fatal_error(error, "write failed")
                return
            if taken == len(part[0]):
                return
            part = _rest(part, taken)
        self._backlog.append(part)
        self._backlog_bytes += len(part[0])
        self._maybe_pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._loop.gate()
        if not self._closing and not self._output_ended:
            self._output_ended = True
            if not self._backlog:
                self._socket.shut_down_writing()

    def close(self) -> None:
        self._loop.gate()
        if not self._closing:
            self._closing = True
            if not self._backlog:
                self._lose(None)

    def abort(self) -> None:
        self._loop.gate()
        self._force_close(None)

    # What the socket tells

    @property
    def has_backlog(self) -> bool:
        return bool(self._backlog)

    def readable(self) -> None:
        """Something arrived: read at once, as the loop would that finds the socket ready."""
        if not self._read_due and self._may_read():
            self._read()

    def writable(self) -> None:
        """There is room again."""
        while self._backlog and not self._lost:
            part = self._backlog.popleft()
            try:
                taken = self._socket.send(part)
            except OSError as error:
                self._fatal_error(error, "write failed")
                return
            self._backlog_bytes -= taken
            if taken < len(part[0]):
                self._backlog.appendleft(_rest(part, taken))
                break
        if self._lost:
            return
        self._maybe_resume_writing()
        if not self._backlog:
            if self._closing:
                self._lost = True
                self._connection_lost(None)
            elif self._output_ended:
                self._socket.shut_down_writing()

    def failed(self) -> None:
        """A broken connection is noticed by whoever polls it: the reader, or a writer that waits for room."""
        if self._may_read():
            self._read()
        elif self._backlog and not self._lost:
            self.writable()

    # Reading

    def _start_reading(self) -> None:
        self._started = True
        self._read_later()

    def _may_read(self) -> bool:
        return self._started and not (self._reading_paused or self._closing or self._input_ended)

    def _read_later(self) -> None:
        if not self._read_due and self._may_read() and self._socket.has_news():
            self._read_due = True
            self._loop.call_soon(self._read_now)

    def _read_now(self) -> None:
        self._read_due = False
        if self._may_read():
            self._read()

    def _read(self) -> None:
        alive = self._read_into_buffer() if self._buffered else self._read_data()
        if alive:
            self._read_later()

    def _read_data(self) -> bool:
        try:
            data = self._socket.read(RECEIVE_BYTES_MAX)
        except OSError as error:
            self._fatal_error(error, "read failed")
            return False
        if data is None:
            return False
        if not data:
            return self._end_of_input()
        return self._call("data_received", data)

    def _read_into_buffer(self) -> bool:
        try:
            buffer = self._protocol.get_buffer(-1)
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
        except Exception as error:
            self._fatal_error(error, "get_buffer() failed")
            return False
        try:
            data = self._socket.read(len(buffer))
        except OSError as error:
            self._fatal_error(error, "read failed")
            return False
        if data is None:
            return False
        if not data:
            return self._end_of_input()
        memoryview(buffer)[: len(data)] = data
        return self._call("buffer_updated", len(data))

    def _end_of_input(self) -> bool:
        self._input_ended = True
        try:
            keep_open = self._protocol.eof_received()
        except Exception as error:
            self._fatal_error(error, "eof_received() failed")
            return False
        if not keep_open:
            self.close()
        return False

    def _call(self, name: str, argument: Any) -> bool:
        try:
            getattr(self._protocol, name)(argument)
        except Exception as error:
            self._fatal_error(error, f"{name}() failed")
            return False
        return True

    # Flow control and the end

    def _maybe_pause_writing(self) -> None:
        if self._backlog_bytes > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self._tell_writer(self._protocol.pause_writing)

    def _maybe_resume_writing(self) -> None:
        if self._writing_paused and self._backlog_bytes <= self._low_bytes:
            self._writing_paused = False
            self._tell_writer(self._protocol.resume_writing)

    def _tell_writer(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception as error:
            self._report(error, f"{tell.__name__}() failed")

    def _report(self, error: BaseException, message: str) -> None:
        context = {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        self._loop.call_exception_handler(context)

    def _fatal_error(self, error: Exception, message: str) -> None:
        if not isinstance(error, OSError):
            self._report(error, message)
        self._force_close(error)

    def _force_close(self, error: BaseException | None) -> None:
        if not self._lost:
            self._backlog.clear()
            self._backlog_bytes = 0
            self._closing = True
            self._lose(error)

    def _lose(self, error: BaseException | None) -> None:
        self._lost = True
        self._loop.call_soon(self._connection_lost, error)

    def _connection_lost(self, error: BaseException | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._over = True
            if not self._loop.dead:  # a kernel closes the sockets of the dead in its own way
                self._socket.close()


def _part(data: bytes | bytearray | memoryview) -> Part:
    if isinstance(data, bytes):
        return data, None
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    return bytes(view), None if isinstance(view.obj, bytes) else view


def _rest(part: Part, taken: int) -> Part:
    data, original = part
    return memoryview(data)[taken:], None if original is None else original[taken:]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
