"""The answers of one connection on their way to its peer.

What one read led to is gathered, and leaves in one write. Ranges of files among it are sent from the files
themselves, if the connection allows that and they are large enough for it to save something; everything that
comes after them waits behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import Final

from quorate.net.file_sending import (
    BUFFERS,
    FileSender,
    UnreadableRangeError,
    is_range,
    whole,
    without_ranges,
)
from quorate.net.framing import JOINED_BYTES_MAX, joined, write_parts
from quorate.net.limits import Limits
from quorate.net.paced_sending import PacedSender
from quorate.protocol.types import Buffer

__all__ = ["Outgoing"]

_SIZE_BYTES: Final = 4


class Outgoing:
    """What is not with the peer yet. `size_bytes` is what has not been handed to the transport."""

    __slots__ = (
        "_cannot_send",
        "_has_ranges",
        "_limits",
        "_loop",
        "_parts",
        "_transport",
        "_when_sent",
        "sender",
        "size_bytes",
    )

    def __init__(
        self,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        when_sent: Callable[[], None],
        cannot_send: Callable[[Exception], None],
    ) -> None:
        self._limits = limits
        self._loop = loop
        self._when_sent = when_sent
        self._cannot_send = cannot_send
        self._transport: asyncio.Transport | None = None
        self._parts: list[Sized] = []
        self.size_bytes = 0
        self._has_ranges = False  # of files, among them
        self.sender: FileSender | PacedSender | None = None
        """What sends, from the first range on, if there can be one."""

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._limit_write_buffer()

    def close(self) -> None:
        """Nobody is there any more."""
        self._transport = None
        self._parts.clear()
        if self.sender is not None:
            self.sender.close()
            self.sender = None

    @property
    def is_sending(self) -> bool:
        """Whether ranges of files are on their way."""
        return self.sender is not None and self.sender.is_busy

    @property
    def unsent_bytes(self) -> int:
        """Of what was handed over."""
        if self._transport is None:
            return 0
        sender_bytes = 0 if self.sender is None else self.sender.unsent_bytes
        return self._transport.get_write_buffer_size() + sender_bytes

    def drained(self) -> None:
        """The transport takes more, while ranges of files are on their way."""
        if self.sender is not None:
            self.sender.drained()

    def put(self, parts: list[Sized]) -> None:
        """Adds an answer. It leaves with the next flush."""
        size_bytes = len(parts[0])
        for at in range(1, len(parts)):
            part = parts[at]
            size_bytes += len(part)
            if isinstance(part, BUFFERS):
                continue
            if not is_range(part):
                raise TypeError(f"a part of the response is a {type(part).__name__}, which cannot be sent")
            if len(part) > JOINED_BYTES_MAX:
                self._has_ranges = True
                continue
            try:
                parts[at] = whole(part)
            except UnreadableRangeError as error:
                self._cannot_send(error)
                return
        if size_bytes - _SIZE_BYTES > self._limits.response_bytes_max:
            raise ValueError(f"a response of {size_bytes} bytes")
        self._parts += parts
        self.size_bytes += size_bytes

    def put_small(self, answer: Buffer) -> None:
        """Adds an answer that is whole, and small."""
        self._parts.append(answer)
        self.size_bytes += len(answer)

    def flush(self) -> int:
        """Hands over what there is; how many bytes."""
        parts, size_bytes, transport = self._parts, self.size_bytes, self._transport
        if not parts:
            return 0
        self.size_bytes = 0
        if transport is None or transport.is_closing():
            parts.clear()
            return 0
        if len(parts) == 1 and self.sender is None and not self._has_ranges:  # as nearly always
            transport.write(parts.pop())  # type: ignore[arg-type]
            return size_bytes
        self._parts = []
        if self._has_ranges or (self.sender is not None and self.sender.is_busy):
            self._send(transport, parts)
        else:
            write_parts(transport, parts)
        return size_bytes

    def _send(self, transport: asyncio.Transport, parts: list[Sized]) -> None:
        """Writes parts with ranges of files among them, or behind some."""
        self._has_ranges = False
        if self.sender is None:
            self.sender = FileSender.of(transport, self._loop, self._has_sent, self._cannot_send)
        if self.sender is None and transport.get_extra_info("sslcontext") is not None:
            unsent_bytes_max = self._limits.write_buffer_high_bytes
            self.sender = PacedSender(
                transport, self._loop, self._has_sent, self._cannot_send, unsent_bytes_max
            )
        sender = self.sender
        try:
            if sender is None:
                write_parts(transport, without_ranges(parts))
                return
            sender.send(joined(parts))
        except UnreadableRangeError as error:
            self._cannot_send(error)

    def _has_sent(self) -> None:
        self._limit_write_buffer()
        self._when_sent()

    def _limit_write_buffer(self) -> None:
        if self._transport is not None:
            limits = self._limits
            self._transport.set_write_buffer_limits(
                high=limits.write_buffer_high_bytes, low=limits.write_buffer_low_bytes
            )
