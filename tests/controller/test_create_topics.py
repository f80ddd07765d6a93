"""Creating topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_cluster import Cluster, directory
from quorate.controller.decision import Decision
from quorate.controller.topics import decide_create_topics
from quorate.metadata.image import BROKER, TOPIC
from quorate.metadata.partitions import Partition
from quorate.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.protocol.api.topics import CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID

CreatableTopic = CreateTopicsRequest.CreatableTopic
Result = CreateTopicsResponse.CreatableTopicResult


def topic(
    name: str = "orders",
    partitions: int = -1,
    replicas: int = -1,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str | None] | Sequence[tuple[str, str | None]] = (),
) -> CreateTopicsRequest.CreatableTopic:
    pairs = configs.items() if isinstance(configs, Mapping) else configs
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableTopic.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in assignments
        ],
        configs=[CreatableTopic.CreatableTopicConfig(name=key, value=value) for key, value in pairs],
    )


def ask(
    cluster: Cluster, *topics: CreateTopicsRequest.CreatableTopic, api_version: int = 7, **request: Any
) -> Decision:
    asked = CreateTopicsRequest(topics=list(topics), **request)
    return cluster.decide(decide_create_topics, asked, api_version=api_version)


def results(decision: Decision) -> list[Result]:
    assert isinstance(decision.reply, CreateTopicsResponse)
    encode(decision.reply, 7)  # whatever it says, it can be said
    return decision.reply.topics


def create(cluster: Cluster, *topics: CreateTopicsRequest.CreatableTopic, **request: Any) -> list[Result]:
    return results(ask(cluster, *topics, **request))


def error(cluster: Cluster, asked: CreateTopicsRequest.CreatableTopic) -> tuple[ErrorCode, str]:
    """What a topic is refused with; nothing must come of it."""
    decision = ask(cluster, asked)
    (result,) = results(decision)
    assert decision.records == []
    assert (result.name, result.topic_id, result.num_partitions) == (asked.name, ZERO_UUID, -1)
    assert result.error_message
    return ErrorCode(result.error_code), result.error_message


def partitions(cluster: Cluster, name: str = "orders") -> list[Partition]:
    return [one for _, one in cluster.image.partitions_of(cluster.image.topics.by_name[name].id)]


# What is created


def test_a_topic_with_partitions_and_replicas() -> None:
    cluster = Cluster([1, 2, 3])
    (result,) = create(cluster, topic(partitions=6, replicas=3))
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == (6, 3)
    assert cluster.image.topics.by_name["orders"].id == result.topic_id != ZERO_UUID
    for one in partitions(cluster):
        assert sorted(one.replicas) == [1, 2, 3]
        assert one.isr == one.replicas
        assert one.leader == one.replicas[0]
        assert (one.leader_epoch, one.partition_epoch) == (0, 0)
        assert one.directories == tuple(map(directory, one.replicas))


def test_records_come_in_order_and_in_one_batch() -> None:
    cluster = Cluster([1])
    decision = ask(
        cluster,
        topic("a", 2, 1, configs={"retention.ms": "5", "cleanup.policy": "compact"}),
        topic("b", 1, 1),
    )
    assert decision.is_atomic
    assert [type(one) for one in decision.records] == [
        TopicRecord,
        ConfigRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
        TopicRecord,
        PartitionRecord,
    ]
    assert cluster.image.configs[TOPIC, "a"] == {"retention.ms": "5", "cleanup.policy": "compact"}


def test_what_is_left_open_is_as_configured_on_the_controller() -> None:
    cluster = Cluster([1, 2, 3], num_partitions=4, default_replication_factor=2)
    (result,) = create(cluster, topic())
    assert (result.num_partitions, result.replication_factor) == (4, 2)
    assert [len(one.replicas) for one in partitions(cluster)] == [2] * 4


def test_an_empty_request_creates_nothing() -> None:
    assert create(Cluster()) == []


def test_ids_are_new_and_none_begins_with_a_dash() -> None:
    cluster = Cluster([1])
    ids = {one.topic_id for one in create(cluster, *(topic(f"topic{n}", 1, 1) for n in range(500)))}
    assert len(ids) == 500
    assert not any(str(one).startswith("-") for one in ids)


def test_validating_tells_everything_and_writes_nothing() -> None:
    cluster = Cluster([1])
    decision = ask(cluster, topic(partitions=3, replicas=1), topic("..", 1, 1), validate_only=True)
    good, bad = results(decision)
    assert (good.error_code, good.num_partitions) == (ErrorCode.NONE, 3)
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not decision.records
    assert "orders" not in cluster.image.topics.by_name


def test_one_that_fails_does_not_keep_the_others_from_being_created() -> None:
    cluster = Cluster([1])
    codes = [one.error_code for one in create(cluster, topic("a", 1, 1), topic("b", 1, 9), topic("c", 1, 1))]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE]
    assert list(cluster.image.topics.by_name) == ["a", "c"]


def test_the_reply_can_be_read_in_every_version() -> None:
    for version in range(2, 8):
        cluster = Cluster([1])
        decision = ask(cluster, topic("a", 1, 1), topic("?"), api_version=version)
        assert decision.reply is not None
        read = decode(CreateTopicsResponse, version, encode(decision.reply, version))
        assert [one.error_code for one in read.topics] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_an_error_about_something_long_can_be_said() -> None:
    long = "x" * 32_767
    decision = ask(
        Cluster([1]),
        topic(long, 1, 1),
        topic("a", 1, 1, configs={long: None}),
        topic("b", 1, 1, configs={long: "1"}),
        topic("€" * 10_000, 1, 1),
        topic("c" * 30_000, 1, 1),
        topic("c" * 30_000, 1, 1),
        api_version=2,
    )
    assert decision.reply is not None
    encode(decision.reply, 2)


# Names


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250])
def test_a_bad_name(name: str) -> None:
    assert error(Cluster([1]), topic(name, 1, 1))[0] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_name_that_is_taken() -> None:
    cluster = Cluster([1])
    create(cluster, topic(partitions=1, replicas=1))
    code, message = error(cluster, topic(partitions=1, replicas=1))
    assert code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "orders" in message


def test_a_name_that_collides_with_another() -> None:
    cluster = Cluster([1])
    create(cluster, topic("a.b", 1, 1))
    code, message = error(cluster, topic("a_b", 1, 1))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "'a.b'" in message


def test_being_taken_is_said_before_a_collision() -> None:
    cluster = Cluster([1])
    cluster.create(1, [[1]], "a.b")
    cluster.create(2, [[1]], "a_b")
    assert error(cluster, topic("a_b", 1, 1))[0] == ErrorCode.TOPIC_ALREADY_EXISTS


def test_two_new_names_that_collide_are_both_created_as_in_kafka() -> None:
    cluster = Cluster([1])
    assert [one.error_code for one in create(cluster, topic("a.b", 1, 1), topic("a_b", 1, 1))] == [0, 0]


def test_a_name_that_was_deleted_is_free() -> None:
    cluster = Cluster([1])
    (first,) = create(cluster, topic("a.b", 1, 1))
    cluster.apply(RemoveTopicRecord(topic_id=first.topic_id))
    (second,) = create(cluster, topic("a_b", 1, 1))
    assert second.error_code == ErrorCode.NONE


def test_a_name_that_stands_there_twice_is_answered_once() -> None:
    cluster = Cluster([1])
    decision = ask(cluster, topic("a", 1, 1), topic("b", 1, 1), topic("a", 2, 1))
    twice, once = results(decision)
    assert (twice.name, twice.error_code) == ("a", ErrorCode.INVALID_REQUEST)
    assert (once.name, once.error_code) == ("b", ErrorCode.NONE)
    assert list(cluster.image.topics.by_name) == ["b"]


def test_the_log_of_the_cluster_itself_cannot_be_created() -> None:
    assert error(Cluster([1]), topic("__cluster_metadata", 1, 1))[0] == ErrorCode.INVALID_REQUEST


# Numbers


@pytest.mark.parametrize("count", [0, -2, -(1 << 31)])
def test_partitions_are_positive(count: int) -> None:
    assert error(Cluster([1]), topic(partitions=count, replicas=1))[0] == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("replicas", [0, -2, -(1 << 15), 2, 32767])
def test_there_are_brokers_for_the_replicas(replicas: int) -> None:
    code, _ = error(Cluster([1]), topic(partitions=1, replicas=replicas))
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_without_brokers_there_are_no_topics() -> None:
    assert error(Cluster(), topic())[0] == ErrorCode.INVALID_REPLICATION_FACTOR


def test_with_all_brokers_fenced_there_are_no_topics() -> None:
    cluster = Cluster([1, 2])
    cluster.fence(1)
    cluster.fence(2)
    assert error(cluster, topic(partitions=1, replicas=1))[0] == ErrorCode.INVALID_REPLICATION_FACTOR


def test_with_all_brokers_shutting_down_there_are_no_topics() -> None:
    cluster = Cluster([1])
    cluster.shut_down(1)
    assert error(cluster, topic(partitions=1, replicas=1))[0] == ErrorCode.INVALID_REPLICATION_FACTOR


def test_the_fenced_hold_replicas_that_are_not_in_sync() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.fence(2)
    create(cluster, topic(partitions=10, replicas=3))
    for one in partitions(cluster):
        assert set(one.replicas) == {1, 2, 3}
        assert set(one.isr) == {1, 3}
        assert one.leader in (1, 3)


def test_a_rack_for_each_replica() -> None:
    cluster = Cluster()
    for broker_id in range(6):
        cluster.register(broker_id, rack=f"rack-{broker_id % 3}")
    create(cluster, topic(partitions=12, replicas=3))
    assert all({broker % 3 for broker in one.replicas} == {0, 1, 2} for one in partitions(cluster))


def test_as_many_partitions_as_a_batch_can_hold() -> None:
    cluster = Cluster([1, 2, 3])
    asked = CreateTopicsRequest(topics=[topic(partitions=9999, replicas=3)])
    decision = decide_create_topics(cluster.situation(7), asked)
    assert len(decision.records) == 10_000


@pytest.mark.parametrize(
    "asked",
    [
        [topic("a", 10_001, 1)],
        [topic("a", 6000, 1), topic("b", 6000, 1)],
        [topic("a", (1 << 31) - 1, 1)],
        [topic("a", 10_000, 1)],  # there is a record for the topic as well
        [topic("a", 1, 1), topic("b", assignments=[(n, [1]) for n in range(10_000)])],
        [topic(f"topic{n}") for n in range(2501)],  # four partitions each
        [topic(f"topic{n}", 1, 1) for n in range(5001)],
    ],
)
def test_too_much_at_once_fails_as_a_whole(asked: list[CreateTopicsRequest.CreatableTopic]) -> None:
    cluster = Cluster([1], num_partitions=4)
    for validate_only in (False, True):
        with pytest.raises(ApiError) as caught:
            ask(cluster, *asked, validate_only=validate_only)
        assert caught.value.code == ErrorCode.POLICY_VIOLATION


def test_what_stands_there_twice_or_is_negative_does_not_count_as_too_much() -> None:
    decision = ask(
        Cluster([1]), topic("a", 9000, 1), topic("a", 9000, 1), topic("b", -9000, 1), topic("c", 100, 1)
    )
    assert [one.error_code for one in results(decision)] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NONE,
    ]


# Replicas by hand


def test_replicas_by_hand() -> None:
    cluster = Cluster([1, 2, 3])
    (result,) = create(cluster, topic(assignments=[(1, [3, 1]), (0, [2, 3])]))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 2, 2)
    assert [one.replicas for one in partitions(cluster)] == [(2, 3), (3, 1)]
    assert [one.leader for one in partitions(cluster)] == [2, 3]


def test_replicas_by_hand_may_be_fenced_but_not_all() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.fence(1)
    cluster.shut_down(2)
    create(cluster, topic(assignments=[(0, [1, 2, 3])]))
    (only,) = partitions(cluster)
    assert (only.replicas, only.isr, only.leader) == ((1, 2, 3), (3,), 3)
    assert error(cluster, topic("b", assignments=[(0, [1, 2])]))[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        ([(0, [])], "includes an empty replica list."),
        ([(0, [1, 9])], "includes broker 9, but no such broker is registered."),
        ([(0, [-1])], "includes broker -1, but no such broker is registered."),
        ([(0, [1, 1])], "includes the broker 1 more than once."),
        ([(0, [1, 2]), (1, [1])], "1 replica"),
        ([(0, [1]), (0, [2])], "twice"),
        ([(0, [1]), (2, [2])], "0, 1, 2"),
        ([(1, [1])], "0, 1, 2"),
        ([(-1, [1]), (0, [1])], "0, 1, 2"),
    ],
)
def test_bad_replicas_by_hand(assignments: list[tuple[int, list[int]]], reason: str) -> None:
    code, message = error(Cluster([1, 2, 3]), topic(assignments=assignments))
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reason in message


@pytest.mark.parametrize(("count", "replicas"), [(1, -1), (-1, 1), (1, 1), (0, 0)])
def test_replicas_by_hand_leave_the_numbers_open(count: int, replicas: int) -> None:
    asked = topic(partitions=count, replicas=replicas, assignments=[(0, [1])])
    assert error(Cluster([1]), asked)[0] == ErrorCode.INVALID_REQUEST


def test_more_replicas_than_the_table_can_hold() -> None:
    cluster = Cluster(range(70))
    code, _ = error(cluster, topic(assignments=[(0, list(range(70)))]))
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


# Configurations


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": None},
        {"retention.ms": "many"},
        {"no.such.thing": "1"},
        {"cleanup.policy": "burn"},
        {"min.insync.replicas": "0"},
        {"retention.ms": "5", "segment.bytes": None},
    ],
)
def test_a_bad_configuration(configs: dict[str, str | None]) -> None:
    assert (
        error(Cluster([1]), topic(partitions=1, replicas=1, configs=configs))[0] == ErrorCode.INVALID_CONFIG
    )


def test_a_null_value_is_named() -> None:
    asked = topic(partitions=1, replicas=1, configs={"retention.ms": None, "segment.bytes": "100000000"})
    _, message = error(Cluster([1]), asked)
    assert "retention.ms" in message
    assert "segment.bytes" not in message


def test_the_last_of_several_values_counts() -> None:
    cluster = Cluster([1])
    create(cluster, topic(partitions=1, replicas=1, configs=[("retention.ms", "1"), ("retention.ms", "2")]))
    assert cluster.image.configs[TOPIC, "orders"] == {"retention.ms": "2"}


def test_the_reply_tells_the_configuration_and_where_it_is_from() -> None:
    cluster = Cluster([1])
    cluster.apply(
        ConfigRecord(resource_type=BROKER, resource_name="", name="log.cleanup.policy", value="compact")
    )
    (result,) = create(cluster, topic(partitions=1, replicas=1, configs={"retention.ms": "5"}))
    assert result.topic_config_error_code == ErrorCode.NONE
    assert result.configs is not None
    told = {one.name: (one.value, one.config_source) for one in result.configs}
    assert told["retention.ms"] == ("5", 1)
    assert told["cleanup.policy"] == ("compact", 3)
    assert told["max.message.bytes"][1] == 5


def test_the_reply_of_an_old_version_tells_nothing_of_it() -> None:
    (result,) = create(Cluster([1]), topic(partitions=1, replicas=1), api_version=4)
    assert result.configs == []


# Eligible leader replicas


def clears(cluster: Cluster, configs: dict[str, str]) -> list[str]:
    decision = ask(cluster, topic(partitions=1, replicas=1, configs=configs))
    assert [one.error_code for one in results(decision)] == [ErrorCode.NONE]
    kinds = [type(one) for one in decision.records]
    if ClearElrRecord in kinds:
        assert kinds[kinds.index(ClearElrRecord) - 1] is ConfigRecord
    return [one.topic_name for one in decision.records if isinstance(one, ClearElrRecord)]


def test_min_insync_replicas_clears_the_eligible_ones() -> None:
    assert clears(Cluster([1], elr=True), {"min.insync.replicas": "2", "retention.ms": "5"}) == ["orders"]


def test_other_settings_do_not() -> None:
    assert clears(Cluster([1], elr=True), {"retention.ms": "5"}) == []


def test_nothing_is_eligible_where_that_is_off() -> None:
    assert clears(Cluster([1]), {"min.insync.replicas": "2"}) == []


# Directories and levels


def test_directories_of_new_replicas_at_an_old_level() -> None:
    cluster = Cluster([1], metadata_version=16)
    create(cluster, topic(partitions=1, replicas=1))
    assert [one.replicas for one in partitions(cluster)] == [(1,)]


def test_a_broker_without_directories_can_have_replicas() -> None:
    cluster = Cluster()
    cluster.register(1, directories=0)
    (result,) = create(cluster, topic(partitions=1, replicas=1))
    assert result.error_code == ErrorCode.NONE
    assert not any(isinstance(one, RegisterBrokerRecord) and one.log_dirs for one in cluster.records)


# Whatever is asked

broker_ids = st.lists(st.integers(-1, 4), max_size=4)
asked_topics = st.builds(
    topic,
    st.one_of(st.sampled_from(["a", "a.b", "a_b", "taken", "__cluster_metadata"]), st.text(max_size=3)),
    st.integers(-3, 5),
    st.integers(-3, 5),
    st.one_of(st.just([]), st.lists(st.tuples(st.integers(-1, 3), broker_ids), max_size=3)),
    st.dictionaries(
        st.sampled_from(["retention.ms", "min.insync.replicas", "no.such.thing"]),
        st.sampled_from([None, "1", "x"]),
        max_size=2,
    ),
)


@given(st.lists(asked_topics, max_size=6), st.integers(2, 7), st.booleans())
def test_whatever_is_asked_is_answered_and_what_is_granted_can_be_applied(
    asked: list[CreateTopicsRequest.CreatableTopic], version: int, elr: bool
) -> None:
    cluster = Cluster([1, 2], elr=elr)
    cluster.register(3, fenced=True)
    cluster.create(1, [[1]], "taken")
    answered = create(cluster, *asked, api_version=version)
    assert [one.name for one in answered] == list(dict.fromkeys(one.name for one in asked))
    granted = [one for one in answered if one.error_code == ErrorCode.NONE]
    assert {"taken", *(one.name for one in granted)} == set(cluster.image.topics.by_name)
    for one in granted:
        found = [partition for _, partition in cluster.image.partitions_of(one.topic_id)]
        assert len(found) == one.num_partitions
        for partition in found:
            assert len(set(partition.replicas)) == len(partition.replicas) == one.replication_factor
            assert partition.leader == partition.isr[0] in (1, 2)
