"""The configuration of a node: a file with the keys of Kafka's `server.properties`.

`SETTINGS` has a line for every key that we know: how its value is read, what is allowed, and its default. The
keys that say what topics have that do not say otherwise, `log.retention.hours` and others, are those of
`controller.config_definitions`. A value that is not allowed is an error that names file, key, value and what
is; a key that is not known is a warning, because files that were written for Apache Kafka have many more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from quorate.broker.cordoning import CORDONED_LOG_DIRS, objection_to
from quorate.broker.fetcher import FetcherSettings
from quorate.broker.lifecycle import LifecycleSettings
from quorate.broker.quotas_rates import Window
from quorate.broker.replica_selection import SELECTORS
from quorate.broker.settings import BrokerSettings
from quorate.controller.config_definitions import TOPIC_CONFIGS, UNITS_MS, topic_defaults
from quorate.controller.config_of_brokers import broker_key
from quorate.controller.config_types import Definition
from quorate.controller.config_unused import UNUSED_CONFIGS
from quorate.controller.settings import ControllerSettings
from quorate.net.budget import Budget
from quorate.net.limits import Limits
from quorate.net.tls_keys import TLS_KEYS
from quorate.node.config_groups import (
    GROUP_SETTINGS,
    check_groups,
    group_bounds,
    group_settings,
)
from quorate.node.config_values import (
    INT_MAX,
    ConfigError,
    Listener,
    Setting,
    at_least,
    between,
    boolean,
    integer,
    ms,
    one_of,
    read_address_or_none,
    read_digest,
    read_ensemble,
    read_level,
    read_listeners,
    read_names,
    read_protocol_version,
    read_roles,
    read_servers,
    read_validation,
    read_voters,
)
from quorate.node.config_zookeeper import check_zookeeper
from quorate.node.logs import FORMATS, LEVELS
from quorate.protocol.compression import Codec
from quorate.raft.quorum import QuorumSettings
from quorate.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from quorate.storage.producer_room import ProducerRoom
from quorate.values import dataclass

__all__ = ["SETTINGS", "ConfigError", "Listener", "NodeConfig", "parse_config"]


_QUORUM: Final = "controller.quorum."
_ZOOKEEPER: Final = "zookeeper."
_DEFAULTS: Final = QuorumSettings()

SETTINGS: Final[Mapping[str, Setting]] = {
    "process.roles": Setting(read_roles, "broker, controller, or both", None),
    "node.id": Setting(integer(0, 2**31 - 1), "a number from 0 on", None),
    "listeners": Setting(read_listeners, "NAME://host:port, each name once", ()),
    "advertised.listeners": Setting(read_listeners, "NAME://host:port, each name once", ()),
    "controller.listener.names": Setting(read_names, "names of listeners", ("CONTROLLER",)),
    "listener.security.protocol.map": Setting(read_names, "NAME:PROTOCOL", ()),
    "metadata.log.dir": Setting(str, "a directory", ""),
    "log.dirs": Setting(read_names, "directories", ()),
    "log.dir": Setting(str, "a directory", ""),
    _QUORUM + "voters": Setting(read_voters, "id@host:port, each id once, no 0.0.0.0", ()),
    _QUORUM + "bootstrap.servers": Setting(read_servers, "host:port", ()),
    _QUORUM + "election.timeout.ms": ms(_DEFAULTS.election_timeout_ms),
    _QUORUM + "fetch.timeout.ms": ms(_DEFAULTS.fetch_timeout_ms),
    _QUORUM + "election.backoff.max.ms": ms(_DEFAULTS.election_backoff_max_ms),
    _QUORUM + "request.timeout.ms": ms(_DEFAULTS.request_timeout_ms),
    _QUORUM + "retry.backoff.ms": ms(_DEFAULTS.retry_backoff_ms),
    _QUORUM + "append.linger.ms": ms(25),  # read, but every append leaves at once: syncs group them
    "metadata.log.segment.bytes": at_least(8 << 20, 1 << 30),
    "metadata.log.max.record.bytes.between.snapshots": at_least(1, 20 << 20),
    "metadata.log.max.snapshot.interval.ms": at_least(0, 3_600_000),
    "metadata.max.retention.bytes": at_least(-1, 100 << 20),
    "metadata.max.retention.ms": at_least(-1, 604_800_000),
    "metadata.max.idle.interval.ms": ms(500),
    "broker.heartbeat.interval.ms": at_least(1, 2000),
    "broker.session.timeout.ms": at_least(1, 9000),
    "auto.leader.rebalance.enable": boolean(True),
    "leader.imbalance.check.interval.seconds": at_least(1, 300),
    "unclean.leader.election.interval.ms": at_least(1, 300_000),
    "default.replication.factor": between(1, 64, 1),
    "num.partitions": at_least(1, 1),
    "delete.topic.enable": boolean(True),
    "authorizer.class.name": Setting(str, "the name of a class", ""),
    "delegation.token.secret.key": Setting(str, "a secret", ""),
    "delegation.token.max.lifetime.ms": at_least(1, 604_800_000),
    "delegation.token.expiry.time.ms": at_least(1, 86_400_000),
    "delegation.token.expiry.check.interval.ms": at_least(1, 3_600_000),
    "inter.broker.listener.name": Setting(lambda text: text.upper(), "the name of a listener", ""),
    "broker.rack": Setting(str, "a name", None),
    "initial.broker.registration.timeout.ms": ms(60_000),
    "controlled.shutdown.enable": boolean(True),
    "controlled.shutdown.max.retries": at_least(0, 3),
    "controlled.shutdown.retry.backoff.ms": at_least(0, 5000),
    _ZOOKEEPER + "connect": Setting(read_ensemble, "host:port,.../path", None),
    _ZOOKEEPER + "session.timeout.ms": at_least(1, 18_000),
    _ZOOKEEPER + "connection.timeout.ms": Setting(integer(1, 2**31 - 1), "milliseconds from 1 on", None),
    _ZOOKEEPER + "max.in.flight.requests": at_least(1, 10),
    _ZOOKEEPER + "set.acl": boolean(False),
    "quorate.zookeeper.digest": Setting(read_digest, "user:password", None),
    "broker.id": Setting(integer(-1, 2**31 - 1), "a number from 0 on, or -1", -1),
    "broker.id.generation.enable": boolean(True),
    "reserved.broker.max.id": at_least(0, 1000),
    "control.plane.listener.name": Setting(lambda text: text.upper(), "the name of a listener", ""),
    "inter.broker.protocol.version": Setting(read_protocol_version, "3.4 to 3.9", "3.9-IV0"),
    "controller.socket.timeout.ms": at_least(1, 30_000),
    "leader.imbalance.per.broker.percentage": at_least(0, 10),
    "request.timeout.ms": ms(30_000),
    "reconnect.backoff.ms": ms(50),
    "reconnect.backoff.max.ms": ms(1000),
    "log.dir.failure.timeout.ms": at_least(1, 30_000),
    "replica.lag.time.max.ms": at_least(1, 30_000),
    "replica.fetch.wait.max.ms": ms(500),
    "replica.fetch.min.bytes": at_least(0, 1),
    "replica.fetch.max.bytes": at_least(1, 1 << 20),
    "replica.fetch.response.max.bytes": at_least(1, 10 << 20),
    "replica.fetch.backoff.ms": ms(1000),
    "replica.socket.timeout.ms": ms(30_000),
    "replica.high.watermark.checkpoint.interval.ms": at_least(1, 5000),
    "num.recovery.threads.per.data.dir": at_least(1, 2),
    "log.retention.check.interval.ms": at_least(1, 300_000),
    "log.cleaner.enable": boolean(True),
    "auto.create.topics.enable": boolean(True),
    "fetch.max.bytes": at_least(1024, 55 << 20),
    "max.incremental.fetch.session.cache.slots": at_least(0, 1000),
    "replica.selector.class": Setting(one_of(*SELECTORS), " or ".join(SELECTORS[1:]), ""),
    "quota.window.num": at_least(1, 11),
    "quota.window.size.seconds": at_least(1, 1),
    "replication.quota.window.num": at_least(1, 11),
    "replication.quota.window.size.seconds": at_least(1, 1),
    "producer.id.expiration.ms": at_least(1, 86_400_000),
    "producer.id.expiration.check.interval.ms": at_least(1, 600_000),
    **GROUP_SETTINGS,
    "offsets.topic.num.partitions": between(1, INT_MAX, 50),
    "offsets.topic.replication.factor": between(1, 64, 3),
    "offsets.topic.segment.bytes": between(1, INT_MAX, 100 << 20),
    "offsets.commit.timeout.ms": between(1, INT_MAX, 5000),
    "offsets.topic.compression.codec": between(0, 4, 0),
    "quorate.produce.validation": Setting(read_validation, "records or header", "records"),
    "quorate.producer.ids.max": at_least(1, 100_000),
    "quorate.producer.ids.per.partition.max": at_least(1, 10_000),
    "quorate.events.publish": boolean(True),
    "quorate.events.settle.ms": ms(30_000),
    "quorate.lab.enabled": boolean(False),
    "quorate.log.format": Setting(one_of(*FORMATS), " or ".join(FORMATS), "plain"),
    "quorate.log.level": Setting(read_level, ", ".join(LEVELS[:-1]), "INFO"),
    "quorate.admin.listener": Setting(read_address_or_none, "host:port, or nothing", ("127.0.0.1", 0)),
    "quorate.admin.hosts": Setting(read_names, "host names", ()),
    "queued.max.request.bytes": at_least(-1, 512 << 20),
    "max.connections.per.ip": between(0, INT_MAX, INT_MAX),
    "socket.request.max.bytes": at_least(1, 100 << 20),
    "connections.max.idle.ms": ms(600_000),
    "max.connections": between(1, INT_MAX, 10_000),
}

# By the keys that they have in the file of a node.
_OF_TOPICS: Final[Mapping[str, Definition]] = {
    synonym: definition for definition in TOPIC_CONFIGS.values() for synonym in definition.synonyms
}


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A configuration that makes sense as a whole."""

    path: str
    values: Mapping[str, Any]
    warnings: tuple[str, ...]
    topic_defaults: Mapping[str, str]
    """What topics have that do not say otherwise, by the topic's keys."""
    properties: Mapping[str, str]
    """The file itself, text by key."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def node_id(self) -> int:
        """-1 as long as a broker of ZooKeeper mode has none."""
        return int(self["broker.id"] if self["node.id"] is None else self["node.id"])

    @property
    def metadata_directory(self) -> str:
        return str(self["metadata.log.dir"] or self.log_directories[0]).rstrip("/")

    @property
    def log_directories(self) -> tuple[str, ...]:
        return tuple(self["log.dirs"]) or (str(self["log.dir"]),)

    @property
    def is_of_zookeeper(self) -> bool:
        """Whether membership and elections are in ZooKeeper, and no quorum of controllers is there."""
        return self["process.roles"] is None and self["zookeeper.connect"] is not None

    @property
    def roles(self) -> tuple[str, ...]:
        return ("broker",) if self.is_of_zookeeper else tuple(self["process.roles"])

    def with_node_id(self, node_id: int) -> NodeConfig:
        """The same for a node whose id was not known when the file was read."""
        known = {"node.id": node_id, "broker.id": node_id}
        return replace(self, values={**self.values, **known})

    @property
    def controller_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self["controller.listener.names"])

    @property
    def controller_listener(self) -> Listener:
        """Where this controller listens."""
        listeners: tuple[Listener, ...] = self["listeners"]
        return next(one for one in listeners if one.name in self.controller_names)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """Where this broker listens."""
        return tuple(one for one in self["listeners"] if one.name not in self.controller_names)

    @property
    def inter_broker_listener(self) -> str:
        """The listener that brokers use among each other: the first, if the file does not say."""
        return str(self["inter.broker.listener.name"] or self.broker_listeners[0].name)

    def advertised_broker(self, listener: Listener, port: int) -> tuple[str, int]:
        """Where others reach a listener of this broker, which got this port."""
        for one in self["advertised.listeners"]:
            if one.name == listener.name:
                return one.host, one.port or port
        return listener.host or "localhost", port

    @property
    def advertised_controller(self) -> Endpoint:
        """Where others reach this controller: as advertised, as a static voter, or as it listens."""
        mine = self.controller_listener
        advertised = {one.name: one for one in self["advertised.listeners"]}.get(mine.name)
        if advertised is not None:
            return Endpoint(mine.name, advertised.host, advertised.port)
        for voter_id, host, port in self[_QUORUM + "voters"]:
            if voter_id == self.node_id:
                return Endpoint(mine.name, host, port)
        return Endpoint(mine.name, mine.host or "localhost", mine.port)

    @property
    def static_voters(self) -> VoterSet:
        name = self.controller_names[0]
        return VoterSet.of(
            Voter(ReplicaKey(voter_id), (Endpoint(name, host, port),))
            for voter_id, host, port in self[_QUORUM + "voters"]
        )

    @property
    def bootstrap_servers(self) -> tuple[Endpoint, ...]:
        name = self.controller_names[0]
        return tuple(Endpoint(name, host, port) for host, port in self[_QUORUM + "bootstrap.servers"])

    @property
    def quorum_settings(self) -> QuorumSettings:
        return QuorumSettings(
            election_timeout_ms=self[_QUORUM + "election.timeout.ms"],
            fetch_timeout_ms=self[_QUORUM + "fetch.timeout.ms"],
            election_backoff_max_ms=self[_QUORUM + "election.backoff.max.ms"],
            request_timeout_ms=self[_QUORUM + "request.timeout.ms"],
            retry_backoff_ms=self[_QUORUM + "retry.backoff.ms"],
        )

    def controller_settings(self, cluster_id: str) -> ControllerSettings:
        """What decisions of the controller depend on."""
        return ControllerSettings(
            node_id=self.node_id,
            cluster_id=cluster_id,
            broker_heartbeat_interval_ms=self["broker.heartbeat.interval.ms"],
            broker_session_timeout_ms=self["broker.session.timeout.ms"],
            metadata_max_idle_interval_ms=self["metadata.max.idle.interval.ms"],
            auto_leader_rebalance_enable=self["auto.leader.rebalance.enable"],
            leader_imbalance_check_interval_s=self["leader.imbalance.check.interval.seconds"],
            unclean_leader_election_interval_ms=self["unclean.leader.election.interval.ms"],
            default_replication_factor=self["default.replication.factor"],
            num_partitions=self["num.partitions"],
            delete_topic_enable=self["delete.topic.enable"],
            topic_defaults=self.topic_defaults,
            group_bounds=group_bounds(self),
            properties=self.properties,
            has_authorizer=bool(self["authorizer.class.name"]),
            delegation_token_secret=self["delegation.token.secret.key"].encode(),
            delegation_token_max_lifetime_ms=self["delegation.token.max.lifetime.ms"],
            delegation_token_expiry_time_ms=self["delegation.token.expiry.time.ms"],
            delegation_token_expiry_check_interval_ms=self["delegation.token.expiry.check.interval.ms"],
        )

    def broker_settings(self, cluster_id: str) -> BrokerSettings:
        """What serving depends on."""
        return BrokerSettings(
            broker_id=self.node_id,
            cluster_id=cluster_id,
            rack=self["broker.rack"],
            inter_broker_listener=self.inter_broker_listener,
            replica_lag_time_max_ms=self["replica.lag.time.max.ms"],
            high_watermark_checkpoint_ms=self["replica.high.watermark.checkpoint.interval.ms"],
            retention_check_ms=self["log.retention.check.interval.ms"],
            producer_expiration_check_ms=self["producer.id.expiration.check.interval.ms"],
            recovery_threads=self["num.recovery.threads.per.data.dir"],
            auto_create_topics_enable=self["auto.create.topics.enable"],
            num_partitions=self._given("num.partitions", -1),
            default_replication_factor=self._given("default.replication.factor", -1),
            fetch_max_bytes=self["fetch.max.bytes"],
            fetch_sessions_max=self["max.incremental.fetch.session.cache.slots"],
            validates_records=self["quorate.produce.validation"] == "records",
            replica_selector_class=self["replica.selector.class"],
            log_directories=self.log_directories,
            topic_defaults=self.topic_defaults,
            groups=group_settings(self),
            offsets_topic_partitions=self["offsets.topic.num.partitions"],
            offsets_topic_replication_factor=self["offsets.topic.replication.factor"],
            offsets_topic_segment_bytes=self["offsets.topic.segment.bytes"],
            offsets_commit_timeout_ms=self["offsets.commit.timeout.ms"],
            offsets_codec=Codec(self["offsets.topic.compression.codec"]),
        )

    def _given(self, key: str, otherwise: int) -> int:
        """The number that the file itself says."""
        return int(self[key]) if key in self.properties else otherwise

    @property
    def quota_window(self) -> Window:
        return Window(self["quota.window.num"], self["quota.window.size.seconds"] * 1000)

    @property
    def replication_quota_window(self) -> Window:
        return Window(
            self["replication.quota.window.num"], self["replication.quota.window.size.seconds"] * 1000
        )

    @property
    def fetcher_settings(self) -> FetcherSettings:
        return FetcherSettings(
            wait_max_ms=self["replica.fetch.wait.max.ms"],
            min_bytes=self["replica.fetch.min.bytes"],
            response_max_bytes=self["replica.fetch.response.max.bytes"],
            partition_max_bytes=self["replica.fetch.max.bytes"],
            backoff_ms=self["replica.fetch.backoff.ms"],
            timeout_ms=self["replica.socket.timeout.ms"],
        )

    @property
    def lifecycle_settings(self) -> LifecycleSettings:
        return LifecycleSettings(
            broker_heartbeat_interval_ms=self["broker.heartbeat.interval.ms"],
            broker_session_timeout_ms=self["broker.session.timeout.ms"],
            initial_broker_registration_timeout_ms=self["initial.broker.registration.timeout.ms"],
            request_timeout_ms=self["request.timeout.ms"],
            reconnect_backoff_ms=self["reconnect.backoff.ms"],
            reconnect_backoff_max_ms=self["reconnect.backoff.max.ms"],
            log_dir_failure_timeout_ms=self["log.dir.failure.timeout.ms"],
            controlled_shutdown_enable=self["controlled.shutdown.enable"],
        )

    def budget(self) -> Budget:
        """For what the connections of a broker hold together. One request fits in the part that is kept for
        whoever waits longest."""
        limit_bytes = self["queued.max.request.bytes"]
        if limit_bytes <= 0:
            return Budget()
        return Budget(limit_bytes, min(self["socket.request.max.bytes"], limit_bytes // 2))

    def producer_room(self) -> ProducerRoom:
        """How many producers the logs of a broker remember."""
        return ProducerRoom(self["quorate.producer.ids.per.partition.max"], self["quorate.producer.ids.max"])

    @property
    def limits(self) -> Limits:
        return Limits(
            request_bytes_max=self["socket.request.max.bytes"],
            idle_ms_max=self["connections.max.idle.ms"],
        )


def parse_config(path: str, properties: Mapping[str, str]) -> NodeConfig:
    """The configuration that a file's keys and values make; a `ConfigError` for what they do not."""
    values = {key: setting.default for key, setting in SETTINGS.items()}
    warnings = []
    for key, text in properties.items():
        if key in _OF_TOPICS:
            _check_topic_default(path, key, text)
            continue
        setting = SETTINGS.get(key)
        if key in TLS_KEYS:
            continue  # see `node.tls`
        if setting is None:
            warnings += _check_dynamic(path, key, text)
            continue
        try:
            values[key] = setting.read(text.strip())
        except ValueError:
            raise ConfigError(f"{path}: {key}={text}: allowed is {setting.allowed}") from None
    if values["authorizer.class.name"]:
        warnings.append(
            f"{path}: authorizer.class.name: this node keeps access rights, and allows everything"
        )
    config = NodeConfig(path, values, tuple(warnings), topic_defaults(properties), dict(properties))
    _check_whole(config)
    return config


