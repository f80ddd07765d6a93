"""A broker's part in who is controller: it watches who is, tries when nobody is, and serves its term when it
was elected. All of it belongs to one session, and ends with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from quorate.metadata.event import Event
from quorate.net.connections import Connections
from quorate.zookeeper import paths
from quorate.zookeeper.controller import Controller
from quorate.zookeeper.election import current_controller, elect, resign
from quorate.zookeeper.errors import ControllerMoved, Fatal, NoNode, SessionExpired, ZooKeeperError
from quorate.zookeeper.events import ControllerElected, TermEnded
from quorate.zookeeper.fence import Fence
from quorate.zookeeper.jute import Delete, Get
from quorate.zookeeper.session import Session
from quorate.zookeeper.settings import ZooKeeperSettings
from quorate.zookeeper.znodes import NO_CONTROLLER

__all__ = ["Terms"]

PAUSE_S: Final = 1.0  # after a term that failed: another broker may do better
RETRY_S: Final = 1.0

_logger = logging.getLogger("quorate.zookeeper")


class Terms:
    """`controller_id` is who is controller, as far as is known; `own` our own term, while it lasts."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        random: Random,
        wall_ms: Callable[[], int],
        connections: Callable[[], Connections],
        saw: Callable[[Sequence[Event]], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._random = random
        self._wall_ms = wall_ms
        self._connections = connections
        self._saw = saw
        self.controller_id = NO_CONTROLLER
        self.own: Controller | None = None

    async def take_part(self, session: Session, broker_id: int) -> None:
        """For as long as the session lasts: it ends with `SessionExpired`."""
        while True:
            changed = asyncio.Event()
            try:
                await self._take_part_once(session, broker_id, changed)
            except (SessionExpired, Fatal):
                raise
            except ZooKeeperError as error:
                _logger.error("the election is tried again in %.0f s: %s", RETRY_S, error)
                await asyncio.sleep(RETRY_S)

    async def _take_part_once(self, session: Session, broker_id: int, changed: asyncio.Event) -> None:
        self._heard(await current_controller(session, lambda _: changed.set()))
        if self.controller_id == NO_CONTROLLER:
            fence = await elect(session, broker_id, self._wall_ms(), is_acl_set=self._settings.is_acl_set)
            if fence is None:
                return  # another was faster: look again
            await self._serve(fence, broker_id)
            return
        if self.controller_id == broker_id and await _is_ours(session):
            # It says that we are, and we know nothing of it: we failed to resign.
            await session.ask_all([Delete(paths.CONTROLLER)])
            return
        await changed.wait()

    def _heard(self, controller_id: int) -> None:
        if controller_id != self.controller_id:
            _logger.info("controller is %s", "nobody" if controller_id == NO_CONTROLLER else controller_id)
        self.controller_id = controller_id

    async def _serve(self, fence: Fence, broker_id: int) -> None:
        """A term: until somebody else is controller, or it fails."""
        self._saw([ControllerElected(broker_id, fence.epoch)])
        self._heard(broker_id)
        controller = self.own = Controller(
            fence, broker_id, self._settings, self._connections(), self._random, self._wall_ms, self._saw
        )
        loop = asyncio.get_running_loop()
        serving = loop.create_task(controller.run())
        watching = loop.create_task(self._until_another(fence.session, broker_id))
        failure: BaseException | None = None
        try:
            await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.own = None
            for one in (serving, watching):
                one.cancel()
            await asyncio.wait({serving, watching})
        for one in (serving, watching):
            if not one.cancelled() and one.exception() is not None:
                failure = one.exception()
                break
        self._saw([TermEnded(broker_id, fence.epoch, str(failure or "there is another"))])
        await self._end(fence, failure)

    async def _end(self, fence: Fence, failure: BaseException | None) -> None:
        if isinstance(failure, SessionExpired):
            raise failure
        with suppress(ControllerMoved, ZooKeeperError):
            await resign(fence)
        if failure is not None and not isinstance(failure, ControllerMoved):
            _logger.error("a term as controller failed", exc_info=failure)
            await asyncio.sleep(PAUSE_S)

    async def _until_another(self, session: Session, broker_id: int) -> None:
        while True:
            changed = asyncio.Event()
            found = await current_controller(session, lambda _, event=changed: event.set())  # type: ignore[misc]
            if found != broker_id:
                self._heard(found)
                return
            await changed.wait()


async def _is_ours(session: Session) -> bool:
    """Whether our own session made `/controller`."""
    (found,) = await session.ask_all([Get(paths.CONTROLLER)])
    if isinstance(found, NoNode):
        return False
    if isinstance(found, ZooKeeperError):
        raise found
    return bool(found.stat.ephemeral_owner == session.session_id)
