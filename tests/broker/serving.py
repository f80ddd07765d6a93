"""A broker in this process, over real files and without a network. Its cluster is what a test says it is."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from quorate.broker.admission import admit, admit_by_header
from quorate.broker.control_plane import Assignment, Changes, IsrAnswer
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.handlers.fetch import FetchHandler
from quorate.broker.handlers.offsets import ListOffsetsHandler, OffsetForLeaderEpochHandler
from quorate.broker.handlers.produce import ProduceHandler
from quorate.broker.handlers.producer_ids import InitProducerIdHandler
from quorate.broker.isr_proposals import IsrProposals
from quorate.broker.leadership import Proposal
from quorate.broker.partition import Partition, Surroundings, TopicPartition
from quorate.broker.replicas import Replicas
from quorate.broker.serving import Broker
from quorate.broker.settings import BrokerSettings
from quorate.metadata import records as r
from quorate.metadata.image import TOPIC, ClusterImage
from quorate.net.eventual import pending
from quorate.net.routes import NO_RESPONSE, RequestContext
from quorate.protocol.api.produce_fetch import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from quorate.protocol.api.transactions import InitProducerIdRequest
from quorate.protocol.batch import Record, batches, build, records
from quorate.protocol.frame import (
    decode_request,
    decode_response,
    encode_request,
    encode_response_parts,
)
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid
from quorate.storage.file_ranges import FileRange
from quorate.storage.files import RealFiles
from quorate.storage.partition_log import PartitionLog

BROKER_ID = 1
LISTENER = "PLAINTEXT"
SECONDS_MAX = 30
START_MS = 1_700_000_000_000


def in_loop(scenario: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Makes a test of a coroutine function: runs it with a deadline, and fails if the loop saw an error."""

    @functools.wraps(scenario)
    def test(*args: Any, **values: Any) -> None:
        reached_the_loop: list[Any] = []

        async def run() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: reached_the_loop.append(context))
            async with asyncio.timeout(SECONDS_MAX):
                await scenario(*args, **values)

        asyncio.run(run())
        assert reached_the_loop == []

    return test


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b".")[:16])


