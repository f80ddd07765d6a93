"""The keys of a broker that only the file of its node can say: a running node does not change them.

Together with `CLUSTER_CONFIGS` and `BROKER_CONFIGS` of `config_definitions` they are everything that a broker
knows about itself; `config_of_brokers` puts the three together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.controller.config_types import Allowed, ConfigType, Definition, at_least, between

__all__ = ["STATIC_CONFIGS"]


def _boolean(default: str) -> Definition:
    return Definition(ConfigType.BOOLEAN, default)


def _string(default: str | None = None) -> Definition:
    return Definition(ConfigType.STRING, default)


def _int(default: str | None, allowed: Allowed | None = None) -> Definition:
    return Definition(ConfigType.INT, default, allowed)


def _short(default: str, allowed: Allowed | None = None) -> Definition:
    return Definition(ConfigType.SHORT, default, allowed)


def _long(default: str) -> Definition:
    return Definition(ConfigType.LONG, default)


def _list(default: str | None = None) -> Definition:
    return Definition(ConfigType.LIST, default)


STATIC_CONFIGS: Final[Mapping[str, Definition]] = {
    "advertised.listeners": _list(),
    "authorizer.class.name": _string(""),
    "auto.create.topics.enable": _boolean("true"),
    "auto.leader.rebalance.enable": _boolean("true"),
    "broker.heartbeat.interval.ms": _int("2000"),
    "broker.id": _int("-1"),
    "broker.id.generation.enable": _boolean("true"),
    "broker.rack": _string(),
    "broker.session.timeout.ms": _int("9000"),
    "connections.max.idle.ms": _long("600000"),
    "control.plane.listener.name": _string(),
    "controlled.shutdown.enable": _boolean("true"),
    "controlled.shutdown.max.retries": _int("3"),
    "controlled.shutdown.retry.backoff.ms": _long("5000"),
    "controller.listener.names": _list(),
    "controller.quorum.append.linger.ms": _int("25"),
    "controller.quorum.bootstrap.servers": _list(""),
    "controller.quorum.election.backoff.max.ms": _int("1000"),
    "controller.quorum.election.timeout.ms": _int("1000"),
    "controller.quorum.fetch.timeout.ms": _int("2000"),
    "controller.quorum.request.timeout.ms": _int("2000"),
    "controller.quorum.retry.backoff.ms": _int("20"),
    "controller.quorum.voters": _list(""),
    "controller.socket.timeout.ms": _int("30000"),
    "default.replication.factor": _int("1"),
    "delegation.token.expiry.check.interval.ms": _long("3600000"),
    "delegation.token.expiry.time.ms": _long("86400000"),
    "delegation.token.max.lifetime.ms": _long("604800000"),
    "delegation.token.secret.key": Definition(ConfigType.PASSWORD),
    "delete.topic.enable": _boolean("true"),
    "fetch.max.bytes": _int("57671680"),
    "group.consumer.assignors": _list("uniform,range"),
    "group.consumer.heartbeat.interval.ms": _int("5000"),
    "group.consumer.max.assignment.interval.ms": _int("15000"),
    "group.consumer.max.heartbeat.interval.ms": _int("15000"),
    "group.consumer.max.session.timeout.ms": _int("60000"),
    "group.consumer.max.size": _int("2147483647"),
    "group.consumer.migration.policy": _string("bidirectional"),
    "group.consumer.min.assignment.interval.ms": _int("0"),
    "group.consumer.min.heartbeat.interval.ms": _int("5000"),
    "group.consumer.min.session.timeout.ms": _int("45000"),
    "group.consumer.regex.refresh.interval.ms": _int("600000"),
    "group.consumer.session.timeout.ms": _int("45000"),
    "group.coordinator.append.linger.ms": _int("-1", at_least(-1)),
    "group.coordinator.background.threads": _int("2", at_least(1)),
    "group.coordinator.rebalance.protocols": _list("classic,consumer,streams"),
    "group.coordinator.threads": _int("4", at_least(1)),
    "group.initial.rebalance.delay.ms": _int("3000"),
    "group.max.session.timeout.ms": _int("1800000"),
    "group.max.size": _int("2147483647"),
    "group.min.session.timeout.ms": _int("6000"),
    "initial.broker.registration.timeout.ms": _int("60000"),
    "inter.broker.listener.name": _string(),
    "inter.broker.protocol.version": _string("3.9-IV0"),
    "leader.imbalance.check.interval.seconds": _long("300"),
    "leader.imbalance.per.broker.percentage": _int("10"),
    "log.cleaner.enable": _boolean("true"),
    "log.dir": _list(),
    "log.dir.failure.timeout.ms": _long("30000"),
    "log.dirs": _list(),
    "log.flush.scheduler.interval.ms": _long("9223372036854775807"),
    "log.retention.check.interval.ms": _long("300000"),
    "log.retention.hours": _int("168"),
    "log.retention.minutes": _int(None),
    "log.roll.hours": _int("168"),
    "log.roll.jitter.hours": _int("0"),
    "max.incremental.fetch.session.cache.slots": _int("1000"),
    "metadata.log.dir": _string(),
    "metadata.log.max.record.bytes.between.snapshots": _long("20971520"),
    "metadata.log.max.snapshot.interval.ms": _long("3600000"),
    "metadata.log.segment.bytes": _int("1073741824"),
    "metadata.max.idle.interval.ms": _int("500"),
    "metadata.max.retention.bytes": _long("104857600"),
    "metadata.max.retention.ms": _long("604800000"),
    "node.id": _int(None),
    "num.partitions": _int("1"),
    "offset.metadata.max.bytes": _int("4096"),
    "offsets.commit.required.acks": _short("-1", at_least(-1)),  # until Kafka 3.9
    "offsets.commit.timeout.ms": _int("5000"),
    "offsets.load.buffer.size": _int("5242880", at_least(1)),
    "offsets.retention.check.interval.ms": _long("600000"),
    "offsets.retention.minutes": _int("10080"),
    "offsets.topic.compression.codec": _int("0", between(0, 4)),
    "offsets.topic.num.partitions": _int("50"),
    "offsets.topic.replication.factor": _short("3"),
    "offsets.topic.segment.bytes": _int("104857600"),
    "process.roles": _list(),
    "producer.id.expiration.check.interval.ms": _int("600000"),
    "queued.max.request.bytes": _long("536870912"),  # Apache has no limit: -1
    "quorate.admin.hosts": _list(""),
    "quorate.admin.listener": _string("127.0.0.1:0"),
    "quorate.events.publish": _boolean("true"),
    "quorate.events.settle.ms": _long("30000"),
    "quorate.lab.enabled": _boolean("false"),
    "quorate.log.format": _string("plain"),
    "quorate.log.level": _string("INFO"),
    "quorate.produce.validation": _string("records"),
    "quorate.producer.ids.max": _long("100000"),
    "quorate.producer.ids.per.partition.max": _long("10000"),
    "quorate.zookeeper.digest": Definition(ConfigType.PASSWORD),
    "quota.window.num": _int("11"),
    "quota.window.size.seconds": _int("1"),
    "reconnect.backoff.max.ms": _long("1000"),
    "reconnect.backoff.ms": _long("50"),
    "replica.fetch.backoff.ms": _int("1000"),
    "replica.fetch.max.bytes": _int("1048576"),
    "replica.fetch.min.bytes": _int("1"),
    "replica.fetch.response.max.bytes": _int("10485760"),
    "replica.fetch.wait.max.ms": _int("500"),
    "replica.high.watermark.checkpoint.interval.ms": _long("5000"),
    "replica.lag.time.max.ms": _long("30000"),
    "replica.selector.class": _string(),
    "replica.socket.timeout.ms": _int("30000"),
    "replication.quota.window.num": _int("11"),
    "replication.quota.window.size.seconds": _int("1"),
    "request.timeout.ms": _int("30000"),
    "reserved.broker.max.id": _int("1000"),
    "socket.request.max.bytes": _int("104857600"),
    "transaction.state.log.min.isr": _int("2"),
    "transaction.state.log.num.partitions": _int("50"),
    "transaction.state.log.replication.factor": _short("3"),
    "unclean.leader.election.interval.ms": _long("300000"),
    "zookeeper.connect": _string(),
    "zookeeper.connection.timeout.ms": _int(None),
    "zookeeper.max.in.flight.requests": _int("10"),
    "zookeeper.session.timeout.ms": _int("18000"),
    "zookeeper.set.acl": _boolean("false"),
}
