"""The controller's channels to brokers: one queue and one request under way for each.

A request is sent again until the broker answers or is no member any more, so whatever a broker gets, it gets
in order. Brokers do not wait for each other. A queue that becomes too long is thrown away, and the broker is
told everything anew (`overflowed`): it is told where things are, not how they came about.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from quorate.net.client import ConnectionLost
from quorate.net.connections import Address, Connections
from quorate.protocol.errors import ApiError, ProtocolError
from quorate.protocol.message import Request, Response
from quorate.zookeeper.registration_json import Member

__all__ = ["Channels"]

RETRY_MS: Final = 100
QUEUE_MAX: Final = 10_000

_logger = logging.getLogger("quorate.zookeeper")


class Channels:
    """Brokers are told on the first of the `listeners` that they have. `answered` is called with what a
    broker said to what; it must not wait."""

    def __init__(
        self,
        connections: Connections,
        listeners: Sequence[str],
        timeout_ms: float,
        answered: Callable[[int, Request, Response], None],
        overflowed: Callable[[int], None],
    ) -> None:
        self._connections = connections
        self._listeners = listeners
        self._timeout_ms = timeout_ms
        self._answered = answered
        self._overflowed = overflowed
        self._channels: dict[int, _Channel] = {}

    def open(self, member: Member) -> None:
        """To a broker that is a member now; whatever was meant for an earlier life of it is forgotten."""
        self.close(member.id)
        places = [place for name in self._listeners if (place := member.listener(name)) is not None]
        if not places:
            wanted = " or ".join(name for name in self._listeners if name)
            _logger.error("broker %d has no listener %s: it is told nothing", member.id, wanted)
            return
        place = places[0]
        channel = _Channel(member.id, (place.host, place.port))
        channel.task = asyncio.get_running_loop().create_task(self._serve(channel))
        self._channels[member.id] = channel

    def close(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None and channel.task is not None:
            channel.task.cancel()

    def send(self, broker_id: int, requests: Sequence[Request]) -> None:
        channel = self._channels.get(broker_id)
        if channel is None:
            return
        if len(channel.queue) + len(requests) > QUEUE_MAX:
            _logger.warning("broker %d does not keep up: it will be told everything anew", broker_id)
            channel.queue.clear()
            self._overflowed(broker_id)
            return
        channel.queue.extend(requests)
        channel.wake.set()

    def queued(self, broker_id: int) -> int:
        channel = self._channels.get(broker_id)
        return 0 if channel is None else len(channel.queue)

    async def stop(self) -> None:
        """Ends all of them, whatever is under way."""
        tasks = [one.task for one in self._channels.values() if one.task is not None]
        for broker_id in list(self._channels):
            self.close(broker_id)
        if tasks:
            await asyncio.wait(tasks)
        await self._connections.close()

    async def _serve(self, channel: _Channel) -> None:
        while True:
            while not channel.queue:
                channel.wake.clear()
                await channel.wake.wait()
            request = channel.queue[0]
            try:
                response = await self._connections.request(
                    channel.address, request, timeout_ms=self._timeout_ms
                )
            except ConnectionLost as error:
                channel.complain(error)
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            except (ApiError, ProtocolError) as error:
                name = type(request).__name__
                _logger.error("broker %d cannot be told %s: %s", channel.broker_id, name, error)
                response = None
            channel.failures = 0
            if channel.queue and channel.queue[0] is request:
                channel.queue.popleft()
            if response is not None:
                self._answered(channel.broker_id, request, response)


class _Channel:
    def __init__(self, broker_id: int, address: Address) -> None:
        self.broker_id = broker_id
        self.address = address
        self.queue: deque[Request] = deque()
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.failures = 0

    def complain(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            _logger.warning("broker %d is not reached: %s: trying again", self.broker_id, error)