def _check_dynamic(path: str, key: str, text: str) -> list[str]:
    """Of a key that is read where it counts, because it can change: see `broker.dynamic_config`."""
    known = broker_key(key)
    if known is None:
        is_kafkas = key in UNUSED_CONFIGS
        return [f"{path}: {key} changes nothing here" if is_kafkas else f"{path}: unknown key {key}"]
    try:
        known.definition.read(text)
    except ValueError:
        raise ConfigError(f"{path}: {key}={text}: allowed is {known.definition.wanted}") from None
    return [] if known.has_effect else [f"{path}: {key} changes nothing here"]


def _check_topic_default(path: str, key: str, text: str) -> None:
    """In hours or minutes it must make sense in milliseconds."""
    definition = _OF_TOPICS[key]
    try:
        in_ms = topic_defaults({key: text})
        for value in in_ms.values():
            definition.read(value)
    except ValueError:
        unit = " in milliseconds" if key in UNITS_MS else ""
        raise ConfigError(f"{path}: {key}={text}: allowed is {definition.wanted}{unit}") from None


def _check_budget(config: NodeConfig) -> None:
    """One request must fit."""
    limit, largest = config["queued.max.request.bytes"], config["socket.request.max.bytes"]
    if 0 < limit < largest:
        raise ConfigError(
            f"{config.path}: queued.max.request.bytes={limit}: allowed is -1, which is no limit,"
            f" or at least socket.request.max.bytes, {largest}"
        )


