"""Configurations that are changed and described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from controller_cluster import Cluster, incarnation, topic_id
from quorate.controller.config_descriptions import BROKER_LOGGER, describe_resource
from quorate.controller.config_of_brokers import LISTED
from quorate.controller.configs import (
    Operation,
    clear_elr_records,
    decide_alter_configs,
    decide_incremental_alter_configs,
    topic_config_entries,
)
from quorate.controller.decision import RECORDS_MAX
from quorate.controller.settings import GROUP_BOUNDS, Bounds
from quorate.metadata.image import BROKER, CLIENT_METRICS, CLUSTER_DEFAULT, GROUP, TOPIC, Resource
from quorate.metadata.partitions import Partition
from quorate.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
)
from quorate.protocol.api.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode

SET, DELETE, APPEND, SUBTRACT = Operation
NONE = ErrorCode.NONE
A: Resource = (TOPIC, "a")
NODE_ID = 3000  # of the controller that decides
SECRET = "s3cret"

Asked = tuple[Resource, Mapping[str, Any]]


def change(
    cluster: Cluster, *asked: Asked, validate_only: bool = False
) -> dict[Resource, tuple[ErrorCode, str | None]]:
    """What is said about each resource: a value is set, None deletes, a pair is another operation."""
    resource_of = IncrementalAlterConfigsRequest.AlterConfigsResource
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource_of(
                resource_type=kind,
                resource_name=name,
                configs=[
                    resource_of.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, given in configs.items()
                    for operation, value in [_operation(given)]
                ],
            )
            for (kind, name), configs in asked
        ],
        validate_only=validate_only,
    )
    decision = cluster.decide(decide_incremental_alter_configs, request)
    assert isinstance(decision.reply, IncrementalAlterConfigsResponse)
    assert decision.is_atomic
    encode(decision.reply, 1)
    return said(decision.reply)


def replace(
    cluster: Cluster, *asked: Asked, validate_only: bool = False
) -> dict[Resource, tuple[ErrorCode, str | None]]:
    resource_of = AlterConfigsRequest.Resource
    request = AlterConfigsRequest(
        resources=[
            resource_of(
                resource_type=kind,
                resource_name=name,
                configs=[
                    resource_of.AlterableConfig(name=key, value=value) for key, value in configs.items()
                ],
            )
            for (kind, name), configs in asked
        ],
        validate_only=validate_only,
    )
    decision = cluster.decide(decide_alter_configs, request)
    assert isinstance(decision.reply, AlterConfigsResponse)
    assert decision.is_atomic
    encode(decision.reply, 2)
    return said(decision.reply)


def _operation(given: Any) -> tuple[int, str | None]:
    if isinstance(given, tuple):
        return given
    return (DELETE, None) if given is None else (SET, given)


def said(
    reply: AlterConfigsResponse | IncrementalAlterConfigsResponse,
) -> dict[Resource, tuple[ErrorCode, str | None]]:
    answers = {
        (one.resource_type, one.resource_name): (ErrorCode(one.error_code), one.error_message)
        for one in reply.responses
    }
    assert len(answers) == len(reply.responses)
    assert all((code == NONE) == (message is None) for code, message in answers.values())
    return answers


def refused(cluster: Cluster, resource: Resource, configs: Mapping[str, Any]) -> tuple[ErrorCode, str]:
    """The error and its message; nothing must come of it."""
    before = cluster.next_offset
    code, message = change(cluster, (resource, configs))[resource]
    assert cluster.next_offset == before
    assert message is not None
    return code, message


def written(cluster: Cluster, since: int) -> list[tuple[Resource, str, str | None] | ClearElrRecord]:
    return [
        ((one.resource_type, one.resource_name), one.name, one.value)
        if isinstance(one, ConfigRecord)
        else one
        for one in cluster.records[since:]
        if isinstance(one, ConfigRecord | ClearElrRecord)
    ]


def give(cluster: Cluster, resource: Resource, **configs: str) -> None:
    """Makes a resource have configurations, without asking anyone."""
    for name, value in configs.items():
        cluster.apply(
            ConfigRecord(
                resource_type=resource[0],
                resource_name=resource[1],
                name=name.replace("_", "."),
                value=value,
            )
        )


def controller(controller_id: int) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller_id,
        incarnation_id=incarnation(controller_id),
        zk_migration_ready=False,
        end_points=[],
        features=[],
    )


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1 to 3, topics a and b."""
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3]], "a")
    cluster.create(2, [[1, 2, 3]], "b")
    return cluster


