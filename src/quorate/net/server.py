"""A listener: accepts connections, and closes them. How many there may be is said in `admitted`.

    server = Server("PLAINTEXT", RouteTable([Route(HeartbeatRequest, heartbeat)]))
    await server.start("127.0.0.1", 9092)
    ...
    await server.close(timeout_ms=5000)

What is said on a connection is in `conversation`, what is served in `routes`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from socket import socket
from ssl import SSLContext
from typing import Any

from quorate.net.admitted import Admitted
from quorate.net.budget import Budget
from quorate.net.conversation import Conversation
from quorate.net.departures import Departures
from quorate.net.framing import SpareFrames, scratch_buffer
from quorate.net.limits import Limits
from quorate.net.routes import Answer, RouteTable
from quorate.net.tls import HANDSHAKE_S
from quorate.values import dataclass

__all__ = ["Counters", "Server"]

# Idle connections are looked for at most this often per period that makes one idle.
_SWEEPS_PER_PERIOD = 16
_TELLS_EVERY_S = 10.0  # that all places are taken


@dataclass(slots=True)
class Counters:
    """What a listener has seen since it started. How many connections there are: `Server.connections`."""

    connections_accepted: int = 0
    connections_refused: int = 0
    connections_displaced: int = 0
    connections_expired: int = 0
    connections_held_back: int = 0
    requests: int = 0
    bytes_received: int = 0
    malformed: int = 0
    unserved: int = 0
    failed: int = 0


class Server:
    """One listener. `routes` may be replaced while it runs: the next request finds the new ones.

    Listeners may share a `budget`, and with `admitted` the number of their connections. `when_queued` is told
    how long a request, by its route id, has waited for those before it, just before its handler is called.
    `when_answered` is called when answers have left that were given at once: whoever takes note of them does
    so then. `throttle_time_ms` says of an answer for how long its connection is muted after it,
    `connection_delay_ms` of an address for how long a new connection is held back before it is closed,
    `connection_turn_ms` of the listener for how long one waits until it is served, None if it must not; 0 is
    for no time.
    """

    def __init__(
        self,
        listener: str,
        routes: RouteTable,
        *,
        limits: Limits | None = None,
        logger: logging.Logger | None = None,
        budget: Budget | None = None,
        when_queued: Callable[[int, float], None] | None = None,
        when_answered: Callable[[], None] | None = None,
        throttle_time_ms: Callable[[Answer], int] | None = None,
        connection_delay_ms: Callable[[str], int] | None = None,
        connection_turn_ms: Callable[[str], float | None] | None = None,
        admitted: Admitted | None = None,
    ) -> None:
        self.listener = listener
        self.routes = routes
        self.limits = Limits() if limits is None else limits
        self.logger = logging.getLogger("quorate.net") if logger is None else logger
        self.budget = Budget() if budget is None else budget
        self.when_queued = when_queued
        self.when_answered = when_answered
        self.throttle_time_ms = throttle_time_ms
        self._connection_delay_ms = connection_delay_ms
        self._connection_turn_ms = connection_turn_ms
        self.admitted = Admitted() if admitted is None else admitted
        self._told_at = -_TELLS_EVERY_S
        self.counters = Counters()
        self.departures = Departures(when_answered)
        # Where every connection reads into, one read at a time: see `framing`.
        self.scratch = scratch_buffer(self.limits.read_buffer_bytes)
        self.spares = SpareFrames()
        self._conversations: dict[Conversation, None] = {}
        self._listening: asyncio.Server | None = None
        self._port = 0
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0  # uvloop's handle of a time that has passed does not know it
        self._is_closing = False
        self._is_over = asyncio.Event()

    async def start(
        self, host: str | None, port: int, tls: SSLContext | None = None, opened: socket | None = None
    ) -> None:
        """Listens, with TLS if it is given. Port 0 means any port that is free: see `port`. `opened` is a
        socket that listens there already."""
        assert self._listening is None, "a server starts once"
        loop = asyncio.get_running_loop()
        self._port = port
        where: dict[str, Any] = {"host": host, "port": port} if opened is None else {"sock": opened}
        if tls is not None:
            where |= {"ssl": tls, "ssl_handshake_timeout": HANDSHAKE_S}
        self._listening = await loop.create_server(lambda: Conversation(self, loop), **where)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        if self._port == 0:
            assert self._listening is not None, "the server has not started"
            self._port = self._listening.sockets[0].getsockname()[1]
        return self._port

    @property
    def connections(self) -> int:
        """How many connections there are, those among them that have closed but whose request still runs."""
        return len(self._conversations)

    async def close(self, *, timeout_ms: int) -> None:
        """Stops listening, lets requests that are under way be answered, and then ends what is left."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        self._is_closing = True
        if self._listening is not None:
            self._listening.close()
        for conversation in list(self._conversations):
            conversation.finish()
        try:
            async with asyncio.timeout_at(deadline):
                await self._all_over()
        except TimeoutError:
            for conversation in list(self._conversations):
                conversation.abort()
            await self._all_over()
        if self._listening is not None:
            await self._listening.wait_closed()

    async def _all_over(self) -> None:
        while self._conversations:
            self._is_over.clear()
            await self._is_over.wait()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    # Called by conversations

    def admit(self, conversation: Conversation) -> str | None:
        """Counts a new connection in; or says why there must not be another."""
        now = asyncio.get_running_loop().time()
        if self._is_closing:
            refusal: str | None = "the listener is closing"
        else:
            refusal = self.admitted.admit(conversation, now)
        if refusal is None:
            self.counters.connections_accepted += 1
        else:
            self.counters.connections_refused += 1
        # A refused one is kept, too, until it is gone: it is ended with all others.
        self._conversations[conversation] = None
        self.watch(conversation.expires_at())
        return refusal

    def hold_back(self, client_host: str) -> int:
        """For how many milliseconds a new connection is held back, because there are too many; 0 for none."""
        delay_ms = 0 if self._connection_delay_ms is None else self._connection_delay_ms(client_host)
        if delay_ms:
            self.counters.connections_held_back += 1
        return delay_ms

    def turn_ms(self) -> float | None:
        """For how many milliseconds a new connection waits until it is served; 0 for none, None if too many
        wait already."""
        turn_ms = 0.0 if self._connection_turn_ms is None else self._connection_turn_ms(self.listener)
        self.counters.connections_refused += turn_ms is None
        return turn_ms

    def displaced(self) -> None:
        """A connection was ended because another has its place."""
        self.counters.connections_displaced += 1
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= _TELLS_EVERY_S:
            self._told_at = now
            self.logger.warning(
                "all connections are taken: those of clients that are idle are closed for new ones"
                " listener=%s connections=%d displaced=%d",
                self.listener,
                len(self.admitted),
                self.counters.connections_displaced,
            )

    def forget(self, conversation: Conversation) -> None:
        """A conversation is over."""
        if conversation in self._conversations:
            del self._conversations[conversation]
            self.admitted.forget(conversation)
        self.budget.forget(conversation)
        if not self._conversations:
            self._is_over.set()

    def watch(self, expires_at: float) -> None:
        """Makes sure that connections are looked at when one expires."""
        timer = self._sweep_timer
        if timer is not None:
            if self._sweep_at <= expires_at:
                return
            timer.cancel()
        self._sweep_at = expires_at
        self._sweep_timer = asyncio.get_running_loop().call_at(expires_at, self._sweep)

    def _sweep(self) -> None:
        """Ends the connections that have expired, and comes back when the next one may."""
        self._sweep_timer = None
        now = asyncio.get_running_loop().time()
        period_s = min(self.limits.idle_ms_max, self.limits.drain_ms_max) / 1000
        next_at = now + self.limits.idle_ms_max / 1000
        for conversation in list(self._conversations):
            if now >= conversation.expires_at():
                conversation.expire(now)
            next_at = min(next_at, conversation.expires_at())
        if self._conversations:
            self.watch(max(next_at, now + period_s / _SWEEPS_PER_PERIOD))
