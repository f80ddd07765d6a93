"""What the cleaner has done and has to do, under the names that Kafka's metrics have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from quorate.broker.cleaner import Cleaner

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["CleanerMetrics"]

_CLEANER: Final = "kafka_log_logcleaner_"
_MANAGER: Final = "kafka_log_logcleanermanager_"


class CleanerMetrics:
    """A `metrics.Source`."""

    def __init__(self, cleaner: Callable[[], Cleaner | None], wall_ms: Callable[[], int]) -> None:
        self._cleaner = cleaner
        self._wall_ms = wall_ms

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        cleaner = self._cleaner()
        if cleaner is None:
            return
        stats = cleaner.stats
        kept = 100 * stats.records_kept / stats.records_read if stats.records_read else 0.0
        since_ms = self._wall_ms() - stats.last_look_ms if stats.last_look_ms else 0
        for name, about, value in (
            (_MANAGER + "max_dirty_percent", "How dirty the dirtiest log is.", 100 * stats.dirty_ratio_max),
            (_MANAGER + "time_since_last_run_ms", "How long ago it was looked for dirty logs.", since_ms),
            (
                _MANAGER + "uncleanable_partitions_count",
                "Logs that cannot be compacted, and were set aside.",
                len(cleaner.uncleanable),
            ),
            (_CLEANER + "cleaner_recopy_percent", "How many of the records read were kept.", kept),
            (
                _CLEANER + "max_clean_time_secs",
                "How long the last compaction took.",
                stats.last_run_duration_ms / 1000,
            ),
            (
                _CLEANER + "max_buffer_utilization_percent",
                "How much of its table of keys the last compaction used.",
                100 * stats.last_map_share,
            ),
            ("quorate_cleaner_last_run_ms", "When the last compaction ended.", stats.last_run_ms),
        ):
            yield GaugeMetricFamily(name, about, value)
        for name, about, value in (
            ("runs", "Compactions of logs that came to their end.", stats.runs),
            (
                "given_up",
                "Compactions of logs that had changed meanwhile, or had to be left alone.",
                stats.given_up,
            ),
            ("failures", "Compactions that failed.", stats.failures),
            ("read_bytes", "Bytes that were read for compaction.", stats.read_bytes),
            ("written_bytes", "Bytes that compaction has written.", stats.written_bytes),
            ("records_read", "Records that compaction has looked at.", stats.records_read),
            ("records_kept", "Records that it has kept.", stats.records_kept),
        ):
            yield CounterMetricFamily("quorate_cleaner_" + name, about, value)