class Shelf:
    """Logs in one directory, with no memory beyond their files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: list[PartitionLog] = []
        self.failed: list[PartitionLog] = []

    async def open_log(self, key: TopicPartition, config: Any, _directory_id: Uuid) -> PartitionLog:
        directory = str(self._directory / str(key))
        log = await PartitionLog.open(
            RealFiles(), directory, config.log, topic_id=key.topic_id, now_ms=START_MS, recovery_point=0
        )
        self._open.append(log)
        return log

    async def delete_log(self, _key: TopicPartition, log: PartitionLog) -> None:
        self._open.remove(log)
        log.abandon()

    def close(self) -> None:
        for log in self._open:
            log.abandon()

    def high_watermark_of(self, _key: TopicPartition) -> int:
        return 0

    def path_holding(self, _key: TopicPartition) -> str:
        return ""

    async def save(self, _partitions: Sequence[Partition]) -> None:
        pass

    def fail(self, log: PartitionLog, _error: Exception) -> None:
        self.failed.append(log)


class NoFetchers:
    """Nobody is followed."""

    def follow(self, _partition: Partition) -> None:
        pass

    forget = follow


class ControlPlane:
    """Remembers what it was asked. Blocks of producer ids are given as the test allows."""

    def __init__(self) -> None:
        self.proposed: list[tuple[TopicPartition, Proposal]] = []
        self.blocks: list[range | Exception] = []
        self.may_allocate = asyncio.Event()
        self.may_allocate.set()
        self.allocations = 0

    async def propose(
        self, proposals: Sequence[tuple[TopicPartition, Proposal]]
    ) -> dict[TopicPartition, IsrAnswer]:
        self.proposed += proposals
        return {}

    async def forward(self, *_: Any) -> Response:
        raise NotImplementedError

    async def allocate_producer_ids(self) -> range:
        self.allocations += 1
        await self.may_allocate.wait()
        block = self.blocks.pop(0)
        if isinstance(block, Exception):
            raise block
        return block


class Proposals(IsrProposals):
    """Proposals that stay here."""

    def __init__(self) -> None:
        self.added: list[tuple[Partition, Proposal]] = []

    def add(self, partition: Partition, proposal: Proposal) -> None:
        self.added.append((partition, proposal))


class Serving:
    """The broker, its handlers, and the cluster around it: brokers 1, 2 and 3."""

    def __init__(self, directory: Path, *, scans_records: bool = True, **settings: Any) -> None:
        self.image = ClusterImage()
        self.now_ms = 0.0
        self.wall_ms = START_MS
        self.producer_expiration_ms = 86_400_000
        self.shelf = Shelf(directory)
        self.control_plane = ControlPlane()
        self.proposals = Proposals()
        self.denied: set[tuple[int, str]] = set()
        self._offset = 0
        for broker_id in (1, 2, 3):
            self.register(broker_id, epoch=100 + broker_id)
        given = BrokerSettings(broker_id=BROKER_ID, cluster_id="c", **settings)
        around = Surroundings(
            broker_id=BROKER_ID,
            lag_ms_max=given.replica_lag_time_max_ms,
            now_ms=lambda: self.now_ms,
            wall_ms=lambda: self.wall_ms,
            is_eligible=self._is_eligible,
            admit=admit if scans_records else admit_by_header,
            producer_expiration_ms=lambda: self.producer_expiration_ms,
        )
        self.replicas = Replicas(given, around, self.shelf, NoFetchers(), self.proposals)  # type: ignore[arg-type]
        self.broker = _Judged(
            settings=given,
            configs=DynamicConfig(BROKER_ID),
            replicas=self.replicas,
            proposals=self.proposals,
            control_plane=self.control_plane,
            random=Random(1),
            now_ms=lambda: self.now_ms,
            wall_ms=lambda: self.wall_ms,
            current_image=lambda: self.image,
            broker_epoch=lambda: 101,
        )
        self.broker.denied = self.denied
        self.fetch_handler = FetchHandler(self.broker)
        self.id_handler = InitProducerIdHandler(self.broker)
        self.handlers: dict[type[Request], Any] = {
            ProduceRequest: ProduceHandler(self.broker),
            FetchRequest: self.fetch_handler,
            ListOffsetsRequest: ListOffsetsHandler(self.broker),
            OffsetForLeaderEpochRequest: OffsetForLeaderEpochHandler(self.broker),
            InitProducerIdRequest: self.id_handler,
        }

    def _is_eligible(self, broker_id: int, epoch: int) -> bool:
        registration = self.image.brokers.get(broker_id)
        return registration is not None and registration.is_active and epoch in (-1, registration.epoch)

    # The cluster

    def apply(self, record: Any) -> None:
        self.image.apply(record, self._offset)
        self._offset += 1

    def register(self, broker_id: int, *, epoch: int) -> None:
        endpoint = r.RegisterBrokerRecord.BrokerEndpoint(
            name=LISTENER, host=f"host-{broker_id}", port=9000 + broker_id, security_protocol=0
        )
        self.apply(
            r.RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=topic_id(f"run-{epoch}"),
                broker_epoch=epoch,
                end_points=[endpoint],
                features=[],
                rack=None,
                fenced=False,
                log_dirs=[topic_id("directory")],
            )
        )

    async def topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: Sequence[int] = (BROKER_ID,),
        isr: Sequence[int] | None = None,
        leader: int = BROKER_ID,
        leader_epoch: int = 0,
        **configs: Any,
    ) -> Partition | None:
        """A new topic. Its first partition, if we have a replica of it."""
        self.apply(r.TopicRecord(name=name, topic_id=topic_id(name)))
        for key, value in configs.items():
            self.apply(
                r.ConfigRecord(
                    resource_type=TOPIC, resource_name=name, name=key.replace("_", "."), value=str(value)
                )
            )
        for partition_id in range(partitions):
            await self.assign(
                name, partition_id, replicas=replicas, isr=isr, leader=leader, leader_epoch=leader_epoch
            )
        return self.replicas.named(name, 0)

    async def assign(
        self,
        name: str,
        partition_id: int = 0,
        *,
        replicas: Sequence[int] = (BROKER_ID,),
        isr: Sequence[int] | None = None,
        leader: int = BROKER_ID,
        leader_epoch: int = 0,
        partition_epoch: int | None = None,
    ) -> None:
        """What the cluster says of a partition from now on."""
        self.apply(
            r.PartitionRecord(
                partition_id=partition_id,
                topic_id=topic_id(name),
                replicas=list(replicas),
                isr=list(replicas if isr is None else isr),
                removing_replicas=[],
                adding_replicas=[],
                leader=leader,
                leader_epoch=leader_epoch,
                partition_epoch=leader_epoch if partition_epoch is None else partition_epoch,
            )
        )
        state = self.image.partition(topic_id(name), partition_id)
        assert state is not None
        if BROKER_ID in replicas:
            key = TopicPartition(name, topic_id(name), partition_id)
            await self.replicas.apply(Changes(self.image, [Assignment(key, state)]))

    def partition(self, name: str, partition_id: int = 0) -> Partition:
        found = self.replicas.named(name, partition_id)
        assert found is not None
        return found

    # Requests

    def begin(self, request: Request, version: int, client_id: str = "test") -> Any:
        """Hands a request over as it comes off a wire. The answer, or the task that will have it."""
        data = encode_request(request, version, 1, client_id)
        header, decoded = decode_request(data, 4)
        context = RequestContext(LISTENER, "127.0.0.1", 4711, client_id)
        answer = self.handlers[type(request)](context, header, decoded)
        return pending(answer) if inspect.isawaitable(answer) else answer

    def park(self, request: Request, version: int) -> Any:
        """A request that has to wait."""
        answer = self.begin(request, version)
        assert inspect.isawaitable(answer), f"answered at once: {answer}"
        return answer

    async def ask(self, request: Request, version: int, client_id: str = "test") -> Any:
        """The answer as it comes off a wire."""
        answer = self.begin(request, version, client_id)
        return _wired(await answer if inspect.isawaitable(answer) else answer, version)

    async def close(self) -> None:
        await self.replicas.close()
        self.shelf.close()


class _Judged(Broker):
    """A broker that allows everything but what a test forbids."""

    denied: set[tuple[int, str]]

    def authorize(self, _context: RequestContext, operation: int, _kind: int, name: str) -> bool:
        return (operation, name) not in self.denied


def _wired(answer: Any, version: int) -> Any:
    """An answer as it is read from a wire, its file ranges included."""
    if answer is NO_RESPONSE:
        return answer
    parts = encode_response_parts(answer, version, 1)
    data = b"".join(part.read() if isinstance(part, FileRange) else bytes(part) for part in parts)  # type: ignore
    _, decoded = decode_response(answer.__key__, version, memoryview(data)[4:])
    return decoded


async def turns(count: int = 5) -> None:
    """Lets everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


