"""One connection to one server: frames, the handshake, and signs of life in both directions."""

from __future__ import annotations

import asyncio
from struct import Struct
from struct import error as struct_error
from typing import Final, Protocol, cast

from quorate.zookeeper import jute

__all__ = ["Receiver", "SessionConnection"]

ANSWER_BYTES_MAX: Final = 16 << 20

_LENGTH: Final = Struct(">i")


class Receiver(Protocol):
    def received(self, data: bytes) -> None:
        """One frame."""

    def received_all(self) -> None:
        """No more frames for now."""


class SessionConnection(asyncio.Protocol):
    """`welcome` is the server's answer to the handshake; `gone` has the reason once it is over."""

    def __init__(self, receiver: Receiver, handshake: jute.Handshake) -> None:
        loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[jute.Welcome] = loop.create_future()
        self.gone: asyncio.Future[str] = loop.create_future()
        self._loop = loop
        self._receiver = receiver
        self._handshake = handshake
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._timer: asyncio.TimerHandle | None = None
        self._idle_s = 0.0
        self._silence_s = 0.0
        self._sent_at = self._heard_at = loop.time()

    @classmethod
    async def connect(
        cls, server: tuple[str, int], receiver: Receiver, handshake: jute.Handshake
    ) -> SessionConnection:
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: cls(receiver, handshake), *server)
        return made

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._sent_at = self._loop.time()
            self._transport.write(data)

    def keep_alive(self, timeout_ms: float) -> None:
        """Pings when nothing else is said, and ends a connection on which nothing is heard."""
        self._idle_s, self._silence_s = timeout_ms / 3000, timeout_ms / 1500
        self._timer = self._loop.call_later(self._idle_s / 2, self._look)

    def abort(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.welcome.done():
            self.welcome.set_exception(
                ConnectionError(f"{reason} (a server that is read-only, cut off from the others, does that)")
            )
            self.welcome.exception()  # somebody may have stopped waiting
        if not self.gone.done():
            self.gone.set_result(reason)
        if self._transport is not None:
            self._transport.abort()

    def _look(self) -> None:
        now = self._loop.time()
        if now - self._heard_at > self._silence_s:
            self.abort(f"nothing was heard for {now - self._heard_at:.1f} s")
            return
        if now - self._sent_at >= self._idle_s or now - self._heard_at >= self._idle_s:
            self.write(jute.PING_FRAME)
        self._timer = self._loop.call_later(self._idle_s / 2, self._look)

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write(self._handshake.frame())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.abort("the server closed the connection" if exc is None else str(exc))

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        data = self._rest + data if self._rest else data
        at, end = 0, len(data)
        try:
            while end - at >= 4:
                (length,) = _LENGTH.unpack_from(data, at)
                if not 0 <= length <= ANSWER_BYTES_MAX:
                    raise ValueError(f"a frame of {length} bytes")
                if end - at - 4 < length:
                    break
                self._frame(data[at + 4 : at + 4 + length])
                at += 4 + length
                if self.gone.done():
                    return
        except (ValueError, IndexError, struct_error) as error:
            self.abort(f"malformed answer: {error}")
            return
        self._rest = data[at:]
        self._receiver.received_all()

    def _frame(self, data: bytes) -> None:
        if self.welcome.done():
            self._receiver.received(data)
        else:
            self.welcome.set_result(jute.Welcome.read(data))
