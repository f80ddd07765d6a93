"""What is set, where it comes from, and who may know."""

import logging

import pytest

from broker.test_forwarding import Forwarder
from broker.test_listeners import register
from broker.test_metadata import ANN, Asked
from controller_cluster import Cluster
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.handlers.describe import Describing
from quorate.broker.handlers.forwarding import Forwarding
from quorate.broker.handlers.security import Security
from quorate.broker.serving import Operation, ResourceKind
from quorate.controller.config_definitions import INTERNAL, TOPIC_CONFIGS
from quorate.controller.config_of_brokers import BROKER_KEYS, LISTED
from quorate.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from quorate.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    UserScramCredentialRecord,
)
from quorate.protocol.api.admin import (
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    ListConfigResourcesRequest,
)
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.security import DescribeAclsRequest, DescribeUserScramCredentialsRequest
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid

LOGGER = 8
FILE = {
    "node.id": "1",
    "log.dirs": "/data",
    "log.retention.hours": "24",
    "num.partitions": "4",
    "group.consumer.session.timeout.ms": "47000",
    "message.max.bytes": "2000000",
    "delegation.token.secret.key": "secret",
    "ssl.key.password": "secret",
    "somebody.elses.key": "secret, for all we know",
}
TOPIC_1, NODE, CLUSTER, STATIC, DEFAULT, OF_LOGGER, METRICS, OF_GROUP = range(1, 9)


class Known:
    """A broker, and a client that asks it what is set."""

    def __init__(self):
        self.cluster = Cluster()
        register(self.cluster, 1, [("PLAINTEXT", "one", 9092)])
        register(self.cluster, 2, [("PLAINTEXT", "two", 9092)], fenced=True)
        register(self.cluster, 3, [("INTERNAL", "three", 9092)])
        self.cluster.create(1, [[1]], name="orders")
        asked = Asked(
            self.cluster,
            topic_defaults={"retention.ms": "86400000", "max.message.bytes": "2000000"},
            has_authorizer=True,
        )
        self.broker = asked.broker
        self.broker.configs = DynamicConfig(1, FILE)
        routes = [*Describing(self.broker).routes(), *Security(self.broker, Forwarding(Forwarder())).routes()]
        self.handlers = {one.request: one.handler for one in routes}

    def set(self, kind, name, key, value):
        self.cluster.apply(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))
        self.broker.configs.update(self.cluster.image)

    def ask(self, request, version):
        header = RequestHeader(
            request_api_key=request.__key__, request_api_version=version, correlation_id=1, client_id="c"
        )
        response = self.handlers[type(request)](ANN, header, request)
        return decode(type(response), version, bytes(encode(response, version)))

    def describe(self, kind, name, *keys, version=4, synonyms=True, documentation=False):
        asked = DescribeConfigsRequest.Resource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        about = {"include_documentation": documentation} if version >= 3 else {}
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=synonyms, **about)
        (result,) = self.ask(request, version).results
        assert (result.resource_type, result.resource_name) == (kind, name)
        return result

    def entry(self, kind, name, key, **about):
        (entry,) = self.describe(kind, name, key, **about).configs
        assert entry.name == key
        return entry


@pytest.fixture
def known():
    return Known()


def given(entry):
    return [(one.name, one.value, one.source) for one in entry.synonyms]


# Topics


def test_the_topics_own_value_then_what_the_node_and_the_file_say(known):
    entry = known.entry(TOPIC, "orders", "retention.ms")
    assert (entry.value, entry.config_source) == ("86400000", STATIC)
    assert given(entry) == [("log.retention.hours", "24", STATIC)]
    known.set(BROKER, "", "log.retention.ms", "2000")
    assert known.entry(TOPIC, "orders", "retention.ms").config_source == CLUSTER
    known.set(BROKER, "1", "log.retention.ms", "1000")
    known.set(BROKER, "2", "log.retention.ms", "1")  # of another broker
    known.set(TOPIC, "orders", "retention.ms", "500")
    entry = known.entry(TOPIC, "orders", "retention.ms")
    assert (entry.value, entry.config_source) == ("500", TOPIC_1)
    assert [one.source for one in entry.synonyms] == [TOPIC_1, NODE, CLUSTER, STATIC]
    assert [one.value for one in entry.synonyms][:3] == ["500", "1000", "2000"]


