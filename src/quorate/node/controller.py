"""A controller: one replica of the metadata log, the listener that others talk to, and its duties.

Every controller folds what is committed into an image of the cluster, answers what can be read from it,
writes snapshots of it, and makes itself known in the log. The one that leads is the active controller
besides: what changes the cluster goes over its `desk`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from quorate.controller.decision import Asker
from quorate.controller.settings import ControllerSettings
from quorate.net.connections import Connections
from quorate.net.server import Server
from quorate.node.account import Account, View
from quorate.node.admin import AdminEndpoint, AdminRoutes
from quorate.node.cluster_state import ClusterState
from quorate.node.config import NodeConfig
from quorate.node.controller_routes import ControllerRoutes
from quorate.node.desk import Desk
from quorate.node.event_journal import EventJournal
from quorate.node.host import Host
from quorate.node.metadata_log import MetadataLog
from quorate.node.metrics import NodeMetrics
from quorate.node.replica import Replica
from quorate.node.self_registration import register_self
from quorate.node.snapshots import SnapshotKeeper
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid
from quorate.raft.quorum import Quorum
from quorate.raft.state import Leader
from quorate.raft.voters import ReplicaKey

__all__ = ["ControllerNode"]

_HAND_OVER_S = 5.0


class ControllerNode:
    """A running controller. `run` returns after `stop`, or raises what ended it."""

    def __init__(self, host: Host, config: NodeConfig) -> None:
        self._host = host
        self._config = config
        self._logger = logging.getLogger(f"quorate.node.{host.name}")
        self._stopping = asyncio.Event()
        self.is_listening = asyncio.Event()
        self.incarnation_id = Uuid(host.random.randbytes(16))
        self.state = ClusterState()
        self.metrics = NodeMetrics()
        # From `run` on:
        self.replica: Replica | None = None
        self.desk: Desk | None = None
        self.snapshots: SnapshotKeeper | None = None

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

    async def _run_with(self, log: MetadataLog, closing: AsyncExitStack) -> None:
        config, host, state = self._config, self._host, self.state
        settings = config.controller_settings(log.cluster_id)
        quorum = self._quorum(log)
        replica = self.replica = Replica(
            host, log.cluster_id, log, quorum, self._connections(quorum, closing), state
        )
        journal = EventJournal(host, config.metadata_directory, config.node_id, self.incarnation_id)
        desk = self.desk = Desk(host, replica, state, settings, Account(host, journal, self.metrics))
        snapshots = self.snapshots = SnapshotKeeper(host, config, replica, state)
        await self._listen(ControllerRoutes(replica, desk, state, settings, self.metrics), closing)
        if config["quorate.admin.listener"] is not None:
            view = View(host, settings, state, replica, desk)
            routes = AdminRoutes(view, self.metrics, journal)
            admin = AdminEndpoint(host, config.metadata_directory, routes)
            await admin.start(*config["quorate.admin.listener"])
            closing.push_async_callback(admin.close)
        self.is_listening.set()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(replica.run()),
                tasks.create_task(desk.run()),
                tasks.create_task(journal.run()),
                tasks.create_task(snapshots.run()),
                # Not on the connections of the replica: the answer waits for a commit, which may wait for the
                # fetches of this very replica, and these would wait behind it.
                tasks.create_task(
                    self._register(settings, replica, desk, self._connections(quorum, closing))
                ),
            ]
            await self._stopping.wait()
            await self._hand_over(replica)
            for task in running:
                task.cancel()

    def stop(self) -> None:
        """Asks the node to end; a leader first sees to it that there is another."""
        self._stopping.set()

    def _quorum(self, log: MetadataLog) -> Quorum:
        config = self._config
        return Quorum(
            ReplicaKey(config.node_id, log.directory_id),
            (config.advertised_controller,),
            log=log.positions,
            voters=log.voters,
            bootstrap=config.bootstrap_servers,
            settings=config.quorum_settings,
            random=self._host.random,
        )

    def _connections(self, quorum: Quorum, closing: AsyncExitStack) -> Connections:
        connections = Connections(
            rng=self._host.random,
            client_id=f"quorate-controller-{self._config.node_id}",
            limits=self._config.limits,
            connect_timeout_ms=quorum.settings.request_timeout_ms,
        )
        closing.push_async_callback(connections.close)
        return connections

    async def _listen(self, routes: ControllerRoutes, closing: AsyncExitStack) -> None:
        listener = self._config.controller_listener
        server = Server(listener.name, routes.table, limits=self._config.limits)
        await server.start(listener.host or None, listener.port)
        closing.push_async_callback(server.close, timeout_ms=1000)
        self._logger.info("listening listener=%s port=%d", listener.name, server.port)

    async def _hand_over(self, replica: Replica) -> None:
        if isinstance(replica.quorum.role, Leader) and len(replica.quorum.voters.latest) > 1:
            replica.resign()
            deadline = asyncio.get_running_loop().time() + _HAND_OVER_S
            while replica.quorum.leader_id in (-1, self._config.node_id):
                if asyncio.get_running_loop().time() >= deadline:
                    break
                await asyncio.sleep(0.02)

    async def _register(
        self, settings: ControllerSettings, replica: Replica, desk: Desk, connections: Connections
    ) -> None:
        async def ask_active(request: Request) -> Response:
            """The response of the active controller, which may be this one."""
            if desk.active is not None:
                return await desk.ask(request, Asker(api_version=type(request).__versions__[-1]))
            endpoint = replica.quorum.leader_endpoint
            if endpoint is None:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "nobody leads")
            timeout_ms = replica.quorum.settings.request_timeout_ms
            return await connections.request((endpoint.host, endpoint.port), request, timeout_ms=timeout_ms)

        endpoint = self._config.advertised_controller
        await register_self(self._host, settings, self.incarnation_id, endpoint, self.state, ask_active)