@pytest.fixture
def with_elr() -> Cluster:
    """Topics a and b, of which one replica each is in sync, and another eligible; as it must be, there is a
    min.insync.replicas for all brokers."""
    cluster = Cluster([1, 2, 3], elr=True)
    give(cluster, CLUSTER_DEFAULT, min_insync_replicas="2")
    for number, name in ((1, "a"), (2, "b")):
        partition = Partition(
            replicas=(1, 2, 3), directories=(), isr=(1,), leader=1, elr=(2,), last_known_leader=-1
        )
        cluster.create(number, [partition], name)
    return cluster


# Single keys


def test_values_are_set_and_deleted(cluster):
    assert change(cluster, (A, {"retention.ms": "5", "cleanup.policy": "compact"})) == {A: (NONE, None)}
    assert cluster.image.configs[A] == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert change(cluster, (A, {"retention.ms": None, "segment.ms": "7"})) == {A: (NONE, None)}
    assert cluster.image.configs[A] == {"cleanup.policy": "compact", "segment.ms": "7"}


def test_records_are_in_the_order_of_the_request(cluster):
    start = len(cluster.records)
    change(
        cluster, ((TOPIC, "b"), {"segment.ms": "1"}), (A, {"retention.ms": "2", "cleanup.policy": "compact"})
    )
    assert written(cluster, start) == [
        ((TOPIC, "b"), "segment.ms", "1"),
        (A, "retention.ms", "2"),
        (A, "cleanup.policy", "compact"),
    ]


def test_what_stays_the_same_is_not_written(cluster):
    give(cluster, A, retention_ms="5")
    before = cluster.next_offset
    assert change(cluster, (A, {"retention.ms": "5", "segment.ms": None})) == {A: (NONE, None)}
    assert cluster.next_offset == before


@pytest.mark.parametrize("resource", [CLUSTER_DEFAULT, (BROKER, "1")])
def test_for_brokers_it_is_written_so_that_they_read_files_again(cluster, resource):
    give(cluster, resource, log_retention_ms="5")
    start = len(cluster.records)
    assert change(cluster, (resource, {"log.retention.ms": "5", "log.roll.ms": None})) == {
        resource: (NONE, None)
    }
    assert written(cluster, start) == [(resource, "log.retention.ms", "5"), (resource, "log.roll.ms", None)]


LIST_OPERATIONS = [
    # before, operation, items, after
    ("delete", APPEND, "compact", "delete,compact"),
    ("delete,compact", APPEND, "compact", "delete,compact"),
    (None, APPEND, "compact", "delete,compact"),
    ("delete", APPEND, "compact,delete,compact", "delete,compact"),
    ("delete,compact", SUBTRACT, "delete", "compact"),
    ("delete,compact", SUBTRACT, "delete,compact", ""),
    ("compact", SUBTRACT, "delete", "compact"),
    (None, SUBTRACT, "delete", ""),
    ("", APPEND, "compact", "compact"),
]


@pytest.mark.parametrize(("before", "operation", "items", "after"), LIST_OPERATIONS)
def test_items_of_a_list(cluster, before, operation, items, after):
    if before is not None:
        give(cluster, A, cleanup_policy=before)
    assert change(cluster, (A, {"cleanup.policy": (operation, items)})) == {A: (NONE, None)}
    assert cluster.image.configs[A]["cleanup.policy"] == after


def test_a_list_is_checked_after_its_items_were_added(cluster):
    code, message = refused(cluster, A, {"cleanup.policy": (APPEND, "burn")})
    assert (code, message.split(":")[0]) == (ErrorCode.INVALID_CONFIG, "cleanup.policy=delete,burn")


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize("resource", [A, (BROKER, "1"), (GROUP, "g"), (CLIENT_METRICS, "m")])
def test_what_is_not_a_list_has_no_items(cluster, resource, operation):
    names = {TOPIC: "retention.ms", BROKER: "log.retention.ms", GROUP: "share.isolation.level"}
    name = names.get(resource[0], "interval.ms")
    assert refused(cluster, resource, {name: (operation, "1")}) == (
        ErrorCode.INVALID_CONFIG,
        f"{name}: allowed is SET or DELETE, it is not a list",
    )
    assert refused(cluster, resource, {"nonsense": (operation, "1")})[0] == ErrorCode.INVALID_CONFIG


def test_lists_of_others_have_items_too(cluster):
    metrics, broker = (CLIENT_METRICS, "m"), (BROKER, "1")
    change(
        cluster,
        (metrics, {"metrics": (APPEND, "a,b")}),
        (broker, {"ssl.enabled.protocols": (SUBTRACT, "TLSv1.2")}),
    )
    assert cluster.image.configs[metrics] == {"metrics": "a,b"}
    assert cluster.image.configs[broker] == {"ssl.enabled.protocols": "TLSv1.3"}


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"retention.ms": (SET, None)}, "retention.ms: allowed is a value, not null, for SET"),
        ({"cleanup.policy": (APPEND, None)}, "cleanup.policy: allowed is a value, not null, for APPEND"),
        ({"retention.ms": (4, "1")}, "operation 4: allowed are SET 0, DELETE 1, APPEND 2, SUBTRACT 3"),
        ({"retention.ms": (-1, "1")}, "operation -1: allowed are SET 0, DELETE 1, APPEND 2, SUBTRACT 3"),
        ({"": "1"}, "a configuration without a name"),
    ],
)
def test_what_cannot_be_asked(cluster, configs, message):
    assert refused(cluster, A, configs) == (ErrorCode.INVALID_REQUEST, message)


