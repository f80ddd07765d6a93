"""The metrics of a broker, under the names that Kafka's have where they are exported to Prometheus.

What is produced and consumed is counted by topic as it is answered, for so many topics; the total has all.
How replicas are doing is looked at when somebody asks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from quorate.broker.control_plane import ControlPlane, IsrAnswer
from quorate.broker.leadership import Proposal
from quorate.broker.partition import TopicPartition
from quorate.broker.replicas import Replicas
from quorate.broker.standing import Standings
from quorate.metadata.image import ClusterImage
from quorate.node.admin_view import BrokerView, ReplicaCounts
from quorate.node.request_times import Note
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Buffer, Uuid
from quorate.values import dataclass

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["BrokerMetrics", "CountedControlPlane", "IsrCounts", "Traffic", "count_replicas"]

TOPICS_MAX: Final = 1000  # that are counted by name
_RECORD_COUNT: Final = struct.Struct(">i")
_RECORD_COUNT_AT: Final = 57  # in the header of a batch
_BATCH_BYTES_MIN: Final = 61
_REPLICA_STATE_SINCE: Final = 15  # the version of Fetch in which followers say who they are elsewhere

_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_METADATA: Final = "kafka_server_broker_metadata_metrics_"
_SOCKETS: Final = "kafka_network_socketserver_"


class TopicTraffic:
    """What went through, in one topic or all."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0


