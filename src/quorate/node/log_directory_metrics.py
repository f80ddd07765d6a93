"""The metrics of log directories and of replicas that move between them, under the names that Kafka's have
where they are exported to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from quorate.node.broker_disks import BrokerDisks

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["LogDirectoryMetrics"]

_LOGS: Final = "kafka_log_logmanager_"
_MOVES: Final = "kafka_server_replicaalterlogdirsmanager_"


class LogDirectoryMetrics:
    """A `metrics.Source`."""

    def __init__(self, disks: Callable[[], BrokerDisks | None]) -> None:
        self._disks = disks

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        disks = self._disks()
        if disks is None:
            return
        futures, moves = disks.futures, disks.moves
        offline = {path: not futures.is_online(path) for path in futures.paths}
        about = "Log directories that have failed."
        yield GaugeMetricFamily(_LOGS + "offlinelogdirectorycount", about, sum(offline.values()))
        about = "Whether a log directory has failed."
        by_path = GaugeMetricFamily(_LOGS + "logdirectoryoffline", about, labels=["logDirectory"])
        for path, is_offline in offline.items():
            by_path.add_metric([path], is_offline)
        yield by_path
        cordoned = {path: futures.is_cordoned(path) for path in futures.paths}
        about = "Log directories that get no new replicas."
        yield GaugeMetricFamily(_LOGS + "cordonedlogdirectorycount", about, sum(cordoned.values()))
        about = "Whether a log directory gets no new replicas."
        by_path = GaugeMetricFamily(_LOGS + "logdirectorycordoned", about, labels=["logDirectory"])
        for path, is_cordoned in cordoned.items():
            by_path.add_metric([path], is_cordoned)
        yield by_path
        about = "Replicas that are on their way to another log directory."
        yield GaugeMetricFamily("quorate_future_replicas", about, len(moves))
        about = "By how many offsets the last of them is behind."
        yield GaugeMetricFamily(_MOVES + "maxlag", about, max((one.lag for one in moves), default=0))
        about = "Moves that a disk has ended since the broker started."
        yield GaugeMetricFamily(_MOVES + "failedpartitionscount", about, moves.failed)
        about = "Bytes that were copied from one log directory to another."
        yield CounterMetricFamily("quorate_moved_bytes", about, disks.throttle.total_bytes)
