"""A node: one replica of the metadata log, and the roles that it has in the cluster, one or both.

The replica folds what is committed into an image of the cluster, and writes snapshots of it. A controller
votes, and may lead; a broker only reads, and serves. Told to stop, a node leaves as a broker first, so that
nobody misses it, and then hands over what it leads of the quorum.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from ssl import SSLContext
from typing import Any

from quorate.net.connections import Connections
from quorate.net.framing import scratch_buffer
from quorate.net.gate import Gate
from quorate.node.account import Account
from quorate.node.admin import AdminEndpoint, BrokerAdminRoutes, JoinedRoutes, ReadyRoutes, Routes
from quorate.node.admin_hosts import admin_hosts
from quorate.node.broker import BrokerRole
from quorate.node.cluster_state import ClusterState
from quorate.node.config import NodeConfig
from quorate.node.controller import ControllerRole
from quorate.node.desk import Desk
from quorate.node.event_journal import EventJournal
from quorate.node.event_publisher import EventPublisher, PublisherSettings
from quorate.node.host import Host
from quorate.node.lab_routes import LabRoutes
from quorate.node.metadata_log import MetadataLog
from quorate.node.metrics import NodeMetrics
from quorate.node.replica import Replica
from quorate.node.snapshots import SnapshotKeeper
from quorate.node.tls import Tls
from quorate.protocol.types import Uuid
from quorate.raft.quorum import Quorum
from quorate.raft.voters import ReplicaKey

__all__ = ["Node", "NodeFailed"]


class NodeFailed(Exception):  # noqa: N818  # it is an event
    """The node had to stop, and the reason is not in its code."""


class Node:
    """A running node. `run` returns after `stop`, or raises what ended it."""

    def __init__(
        self, host: Host, config: NodeConfig, *, stopwatch: Callable[[], float] | None = None
    ) -> None:
        """`stopwatch` measures requests, in seconds; without it the loop's own time does, which may be
        coarse."""
        self._host = host
        self._config = config
        self._logger = logging.getLogger(f"quorate.node.{host.name}")
        self._stopping = asyncio.Event()
        self.is_listening = asyncio.Event()
        self.incarnation_id = Uuid(host.random.randbytes(16))
        self.state = ClusterState(is_strict="controller" in config.roles)
        self.metrics = NodeMetrics(stopwatch)
        self._gate = Gate() if config["quorate.lab.enabled"] else None
        self._scratch = scratch_buffer(config.limits.read_buffer_bytes)
        # From `run` on:
        self.replica: Replica | None = None
        self.controller: ControllerRole | None = None
        self.broker: BrokerRole | None = None
        self.snapshots: SnapshotKeeper | None = None
        self.publisher: EventPublisher | None = None

    @property
    def desk(self) -> Desk | None:
        return None if self.controller is None else self.controller.desk

    async def run(self) -> None:
        config, host = self._config, self._host
        for warning in config.warnings:
            self._logger.warning("%s", warning)
        log = await MetadataLog.open(host.files, config, host.wall_ms())
        try:
            async with AsyncExitStack() as closing:
                await self._run_with(log, closing)
        finally:
            await log.close()

    def why_not_ready(self) -> str | None:
        """What the node waits for before it can be used; None if it can be."""
        if self.replica is None or self.replica.quorum.leader_endpoint is None:
            return "no leader of the quorum is known"
        if self.broker is not None and (state := self.broker.status().state) != "RUNNING":
            return f"the broker is in state {state}"
        return None

    def stop(self) -> None:
        """Asks the node to end in order; a second time, a broker goes without leave."""
        if self._stopping.is_set() and self.broker is not None:
            self.broker.stop()
        self._stopping.set()

    async def _run_with(self, log: MetadataLog, closing: AsyncExitStack) -> None:
        config, host, state = self._config, self._host, self.state
        tls = Tls(config)
        connections = self._connections(closing, tls.to_controllers())
        replica = self.replica = Replica(host, log.cluster_id, log, self._quorum(log), connections, state)
        journal = EventJournal(host, config.metadata_directory, config.node_id, self.incarnation_id)
        snapshots = self.snapshots = SnapshotKeeper(host, config, replica, state)
        duties: list[Callable[[], Coroutine[Any, Any, None]]] = [replica.run, journal.run, snapshots.run]
        if config["quorate.events.publish"]:
            publisher = self.publisher = EventPublisher(
                host,
                config.metadata_directory,
                config.node_id,
                journal,
                state,
                listener=config.inter_broker_listener
                if "broker" in config.roles
                else config["inter.broker.listener.name"],
                settings=PublisherSettings(settle_ms=config["quorate.events.settle.ms"]),
                tls=tls.to_brokers(config["inter.broker.listener.name"] or None),
                gate=self._gate,
            )
            self.metrics.sources.append(publisher)
            duties.append(publisher.run)
        if "controller" in config.roles:
            self.controller = ControllerRole(
                host, config, replica, state, journal, self.metrics, self.incarnation_id, tls
            )
            await self.controller.listen(closing)
            connections = self._connections(closing, tls.to_controllers())
            duties.append(partial(self.controller.run, connections))
        if "broker" in config.roles:
            account = Account(host, journal, self.metrics)
            self.broker = BrokerRole(
                host,
                config,
                replica,
                state,
                partial(self._connections, closing),
                account.saw,
                self.metrics,
                tls,
            )
        await self._open_admin(journal, closing)
        self.is_listening.set()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(duty()) for duty in duties]
            if self.broker is not None:
                await self._serve(self.broker, tasks)
            else:
                await self._stopping.wait()
            if self.controller is not None:
                await self.controller.hand_over()
            for task in running:
                task.cancel()

    async def _open_admin(self, journal: EventJournal, closing: AsyncExitStack) -> None:
        """Begins to be reachable for those who ask about this node."""
        config = self._config
        if config["quorate.admin.listener"] is None:
            return
        routes: list[Routes] = []
        if self.broker is not None:
            routes.append(BrokerAdminRoutes(config.node_id, self.broker, self.metrics, journal))
        if self.controller is not None:
            routes.append(self.controller.admin_routes)
        routes.append(ReadyRoutes(config.node_id, self.why_not_ready))
        if self._gate is not None:
            routes.append(LabRoutes(self._gate, self._host.files))
        names = admin_hosts(config, self._host.machine_name)
        admin = AdminEndpoint(self._host, config.metadata_directory, JoinedRoutes(*routes), names=names)
        await admin.start(*config["quorate.admin.listener"])
        closing.push_async_callback(admin.close)

    async def _serve(self, broker: BrokerRole, tasks: asyncio.TaskGroup) -> None:
        """Runs the broker until it was told to stop and has left, or had to."""
        serving = tasks.create_task(broker.run())
        stopping = tasks.create_task(self._stopping.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            broker.stop()
        stop = await serving
        stopping.cancel()
        if stop.is_error:
            raise NodeFailed(stop.reason)

    def _quorum(self, log: MetadataLog) -> Quorum:
        config = self._config
        endpoints = (config.advertised_controller,) if "controller" in config.roles else ()
        return Quorum(
            ReplicaKey(config.node_id, log.directory_id),
            endpoints,
            log=log.positions,
            voters=log.voters,
            bootstrap=config.bootstrap_servers,
            settings=config.quorum_settings,
            random=self._host.random,
        )

    def _connections(self, closing: AsyncExitStack, tls: SSLContext | None) -> Connections:
        """A set of its own for everyone who may have to wait for an answer: nobody waits behind another."""
        connections = Connections(
            rng=self._host.random,
            client_id=f"quorate-{self._config.node_id}",
            limits=self._config.limits,
            connect_timeout_ms=self._config.quorum_settings.request_timeout_ms,
            tls=tls,
            scratch=self._scratch,
            gate=self._gate,
        )
        closing.push_async_callback(connections.close)
        return connections
