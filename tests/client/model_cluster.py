"""A small cluster that follows Kafka's rules, and breaks connections and promises on demand.

The brokers are servers of ours with real protocol bytes; what they store is shared, plain and in memory, as
if every write were replicated at once. What goes wrong is decided by a script: the n-th produce request meets
the n-th misfortune, and after the last one all is well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from quorate.client.metadata import TopicPartition
from quorate.net.routes import NO_RESPONSE, Route, RouteTable
from quorate.net.server import Server
from quorate.protocol.api.produce_fetch import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)
from quorate.protocol.api.topics import MetadataRequest, MetadataResponse
from quorate.protocol.api.transactions import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.batch import read_header, records, stamp, validate_produced
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid

PORT = 9092
TOPIC = "t"
TOPIC_ID = Uuid(bytes(15) + b"\1")

silent = logging.Logger("model")
silent.addHandler(logging.NullHandler())


class Misfortune(Enum):
    """What can become of a produce request."""

    NONE = "it is carried out and answered"
    LOST = "the connection breaks before it is carried out"
    ANSWER_LOST = "it is carried out, and the connection breaks"
    SILENCE = "it is carried out, and never answered"
    MUTED = "it and those behind it are carried out, but for a while no answer gets through"
    MUTED_AND_FORGOTTEN = "the same, and then the broker remembers one batch per producer"
    LATE = "it is carried out long after the client has given up, and never answered"
    REFUSED = "it is refused for the moment"
    TIMED_OUT = "it is carried out, but the answer says that it took too long"
    MOVED = "another broker has become leader"
    FORGOTTEN = "the connection breaks, and the broker remembers one batch per producer, as after a restart"


class Broken(Exception):  # noqa: N818
    """Raised by a handler, this closes the connection."""


@dataclass(slots=True)
class Log:
    """One partition."""

    leader: int
    leader_epoch: int = 0
    batches: list[bytearray] = field(default_factory=list)
    end_offset: int = 0
    start_offset: int = 0
    # By producer id: epoch, first and last sequence number and offset of its last batches.
    producers: dict[int, deque[tuple[int, int, int, int]]] = field(default_factory=dict)
    watchers: list[asyncio.Event] = field(default_factory=list)

    def append(self, data: bytearray) -> tuple[ErrorCode, int]:
        """What a leader does with a batch: Kafka's rules for sequence numbers, to the letter."""
        header = validate_produced(data)
        assert len(records(data, header)) == header.record_count
        first, last = header.base_sequence, header.last_sequence
        if header.producer_id >= 0:
            known = self.producers.setdefault(header.producer_id, deque(maxlen=5))
            for epoch, known_first, known_last, offset in known:
                if (epoch, known_first, known_last) == (header.producer_epoch, first, last):
                    return ErrorCode.NONE, offset
            if known:
                epoch, _, known_last, _ = known[-1]
                if header.producer_epoch < epoch:
                    return ErrorCode.INVALID_PRODUCER_EPOCH, -1
                expected = 0 if header.producer_epoch > epoch else (known_last + 1) & 0x7FFFFFFF
                if first != expected:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.append((header.producer_epoch, first, last, self.end_offset))
        return ErrorCode.NONE, self.write(data)

    def write(self, data: bytearray) -> int:
        """Stores a batch. Its offset."""
        stamped = bytearray(data)
        stamp(stamped, 0, self.end_offset, self.leader_epoch)
        self.batches.append(stamped)
        self.end_offset = read_header(stamped).next_offset
        self.notify()
        return read_header(stamped).base_offset

    def notify(self) -> None:
        for watcher in self.watchers:
            watcher.set()
        self.watchers.clear()

    def truncate(self, offset: int) -> None:
        self.batches = [one for one in self.batches if read_header(one).last_offset < offset]
        self.end_offset = read_header(self.batches[-1]).next_offset if self.batches else 0

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The greatest known epoch up to this one, and where it ended."""
        known = [
            (header.partition_leader_epoch, header.next_offset)
            for header in map(read_header, self.batches)
            if header.partition_leader_epoch <= epoch
        ]
        return max(known, default=(-1, -1))

    def values(self) -> list[bytes | None]:
        return [record.value for one in self.batches for record in records(one, read_header(one))]


@dataclass(slots=True)
class Session:
    epoch: int = 1
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)


class ModelCluster:
    """What all brokers share: the partitions of one topic, and what is going to happen."""

    def __init__(self, brokers: int, partitions: int, script: list[Misfortune] | None = None) -> None:
        self.names = {number: f"b{number}" for number in range(1, brokers + 1)}
        self.ports = dict.fromkeys(self.names, PORT)
        self.alive = set(self.names)
        self.logs = {
            TopicPartition(TOPIC, index): Log(leader=1 + index % brokers) for index in range(partitions)
        }
        self.script = deque(script or [])
        self.batch_records_max = 1 << 30
        self.invalid: frozenset[bytes] = frozenset()
        self.forgets_on_restart = False
        # Cuts the way from a broker to the client, and calls something when it is healed.
        self.mute: Callable[[int, Callable[[], None]], None] = lambda _number, healed: healed()
        self._producer_ids = 1000
        self._session_ids = 0

    def log(self, partition: int = 0) -> Log:
        return self.logs[TopicPartition(TOPIC, partition)]

    def move(self, at: TopicPartition) -> None:
        """The next broker becomes leader."""
        log = self.logs[at]
        log.leader = log.leader % len(self.names) + 1
        log.leader_epoch += 1
        log.notify()

    def forget(self) -> None:
        for log in self.logs.values():
            for known in log.producers.values():
                while len(known) > 1:
                    known.popleft()

    async def serve(self, number: int, host: str | None = None) -> Server:
        """A broker that listens."""
        if self.forgets_on_restart:
            self.forget()
        broker = ModelBroker(self, number)
        server = Server("MODEL", RouteTable(broker.routes()), logger=silent)
        await server.start(host or self.names[number], self.ports[number])
        self.ports[number] = server.port
        return server

    def next_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    def next_session_id(self) -> int:
        self._session_ids += 1
        return self._session_ids


class ModelBroker:
    """One broker."""

    def __init__(self, cluster: ModelCluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self._sessions: dict[int, Session] = {}

    def routes(self) -> list[Route]:
        return [
            Route(MetadataRequest, self.metadata),
            Route(InitProducerIdRequest, self.init_producer_id),
            Route(ProduceRequest, self.produce),
            Route(FetchRequest, self.fetch, versions=range(4, 18)),
            Route(ListOffsetsRequest, self.list_offsets),
            Route(OffsetForLeaderEpochRequest, self.offset_for_leader_epoch),
        ]

    def metadata(self, _context, _header, request: MetadataRequest) -> MetadataResponse:
        cluster = self._cluster
        partitions = [
            MetadataResponse.Topic.Partition(
                error_code=0,
                partition_index=at.partition,
                leader_id=log.leader,
                leader_epoch=log.leader_epoch,
                replica_nodes=list(cluster.names),
                isr_nodes=list(cluster.names),
            )
            for at, log in cluster.logs.items()
        ]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=number, host=name, port=cluster.ports[number])
                for number, name in cluster.names.items()
            ],
            cluster_id="model",
            controller_id=1,
            topics=[
                MetadataResponse.Topic(error_code=0, name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)
                if topic.name == TOPIC
                else MetadataResponse.Topic(error_code=unknown, name=topic.name, partitions=[])
                for topic in request.topics or []
            ],
        )

    def init_producer_id(self, *_) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=self._cluster.next_producer_id(), producer_epoch=0
        )

    # Produce

    async def produce(self, _context, _header, request: ProduceRequest) -> ProduceResponse:
        cluster = self._cluster
        fortune = cluster.script.popleft() if cluster.script else Misfortune.NONE
        match fortune:
            case Misfortune.LOST:
                raise Broken
            case Misfortune.LATE:
                asyncio.get_running_loop().call_later(60, self._append_all, request)
                await asyncio.Event().wait()
            case Misfortune.REFUSED:
                return self._answer(request, ErrorCode.NOT_ENOUGH_REPLICAS)
            case Misfortune.MOVED:
                for topic in request.topic_data:
                    for one in topic.partition_data:
                        cluster.move(TopicPartition(TOPIC, one.index))
        answer = self._append_all(request)
        match fortune:
            case Misfortune.MUTED:
                cluster.mute(self._number, lambda: None)
            case Misfortune.MUTED_AND_FORGOTTEN:
                cluster.mute(self._number, cluster.forget)
            case Misfortune.ANSWER_LOST:
                raise Broken
            case Misfortune.FORGOTTEN:
                cluster.forget()
                raise Broken
            case Misfortune.SILENCE:
                await asyncio.Event().wait()
            case Misfortune.TIMED_OUT:
                return self._answer(request, ErrorCode.REQUEST_TIMED_OUT)
        return NO_RESPONSE if request.acks == 0 else answer

    def _append_all(self, request: ProduceRequest) -> ProduceResponse:
        def append(index: int, data: bytearray) -> tuple[ErrorCode, int]:
            log = self._cluster.logs.get(TopicPartition(TOPIC, index))
            if log is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
            if log.leader != self._number:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            found = records(data, read_header(data))
            if len(found) > self._cluster.batch_records_max:
                return ErrorCode.MESSAGE_TOO_LARGE, -1
            if any(record.value in self._cluster.invalid for record in found):
                return ErrorCode.INVALID_RECORD, -1
            return log.append(data)

        return self._answer(request, append)

    def _answer(self, request: ProduceRequest, how) -> ProduceResponse:
        kind = ProduceResponse.TopicProduceResponse
        responses = []
        for topic in request.topic_data:
            rows = []
            for one in topic.partition_data:
                data = bytearray(one.records)
                code, offset = how(one.index, data) if callable(how) else (how, -1)
                rows.append(
                    kind.PartitionProduceResponse(index=one.index, error_code=code, base_offset=offset)
                )
            responses.append(kind(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
        return ProduceResponse(responses=responses)

    # Fetch

    async def fetch(self, _context, _header, request: FetchRequest) -> FetchResponse:
        code, session_id, session = self._session(request)
        if code:
            return FetchResponse(error_code=code, responses=[])
        wanted = {
            TopicPartition(TOPIC, one.partition): (one.fetch_offset, one.current_leader_epoch)
            for topic in request.topics
            for one in topic.partitions
        }
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                del session.offsets[TopicPartition(TOPIC, index)]
        session.offsets |= wanted
        rows = self._rows(session)
        if not rows:
            await self._growth(session, request.max_wait_ms / 1000)
            rows = self._rows(session)
        topic = FetchResponse.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=rows)
        return FetchResponse(session_id=session_id, responses=[topic] if rows else [])

    def _session(self, request: FetchRequest) -> tuple[ErrorCode, int, Session]:
        if request.session_epoch > 0:
            known = self._sessions.get(request.session_id)
            if known is None:
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, Session()
            if request.session_epoch != known.epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, known
            known.epoch += 1
            return ErrorCode.NONE, request.session_id, known
        self._sessions.pop(request.session_id, None)
        if request.session_epoch < 0:
            return ErrorCode.NONE, 0, Session()
        session_id = self._cluster.next_session_id()
        session = self._sessions[session_id] = Session()
        return ErrorCode.NONE, session_id, session

    def _rows(self, session: Session) -> list:
        kind = FetchResponse.FetchableTopicResponse.PartitionData
        rows = []
        for at, (offset, epoch) in session.offsets.items():
            log, code, data = self._cluster.logs[at], ErrorCode.NONE, b""
            if epoch > log.leader_epoch:
                code = ErrorCode.UNKNOWN_LEADER_EPOCH
            elif epoch < log.leader_epoch:
                code = ErrorCode.FENCED_LEADER_EPOCH
            elif log.leader != self._number:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif not log.start_offset <= offset <= log.end_offset:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                kept = [one for one in log.batches if read_header(one).last_offset >= offset]
                # Two whole batches, and a piece of the next one.
                data = b"".join([*kept[:2], *(one[:70] for one in kept[2:3])])
            if code or data:
                end = -1 if code else log.end_offset
                rows.append(
                    kind(partition_index=at.partition, error_code=code, high_watermark=end, records=data)
                )
        return rows

    async def _growth(self, session: Session, seconds: float) -> None:
        event = asyncio.Event()
        for at in session.offsets:
            self._cluster.logs[at].watchers.append(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass

    # Offsets

    def list_offsets(self, _context, _header, request: ListOffsetsRequest) -> ListOffsetsResponse:
        kind = ListOffsetsResponse.TopicResponse

        def answer(one):
            log = self._cluster.logs[TopicPartition(TOPIC, one.partition_index)]
            code = ErrorCode.NONE if log.leader == self._number else ErrorCode.NOT_LEADER_OR_FOLLOWER
            offset = log.end_offset if one.timestamp == -1 else log.start_offset
            return kind.PartitionResponse(
                partition_index=one.partition_index,
                error_code=code,
                offset=-1 if code else offset,
                leader_epoch=log.leader_epoch,
            )

        return ListOffsetsResponse(
            topics=[
                kind(name=topic.name, partitions=[answer(one) for one in topic.partitions])
                for topic in request.topics
            ]
        )

    def offset_for_leader_epoch(
        self, _context, _header, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult

        def answer(one):
            log = self._cluster.logs[TopicPartition(TOPIC, one.partition)]
            code = ErrorCode.NONE if log.leader == self._number else ErrorCode.NOT_LEADER_OR_FOLLOWER
            epoch, end = log.end_of_epoch(one.leader_epoch)
            return kind.EpochEndOffset(
                error_code=code, partition=one.partition, leader_epoch=epoch, end_offset=end
            )

        return OffsetForLeaderEpochResponse(
            topics=[
                kind(topic=topic.topic, partitions=[answer(one) for one in topic.partitions])
                for topic in request.topics
            ]
        )