@pytest.mark.parametrize("version", DescribeConfigsRequest.__served__)
def test_all_keys_or_some_in_every_version(known, version):
    everything = {one.name for one in known.describe(TOPIC, "orders", version=version).configs}
    assert "cleanup.policy" in everything
    assert everything <= set(TOPIC_CONFIGS)
    some = known.describe(TOPIC, "orders", "cleanup.policy", "segment.bytes", "nonsense", version=version)
    assert {one.name for one in some.configs} == {"cleanup.policy", "segment.bytes"}
    assert all(not one.synonyms for one in known.describe(TOPIC, "orders", synonyms=False).configs)


def test_topics_that_are_not_there(known):
    assert known.describe(TOPIC, "missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert known.describe(TOPIC, "bad name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# Brokers


def test_what_the_file_says_and_what_was_set_since(known):
    entry = known.entry(BROKER, "1", "message.max.bytes")
    assert (entry.value, entry.config_source, entry.read_only) == ("2000000", STATIC, False)
    known.set(BROKER, "", "message.max.bytes", "3000000")
    known.set(BROKER, "1", "message.max.bytes", "4000000")
    entry = known.entry(BROKER, "1", "message.max.bytes")
    assert (entry.value, entry.config_source, entry.config_type) == ("4000000", NODE, 3)
    assert given(entry) == [
        ("message.max.bytes", "4000000", NODE),
        ("message.max.bytes", "3000000", CLUSTER),
        ("message.max.bytes", "2000000", STATIC),
        ("message.max.bytes", "1048588", DEFAULT),
    ]


def test_what_a_running_broker_does_not_change_is_marked(known):
    entry = known.entry(BROKER, "1", "num.partitions")
    assert (entry.value, entry.config_source, entry.read_only) == ("4", STATIC, True)
    entry = known.entry(BROKER, "1", "default.replication.factor")
    assert (entry.value, entry.config_source, entry.read_only) == ("1", DEFAULT, True)
    entry = known.entry(BROKER, "1", "broker.rack")
    assert (entry.value, entry.config_source, entry.synonyms) == (None, DEFAULT, [])


@pytest.mark.parametrize("key", ["delegation.token.secret.key", "ssl.key.password", "somebody.elses.key"])
def test_secrets_are_not_told(known, key):
    known.set(BROKER, "1", key, "another secret")
    entry = known.entry(BROKER, "1", key)
    assert entry.is_sensitive
    assert entry.value is None
    assert {one.value for one in entry.synonyms} == {None}


def test_a_broker_has_all_that_it_knows_of_kafkas_and_all_that_is_set(known):
    names = {one.name for one in known.describe(BROKER, "1").configs}
    assert names == LISTED | FILE.keys()


def test_what_is_internal_is_shown_where_it_is_set(known):
    key = "max.decompressed.message.bytes"
    assert key in INTERNAL
    known.set(BROKER, "1", key, "512")
    assert known.entry(BROKER, "1", key).value == "512"


@pytest.mark.parametrize(
    "key",
    [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
@pytest.mark.parametrize(("name", "source"), [("1", NODE), ("", CLUSTER)])
def test_a_throttle_that_nobody_set_is_not_there(known, key, name, source):
    assert known.describe(BROKER, "1", key).configs == []
    known.set(BROKER, name, key, "1000")
    entry = known.entry(BROKER, "1", key)
    assert (entry.value, entry.config_source) == ("1000", source)
    known.set(BROKER, name, key, None)
    assert known.describe(BROKER, "1", key).configs == []


def test_what_is_ours_or_of_older_releases_is_there_if_it_is_set(known):
    keys = "inter.broker.protocol.version", "quorate.log.level"
    assert known.describe(BROKER, "1", *keys).configs == []
    known.broker.configs = DynamicConfig(1, FILE | dict.fromkeys(keys, "INFO"))
    told = Describing(known.broker)
    known.handlers = {one.request: one.handler for one in told.routes()}
    assert {one.name for one in known.describe(BROKER, "1", *keys).configs} == set(keys)


def test_what_is_set_about_tls_for_a_listener_without_it_is_there(known):
    with_tls, without = (f"listener.name.{one}.ssl.keystore.location" for one in ("ssl", "internal"))
    file = FILE | {"listeners": "SSL://:9092,INTERNAL://:9093"}
    known.broker.configs = DynamicConfig(1, file)
    known.handlers = {one.request: one.handler for one in Describing(known.broker).routes()}
    for key in (with_tls, without):
        known.set(BROKER, "1", key, "/keys")
    (entry,) = [one for one in known.describe(BROKER, "1", with_tls, without).configs if one.value]
    assert (entry.name, entry.value, entry.config_source) == (without, "/keys", NODE)
    key = "listener.name.internal.ssl.truststore.type"
    known.set(BROKER, "1", key, "PEM")
    assert given(known.entry(BROKER, "1", key)) == [
        (key, "PEM", NODE),
        ("ssl.truststore.type", "JKS", DEFAULT),
    ]


def test_what_is_read_only_is_what_takes_a_restart(known):
    entries = known.describe(BROKER, "1").configs
    dynamic = {one.name for one in entries if not one.read_only}
    assert dynamic == {name for name in LISTED if BROKER_KEYS[name].is_dynamic}
    assert {"log.retention.ms", "message.max.bytes", "min.insync.replicas", "max.connections"} <= dynamic
    assert dynamic.isdisjoint({"listeners", "node.id", "log.dirs", "num.partitions", "somebody.elses.key"})


def test_a_key_that_others_stand_in_for(known):
    key, of_file = "log.retention.ms", "log.retention.hours"
    entry = known.entry(BROKER, "1", key)
    assert (entry.value, entry.config_source, given(entry)) == (None, DEFAULT, [])
    known.set(BROKER, "", key, "1000")
    assert given(known.entry(BROKER, "1", key)) == [
        (key, "1000", CLUSTER),
        (of_file, "24", STATIC),
        (of_file, "168", DEFAULT),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "without"),
    [
        (TOPIC, "orders", set()),
        (BROKER, "1", {"somebody.elses.key"}),
        (GROUP, "g", set()),
        (CLIENT_METRICS, "m", set()),
    ],
)
def test_what_keys_are_for_is_told_if_asked(known, kind, name, without):
    told = known.describe(kind, name, documentation=True)
    assert {one.name for one in told.configs if not one.documentation} == without
    assert not any(one.documentation for one in known.describe(kind, name).configs)
    assert not any(
        one.documentation for one in known.describe(kind, name, documentation=True, version=2).configs
    )


def test_the_default_of_all_brokers_is_what_was_set_for_all(known):
    assert known.describe(BROKER, "").configs == []
    known.set(BROKER, "", "message.max.bytes", "3000000")
    known.set(BROKER, "1", "background.threads", "4")
    (entry,) = known.describe(BROKER, "").configs
    assert given(entry) == [("message.max.bytes", "3000000", CLUSTER)]


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "2"), (BROKER, "x"), (LOGGER, "2"), (LOGGER, "")])
def test_another_broker_must_be_asked_itself(known, kind, name):
    result = known.describe(kind, name)
    assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, [])