class Traffic:
    """Counts what producers have appended, and what consumers were answered: `notes` are what does that."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self.total = TopicTraffic()
        self.replication_bytes_out = 0
        self.by_topic: dict[str, TopicTraffic] = {}
        self.notes: Mapping[type[Request], Note] = {
            FetchRequest: self.fetched,
        }

    def appended(self, topic: str, records: int, size_bytes: int) -> None:
        """What a producer has sent is in the log; whether it is committed is not known yet."""
        total, counts = self.total, self.by_topic.get(topic) or self._of(topic)
        total.messages_in += records
        total.bytes_in += size_bytes
        if counts is not None:
            counts.messages_in += records
            counts.bytes_in += size_bytes

    def fetched(self, header: RequestHeader, request: FetchRequest, answer: FetchResponse) -> None:
        """What consumers get; what followers get is another count."""
        if header.request_api_version < _REPLICA_STATE_SINCE:
            is_follower = request.replica_id >= 0
        else:
            is_follower = request.replica_state is not None and request.replica_state.replica_id >= 0
        for topic in answer.responses:
            size_bytes = 0
            for one in topic.partitions:
                records = cast("Buffer", one.records)
                if records is not None:
                    size_bytes += len(records)
            if not size_bytes:
                continue
            if is_follower:
                self.replication_bytes_out += size_bytes
                continue
            self.total.bytes_out += size_bytes
            counts = self._of(topic.topic or self._name_of(topic.topic_id))
            if counts is not None:
                counts.bytes_out += size_bytes

    def _name_of(self, topic_id: Uuid) -> str:
        topic = self._image().topics.by_id.get(topic_id)
        return "" if topic is None else topic.name

    def _of(self, topic: str) -> TopicTraffic | None:
        counts = self.by_topic.get(topic)
        if counts is None and topic and len(self.by_topic) < TOPICS_MAX:
            counts = self.by_topic[topic] = TopicTraffic()
        return counts

    def forget_deleted(self) -> None:
        """Topics that are no more make room for others."""
        names = self._image().topics.by_name
        for topic in [one for one in self.by_topic if one not in names]:
            del self.by_topic[topic]


# Replicas


def count_replicas(standings: Standings, image: ClusterImage, broker_id: int) -> ReplicaCounts:
    """How the replicas of a broker are, as they have counted themselves; and how many there should be, by the
    columns."""
    partitions = standings.count(lambda _: True)
    failed = standings.count(lambda one: one.is_failed)
    assigned = sum(len(rows.index) for rows in image.partitions.hosted_by(broker_id))
    return ReplicaCounts(
        partitions=partitions,
        led=standings.count(lambda one: one.is_led),
        offline=failed + max(0, assigned - partitions),
        under_replicated=standings.count(lambda one: one.is_under_replicated),
        under_min_isr=standings.count(lambda one: one.is_under_min_isr),
        at_min_isr=standings.count(lambda one: one.is_at_min_isr),
    )


@dataclass(slots=True)
class IsrCounts:
    """How often the controller has agreed to another ISR."""

    shrunk: int = 0
    expanded: int = 0
    failed: int = 0


class CountedControlPlane:
    """A `ControlPlane` that counts what becomes of proposals."""

    def __init__(self, inner: ControlPlane, replicas: Callable[[], Replicas], counts: IsrCounts) -> None:
        self._inner = inner
        self._replicas = replicas
        self._counts = counts

    async def propose(
        self, proposals: Sequence[tuple[TopicPartition, Proposal]]
    ) -> dict[TopicPartition, IsrAnswer] | ErrorCode:
        before = {key: self._in_sync(key) for key, _ in proposals}
        answers = await self._inner.propose(proposals)
        if not isinstance(answers, ErrorCode):
            for key, answer in answers.items():
                if answer.error is not ErrorCode.NONE:
                    self._counts.failed += 1
                elif before.get(key):
                    self._counts.shrunk += len(answer.isr) < before[key]
                    self._counts.expanded += len(answer.isr) > before[key]
        return answers

    def _in_sync(self, key: TopicPartition) -> int:
        partition = self._replicas().of_topic(key.topic_id, key.partition_id)
        return 0 if partition is None or partition.leading is None else len(partition.leading.isr)

    async def forward(self, request: Request, version: int, principal: str, client_id: str) -> Response:
        return await self._inner.forward(request, version, principal, client_id)

    async def allocate_producer_ids(self) -> range:
        return await self._inner.allocate_producer_ids()


# Asking


class BrokerMetrics:
    """A `metrics.Source`."""

    def __init__(self, view: BrokerView, traffic: Traffic, isr: IsrCounts) -> None:
        self._view = view
        self._traffic = traffic
        self._isr = isr

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        for name, about, value in (*self._state(), *self._replicas(), *self._memory()):
            yield GaugeMetricFamily(name, about, value)
        isr = self._isr
        for name, about, count in (
            ("isrshrinkspersec", "In-sync replicas that were dropped.", isr.shrunk),
            ("isrexpandspersec", "In-sync replicas that were added.", isr.expanded),
            ("failedisrupdatespersec", "Proposals of in-sync replicas that were refused.", isr.failed),
        ):
            yield CounterMetricFamily(_REPLICAS + name, about, count)
        yield from self._of_topics()
        yield from self._of_listeners()

    def _state(self) -> Iterator[tuple[str, str, float]]:
        status = self._view.status()
        yield "kafka_server_kafkaserver_brokerstate", "Kafka's number of its state.", status.state_number
        about = "The last offset of the metadata that was applied."
        yield _METADATA + "last_applied_record_offset", about, status.metadata_offset
        about = "How long ago the last record was appended that was applied."
        yield _METADATA + "last_applied_record_lag_ms", about, status.metadata_lag_ms

    def _replicas(self) -> Iterator[tuple[str, str, float]]:
        counts = self._view.replica_counts()
        yield _REPLICAS + "leadercount", "Partitions that this broker leads.", counts.led
        yield _REPLICAS + "partitioncount", "Replicas on this broker.", counts.partitions
        yield _REPLICAS + "offlinereplicacount", "Replicas whose disk has failed.", counts.offline
        about = "Led partitions with replicas that are not in sync."
        yield _REPLICAS + "underreplicatedpartitions", about, counts.under_replicated
        about = "Led partitions with fewer in sync than there must be."
        yield _REPLICAS + "underminisrpartitioncount", about, counts.under_min_isr
        about = "Led partitions with just as many in sync as there must be."
        yield _REPLICAS + "atminisrpartitioncount", about, counts.at_min_isr

    def _memory(self) -> Iterator[tuple[str, str, float]]:
        budget = self._view.budget
        yield _SOCKETS + "memorypoolused", "Bytes that connections hold together.", budget.used_bytes
        free_bytes = max(0, budget.limit_bytes - budget.used_bytes)
        yield _SOCKETS + "memorypoolavailable", "Bytes that they may hold besides.", free_bytes
        yield "quorate_memory_peak_bytes", "The most that they have held.", budget.peak_bytes
        yield "quorate_memory_waiting", "Connections that wait for memory.", budget.waiting
        yield "quorate_memory_shed", "Connections that were ended to make room.", budget.shed

    def _of_topics(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily

        traffic = self._traffic
        traffic.forget_deleted()
        topics = sorted(traffic.by_topic.items())
        for name, about, field in (
            ("messagesinpersec", "Records that were produced.", "messages_in"),
            ("bytesinpersec", "Bytes that were produced.", "bytes_in"),
            ("bytesoutpersec", "Bytes that were given to consumers.", "bytes_out"),
        ):
            family = CounterMetricFamily(_TOPICS + name, about + " Without a topic: of all.")
            family.add_sample(_TOPICS + name + "_total", {}, getattr(traffic.total, field))
            for topic, counts in topics:
                family.add_sample(_TOPICS + name + "_total", {"topic": topic}, getattr(counts, field))
            yield family
        about = "Bytes that were given to followers."
        yield CounterMetricFamily(_TOPICS + "replicationbytesoutpersec", about, traffic.replication_bytes_out)

    def _of_listeners(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        listeners = self._view.listeners()
        about = "Connections that are open."
        connections = GaugeMetricFamily(_SOCKETS + "connectioncount", about, labels=["listener"])
        for one in listeners:
            connections.add_metric([one.listener], one.connections)
        yield connections
        for name, about in (
            ("connections_accepted", "Connections that were accepted."),
            ("connections_refused", "Connections that were one too many."),
            ("connections_displaced", "Connections that were closed because another has their place."),
            ("connections_held_back", "Connections that came too fast, and were closed after a while."),
            ("connections_expired", "Connections on which nothing had moved for too long."),
            ("malformed", "Requests that made no sense, and ended their connection."),
            ("failed", "Requests that could not be answered, and ended their connection."),
        ):
            family = CounterMetricFamily(_SOCKETS + name, about, labels=["listener"])
            for one in listeners:
                family.add_metric([one.listener], getattr(one.counters, name))
            yield family
