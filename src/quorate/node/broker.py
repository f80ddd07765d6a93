"""A broker: an observer of the metadata log, its membership, its replicas, and the listeners of clients.

It starts in Kafka's order. First it reads the log and opens its directories; it listens, so that it knows
its ports, and registers; once it has read everything up to its own registration it takes up its replicas,
which is when their logs are recovered, and asks to be unfenced; only then are clients answered. It ends in
the opposite order: the controller moves its leaderships away and lets it go, then connections are closed, and
every log in order.

A replica is judged by metadata that has this process in it, and by no older ones: what was assigned to us in
between would look as if it were not ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from ssl import SSLContext
from typing import Any

from quorate.broker.cleaner import Cleaner
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.fetcher import Fetchers
from quorate.broker.groups import Groups
from quorate.broker.handlers.log_dirs import LogDirs
from quorate.broker.isr_proposals import IsrProposals
from quorate.broker.kraft_changes import KraftChanges
from quorate.broker.lifecycle import Lifecycle, State, Stop
from quorate.broker.listeners import address_of
from quorate.broker.partition import Partition, Surroundings
from quorate.broker.quotas import Quotas
from quorate.broker.replicas import Replicas
from quorate.broker.serving import Broker
from quorate.broker.throttled_replication import FOLLOWER_RATE, LEADER_RATE, ReplicationThrottle
from quorate.broker.throttling import Throttling
from quorate.controller.events import Event
from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.metadata.image import ClusterImage
from quorate.metadata.touched import Touched
from quorate.net.connections import Address, Connections
from quorate.net.limits import Limits
from quorate.net.routes import Handler, RequestContext, throttle_time_ms
from quorate.net.server import Server
from quorate.node.admin_view import BrokerStatus, ReplicaCounts
from quorate.node.broker_disks import BrokerDisks
from quorate.node.broker_metrics import (
    BrokerMetrics,
    CountedControlPlane,
    IsrCounts,
    Traffic,
    count_replicas,
)
from quorate.node.broker_routes import BrokerRoutes
from quorate.node.cleaner import make_cleaner
from quorate.node.cleaner_metrics import CleanerMetrics
from quorate.node.cluster_state import ClusterState
from quorate.node.config import NodeConfig
from quorate.node.controller_channel import ControllerChannel, KraftControlPlane
from quorate.node.directory_assignments import DirectoryAssignments
from quorate.node.group_metrics import GroupCounts, GroupMetrics
from quorate.node.host import Host
from quorate.node.log_directory_metrics import LogDirectoryMetrics
from quorate.node.log_shelf import DirectoryShelf
from quorate.node.membership import Membership
from quorate.node.metrics import NodeMetrics
from quorate.node.quota_metrics import QuotaMetrics
from quorate.node.replica import Replica
from quorate.node.tls import Tls
from quorate.protocol.api.brokers import BrokerRegistrationRequest
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError

__all__ = ["BrokerRole"]


class BrokerRole:
    """The broker of a node. `run` lasts until it has left, or something is fatal."""

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        replica: Replica,
        state: ClusterState,
        connections: Callable[[SSLContext | None], Connections],
        saw: Callable[[Sequence[Event]], None],
        metrics: NodeMetrics,
        tls: Tls,
    ) -> None:
        self._host = host
        self._config = config
        self._replica = replica
        self._state = state
        self._connections = connections  # makes a set of its own for each purpose
        self._tls = tls
        self._saw = saw
        self._metrics = metrics
        self._traffic = Traffic(lambda: state.image)
        self._isr_counts = IsrCounts()
        self._group_counts = GroupCounts()
        self._servers: list[Server] = []
        self.budget = config.budget()
        self._logger = logging.getLogger(f"quorate.broker.{host.name}")
        self._image: ClusterImage | None = None  # the one that was published last
        self._published_offset = -1
        self._when_published: Callable[[], None] = lambda: None
        self._applied = asyncio.Event()
        self._published = asyncio.Event()
        self._is_serving = asyncio.Event()
        self._is_stopping = False
        self.settings = config.broker_settings(replica.cluster_id)
        self.configs = DynamicConfig(self.settings.broker_id, config.properties)
        self.quotas = Quotas(config.quota_window)
        self.leader_throttle = ReplicationThrottle(config.replication_quota_window)
        self.follower_throttle = ReplicationThrottle(config.replication_quota_window)
        self.configs.when_changed(self._set_throttles, LEADER_RATE, FOLLOWER_RATE)
        self._set_throttles()
        self.configs.when_changed(self._limit_connections, "max.connections", "max.connections.per.ip")
        self.incarnation_id = Uuid(host.random.randbytes(16))
        self.ports: dict[str, int] = {}  # by listener, once it listens
        self.membership: Membership | None = None
        self.replicas: Replicas | None = None
        self.disks: BrokerDisks | None = None
        self.cleaner: Cleaner | None = None
        self.groups: Groups | None = None
        state.when_applied.append(lambda _: self._applied.set())
        metrics.sources.append(BrokerMetrics(self, self._traffic, self._isr_counts))
        metrics.sources.append(GroupMetrics(lambda: self.groups, self._group_counts))
        metrics.sources.append(LogDirectoryMetrics(lambda: self.disks))
        metrics.sources.append(CleanerMetrics(lambda: self.cleaner, host.wall_ms))
        throttles = {"leader": self.leader_throttle, "follower": self.follower_throttle}
        metrics.sources.append(QuotaMetrics(self.quotas, throttles, self._now_ms))

    async def run(self) -> Stop:
        """Serves until it is let go. Raises what ended it otherwise."""
        async with AsyncExitStack() as closing:
            shelf = await DirectoryShelf.open(self._host, self._config, self.settings)
            closing.push_async_callback(shelf.close_directories)
            channel = self._channel()
            assignments = DirectoryAssignments(
                self.settings.broker_id,
                self._broker_epoch,
                lambda key: broker.replicas.of_topic(key.topic_id, key.partition_id) is not None,
                self._channel(),
                self._host.random,
            )
            disks = BrokerDisks(
                self._host, self._config, shelf, assignments, self.configs, lambda: self._state.image
            )
            broker, proposals, fetchers = self._assemble(disks)
            self.disks = disks
            control_plane = broker.control_plane
            assert isinstance(control_plane, KraftControlPlane)
            servers = await self._listen(broker, LogDirs(broker, disks.moves, disks.futures), closing)
            lifecycle = Lifecycle(
                self._registration(shelf, servers), self._config.lifecycle_settings, chance=self._host.random
            )
            membership = self.membership = Membership(
                lifecycle,
                lambda request: channel.ask_once(request, timeout_ms=self._config["request.timeout.ms"]),
                channel.look_elsewhere,
                self._saw,
            )
            disks.serve(membership)
            if self._is_stopping:
                membership.begin_shutdown()
            async with asyncio.TaskGroup() as tasks:
                duties = [
                    tasks.create_task(duty)
                    for duty in (
                        fetchers.run(),
                        proposals.run(),
                        self._publish(shelf, broker.replicas, membership),
                        self._open_for_clients(membership),
                        broker.replicas.watch_followers(),
                        broker.replicas.save_high_watermarks(),
                        broker.replicas.enforce_retention(),
                        self._clean_logs(),
                        control_plane.run(),
                        assignments.run(),
                        *disks.duties(),
                    )
                ]
                await membership.run()
                stop = await membership.ended
                self._logger.info("stopping reason=%s", stop.reason)
                for duty in duties:
                    duty.cancel()
            for server in servers:
                await server.close(timeout_ms=1000)
            await disks.close()
            await broker.replicas.close()
            await shelf.mark_clean(membership.epoch)
            if disks.fatal is not None:
                raise disks.fatal
            return stop

    def stop(self) -> None:
        """Asks to be let go; the second time it goes at once."""
        self._is_stopping = True
        if self.membership is not None:
            self.membership.begin_shutdown()

    # Putting it together

    def _channel(self) -> ControllerChannel:
        return ControllerChannel(
            self._connections(self._tls.to_controllers()),
            lambda: self._replica.quorum.leader_endpoint,
            self._host.random,
        )

    def _assemble(self, disks: BrokerDisks) -> tuple[Broker, IsrProposals, Fetchers]:
        settings, host, shelf = self.settings, self._host, disks.shelf
        around = Surroundings(
            broker_id=settings.broker_id,
            lag_ms_max=settings.replica_lag_time_max_ms,
            now_ms=self._now_ms,
            wall_ms=host.wall_ms,
            is_eligible=self._is_eligible,
            scans_records=settings.validates_records,
            producer_expiration_ms=lambda: self.configs["producer.id.expiration.ms"],
        )
        control_plane = KraftControlPlane(
            settings.broker_id,
            self._broker_epoch,
            forwarding=self._channel(),
            proposing=self._channel(),
        )
        proposals = IsrProposals(CountedControlPlane(control_plane, lambda: replicas, self._isr_counts))
        fetchers = Fetchers(
            settings.broker_id,
            self._connections(self._tls.to_listener(settings.inter_broker_listener)),
            self._config.fetcher_settings,
            self._address_of,
            self._broker_epoch,
            self._take_offline,
            self.follower_throttle,
        )
        replicas = self.replicas = Replicas(settings, around, shelf, fetchers, proposals, disks.assigned)
        self.cleaner = make_cleaner(
            settings.broker_id, host, self.configs, shelf, replicas, self._now_ms, self._take_offline
        )
        disks.begin(replicas, self.cleaner)
        broker = Broker(
            settings=settings,
            configs=self.configs,
            replicas=replicas,
            proposals=proposals,
            control_plane=control_plane,
            random=host.random,
            now_ms=self._now_ms,
            wall_ms=host.wall_ms,
            current_image=lambda: self._state.image,
            broker_epoch=self._broker_epoch,
            quotas=self.quotas,
            leader_throttle=self.leader_throttle,
        )
        return broker, proposals, fetchers

    async def _listen(self, broker: Broker, log_dirs: LogDirs, closing: AsyncExitStack) -> list[Server]:
        servers = self._servers
        assert isinstance(broker.control_plane, KraftControlPlane)
        groups = self.groups = Groups(broker, self._tell_of_groups)
        broker.replicas.when_led = groups.led
        routes = BrokerRoutes(
            broker,
            broker.control_plane,
            self._replica,
            self._state,
            groups,
            log_dirs,
            lambda: self._published_offset,
        )
        self._when_published = routes.own_view.applied
        closing.push_async_callback(routes.close)
        for listener in self._config.broker_listeners:
            table = routes.table(self._when_serving)
            settle = Throttling(self.quotas, self._now_ms).settle
            notes = {**self._traffic.notes, **self._group_counts.notes}
            self._metrics.meters.measure(table, notes, settle)
            server = Server(
                listener.name,
                table,
                limits=self._limits(),
                budget=self.budget,
                when_queued=self._metrics.meters.queued,
                throttle_time_ms=throttle_time_ms,
                connection_delay_ms=lambda host: self.quotas.connections.charge(host, self._now_ms()),
            )
            await server.start(listener.host or None, listener.port, self._tls.for_listener(listener.name))
            closing.push_async_callback(server.close, timeout_ms=0)
            self.ports[listener.name] = server.port
            self._logger.info("listening listener=%s port=%d", listener.name, server.port)
            servers.append(server)
        return servers

    def _tell_of_groups(self, events: Sequence[Event]) -> None:
        self._group_counts.saw(events)
        self._saw(events)

    def _when_serving(self, handler: Handler) -> Handler:
        """Clients that come too early wait until the broker may serve."""

        def handle(context: RequestContext, header: RequestHeader, request: Any) -> Any:
            if self._is_serving.is_set():
                return handler(context, header, request)
            return self._wait_and_handle(handler, context, header, request)

        return handle

    async def _wait_and_handle(
        self, handler: Handler, context: RequestContext, header: RequestHeader, request: Any
    ) -> Any:
        await self._is_serving.wait()
        answer = handler(context, header, request)
        return await answer if isinstance(answer, Awaitable) else answer

    def _registration(self, shelf: DirectoryShelf, servers: list[Server]) -> BrokerRegistrationRequest:
        config = self._config
        by_name = {listener.name: listener for listener in config.broker_listeners}
        listeners = []
        for server in servers:
            host, port = config.advertised_broker(by_name[server.listener], server.port)
            listeners.append(
                BrokerRegistrationRequest.Listener(
                    name=server.listener,
                    host=host,
                    port=port,
                    security_protocol=self._tls.code_of(server.listener),
                )
            )
        return BrokerRegistrationRequest(
            broker_id=self.settings.broker_id,
            cluster_id=self.settings.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=listeners,
            features=[
                BrokerRegistrationRequest.Feature(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            ],
            rack=self.settings.rack,
            log_dirs=list(shelf.directory_ids),
            previous_broker_epoch=shelf.previous_epoch,
        )

    # The metadata

    async def _publish(self, shelf: DirectoryShelf, replicas: Replicas, membership: Membership) -> None:
        """Carries out what the log says, batch after batch, once all that was committed has been read."""
        changes = KraftChanges(self.settings.broker_id)
        while True:
            await self._applied.wait()
            self._applied.clear()
            image, offset = self._state.image, self._state.position.offset - 1
            if self._image is None:
                known = image.brokers.get(self.settings.broker_id)
                membership.metadata_applied(offset, known)
                if known is None or known.incarnation_id != self.incarnation_id:
                    continue
                found = changes.everything(image)
            elif self._image is not image:
                found = changes.between(self._image, image)
            else:
                assert image.touched is not None
                found = changes.since(image, image.touched)
            groups = self.groups
            assert groups is not None
            groups.follow(image, image.touched if self._image is image else None)
            if self._image is not image or image.touched is None or image.touched.quotas:
                self.quotas.update(image.quotas)
            # Nothing may be awaited before this: what is applied from now on is noted for the next time.
            self._image, image.touched = image, Touched()
            self.configs.update(image)
            if not self._published.is_set():
                await shelf.set_aside_others([key for key, _ in found.assigned])
            await replicas.apply(found)
            self._set_aside(image)
            self._published_offset = offset
            self._when_published()
            membership.metadata_applied(offset, image.brokers.get(self.settings.broker_id))
            if not self._published.is_set():
                self._published.set()
                membership.ready()

    async def _open_for_clients(self, membership: Membership) -> None:
        await membership.is_unfenced.wait()
        self._is_serving.set()
        self._logger.info("serving epoch=%d", membership.epoch)

    # Disks

    async def _clean_logs(self) -> None:
        """Compacts logs of topics that want it, unless the file says that nobody does."""
        assert self.cleaner is not None
        if self._config["log.cleaner.enable"]:
            await self.cleaner.run()

    def _set_aside(self, image: ClusterImage) -> None:
        """What is fetched from the other brokers needs memory, too."""
        others = len(image.brokers.keys() - {self.settings.broker_id})
        self.budget.set_aside(others * self._config.fetcher_settings.response_max_bytes)

    def _take_offline(self, partition: Partition, error: StorageError) -> None:
        assert self.replicas is not None
        self.replicas.offline(partition, error)

    # What others ask

    def status(self) -> BrokerStatus:
        state, membership = self._state, self.membership
        life = State.NOT_RUNNING if membership is None else membership.lifecycle.state
        known = state.image.brokers.get(self.settings.broker_id)
        high_watermark = self._replica.quorum.high_watermark
        offset = self._published_offset
        return BrokerStatus(
            broker_id=self.settings.broker_id,
            state=life.name,
            state_number=int(life),
            epoch=self._broker_epoch(),
            is_fenced=None if known is None else known.is_fenced,
            incarnation_id=self.incarnation_id,
            metadata_offset=offset,
            metadata_lag=None if high_watermark is None else max(0, high_watermark - 1 - offset),
            metadata_lag_ms=max(0, self._host.wall_ms() - state.last_timestamp_ms),
        )

    def replica_counts(self) -> ReplicaCounts:
        return count_replicas(self.replicas or (), self._state.image, self.settings.broker_id)

    def listeners(self) -> Sequence[Server]:
        return self._servers

    def _limits(self) -> Limits:
        """Those of a listener. To let nobody in would lock out whoever could change that."""
        return replace(
            self._config.limits,
            connections_max=max(1, self.configs["max.connections"]),
            connections_per_address_max=max(1, self.configs["max.connections.per.ip"]),
        )

    def _limit_connections(self) -> None:
        for server in self._servers:
            server.limits = self._limits()

    def _set_throttles(self) -> None:
        self.leader_throttle.limit = self.configs[LEADER_RATE]
        self.follower_throttle.limit = self.configs[FOLLOWER_RATE]

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    def _broker_epoch(self) -> int:
        return -1 if self.membership is None else self.membership.epoch

    def _is_eligible(self, broker_id: int, epoch: int) -> bool:
        known = self._state.image.brokers.get(broker_id)
        return known is not None and known.is_active and epoch in (-1, known.epoch)

    def _address_of(self, broker_id: int) -> Address | None:
        return address_of(self._state.image, broker_id, self.settings.inter_broker_listener)
