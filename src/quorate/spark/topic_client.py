"""The cluster as Spark's processes see it: a client that outlives one task.

Spark calls us without an event loop, from worker processes that it uses again. So a process keeps one loop,
and one client for each cluster that it was asked about; a task pays for connecting only the first time. The
loop runs only while somebody waits for it: what is under way then continues at the next call.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Coroutine
from contextlib import suppress
from ssl import SSLContext
from typing import Any, Final, TypeVar

from quorate.client.cluster import Cluster, ClusterSettings
from quorate.net.tls import TlsSettings, client_context

__all__ = ["Client", "client_of"]

T = TypeVar("T")

_CLIENTS_MAX: Final = 8
_RETRIES_MAX: Final = 1000  # the deadline comes first
_UNKNOWN_TOPIC_WAIT_MS: Final = 3_000
DEADLINE_MS: Final = 60_000


class Client:
    """A cluster, and the loop that it lives on."""

    def __init__(self, bootstrap: str, client_id: str, deadline_ms: int, tls: TlsSettings | None) -> None:
        secured = client_context(tls) if tls is not None else None
        self._loop = _new_loop()
        self.cluster = self.run(_open(bootstrap, client_id, deadline_ms, secured))
        self.process = os.getpid()
        self.publishers: dict[str, Any] = {}  # what writes with this client, and has numbered its batches

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begins something that goes on whenever the loop runs."""
        return self._loop.create_task(work)

    def wait(self, task: asyncio.Task[T]) -> T:
        return self._loop.run_until_complete(task)

    def turn(self) -> None:
        """Gives what was begun the moment that it needs to send its requests."""
        self._loop.run_until_complete(_turns())

    def close(self) -> None:
        if self.process == os.getpid() and not self._loop.is_closed():
            with suppress(Exception):
                self.run(self.cluster.close())
            self._loop.close()


_clients: dict[tuple[str, str, int, TlsSettings | None], Client] = {}


def client_of(
    bootstrap: str,
    client_id: str = "quorate-spark",
    deadline_ms: int = DEADLINE_MS,
    tls: TlsSettings | None = None,
) -> Client:
    """The client of this process for a cluster; the least recently asked for is closed if there are many.

    Whatever fails in a way that may pass is tried again until the deadline: an error that reaches Spark ends
    its query.
    """
    key = bootstrap, client_id, deadline_ms, tls
    client = _clients.pop(key, None)
    if client is None or client.process != os.getpid():  # a fork's connections are its parent's
        client = Client(bootstrap, client_id, deadline_ms, tls)
        while len(_clients) >= _CLIENTS_MAX:
            _clients.pop(next(iter(_clients))).close()
    _clients[key] = client
    return client


@atexit.register
def _close_all() -> None:
    while _clients:
        _clients.popitem()[1].close()


async def _open(bootstrap: str, client_id: str, deadline_ms: int, tls: SSLContext | None) -> Cluster:
    settings = ClusterSettings(
        deadline_ms=deadline_ms,
        retries_max=_RETRIES_MAX,
        unknown_topic_wait_ms=_UNKNOWN_TOPIC_WAIT_MS,
        tls=tls,
    )
    return Cluster(bootstrap, client_id=client_id, settings=settings)


async def _turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
