"""Where requests for the active controller are taken in, and replies handed out.

The controller itself (`controller.ActiveController`) knows no time and no log. Here it is given both: every
request becomes a step of the replica, in the one queue that all steps wait in, so that what is decided is
appended before anything else is. Who asks while this node is not the active controller is told so at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from quorate.controller.controller import ActiveController, Moment, Work
from quorate.controller.decision import Asker, Situation
from quorate.controller.events import Event, QueueFilled
from quorate.controller.refusals import refusal
from quorate.controller.requests import is_empty
from quorate.controller.sessions import Sessions
from quorate.controller.settings import ControllerSettings
from quorate.metadata.log_format import decode_record
from quorate.node.cluster_state import ClusterState
from quorate.node.host import Host
from quorate.node.replica import Replica
from quorate.protocol.api.brokers import BrokerHeartbeatRequest
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.raft.effects import Effects, Leadership
from quorate.raft.quorum import Now
from quorate.raft.state import Leader

__all__ = ["Desk", "Observer"]

WAITING_MAX: Final = 10_000  # requests that nothing was answered to yet, whether or not their askers are gone
_SLEEP_MS_MAX: Final = 500
_SLEEP_MS_MIN: Final = 1  # less may be no time at all


class Observer:
    """Is told what the desk sees; the default does not care."""

    def saw(self, events: Sequence[Event]) -> None:
        """Something happened."""

    def handled(self, waited_ms: float, took_ms: float) -> None:
        """A request was decided."""

    def led(self, leader_id: int) -> None:
        """Somebody has become the active controller."""


class Desk:
    """Serves the requests that change the cluster, while this node leads."""

    def __init__(
        self,
        host: Host,
        replica: Replica,
        state: ClusterState,
        settings: ControllerSettings,
        observer: Observer | None = None,
    ) -> None:
        self.active: ActiveController | None = None
        self._host = host
        self._replica = replica
        self._state = state
        self._settings = settings
        self._observer = Observer() if observer is None else observer
        self._waiting: set[asyncio.Future[Response]] = set()
        self._is_full = False  # and somebody was told
        self._activated = asyncio.Event()
        state.when_applied.append(self._applied)
        state.when_led.append(self._lead)

    async def ask(self, request: Request, asker: Asker) -> Response:
        """The response to a request, when what it changed is committed."""
        active = self.active
        if active is None:
            return refusal(request, _not_controller(), asker.api_version)
        if is_empty(request):
            return refusal(request, ApiError(ErrorCode.NONE), asker.api_version)
        loop = asyncio.get_running_loop()
        arrived_ms = loop.time() * 1000
        if isinstance(request, BrokerHeartbeatRequest):
            active.heard(request, arrived_ms)
        if not self._has_room():
            reason = f"{WAITING_MAX} requests are waiting already"
            return refusal(request, ApiError(ErrorCode.REQUEST_TIMED_OUT, reason), asker.api_version)
        reply: asyncio.Future[Response] = loop.create_future()
        self._waiting.add(reply)
        self._replica.step(lambda now: self._handle(reply, request, asker, arrived_ms, now))
        try:
            return await reply
        except ApiError as error:
            return refusal(request, error, asker.api_version)

    def situation(self, asker: Asker) -> Situation:
        """What can be read without being the active controller: what is committed."""
        now = self._replica.now()
        return Situation(
            image=self._state.image,
            sessions=Sessions(self._settings.broker_session_timeout_ms),
            settings=self._settings,
            random=self._host.random,
            now_ms=now.ms,
            wall_ms=now.wall_ms,
            next_offset=self._state.position.offset,
            asker=asker,
        )

    async def run(self) -> None:
        """Does what is due by the clock, as long as this node leads. When it ends nobody is left waiting."""
        try:
            await self._run()
        finally:
            self._close()

    async def _run(self) -> None:
        while True:
            await self._activated.wait()
            active = self.active
            if active is None:
                self._activated.clear()
                continue
            delay_ms = active.deadline_ms - self._replica.now().ms
            if delay_ms > 0:
                await asyncio.sleep(min(max(delay_ms, _SLEEP_MS_MIN), _SLEEP_MS_MAX) / 1000)
                continue
            done = asyncio.Event()
            self._replica.step(lambda now, done=done: self._tick(done, now))  # type: ignore[misc]
            await done.wait()

    # Steps

    def _handle(
        self, reply: asyncio.Future[Response], request: Request, asker: Asker, arrived_ms: float, now: Now
    ) -> Effects:
        active = self._leading()
        if active is None:
            self._give(reply, refusal(request, _not_controller(), asker.api_version))
            return Effects()
        work = active.handle(reply, request, asker, arrived_ms, self._moment(now))
        effects = self._finish(active, work, now)
        took_ms = asyncio.get_running_loop().time() * 1000 - now.ms
        self._observer.handled(now.ms - arrived_ms, took_ms)
        return effects

    def _tick(self, done: asyncio.Event, now: Now) -> Effects:
        done.set()
        active = self._leading()
        if active is None:
            return Effects()
        return self._finish(active, active.tick(self._moment(now)), now)

    def _finish(self, active: ActiveController, work: Work, now: Now) -> Effects:
        effects = Effects()
        if work.sections:
            effects = self._replica.quorum.append_sections(work.sections, active.epoch, now)
        if work.events:
            self._observer.saw(work.events)
        for token, response in work.replies:
            self._give(token, response)
        return effects

    def _leading(self) -> ActiveController | None:
        """The controller, if the quorum still agrees: it may have lost leadership in the step before."""
        active, role = self.active, self._replica.quorum.role
        if active is None or not isinstance(role, Leader) or role.epoch != active.epoch:
            return None
        return active

    def _moment(self, now: Now) -> Moment:
        quorum = self._replica.quorum
        voters = tuple(voter.key.id for voter in quorum.voters.latest)
        return Moment(now.ms, now.wall_ms, quorum.log.end_offset, voters)

    # What the quorum says

    def _applied(self, offset: int) -> None:
        if self.active is not None:
            for token, response in self.active.committed(offset):
                self._give(token, response)

    def _lead(self, leadership: Leadership) -> None:
        if leadership.leader_id is not None:
            self._observer.led(leadership.leader_id)
        if self.active is not None and self.active.epoch != leadership.epoch:
            self._resign(self.active)
        if self.active is not None and leadership.leader_id != self._settings.node_id:
            self._resign(self.active)
        if self.active is None and leadership.leader_id == self._settings.node_id:
            quorum = self._replica.quorum
            settings = replace(self._settings, kraft_version=quorum.voters.kraft_version)
            moment = self._moment(self._replica.now())
            self.active = ActiveController(
                self._state.image, leadership.epoch, settings, self._host.random, moment
            )
            self._activated.set()
            self._replica.step(self._activate)

    def _activate(self, now: Now) -> Effects:
        active = self._leading()
        if active is None:
            return Effects()
        bootstrap = [decode_record(value)[0] for value in self._replica.log.bootstrap_records]
        return self._finish(active, active.activate(bootstrap, self._moment(now)), now)

    def _resign(self, active: ActiveController) -> None:
        self.active = None
        waiting, event = active.resign()
        for token in waiting:
            self._disappoint(token)
        self._observer.saw([event])

    # Who waits

    def _has_room(self) -> bool:
        """Whether one more may wait. That there is none is said once, until the half of them are served."""
        waiting = len(self._waiting)
        if waiting >= WAITING_MAX and not self._is_full:
            self._is_full = True
            self._observer.saw([QueueFilled(waiting)])
        elif waiting <= WAITING_MAX // 2:
            self._is_full = False
        return waiting < WAITING_MAX

    def _give(self, token: object, response: Response) -> None:
        assert isinstance(token, asyncio.Future)
        self._waiting.discard(token)
        if not token.done():  # else whoever asked has gone
            token.set_result(response)

    def _disappoint(self, token: object) -> None:
        assert isinstance(token, asyncio.Future)
        self._waiting.discard(token)
        if not token.done():
            token.set_exception(_not_controller())

    def _close(self) -> None:
        if self.active is not None:
            self._resign(self.active)
        for token in list(self._waiting):
            self._disappoint(token)


def _not_controller() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
