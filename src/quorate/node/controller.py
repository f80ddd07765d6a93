"""The controller of a node: the listener that others talk to, the desk, and making itself known.

Every controller answers what can be read from the committed image. The one that leads the quorum is the
active controller besides: what changes the cluster goes over its `desk`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from quorate.broker.dynamic_config import DynamicConfig
from quorate.controller.decision import Asker
from quorate.net.connections import Connections
from quorate.net.routes import throttle_time_ms
from quorate.net.server import Server
from quorate.node.account import Account, View
from quorate.node.admin import AdminRoutes
from quorate.node.cluster_state import ClusterState
from quorate.node.config import NodeConfig
from quorate.node.connection_limits import ConnectionGuard
from quorate.node.controller_routes import ControllerRoutes
from quorate.node.desk import Desk
from quorate.node.event_journal import EventJournal
from quorate.node.file_limit import connections_of
from quorate.node.host import Host
from quorate.node.known_peers import note_peers
from quorate.node.metrics import NodeMetrics
from quorate.node.replica import Replica
from quorate.node.self_registration import register_self
from quorate.node.tls import Tls
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid
from quorate.raft.state import Leader

__all__ = ["ControllerRole"]

_HAND_OVER_S = 5.0


class ControllerRole:
    """One controller. `listen` first, then `run` until it is cancelled; `hand_over` before that."""

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        replica: Replica,
        state: ClusterState,
        journal: EventJournal,
        metrics: NodeMetrics,
        incarnation_id: Uuid,
        tls: Tls,
    ) -> None:
        self._host = host
        self._config = config
        self._replica = replica
        self._state = state
        self._metrics = metrics
        self._incarnation_id = incarnation_id
        self._tls = tls
        self._settings = config.controller_settings(replica.cluster_id)
        self._logger = logging.getLogger(f"quorate.node.{host.name}")
        self.desk = Desk(host, replica, state, self._settings, Account(host, journal, metrics))
        view = View(host, self._settings, state, replica, self.desk)
        self.admin_routes = AdminRoutes(view, metrics, journal)

    async def listen(self, closing: AsyncExitStack) -> None:
        """Begins to be reachable, for controllers and brokers."""
        config, listener = self._config, self._config.controller_listener
        routes = ControllerRoutes(self._replica, self.desk, self._state, self._settings, self._metrics)
        guard = ConnectionGuard(
            DynamicConfig(config.node_id, config.properties),
            [listener.name],
            config.quota_window,
            self._logger,
            connections_max=connections_of("controller", config.roles, self._host.connections_max),
        )
        closing.push_async_callback(guard.close)
        note_peers(routes.table, listener.name, guard.admitted, self._is_peer)
        server = Server(
            listener.name,
            routes.table,
            limits=config.limits,
            budget=config.budget(),
            throttle_time_ms=throttle_time_ms,
            connection_turn_ms=guard.turn_ms,
            admitted=guard.admitted,
        )
        tls, opened = self._tls.for_listener(listener.name), self._host.opened.pop(listener.name, None)
        await server.start(listener.host or None, listener.port, tls, opened)
        closing.push_async_callback(server.close, timeout_ms=1000)
        self._logger.info("listening listener=%s port=%d", listener.name, server.port)

    def _is_peer(self, node_id: int) -> bool:
        image = self._state.image
        if node_id in image.brokers or node_id in image.controllers:
            return True
        return self._replica.quorum.voters.latest.get(node_id) is not None

    async def run(self, connections: Connections) -> None:
        """`connections` are for this alone: an answer waits for a commit, which may wait for the fetches of
        this very node, and these would wait behind it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.desk.run())
            tasks.create_task(self._register(connections))

    async def hand_over(self) -> None:
        """A leader sees to it that there is another, as far as it can. Where so many voters do not run that
        nobody can be elected, as when the whole cluster is stopped, it does not wait for that."""
        quorum = self._replica.quorum
        if isinstance(quorum.role, Leader) and len(quorum.voters.latest) > 1:
            self._replica.resign()
            deadline = asyncio.get_running_loop().time() + _HAND_OVER_S
            while quorum.leader_id in (-1, self._config.node_id):
                if asyncio.get_running_loop().time() >= deadline or not self._replica.may_elect():
                    break
                await asyncio.sleep(0.02)

    async def _register(self, connections: Connections) -> None:
        quorum = self._replica.quorum

        async def ask_active(request: Request) -> Response:
            """The response of the active controller, which may be this one."""
            if self.desk.active is not None:
                return await self.desk.ask(request, Asker(api_version=type(request).__versions__[-1]))
            endpoint = quorum.leader_endpoint
            if endpoint is None:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "nobody leads")
            address = endpoint.host, endpoint.port
            return await connections.request(address, request, timeout_ms=quorum.settings.request_timeout_ms)

        await register_self(
            self._host,
            self._settings,
            self._incarnation_id,
            self._config.advertised_controller,
            self._state,
            ask_active,
        )
