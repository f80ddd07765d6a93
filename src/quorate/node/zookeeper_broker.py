"""A broker of ZooKeeper mode: the parts of any broker, behind requests of an elected controller.

It starts in Kafka's order. The plane is connected, so that the cluster and the broker's number are known; the
log directories are opened, the listeners bound; then it registers, and from there on whoever is the
controller tells it what to lead and what to follow, which is when logs are recovered. Clients are answered
once the controller has said who else is there. It ends in the opposite order: the controller moves its
leaderships away, the session is closed, so that nobody has to wait for it to expire, then every log.

A session that expires is not the end: the plane registers again, with another epoch, and meanwhile the broker
serves what it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from ssl import SSLContext
from typing import Final

from quorate.broker.control_plane import Changes
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.handlers.controller_requests import ControllerRequests
from quorate.broker.handlers.log_dirs import LogDirs
from quorate.broker.lifecycle import State, Stop
from quorate.broker.pushed_replicas import Fences
from quorate.controller.events import Event
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, TOPIC, ClusterImage
from quorate.metadata.touched import Touched
from quorate.net.connections import Connections
from quorate.net.routes import Features, Route, RouteTable
from quorate.net.server import Server
from quorate.node.admin_view import BrokerStatus, ReplicaCounts
from quorate.node.broker_disks import BrokerDisks
from quorate.node.broker_parts import BrokerParts
from quorate.node.broker_routes import BrokerRoutes
from quorate.node.cluster_state import ClusterState
from quorate.node.config import NodeConfig
from quorate.node.host import Host
from quorate.node.log_shelf import DirectoryShelf
from quorate.node.metrics import NodeMetrics
from quorate.node.tls import Tls
from quorate.node.zookeeper_membership import ZooKeeperMembership
from quorate.protocol.api.brokers import UnregisterBrokerRequest
from quorate.protocol.api.quorum import AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest
from quorate.protocol.message import Record
from quorate.zookeeper.plane import ZooKeeperPlane

__all__ = ["PlaneSide", "ZooKeeperBroker"]

# What is about a quorum of controllers, or about brokers that stay registered when they are gone.
_NOT_SERVED: Final = (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
)


class PlaneSide:
    """A `BrokerSide` of the plane: it is there before the broker, whose number only the plane knows."""

    def __init__(self, host: Host, state: ClusterState) -> None:
        self._host = host
        self._state = state
        state.image.touched = Touched()
        self.fences = Fences()
        self.has_more = asyncio.Event()  # for the image, which did not come with a request
        self.tell: Callable[[Sequence[Event]], None] = lambda _: None  # of events, once there is a journal

    def current_image(self) -> ClusterImage:
        return self._state.image

    def apply_records(self, records: Sequence[Record]) -> None:
        """What has changed among configurations, or all of them at the beginning."""
        self._state.apply_records(records, self._host.wall_ms())
        self.has_more.set()

    def saw(self, events: Sequence[Event]) -> None:
        self.tell(events)

    def epoch_changed(self, broker_epoch: int) -> None:
        self.fences.broker_epoch = broker_epoch


class ZooKeeperBroker:
    """The broker of a node. `run` lasts until it has left, or something is fatal.

    The plane gives it configurations and epochs (`PlaneSide`), the controller's requests everything else.
    Both change the image, and `_publish` tells everyone who goes by it, one after the other
    (`ControllerRequests.alone`).
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        plane: ZooKeeperPlane,
        side: PlaneSide,
        state: ClusterState,
        connections: Callable[[SSLContext | None], Connections],
        saw: Callable[[Sequence[Event]], None],
        metrics: NodeMetrics,
        tls: Tls,
    ) -> None:
        """The plane is connected; the configuration has the broker's number."""
        self._host = host
        self._config = config
        self._plane = plane
        self._side = side
        self._state = state
        settings = self.settings = config.broker_settings(plane.cluster_id)
        self.parts = BrokerParts(host, config, settings, state, connections, saw, metrics, tls)
        self._logger = self.parts.logger
        self.budget = self.parts.budget
        self.membership = ZooKeeperMembership(
            plane,
            settings.broker_id,
            is_shutdown_controlled=config["controlled.shutdown.enable"],
            session_timeout_ms=config["zookeeper.session.timeout.ms"],
            logger=self._logger,
        )
        self.requests: ControllerRequests | None = None
        self._shelf: DirectoryShelf | None = None
        self._carried_out = -1  # how much of the image everyone here knows of
        self._when_published: Callable[[], None] = lambda: None
        self.parts.count(self)

    async def run(self) -> Stop:
        """Serves until it is let go. Raises what ended it otherwise."""
        parts, plane, membership = self.parts, self._plane, self.membership
        async with AsyncExitStack() as closing:
            shelf = self._shelf = await DirectoryShelf.open(self._host, self._config, self.settings)
            closing.push_async_callback(shelf.close_directories)
            disks = BrokerDisks(
                self._host, self._config, shelf, _NoAssignments(), self.configs, lambda: self._state.image
            )
            broker, proposals, fetchers = parts.assemble(
                disks, plane, self._broker_epoch, self._is_eligible, self._controller_id
            )
            requests = self.requests = ControllerRequests(broker, self, self._side.fences)
            log_dirs = LogDirs(broker, disks.moves, disks.futures)
            assert parts.groups is not None
            routes = BrokerRoutes(
                broker,
                plane,
                self._state,
                parts.groups,
                log_dirs,
                lambda: self._carried_out,
                Features,
                without=_NOT_SERVED,
            )
            self._when_published = routes.own_view.applied
            closing.push_async_callback(routes.close)
            await parts.listen(partial(self._table, routes), closing)
            disks.serve(membership)
            async with asyncio.TaskGroup() as tasks:
                duties = [
                    tasks.create_task(duty)
                    for duty in (
                        fetchers.run(),
                        proposals.run(),
                        self._publish_more(),
                        self._open_for_clients(requests),
                        *parts.duties(),
                        *disks.duties(),
                    )
                ]
                stop = await membership.run(parts.advertised(), self.settings.rack)
                self._logger.info("stopping reason=%s", stop.reason)
                for duty in duties:
                    duty.cancel()
            await parts.close(shelf, plane.broker_epoch)
            return stop

    def stop(self) -> None:
        """Asks to be let go; the second time it goes at once."""
        self.membership.begin_shutdown()

    def _table(self, routes: BrokerRoutes, listener: str, wrap: Callable[[Route], Route]) -> RouteTable:
        """What the controller sends, and what it is asked, is answered before clients are. If it has a
        listener of its own, it uses that one alone."""
        assert self.requests is not None
        own = self._config["control.plane.listener.name"]
        of_controllers = self.requests.routes() if own in ("", listener) else []
        return routes.table(wrap, [*of_controllers, *self._plane.routes()])

    # The metadata

    def apply_pushed(self, records: Sequence[Record]) -> None:
        self._state.apply_records(records, self._host.wall_ms())

    async def read_configs(self, topics: Sequence[str]) -> None:
        await self._plane.read_topic_configs(topics)

    async def remove_leftover(self, topic: str, partition_id: int) -> None:
        assert self._shelf is not None
        await self._shelf.delete_leftover(topic, partition_id)

    async def pushed(self) -> None:
        await self._publish()

    async def _publish_more(self) -> None:
        """Tells of what came without a request."""
        assert self.requests is not None
        while True:
            await self._side.has_more.wait()
            self._side.has_more.clear()
            await self.requests.alone(self._publish)

    async def _publish(self) -> None:
        """Everyone who goes by the image looks at what has changed in it."""
        parts, image = self.parts, self._state.image
        touched, image.touched = image.touched, Touched()
        assert touched is not None
        assert parts.groups is not None
        assert parts.replicas is not None
        offset = self._state.position.offset - 1
        parts.groups.follow(image, touched)
        if touched.quotas:
            parts.quotas.update(image.quotas)
        if touched.configs:
            parts.configs.update(image)
            await parts.replicas.apply(self._configured(image, touched))
        if touched.brokers:
            parts.set_aside(image)
        self._carried_out = offset
        self._when_published()

    def _configured(self, image: ClusterImage, touched: Touched) -> Changes:
        of_us = (BROKER, str(self.settings.broker_id))
        return Changes(
            image,
            configured=sorted(name for kind, name in touched.configs if kind == TOPIC),
            is_configured_all=not touched.configs.isdisjoint({CLUSTER_DEFAULT, of_us}),
        )

    async def _open_for_clients(self, requests: ControllerRequests) -> None:
        await requests.has_metadata.wait()
        self.membership.is_served = True
        self.parts.open_for_clients()
        self._logger.info("serving epoch=%d controller=%d", self._plane.broker_epoch, requests.controller_id)

    # What others ask

    def why_not_ready(self) -> str | None:
        """What it waits for before it can be used; None if it can be."""
        state = self.membership.state
        if state is not State.RUNNING:
            return f"the broker is in state {state.name}"
        if self._controller_id() < 0:
            return "no controller is known"
        if self.settings.broker_id not in self._state.image.brokers:
            return "the controller does not know it yet"
        return None

    def status(self) -> BrokerStatus:
        state = self.membership.state
        offset = self._carried_out
        return BrokerStatus(
            broker_id=self.settings.broker_id,
            state=state.name,
            state_number=int(state),
            epoch=self._broker_epoch(),
            is_fenced=self.settings.broker_id not in self._state.image.brokers,
            incarnation_id=self.parts.incarnation_id,
            metadata_offset=offset,
            metadata_lag=self._state.position.offset - 1 - offset,
            metadata_lag_ms=max(0, self._host.wall_ms() - self._state.last_timestamp_ms),
        )

    def replica_counts(self) -> ReplicaCounts:
        return self.parts.replica_counts()

    def listeners(self) -> Sequence[Server]:
        return self.parts.servers

    @property
    def configs(self) -> DynamicConfig:
        return self.parts.configs

    def _broker_epoch(self) -> int:
        return self._plane.broker_epoch

    def _controller_id(self) -> int:
        return self._plane.controller_id

    def _is_eligible(self, broker_id: int, _epoch: int) -> bool:
        """Nobody tells brokers the epochs of the others: the controller compares them."""
        return broker_id in self._state.image.brokers


class _NoAssignments:
    """Nobody keeps in mind which disk a replica is on."""

    def note(self, *_: object, **__: object) -> None:
        pass
