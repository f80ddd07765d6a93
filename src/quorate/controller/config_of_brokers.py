"""Every key of a broker in one table: what it is, what it is without anybody's saying, and how it changes.

`CLUSTER_CONFIGS` and `BROKER_CONFIGS` are what Apache changes while a broker runs, and what the controller
writes for brokers of any kind. A Quorate broker has fixed listeners and no plugins, so some of it takes a
restart here (`Change.RESTART`): such a broker refuses it, and describes it as read-only. What configures
threads, caches and SASL, which this broker does not have, is accepted and changes nothing (`has_effect`); so
does what is set about TLS for a listener that does not speak it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from quorate.controller.config_definitions import (
    BROKER_CONFIGS,
    CLUSTER_CONFIGS,
    INTERNAL,
    LISTENER_CONFIGS,
    broker_definition,
    listener_in,
)
from quorate.controller.config_static import STATIC_CONFIGS
from quorate.controller.config_types import Definition, split_list
from quorate.values import dataclass

__all__ = [
    "BROKER_KEYS",
    "LISTED",
    "BrokerKey",
    "Change",
    "broker_key",
    "synonyms_of",
]


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

_OF_SASL: Final = frozenset(name for name in BROKER_CONFIGS if name.startswith("sasl."))

# Dynamic with Apache. Here only the next start of the broker could tell the difference.
_WITH_RESTART: Final = (
    frozenset({*BROKER_CONFIGS, "config.providers", "metric.reporters"}) - _OF_SASL - {"cordoned.log.dirs"}
)

# Of threads, buffers and tiers that there are none of, and of what nobody here goes by (yet).
_WITHOUT_EFFECT: Final = _OF_SASL | frozenset(
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


# Described only if somebody has set them: what Apache does not have, no longer has, or does not tell; and
# throttles, which tools take for throttles that stayed.
_UNLISTED: Final = frozenset(
    {
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "follower.replication.throttled.rate",
        "group.consumer.regex.refresh.interval.ms",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "leader.replication.throttled.rate",
        "offsets.commit.required.acks",
        "producer.id.expiration.check.interval.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "reserved.broker.max.id",
        "unclean.leader.election.interval.ms",
    }
)
_OURS: Final = ("quorate.", "zookeeper.")

LISTED: Final = frozenset(
    name for name in BROKER_KEYS if name not in _UNLISTED | INTERNAL and not name.startswith(_OURS)
)
"""What a node says about itself even if nobody has set it: as much of Kafka 4.3 as it knows."""


def broker_key(name: str, file: Mapping[str, str] | None = None) -> BrokerKey | None:
    """What we know of a key. One of a single listener is known by the key that it stands in for; if that
    listener does not speak TLS, as the broker's file has it, the key can be set while the broker runs.

    >>> broker_key("log.retention.ms").change, broker_key("node.id").is_dynamic, broker_key("my.plugin.key")
    (<Change.CLUSTER: 'cluster'>, False, None)
    >>> file = {"listeners": "SSL://:9092,OTHERS://:9093"}
    >>> broker_key("listener.name.ssl.ssl.keystore.type", file).is_dynamic
    False
    >>> broker_key("listener.name.others.ssl.keystore.type", file).is_dynamic
    True
    """
    found = BROKER_KEYS.get(name)
    if found is not None:
        return found
    definition = broker_definition(name)
    if definition is None:
        return None
    if synonyms_of(name)[-1] in LISTENER_CONFIGS:
        # Without a number of its own a listener goes by that of all.
        return BrokerKey(replace(definition, default=None), Change.BROKER)
    is_idle = ".sasl." in name or (file is not None and listener_in(name) not in _with_tls(file))
    return BrokerKey(definition, Change.BROKER if is_idle else Change.RESTART, has_effect=False)


def _with_tls(file: Mapping[str, str]) -> set[str]:
    """The listeners of a node that speak TLS, as they are called in keys."""
    mapped = split_list(file.get("listener.security.protocol.map", "").lower().replace(" ", ""))
    protocols = dict(pair.partition(":")[::2] for pair in mapped)
    names = (one.partition("://")[0] for one in split_list(file.get("listeners", "").lower()))
    return {name for name in names if protocols.get(name, name) == "ssl"}


def synonyms_of(name: str) -> tuple[str, ...]:
    """The keys that can give a key its meaning, itself first.

    >>> synonyms_of("log.roll.ms"), synonyms_of("listener.name.x.ssl.protocol")
    (('log.roll.ms', 'log.roll.hours'), ('listener.name.x.ssl.protocol', 'ssl.protocol'))
    """
    listener = listener_in(name)
    if listener is not None:
        return name, name.removeprefix(f"listener.name.{listener}.")
    return _SYNONYMS.get(name, (name,))