# Batches


def a_batch(
    count: int = 1,
    *,
    timestamp: int = START_MS,
    key: bytes | None = b"k",
    value_bytes: int = 10,
    timestamps: Sequence[int] | None = None,
    **about: Any,
) -> bytearray:
    """What a producer sends."""
    times = timestamps or [timestamp + index for index in range(count)]
    made = [
        Record(index, time, key, str(index).encode().ljust(value_bytes, b"."))
        for index, time in enumerate(times)
    ]
    return build(made, **about)


def offsets_in(data: Any) -> list[int]:
    """The offsets of the records of a fetch."""
    data = data.read() if isinstance(data, FileRange) else data
    return [record.offset for header in batches(data) for record in records(data, header)]


# Requests


def produce(
    *batches_of: tuple[str, int, Any],
    acks: int = 1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A request of (topic, partition, records)."""
    topics: dict[str, list[Any]] = {}
    for topic, partition_id, data in batches_of:
        topics.setdefault(topic, []).append(
            ProduceRequest.TopicProduceData.PartitionProduceData(index=partition_id, records=data)
        )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id(topic), partition_data=parts)
            for topic, parts in topics.items()
        ],
    )


def wanted(
    topic: str, partition_id: int = 0, offset: int = 0, *, max_bytes: int = 1 << 20, **about: int
) -> tuple[str, FetchRequest.Topic.Partition]:
    return topic, FetchRequest.Topic.Partition(
        partition=partition_id, fetch_offset=offset, partition_max_bytes=max_bytes, **about
    )


def fetch(
    *partitions: tuple[str, FetchRequest.Topic.Partition],
    version: int,
    replica_id: int = -1,
    broker_epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    forget: Sequence[tuple[str, int]] = (),
) -> FetchRequest:
    topics: list[FetchRequest.Topic] = []
    for topic, partition in partitions:
        if not topics or topics[-1].topic != topic:
            topics.append(FetchRequest.Topic(topic=topic, topic_id=topic_id(topic), partitions=[]))
        topics[-1].partitions.append(partition)
    state = FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch)
    return FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=state if version >= 15 else None,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id(topic), partitions=[partition_id])
            for topic, partition_id in forget
        ],
    )
