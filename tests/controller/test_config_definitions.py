"""How the values of configurations are read, and what they may be."""

import pytest

from quorate.controller.config_definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    CLUSTER_CONFIGS,
    GROUP_CONFIGS,
    STATIC,
    TOPIC_CONFIGS,
    UNITS_MS,
    broker_definition,
    topic_defaults,
)
from quorate.controller.config_types import ConfigType, Definition
from quorate.controller.config_validation import (
    VALUE_LENGTH_MAX,
    validate_broker_configs,
    validate_client_metrics_configs,
    validate_cluster_configs,
    validate_group_configs,
    validate_topic_configs,
)
from quorate.controller.settings import GROUP_BOUNDS, Bounds
from quorate.controller.topic_settings import MIN_ISR, UNCLEAN
from quorate.protocol.errors import ApiError, ErrorCode

TABLES = {
    "topics": TOPIC_CONFIGS,
    "all brokers": CLUSTER_CONFIGS,
    "a broker": BROKER_CONFIGS,
    "groups": GROUP_CONFIGS,
    "client metrics": CLIENT_METRICS_CONFIGS,
}


def refusal(validate, configs, *others) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validate(configs, *others)
    return caught.value


# Reading


READABLE = [
    (ConfigType.BOOLEAN, "true", True),
    (ConfigType.BOOLEAN, " False ", False),
    (ConfigType.INT, "-7", -7),
    (ConfigType.INT, " +7 ", 7),
    (ConfigType.INT, "2147483647", 2**31 - 1),
    (ConfigType.SHORT, "-32768", -32768),
    (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
    (ConfigType.DOUBLE, "0.5", 0.5),
    (ConfigType.DOUBLE, "1e3", 1000.0),
    (ConfigType.LIST, "", []),
    (ConfigType.LIST, "a , b,c", ["a", "b", "c"]),
    (ConfigType.STRING, " text ", "text"),
    (ConfigType.CLASS, "some.Class", "some.Class"),
    (ConfigType.PASSWORD, "secret", "secret"),
]
UNREADABLE = [
    (ConfigType.BOOLEAN, "yes"),
    (ConfigType.BOOLEAN, ""),
    (ConfigType.INT, "2147483648"),
    (ConfigType.INT, "1.0"),
    (ConfigType.INT, "1_000"),
    (ConfigType.INT, ""),
    (ConfigType.INT, "9" * 5000),
    (ConfigType.SHORT, "32768"),
    (ConfigType.LONG, "9223372036854775808"),
    (ConfigType.DOUBLE, "nan"),
    (ConfigType.DOUBLE, "1_0"),
    (ConfigType.DOUBLE, ""),
    (ConfigType.LIST, "a,,b"),
    (ConfigType.LIST, "a,"),
]


@pytest.mark.parametrize(("kind", "text", "value"), READABLE)
def test_a_value_is_read(kind, text, value):
    assert Definition(kind).read(text) == value


@pytest.mark.parametrize(("kind", "text"), UNREADABLE)
def test_what_is_not_a_value(kind, text):
    with pytest.raises(ValueError):  # noqa: PT011, it has nothing to say
        Definition(kind).read(text)


# The tables


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, table in TABLES.items() for name in table])
def test_a_default_is_allowed(kind, name):
    definition = TABLES[kind][name]
    if definition.default is not None:
        definition.read(definition.default)
    assert definition.wanted


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_in_order(kind):
    assert list(TABLES[kind]) == sorted(TABLES[kind])


def test_what_the_controller_goes_by_itself_is_known_to_topics_and_brokers():
    for name in (MIN_ISR, UNCLEAN):
        assert TOPIC_CONFIGS[name].synonyms == (name,)
        assert name in CLUSTER_CONFIGS


def test_secrets_are_passwords():
    secret = {name for name, one in {**CLUSTER_CONFIGS, **BROKER_CONFIGS}.items() if one.is_sensitive}
    assert {"sasl.jaas.config", "ssl.key.password", "ssl.keystore.password", "ssl.keystore.key"} <= secret
    assert all(name == "sasl.jaas.config" or name.startswith(("ssl.key", "ssl.trust")) for name in secret), (
        "a new one: is it shown anywhere?"
    )


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("log.retention.ms", "log.retention.ms"),
        ("ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.internal.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.internal.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.internal.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.internal.log.retention.ms", None),
        ("of.a.plugin", None),
    ],
)
def test_what_is_known_of_a_key_of_a_broker(name, known):
    both = {**CLUSTER_CONFIGS, **BROKER_CONFIGS}
    assert broker_definition(name) == (both[known] if known else None)