def test_levels_of_loggers(known):
    logger = logging.getLogger("quorate.describe.test")
    logger.setLevel(logging.WARNING)
    try:
        entry = known.entry(LOGGER, "1", "quorate.describe.test")
        assert (entry.value, entry.config_source, entry.read_only) == ("WARN", OF_LOGGER, False)
        assert {"root", "quorate"} <= {one.name for one in known.describe(LOGGER, "1").configs}
    finally:
        logger.setLevel(logging.NOTSET)


# Others


def test_groups_and_client_metrics(known):
    known.set(GROUP, "g", "consumer.session.timeout.ms", "50000")
    known.set(CLIENT_METRICS, "m", "interval.ms", "1000")
    entry = known.entry(GROUP, "g", "consumer.session.timeout.ms")
    assert (entry.value, entry.config_source) == ("50000", OF_GROUP)
    entry = known.entry(CLIENT_METRICS, "m", "interval.ms")
    assert (entry.value, entry.config_source) == ("1000", METRICS)


def test_what_the_file_says_of_groups_counts_before_the_default(known):
    key, of_file = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
    entry = known.entry(GROUP, "g", key)
    assert (entry.value, entry.config_source) == ("47000", STATIC)
    known.set(GROUP, "g", key, "50000")
    assert given(known.entry(GROUP, "g", key)) == [
        (key, "50000", OF_GROUP),
        (of_file, "47000", STATIC),
        (of_file, "45000", DEFAULT),
    ]


