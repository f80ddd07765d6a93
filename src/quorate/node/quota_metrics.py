"""What quotas and replication throttles have done: how often, for how long, and who is near to his quota."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from quorate.broker.quotas import Quotas
from quorate.broker.throttled_replication import ReplicationThrottle

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["QuotaMetrics"]

CLIENTS_MAX: Final = 1000  # of a kind, that are shown by name
_SERVER: Final = "kafka_server_"


class QuotaMetrics:
    """A `metrics.Source`."""

    def __init__(
        self, quotas: Quotas, throttles: Mapping[str, ReplicationThrottle], now_ms: Callable[[], float]
    ) -> None:
        """`throttles` are those of replication, by the side that they are on."""
        self._quotas = quotas
        self._throttles = throttles
        self._now_ms = now_ms

    def collect(self) -> Iterator[Metric]:
        yield from self._of_kinds()
        yield from self._of_clients()
        yield from self._of_replication()

    def _of_kinds(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily

        quotas = self._quotas
        kinds = {
            "produce": quotas.produce.throttles,
            "fetch": quotas.fetch.throttles,
            "request": quotas.request.throttles,
            "controllermutation": quotas.mutations,
            "connection": quotas.connections.throttles,
        }
        for name, about, field in (
            ("throttles", "How often clients were made to wait, by the quota that they exceeded.", "count"),
            ("throttle_time_ms", "For how long, altogether.", "total_ms"),
        ):
            family = CounterMetricFamily(_SERVER + name, about, labels=["quota"])
            for kind, throttles in kinds.items():
                family.add_metric([kind], getattr(throttles, field))
            yield family

    def _of_clients(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        quotas, now_ms = self._quotas, self._now_ms()
        about = "Of clients that have a quota and were seen lately; without a name: all of them together."
        for kind, unit, quota in (
            ("produce", "byte_rate", quotas.produce),
            ("fetch", "byte_rate", quotas.fetch),
            ("request", "request_time", quotas.request),
        ):
            labels = ["user", "client_id"]
            used = GaugeMetricFamily(f"{_SERVER}{kind}_{unit}", f"What they use. {about}", labels=labels)
            limits = GaugeMetricFamily(f"{_SERVER}{kind}_quota", f"What they may use. {about}", labels=labels)
            for owner, rate, limit in islice(quota.rates(now_ms), CLIENTS_MAX):
                used.add_metric(list(owner), rate)
                limits.add_metric(list(owner), limit)
            yield used
            yield limits

    def _of_replication(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        now_ms = self._now_ms()
        for side, throttle in self._throttles.items():
            name = f"{_SERVER}{side}replication_"
            about = "Bytes a second of replicas that are throttled."
            yield GaugeMetricFamily(name + "byte_rate", about, throttle.per_second(now_ms))
            about = "Bytes of replicas that are throttled."
            yield CounterMetricFamily(name + "throttled_bytes", about, throttle.total_bytes)
            about = "How often a replica was left out because there was too much."
            yield CounterMetricFamily(name + "throttles", about, throttle.held_up)
