"""The membership of a broker in ZooKeeper: registered for as long as it runs, and let go when it stops.

A broker is `STARTING` until it is registered, `RECOVERY` until the controller has told it of the cluster, and
`RUNNING` from then on, also while a session that has expired is replaced. Asked to stop, it asks the
controller to move its leaderships away, as often as the configuration says; asked a second time, or with
nobody to ask, it goes as it is, and closes its session, which tells the others at once. Nobody is there to
ask when for as long as a session lasts ZooKeeper is not reached, or knows no controller: by then our session
is over, or will not be missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from quorate.broker.lifecycle import State, Stop
from quorate.metadata.brokers import Listener
from quorate.protocol.types import Uuid
from quorate.zookeeper.plane import ZooKeeperPlane

_LOOK_S: Final = 0.1

__all__ = ["ZooKeeperMembership"]


class ZooKeeperMembership:
    """One broker's membership. `is_served` is set by whoever begins to answer clients."""

    def __init__(
        self,
        plane: ZooKeeperPlane,
        broker_id: int,
        *,
        is_shutdown_controlled: bool,
        session_timeout_ms: int,
        logger: logging.Logger,
    ) -> None:
        self._plane = plane
        self._broker_id = broker_id
        self._is_shutdown_controlled = is_shutdown_controlled
        self._session_timeout_ms = session_timeout_ms
        self._logger = logger
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._is_registered = False
        self._is_over = False
        self.is_served = False
        self._reporting = asyncio.Event()
        self._reported = asyncio.Event()

    @property
    def state(self) -> State:
        if self._is_over or self._at_once.is_set():
            return State.SHUTTING_DOWN
        if self._stopping.is_set():
            return State.PENDING_CONTROLLED_SHUTDOWN
        if not self._is_registered:
            return State.STARTING
        return State.RUNNING if self.is_served else State.RECOVERY

    async def run(self, listeners: Sequence[tuple[str, str, int, int]], rack: str | None) -> Stop:
        """From the registration until the broker has left. Raises what the plane cannot go on with."""
        plane = self._plane
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(self._stopping.wait())
            registering = tasks.create_task(
                plane.register([Listener(*one) for one in listeners], rack=rack, features={})
            )
            await asyncio.wait({stopping, registering}, return_when=asyncio.FIRST_COMPLETED)
            if not registering.done():
                registering.cancel()
                self._is_over = True
                await plane.stop()
                return Stop("it was asked to stop before it was registered", is_error=False)
            registering.result()
            self._is_registered = True
            duties = [tasks.create_task(plane.run()), tasks.create_task(self._report())]
            await stopping
            reason = await self._leave()
            self._is_over = True
            for duty in duties:
                duty.cancel()
            await plane.stop()
        return Stop(reason, is_error=False)

    def begin_shutdown(self) -> None:
        """Asks for leave; a second time, goes without."""
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()
        self._logger.info("broker=%d state=%s", self._broker_id, self.state.name)

    async def _leave(self) -> str:
        """Why it may go."""
        if not self._is_shutdown_controlled:
            return "it was asked to stop, and does not ask the controller"
        asking = asyncio.ensure_future(self._plane.controlled_shutdown())
        hurry = asyncio.ensure_future(self._at_once.wait())
        waiting = asyncio.ensure_future(self._until_ungoverned())
        try:
            await asyncio.wait({asking, hurry, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return (
                    "the controller has let it go" if asking.result() else "the controller did not let it go"
                )
            return "it was asked to stop at once" if hurry.done() else "nobody is there to let it go"
        finally:
            for one in (asking, hurry, waiting):
                one.cancel()

    async def _until_ungoverned(self) -> None:
        """Until there has been nobody to ask for as long as a session lasts."""
        loop = asyncio.get_running_loop()
        governed_at = loop.time()
        while loop.time() - governed_at < self._session_timeout_ms / 1000:
            await asyncio.sleep(_LOOK_S)
            session = self._plane.session
            if session is not None and session.connected.is_set() and self._plane.controller_id >= 0:
                governed_at = loop.time()

    # Disks

    def directories_failed(self, _directories: Sequence[Uuid]) -> None:
        """The controller finds out what was in it by asking for everything that this broker has."""
        self._reported.clear()
        self._reporting.set()

    async def until_reported(self, _directories: Sequence[Uuid]) -> None:
        await self._reported.wait()

    async def _report(self) -> None:
        while True:
            await self._reporting.wait()
            self._reporting.clear()
            await self._plane.log_directory_failed()
            self._reported.set()
