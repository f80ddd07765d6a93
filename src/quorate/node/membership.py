"""The shell around a broker's `Lifecycle`: sends what it asks for, tells it what comes back, and the time.

Inputs are taken one at a time, in the order in which they happen; what waits for the controller runs beside
it. Who needs to know that the broker is a member waits for `is_unfenced`, who must end it for `ended`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from quorate.broker.lifecycle import Effects, Lifecycle, Send, Stop
from quorate.controller.events import Event
from quorate.metadata.brokers import BrokerRegistration
from quorate.net.client import ConnectionLost
from quorate.protocol.api.brokers import BrokerHeartbeatResponse, BrokerRegistrationResponse
from quorate.protocol.errors import ApiError
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid

__all__ = ["Membership"]

AskController = Callable[[Request], Awaitable[Response]]


class Membership:
    """One broker's membership, running. `look_elsewhere` forgets who the active controller was;
    `is_ungoverned` says whether so many controllers do not run that none of them can be elected."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        ask: AskController,
        look_elsewhere: Callable[[], None],
        saw: Callable[[Sequence[Event]], None],
        is_ungoverned: Callable[[], bool] = lambda: False,
    ) -> None:
        self.lifecycle = lifecycle
        self.is_unfenced = asyncio.Event()
        self.is_registered = asyncio.Event()
        self._reported: set[Uuid] = set()  # directories that failed, and the controller knows
        self._has_reported = asyncio.Event()
        self.ended: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._ask = ask
        self._look_elsewhere = look_elsewhere
        self._saw = saw
        self._is_ungoverned = is_ungoverned
        self._wake = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def epoch(self) -> int:
        return self.lifecycle.epoch

    async def run(self) -> None:
        """From the first registration until the broker has left."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            if not self.ended.done():
                self._perform(self.lifecycle.start(self._now_ms()))
            while not self.ended.done():
                await self._wait()
                if self.lifecycle.deadline_ms <= self._now_ms():
                    self._perform(self.lifecycle.tick(self._now_ms()))
            for task in list(self._sending):
                task.cancel()  # nobody waits for an answer any more

    # Inputs

    def metadata_applied(self, offset: int, registration: BrokerRegistration | None) -> None:
        """Everything up to an offset has been applied by everyone on this broker."""
        self._perform(self.lifecycle.metadata_applied(offset, registration, self._now_ms()))

    def ready(self) -> None:
        self._perform(self.lifecycle.ready(self._now_ms()))

    def directories_failed(self, directories: Sequence[Uuid]) -> None:
        self._perform(self.lifecycle.directories_failed(directories, self._now_ms()))

    def directories_cordoned(self, directories: Sequence[Uuid]) -> None:
        """These, and no others, get no new replicas."""
        self._perform(self.lifecycle.directories_cordoned(directories, self._now_ms()))

    async def until_reported(self, directories: Sequence[Uuid]) -> None:
        """Until the controller knows that these directories have failed."""
        while not self._reported.issuperset(directories):
            self._has_reported.clear()
            await self._has_reported.wait()

    def begin_shutdown(self) -> None:
        """Asks for leave; a second time, goes without."""
        self._perform(self.lifecycle.begin_shutdown(self._now_ms()))

    # Effects

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    async def _wait(self) -> None:
        self._wake.clear()
        delay_ms = self.lifecycle.deadline_ms - self._now_ms()
        try:
            async with asyncio.timeout(None if delay_ms == float("inf") else max(delay_ms, 1.0) / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _perform(self, effects: Effects) -> None:
        if effects.events:
            self._saw(effects.events)
        if effects.looks_elsewhere:
            self._look_elsewhere()
        if effects.epoch is not None:
            self.is_registered.set()
        if effects.is_fenced is not None and not effects.is_fenced:
            self.is_unfenced.set()
        if effects.acknowledged_offline:
            self._reported.update(effects.acknowledged_offline)
            self._has_reported.set()
        if effects.stop is not None and not self.ended.done():
            self.ended.set_result(effects.stop)
        if effects.send is not None:
            assert self._tasks is not None
            task = self._tasks.create_task(self._send(effects.send))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        self._wake.set()

    async def _send(self, send: Send) -> None:
        response: Response | None = None
        why = "the connection was lost"
        try:
            response = await self._ask(send.request)
        except (ConnectionLost, ApiError) as error:
            why = str(error) or why
        assert response is None or isinstance(response, (BrokerRegistrationResponse, BrokerHeartbeatResponse))
        if not self.ended.done():
            is_ungoverned = response is None and self._is_ungoverned()
            effects = self.lifecycle.answered(
                send.number, response, self._now_ms(), why, is_ungoverned=is_ungoverned
            )
            self._perform(effects)
