"""What a broker is made of, whoever decides about it: its replicas, its listeners, its limits and its counts.

`broker` puts these parts behind a metadata log, `zookeeper_broker` behind a ZooKeeper. Both assemble them,
listen, and begin to serve when they may; how they become members, and where the metadata comes from, is
their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from ssl import SSLContext
from typing import Any

from quorate.broker.admission import admit, admit_by_header
from quorate.broker.cleaner import Cleaner
from quorate.broker.control_plane import ControlPlane
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.fetcher import Fetchers
from quorate.broker.groups import ASSIGNMENT_INTERVAL, Groups
from quorate.broker.isr_proposals import IsrProposals
from quorate.broker.listeners import address_of
from quorate.broker.partition import Partition, Surroundings
from quorate.broker.quotas import Quotas
from quorate.broker.replicas import Replicas
from quorate.broker.serving import Broker
from quorate.broker.settings import BrokerSettings
from quorate.broker.standing import Standings
from quorate.broker.throttled_replication import FOLLOWER_RATE, LEADER_RATE, ReplicationThrottle
from quorate.broker.throttling import Throttling
from quorate.controller.events import Event
from quorate.metadata.image import ClusterImage
from quorate.net.connections import Address, Connections
from quorate.net.routes import RequestContext, Route, RouteTable, throttle_time_ms
from quorate.net.server import Server
from quorate.node.admin_view import BrokerView, ReplicaCounts
from quorate.node.broker_disks import BrokerDisks
from quorate.node.broker_metrics import (
    BrokerMetrics,
    CountedControlPlane,
    IsrCounts,
    Traffic,
    count_replicas,
)
from quorate.node.cleaner import make_cleaner
from quorate.node.cleaner_metrics import CleanerMetrics
from quorate.node.cluster_state import ClusterState
from quorate.node.config import NodeConfig
from quorate.node.connection_limits import ConnectionGuard
from quorate.node.file_limit import connections_of
from quorate.node.group_metrics import GroupCounts, GroupMetrics
from quorate.node.host import Host
from quorate.node.known_peers import note_peers
from quorate.node.log_directory_metrics import LogDirectoryMetrics
from quorate.node.log_shelf import DirectoryShelf
from quorate.node.metrics import NodeMetrics
from quorate.node.quota_metrics import QuotaMetrics
from quorate.node.tls import Tls
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError

__all__ = ["BrokerParts"]

Eligible = Callable[[int, int], bool]
MakeTable = Callable[[str, Callable[[Route], Route]], RouteTable]


class BrokerParts:
    """The parts of one broker. `assemble`, `listen` and `open_for_clients` come in this order, once."""

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        settings: BrokerSettings,
        state: ClusterState,
        connections: Callable[[SSLContext | None], Connections],
        saw: Callable[[Sequence[Event]], None],
        metrics: NodeMetrics,
        tls: Tls,
    ) -> None:
        self._host = host
        self._config = config
        self._state = state
        self._connections = connections  # makes a set of its own for each purpose
        self._tls = tls
        self._saw = saw
        self._metrics = metrics
        self._traffic = Traffic(lambda: state.image)
        self._isr_counts = IsrCounts()
        self._group_counts = GroupCounts()
        self._clock = asyncio.get_running_loop().time
        self._tables: dict[str, RouteTable] = {}  # of listeners, once the broker may serve
        self._is_serving = asyncio.Event()
        self.settings = settings
        self.logger = logging.getLogger(f"quorate.broker.{host.name}")
        self.budget = config.budget()
        self.configs = DynamicConfig(settings.broker_id, config.properties)
        self.quotas = Quotas(config.quota_window)
        self.leader_throttle = ReplicationThrottle(config.replication_quota_window)
        self.follower_throttle = ReplicationThrottle(config.replication_quota_window)
        self.configs.when_changed(self._set_throttles, LEADER_RATE, FOLLOWER_RATE)
        self._set_throttles()
        self.guard = ConnectionGuard(
            self.configs,
            [one.name for one in config.broker_listeners],
            config.quota_window,
            self.logger,
            protected=settings.inter_broker_listener,
            connections_max=connections_of("broker", config.roles, host.connections_max),
        )
        self.incarnation_id = Uuid(host.random.randbytes(16))
        self.servers: list[Server] = []
        self.ports: dict[str, int] = {}  # by listener, once it listens
        self.replicas: Replicas | None = None
        self.disks: BrokerDisks | None = None
        self.cleaner: Cleaner | None = None
        self.groups: Groups | None = None

    def count(self, view: BrokerView) -> None:
        """Begins to be counted among what the node measures."""
        sources = self._metrics.sources
        sources.append(BrokerMetrics(view, self._traffic, self._isr_counts))
        sources.append(GroupMetrics(lambda: self.groups, self._group_counts))
        sources.append(LogDirectoryMetrics(lambda: self.disks))
        sources.append(CleanerMetrics(lambda: self.cleaner, self._host.wall_ms))
        throttles = {"leader": self.leader_throttle, "follower": self.follower_throttle}
        sources.append(QuotaMetrics(self.quotas, throttles, self.now_ms))

    # Putting it together

    def assemble(
        self,
        disks: BrokerDisks,
        control_plane: ControlPlane,
        broker_epoch: Callable[[], int],
        is_eligible: Eligible,
        controller_id: Callable[[], int] | None = None,
    ) -> tuple[Broker, IsrProposals, Fetchers]:
        """The broker itself. `is_eligible` says whether a broker of an epoch may be in sync; `controller_id`
        is whom clients are told to go to for what only a controller can do, if that matters."""
        settings, host, shelf = self.settings, self._host, disks.shelf
        around = Surroundings(
            broker_id=settings.broker_id,
            lag_ms_max=settings.replica_lag_time_max_ms,
            now_ms=self.now_ms,
            wall_ms=host.wall_ms,
            is_eligible=is_eligible,
            admit=admit if settings.validates_records else admit_by_header,
            producer_expiration_ms=lambda: self.configs["producer.id.expiration.ms"],
        )
        proposals = IsrProposals(CountedControlPlane(control_plane, lambda: replicas, self._isr_counts))
        fetchers = Fetchers(
            settings.broker_id,
            self._connections(self._tls.to_listener(settings.inter_broker_listener)),
            self._config.fetcher_settings,
            self.address_of,
            broker_epoch,
            self._take_offline,
            self.follower_throttle,
        )
        replicas = self.replicas = Replicas(settings, around, shelf, fetchers, proposals, disks.assigned)
        self.cleaner = make_cleaner(
            settings.broker_id, host, self.configs, shelf, replicas, self.now_ms, self._take_offline
        )
        self.disks = disks
        disks.begin(replicas, self.cleaner)
        broker = Broker(
            settings=settings,
            configs=self.configs,
            replicas=replicas,
            proposals=proposals,
            control_plane=control_plane,
            random=host.random,
            now_ms=self.now_ms,
            wall_ms=host.wall_ms,
            current_image=lambda: self._state.image,
            broker_epoch=broker_epoch,
            quotas=self.quotas,
            leader_throttle=self.leader_throttle,
            count_appended=self._traffic.appended,
            count_committed=self._group_counts.committed_some,
            controller_id=controller_id,
        )
        groups = self.groups = Groups(broker, self._tell_of_groups)
        self.configs.when_changed(self._set_assignment_interval, ASSIGNMENT_INTERVAL)
        self._set_assignment_interval()
        replicas.when_led = groups.led
        return broker, proposals, fetchers

    def _is_peer(self, node_id: int) -> bool:
        image = self._state.image
        return node_id in image.brokers or node_id in image.controllers

    async def listen(self, make_table: MakeTable, closing: AsyncExitStack) -> None:
        """Opens all listeners. `make_table` makes the table of one, by its name and what is to be put around
        each route that clients use. Those who come before `open_for_clients` wait for that."""
        closing.push_async_callback(self.guard.close)
        for listener in self._config.broker_listeners:
            early = make_table(listener.name, self._when_serving)
            table = self._tables[listener.name] = make_table(listener.name, lambda route: route)
            settle = Throttling(self.quotas, self.now_ms).settle
            notes = {**self._traffic.notes, **self._group_counts.notes}
            for one in (early, table):
                note_peers(one, listener.name, self.guard.admitted, self._is_peer)
                self._metrics.meters.measure(one, notes, settle)
            server = Server(
                listener.name,
                early,
                limits=self._config.limits,
                budget=self.budget,
                when_queued=self._metrics.meters.queued,
                when_answered=self._metrics.meters.catch_up,
                throttle_time_ms=throttle_time_ms,
                connection_delay_ms=lambda host: self.quotas.connections.charge(host, self.now_ms()),
                connection_turn_ms=self.guard.turn_ms,
                admitted=self.guard.admitted,
            )
            tls, opened = self._tls.for_listener(listener.name), self._host.opened.pop(listener.name, None)
            await server.start(listener.host or None, listener.port, tls, opened)
            closing.push_async_callback(server.close, timeout_ms=0)
            self.ports[listener.name] = server.port
            self.logger.info("listening listener=%s port=%d", listener.name, server.port)
            self.servers.append(server)

    def open_for_clients(self) -> None:
        """The broker may serve: those who came too early go on."""
        for server in self.servers:
            server.routes = self._tables[server.listener]
        self._is_serving.set()

    def _when_serving(self, route: Route) -> Route:
        """The same, but it waits until the broker may serve."""

        async def wait_and_handle(context: RequestContext, header: RequestHeader, request: Any) -> Any:
            await self._is_serving.wait()
            answer = route.handler(context, header, request)
            return await answer if isinstance(answer, Awaitable) else answer

        return replace(route, handler=wait_and_handle, series=None, again=None, shortcut=None)

    def advertised(self) -> list[tuple[str, str, int, int]]:
        """Where others reach it: name, host, port and security protocol of every listener."""
        by_name = {listener.name: listener for listener in self._config.broker_listeners}
        found = []
        for server in self.servers:
            host, port = self._config.advertised_broker(by_name[server.listener], server.port)
            found.append((server.listener, host, port, self._tls.code_of(server.listener)))
        return found

    def _tell_of_groups(self, events: Sequence[Event]) -> None:
        self._group_counts.saw(events)
        self._saw(events)

    # What goes on

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on for as long as the broker runs, besides what its disks need."""
        assert self.replicas is not None
        return [
            self.replicas.watch_followers(),
            self.replicas.save_high_watermarks(),
            self.replicas.enforce_retention(),
            self.replicas.forget_producers(),
            self._clean_logs(),
        ]

    async def close(self, shelf: DirectoryShelf, broker_epoch: int) -> None:
        """Ends in order: nothing is served any more, logs are closed, and directories say so. Raises what
        made the last disk fail."""
        assert self.disks is not None
        assert self.replicas is not None
        for server in self.servers:
            await server.close(timeout_ms=1000)
        await self.disks.close()
        await self.replicas.close()
        await shelf.mark_clean(broker_epoch)
        if self.disks.fatal is not None:
            raise self.disks.fatal

    async def _clean_logs(self) -> None:
        """Compacts logs of topics that want it, unless the file says that nobody does."""
        assert self.cleaner is not None
        if self._config["log.cleaner.enable"]:
            await self.cleaner.run()

    def set_aside(self, image: ClusterImage) -> None:
        """What is fetched from the other brokers needs memory, too."""
        others = len(image.brokers.keys() - {self.settings.broker_id})
        self.budget.set_aside(others * self._config.fetcher_settings.response_max_bytes)

    def _take_offline(self, partition: Partition, error: StorageError) -> None:
        assert self.replicas is not None
        self.replicas.offline(partition, error)

    def _set_assignment_interval(self) -> None:
        assert self.groups is not None
        self.groups.set_assignment_interval(self.configs[ASSIGNMENT_INTERVAL])

    def _set_throttles(self) -> None:
        self.leader_throttle.limit = self.configs[LEADER_RATE]
        self.follower_throttle.limit = self.configs[FOLLOWER_RATE]

    # What others ask

    def replica_counts(self) -> ReplicaCounts:
        standings = Standings() if self.replicas is None else self.replicas.standings
        return count_replicas(standings, self._state.image, self.settings.broker_id)

    def now_ms(self) -> float:
        return self._clock() * 1000

    def address_of(self, broker_id: int) -> Address | None:
        return address_of(self._state.image, broker_id, self.settings.inter_broker_listener)
