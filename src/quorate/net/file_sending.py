"""Ranges of files in answers: how they leave.

On a plain socket a range goes from the file to the socket without passing through Python. The transport
cannot do that, so it is done behind its back, on a duplicate of its socket, while the transport itself has
nothing to send: what was written before leaves first, and what comes after a range waits until the range is
gone. Where there is no such socket (under TLS, in a simulation), and where a range is small, it is read and
written like any other part.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sized
from typing import Final, Protocol, TypeGuard, cast

from quorate.protocol.types import Buffer

__all__ = [
    "BUFFERS",
    "FileSender",
    "SendableRange",
    "UnreadableRangeError",
    "is_range",
    "whole",
    "without_ranges",
]

BUFFERS: Final = (bytearray, bytes, memoryview)

# What one call may send, and what may be sent before others have their turn.
CALL_BYTES_MAX: Final = 1 << 20
TURN_BYTES_MAX: Final = 4 << 20

# What a file system or a kind of socket says that has no sendfile.
_NO_SENDFILE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)


class SendableRange(Protocol):
    """A part of a file that an answer consists of."""

    @property
    def position(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def descriptor(self) -> int | None:
        """What the operating system calls the file; None if it knows nothing of it."""

    def __len__(self) -> int: ...

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes | bytearray:
        """Some of the bytes, or all; fewer if they are not there any more."""

    def release(self) -> None:
        """It is not needed any more."""


class UnreadableRangeError(Exception):
    """Bytes were promised that are not in the file any more, or that its disk does not give: the rest of the
    answer cannot be sent."""


def is_range(part: Sized) -> TypeGuard[SendableRange]:
    """Whether this is a range of a file. Whatever else is sent is a buffer."""
    return hasattr(part, "descriptor") and hasattr(part, "read")


def without_ranges(parts: Iterable[Sized]) -> list[Sized]:
    """The same parts, with all ranges read."""
    return [whole(part) if is_range(part) else part for part in parts]


def whole(part: SendableRange) -> bytes | bytearray:
    """All bytes of a range, which is not needed any more."""
    try:
        data = part.read()
    except OSError as error:
        raise UnreadableRangeError(f"{part}: {error}") from error
    if len(data) != part.size_bytes:
        raise UnreadableRangeError(f"{part}: {len(data)} bytes are left")
    part.release()
    return data


class FileSender:
    """Sends parts on a duplicate of a transport's socket, ranges of files among them.

    While it `is_busy` nobody else may write: everything goes through `send`. It waits for the transport to
    have nothing left to send, of which `drained` tells it, and then for the socket to take more. `finished`
    is called when it was busy and is not any more, `failed` when the connection is not to be used again.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._finished = finished
        self._failed = failed
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket.setblocking(False)
        self._queue: deque[Sized] = deque()
        self._sent_bytes = 0  # of the first in the queue
        self._is_draining = False
        self._is_writer = False  # the loop watches the socket for us

    @classmethod
    def of(
        cls,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> FileSender | None:
        """One for this transport, if that is one of a plain socket."""
        own = transport.get_extra_info("socket")
        if own is None or transport.get_extra_info("sslcontext") is not None or not hasattr(os, "sendfile"):
            return None
        return cls(transport, loop, finished, failed)

    @property
    def is_busy(self) -> bool:
        return bool(self._queue)

    @property
    def unsent_bytes(self) -> int:
        return sum(map(len, self._queue)) - self._sent_bytes

    def send(self, parts: Iterable[Sized]) -> None:
        """Sends parts, now or later, after whatever was written before."""
        is_first = not self._queue
        self._queue.extend(parts)
        if not is_first:
            return
        if self._transport.get_write_buffer_size():
            # With these limits the transport says when it has nothing left.
            self._is_draining = True
            self._transport.set_write_buffer_limits(high=0)
        else:
            self._go_on()

    def drained(self) -> None:
        """The transport has less to send. Whether that is nothing, it is asked."""
        if self._is_draining and not self._transport.get_write_buffer_size():
            self._is_draining = False
            self._go_on()
            if not self._queue:
                self._finished()

    def close(self) -> None:
        """Forgets what was not sent."""
        self._stop_watching()
        for part in self._queue:
            if is_range(part):
                part.release()
        self._queue.clear()
        self._sent_bytes = 0
        self._is_draining = False
        self._socket.close()

    def _writable(self) -> None:
        self._go_on()
        if not self._queue and self._is_writer:
            self._stop_watching()
            self._finished()

    def _go_on(self) -> None:
        """Sends what the socket takes."""
        left_bytes = TURN_BYTES_MAX
        try:
            while self._queue and left_bytes > 0:
                left_bytes -= self._send_first()
        except BlockingIOError:
            pass
        except (OSError, UnreadableRangeError) as error:
            self._stop_watching()
            self._failed(error)
            return
        if self._queue and not self._is_writer:
            self._is_writer = True
            self._loop.add_writer(self._socket.fileno(), self._writable)

    def _send_first(self) -> int:
        """Sends some of the first part. How many bytes."""
        part = self._queue[0]
        more = _MORE_FOLLOWS if len(self._queue) > 1 else 0
        if is_range(part):
            sent = self._send_range(part, more)
        else:
            data = memoryview(cast("Buffer", part))[self._sent_bytes :]
            sent = self._socket.send(data, more) if data else 0
        self._sent_bytes += sent
        if self._sent_bytes == len(part):
            self._sent_bytes = 0
            self._queue.popleft()
            if is_range(part):
                part.release()
        return sent

    def _send_range(self, part: SendableRange, more: int) -> int:
        start, descriptor = self._sent_bytes, part.descriptor
        count = min(part.size_bytes - start, CALL_BYTES_MAX)
        sent = 0
        try:
            if descriptor is not None:
                sent = os.sendfile(self._socket.fileno(), descriptor, part.position + start, count)
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise
            descriptor = None
        if descriptor is None:
            data = part.read(start, count)
            sent = self._socket.send(data, more) if data else 0
        if not sent:
            raise UnreadableRangeError(f"{part}: nothing is left after {start} bytes")
        return sent

    def _stop_watching(self) -> None:
        if self._is_writer:
            self._is_writer = False
            self._loop.remove_writer(self._socket.fileno())
