"""Sends records, in batches, each of them once.

    async with Cluster("127.0.0.1:9092") as cluster, Producer(cluster) as producer:
        receipt = await producer.send("orders", b"one apple", key=b"customer-17")
        partition, offset = await receipt
        await producer.flush()

`send` returns as soon as the record has its place in a batch; it waits only while there is no room. What it
returns is a future: the partition and offset of the record, or the reason why it could not be delivered.
Until then batches are sent again as often as it takes. With the default settings (acks from all in-sync
replicas, and idempotence) nothing is lost, repeated or reordered in a partition by that; how, is in
`partition_queue`.

What ends a batch, and what ends the producer: an error of the records (too large, invalid, not authorised)
and the delivery timeout fail their batch. A broker that finds that the partition has lost acknowledged
records (OUT_OF_ORDER_SEQUENCE_NUMBER) fails the oldest batch, and the producer goes on under a new epoch.
Somebody who took over the producer's identity ends it: every record fails, and so does every later `send`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from types import TracebackType
from typing import Final, NamedTuple, cast

from quorate.client.cluster import ANY, Cluster
from quorate.client.errors import Unavailable, code_of
from quorate.client.metadata import Broker, Topic, TopicPartition
from quorate.client.partition_queue import Batch, Fate, Identity, PartitionQueue, record_size
from quorate.client.partitioner import StickyPartitioner, partition_for_key
from quorate.net.client import Connection
from quorate.net.connections import Backoff
from quorate.protocol.api.produce_fetch import ProduceRequest, ProduceResponse
from quorate.protocol.api.transactions import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.batch import HEADER_BYTES
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID
from quorate.values import dataclass

__all__ = ["ACKS_ALL", "Delivered", "Producer", "ProducerSettings"]

ACKS_ALL: Final = -1

_EPOCH_MAX: Final = 0x7FFF
# Timers may ring a moment early, and what they rang for must then be due.
_TIMER_SLACK: Final = 1e-6
# The last version that names topics; later ones know them by id only.
_LAST_VERSION_BY_NAME: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """What a producer promises, and how it trades delay for size."""

    # Whose acknowledgement counts: all in-sync replicas (-1), the leader alone (1), nobody's (0).
    acks: int = ACKS_ALL
    # Whether batches are numbered, so that none is written twice. Needs, and by default comes with, all acks.
    idempotent: bool | None = None
    codec: Codec = Codec.NONE
    # How long a batch waits for more records.
    linger_ms: float = 0
    batch_bytes_max: int = 256 * 1024
    # Of one request, and so of one record. Brokers take 1 MiB unless told otherwise.
    request_bytes_max: int = 1024 * 1024
    # Of all records that have no fate yet. `send` waits when there are more, but not for ever.
    buffer_bytes_max: int = 32 * 1024 * 1024
    room_timeout_ms: float = 60_000
    # Requests to one broker that are not answered; also batches of one partition.
    in_flight_max: int = 5
    request_timeout_ms: float = 30_000
    # From `send` to the last attempt.
    delivery_timeout_ms: float = 120_000
    backoff: Backoff = field(default_factory=lambda: Backoff(first_ms=100, max_ms=1000))

    def __post_init__(self) -> None:
        if self.acks not in (0, 1, ACKS_ALL):
            raise ValueError(f"acks is {self.acks}: expected 0, 1, or -1 for all in-sync replicas")
        if self.idempotent and self.acks != ACKS_ALL:
            raise ValueError(f"acks is {self.acks}: idempotence needs acks from all in-sync replicas, -1")
        if not 1 <= self.in_flight_max <= 5:
            raise ValueError(f"in_flight_max is {self.in_flight_max}: expected 1 to 5, as brokers remember 5")
        if self.batch_bytes_max > self.request_bytes_max:
            raise ValueError("batch_bytes_max is above request_bytes_max")

    @property
    def is_idempotent(self) -> bool:
        return self.acks == ACKS_ALL if self.idempotent is None else self.idempotent


class Delivered(NamedTuple):
    """Where a record is. The offset is -1 where no broker said it: with acks=0, and for some repetitions."""

    partition: int
    offset: int


class Producer:
    """Sends records to the leaders of their partitions. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings | None = None,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`wall_ms` gives records their timestamps, where `send` does not."""
        self.settings = ProducerSettings() if settings is None else settings
        self._cluster = cluster
        self._wall_ms = wall_ms
        self._connections = cluster.open_connections()
        self._unanswered: dict[int, Connection] = {}  # for acks=0, by broker
        self._unanswered_turn = asyncio.Lock()
        self._sticky = StickyPartitioner(cluster.random, self.settings.batch_bytes_max)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}  # those that have anything in them
        self._reasons: dict[TopicPartition, str] = {}  # why the last attempt failed
        self._requests: dict[int, int] = {}  # unanswered, by broker
        self._identity: Identity | None = None
        self._identifying: asyncio.Task[None] | None = None
        self._buffered_bytes = 0
        self._without_room: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._flushes = 0
        self._fatal: Exception | None = None
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(timeout_ms=0 if kind else None)

    # For everybody

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Delivered]:
        """Gives a record its place, and a future that says where that is."""
        self._check()
        size_bytes = record_size(key, value, headers)
        if size_bytes + HEADER_BYTES > self.settings.request_bytes_max:
            limit = self.settings.request_bytes_max
            reason = f"a record of up to {size_bytes} bytes for {topic!r}; request_bytes_max is {limit}"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, reason)
        known = self._cluster.metadata.topics.get(topic)
        if known is None:
            known = await self._cluster.topic(topic, timeout_ms=self.settings.room_timeout_ms)
        if partition is not None and partition not in known.partitions:
            there_are = f"{topic!r} has {len(known.partitions)} partitions, and no {partition}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, there_are)
        if self._without_room or self._buffered_bytes + size_bytes > self.settings.buffer_bytes_max:
            await self._room_for(size_bytes)
            self._check()
        else:
            self._buffered_bytes += size_bytes
        loop = asyncio.get_running_loop()
        receipt: asyncio.Future[Delivered] = loop.create_future()
        at = TopicPartition(topic, self._partition(known, key, partition, size_bytes))
        timestamp = self._wall_ms() if timestamp_ms is None else timestamp_ms
        queue = self._busy.get(at) or self._queue(at)
        if queue.append(receipt, timestamp, key, value, headers, size_bytes, loop.time()):
            self._wake.set()
        return receipt

    async def flush(self) -> None:
        """Waits until every record that was sent before has its fate, good or bad: ask their futures."""
        receipts = [
            receipt
            for queue in self._busy.values()
            for batch in queue.batches()
            for receipt in batch.receipts
            if not receipt.done()
        ]
        if not receipts:
            return
        self._flushes += 1
        self._wake.set()
        try:
            await asyncio.wait(receipts)
        finally:
            self._flushes -= 1

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Delivers what is left, and ends. What is not delivered in time fails with `Unavailable`."""
        timeout_ms = self.settings.delivery_timeout_ms if timeout_ms is None else timeout_ms
        if timeout_ms > 0 and self._fatal is None:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self.flush()
            except TimeoutError:
                pass  # what is left is told below
        self._end(Unavailable("the producer was closed before the record was delivered"))
        tasks = [one for one in (self._sender, self._identifying, *self._tasks) if one is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        for connection in self._unanswered.values():
            await connection.close()
        await self._cluster.close_connections(self._connections)

    # Room and place

    def _check(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    async def _room_for(self, size_bytes: int) -> None:
        """Returns when that many bytes are set aside."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = size_bytes, turn
        self._without_room.append(entry)
        has_room = False
        try:
            async with asyncio.timeout(self.settings.room_timeout_ms / 1000):
                await turn
            has_room = True
        except TimeoutError:
            full = f"{self._buffered_bytes} bytes have not been delivered"
            waited = f"waited {self.settings.room_timeout_ms:g} ms"
            raise Unavailable(f"no room for another record: {full}, {waited}") from None
        finally:
            if entry in self._without_room:
                self._without_room.remove(entry)
            if not has_room and turn.done() and not turn.cancelled() and turn.exception() is None:
                self._buffered_bytes -= size_bytes  # we went away at the moment when it was our turn
                self._give_room()

    def _give_room(self) -> None:
        """Sets room aside for those who wait, first come, first served."""
        while self._without_room:
            size_bytes, turn = self._without_room[0]
            if self._buffered_bytes + size_bytes > self.settings.buffer_bytes_max and self._buffered_bytes:
                return
            self._without_room.popleft()
            if not turn.done():
                self._buffered_bytes += size_bytes
                turn.set_result(None)

    def _partition(self, topic: Topic, key: bytes | None, wanted: int | None, size_bytes: int) -> int:
        if wanted is not None:
            return wanted
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        return self._sticky.partition(topic, size_bytes)

    def _queue(self, at: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(at)
        if queue is None:
            settings = self.settings
            queue = self._queues[at] = PartitionQueue(
                batch_bytes_max=settings.batch_bytes_max,
                linger=settings.linger_ms / 1000,
                in_flight_max=settings.in_flight_max,
                is_numbered=settings.is_idempotent,
            )
        self._busy[at] = queue
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_for_ever())
        return queue

    # The sender: one task that decides, and a task for every request

    async def _send_for_ever(self) -> None:
        try:
            while True:
                self._wake.clear()
                self._step()
                await self._wake.wait()
        except Exception as error:
            self._end(error)
            raise

    def _step(self) -> None:
        """Sends whatever can be sent now, and has itself woken when time alone makes a difference."""
        now = asyncio.get_running_loop().time() + _TIMER_SLACK
        to_send: dict[int, list[tuple[TopicPartition, PartitionQueue, Batch]]] = {}
        for at, queue in list(self._busy.items()):
            self._expire(at, queue, now)
            if not queue:
                del self._busy[at]
            elif queue.wants_identity:
                self._identify(queue)
            if not queue or queue.wants_identity or now < queue.retry_at:
                continue
            leader = self._cluster.metadata.leader(at)
            if leader is None:
                self._reasons[at] = "it has no leader"
                self._back_off(queue, now)
                self._cluster.refresh_soon()
            elif self._requests.get(leader.id, 0) < self.settings.in_flight_max:
                batch = queue.next(now, is_flushing=self._flushes > 0)
                if batch is not None:
                    to_send.setdefault(leader.id, []).append((at, queue, batch))
                    self._busy[at] = self._busy.pop(at)  # others come first next time
        for node, chosen in to_send.items():
            self._send(node, chosen)
        if to_send:
            self._wake.set()  # there may be more where that came from
        self._set_timer(now)

    def _send(self, node: int, chosen: list[tuple[TopicPartition, PartitionQueue, Batch]]) -> None:
        """Sends these batches in as few requests as their sizes allow."""
        loop = asyncio.get_running_loop()
        while chosen:
            together: list[tuple[TopicPartition, PartitionQueue, Batch]] = []
            size_bytes = 0
            while chosen and (not together or size_bytes < self.settings.request_bytes_max):
                _, queue, batch = chosen[0]
                data = batch.encode(self.settings.codec, queue.identity)
                size_bytes += len(data)
                if together and size_bytes > self.settings.request_bytes_max:
                    break
                together.append(chosen.pop(0))
            self._requests[node] = self._requests.get(node, 0) + 1
            task = loop.create_task(self._deliver(node, together))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, node: int, chosen: list[tuple[TopicPartition, PartitionQueue, Batch]]) -> None:
        """One request, and what becomes of its batches."""
        request, version_cap = self._request(chosen)
        try:
            broker = self._cluster.metadata.brokers.get(node)
            if broker is None:
                raise Unavailable(f"broker {node} is not there")
            if self.settings.acks == 0:
                async with self._unanswered_turn:
                    await self._send_unanswered(broker, request, version_cap)
                said = None
            else:
                said = cast(
                    "ProduceResponse",
                    await self._connections.request(
                        broker.address, request, version_cap, timeout_ms=self.settings.request_timeout_ms
                    ),
                )
        except (ConnectionError, ApiError) as error:
            self._not_answered(chosen, error)
        else:
            if said is None:
                for at, queue, batch in chosen:
                    self._settle(queue.succeeded(batch, -1), at)
            else:
                self._answered(chosen, said)
        finally:
            self._requests[node] -= 1
            self._wake.set()

    def _request(
        self, chosen: list[tuple[TopicPartition, PartitionQueue, Batch]]
    ) -> tuple[ProduceRequest, int | None]:
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        version_cap = None
        for at, _, batch in chosen:
            if at.topic not in topics:
                known = self._cluster.metadata.topics.get(at.topic)
                topic_id = ZERO_UUID if known is None else known.id
                if topic_id == ZERO_UUID:
                    version_cap = _LAST_VERSION_BY_NAME
                topics[at.topic] = ProduceRequest.TopicProduceData(
                    name=at.topic, topic_id=topic_id, partition_data=[]
                )
            topics[at.topic].partition_data.append(
                ProduceRequest.TopicProduceData.PartitionProduceData(index=at.partition, records=batch.data)
            )
        # The broker gives up before we do, so that we hear of it.
        timeout_ms = int(self.settings.request_timeout_ms * 3 / 4)
        request = ProduceRequest(
            acks=self.settings.acks, timeout_ms=timeout_ms, topic_data=list(topics.values())
        )
        return request, version_cap

    async def _send_unanswered(
        self, broker: Broker, request: ProduceRequest, version_cap: int | None
    ) -> None:
        """A broker that cannot do what it is asked with acks=0 closes the connection: then we look again."""
        connection = self._unanswered.get(broker.id)
        if connection is None or connection.is_lost or connection.address != broker.address:
            if connection is not None:
                del self._unanswered[broker.id]
                self._cluster.refresh_soon()
                await connection.close()
            settings = self._cluster.settings
            connection = self._unanswered[broker.id] = await Connection.connect(
                *broker.address,
                timeout_ms=settings.connect_timeout_ms,
                client_id=self._cluster.client_id,
                limits=settings.limits,
                tls=settings.tls,
            )
        version = connection.version_for(ProduceRequest, version_cap)
        await connection.send(request, version, timeout_ms=self.settings.request_timeout_ms)

    # Answers

    def _answered(
        self, chosen: list[tuple[TopicPartition, PartitionQueue, Batch]], said: ProduceResponse
    ) -> None:
        metadata = self._cluster.metadata
        endpoints = [Broker(one.node_id, one.host, one.port, one.rack) for one in said.node_endpoints]
        verdicts = {}
        for topic in said.responses:
            name = topic.name or metadata.name_of(topic.topic_id)
            for one in topic.partition_responses:
                verdicts[name, one.index] = one
        now = asyncio.get_running_loop().time()
        for at, queue, batch in chosen:
            verdict = verdicts.get(at)
            if verdict is None:
                self._try_again(at, queue, batch, now, "the answer says nothing about it")
                self._cluster.refresh_soon()
                continue
            code = code_of(verdict.error_code)
            if code is ErrorCode.NONE:
                self._reasons.pop(at, None)
                self._settle(queue.succeeded(batch, verdict.base_offset), at)
                continue
            details = [
                verdict.error_message,
                *(one.batch_index_error_message for one in verdict.record_errors),
            ]
            error = ApiError(code, f"{at}: {'; '.join(filter(None, details)) or 'refused by its leader'}")
            leader = verdict.current_leader
            is_news = leader is not None and metadata.learn_leader(
                at, leader.leader_id, leader.leader_epoch, endpoints
            )
            self._refused(at, queue, batch, now, error, is_news=is_news)

    def _refused(
        self,
        at: TopicPartition,
        queue: PartitionQueue,
        batch: Batch,
        now: float,
        error: ApiError,
        *,
        is_news: bool,
    ) -> None:
        match error.code:
            case ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._settle(queue.succeeded(batch, -1), at)
            case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode.UNKNOWN_PRODUCER_ID:
                self._settle(queue.refused(batch, error), at)
            case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
                self._settle(queue.too_large(batch, error), at)
            case ErrorCode.INVALID_PRODUCER_EPOCH | ErrorCode.PRODUCER_FENCED:
                self._end(
                    ApiError(error.code, f"somebody took over this producer's identity: {error.message}")
                )
            case _ if is_news:
                # Nothing to wait for: the leader is known.
                self._reasons[at] = str(error)
                self._settle(queue.to_be_retried(batch, now), at)
            case _ if error.code.retriable:
                self._try_again(at, queue, batch, now, str(error))
                self._cluster.refresh_soon()
            case _:
                self._settle(queue.failed(batch, error), at)

    def _not_answered(
        self, chosen: list[tuple[TopicPartition, PartitionQueue, Batch]], error: ConnectionError | ApiError
    ) -> None:
        now = asyncio.get_running_loop().time()
        may_pass = isinstance(error, ConnectionError) or error.code.retriable
        for at, queue, batch in chosen:
            if may_pass:
                self._try_again(at, queue, batch, now, str(error))
            else:
                self._settle(queue.failed(batch, error), at)
        self._cluster.refresh_soon()

    def _try_again(
        self, at: TopicPartition, queue: PartitionQueue, batch: Batch, now: float, reason: str
    ) -> None:
        self._reasons[at] = reason
        delay_ms = self.settings.backoff.delay_ms(queue.failures + 1, self._cluster.random)
        self._settle(queue.to_be_retried(batch, now + delay_ms / 1000), at)

    def _back_off(self, queue: PartitionQueue, now: float) -> None:
        queue.failures += 1
        queue.retry_at = now + self.settings.backoff.delay_ms(queue.failures, self._cluster.random) / 1000

    def _expire(self, at: TopicPartition, queue: PartitionQueue, now: float) -> None:
        oldest = queue.expires_first()
        patience = self.settings.delivery_timeout_ms / 1000
        if oldest is not None and oldest + patience <= now:
            reason = self._reasons.get(at, "it was never its turn")
            waited = f"not delivered in {self.settings.delivery_timeout_ms:g} ms"
            error = Unavailable(f"{at}: {waited}; the last attempt: {reason}")
            self._settle(queue.expire(now, patience, error), at)

    def _settle(self, fates: list[Fate], at: TopicPartition) -> None:
        """Tells everybody who waits."""
        for batch, base_offset, error in fates:
            self._buffered_bytes -= batch.size_bytes - HEADER_BYTES
            for index, receipt in enumerate(batch.receipts):
                if receipt.done():
                    continue  # who waited went away
                if error is not None:
                    receipt.set_exception(error)
                else:
                    offset = base_offset + index if base_offset >= 0 else -1
                    receipt.set_result(Delivered(at.partition, offset))
        if fates:
            self._give_room()

    # Identity

    def _identify(self, queue: PartitionQueue) -> None:
        """Gives a queue an identity that its partition has not seen, now or when there is one."""
        if self._identity is None:
            if self._identifying is None:
                self._identifying = asyncio.get_running_loop().create_task(self._ask_for_identity())
            return
        former = queue.former
        if former is not None and former.producer_id == self._identity.producer_id:
            # Other partitions keep their epochs: a broker compares them within a partition only.
            if self._identity.epoch <= former.epoch:
                self._identity = Identity(former.producer_id, former.epoch + 1)
            if self._identity.epoch > _EPOCH_MAX:
                self._identity = None
                self._identify(queue)
                return
        queue.identify(self._identity)
        self._wake.set()

    async def _ask_for_identity(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        try:
            said = cast("InitProducerIdResponse", await self._cluster.request(ANY, request))
        except ConnectionError as error:  # asked again as long as there is something to deliver
            if self._cluster.is_closed:
                self._end(error)
        except ApiError as error:
            if not error.code.retriable:
                self._end(ApiError(error.code, f"no producer id: {error.message}"))
        else:
            self._identity = Identity(said.producer_id, said.producer_epoch)
        self._identifying = None
        self._wake.set()

    # Time, and the end

    def _set_timer(self, now: float) -> None:
        delivery = self.settings.delivery_timeout_ms / 1000
        times = []
        for queue in self._busy.values():
            oldest = queue.expires_first()
            if oldest is not None:
                times.append(oldest + delivery)
            if queue.retry_at > now:
                times.append(queue.retry_at)
            elif queue.waiting and queue.ready_at() > now:
                times.append(queue.ready_at())
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if times:
            self._timer = asyncio.get_running_loop().call_at(max(min(times), now), self._wake.set)

    def _end(self, error: Exception) -> None:
        """Nothing is sent any more; everybody who waits hears why."""
        if self._fatal is None:
            self._fatal = error
        for at, queue in self._busy.items():
            self._settle(queue.drop_all(error), at)
        self._busy.clear()
        while self._without_room:
            _, turn = self._without_room.popleft()
            if not turn.done():
                turn.set_exception(self._fatal)
