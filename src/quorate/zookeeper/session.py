"""One session with ZooKeeper, on whichever of its servers can be reached.

    session = await Session.open(servers, random=Random(), session_timeout_ms=6000)
    await session.ask(Create("/a", b"1"))
    contents = await session.ask_all([Get(path) for path in paths])   # results, or errors where there are any
    await session.close()

Requests are written without waiting for the answers of others, up to a window; answers come in the same
order. A lost connection is made again, on another server if need be, for as long as it takes: what was under
way is asked again, what was watched is watched again, and nobody who waits notices. So a request may be
carried out twice, and whoever writes conditionally must expect to be refused because of himself.

Only the servers decide that a session is over, and we hear of it when we are connected again. Then everybody
who waits gets `SessionExpired`, `expired` is set, and this object is of no more use: whoever wants to go on
opens another session. Its ephemeral nodes are gone, or will be.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any, Final, NamedTuple, Self

from quorate.zookeeper import jute
from quorate.zookeeper.connection import SessionConnection
from quorate.zookeeper.errors import (
    AuthFailed,
    ConnectionLoss,
    NodeExists,
    NoNode,
    SessionExpired,
    ZooKeeperError,
)
from quorate.zookeeper.servers import Servers
from quorate.zookeeper.watches import Watches

__all__ = ["Identity", "Session"]

RETRY_MS: Final = 100  # between attempts: a session is lost by whoever comes back too late
FRAME_BYTES_MAX: Final = 4 << 20  # what Kafka sets `jute.maxbuffer` to
SERVER_BYTES_MAX: Final = 0xFFFFF  # what a server takes at once unless it was told otherwise
TOO_LARGE_ATTEMPTS: Final = 3
COMPLAIN_S: Final = 30.0
CLOSE_S: Final = 2.0

_logger = logging.getLogger("quorate.zookeeper")


class Identity(NamedTuple):
    """What a session is known by. Whoever knows it can use it, and close it."""

    session_id: int
    password: bytes


NOBODY: Final = Identity(0, bytes(16))


class Session:
    """See above. `ask` raises `ZooKeeperError`; `ask_all` returns errors among the results."""

    def __init__(
        self,
        servers: Servers,
        random: Random,
        session_timeout_ms: int,
        max_in_flight: int,
        digest: str | None,
        identity: Identity,
    ) -> None:
        self.identity = identity
        self.timeout_ms = session_timeout_ms
        self.expired = asyncio.Event()
        self.connected = asyncio.Event()
        self._servers = servers
        self._chroot = servers.chroot
        self._random = random
        self._max_in_flight = max_in_flight
        self._digest = digest
        self._loop = asyncio.get_running_loop()
        self._connection: SessionConnection | None = None
        self._waiting: deque[_Entry] = deque()
        self._in_flight: deque[_Entry] = deque()
        self._watches = Watches()
        self._xid = 0
        self._zxid = 0
        self._is_closed = False
        self._was_welcome = identity is not NOBODY
        self._failure: ZooKeeperError | None = None
        self._complained_at = float("-inf")
        self._keeping: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        servers: Servers,
        *,
        random: Random,
        session_timeout_ms: int,
        max_in_flight: int = 10,
        digest: str | None = None,
        identity: Identity = NOBODY,
    ) -> Self:
        """A session, however long it takes; a new one unless an identity is given. The chroot is made if it
        is missing. `AuthFailed` if we are not who we say, `SessionExpired` if the identity's is over."""
        session = cls(servers, random, session_timeout_ms, max_in_flight, digest, identity)
        session._keeping = session._loop.create_task(session._keep())
        try:
            await session._until_connected()
            await session._make_chroot()
        except BaseException:
            await session.close()
            raise
        return session

    @property
    def session_id(self) -> int:
        return self.identity.session_id

    # Asking

    async def ask(self, operation: jute.Operation) -> Any:
        """The result of one operation."""
        (result,) = await self.ask_all((operation,))
        if isinstance(result, ZooKeeperError):
            raise result
        return result

    async def ask_all(self, operations: Sequence[jute.Operation]) -> list[Any]:
        """The results of operations in their order, errors among them. `SessionExpired` is raised."""
        return await self._ask_below(operations, self._chroot)

    async def _ask_below(self, operations: Sequence[jute.Operation], chroot: str) -> list[Any]:
        if not operations:
            return []
        if self.expired.is_set() or self._is_closed:
            raise SessionExpired(operations[0].path)
        batch = _Batch(len(operations), self._loop.create_future())
        self._waiting.extend(_Entry(one, batch, at, chroot) for at, one in enumerate(operations))
        self._send()
        await batch.done
        return batch.results

    def _send(self) -> None:
        connection = self._connection
        if connection is None:
            return
        frames = []
        waiting, in_flight = self._waiting, self._in_flight
        while waiting and len(in_flight) < self._max_in_flight:
            entry = waiting.popleft()
            if entry.batch.done.done():
                continue  # whoever asked went away
            self._xid = self._xid + 1 if self._xid < 0x7FFF_FFFF else 1
            frame = jute.frame(self._xid, entry.operation, entry.chroot)
            entry.xid = self._xid
            entry.attempts += 1
            is_hopeless = len(frame) > SERVER_BYTES_MAX and entry.attempts > TOO_LARGE_ATTEMPTS
            if len(frame) > FRAME_BYTES_MAX or is_hopeless:
                reason = f"{len(frame)} bytes are more than ZooKeeper takes at once"
                entry.finish(ConnectionLoss(entry.operation.path, reason))
                continue
            in_flight.append(entry)
            frames.append(frame)
        if frames:
            connection.write(b"".join(frames))

    # Called by the connection

    def received(self, data: bytes) -> None:
        """One frame."""
        xid, zxid, code = jute.reply(data)
        if zxid > 0:
            self._zxid = zxid
        if xid == jute.XID_EVENT:
            self._watches.fire(jute.event(data, self._chroot))
            return
        if xid == jute.XID_AUTH:
            if code:
                self._failure = AuthFailed()
                _logger.error("ZooKeeper does not accept our credentials")
            return
        if xid < 0:
            return
        if not self._in_flight or self._in_flight[0].xid != xid:
            raise ValueError(f"an answer to request {xid}, which is not the next one")
        entry = self._in_flight.popleft()
        operation = entry.operation
        result: Any
        if code:
            result = operation.error(code)
        else:
            try:
                result = operation.result(data, jute.REPLY_BYTES, entry.chroot)
            except ZooKeeperError as error:
                result = error
        self._watches.note(operation, result)
        entry.finish(result)

    def received_all(self) -> None:
        """No more frames for now. What waits is sent when half of the window is free: many requests in one
        write take much less of both ends than one each."""
        if self._waiting and len(self._in_flight) <= self._max_in_flight // 2:
            self._send()

    # Keeping it

    async def _keep(self) -> None:
        """Connects, again and again, until the session is over or closed."""
        failures = 0
        while not self._is_closed:
            server = self._servers.next(self._random)
            try:
                connection, welcome = await self._connect(server)
            except (OSError, ValueError) as error:
                failures += 1
                self._complain(server, error)
                pause_ms = RETRY_MS * (1 if failures < 10 * len(self._servers) else 5)
                await asyncio.sleep(pause_ms * self._random.uniform(0.8, 1.2) / 1000)
                continue
            if welcome.timeout_ms <= 0 or welcome.session_id == 0:
                connection.abort("the session is over")
                self._expire()
                return
            failures = 0
            self._begin(connection, welcome, server)
            reason = await connection.gone
            self._lose(reason, server)
            if isinstance(self._failure, AuthFailed) and not self._was_welcome:
                return
            await asyncio.sleep(RETRY_MS * self._random.uniform(0.0, 0.2) / 1000)

    async def _connect(self, server: tuple[str, int]) -> tuple[SessionConnection, jute.Welcome]:
        timeout_s = max(0.2, self.timeout_ms / 1000 / max(1, len(self._servers)))
        handshake = jute.Handshake(self._zxid, self.timeout_ms, *self.identity)
        try:
            async with asyncio.timeout(timeout_s):
                connection = await SessionConnection.connect(server, self, handshake)
                try:
                    return connection, await connection.welcome
                except BaseException:
                    connection.abort("no session")
                    raise
        except TimeoutError:
            raise OSError(f"no answer in {timeout_s:.1f} s") from None

    def _begin(self, connection: SessionConnection, welcome: jute.Welcome, server: tuple[str, int]) -> None:
        is_new = welcome.session_id != self.identity.session_id
        self.identity = Identity(welcome.session_id, welcome.password)
        self.timeout_ms = welcome.timeout_ms
        _logger.info(
            "%s session=%#x server=%s:%d timeout_ms=%d",
            "session opened" if is_new else "session continues",
            self.session_id,
            *server,
            self.timeout_ms,
        )
        self._complained_at = float("-inf")
        self._connection = connection
        connection.keep_alive(self.timeout_ms)
        if self._digest is not None:
            connection.write(jute.auth_frame("digest", self._digest.encode()))
        for frame in self._watches.frames(self._zxid, self._chroot):
            connection.write(frame)
        self.connected.set()
        self._send()

    def _lose(self, reason: str, server: tuple[str, int]) -> None:
        self._connection = None
        self.connected.clear()
        if not self._is_closed:
            _logger.warning(
                "connection lost session=%#x server=%s:%d reason=%s: what is known is served meanwhile",
                self.session_id,
                *server,
                reason,
            )
        self._waiting.extendleft(reversed(self._in_flight))
        self._in_flight.clear()

    def _complain(self, server: tuple[str, int], error: Exception) -> None:
        """One line at first, and one now and then."""
        now = self._loop.time()
        if now - self._complained_at >= COMPLAIN_S:
            self._complained_at = now
            _logger.warning("ZooKeeper is not reached server=%s:%d reason=%s: trying again", *server, error)

    def _expire(self) -> None:
        _logger.warning("session expired session=%#x", self.session_id)
        self.expired.set()
        self._fail_all(SessionExpired)
        self._watches.clear()

    def _fail_all(self, error: type[ZooKeeperError]) -> None:
        for entry in (*self._in_flight, *self._waiting):
            entry.fail(error(entry.operation.path))
        self._in_flight.clear()
        self._waiting.clear()

    async def _until_connected(self) -> None:
        assert self._keeping is not None
        waits = [self._loop.create_task(one.wait()) for one in (self.connected, self.expired)]
        try:
            await asyncio.wait([*waits, self._keeping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        if self.expired.is_set():
            raise SessionExpired

    async def _make_chroot(self) -> None:
        """One read tells that we may go on: wrong credentials end the connection instead."""
        assert self._keeping is not None
        asking = self._loop.create_task(self._ensure_chroot())
        await asyncio.wait([asking, self._keeping], return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
            raise self._failure or SessionExpired()
        asking.result()
        self._was_welcome = True

    async def _ensure_chroot(self) -> None:
        if not self._chroot:
            await self._ask_below([jute.Exists("/")], "")
            return
        (found,) = await self._ask_below([jute.Exists(self._chroot)], "")
        if isinstance(found, jute.Stat):
            return
        if not isinstance(found, NoNode):
            raise found
        _logger.info("chroot created path=%s", self._chroot)
        parts = self._chroot.strip("/").split("/")
        paths = ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        for result in await self._ask_below([jute.Create(path) for path in paths], ""):
            if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExists):
                raise result

    # Ending it

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are gone when this returns, if a server could be told."""
        if self._is_closed:
            return
        self._is_closed = True
        connection = self._connection
        if connection is not None:
            connection.write(jute.CLOSE_FRAME)
            await asyncio.wait([connection.gone], timeout=CLOSE_S)
        await self._end()

    async def abandon(self) -> None:
        """Leaves the session to time out, as a process that is killed does."""
        self._is_closed = True
        await self._end()

    async def _end(self) -> None:
        if self._connection is not None:
            self._connection.abort("closed by us")
            self._connection = None
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        self._fail_all(SessionExpired)


class _Batch:
    """Requests that somebody waits for together."""

    __slots__ = ("done", "left", "results")

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.results: list[Any] = [None] * count
        self.left = count
        self.done = done


class _Entry:
    """One of them."""

    __slots__ = ("at", "attempts", "batch", "chroot", "operation", "xid")

    def __init__(self, operation: jute.Operation, batch: _Batch, at: int, chroot: str) -> None:
        self.operation = operation
        self.batch = batch
        self.at = at
        self.chroot = chroot
        self.attempts = 0
        self.xid = 0

    def finish(self, result: Any) -> None:
        batch = self.batch
        batch.results[self.at] = result
        batch.left -= 1
        if not batch.left and not batch.done.done():
            batch.done.set_result(None)

    def fail(self, error: ZooKeeperError) -> None:
        if not self.batch.done.done():
            self.batch.done.set_exception(error)
