"""A node of ZooKeeper mode: a broker, which may be elected to be the controller as well.

There is no metadata log here. Who is in the cluster stands in ZooKeeper, what the broker is to do comes from
whichever broker is the controller. From outside it looks like any `Node`: `run`, `stop`, and what it answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from ssl import SSLContext

from quorate.net.connections import Connections
from quorate.net.framing import scratch_buffer
from quorate.net.gate import Gate
from quorate.node.account import Account
from quorate.node.admin import AdminEndpoint, BrokerAdminRoutes, JoinedRoutes, ReadyRoutes, Routes
from quorate.node.admin_hosts import admin_hosts
from quorate.node.cluster_state import ClusterState
from quorate.node.config import ConfigError, NodeConfig
from quorate.node.event_journal import EventJournal
from quorate.node.event_publisher import EventPublisher, PublisherSettings
from quorate.node.host import Host
from quorate.node.lab_routes import LabRoutes
from quorate.node.metrics import NodeMetrics
from quorate.node.tls import Tls
from quorate.node.zookeeper_broker import PlaneSide, ZooKeeperBroker
from quorate.node.zookeeper_directories import known_ids, mark_directories
from quorate.node.zookeeper_metrics import ZooKeeperMetrics
from quorate.node.zookeeper_view import ZooKeeperAdminRoutes
from quorate.protocol.types import Uuid
from quorate.zookeeper.errors import ZooKeeperError
from quorate.zookeeper.plane import Fatal, ZooKeeperPlane
from quorate.zookeeper.settings import ZooKeeperSettings

__all__ = ["ZooKeeperNode"]


class ZooKeeperNode:
    """A running node. `run` returns after `stop`, or raises what ended it."""

    def __init__(
        self, host: Host, config: NodeConfig, *, stopwatch: Callable[[], float] | None = None
    ) -> None:
        self._host = host
        self._config = config
        self._logger = logging.getLogger(f"quorate.node.{host.name}")
        self._stopping = asyncio.Event()
        self.is_listening = asyncio.Event()
        self.incarnation_id = Uuid(host.random.randbytes(16))
        self.state = ClusterState(is_strict=False)
        self.metrics = NodeMetrics(stopwatch)
        self._gate = Gate() if config["quorate.lab.enabled"] else None
        self._scratch = scratch_buffer(config.limits.read_buffer_bytes)
        self.plane: ZooKeeperPlane | None = None
        self.broker: ZooKeeperBroker | None = None
        self.publisher: EventPublisher | None = None

    async def run(self) -> None:
        for warning in self._config.warnings:
            self._logger.warning("%s", warning)
        failure = ""  # raised in `except*`, some releases of Python 3.11 put it in a group
        try:
            async with AsyncExitStack() as closing:
                await self._run(closing)
        except* Fatal as group:
            failure = f"{self._config.path}: {_first(group)}"
        except* ZooKeeperError as group:
            failure = f"{self._config.path}: ZooKeeper: {_first(group)}"
        if failure:
            raise ConfigError(failure)

    def why_not_ready(self) -> str | None:
        """What the node waits for before it can be used; None if it can be."""
        if self.broker is None:
            return f"ZooKeeper at {self._config['zookeeper.connect']} has not answered yet"
        return self.broker.why_not_ready()

    def stop(self) -> None:
        """Asks the node to end in order; a second time, it goes without leave."""
        if self._stopping.is_set() and self.broker is not None:
            self.broker.stop()
        self._stopping.set()

    async def _run(self, closing: AsyncExitStack) -> None:
        host, state = self._host, self.state
        known = known_ids(host, self._config)
        tls = Tls(self._config)
        inter_broker = tls.to_listener(self._config.inter_broker_listener)
        side = PlaneSide(host, state)
        plane = self.plane = ZooKeeperPlane(
            zookeeper_settings(self._config),
            random=host.random,
            wall_ms=host.wall_ms,
            connections=partial(self._connections, inter_broker),
            broker=side,
            saw=side.saw,
        )
        if not await self._connect(plane, known.cluster_id, known.broker_id):
            await plane.stop()
            return
        self.metrics.sources.append(ZooKeeperMetrics(plane))
        config = self._config = self._config.with_node_id(plane.broker_id)
        await mark_directories(host, config, plane.cluster_id, plane.broker_id)
        journal = EventJournal(host, config.metadata_directory, config.node_id, self.incarnation_id)
        account = Account(host, journal, self.metrics)
        side.tell = account.saw
        broker = self.broker = ZooKeeperBroker(
            host,
            config,
            plane,
            side,
            state,
            partial(self._closed_connections, closing),
            account.saw,
            self.metrics,
            tls,
        )
        await self._open_admin(journal, broker, plane, side, closing)
        self.is_listening.set()
        async with asyncio.TaskGroup() as tasks:
            duties = [tasks.create_task(journal.run())]
            if config["quorate.events.publish"]:
                self.publisher = self._publisher(config, journal, tls)
                self.metrics.sources.append(self.publisher)
                duties.append(tasks.create_task(self.publisher.run()))
            await self._serve(broker, tasks)
            for duty in duties:
                duty.cancel()

    async def _connect(self, plane: ZooKeeperPlane, cluster_id: str | None, broker_id: int | None) -> bool:
        """Whether it came to that before the node was told to stop."""
        connecting = asyncio.ensure_future(
            plane.connect(known_cluster_id=cluster_id, known_broker_id=broker_id)
        )
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({connecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                return False
            connecting.result()
            return True
        finally:
            connecting.cancel()
            stopping.cancel()

    async def _serve(self, broker: ZooKeeperBroker, tasks: asyncio.TaskGroup) -> None:
        """Runs the broker until it was told to stop and has left, or had to."""
        serving = tasks.create_task(broker.run())
        stopping = tasks.create_task(self._stopping.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            broker.stop()
        await serving
        stopping.cancel()

    def _publisher(self, config: NodeConfig, journal: EventJournal, tls: Tls) -> EventPublisher:
        return EventPublisher(
            self._host,
            config.metadata_directory,
            config.node_id,
            journal,
            self.state,
            listener=config.inter_broker_listener,
            settings=PublisherSettings(settle_ms=config["quorate.events.settle.ms"]),
            tls=tls.to_brokers(config["inter.broker.listener.name"] or None),
            gate=self._gate,
        )

    async def _open_admin(
        self,
        journal: EventJournal,
        broker: ZooKeeperBroker,
        plane: ZooKeeperPlane,
        side: PlaneSide,
        closing: AsyncExitStack,
    ) -> None:
        config = self._config
        if config["quorate.admin.listener"] is None:
            return
        routes: list[Routes] = [
            BrokerAdminRoutes(config.node_id, broker, self.metrics, journal),
            ZooKeeperAdminRoutes(config.node_id, plane, side.fences, self.state),
            ReadyRoutes(config.node_id, self.why_not_ready),
        ]
        if self._gate is not None:
            routes.append(LabRoutes(self._gate, self._host.files))
        names = admin_hosts(config, self._host.machine_name)
        admin = AdminEndpoint(self._host, config.metadata_directory, JoinedRoutes(*routes), names=names)
        await admin.start(*config["quorate.admin.listener"])
        closing.push_async_callback(admin.close)

    def _connections(self, tls: SSLContext | None) -> Connections:
        """A set of its own for everyone who may have to wait for an answer: nobody waits behind another."""
        return Connections(
            rng=self._host.random,
            client_id=f"quorate-{self._config.node_id}",
            limits=self._config.limits,
            connect_timeout_ms=self._config["controller.socket.timeout.ms"],
            tls=tls,
            scratch=self._scratch,
            gate=self._gate,
        )

    def _closed_connections(self, closing: AsyncExitStack, tls: SSLContext | None) -> Connections:
        connections = self._connections(tls)
        closing.push_async_callback(connections.close)
        return connections


def zookeeper_settings(config: NodeConfig) -> ZooKeeperSettings:
    """What a file says about ZooKeeper, and about the controller that its broker may become."""
    return ZooKeeperSettings(
        connect=config["zookeeper.connect"],
        session_timeout_ms=config["zookeeper.session.timeout.ms"],
        connection_timeout_ms=config["zookeeper.connection.timeout.ms"],
        max_in_flight_requests=config["zookeeper.max.in.flight.requests"],
        digest=config["quorate.zookeeper.digest"],
        is_acl_set=config["zookeeper.set.acl"],
        broker_id=config.node_id,
        is_broker_id_generated=config["broker.id.generation.enable"],
        reserved_broker_max_id=config["reserved.broker.max.id"],
        inter_broker_listener=config.inter_broker_listener,
        control_plane_listener=config["control.plane.listener.name"],
        controlled_shutdown_retries_max=config["controlled.shutdown.max.retries"],
        controlled_shutdown_retry_backoff_ms=config["controlled.shutdown.retry.backoff.ms"],
        controller_socket_timeout_ms=config["controller.socket.timeout.ms"],
        leader_imbalance_per_broker_percentage=config["leader.imbalance.per.broker.percentage"],
        controller=config.controller_settings(""),
    )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
