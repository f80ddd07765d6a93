"""The shell around a broker's life: requests that are sent, and what the end of one means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from quorate.broker.lifecycle import Lifecycle, LifecycleSettings, State
from quorate.metadata.brokers import BrokerRegistration
from quorate.net.client import ConnectionLost
from quorate.node.membership import Membership
from quorate.protocol.api.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid

INCARNATION, DIRECTORY = Uuid(b"incarnation....."), Uuid(b"directory.......")
EPOCH = 40
SETTINGS = LifecycleSettings(
    broker_heartbeat_interval_ms=5, broker_session_timeout_ms=60_000, reconnect_backoff_ms=1
)


class Controller:
    """Admits, unfences and lets go at once, unless it is told to be silent."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.is_silent = False
        self.losses = 0
        self.given_up = 0

    async def ask(self, request: Request) -> Response:
        self.asked.append(request)
        if self.losses:
            self.losses -= 1
            raise ConnectionLost("gone")
        if self.is_silent:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up += 1
        if isinstance(request, BrokerRegistrationRequest):
            return BrokerRegistrationResponse(throttle_time_ms=0, error_code=0, broker_epoch=EPOCH)
        assert isinstance(request, BrokerHeartbeatRequest)
        return BrokerHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            is_caught_up=request.current_metadata_offset >= EPOCH,
            is_fenced=request.want_fence,
            should_shut_down=request.want_shut_down,
        )


def run(scenario: Callable[[Membership, Controller], Awaitable[None]]) -> tuple[Membership, Controller]:
    """A membership that runs while the scenario does, and then has to end by itself."""
    controller = Controller()

    async def whole() -> Membership:
        registration = BrokerRegistrationRequest(
            broker_id=101,
            cluster_id="c",
            incarnation_id=INCARNATION,
            listeners=[],
            features=[],
            rack=None,
            log_dirs=[DIRECTORY],
        )
        lifecycle = Lifecycle(registration, SETTINGS, chance=Random(1))
        made = Membership(lifecycle, controller.ask, lambda: None, lambda _: None)
        async with asyncio.timeout(30):
            running = asyncio.create_task(made.run())
            await scenario(made, controller)
            await running
        return made

    return asyncio.run(whole()), controller


def registered() -> BrokerRegistration:
    return BrokerRegistration(
        id=101,
        epoch=EPOCH,
        incarnation_id=INCARNATION,
        listeners=(),
        features={},
        rack=None,
        is_fenced=True,
        is_shutting_down=False,
        directories=(DIRECTORY,),
        is_migrating=False,
        cordoned=(),
        registration_offset=EPOCH,
    )


async def join(membership: Membership) -> None:
    await membership.is_registered.wait()
    membership.metadata_applied(EPOCH, registered())
    membership.ready()
    await membership.is_unfenced.wait()


@pytest.mark.parametrize("losses", [0, 3])
def test_a_broker_joins_and_leaves(losses: int):
    async def scenario(membership: Membership, controller: Controller) -> None:
        controller.losses = losses
        await join(membership)
        membership.begin_shutdown()

    membership, controller = run(scenario)
    stop = membership.ended.result()
    assert (stop.is_error, stop.reason) == (False, "the controller has let it go")
    assert sum(isinstance(one, BrokerRegistrationRequest) for one in controller.asked) == 1 + losses


def test_who_is_told_to_stop_twice_waits_for_no_answer():
    async def scenario(membership: Membership, controller: Controller) -> None:
        await join(membership)
        controller.is_silent = True
        membership.begin_shutdown()
        while (
            not isinstance(controller.asked[-1], BrokerHeartbeatRequest)
            or not controller.asked[-1].want_shut_down
        ):
            await asyncio.sleep(0.001)
        membership.begin_shutdown()

    membership, controller = run(scenario)
    assert membership.lifecycle.state is State.SHUTTING_DOWN
    assert controller.given_up == 1


def test_who_is_told_to_stop_before_it_began_never_begins():
    async def whole() -> list[Request]:
        controller = Controller()
        registration = BrokerRegistrationRequest(
            broker_id=101, cluster_id="c", incarnation_id=INCARNATION, listeners=[], features=[], rack=None
        )
        made = Membership(
            Lifecycle(registration, SETTINGS, chance=Random(1)), controller.ask, lambda: None, lambda _: None
        )
        made.begin_shutdown()
        async with asyncio.timeout(30):
            await made.run()
        assert not made.ended.result().is_error
        return controller.asked

    assert asyncio.run(whole()) == []


def test_directories_that_failed_are_reported():
    async def scenario(membership: Membership, controller: Controller) -> None:
        await join(membership)
        membership.directories_failed([DIRECTORY])
        await membership.until_reported([DIRECTORY])
        beats: list[Any] = [one for one in controller.asked if isinstance(one, BrokerHeartbeatRequest)]
        assert beats[-1].offline_log_dirs == [DIRECTORY]
        membership.begin_shutdown()

    run(scenario)