@pytest.mark.parametrize(
    ("file", "topics"),
    [
        ({}, {}),
        ({"log.retention.hours": " 2 "}, {"retention.ms": "7200000"}),
        ({"log.retention.hours": "-1"}, {"retention.ms": "-1"}),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {"retention.ms": "180000"}),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, {"retention.ms": "4"}),
        (
            {"log.roll.hours": "1", "log.roll.jitter.hours": "1"},
            {"segment.ms": "3600000", "segment.jitter.ms": "3600000"},
        ),
        ({"log.flush.scheduler.interval.ms": "9"}, {"flush.ms": "9"}),
        (
            {"message.max.bytes": "10", "log.segment.bytes": "2000000"},
            {"max.message.bytes": "10", "segment.bytes": "2000000"},
        ),
        ({"min.insync.replicas": "2"}, {"min.insync.replicas": "2"}),
        ({"retention.ms": "1", "node.id": "1"}, {}),
    ],
)
def test_what_a_broker_says_about_topics(file, topics):
    assert topic_defaults(file) == topics


def test_what_only_a_file_can_say():
    assert set(UNITS_MS) | {"log.flush.scheduler.interval.ms"} == STATIC


def test_units_are_of_keys_that_topics_have():
    assert set(UNITS_MS) <= {synonym for one in TOPIC_CONFIGS.values() for synonym in one.synonyms}


# Topics


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"retention.ms": "-1"},
        {"cleanup.policy": "compact,delete"},
        {"cleanup.policy": ""},
        {"compression.type": "zstd", "compression.zstd.level": "-5"},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
        {"leader.replication.throttled.replicas": "0:1,1:2"},
        {"follower.replication.throttled.replicas": "*"},
        {"remote.storage.enable": "false"},
    ],
)
def test_what_a_topic_may_have(configs):
    validate_topic_configs(configs)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"nonsense": "1"}, "nonsense: there is no such topic config"),
        ({"log.retention.ms": "1"}, "log.retention.ms: there is no such topic config"),
        (
            {"retention.ms": None},
            "retention.ms=null: allowed is a number from -1 on; delete it to have the default",
        ),
        ({"retention.ms": "-2"}, "retention.ms=-2: allowed is a number from -1 on"),
        ({"retention.ms": "soon"}, "retention.ms=soon: allowed is a number from -1 on"),
        ({"retention.bytes": "1.5"}, "retention.bytes=1.5: allowed is a whole number of 64 bits"),
        ({"preallocate": "maybe"}, "preallocate=maybe: allowed is true or false"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level=0: allowed is a number from 1 to 9, or -1"),
        ({"min.cleanable.dirty.ratio": "2"}, "min.cleanable.dirty.ratio=2: allowed is a number from 0 to 1"),
        (
            {"message.timestamp.type": "Now"},
            "message.timestamp.type=Now: allowed is one of CreateTime, LogAppendTime",
        ),
        (
            {"cleanup.policy": "compact,burn"},
            "cleanup.policy=compact,burn: allowed is any of compact, delete, separated by commas",
        ),
        (
            {"leader.replication.throttled.replicas": "all"},
            "leader.replication.throttled.replicas=all: allowed is partition:broker, separated by commas,"
            " or * for all replicas",
        ),
        (
            {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
            "min.compaction.lag.ms=9: allowed is at most max.compaction.lag.ms, which is 8",
        ),
        (
            {"remote.storage.enable": "true"},
            "remote.storage.enable=true: allowed is false, there is no tiered storage",
        ),
        (
            {"retention.ms": "1" * (VALUE_LENGTH_MAX + 1)},
            "retention.ms: a value of 32768 characters: allowed are at most 32767",
        ),
        ({"retention.ms": "x" * 200}, f"retention.ms={'x' * 100}...: allowed is a number from -1 on"),
    ],
)
def test_what_a_topic_may_not_have(configs, message):
    error = refusal(validate_topic_configs, configs)
    assert (error.code, error.message) == (ErrorCode.INVALID_CONFIG, message)


def test_what_a_topic_does_not_say_is_what_the_broker_says():
    validate_topic_configs({"min.compaction.lag.ms": "9"}, {"max.compaction.lag.ms": "9"})
    with pytest.raises(ApiError, match="which is 8"):
        validate_topic_configs({"min.compaction.lag.ms": "9"}, {"max.compaction.lag.ms": "8"})
    validate_topic_configs(
        {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "9"}, {"max.compaction.lag.ms": "8"}
    )


# Brokers