@pytest.mark.parametrize(("kind", "name"), [(99, "x"), (GROUP, ""), (CLIENT_METRICS, "")])
def test_what_has_no_configuration(known, kind, name):
    assert known.describe(kind, name).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "name", "right", "code"),
    [
        (TOPIC, "orders", (ResourceKind.TOPIC, "orders"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (GROUP, "g", (ResourceKind.GROUP, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (BROKER, "1", (ResourceKind.CLUSTER, "kafka-cluster"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (
            CLIENT_METRICS,
            "m",
            (ResourceKind.CLUSTER, "kafka-cluster"),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_who_may_know(known, kind, name, right, code):
    known.broker.forbidden.add((Operation.DESCRIBE_CONFIGS, *right))
    result = known.describe(kind, name)
    assert (result.error_code, result.configs) == (code, [])


def resources(known, *kinds, version=1):
    response = known.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)
    if response.error_code:
        return ErrorCode(response.error_code)
    return [(one.resource_type, one.resource_name) for one in response.config_resources]


def test_what_can_be_configured(known):
    known.set(GROUP, "g", "consumer.session.timeout.ms", "50000")
    known.set(CLIENT_METRICS, "m", "interval.ms", "1000")
    assert resources(known) == [
        (TOPIC, "orders"),
        (BROKER, "1"),
        (BROKER, "2"),
        (LOGGER, "1"),
        (LOGGER, "2"),
        (CLIENT_METRICS, "m"),
        (GROUP, "g"),
    ]
    assert resources(known, GROUP, TOPIC) == [(TOPIC, "orders"), (GROUP, "g")]
    assert resources(known, version=0) == [(CLIENT_METRICS, "m")]
    assert resources(known, TOPIC, 99) is ErrorCode.UNSUPPORTED_VERSION
    known.broker.forbidden.add((Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER, "kafka-cluster"))
    assert resources(known) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def quotas():
    return DescribeClientQuotasRequest(components=[], strict=False)


def scram():
    return DescribeUserScramCredentialsRequest(users=None)


def acls():
    return DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def test_quotas_credentials_and_access_rights_come_from_the_metadata(known):
    known.cluster.apply(
        ClientQuotaRecord(
            entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name="ann")],
            key="producer_byte_rate",
            value=10.0,
            remove=False,
        )
    )
    known.cluster.apply(
        UserScramCredentialRecord(
            name="ann", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
        )
    )
    known.cluster.apply(
        AccessControlEntryRecord(
            id=Uuid(b"an entry".ljust(16)),
            resource_type=2,
            resource_name="orders",
            pattern_type=3,
            principal="User:ann",
            host="*",
            operation=3,
            permission_type=3,
        )
    )
    (entry,) = known.ask(quotas(), 1).entries
    assert entry.values[0].value == 10.0
    (result,) = known.ask(scram(), 0).results
    assert result.user == "ann"
    (resource,) = known.ask(acls(), 3).resources
    assert resource.resource_name == "orders"


@pytest.mark.parametrize(
    ("request_", "version", "operation"),
    [
        (quotas(), 1, Operation.DESCRIBE_CONFIGS),
        (scram(), 0, Operation.DESCRIBE),
        (acls(), 3, Operation.DESCRIBE),
    ],
    ids=["quotas", "scram", "acls"],
)
def test_they_are_not_for_everybody(known, request_, version, operation):
    known.broker.forbidden.add((operation, ResourceKind.CLUSTER, "kafka-cluster"))
    assert known.ask(request_, version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
