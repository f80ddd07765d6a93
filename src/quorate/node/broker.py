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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from ssl import SSLContext

from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.groups import Groups
from quorate.broker.handlers.log_dirs import LogDirs
from quorate.broker.kraft_changes import KraftChanges
from quorate.broker.lifecycle import Lifecycle, State, Stop
from quorate.broker.replicas import Replicas
from quorate.broker.serving import Broker
from quorate.controller.events import Event
from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.metadata.image import ClusterImage
from quorate.metadata.touched import Touched
from quorate.metadata.versions import CORDONED, KRAFT_VERSION
from quorate.net.connections import Connections
from quorate.net.routes import Features
from quorate.net.server import Server
from quorate.node.admin_view import BrokerStatus, ReplicaCounts
from quorate.node.broker_disks import BrokerDisks
from quorate.node.broker_parts import BrokerParts
from quorate.node.broker_routes import BrokerRoutes
from quorate.node.cluster_state import ClusterState
from quorate.node.config import NodeConfig
from quorate.node.controller_channel import ControllerChannel, KraftControlPlane
from quorate.node.directory_assignments import DirectoryAssignments
from quorate.node.host import Host
from quorate.node.log_shelf import DirectoryShelf
from quorate.node.membership import Membership
from quorate.node.metrics import NodeMetrics
from quorate.node.replica import Replica
from quorate.node.tls import Tls
from quorate.protocol.api.brokers import BrokerRegistrationRequest
from quorate.protocol.types import Uuid

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
        self.settings = config.broker_settings(replica.cluster_id)
        self.parts = BrokerParts(host, config, self.settings, state, connections, saw, metrics, tls)
        self._logger = self.parts.logger
        self._image: ClusterImage | None = None  # the one that was published last
        self._published_offset = -1
        self._topics_opening: Collection[Uuid] = ()  # those that were created, as far as it is published now
        self._when_published: Callable[[], None] = lambda: None
        self._applied = asyncio.Event()
        self._published = asyncio.Event()
        self._is_stopping = False
        self.membership: Membership | None = None
        self.budget = self.parts.budget
        state.when_applied.append(lambda _: self._applied.set())
        self.parts.count(self)

    async def run(self) -> Stop:
        """Serves until it is let go. Raises what ended it otherwise."""
        parts = self.parts
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
            control_plane = KraftControlPlane(
                self.settings.broker_id,
                self._broker_epoch,
                forwarding=self._channel(),
                proposing=self._channel(),
            )
            broker, proposals, fetchers = parts.assemble(
                disks, control_plane, self._broker_epoch, self._is_eligible
            )
            await self._listen(broker, control_plane, LogDirs(broker, disks.moves, disks.futures), closing)
            lifecycle = Lifecycle(
                self._registration(shelf), self._config.lifecycle_settings, chance=self._host.random
            )
            membership = self.membership = Membership(
                lifecycle,
                lambda request: channel.ask_once(request, timeout_ms=self._config["request.timeout.ms"]),
                channel.look_elsewhere,
                self._saw,
                lambda: not self._replica.may_elect(),
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
                        self._publish(shelf, broker.replicas, membership, disks),
                        self._open_for_clients(membership),
                        *parts.duties(),
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
            await parts.close(shelf, membership.epoch)
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

    async def _listen(
        self, broker: Broker, control_plane: KraftControlPlane, log_dirs: LogDirs, closing: AsyncExitStack
    ) -> None:
        assert self.groups is not None
        routes = BrokerRoutes(
            broker,
            control_plane,
            self._state,
            self.groups,
            log_dirs,
            lambda: self._published_offset,
            self._features,
            is_coming=self._is_coming,
        )
        self._when_published = routes.own_view.applied
        closing.push_async_callback(routes.close)
        await self.parts.listen(lambda _, wrap: routes.table(wrap), closing)

    def _features(self) -> Features:
        """What ApiVersions says of features: that of the quorum comes from there, the others from the log."""
        levels = {
            **self._state.image.features,
            KRAFT_VERSION: self._replica.quorum.voters.kraft_version,
        }
        return Features(
            supported={name: range(low, high + 1) for name, (low, high) in SUPPORTED_FEATURES.items()},
            finalized=dict(sorted(levels.items())),
            finalized_epoch=self._state.position.offset - 1,
        )

    def _registration(self, shelf: DirectoryShelf) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self.settings.broker_id,
            cluster_id=self.settings.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                BrokerRegistrationRequest.Listener(
                    name=name, host=host, port=port, security_protocol=protocol
                )
                for name, host, port, protocol in self.parts.advertised()
            ],
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

    async def _publish(
        self, shelf: DirectoryShelf, replicas: Replicas, membership: Membership, disks: BrokerDisks
    ) -> None:
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
                self.parts.quotas.update(image.quotas)
            self._topics_opening = () if image.touched is None else image.touched.topics_added
            # Nothing may be awaited before this: what is applied from now on is noted for the next time.
            self._image, image.touched = image, Touched()
            self.configs.update(image)
            if image.metadata_version >= CORDONED:
                membership.directories_cordoned(disks.futures.cordoned_ids())
            if not self._published.is_set():
                await shelf.set_aside_others([key for key, _ in found.assigned])
            await replicas.apply(found)
            self.parts.set_aside(image)
            self._published_offset, self._topics_opening = offset, ()
            self._when_published()
            membership.metadata_applied(offset, image.brokers.get(self.settings.broker_id))
            if not self._published.is_set():
                self._published.set()
                membership.ready()

    def _is_coming(self, topic_id: Uuid) -> bool:
        """Whether a topic was created and that has not been carried out yet."""
        touched = self._state.image.touched
        return topic_id in self._topics_opening or (touched is not None and topic_id in touched.topics_added)

    async def _open_for_clients(self, membership: Membership) -> None:
        await membership.is_unfenced.wait()
        self.parts.open_for_clients()
        self._logger.info("serving epoch=%d", membership.epoch)

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
        return self.parts.replica_counts()

    def listeners(self) -> Sequence[Server]:
        return self.parts.servers

    @property
    def ports(self) -> Mapping[str, int]:
        """By listener, once it listens."""
        return self.parts.ports

    @property
    def configs(self) -> DynamicConfig:
        return self.parts.configs

    @property
    def groups(self) -> Groups | None:
        return self.parts.groups

    @property
    def replicas(self) -> Replicas | None:
        return self.parts.replicas

    @property
    def incarnation_id(self) -> Uuid:
        return self.parts.incarnation_id

    def _broker_epoch(self) -> int:
        return -1 if self.membership is None else self.membership.epoch

    def _is_eligible(self, broker_id: int, epoch: int) -> bool:
        known = self._state.image.brokers.get(broker_id)
        return known is not None and known.is_active and epoch in (-1, known.epoch)
