"""The metrics of a node, under the names that Kafka's have where they are exported to Prometheus.

Those of a controller are here; a broker adds its own (`broker_metrics`), and its requests are measured by
`request_times`. What happens is counted in plain numbers, because that is on the way of every request; what
can be read from the image of the cluster is read when somebody asks. prometheus-client puts both into words.
It takes longer to import than a node to start listening, so it is imported by the first who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from quorate.controller.events import DecisionFailed, Event, HeartbeatTimedOut, RequestTimedOut
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import NO_LEADER
from quorate.node.admin_view import AdminView
from quorate.node.request_times import BOUNDS_MS, Durations, RequestMeters
from quorate.protocol.message import Request
from quorate.values import dataclass

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["BOUNDS_MS", "Durations", "NodeMetrics", "PartitionCounts", "Source", "count_partitions"]

_KINDS_MAX: Final = 500  # of events and checks; what comes after is counted together

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_MANAGER: Final = "kafka_controller_controllereventmanager_"


class Source(Protocol):
    """Who has more to tell, when one asks."""

    def collect(self) -> Iterator[Metric]: ...


class NodeMetrics:
    """The metrics of one node. Call `saw`, `requested` and `handled`, and add to the counts.

    `clock` is what requests are measured by, in seconds; the loop's own time, if not given.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.queue_ms = Durations()
        self.processing_ms = Durations()
        self.new_active_controllers = 0  # how often somebody was seen to become the leader
        self.metadata_errors = 0  # decisions that failed; what is wrong with the log itself ends the node
        self.operations_started = 0
        self.operations_timed_out = 0
        self.heartbeats_timed_out = 0
        self.unclean_elections = 0
        self.requests: dict[type[Request], int] = {}  # of a controller
        self.meters = RequestMeters(clock)  # of a broker
        self.sources: list[Source] = []
        self.events: dict[tuple[str, str], int] = {}  # by kind and check
        self._registry: CollectorRegistry | None = None

    # Counting

    def saw(self, event: Event) -> None:
        key = event.kind, str(getattr(event, "check", ""))
        if key not in self.events and len(self.events) >= _KINDS_MAX:
            key = event.kind, "other"
        self.events[key] = self.events.get(key, 0) + 1
        self.heartbeats_timed_out += isinstance(event, HeartbeatTimedOut)
        self.operations_timed_out += isinstance(event, HeartbeatTimedOut | RequestTimedOut)
        self.metadata_errors += isinstance(event, DecisionFailed)
        self.unclean_elections += getattr(event, "unclean", 0)

    def requested(self, request: type[Request]) -> None:
        self.requests[request] = self.requests.get(request, 0) + 1

    def handled(self, waited_ms: float, took_ms: float) -> None:
        """The controller decided something, which had waited in its queue before."""
        self.operations_started += 1
        self.queue_ms.observe(waited_ms)
        self.processing_ms.observe(took_ms)

    # Asking

    def scrape(self, view: AdminView | None) -> tuple[bytes, str]:
        """All metrics of now, in Prometheus' text format, and the content type of that. The view is that of
        a controller, if the node is one."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry()
            self._registry.register(_Collector(self, view))
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    partitions: int = 0
    offline: int = 0
    not_preferred: int = 0  # led by another than the first replica, or by nobody


def count_partitions(image: ClusterImage) -> PartitionCounts:
    """Counts, in one scan over the columns."""
    partitions = offline = not_preferred = 0
    for block in image.partitions.blocks.values():
        leader = block.leader[: block.end]
        is_used = block.topic[: block.end] >= 0
        partitions += int(is_used.sum())
        offline += int((leader == NO_LEADER).sum())
        not_preferred += int((is_used & (leader != block.replicas[: block.end, 0])).sum())
    return PartitionCounts(partitions, offline, not_preferred)


class _Collector:
    """What prometheus-client asks for the metrics."""

    def __init__(self, metrics: NodeMetrics, view: AdminView | None) -> None:
        self._metrics = metrics
        self._view = view

    def describe(self) -> list[Metric]:
        return []  # so that registering does not ask for everything

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        view = self._view
        if view is not None:
            for name, about, value in (*self._of_cluster(view), *self._of_node(view)):
                yield GaugeMetricFamily(_CONTROLLER + name, about, value)
            yield self._silences(view)
            yield from self._durations()
        yield from self._counters()
        yield from self._metrics.meters.collect()
        for source in self._metrics.sources:
            yield from source.collect()

    def _of_cluster(self, view: AdminView) -> Iterator[tuple[str, str, float]]:
        image = view.image
        counts = count_partitions(image)
        fenced = sum(broker.is_fenced for broker in image.brokers.values())
        yield "fencedbrokercount", "Brokers that are fenced.", fenced
        yield "activebrokercount", "Brokers that are not fenced.", len(image.brokers) - fenced
        yield "globaltopiccount", "Topics.", len(image.topics)
        yield "globalpartitioncount", "Partitions.", counts.partitions
        yield "offlinepartitionscount", "Partitions without a leader.", counts.offline
        about = "Partitions that are not led by their first replica."
        yield "preferredreplicaimbalancecount", about, counts.not_preferred

    def _of_node(self, view: AdminView) -> Iterator[tuple[str, str, float]]:
        metrics = self._metrics
        is_active = view.active is not None
        lag_ms = 0 if is_active else max(0, view.wall_ms() - view.applied_timestamp_ms)
        yield "activecontrollercount", "1 on the active controller, 0 on the others.", int(is_active)
        yield "lastappliedrecordoffset", "The last offset in the image of this node.", view.applied_offset
        yield "lastappliedrecordtimestamp", "When that was appended, in ms.", view.applied_timestamp_ms
        yield "lastappliedrecordlagms", "How long ago that is; 0 on the active controller.", lag_ms
        committed = max(-1, view.quorum().high_watermark - 1)
        yield "lastcommittedrecordoffset", "The last offset known to be committed.", committed
        yield "metadataerrorcount", "Decisions that failed unexpectedly.", metrics.metadata_errors
        about = "Heartbeats that waited too long to be looked at."
        yield "timedoutbrokerheartbeatcount", about, metrics.heartbeats_timed_out
        yield "eventqueueoperationsstartedcount", "Requests decided.", metrics.operations_started
        about = "Requests that waited too long to be decided."
        yield "eventqueueoperationstimedoutcount", about, metrics.operations_timed_out
        about = "How often a controller was seen to become active."
        yield "newactivecontrollerscount", about, metrics.new_active_controllers

    def _silences(self, view: AdminView) -> Metric:
        from prometheus_client.metrics_core import GaugeMetricFamily

        name = _CONTROLLER + "timesincelastheartbeatreceivedms"
        about = "How long ago a broker was heard of; known to the active controller."
        found = GaugeMetricFamily(name, about, labels=["broker"])
        active, now_ms = view.active, view.now_ms()
        if active is not None:
            for broker_id in sorted(active.image.brokers):
                session = active.sessions.of(broker_id)
                silent_ms = None if session is None else session.ms_since_contact(now_ms)
                if silent_ms is not None:
                    found.add_metric([str(broker_id)], silent_ms)
        return found

    def _durations(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import HistogramMetricFamily

        for name, about, durations in (
            ("eventqueuetimems", "How long requests waited to be decided.", self._metrics.queue_ms),
            ("eventqueueprocessingtimems", "How long it took to decide.", self._metrics.processing_ms),
        ):
            yield HistogramMetricFamily(
                _MANAGER + name, about, buckets=durations.buckets(), sum_value=durations.total_ms
            )

    def _counters(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily

        metrics = self._metrics
        if self._view is not None:
            yield CounterMetricFamily(
                "kafka_controller_controllerstats_uncleanleaderelectionspersec",
                "Leaders elected that may lack records.",
                metrics.unclean_elections,
            )
        name = "kafka_network_requestmetrics_requestspersec"
        requests = CounterMetricFamily(name, "Requests received; by a controller, if there is no version.")
        for cls, count in sorted(metrics.requests.items(), key=lambda item: item[0].__name__):
            requests.add_sample(f"{name}_total", {"request": cls.__name__.removesuffix("Request")}, count)
        for labels, count in metrics.meters.counted():
            requests.add_sample(f"{name}_total", labels, count)
        yield requests
        events = CounterMetricFamily("quorate_events", "Events, by what decided.", labels=["kind", "check"])
        for key, count in sorted(metrics.events.items()):
            events.add_metric(key, count)
        yield events
