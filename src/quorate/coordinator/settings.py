"""The static configuration of the group coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.values import dataclass

__all__ = ["KEYS", "GroupSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Names and defaults are those of Kafka's configuration, with underscores for dots: see `KEYS`.

    >>> GroupSettings().offsets_retention_ms
    604800000
    """

    # Classic groups
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 0x7FFF_FFFF
    # Consumer groups
    consumer_protocol: bool = True
    """Whether their own protocol is among `group.coordinator.rebalance.protocols`."""
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 0x7FFF_FFFF
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    # Offsets
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    # Limits of our own. Kafka has none, other than the size of a request.
    new_member_join_timeout_ms: int = 300_000
    """How long the join of a new member may wait: it cannot send heartbeats meanwhile. Fixed in Kafka."""
    pending_members_max: int = 10_000
    """How many member ids of a group may have been given out and not been used yet; the oldest make room."""
    member_metadata_max_bytes: int = 4 << 20
    """How much a member may say about itself in all its protocols together."""
    group_metadata_max_bytes: int = 32 << 20
    """How much all members of a group may say together. A classic group is stored in one record, which may
    have 1 MiB by default, so it is refused long before this. But of several protocols only one is stored, and
    a log may be told to take larger records; and nothing is stored of those who only wait. Each member of a
    consumer group is a record of its own."""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


KEYS: Final[Mapping[str, str]] = {
    "group.min.session.timeout.ms": "group_min_session_timeout_ms",
    "group.max.session.timeout.ms": "group_max_session_timeout_ms",
    "group.initial.rebalance.delay.ms": "group_initial_rebalance_delay_ms",
    "group.max.size": "group_max_size",
    "group.consumer.session.timeout.ms": "group_consumer_session_timeout_ms",
    "group.consumer.min.session.timeout.ms": "group_consumer_min_session_timeout_ms",
    "group.consumer.max.session.timeout.ms": "group_consumer_max_session_timeout_ms",
    "group.consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval_ms",
    "group.consumer.min.heartbeat.interval.ms": "group_consumer_min_heartbeat_interval_ms",
    "group.consumer.max.heartbeat.interval.ms": "group_consumer_max_heartbeat_interval_ms",
    "group.consumer.max.size": "group_consumer_max_size",
    "group.consumer.migration.policy": "group_consumer_migration_policy",
    "group.consumer.regex.refresh.interval.ms": "group_consumer_regex_refresh_interval_ms",
    "group.consumer.assignors": "group_consumer_assignors",
    "group.consumer.assignment.interval.ms": "group_consumer_assignment_interval_ms",
    "group.consumer.min.assignment.interval.ms": "group_consumer_min_assignment_interval_ms",
    "group.consumer.max.assignment.interval.ms": "group_consumer_max_assignment_interval_ms",
    "offset.metadata.max.bytes": "offset_metadata_max_bytes",
    "offsets.retention.minutes": "offsets_retention_minutes",
    "offsets.retention.check.interval.ms": "offsets_retention_check_interval_ms",
}
"""Kafka's keys, and the fields that they set. What is not here no key sets."""