def test_a_key_twice(cluster):
    config = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="a",
                configs=[config(name="retention.ms", config_operation=SET, value=str(one)) for one in (1, 2)],
            )
        ],
        validate_only=False,
    )
    decision = cluster.decide(decide_incremental_alter_configs, request)
    assert said(decision.reply) == {
        A: (ErrorCode.INVALID_REQUEST, "retention.ms stands more than once in the request")
    }
    assert not decision.records


def test_a_resource_twice_is_changed_by_neither(cluster):
    answers = change(
        cluster, (A, {"retention.ms": "1"}), ((TOPIC, "b"), {"retention.ms": "2"}), (A, {"segment.ms": "3"})
    )
    assert answers == {
        A: (ErrorCode.INVALID_REQUEST, "the resource stands more than once in the request"),
        (TOPIC, "b"): (NONE, None),
    }
    assert set(cluster.image.configs) == {(TOPIC, "b")}


def test_one_bad_key_fails_its_resource_and_no_other(cluster):
    answers = change(
        cluster,
        (A, {"retention.ms": "5", "segment.ms": "never"}),
        ((TOPIC, "b"), {"retention.ms": "5"}),
        ((TOPIC, "nowhere"), {"retention.ms": "5"}),
    )
    assert answers[A] == (ErrorCode.INVALID_CONFIG, "segment.ms=never: allowed is a number from 1 on")
    assert answers[TOPIC, "b"] == (NONE, None)
    assert answers[TOPIC, "nowhere"] == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic nowhere")
    assert cluster.image.configs == {(TOPIC, "b"): {"retention.ms": "5"}}


def test_validating_changes_nothing(cluster):
    before = cluster.next_offset
    assert change(cluster, (A, {"retention.ms": "5"}), validate_only=True) == {A: (NONE, None)}
    code, _ = change(cluster, (A, {"retention.ms": "soon"}), validate_only=True)[A]
    assert code == ErrorCode.INVALID_CONFIG
    assert cluster.next_offset == before


def test_there_is_a_limit_to_what_one_request_may_ask(cluster):
    def ask(count):
        return change(cluster, ((BROKER, "1"), {f"key.{number}": "1" for number in range(count)}))

    with pytest.raises(ApiError) as caught:
        ask(RECORDS_MAX + 1)
    assert caught.value.code == ErrorCode.POLICY_VIOLATION
    assert ask(RECORDS_MAX) == {(BROKER, "1"): (NONE, None)}


def test_an_empty_request(cluster):
    assert change(cluster) == {}
    assert change(cluster, (A, {})) == {A: (NONE, None)}


# Resources


