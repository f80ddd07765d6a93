"""The metrics of the group coordinators, under the names that Kafka's have where they are exported.

How many groups there are, and in which states, is looked at when somebody asks; what happens to them is
counted as it happens, from the events that tell of it and from the answers to commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from quorate.broker.groups import Groups
from quorate.coordinator.consumer_events import ConsumerRebalanceEnded, GroupEpochBumped
from quorate.coordinator.events import MemberRemoved, OffsetsExpired, RebalanceEnded, RebalanceStarted
from quorate.metadata.event import Event
from quorate.node.request_times import Note
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from quorate.protocol.message import Request
from quorate.values import dataclass

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["GroupCounts", "GroupMetrics", "RebalanceTimes"]

_GROUPS: Final = "kafka_server_group_coordinator_metrics_"
_LEFT: Final = "left"


@dataclass(slots=True)
class RebalanceTimes:
    """How long rebalances took that have ended."""

    count: int = 0
    took_ms: int = 0  # all of them together
    took_ms_max: int = 0

    def add(self, took_ms: int) -> None:
        self.count += 1
        self.took_ms += took_ms
        self.took_ms_max = max(self.took_ms_max, took_ms)


class GroupCounts:
    """What has happened to groups since the node started."""

    def __init__(self) -> None:
        self.rebalances_started = {"classic": 0, "consumer": 0}
        self.rebalances_ended = {"classic": RebalanceTimes(), "consumer": RebalanceTimes()}
        self.members_left = 0
        self.members_expired = 0
        self.offsets_committed = 0
        self.offsets_deleted = 0
        self.offsets_expired = 0
        self.notes: Mapping[type[Request], Note] = {
            OffsetCommitRequest: self.committed,
            OffsetDeleteRequest: self.deleted,
        }

    def saw(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case RebalanceStarted():
                    self.rebalances_started["classic"] += 1
                case RebalanceEnded(duration_ms=took_ms):
                    self.rebalances_ended["classic"].add(took_ms)
                case ConsumerRebalanceEnded(duration_ms=int(took_ms)):
                    self.rebalances_ended["consumer"].add(took_ms)
                case GroupEpochBumped():
                    self.rebalances_started["consumer"] += 1
                case MemberRemoved(check=check) if _LEFT in check:
                    self.members_left += 1
                case MemberRemoved():
                    self.members_expired += 1
                case OffsetsExpired(offsets=offsets):
                    self.offsets_expired += offsets

    def committed(
        self, _header: RequestHeader, _request: OffsetCommitRequest, answer: OffsetCommitResponse
    ) -> None:
        for topic in answer.topics:
            for one in topic.partitions:
                if not one.error_code:
                    self.offsets_committed += 1

    def committed_some(self, offsets: int) -> None:
        self.offsets_committed += offsets

    def deleted(
        self, _header: RequestHeader, _request: OffsetDeleteRequest, answer: OffsetDeleteResponse
    ) -> None:
        for topic in answer.topics:
            self.offsets_deleted += sum(not one.error_code for one in topic.partitions)


class GroupMetrics:
    """A `metrics.Source`."""

    def __init__(self, groups: Callable[[], Groups | None], counts: GroupCounts) -> None:
        self._groups = groups
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily

        groups, counts = self._groups(), self._counts
        if groups is None:
            return
        yield from _of_states(groups)
        yield from _of_partitions(groups)
        name, about = _GROUPS + "group_rebalance", "How often groups began to rebalance."
        rebalances = CounterMetricFamily(name, about, labels=["protocol"])
        for protocol, count in counts.rebalances_started.items():
            rebalances.add_metric([protocol], count)
        yield rebalances
        yield from _of_times(counts.rebalances_ended)
        put_out = "Members that were put out, because they were not heard of or did not come back."
        for name, about, count in (
            (
                "group_completed_rebalance",
                "Rebalances that classic groups completed.",
                counts.rebalances_ended["classic"].count,
            ),
            ("member_expired", put_out, counts.members_expired),
            ("member_left", "Members that left.", counts.members_left),
            ("offset_commit", "Offsets that were committed.", counts.offsets_committed),
            ("offset_deletion", "Offsets that somebody deleted.", counts.offsets_deleted),
            ("offset_expiration", "Offsets that became too old.", counts.offsets_expired),
        ):
            yield CounterMetricFamily(_GROUPS + name, about, count)


def _of_times(ended: Mapping[str, RebalanceTimes]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    about = "Rebalances that have ended and of which it is known how long they took."
    timed = CounterMetricFamily(_GROUPS + "group_timed_rebalance", about, labels=["protocol"])
    about = "How long they took, together."
    took = CounterMetricFamily(_GROUPS + "group_rebalance_time_ms", about, labels=["protocol"])
    about = "The longest time that one of them took."
    longest = GaugeMetricFamily(_GROUPS + "group_rebalance_time_max_ms", about, labels=["protocol"])
    for protocol, times in ended.items():
        timed.add_metric([protocol], times.count)
        took.add_metric([protocol], times.took_ms)
        longest.add_metric([protocol], times.took_ms_max)
    yield from (timed, took, longest)


def _of_states(groups: Groups) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    states: Counter[tuple[str, str]] = Counter()
    members: Counter[str] = Counter({"classic": 0, "consumer": 0})
    offsets = 0
    for hosted in groups.shards.all_active():
        shard = hosted.shard
        offsets += len(shard.committed_offsets)
        for classic in shard.classic_groups:
            states["classic", str(classic.state)] += 1
            members["classic"] += len(classic.members)
        for consumer in shard.consumer_groups:
            states["consumer", str(consumer.state.phase)] += 1
            members["consumer"] += len(consumer.state.members)
    found = GaugeMetricFamily(_GROUPS + "group_count", "Groups.", labels=["protocol", "state"])
    for (protocol, state), count in sorted(states.items()):
        found.add_metric([protocol, state], count)
    yield found
    found = GaugeMetricFamily(_GROUPS + "member_count", "Members of groups.", labels=["protocol"])
    for protocol, count in members.items():
        found.add_metric([protocol], count)
    yield found
    yield GaugeMetricFamily(_GROUPS + "offset_count", "Offsets that groups have committed.", offsets)


def _of_partitions(groups: Groups) -> Iterator[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    states = Counter({"loading": 0, "active": 0, "failed": 0})
    states.update(hosted.state.name.lower() for hosted in groups.shards)
    about = "Partitions of __consumer_offsets that this broker leads."
    found = GaugeMetricFamily(_GROUPS + "num_partitions", about, labels=["state"])
    for state, count in states.items():
        found.add_metric([state], count)
    yield found
    loads = groups.shards.loads
    yield CounterMetricFamily(_GROUPS + "partition_load", "Partitions that were loaded.", loads.loaded)
    yield CounterMetricFamily(_GROUPS + "partition_unload", "Partitions that were given up.", loads.unloaded)
    yield CounterMetricFamily(_GROUPS + "partition_load_time_ms", "How long loading took.", loads.took_ms)
    about = "The longest time that loading took."
    yield GaugeMetricFamily(_GROUPS + "partition_load_time_max_ms", about, loads.took_ms_max)
