"""Brokers that have a plane each, and otherwise only write down what a controller tells them."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sessions import SESSION_MS, until

from quorate.controller.settings import ControllerSettings
from quorate.metadata.brokers import Listener
from quorate.metadata.image import ClusterImage
from quorate.net.connections import Connections
from quorate.net.routes import Route, RouteTable
from quorate.net.server import Server
from quorate.protocol.api.topics import CreateTopicsRequest
from quorate.protocol.api.zookeeper_era import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from quorate.protocol.errors import ErrorCode
from quorate.zookeeper.plane import ZooKeeperPlane
from quorate.zookeeper.settings import ZooKeeperSettings


class Clerk:
    """A broker that notes what it is told. It is a `BrokerSide`."""

    def __init__(self, connect: str, broker_id: int = -1, **options) -> None:
        self.image = ClusterImage()
        self.records: list = []
        self.epochs: list[int] = []
        self.asked: list = []  # requests of controllers, in their order
        self.states: dict = {}  # what it was told to lead and to follow
        self.metadata: dict = {}
        self.brokers: set[int] = set()
        self.stopped: dict = {}
        self.controller_epoch = 0
        self.refused = 0
        self.cannot_delete = False
        self.lost: set = set()  # replicas on a disk that failed
        options.setdefault("session_timeout_ms", SESSION_MS)
        options.setdefault("controlled_shutdown_retry_backoff_ms", 50)
        self.plane = ZooKeeperPlane(
            ZooKeeperSettings(
                connect=connect,
                broker_id=broker_id,
                controller=ControllerSettings(default_replication_factor=1, num_partitions=1),
                **options,
            ),
            random=random.Random(broker_id),
            wall_ms=lambda: time.time_ns() // 1_000_000,
            connections=lambda: Connections(
                rng=random.Random(1), client_id=f"quorate-{broker_id}", connect_timeout_ms=1000
            ),
            broker=self,
        )
        self.server: Server | None = None
        self.running: asyncio.Task | None = None

    # BrokerSide

    def current_image(self) -> ClusterImage:
        return self.image

    def apply_records(self, records: Sequence) -> None:
        self.records += records
        for record in records:
            self.image.apply(record, 0)

    def epoch_changed(self, broker_epoch: int) -> None:
        self.epochs.append(broker_epoch)

    # Life

    async def start(self) -> "Clerk":
        await self.plane.connect(known_cluster_id=None, known_broker_id=None)
        routes = [
            Route(LeaderAndIsrRequest, self._lead_or_follow, versions=range(5, 8)),
            Route(UpdateMetadataRequest, self._know, versions=range(7, 9)),
            Route(StopReplicaRequest, self._stop, versions=range(3, 5)),
            *self.plane.routes(),
            Route(CreateTopicsRequest, self._forward),
        ]
        self.server = Server("PLAINTEXT", RouteTable(routes))
        await self.server.start("127.0.0.1", 0)
        await self.plane.register(
            [Listener("PLAINTEXT", "127.0.0.1", self.server.port)], rack=None, features={}
        )
        self.running = asyncio.get_running_loop().create_task(self.plane.run())
        return self

    async def stop(self) -> None:
        await self._end()
        await self.plane.stop()

    async def vanish(self) -> None:
        """As if it were killed: its session is left to time out."""
        await self._end()
        if self.plane.session is not None:
            await self.plane.session.abandon()
        await self.plane.stop()

    async def _end(self) -> None:
        if self.running is not None:
            self.running.cancel()
            await asyncio.wait([self.running])
        if self.server is not None:
            await self.server.close(timeout_ms=0)

    async def _forward(self, context, header, request):
        version = header.request_api_version
        return await self.plane.forward(request, version, context.principal, context.client_id)

    # What controllers say

    def _is_stale(self, request) -> bool:
        if request.controller_epoch < self.controller_epoch:
            self.refused += 1
            return True
        self.controller_epoch = request.controller_epoch
        self.asked.append(request)
        return False

    def _lead_or_follow(self, _context, _header, request):
        if self._is_stale(request):
            return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, topics=[])
        topics = []
        for topic in request.topic_states:
            for one in topic.partition_states:
                self.states[topic.topic_name, one.partition_index] = one
            topics.append(
                LeaderAndIsrResponse.TopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(
                            partition_index=one.partition_index,
                            error_code=ErrorCode.KAFKA_STORAGE_ERROR
                            if (topic.topic_name, one.partition_index) in self.lost
                            else 0,
                        )
                        for one in topic.partition_states
                    ],
                )
            )
        return LeaderAndIsrResponse(error_code=0, topics=topics)

    def _know(self, _context, _header, request):
        if self._is_stale(request):
            return UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.brokers = {one.id for one in request.live_brokers}
        if request.type == 2:  # it leaves nothing out
            self.metadata.clear()
        for topic in request.topic_states:
            for one in topic.partition_states:
                key = topic.topic_name, one.partition_index
                if one.leader == -2:
                    self.metadata.pop(key, None)
                else:
                    self.metadata[key] = one
        return UpdateMetadataResponse(error_code=0)

    def _stop(self, _context, _header, request):
        if self._is_stale(request):
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, partition_errors=[])
        errors = []
        for topic in request.topic_states:
            for one in topic.partition_states:
                self.stopped[topic.topic_name, one.partition_index] = one
                code = ErrorCode.KAFKA_STORAGE_ERROR if self.cannot_delete else 0
                errors.append(
                    StopReplicaResponse.PartitionError(
                        topic_name=topic.topic_name, partition_index=one.partition_index, error_code=code
                    )
                )
        return StopReplicaResponse(error_code=0, partition_errors=errors)


class Town:
    """Several of them, on one ZooKeeper."""

    def __init__(self, connect: str, **options) -> None:
        self.connect = connect
        self.options = options
        self.clerks: dict[int, Clerk] = {}

    async def add(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.clerks[broker_id] = await Clerk(self.connect, broker_id, **self.options).start()

    async def remove(self, broker_id: int) -> None:
        await self.clerks.pop(broker_id).stop()

    @property
    def controller(self) -> Clerk:
        return next(one for one in self.clerks.values() if one.plane.is_controller)

    async def until_controlled(self) -> Clerk:
        await until(lambda: any(one.plane.is_controller for one in self.clerks.values()))
        clerk = self.controller
        await until(lambda: clerk.plane._terms.own is None or clerk.plane._terms.own.is_loaded.is_set())
        return clerk

    @property
    def office(self):
        return self.controller.plane._terms.own.office

    @property
    def context(self):
        return self.office.context

    async def ask(self, request, version: int | None = None, via: int | None = None):
        """What a client of a broker gets; of any, if it does not say which."""
        clerk = self.clerks[via] if via is not None else next(iter(self.clerks.values()))
        version = max(type(request).__served__) if version is None else version
        return await clerk.plane.forward(request, version, "User:ANONYMOUS", "test")


@asynccontextmanager
async def town_at(connect: str, *broker_ids: int, **options) -> AsyncIterator[Town]:
    town = Town(connect, **options)
    try:
        await town.add(*broker_ids)
        await town.until_controlled()
        await until(lambda: all(one.brokers == set(broker_ids) for one in town.clerks.values()))
        yield town
    finally:
        for clerk in list(town.clerks.values()):
            await clerk.stop()
