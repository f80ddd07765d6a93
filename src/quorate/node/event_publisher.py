"""Copies the journal of a node to the topic `__cluster_events`, at least once.

A record is an event: its key is the id of the node, its value the journal's line. Who reads the topic takes
node, incarnation and sequence together for the identity of an event, and may meet it more than once.

The journal is what is true, and the topic a copy of it. How far that has got stands in the file
`events-published` beside the journal, which is written after the brokers have acknowledged; so whatever ends
in between is done again. What the journal had to give up before it could be copied is lost, and a line says
how much.

Nothing waits for this, and nothing of it is urgent: it takes a few events at a time, and whatever fails is
tried again for as long as the node runs. Who has no broker yet waits for one. The topic is created by whoever
needs it first; for a while that is put off as long as there are few brokers, because it will stay on as many
as there are then.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import field
from itertools import islice
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final

from quorate.broker.listeners import endpoint_of
from quorate.metadata.brokers import BrokerRegistration, Listener
from quorate.net.connections import Address, Backoff
from quorate.net.gate import Gate
from quorate.node.cluster_state import ClusterState
from quorate.node.event_journal import POSITION_NAME, EventJournal
from quorate.node.host import Host
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.errors import StorageError
from quorate.storage.whole_files import read_whole, store_whole
from quorate.values import dataclass

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from quorate.client.cluster import Cluster
    from quorate.client.producer import Producer

__all__ = ["TOPIC", "EventPublisher", "PublisherSettings"]

TOPIC: Final = "__cluster_events"
REPLICATION_FACTOR_MAX: Final = 3
_PLAINTEXT: Final = 0
_FAILURES_PER_LINE: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherSettings:
    # How often it looks whether there is anything new.
    interval_ms: float = 500
    # Events that are under way together.
    batch_max: int = 200
    # How long the topic is not created with fewer replicas than it should have.
    settle_ms: float = 30_000
    # For one batch, with all retries of the client.
    timeout_ms: float = 30_000
    backoff: Backoff = field(default_factory=lambda: Backoff(first_ms=500, max_ms=30_000))


class EventPublisher:
    """`run` lasts until it is cancelled. `listener` is the one of the brokers that it may use; if there is
    none of that name, the first that needs no credentials."""

    def __init__(
        self,
        host: Host,
        metadata_directory: str,
        node_id: int,
        journal: EventJournal,
        state: ClusterState,
        *,
        listener: str = "",
        settings: PublisherSettings | None = None,
        tls: SSLContext | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._host = host
        self._tls = tls
        self._gate = gate
        self._path = f"{metadata_directory}/{POSITION_NAME}"
        self._node_id = node_id
        self._journal = journal
        self._state = state
        self._listener = listener
        self._settings = PublisherSettings() if settings is None else settings
        self._logger = logging.getLogger(f"quorate.events.{host.name}")
        self._seen_brokers_at: float | None = None
        self.published = 0  # since the start
        # The sequence that comes next. A journal that lost its end in a power failure gives sequences again:
        # what it is about to write counts, and not what somebody else wrote there.
        self.next_sequence = min(self._stored(), journal.next_sequence)

    async def run(self) -> None:
        failures = 0
        while True:
            delay_ms = self._settings.interval_ms
            if self.has_news and self._addresses():
                try:
                    await self._publish()
                    failures = 0
                except (ApiError, OSError, StorageError) as error:
                    failures += 1
                    delay_ms = self._settings.backoff.delay_ms(failures, self._host.random)
                    self._log_failure(failures, delay_ms, error)
                except Exception:
                    failures += 1
                    delay_ms = self._settings.backoff.max_ms
                    self._logger.exception("events not published next=%d", self.next_sequence)
            await asyncio.sleep(delay_ms / 1000)

    @property
    def has_news(self) -> bool:
        return self._journal.next_sequence > self.next_sequence

    @property
    def waiting(self) -> int:
        """How many events have been written and not been published, as far as is known."""
        return max(0, self._journal.next_sequence - self.next_sequence)

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        yield CounterMetricFamily("quorate_events_published", f"Events copied to {TOPIC}.", self.published)
        about = f"Events that stand in the journal and not in {TOPIC}."
        yield GaugeMetricFamily("quorate_events_unpublished", about, self.waiting)

    # Where it was

    def _stored(self) -> int:
        """The sequence to go on with; the first, if nobody knows."""
        try:
            data = read_whole(self._host.files, self._path)
            return 0 if data is None else max(0, int(json.loads(data)["next_sequence"]))
        except (StorageError, ValueError, KeyError, TypeError) as error:
            self._logger.warning("all events are published again reason=%s", error)
            return 0

    async def _go_on_at(self, sequence: int) -> None:
        content = {"version": 1, "next_sequence": sequence}
        await store_whole(self._host.files, self._path, json.dumps(content).encode() + b"\n")
        self.next_sequence = sequence

    # Publishing

    async def _publish(self) -> None:
        """Copies what there is."""
        # The client is not what a node needs in order to start.
        from quorate.client.cluster import Cluster, ClusterSettings
        from quorate.client.producer import Producer, ProducerSettings

        timeout_ms = self._settings.timeout_ms
        async with Cluster(
            self._addresses(),
            random=self._host.random,
            client_id=f"quorate-events-{self._node_id}",
            settings=ClusterSettings(deadline_ms=timeout_ms, tls=self._tls, gate=self._gate),
        ) as cluster:
            if not await self._has_topic(cluster):
                return
            # One request at a time keeps the order; numbering would cost a producer id every time.
            settings = ProducerSettings(
                idempotent=False, in_flight_max=1, delivery_timeout_ms=timeout_ms, room_timeout_ms=timeout_ms
            )
            async with Producer(cluster, settings, wall_ms=self._host.wall_ms) as producer:
                while self.has_news:
                    await self._copy(producer)

    async def _copy(self, producer: Producer) -> None:
        """Sends what stands in the journal now, a batch after the other."""
        end = self._journal.next_sequence
        events = self._journal.read(self.next_sequence)
        while batch := list(islice(events, self._settings.batch_max)):
            self._note_gap(batch[0]["sequence"])
            await self._send(producer, batch)
            self.published += len(batch)
            await self._go_on_at(batch[-1]["sequence"] + 1)
        if self.next_sequence < end:  # the last lines cannot be read, or are gone
            self._note_gap(end)
            await self._go_on_at(end)

    async def _send(self, producer: Producer, batch: list[dict[str, Any]]) -> None:
        key = str(self._node_id).encode()
        receipts = [
            await producer.send(TOPIC, _value(event), key=key, timestamp_ms=_time_ms(event))
            for event in batch
        ]
        outcomes = await asyncio.gather(*receipts, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _note_gap(self, sequence: int) -> None:
        if sequence > self.next_sequence:
            self._logger.warning(
                "events lost before they were published from=%d count=%d",
                self.next_sequence,
                sequence - self.next_sequence,
            )

    def _log_failure(self, failures: int, delay_ms: float, error: Exception) -> None:
        self._logger.log(
            logging.WARNING if failures % _FAILURES_PER_LINE == 1 else logging.DEBUG,
            "events not published next=%d waiting=%d retry_ms=%d reason=%s",
            self.next_sequence,
            self.waiting,
            delay_ms,
            error,
        )

    # The topic and the brokers

    async def _has_topic(self, cluster: Cluster) -> bool:
        """Whether there is the topic; creates it, unless there is reason to wait."""
        from quorate.client.admin import Admin, NewTopic

        if TOPIC in self._state.image.topics.by_name:
            return True
        # Fenced brokers count: replicas may be placed on them, and they will be back.
        brokers = len(self._state.image.brokers)
        if brokers < REPLICATION_FACTOR_MAX and not self._has_settled():
            return False
        replicas = min(REPLICATION_FACTOR_MAX, brokers)
        try:
            await Admin(cluster).create_topics(NewTopic(TOPIC, partitions=1, replication_factor=replicas))
            self._logger.info("topic created name=%s replicas=%d", TOPIC, replicas)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await cluster.topic(TOPIC)
        return True

    def _has_settled(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._seen_brokers_at is None:
            self._seen_brokers_at = now
        return (now - self._seen_brokers_at) * 1000 >= self._settings.settle_ms

    def _addresses(self) -> list[Address]:
        """Where the brokers are that serve."""
        return list(self._find_addresses())

    def _find_addresses(self) -> Iterator[Address]:
        brokers = self._state.image.brokers
        for broker_id in sorted(brokers):
            if brokers[broker_id].is_active:
                endpoint = self._endpoint(brokers[broker_id])
                if endpoint is not None:
                    yield endpoint.host, endpoint.port

    def _endpoint(self, broker: BrokerRegistration) -> Listener | None:
        named = endpoint_of(broker, self._listener) if self._listener else None
        if named is not None or self._tls is not None:
            return named
        return next((one for one in broker.listeners if one.security_protocol == _PLAINTEXT), None)


def _value(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def _time_ms(event: dict[str, Any]) -> int | None:
    time_ms = event.get("time_ms")
    return time_ms if isinstance(time_ms, int) and time_ms >= 0 else None
