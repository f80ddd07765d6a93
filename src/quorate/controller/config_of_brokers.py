"""Every key of a broker in one table: what it is, what it is without anybody's saying, and how it changes.

`CLUSTER_CONFIGS` and `BROKER_CONFIGS` are what Apache changes while a broker runs, and what the controller
writes for brokers of any kind. A Quorate broker has fixed listeners and no plugins, so some of it takes a
restart here (`Change.RESTART`): such a broker refuses it, and describes it as read-only. What configures
threads and caches that this broker does not have is accepted and changes nothing (`has_effect`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from quorate.controller.config_definitions import (
    BROKER_CONFIGS,
    CLUSTER_CONFIGS,
    LISTENER_CONFIGS,
    broker_definition,
    is_of_listener,
)
from quorate.controller.config_static import STATIC_CONFIGS
from quorate.controller.config_types import Definition
from quorate.values import dataclass

__all__ = ["BROKER_KEYS", "BrokerKey", "Change", "broker_key", "synonyms_of"]


class Change(Enum):
    """How a key takes another value."""

    RESTART = "restart"  # from the file, when the broker starts
    BROKER = "broker"  # while it runs, for this broker alone
    CLUSTER = "cluster"  # while it runs, for this broker or as the default of all


@dataclass(frozen=True, slots=True)
class BrokerKey:
    definition: Definition
    change: Change
    has_effect: bool = True

    @property
    def is_dynamic(self) -> bool:
        return self.change is not Change.RESTART


# What Apache has as a default, and we do not.
_OUR_DEFAULTS: Final[Mapping[str, str]] = {"max.connections": "10000", "metric.reporters": ""}

# Dynamic with Apache. Here only the next start of the broker could tell the difference.
_WITH_RESTART: Final = frozenset({*BROKER_CONFIGS, "config.providers", "metric.reporters"}) - {
    "cordoned.log.dirs"
}

# Of threads, buffers and tiers that there are none of, and of what nobody here goes by (yet).
_WITHOUT_EFFECT: Final = frozenset(
    {
        "background.threads",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "follower.fetch.last.tiered.offset.enable",
        "group.coordinator.append.linger.ms",
        "group.coordinator.background.threads",
        "group.coordinator.cached.buffer.max.bytes",
        "group.coordinator.threads",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.preallocate",
        "log.roll.jitter.ms",
        "log.segment.delete.delay.ms",
        "num.io.threads",
        "num.network.threads",
        "num.replica.fetchers",
        "offsets.commit.required.acks",
        "offsets.load.buffer.size",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        "share.coordinator.cached.buffer.max.bytes",
        "transaction.partition.verification.enable",
    }
)

# Keys that are meant as well, if the first of them is not given. The strongest stands first.
_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.minutes": ("log.retention.minutes", "log.retention.hours"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
}


def _change(name: str) -> Change:
    if name in _WITH_RESTART or name in STATIC_CONFIGS:
        return Change.RESTART
    return Change.CLUSTER if name in CLUSTER_CONFIGS else Change.BROKER


def _key(name: str, definition: Definition) -> BrokerKey:
    if name in _OUR_DEFAULTS:
        definition = replace(definition, default=_OUR_DEFAULTS[name])
    return BrokerKey(definition, _change(name), name not in _WITHOUT_EFFECT)


BROKER_KEYS: Final[Mapping[str, BrokerKey]] = {
    name: _key(name, definition)
    for name, definition in sorted({**STATIC_CONFIGS, **CLUSTER_CONFIGS, **BROKER_CONFIGS}.items())
}


def broker_key(name: str) -> BrokerKey | None:
    """What we know of a key; one of a single listener is known by the key that it stands in for.

    >>> broker_key("log.retention.ms").change, broker_key("node.id").is_dynamic, broker_key("my.plugin.key")
    (<Change.CLUSTER: 'cluster'>, False, None)
    """
    found = BROKER_KEYS.get(name)
    if found is not None:
        return found
    definition = broker_definition(name)
    if definition is None:
        return None
    if is_of_listener(name, LISTENER_CONFIGS):
        # Without a number of its own a listener goes by that of all.
        return BrokerKey(replace(definition, default=None), Change.BROKER)
    return BrokerKey(definition, Change.RESTART)


def synonyms_of(name: str) -> tuple[str, ...]:
    """The keys that can give a key its meaning, itself first.

    >>> synonyms_of("log.roll.ms")
    ('log.roll.ms', 'log.roll.hours')
    """
    return _SYNONYMS.get(name, (name,))
