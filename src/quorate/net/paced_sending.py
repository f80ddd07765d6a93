"""Ranges of files on a connection that is encrypted: read a piece at a time, as the peer takes it.

What is sent has to pass through this process. So that an answer of fifty megabytes does not stand in memory
as a whole, the next piece is read when the transport has little left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sized
from typing import Final, cast

from quorate.net.file_sending import SendableRange, UnreadableRangeError, is_range
from quorate.protocol.types import Buffer

__all__ = ["PacedSender"]

PIECE_BYTES: Final = 256 << 10
TURN_BYTES_MAX: Final = 1 << 20  # before others have their turn: it is all encrypted here


class PacedSender:
    """Does what `file_sending.FileSender` does, with what it reads."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[], None],
        failed: Callable[[Exception], None],
        unsent_bytes_max: int,
    ) -> None:
        """Nothing is read while the transport has more to send than this, above which it says when it has
        less."""
        self._transport = transport
        self._unsent_bytes_max = unsent_bytes_max
        self._loop = loop
        self._finished = finished
        self._failed = failed
        self._queue: deque[Sized] = deque()
        self._sent_bytes = 0  # of the first in the queue
        self._next_turn: asyncio.Handle | None = None
        self._is_going_on = False

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
        if is_first:
            self._go_on()

    def drained(self) -> None:
        """The transport has less to send."""
        if self._queue and not self._is_going_on:
            self._go_on()
            if not self._queue:
                self._finished()

    def close(self) -> None:
        """Forgets what was not sent."""
        if self._next_turn is not None:
            self._next_turn.cancel()
        for part in self._queue:
            if is_range(part):
                part.release()
        self._queue.clear()
        self._sent_bytes = 0

    def _take_turn(self) -> None:
        self._next_turn = None
        self.drained()

    def _go_on(self) -> None:
        left_bytes = TURN_BYTES_MAX
        self._is_going_on = True  # a transport may say that it is drained while it is written to
        try:
            while self._queue and self._transport.get_write_buffer_size() <= self._unsent_bytes_max:
                if left_bytes <= 0:
                    if self._next_turn is None:
                        self._next_turn = self._loop.call_soon(self._take_turn)
                    break
                left_bytes -= self._send_first()
        except (OSError, UnreadableRangeError) as error:
            self._failed(error)
        finally:
            self._is_going_on = False

    def _send_first(self) -> int:
        """Writes some of the first part. How many bytes."""
        part, start = self._queue[0], self._sent_bytes
        if is_range(part):
            data: Buffer = _read(part, start)
        else:
            data = memoryview(cast("Buffer", part))[start:]
        self._sent_bytes += len(data)
        if self._sent_bytes == len(part):
            self._sent_bytes = 0
            self._queue.popleft()
            if is_range(part):
                part.release()
        if len(data):
            self._transport.write(data)
        return len(data)


def _read(part: SendableRange, start: int) -> bytes | bytearray:
    data = part.read(start, PIECE_BYTES)
    if not data and start < part.size_bytes:
        raise UnreadableRangeError(f"{part}: nothing is left after {start} bytes")
    return data
