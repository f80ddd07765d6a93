"""A broker that starts waits for what has itself in it; told to stop in the middle of that, it ends, and
leaves its disks as they must be; a node that is both leaves as a broker first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from node.one_node import OneNode
from quorate.broker.control_plane import Changes
from quorate.broker.replicas import Replicas
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster
from quorate.node.broker import BrokerRole
from quorate.node.controller import ControllerRole
from quorate.node.log_shelf import DirectoryShelf
from quorate.storage.partition_log import PartitionLog

CLEAN = ".kafka_cleanshutdown"
SECONDS_MAX = 60


def run(scenario: Callable[[], Any]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await scenario()

    asyncio.run(timed())


class Gate:
    """Something that is begun, and goes on when the test says so."""

    def __init__(self) -> None:
        self.is_reached = asyncio.Event()
        self.is_open = asyncio.Event()

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def gated(*given: Any, **options: Any) -> Any:
            self.is_reached.set()
            await self.is_open.wait()
            return await function(*given, **options)

        return gated


async def with_a_topic(node: OneNode) -> None:
    async with node, Cluster(node.bootstrap) as cluster:
        await Admin(cluster).create_topics(NewTopic("t", partitions=3))


async def begun(node: OneNode) -> asyncio.Task[Any]:
    """Starts it without waiting until it serves."""
    starting = asyncio.ensure_future(node.__aenter__())
    while node.node is None or node._running is None:
        await asyncio.sleep(0)
    return starting


async def ended(node: OneNode, starting: asyncio.Task[Any]) -> None:
    assert node._running is not None
    await node._running
    await asyncio.wait([starting])
    starting.exception()  # it never served


def test_told_to_stop_while_directories_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def scenario() -> None:
        node = OneNode(tmp_path)
        await with_a_topic(node)
        gate = Gate()
        monkeypatch.setattr(DirectoryShelf, "open", gate.before(DirectoryShelf.open))
        starting = await begun(node)
        await gate.is_reached.wait()
        assert node.node is not None
        node.node.stop()
        gate.is_open.set()
        await ended(node, starting)
        assert (node.directory / CLEAN).exists(), "nothing was touched"

    run(scenario)


def test_told_to_stop_while_logs_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def scenario() -> None:
        node = OneNode(tmp_path)
        await with_a_topic(node)
        with monkeypatch.context() as patch:
            gate = Gate()
            patch.setattr(PartitionLog, "open", gate.before(PartitionLog.open))
            starting = await begun(node)
            await gate.is_reached.wait()
            assert node.node is not None
            node.node.stop()
            await ended(node, starting)
        assert not (node.directory / CLEAN).exists(), "not everything was looked at"
        async with node, Cluster(node.bootstrap) as cluster:
            assert "t" in await Admin(cluster).list_topics()
        assert (node.directory / CLEAN).exists()

    run(scenario)


def test_replicas_are_taken_up_with_metadata_that_has_this_process_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What the log says of the process before us may lack what was assigned to this broker since."""
    seen: list[Any] = []
    apply = Replicas.apply

    async def watched(replicas: Replicas, changes: Changes) -> None:
        registration = changes.image.brokers.get(1)
        seen.append(None if registration is None else registration.incarnation_id)
        await apply(replicas, changes)

    async def scenario() -> None:
        node = OneNode(tmp_path)
        await with_a_topic(node)
        monkeypatch.setattr(Replicas, "apply", watched)
        async with node:
            assert node.node is not None
            assert node.node.broker is not None
            assert seen
            assert set(seen) == {node.node.broker.incarnation_id}

    run(scenario)


def test_a_node_that_is_both_leaves_as_a_broker_and_then_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    order: list[str] = []
    serve, hand_over = BrokerRole.run, ControllerRole.hand_over

    async def watched_run(role: BrokerRole) -> Any:
        try:
            return await serve(role)
        finally:
            assert role.membership is not None
            order.append(f"the broker has left: {role.membership.ended.done()}")

    async def watched_hand_over(role: ControllerRole) -> None:
        order.append(f"the controller is active: {role.desk.active is not None}")
        await hand_over(role)

    monkeypatch.setattr(BrokerRole, "run", watched_run)
    monkeypatch.setattr(ControllerRole, "hand_over", watched_hand_over)

    async def scenario() -> None:
        node = OneNode(tmp_path)
        await with_a_topic(node)
        assert (node.directory / CLEAN).exists()

    run(scenario)
    assert order == ["the broker has left: True", "the controller is active: True"]
