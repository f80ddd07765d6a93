"""What holds for one consumer group: the coordinator's configuration, and what the group itself was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.coordinator.settings import GroupSettings
from quorate.values import dataclass

__all__ = ["GROUP_KEYS", "ConsumerRules", "corrected", "rules_of"]

GROUP_KEYS: Final[Mapping[str, str]] = {
    "consumer.session.timeout.ms": "session_timeout_ms",
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
}
"""The keys that can be set for a single group, and the rules that they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRules:
    """The numbers and names that decisions about a consumer group depend on."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """How long a target assignment holds at least before the next one is computed."""
    max_size: int = 0x7FFF_FFFF
    classic_max_size: int = 0x7FFF_FFFF
    metadata_max_bytes: int = 32 << 20
    """How much all members may say about themselves."""
    regex_refresh_interval_ms: int = 600_000
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is used when the members do not name any."""
    migration_policy: str = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        return self.migration_policy.lower() in {"bidirectional", "upgrade"}

    @property
    def may_downgrade(self) -> bool:
        return self.migration_policy.lower() in {"bidirectional", "downgrade"}


def rules_of(settings: GroupSettings, overrides: Mapping[str, str] | None = None) -> ConsumerRules:
    """The rules of a group whose dynamic configuration is `overrides`.

    What is out of the bounds that the coordinator allows is brought within them: the bounds may have been
    moved after the group was configured. If that leaves a session no longer than the interval of heartbeats,
    members would be put out between two of them: the interval is then the coordinator's own, and so is the
    session, if it is too short for that as well. What is not a number is ignored.

    >>> rules_of(GroupSettings(), {"consumer.session.timeout.ms": "1000"}).session_timeout_ms
    45000
    """
    given = overrides or {}
    session_timeout_ms = _bounded(
        given.get("consumer.session.timeout.ms"),
        settings.group_consumer_session_timeout_ms,
        settings.group_consumer_min_session_timeout_ms,
        settings.group_consumer_max_session_timeout_ms,
    )
    heartbeat_interval_ms = _bounded(
        given.get("consumer.heartbeat.interval.ms"),
        settings.group_consumer_heartbeat_interval_ms,
        settings.group_consumer_min_heartbeat_interval_ms,
        settings.group_consumer_max_heartbeat_interval_ms,
    )
    if session_timeout_ms <= heartbeat_interval_ms:
        heartbeat_interval_ms = settings.group_consumer_heartbeat_interval_ms
        if session_timeout_ms <= heartbeat_interval_ms:
            session_timeout_ms = settings.group_consumer_session_timeout_ms
    return ConsumerRules(
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
        assignment_interval_ms=_bounded(
            given.get("consumer.assignment.interval.ms"),
            settings.group_consumer_assignment_interval_ms,
            settings.group_consumer_min_assignment_interval_ms,
            settings.group_consumer_max_assignment_interval_ms,
        ),
        max_size=settings.group_consumer_max_size,
        classic_max_size=settings.group_max_size,
        metadata_max_bytes=settings.group_metadata_max_bytes,
        regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
        assignors=settings.group_consumer_assignors,
        migration_policy=settings.group_consumer_migration_policy,
    )


def corrected(settings: GroupSettings, given: Mapping[str, str]) -> dict[str, int]:
    """What counts instead of what a group was given and cannot have here.

    >>> corrected(GroupSettings(), {"consumer.session.timeout.ms": "1000"})
    {'consumer.session.timeout.ms': 45000}
    """
    rules = rules_of(settings, given)
    used = {key: getattr(rules, rule) for key, rule in GROUP_KEYS.items() if key in given}
    return {key: value for key, value in used.items() if _number(given[key]) != value}


def _bounded(given: str | None, default: int, lowest: int, highest: int) -> int:
    value = None if given is None else _number(given)
    return default if value is None else max(lowest, min(value, highest))


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