RESOURCES = [
    ((TOPIC, ""), ErrorCode.INVALID_REQUEST, "a resource without a name: only brokers have a default of all"),
    ((TOPIC, "a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "only, unlike 'a/b'"),
    ((TOPIC, "nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic nowhere"),
    ((BROKER, "one"), ErrorCode.INVALID_REQUEST, "broker 'one': allowed is the id of a broker, or nothing"),
    ((BROKER, "-1"), ErrorCode.INVALID_REQUEST, "broker '-1': allowed is the id of a broker, or nothing"),
    ((BROKER, "1.0"), ErrorCode.INVALID_REQUEST, "broker '1.0': allowed is the id of a broker, or nothing"),
    ((BROKER, "9" * 30), ErrorCode.INVALID_REQUEST, "allowed is the id of a broker, or nothing"),
    ((BROKER, "٣"), ErrorCode.INVALID_REQUEST, "allowed is the id of a broker, or nothing"),
    ((BROKER, "4"), ErrorCode.BROKER_ID_NOT_REGISTERED, "there is no broker or controller 4"),
    ((BROKER_LOGGER, "1"), ErrorCode.INVALID_REQUEST, "loggers are each node's own: ask the node itself"),
    ((GROUP, ""), ErrorCode.INVALID_REQUEST, "a resource without a name: only brokers have a default of all"),
    ((CLIENT_METRICS, ""), ErrorCode.INVALID_REQUEST, "a resource without a name"),
    ((0, "x"), ErrorCode.UNSUPPORTED_VERSION, "there is no resource type 0"),
    ((64, "x"), ErrorCode.UNSUPPORTED_VERSION, "there is no resource type 64"),
]


@pytest.mark.parametrize(("resource", "code", "message"), RESOURCES)
def test_resources_that_cannot_have_configurations(cluster, resource, code, message):
    found, text = refused(cluster, resource, {})
    assert found == code
    assert message in text
    assert replace(cluster, (resource, {}))[resource] == (code, text)


@pytest.mark.parametrize("name", ["1", str(NODE_ID), "3001", "3002"])
def test_brokers_and_controllers_can_have_configurations(cluster, name):
    cluster.fence(1)
    cluster.apply(controller(3001))
    resource = (BROKER, name)
    cluster.voters = (3002,)
    assert change(cluster, (resource, {"log.retention.ms": "5"})) == {resource: (NONE, None)}
    assert cluster.image.configs[resource] == {"log.retention.ms": "5"}


@pytest.mark.parametrize(
    ("resource", "configs"),
    [
        ((GROUP, "nobody yet"), {"consumer.session.timeout.ms": "50000"}),
        ((CLIENT_METRICS, "new"), {"interval.ms": "1000", "metrics": "*", "match": "client_id=a.*"}),
        (CLUSTER_DEFAULT, {"log.retention.ms": "5", "of.a.plugin": "anything"}),
        ((BROKER, "2"), {"ssl.keystore.password": SECRET, "listener.name.x.ssl.key.password": SECRET}),
    ],
)
def test_configurations_of_others_than_topics(cluster, resource, configs):
    assert change(cluster, (resource, configs)) == {resource: (NONE, None)}
    assert cluster.image.configs[resource] == configs
    assert change(cluster, (resource, dict.fromkeys(configs))) == {resource: (NONE, None)}
    assert resource not in cluster.image.configs


@pytest.mark.parametrize(
    ("resource", "configs", "code"),
    [
        (A, {"nonsense": "1"}, ErrorCode.INVALID_CONFIG),
        (A, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, ErrorCode.INVALID_CONFIG),
        (A, {"remote.storage.enable": "true"}, ErrorCode.INVALID_CONFIG),
        (A, {"retention.ms": "1" * 32_768}, ErrorCode.INVALID_CONFIG),
        ((GROUP, "g"), {"nonsense": "1"}, ErrorCode.INVALID_CONFIG),
        ((GROUP, "g"), {"consumer.session.timeout.ms": "1"}, ErrorCode.INVALID_CONFIG),
        ((CLIENT_METRICS, "m"), {"nonsense": "1"}, ErrorCode.INVALID_REQUEST),
        ((CLIENT_METRICS, "m"), {"interval.ms": "1"}, ErrorCode.INVALID_REQUEST),
        ((CLIENT_METRICS, "m"), {"interval.ms": "bbb"}, ErrorCode.INVALID_CONFIG),
        ((CLIENT_METRICS, "m"), {"match": "nobody=1"}, ErrorCode.INVALID_CONFIG),
        (CLUSTER_DEFAULT, {"log.retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        (CLUSTER_DEFAULT, {"ssl.keystore.password": SECRET}, ErrorCode.INVALID_CONFIG),
        ((BROKER, "1"), {"of.a.plugin": "x" * 32_768}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_resources_may_not_have(cluster, resource, configs, code):
    assert refused(cluster, resource, configs)[0] == code


def test_groups_have_what_the_bounds_of_the_controller_allow():
    bounds = GROUP_BOUNDS | {"consumer.session.timeout.ms": Bounds(1_000, 60_000, 6_000)}
    cluster = Cluster(group_bounds=bounds)
    group = (GROUP, "g")
    assert change(cluster, (group, {"consumer.session.timeout.ms": "10000"})) == {group: (NONE, None)}
    assert change(cluster, (group, {"consumer.heartbeat.interval.ms": "9000"})) == {group: (NONE, None)}
    code, message = refused(cluster, group, {"consumer.session.timeout.ms": None})
    assert code == ErrorCode.INVALID_CONFIG
    assert message == (
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms."
        " consumer.session.timeout.ms=6000: allowed is more than 9000"
    )


def test_a_topic_that_has_what_is_no_longer_known_can_be_changed(cluster):
    give(cluster, A, message_format_version="2.8")
    assert change(cluster, (A, {"retention.ms": "5"})) == {A: (NONE, None)}
    assert refused(cluster, A, {"message.format.version": "3.0"})[0] == ErrorCode.INVALID_CONFIG
    assert change(cluster, (A, {"message.format.version": None})) == {A: (NONE, None)}
    assert cluster.image.configs[A] == {"retention.ms": "5"}


def test_values_are_checked_together_with_those_that_stay(cluster):
    change(cluster, (A, {"max.compaction.lag.ms": "5"}))
    assert refused(cluster, A, {"min.compaction.lag.ms": "6"})[0] == ErrorCode.INVALID_CONFIG
    assert change(cluster, (A, {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": None}))[A][0] == NONE


def test_values_are_checked_against_what_the_file_says():
    cluster = Cluster([1], topic_defaults={"max.compaction.lag.ms": "5"})
    cluster.create(1, [[1]], "a")
    assert refused(cluster, A, {"min.compaction.lag.ms": "6"})[0] == ErrorCode.INVALID_CONFIG


def test_secrets_are_not_in_messages(cluster):
    for resource in (CLUSTER_DEFAULT, (BROKER, "one"), (BROKER, "9")):
        _, message = refused(cluster, resource, {"ssl.keystore.password": SECRET})
        assert SECRET not in message
    _, message = refused(cluster, (BROKER, "1"), {"ssl.keystore.password": SECRET * 10_000})
    assert SECRET not in message


CORDON = "cordoned.log.dirs"


@pytest.mark.parametrize(
    ("level", "value", "code"),
    [(29, "/a", ErrorCode.INVALID_CONFIG), (29, "", ErrorCode.INVALID_CONFIG), (30, "/a", NONE)],
)
def test_directories_can_be_cordoned_from_a_level_on(level, value, code):
    cluster = Cluster([1], metadata_version=level)
    cluster.is_forwarded = True
    found, message = change(cluster, ((BROKER, "1"), {CORDON: value}))[BROKER, "1"]
    assert found == code
    assert not code or message == (
        f"The {CORDON} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
    )


@pytest.mark.parametrize(
    ("before", "asked", "code"),
    [
        ("", "/a", ErrorCode.INVALID_CONFIG),
        ("/a", "/b", ErrorCode.INVALID_CONFIG),
        ("/a", "*", ErrorCode.INVALID_CONFIG),
        ("/a, /b", "/b", NONE),
        ("/a,/b", "/b,/a", NONE),
        ("/a", "", NONE),
        ("/a", None, NONE),
        ("", " ", NONE),
    ],
)
def test_who_asks_a_controller_can_only_uncordon(before, asked, code):
    cluster = Cluster([1])
    cluster.apply(ConfigRecord(resource_type=BROKER, resource_name="1", name=CORDON, value=before))
    found, message = change(cluster, ((BROKER, "1"), {CORDON: asked}))[BROKER, "1"]
    assert found == code
    assert not code or message == (
        f"When updating {CORDON} via controllers,  the new value must be a subset of the current"
        " configuration value."
    )


# All keys at once


def test_a_resource_gets_other_configurations(cluster):
    give(cluster, A, retention_ms="1", segment_ms="2", cleanup_policy="compact")
    start = len(cluster.records)
    assert replace(cluster, (A, {"retention.ms": "1", "segment.ms": "3", "max.message.bytes": "4"})) == {
        A: (NONE, None)
    }
    assert written(cluster, start) == [
        (A, "segment.ms", "3"),
        (A, "max.message.bytes", "4"),
        (A, "cleanup.policy", None),
    ]
    assert cluster.image.configs[A] == {"retention.ms": "1", "segment.ms": "3", "max.message.bytes": "4"}


def test_a_resource_loses_its_configurations(cluster):
    give(cluster, A, retention_ms="1", segment_ms="2")
    assert replace(cluster, (A, {}), validate_only=True) == {A: (NONE, None)}
    assert A in cluster.image.configs
    assert replace(cluster, (A, {})) == {A: (NONE, None)}
    assert A not in cluster.image.configs


def test_brokers_get_the_same_configurations_again(cluster):
    resource = (BROKER, "1")
    give(cluster, resource, log_retention_ms="1", log_roll_ms="2")
    start = len(cluster.records)
    replace(cluster, (resource, {"log.retention.ms": "1"}))
    assert written(cluster, start) == [(resource, "log.retention.ms", "1"), (resource, "log.roll.ms", None)]


def test_replacing_fails_by_resource_too(cluster):
    answers = replace(
        cluster,
        (A, {"retention.ms": "soon"}),
        ((TOPIC, "b"), {"retention.ms": None}),
        ((TOPIC, "nowhere"), {"retention.ms": "1"}),
        ((GROUP, "g"), {"consumer.session.timeout.ms": "50000"}),
        (CLUSTER_DEFAULT, {"log.roll.ms": "1"}),
        (CLUSTER_DEFAULT, {"log.roll.ms": "2"}),
    )
    assert {resource: code for resource, (code, _) in answers.items()} == {
        A: ErrorCode.INVALID_CONFIG,
        (TOPIC, "b"): ErrorCode.INVALID_REQUEST,
        (TOPIC, "nowhere"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (GROUP, "g"): NONE,
        CLUSTER_DEFAULT: ErrorCode.INVALID_REQUEST,
    }
    assert set(cluster.image.configs) == {(GROUP, "g")}


# Eligible leader replicas


def elr_of(cluster: Cluster, number: int) -> tuple[int, ...]:
    return cluster.partition(number).elr


@pytest.mark.parametrize("value", ["1", "3", None])
def test_a_topic_that_changes_how_many_must_be_in_sync_forgets_who_is_eligible(with_elr, value):
    give(with_elr, A, min_insync_replicas="2")
    start, epoch = len(with_elr.records), with_elr.partition(1).partition_epoch
    assert change(with_elr, (A, {"min.insync.replicas": value, "retention.ms": "5"})) == {A: (NONE, None)}
    assert written(with_elr, start) == [
        (A, "min.insync.replicas", value),
        (A, "retention.ms", "5"),
        ClearElrRecord(topic_name="a"),
    ]
    assert (elr_of(with_elr, 1), elr_of(with_elr, 2)) == ((), (2,))
    assert with_elr.partition(1).partition_epoch == epoch + 1


def test_all_topics_forget_when_it_changes_for_all_brokers(with_elr):
    start = len(with_elr.records)
    change(with_elr, (CLUSTER_DEFAULT, {"min.insync.replicas": "3"}), (A, {"min.insync.replicas": "2"}))
    assert written(with_elr, start) == [
        (CLUSTER_DEFAULT, "min.insync.replicas", "3"),
        (A, "min.insync.replicas", "2"),
        ClearElrRecord(topic_name=""),
        ClearElrRecord(topic_name="a"),
    ]
    assert (elr_of(with_elr, 1), elr_of(with_elr, 2)) == ((), ())


@pytest.mark.parametrize("configs", [{"retention.ms": "5"}, {"min.insync.replicas": None}])
def test_nobody_forgets_what_does_not_change(with_elr, configs):
    start = len(with_elr.records)
    change(with_elr, (A, configs))
    assert not any(isinstance(one, ClearElrRecord) for one in with_elr.records[start:])
    assert elr_of(with_elr, 1) == (2,)


def test_replacing_forgets_too(with_elr):
    give(with_elr, A, min_insync_replicas="2")
    start = len(with_elr.records)
    replace(with_elr, (A, {}))
    assert written(with_elr, start) == [(A, "min.insync.replicas", None), ClearElrRecord(topic_name="a")]


def test_only_validating_forgets_nothing(with_elr):
    change(with_elr, (A, {"min.insync.replicas": "3"}), validate_only=True)
    assert elr_of(with_elr, 1) == (2,)


def test_a_single_broker_cannot_have_its_own_bound(with_elr):
    for value in ("1", None):
        code, message = refused(with_elr, (BROKER, "1"), {"min.insync.replicas": value})
        assert (code, "single broker" in message) == (ErrorCode.INVALID_CONFIG, True)


def test_the_bound_of_all_brokers_cannot_be_deleted(with_elr):
    code, message = refused(with_elr, CLUSTER_DEFAULT, {"min.insync.replicas": None})
    assert (code, "is needed" in message) == (ErrorCode.INVALID_CONFIG, True)
    assert (
        replace(with_elr, (CLUSTER_DEFAULT, {"log.roll.ms": "1"}))[CLUSTER_DEFAULT][0]
        == ErrorCode.INVALID_CONFIG
    )
    answers = replace(with_elr, (CLUSTER_DEFAULT, {"log.roll.ms": "1", "min.insync.replicas": "2"}))
    assert answers[CLUSTER_DEFAULT][0] == NONE


def test_without_eligible_leader_replicas_all_of_that_is_allowed(cluster):
    one = (BROKER, "1")
    start = len(cluster.records)
    for resource in (A, one, CLUSTER_DEFAULT):
        for value in ("2", None):
            assert change(cluster, (resource, {"min.insync.replicas": value})) == {resource: (NONE, None)}
    assert not any(isinstance(record, ClearElrRecord) for record in cluster.records[start:])
    assert (
        clear_elr_records(
            cluster.image,
            [ConfigRecord(resource_type=TOPIC, resource_name="a", name="min.insync.replicas", value="1")],
        )
        == []
    )


# Descriptions


def describe(
    cluster: Cluster, *resources: Resource, keys: list[str] | None = None, synonyms: bool = True
) -> list[DescribeConfigsResponse.Result]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ],
        include_synonyms=synonyms,
    )
    results = [
        describe_resource(cluster.image, cluster.settings, one, request, lambda: {"root": "INFO"})
        for one in request.resources
    ]
    response = DescribeConfigsResponse(throttle_time_ms=0, results=results)
    for version in range(1, 5):
        encode(response, version)
    return results


def values(result: DescribeConfigsResponse.Result) -> dict[str, tuple[str | None, int]]:
    assert result.error_code == NONE
    return {one.name: (one.value, one.config_source) for one in result.configs}


def synonyms(result: DescribeConfigsResponse.Result, name: str) -> list[tuple[str, str | None, int]]:
    (found,) = [one for one in result.configs if one.name == name]
    return [(one.name, one.value, one.source) for one in found.synonyms]


def test_where_the_value_of_a_topic_comes_from():
    cluster = Cluster([1], topic_defaults={"retention.ms": "4"})
    cluster.create(1, [[1]], "a")
    expected: list[tuple[str, str, int]] = []
    steps = [
        (None, ("4", 4), ("log.retention.ms", "4", 4)),
        (CLUSTER_DEFAULT, ("3", 3), ("log.retention.ms", "3", 3)),
        ((BROKER, str(NODE_ID)), ("2", 2), ("log.retention.ms", "2", 2)),
        (A, ("1", 1), ("retention.ms", "1", 1)),
    ]
    for resource, value, synonym in steps:
        if resource == A:
            give(cluster, A, retention_ms="1")
        elif resource is not None:
            give(cluster, resource, log_retention_ms=value[0])
        give(cluster, (BROKER, "1"), log_retention_ms="9")  # of another node
        expected.insert(0, synonym)
        (result,) = describe(cluster, A)
        assert values(result)["retention.ms"] == value
        assert synonyms(result, "retention.ms") == expected


def test_a_value_that_nobody_gave_is_the_default(cluster):
    (result,) = describe(cluster, A)
    assert values(result)["retention.ms"] == ("604800000", 5)
    assert synonyms(result, "max.message.bytes") == [("message.max.bytes", "1048588", 5)]
    assert synonyms(result, "retention.ms") == []
    assert synonyms(result, "remote.storage.enable") == []


def test_hours_and_minutes_become_milliseconds(cluster):
    give(cluster, CLUSTER_DEFAULT, log_retention_hours="2", log_retention_minutes="3", log_roll_hours="1")
    (result,) = describe(cluster, A)
    assert values(result)["retention.ms"] == ("180000", 3)
    assert values(result)["segment.ms"] == ("3600000", 3)
    assert synonyms(result, "retention.ms") == [
        ("log.retention.minutes", "3", 3),
        ("log.retention.hours", "2", 3),
    ]


def test_what_the_file_says_stands_there_as_it_says_it():
    cluster = Cluster(
        [1],
        topic_defaults={"retention.ms": "7200000"},
        properties={"log.retention.hours": "2", "node.id": "1"},
    )
    cluster.create(1, [[1]], "a")
    (result,) = describe(cluster, A)
    assert values(result)["retention.ms"] == ("7200000", 4)
    assert synonyms(result, "retention.ms") == [("log.retention.hours", "2", 4)]


def test_a_log_of_someone_less_strict_can_be_described(cluster):
    give(cluster, CLUSTER_DEFAULT, log_retention_hours="a while")
    (result,) = describe(cluster, A)
    assert values(result)["retention.ms"] == ("a while", 3)


def test_a_topic_shows_everything_but_what_is_internal(cluster):
    (result,) = describe(cluster, A)
    assert len(result.configs) == 33
    assert "internal.segment.bytes" not in values(result)
    give(cluster, A, internal_segment_bytes="1000")
    (result,) = describe(cluster, A)
    assert values(result)["internal.segment.bytes"] == ("1000", 1)
    policy = result.configs[0]
    assert (policy.name, policy.config_type, policy.read_only, policy.is_sensitive) == (
        "cleanup.policy",
        7,
        False,
        False,
    )
    assert policy.documentation is None


@pytest.mark.parametrize("keys", [["retention.ms"], ["retention.ms", "nonsense"]])
def test_only_the_keys_that_are_asked_for(cluster, keys):
    (result,) = describe(cluster, A, keys=keys)
    assert list(values(result)) == ["retention.ms"]


def test_no_keys_are_all_keys_and_synonyms_come_only_if_wanted(cluster):
    (result,) = describe(cluster, A, keys=[], synonyms=False)
    assert len(result.configs) == 33
    assert all(not one.synonyms for one in result.configs)


def test_a_node_describes_itself_with_its_file_and_its_defaults():
    me, file = (
        str(NODE_ID),
        {"node.id": str(NODE_ID), "log.roll.ms": "4", "delegation.token.secret.key": SECRET},
    )
    cluster = Cluster([1], properties=file)
    give(cluster, CLUSTER_DEFAULT, log_roll_ms="1", log_cleaner_threads="2", of_a_plugin=SECRET)
    give(cluster, (BROKER, me), log_roll_ms="3", sasl_jaas_config=SECRET, node_id="7")
    default, mine = describe(cluster, CLUSTER_DEFAULT, (BROKER, me))
    assert values(default) == {
        "log.cleaner.threads": ("2", 3),
        "log.roll.ms": ("1", 3),
        "of.a.plugin": (None, 3),
    }
    assert values(mine).keys() == LISTED | file.keys() | values(default).keys()
    expected = {
        "log.roll.ms": ("3", 2),
        "log.cleaner.threads": ("2", 3),
        "of.a.plugin": (None, 3),
        "sasl.jaas.config": (None, 2),
        "node.id": (me, 4),  # that takes a restart, so what was set for it counts for nothing
        "delegation.token.secret.key": (None, 4),
        "num.partitions": ("1", 5),
        "broker.rack": (None, 5),
    }
    assert expected.items() <= values(mine).items()
    assert synonyms(mine, "log.roll.ms") == [
        ("log.roll.ms", "3", 2),
        ("log.roll.ms", "1", 3),
        ("log.roll.ms", "4", 4),
        ("log.roll.hours", "168", 5),
    ]
    assert synonyms(mine, "log.cleaner.threads")[-1] == ("log.cleaner.threads", "1", 5)
    sensitive = {each.name for each in mine.configs if each.is_sensitive}
    assert {"of.a.plugin", "sasl.jaas.config", "delegation.token.secret.key"} <= sensitive
    read_only = {each.name for each in mine.configs if each.read_only}
    assert {"of.a.plugin", "node.id", "num.partitions"} <= read_only
    assert read_only.isdisjoint({"log.roll.ms", "log.cleaner.threads", "sasl.jaas.config"})
    assert SECRET not in repr(mine) + repr(default)


def test_a_node_describes_no_other(cluster):
    other, none, logger = describe(cluster, (BROKER, "1"), (BROKER, "one"), (BROKER_LOGGER, "1"))
    assert other.error_message == f"Unexpected broker id, expected {NODE_ID} or empty string, but received 1"
    assert none.error_message == "Broker id must be an integer, but it is: one"
    assert logger.error_message == f"Unexpected broker id, expected {NODE_ID} but received 1"
    assert {one.error_code for one in (other, none, logger)} == {ErrorCode.INVALID_REQUEST}


def test_a_node_describes_its_loggers(cluster):
    (result,) = describe(cluster, (BROKER_LOGGER, str(NODE_ID)))
    assert values(result) == {"root": ("INFO", 6)}


def test_groups_and_client_metrics(cluster):
    give(cluster, CLUSTER_DEFAULT, group_consumer_assignment_interval_ms="7")
    give(cluster, (GROUP, "g"), consumer_session_timeout_ms="50000")
    give(cluster, (CLIENT_METRICS, "m"), metrics="a")
    group, other, metrics = describe(cluster, (GROUP, "g"), (GROUP, "h"), (CLIENT_METRICS, "m"))
    assert values(group)["consumer.session.timeout.ms"] == ("50000", 8)
    assert synonyms(group, "consumer.session.timeout.ms")[1] == (
        "group.consumer.session.timeout.ms",
        "45000",
        5,
    )
    assert values(other)["consumer.session.timeout.ms"] == ("45000", 5)
    assert values(other)["consumer.assignment.interval.ms"] == ("7", 3)
    assert synonyms(other, "share.isolation.level") == [("share.isolation.level", "read_uncommitted", 5)]
    assert values(metrics) == {"interval.ms": ("300000", 5), "match": ("", 5), "metrics": ("a", 7)}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((TOPIC, "nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, ""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ((BROKER, "one"), ErrorCode.INVALID_REQUEST),
        ((BROKER_LOGGER, "1"), ErrorCode.INVALID_REQUEST),
        ((GROUP, ""), ErrorCode.INVALID_REQUEST),
        ((CLIENT_METRICS, ""), ErrorCode.INVALID_REQUEST),
        ((99, "x"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(cluster, resource, code):
    bad, good = describe(cluster, resource, A)
    assert (bad.error_code, bad.configs) == (code, [])
    assert bad.error_message
    assert (bad.resource_type, bad.resource_name) == resource
    assert good.error_code == NONE


def test_what_a_new_topic_is_told(cluster):
    give(cluster, CLUSTER_DEFAULT, min_insync_replicas="2")
    entries = topic_config_entries(cluster.image, cluster.settings, {"retention.ms": "5"})
    assert [one.name for one in entries] == sorted(one.name for one in entries)
    found = {one.name: (one.value, one.config_source, one.read_only, one.is_sensitive) for one in entries}
    assert found["retention.ms"] == ("5", 1, False, False)
    assert found["min.insync.replicas"] == ("2", 3, False, False)
    assert found["segment.ms"] == ("604800000", 5, False, False)
    assert len(found) == 33


def test_the_configurations_of_a_deleted_topic_are_gone(cluster):
    change(cluster, (A, {"retention.ms": "5"}))
    cluster.apply(RemoveTopicRecord(topic_id=topic_id(1)))
    (result,) = describe(cluster, A)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert A not in cluster.image.configs
