"""The configurations that can be changed while the cluster runs, as of Apache Kafka 4.3: a line for each.

A line says of what type a value is, the default, what is allowed, and for a topic's key the keys of the
broker whose values are its default, the strongest first. `tests/interop/test_apache_configs.py` holds the
tables against Apache's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from quorate.controller.config_types import (
    Allowed,
    ConfigType,
    Definition,
    at_least,
    between,
    duration_or,
    hosts_and_numbers,
    items_of,
    not_empty,
    one_of,
    patterns_of,
    replicas,
)

__all__ = [
    "BROKER_CONFIGS",
    "CLIENT_METRICS_CONFIGS",
    "CLUSTER_CONFIGS",
    "GROUP_CONFIGS",
    "INTERNAL",
    "LISTENER_CONFIGS",
    "STATIC",
    "TOPIC_CONFIGS",
    "UNITS_MS",
    "broker_definition",
    "group_synonym",
    "listener_in",
    "topic_defaults",
]


def _boolean(default: str | None, allowed: Allowed | None = None, *synonyms: str) -> Definition:
    return Definition(ConfigType.BOOLEAN, default, allowed, synonyms)


def _int(default: str | None, allowed: Allowed | None = None, *synonyms: str) -> Definition:
    return Definition(ConfigType.INT, default, allowed, synonyms)


def _long(default: str | None, allowed: Allowed | None = None, *synonyms: str) -> Definition:
    return Definition(ConfigType.LONG, default, allowed, synonyms)


def _short(default: str | None) -> Definition:
    return Definition(ConfigType.SHORT, default)


def _double(default: str | None, allowed: Allowed | None = None, *synonyms: str) -> Definition:
    return Definition(ConfigType.DOUBLE, default, allowed, synonyms)


def _string(default: str | None, allowed: Allowed | None = None, *synonyms: str) -> Definition:
    return Definition(ConfigType.STRING, default, allowed, synonyms)


def _list(default: str | None, allowed: Allowed | None = None, *synonyms: str) -> Definition:
    return Definition(ConfigType.LIST, default, allowed, synonyms)


def _class(default: str | None) -> Definition:
    return Definition(ConfigType.CLASS, default)


def _password() -> Definition:
    return Definition(ConfigType.PASSWORD)


# What a client metrics subscription can choose clients by.
MATCHABLE: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

_CODECS: Final = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_POLICIES: Final = items_of("compact", "delete")
_TIMESTAMPS: Final = one_of("CreateTime", "LogAppendTime")
_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_PROTOCOLS: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
_PRINCIPALS: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_INT_MAX: Final = "2147483647"
_LONG_MAX: Final = "9223372036854775807"

# fmt: off
TOPIC_CONFIGS: Final[Mapping[str, Definition]] = {
    "cleanup.policy": _list("delete", _POLICIES, "log.cleanup.policy"),
    "compression.gzip.level": _int("-1", between(1, 9, also=-1), "compression.gzip.level"),
    "compression.lz4.level": _int("9", between(1, 17), "compression.lz4.level"),
    "compression.type": _string("producer", _CODECS, "compression.type"),
    "compression.zstd.level": _int("3", between(-131_072, 22), "compression.zstd.level"),
    "delete.retention.ms": _long("86400000", at_least(0), "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": _long("60000", at_least(0), "log.segment.delete.delay.ms"),
    "flush.messages": _long(_LONG_MAX, at_least(1), "log.flush.interval.messages"),
    "flush.ms": _long(_LONG_MAX, at_least(0), "log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "follower.replication.throttled.replicas": _list("", replicas()),
    "index.interval.bytes": _int("4096", at_least(0), "log.index.interval.bytes"),
    "internal.segment.bytes": _int(None),
    "leader.replication.throttled.replicas": _list("", replicas()),
    "local.retention.bytes": _long("-2", at_least(-2), "log.local.retention.bytes"),
    "local.retention.ms": _long("-2", at_least(-2), "log.local.retention.ms"),
    "max.compaction.lag.ms": _long(_LONG_MAX, at_least(1), "log.cleaner.max.compaction.lag.ms"),
    "max.decompressed.message.bytes": _int("8388608", at_least(0), "max.decompressed.message.bytes"),
    "max.message.bytes": _int("1048588", at_least(0), "message.max.bytes"),
    "message.timestamp.after.max.ms": _long("3600000", at_least(0), "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": _long(_LONG_MAX, at_least(0), "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": _string("CreateTime", _TIMESTAMPS, "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": _double("0.5", between(0, 1), "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": _long("0", at_least(0), "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": _int("1", at_least(1), "min.insync.replicas"),
    "preallocate": _boolean("false", None, "log.preallocate"),
    "remote.log.copy.disable": _boolean("false"),
    "remote.log.delete.on.disable": _boolean("false"),
    "remote.storage.enable": _boolean("false"),
    "retention.bytes": _long("-1", None, "log.retention.bytes"),
    "retention.ms": _long("604800000", at_least(-1), *_RETENTION),
    "segment.bytes": _int("1073741824", at_least(1_048_576), "log.segment.bytes"),
    "segment.index.bytes": _int("10485760", at_least(4), "log.index.size.max.bytes"),
    "segment.jitter.ms": _long("0", at_least(0), "log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": _long("604800000", at_least(1), "log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": _boolean("false", None, "unclean.leader.election.enable"),
}

# Of all brokers, or of one.
CLUSTER_CONFIGS: Final[Mapping[str, Definition]] = {
    "background.threads": _int("10", at_least(1)),
    "compression.gzip.level": _int("-1", between(1, 9, also=-1)),
    "compression.lz4.level": _int("9", between(1, 17)),
    "compression.type": _string("producer", _CODECS),
    "compression.zstd.level": _int("3", between(-131_072, 22)),
    "config.providers": _list(""),
    "follower.fetch.last.tiered.offset.enable": _boolean("false"),
    "follower.replication.throttled.rate": _long(_LONG_MAX, at_least(0)),
    "group.consumer.assignment.interval.ms": _int("1000", at_least(0)),
    "group.coordinator.cached.buffer.max.bytes": _int("1048588", at_least(524_288)),
    "group.share.assignment.interval.ms": _int("1000", at_least(0)),
    "group.streams.assignment.interval.ms": _int("1000", at_least(0)),
    "leader.replication.throttled.rate": _long(_LONG_MAX, at_least(0)),
    "log.cleaner.backoff.ms": _long("15000", at_least(0)),
    "log.cleaner.dedupe.buffer.size": _long("134217728"),
    "log.cleaner.delete.retention.ms": _long("86400000", at_least(0)),
    "log.cleaner.io.buffer.load.factor": _double("0.9"),
    "log.cleaner.io.buffer.size": _int("524288", at_least(0)),
    "log.cleaner.io.max.bytes.per.second": _double("1.7976931348623157E308"),
    "log.cleaner.max.compaction.lag.ms": _long(_LONG_MAX, at_least(1)),
    "log.cleaner.min.cleanable.ratio": _double("0.5", between(0, 1)),
    "log.cleaner.min.compaction.lag.ms": _long("0", at_least(0)),
    "log.cleaner.threads": _int("1", at_least(0)),
    "log.cleanup.policy": _list("delete", _POLICIES),
    "log.flush.interval.messages": _long(_LONG_MAX, at_least(1)),
    "log.flush.interval.ms": _long(None),
    "log.index.interval.bytes": _int("4096", at_least(0)),
    "log.index.size.max.bytes": _int("10485760", at_least(4)),
    "log.local.retention.bytes": _long("-2", at_least(-2)),
    "log.local.retention.ms": _long("-2", at_least(-2)),
    "log.message.timestamp.after.max.ms": _long("3600000", at_least(0)),
    "log.message.timestamp.before.max.ms": _long(_LONG_MAX, at_least(0)),
    "log.message.timestamp.type": _string("CreateTime", _TIMESTAMPS),
    "log.preallocate": _boolean("false"),
    "log.retention.bytes": _long("-1"),
    "log.retention.ms": _long(None),
    "log.roll.jitter.ms": _long(None),
    "log.roll.ms": _long(None),
    "log.segment.bytes": _int("1073741824", at_least(1_048_576)),
    "log.segment.delete.delay.ms": _long("60000", at_least(0)),
    "max.connection.creation.rate": _int(_INT_MAX, at_least(0)),
    "max.connections": _int(_INT_MAX, at_least(0)),
    "max.connections.per.ip": _int(_INT_MAX, at_least(0)),
    "max.connections.per.ip.overrides": _string("", hosts_and_numbers()),
    "max.decompressed.message.bytes": _int("8388608", at_least(0)),
    "message.max.bytes": _int("1048588", at_least(0)),
    "metric.reporters": _list("org.apache.kafka.common.metrics.JmxReporter"),
    "min.insync.replicas": _int("1", at_least(1)),
    "num.io.threads": _int("8", at_least(1)),
    "num.network.threads": _int("3", at_least(1)),
    "num.recovery.threads.per.data.dir": _int("2", at_least(1)),
    "num.replica.fetchers": _int("1", at_least(1)),
    "producer.id.expiration.ms": _int("86400000", at_least(1)),
    "remote.fetch.max.wait.ms": _int("500", at_least(1)),
    "remote.list.offsets.request.timeout.ms": _long("30000", at_least(1)),
    "remote.log.index.file.cache.total.size.bytes": _long("1073741824", at_least(1)),
    "remote.log.manager.copier.thread.pool.size": _int("10", at_least(1)),
    "remote.log.manager.copy.max.bytes.per.second": _long(_LONG_MAX, at_least(1)),
    "remote.log.manager.expiration.thread.pool.size": _int("10", at_least(1)),
    "remote.log.manager.fetch.max.bytes.per.second": _long(_LONG_MAX, at_least(1)),
    "remote.log.manager.follower.thread.pool.size": _int("2", at_least(1)),
    "remote.log.reader.threads": _int("10", at_least(1)),
    "replica.alter.log.dirs.io.max.bytes.per.second": _long(_LONG_MAX, at_least(0)),
    "share.coordinator.cached.buffer.max.bytes": _int("1048588", at_least(524_288)),
    "transaction.partition.verification.enable": _boolean("true"),
    "unclean.leader.election.enable": _boolean("false"),
}

# Of one broker, or of one listener of it.
BROKER_CONFIGS: Final[Mapping[str, Definition]] = {
    "cordoned.log.dirs": _list(""),
    "listener.security.protocol.map": _string(_PROTOCOLS),
    "listeners": _list("PLAINTEXT://:9092", not_empty()),
    "principal.builder.class": _class(_PRINCIPALS),
    "sasl.enabled.mechanisms": _list("GSSAPI"),
    "sasl.jaas.config": _password(),
    "sasl.kerberos.kinit.cmd": _string("/usr/bin/kinit"),
    "sasl.kerberos.min.time.before.relogin": _long("60000"),
    "sasl.kerberos.principal.to.local.rules": _list("DEFAULT"),
    "sasl.kerberos.service.name": _string(None),
    "sasl.kerberos.ticket.renew.jitter": _double("0.05"),
    "sasl.kerberos.ticket.renew.window.factor": _double("0.8"),
    "sasl.login.refresh.buffer.seconds": _short("300"),
    "sasl.login.refresh.min.period.seconds": _short("60"),
    "sasl.login.refresh.window.factor": _double("0.8"),
    "sasl.login.refresh.window.jitter": _double("0.05"),
    "sasl.mechanism.inter.broker.protocol": _string("GSSAPI"),
    "ssl.cipher.suites": _list(""),
    "ssl.client.auth": _string("none", one_of("required", "requested", "none")),
    "ssl.enabled.protocols": _list("TLSv1.2,TLSv1.3"),
    "ssl.endpoint.identification.algorithm": _string("https"),
    "ssl.engine.factory.class": _class(None),
    "ssl.key.password": _password(),
    "ssl.keymanager.algorithm": _string("SunX509"),
    "ssl.keystore.certificate.chain": _password(),
    "ssl.keystore.key": _password(),
    "ssl.keystore.location": _string(None),
    "ssl.keystore.password": _password(),
    "ssl.keystore.type": _string("JKS"),
    "ssl.protocol": _string("TLSv1.3"),
    "ssl.provider": _string(None),
    "ssl.secure.random.implementation": _string(None),
    "ssl.trustmanager.algorithm": _string("PKIX"),
    "ssl.truststore.certificates": _password(),
    "ssl.truststore.location": _string(None),
    "ssl.truststore.password": _password(),
    "ssl.truststore.type": _string("JKS"),
}

# Of all brokers, and of single listeners of one.
LISTENER_CONFIGS: Final = frozenset({"max.connection.creation.rate", "max.connections"})

# Those of consumer groups must also lie between the node's `group.consumer.min.*` and `max.*`. The others
# have the defaults of such keys as bounds.
GROUP_CONFIGS: Final[Mapping[str, Definition]] = {
    "consumer.assignment.interval.ms": _int("1000", at_least(0)),
    "consumer.heartbeat.interval.ms": _int("5000", at_least(1)),
    "consumer.session.timeout.ms": _int("45000", at_least(1)),
    "share.assignment.interval.ms": _int("1000", between(0, 15_000)),
    "share.auto.offset.reset": _string("latest", duration_or("earliest", "latest")),
    "share.delivery.count.limit": _int("5", between(2, 10)),
    "share.heartbeat.interval.ms": _int("5000", between(5_000, 15_000)),
    "share.isolation.level": _string("read_uncommitted", one_of("read_committed", "read_uncommitted")),
    "share.partition.max.record.locks": _int("2000", between(100, 4_000)),
    "share.record.lock.duration.ms": _int("30000", between(15_000, 60_000)),
    "share.renew.acknowledge.enable": _boolean("true"),
    "share.session.timeout.ms": _int("45000", between(45_000, 60_000)),
    "streams.assignment.interval.ms": _int("1000", between(0, 15_000)),
    "streams.heartbeat.interval.ms": _int("5000", between(5_000, 15_000)),
    "streams.initial.rebalance.delay.ms": _int("3000", at_least(0)),
    "streams.num.standby.replicas": _int("0", between(0, 2)),
    "streams.session.timeout.ms": _int("45000", between(45_000, 60_000)),
}

CLIENT_METRICS_CONFIGS: Final[Mapping[str, Definition]] = {
    "interval.ms": _int("300000", between(100, 3_600_000)),
    "match": _list("", patterns_of(*MATCHABLE)),
    "metrics": _list(""),
}
# fmt: on

# Shown only where they are set: the first is for tests, and Apache has the other since 4.4.
INTERNAL: Final = frozenset({"internal.segment.bytes", "max.decompressed.message.bytes"})

# A broker's keys that are not in milliseconds, although the topic's key is.
UNITS_MS: Final[Mapping[str, int]] = {
    "log.retention.hours": 3_600_000,
    "log.retention.minutes": 60_000,
    "log.roll.hours": 3_600_000,
    "log.roll.jitter.hours": 3_600_000,
}

# What topics depend on, but only the file of a broker can say.
STATIC: Final = frozenset(
    synonym for one in TOPIC_CONFIGS.values() for synonym in one.synonyms if synonym not in CLUSTER_CONFIGS
)

_WITHOUT_SYNONYM: Final = (
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
)
_OF_LISTENER: Final = re.compile(r"listener\.name\.(?P<listener>[^.]*)\.(?P<key>.*)")
_OF_MECHANISM: Final = "sasl.jaas.config"


def broker_definition(name: str) -> Definition | None:
    """What we know of a broker's key, which may be of one listener, and of one mechanism there.

    >>> broker_definition("listener.name.internal.scram-sha-256.sasl.jaas.config").is_sensitive
    True
    """
    of_listener = _OF_LISTENER.fullmatch(name)
    if of_listener is None:
        return CLUSTER_CONFIGS.get(name) or BROKER_CONFIGS.get(name)
    key = of_listener["key"]
    if key in LISTENER_CONFIGS:
        return CLUSTER_CONFIGS[key]
    return BROKER_CONFIGS.get(_OF_MECHANISM if key.endswith(_OF_MECHANISM) else key)


def listener_in(name: str) -> str | None:
    """The listener that a broker's key is for, if it is for one alone.

    >>> listener_in("listener.name.internal.ssl.keystore.type"), listener_in("ssl.keystore.type")
    ('internal', None)
    """
    of_listener = _OF_LISTENER.fullmatch(name)
    return of_listener["listener"] if of_listener else None


def group_synonym(name: str) -> str | None:
    """The broker's key whose value is the default of a group's."""
    return None if name in _WITHOUT_SYNONYM else f"group.{name}"


def topic_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """What a broker's file says about topics, by the topic's keys.

    >>> topic_defaults({"log.retention.hours": "2", "min.insync.replicas": "2", "node.id": "1"})
    {'min.insync.replicas': '2', 'retention.ms': '7200000'}
    """
    found = {}
    for name, definition in TOPIC_CONFIGS.items():
        for synonym in definition.synonyms:
            if synonym in properties:
                text = properties[synonym].strip()
                found[name] = _in_ms(text, UNITS_MS[synonym]) if synonym in UNITS_MS else text
                break
    return found


def _in_ms(text: str, unit_ms: int) -> str:
    """In every unit, what is negative stands for no limit."""
    number = int(text)
    return str(number * unit_ms if number >= 0 else number)
