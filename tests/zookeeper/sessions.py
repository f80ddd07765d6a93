"""Sessions of ours and of kazoo's for the tests."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from kazoo.client import KazooClient

from quorate.zookeeper.errors import SessionExpired
from quorate.zookeeper.servers import Servers
from quorate.zookeeper.session import Session

DEADLINE_S = 60
SESSION_MS = 3_000


async def open_session(connect: str, **options) -> Session:
    options.setdefault("session_timeout_ms", SESSION_MS)
    return await Session.open(Servers.parse(connect), random=random.Random(1), **options)


@asynccontextmanager
async def session_at(connect: str, **options) -> AsyncIterator[Session]:
    session = await open_session(connect, **options)
    try:
        yield session
    finally:
        await session.close()


@contextmanager
def kazoo_at(connect: str, **options) -> Iterator[KazooClient]:
    client = KazooClient(connect, timeout=SESSION_MS / 1000, **options)
    client.start(timeout=DEADLINE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


async def expire(connect: str, session: Session) -> None:
    """Ends a session behind its back, as its time-out would: whoever knows an identity can close it. Its
    owner comes back at once, and may be faster than we close it."""
    async with asyncio.timeout(DEADLINE_S):
        while not session.expired.is_set():
            try:
                other = await open_session(connect, identity=session.identity)
            except SessionExpired:
                await session.expired.wait()
                return
            await other.close()
            await asyncio.sleep(0.05)


async def until(condition: Callable[[], object]) -> None:
    """Until something is so."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)
