"""Connections to several nodes, at most one to each: how the nodes of a cluster talk to each other."""

from __future__ import annotations

import asyncio
from dataclasses import field
from ssl import SSLContext
from typing import TYPE_CHECKING

from quorate.net.client import Connection, ConnectionLost
from quorate.net.framing import scratch_buffer
from quorate.net.gate import Address, Gate
from quorate.net.limits import Limits
from quorate.protocol.errors import ApiError
from quorate.protocol.message import Request, Response
from quorate.values import dataclass

if TYPE_CHECKING:
    from random import Random

__all__ = ["Address", "Backoff", "Connections"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before connecting again: twice as long after each failure, give or take a fifth, so
    that nodes that lost the same peer do not come back together.

    >>> from random import Random
    >>> [round(Backoff().delay_ms(failures, Random(7))) for failures in (1, 2, 3, 20)]
    [46, 93, 186, 930]
    """

    first_ms: float = 50
    max_ms: float = 1000

    def delay_ms(self, failures: int, rng: Random) -> float:
        """The delay after so many failures in a row, at least one."""
        doublings = min(failures - 1, 30)  # more make no difference, and could overflow
        return min(self.first_ms * 2.0**doublings, self.max_ms) * rng.uniform(0.8, 1.2)


class Connections:
    """Makes a connection when it is first needed, and again when it is needed after it was lost.

    A request is never sent twice: whoever asked decides whether to ask again. Several of these on one loop
    may share the `scratch` buffer that they read into; a `gate` decides which addresses can be reached.
    """

    def __init__(
        self,
        *,
        rng: Random,
        client_id: str = "quorate",
        limits: Limits | None = None,
        backoff: Backoff | None = None,
        connect_timeout_ms: float = 10_000,
        tls: SSLContext | None = None,
        scratch: memoryview | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._rng = rng
        self._client_id = client_id
        self._limits = Limits() if limits is None else limits
        self._backoff = Backoff() if backoff is None else backoff
        self._connect_timeout_ms = connect_timeout_ms
        self._tls = tls
        self._scratch = scratch or scratch_buffer(self._limits.read_buffer_bytes)
        self._gate = gate
        if gate is not None:
            gate.watch(self)
        self._peers: dict[Address, _Peer] = {}
        self._is_closed = False

    async def request(
        self, address: Address, request: Request, version_cap: int | None = None, *, timeout_ms: float
    ) -> Response:
        """The response of the node at an address, in the highest version that both ends and the cap allow.

        The time includes connecting, and waiting until connecting may be tried again. `ConnectionLost` if
        there is no answer in that time; `ApiError` if the versions have nothing in common.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        peer = self._peers.get(address) or self._new_peer(address)
        connection = peer.connection
        if connection is None or connection.is_lost:
            connection = await self._connected(peer, deadline)
        version = connection.version_for(type(request), version_cap)
        try:
            response = await connection.request(
                request, version, timeout_ms=max(0.0, deadline - loop.time()) * 1000
            )
        except (OSError, ApiError):
            if connection.is_lost:
                self._failed(peer, connection)
            raise
        peer.failures = 0
        return response

    async def reach(self, address: Address, *, timeout_ms: float) -> None:
        """Connects, if that is necessary: for whoever has much to do before he can ask. `ConnectionLost` if
        it is not possible."""
        if not self.is_connected(address):
            peer = self._peers.get(address) or self._new_peer(address)
            await self._connected(peer, asyncio.get_running_loop().time() + timeout_ms / 1000)

    def is_connected(self, address: Address) -> bool:
        """Whether there is a connection that is not known to be lost."""
        peer = self._peers.get(address)
        return peer is not None and peer.connection is not None and not peer.connection.is_lost

    def forget(self, address: Address) -> None:
        """Ends the connection to an address and what is known about it: its node has left."""
        peer = self._peers.pop(address, None)
        if peer is not None:
            peer.abort("the node has left")

    def _new_peer(self, address: Address) -> _Peer:
        made = self._peers[address] = _Peer(address)
        return made

    def drop(self, address: Address) -> None:
        """Ends the connection to an address that can no longer be reached."""
        peer = self._peers.get(address)
        if peer is not None:
            peer.abort("cut off")

    async def close(self) -> None:
        """Ends all connections, and returns when they are gone. Nothing can be asked any more."""
        self._is_closed = True
        peers = list(self._peers.values())
        self._peers.clear()
        for peer in peers:
            peer.abort("closed by us")
        for peer in peers:
            if peer.connection is not None:
                await peer.connection.close()

    async def _connected(self, peer: _Peer, deadline: float) -> Connection:
        """A new connection, or the one that somebody else has made in the meantime.

        Whoever waits for another's attempt shares its refusal: were each to try again by itself, and wait
        longer than the one before, the last of many would hear of a dead node after many delays.
        """
        loop = asyncio.get_running_loop()
        refusals = peer.refusals
        try:
            async with asyncio.timeout_at(deadline):
                await peer.connecting.acquire()
        except TimeoutError as error:
            raise ConnectionLost(f"{peer.name()}: not connected in time") from error
        try:
            if peer.connection is not None and not peer.connection.is_lost:
                return peer.connection
            if peer.refusals != refusals:
                raise ConnectionLost(f"{peer.name()}: {peer.refusal}")
            while loop.time() < min(peer.retry_at, deadline):
                await asyncio.sleep(min(peer.retry_at, deadline) - loop.time())
            left_ms = (deadline - loop.time()) * 1000
            if left_ms <= 0:
                raise ConnectionLost(f"{peer.name()}: failed {peer.failures} times, not tried again in time")
            if self._is_closed or self._peers.get(peer.address) is not peer:
                raise ConnectionLost(f"{peer.name()}: closed by us")
            return await self._connect(peer, min(left_ms, self._connect_timeout_ms))
        finally:
            peer.connecting.release()

    async def _connect(self, peer: _Peer, timeout_ms: float) -> Connection:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            if self._gate is not None and not self._gate.may_connect(peer.address):
                timeout_ms = await self._pass(self._gate, peer, timeout_ms)
            connection = await Connection.connect(
                *peer.address,
                timeout_ms=timeout_ms,
                client_id=self._client_id,
                limits=self._limits,
                scratch=self._scratch,
                tls=self._tls,
            )
        except (OSError, ApiError) as error:
            peer.connection = None
            self._failed(peer, None)
            if loop.time() < deadline:  # otherwise it was this caller who had no more time
                peer.refusals += 1
                peer.refusal = str(error)
            raise
        if self._is_closed or self._peers.get(peer.address) is not peer:
            connection.abort("closed by us")  # while it was being made
        if self._gate is not None and not self._gate.may_connect(peer.address):
            connection.abort("cut off")
        peer.connection = connection
        return connection

    async def _pass(self, gate: Gate, peer: _Peer, timeout_ms: float) -> float:
        """Waits until a peer can be reached; returns what is left of the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await gate.passed(peer.address)
        except TimeoutError as error:
            raise ConnectionLost(f"{peer.name()}: not connected after {timeout_ms:g} ms") from error
        return max(0.0, deadline - loop.time()) * 1000

    def _failed(self, peer: _Peer, connection: Connection | None) -> None:
        """Counts a failure. Of all the callers that a lost connection had, only the first one counts."""
        if peer.connection is not connection:
            return
        peer.connection = None
        peer.failures += 1
        delay_ms = self._backoff.delay_ms(peer.failures, self._rng)
        peer.retry_at = asyncio.get_running_loop().time() + delay_ms / 1000


@dataclass(slots=True)
class _Peer:
    """The node at an address: the connection to it, and how long to leave it alone."""

    address: Address
    connection: Connection | None = None
    failures: int = 0
    retry_at: float = 0.0
    # Attempts that it answered with a no, and what the last no was.
    refusals: int = 0
    refusal: str = ""
    # Held by the one caller that is connecting.
    connecting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def abort(self, reason: str) -> None:
        if self.connection is not None:
            self.connection.abort(reason)

    def name(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"
