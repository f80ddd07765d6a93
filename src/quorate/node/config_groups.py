"""Keys of the group coordinator in the file of a node: what each may be, and what cannot be said together.

The ranges are Kafka's. Where Kafka takes any negative number, which makes no sense, the lowest is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from quorate.controller.settings import GROUP_BOUNDS, Bounds, bound_keys
from quorate.coordinator.assignors import ASSIGNORS
from quorate.coordinator.settings import KEYS, GroupSettings
from quorate.node.config_values import (
    INT_MAX,
    ConfigError,
    Setting,
    between,
    one_of,
    read_assignors,
    read_rebalance_protocols,
)

if TYPE_CHECKING:
    from quorate.node.config import NodeConfig

__all__ = ["GROUP_SETTINGS", "check_groups", "group_bounds", "group_settings"]

_DEFAULTS: Final = GroupSettings()
_POLICIES: Final = ("disabled", "upgrade", "downgrade", "bidirectional")
_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"


def _number(key: str, lowest: int, highest: int = INT_MAX) -> Setting:
    return between(lowest, highest, getattr(_DEFAULTS, KEYS[key]))


_LOWEST: Final = {
    "group.min.session.timeout.ms": 0,
    "group.max.session.timeout.ms": 0,
    "group.initial.rebalance.delay.ms": 0,
    "group.max.size": 1,
    "group.consumer.session.timeout.ms": 1,
    "group.consumer.min.session.timeout.ms": 1,
    "group.consumer.max.session.timeout.ms": 1,
    "group.consumer.heartbeat.interval.ms": 1,
    "group.consumer.min.heartbeat.interval.ms": 1,
    "group.consumer.max.heartbeat.interval.ms": 1,
    "group.consumer.max.size": 1,
    "group.consumer.regex.refresh.interval.ms": 10_000,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.assignment.interval.ms": 0,
    "group.consumer.max.assignment.interval.ms": 0,
    "offset.metadata.max.bytes": 0,
    "offsets.retention.minutes": 1,
}

GROUP_SETTINGS: Final = {
    **{key: _number(key, lowest) for key, lowest in _LOWEST.items()},
    "offsets.retention.check.interval.ms": _number("offsets.retention.check.interval.ms", 1, 2**63 - 1),
    "group.consumer.migration.policy": Setting(
        lambda text: one_of(*_POLICIES)(text.lower()),
        " or ".join(_POLICIES),
        _DEFAULTS.group_consumer_migration_policy,
    ),
    "group.consumer.assignors": Setting(
        read_assignors,
        f"{' and '.join(ASSIGNORS)}, or Apache's classes of these, each once; others cannot be loaded",
        _DEFAULTS.group_consumer_assignors,
    ),
    _PROTOCOLS: Setting(
        read_rebalance_protocols,
        "classic, and any of consumer, share and streams",
        ("classic", "consumer", "streams"),
    ),
}


def group_settings(config: NodeConfig) -> GroupSettings:
    """What the coordinators of this node go by."""
    return GroupSettings(
        **{field: config[key] for key, field in KEYS.items()},
        consumer_protocol="consumer" in config[_PROTOCOLS],
    )


def group_bounds(config: NodeConfig) -> Mapping[str, Bounds]:
    """What the controllers of this node let groups have, by the groups' keys."""
    return {key: Bounds(*(config[one] for one in _bounding(key))) for key in GROUP_BOUNDS}


def _bounding(key: str) -> tuple[str, str, str]:
    """The file's keys for the lowest, the highest and the usual value of a group's key."""
    lowest, highest = bound_keys(key)
    return lowest, highest, f"group.{key}"


def check_groups(config: NodeConfig) -> None:
    """`ConfigError` for what a consumer group has that is out of the bounds that groups have, and for bounds
    that leave no room."""
    for lowest, highest, value in map(_bounding, GROUP_BOUNDS):
        _check_order(config, highest, "at least", lowest, config[highest] >= config[lowest])
        _check_order(config, value, "at least", lowest, config[value] >= config[lowest])
        _check_order(config, value, "at most", highest, config[value] <= config[highest])
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    _check_order(config, heartbeat, "less than", session, config[heartbeat] < config[session])


def _check_order(config: NodeConfig, key: str, relation: str, other: str, is_so: bool) -> None:
    if not is_so:
        raise ConfigError(
            f"{config.path}: {key}={config[key]}: allowed is {relation} {other}, {config[other]}"
        )