def _check_connections(config: NodeConfig) -> None:
    """Somebody must be able to connect."""
    key, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    if not config[key] and not config.properties.get(overrides):
        raise ConfigError(f"{config.path}: {key}=0: allowed is 0 only if {overrides} is set")


def _check_listeners(config: NodeConfig) -> None:
    """Each role has its own."""
    names = ", ".join(config.controller_names)
    has_controller = any(one.name in config.controller_names for one in config["listeners"])
    if "controller" in config.roles and not has_controller:
        raise ConfigError(f"{config.path}: listeners has none of controller.listener.names: {names}")
    if "controller" not in config.roles and has_controller:
        raise ConfigError(f"{config.path}: listeners has one for controllers ({names}), but this is none")
    if "broker" in config.roles and not config.broker_listeners:
        raise ConfigError(f"{config.path}: listeners has none for the broker: NAME://host:port")
    mine = [one.name for one in config.broker_listeners]
    if "broker" in config.roles and config.inter_broker_listener not in mine:
        name = config["inter.broker.listener.name"]
        raise ConfigError(f"{config.path}: inter.broker.listener.name={name}: not among {', '.join(mine)}")


def _check_whole(config: NodeConfig) -> None:
    """Checks of keys against each other."""
    check_groups(config)
    cordoned = read_names(config.properties.get(CORDONED_LOG_DIRS, ""))
    if (objection := objection_to(cordoned, config.log_directories)) is not None:
        raise ConfigError(f"{config.path}: {objection}")
    _check_connections(config)
    if config.is_of_zookeeper:
        check_zookeeper(config)
        _check_listeners(config)
        _check_budget(config)
        return
    for key in ("process.roles", "node.id"):
        if config[key] is None:
            raise ConfigError(f"{config.path}: {key} is missing: {SETTINGS[key].allowed}")
    if not config["metadata.log.dir"] and not config["log.dirs"] and not config["log.dir"]:
        raise ConfigError(f"{config.path}: metadata.log.dir is missing, and log.dirs too: a directory")
    _check_listeners(config)
    _check_budget(config)
    voters = config[_QUORUM + "voters"]
    if not voters and not config[_QUORUM + "bootstrap.servers"]:
        raise ConfigError(
            f"{config.path}: {_QUORUM}voters is missing, and {_QUORUM}bootstrap.servers too:"
            f" one of them says where the quorum is"
        )
    if (
        voters
        and "controller" in config.roles
        and config.node_id not in [voter_id for voter_id, _, _ in voters]
    ):
        known = ", ".join(str(voter_id) for voter_id, _, _ in voters)
        raise ConfigError(f"{config.path}: node.id={config.node_id}: not among the voters {known}")
    if config[_QUORUM + "election.timeout.ms"] < 1:
        raise ConfigError(f"{config.path}: {_QUORUM}election.timeout.ms=0: allowed is 1 and more")