@pytest.mark.parametrize(
    "configs",
    [
        {"log.retention.ms": "1", "of.a.plugin": "anything"},
        {"ssl.keystore.password": "secret"},
        {"listener.name.internal.ssl.keystore.location": "/a"},
        {"num.io.threads": "${file:/etc/threads:count}"},
        {"log.retention.ms": None},
    ],
)
def test_what_a_broker_may_have(configs):
    validate_broker_configs(configs)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"num.io.threads": "0"}, "num.io.threads=0: allowed is a number from 1 on"),
        ({"listeners": ""}, "listeners=: allowed is one or more items, separated by commas"),
        ({"min.insync.replicas": "many"}, "min.insync.replicas=many: allowed is a number from 1 on"),
        (
            {"of.a.plugin": "x" * 40_000},
            "of.a.plugin: a value of 40000 characters: allowed are at most 32767",
        ),
    ],
)
def test_what_a_broker_may_not_have(configs, message):
    for validate in (validate_broker_configs, validate_cluster_configs):
        if validate is validate_cluster_configs and "listeners" in configs:
            continue
        error = refusal(validate, configs)
        assert (error.code, error.message) == (ErrorCode.INVALID_CONFIG, message)


def test_what_only_a_single_broker_may_have():
    error = refusal(validate_cluster_configs, {"ssl.keystore.password": "secret"})
    assert error.code == ErrorCode.INVALID_CONFIG
    assert error.message.startswith("ssl.keystore.password: allowed is to set it for a single broker")
    validate_cluster_configs({"log.retention.ms": "1"})


def test_a_secret_is_not_shown():
    error = refusal(validate_broker_configs, {"ssl.key.password": "s3cret" * 10_000})
    assert "s3cret" not in str(error)
    error = refusal(validate_cluster_configs, {"ssl.key.password": "s3cret"})
    assert "s3cret" not in str(error)


# Groups and client metrics


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"session.timeout": "1"}, "session.timeout: there is no such group config"),
        (
            {"consumer.session.timeout.ms": "44999"},
            "consumer.session.timeout.ms must be greater than or equal to"
            " group.consumer.min.session.timeout.ms."
            " consumer.session.timeout.ms=44999: allowed is a number from 45000 to 60000",
        ),
        (
            {"consumer.session.timeout.ms": "soon"},
            "consumer.session.timeout.ms=soon: allowed is a number from 1 on",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas."
            " streams.num.standby.replicas=3: allowed is a number from 0 to 2",
        ),
        (
            {"share.auto.offset.reset": "by_duration:1h"},
            "share.auto.offset.reset=by_duration:1h:"
            " allowed is earliest, latest, or by_duration:PnDTnHnMn.nS",
        ),
        (
            {"share.isolation.level": None},
            "share.isolation.level=null: allowed is one of read_committed, read_uncommitted;"
            " delete it to have the default",
        ),
    ],
)
def test_what_a_group_may_not_have(configs, message):
    error = refusal(validate_group_configs, configs)
    assert (error.code, error.message) == (ErrorCode.INVALID_CONFIG, message)


SHORTER = GROUP_BOUNDS | {"consumer.session.timeout.ms": Bounds(1_000, 60_000, 6_000)}


def test_the_bounds_are_those_of_the_node_that_decides():
    validate_group_configs({"consumer.session.timeout.ms": "10000"}, SHORTER)
    error = refusal(validate_group_configs, {"consumer.session.timeout.ms": "999"}, SHORTER)
    assert error.message.endswith("consumer.session.timeout.ms=999: allowed is a number from 1000 to 60000")


@pytest.mark.parametrize(
    ("configs", "session", "heartbeat"),
    [
        ({"consumer.session.timeout.ms": "5000"}, 5000, 5000),
        ({"consumer.heartbeat.interval.ms": "7000"}, 6000, 7000),
        ({"consumer.session.timeout.ms": "7000", "consumer.heartbeat.interval.ms": "8000"}, 7000, 8000),
    ],
)
def test_a_session_is_longer_than_the_interval_of_its_heartbeats(configs, session, heartbeat):
    error = refusal(validate_group_configs, configs, SHORTER)
    assert (error.code, error.message) == (
        ErrorCode.INVALID_CONFIG,
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms."
        f" consumer.session.timeout.ms={session}: allowed is more than {heartbeat}",
    )


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "bbb"}, ErrorCode.INVALID_CONFIG),
        ({"interval.ms": str(2**31)}, ErrorCode.INVALID_CONFIG),
        ({"nonsense": "1"}, ErrorCode.INVALID_REQUEST),
        ({"match": "client_id=["}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=" + "(" * 20_000}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_name=a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"metrics": None}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_client_metrics_may_not_have(configs, code):
    assert refusal(validate_client_metrics_configs, configs).code == code


def test_what_groups_and_client_metrics_may_have():
    validate_group_configs(
        {"consumer.session.timeout.ms": "45000", "share.auto.offset.reset": "by_duration:PT1H"}
    )
    validate_client_metrics_configs(
        {"interval.ms": "100", "metrics": "*", "match": "client_id=[[a].*,client_source_port=1"}
    )
