"""Partitions move to other replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_cluster import Cluster, directory, topic_id
from quorate.controller.alter_partition import decide_alter_partition
from quorate.controller.decision import RECORDS_MAX, Decision
from quorate.controller.elections import decide_elect_leaders
from quorate.controller.events import LeadershipMoved
from quorate.controller.reassignment import (
    Move,
    decide_alter_partition_reassignments,
    describe_reassignments,
    move,
    take_back,
)
from quorate.metadata.image import CLUSTER_DEFAULT, TOPIC
from quorate.metadata.partitions import NO_LEADER, UNASSIGNED, Partition
from quorate.metadata.records import ConfigRecord, PartitionChangeRecord
from quorate.protocol.api.brokers import AlterPartitionRequest, AlterPartitionResponse
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode

Topic = AlterPartitionReassignmentsRequest.ReassignableTopic
Target = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition

Targets = dict[int, Sequence[int] | None]  # by partition id; None cancels


def partition(*replicas: int, **more: Any) -> Partition:
    return replace(Partition(replicas, tuple(map(directory, replicas)), replicas, replicas[0]), **more)


def reassign(
    cluster: Cluster, targets: Targets, topic: str = "topic-1", *, may_change_size: bool = True
) -> Decision:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=1000,
        allow_replication_factor_change=may_change_size,
        topics=[
            Topic(
                name=topic,
                partitions=[
                    Target(partition_index=one, replicas=None if target is None else list(target))
                    for one, target in targets.items()
                ],
            )
        ],
    )
    return cluster.decide(decide_alter_partition_reassignments, request, api_version=1)


def codes(decision: Decision) -> list[int]:
    reply = decision.reply
    assert isinstance(reply, AlterPartitionReassignmentsResponse)
    assert reply.error_code == 0
    encode(reply, 0)
    encode(reply, 1)
    results = [one for topic in reply.responses for one in topic.partitions]
    assert all((one.error_message is None) == (one.error_code == 0) for one in results)
    return [one.error_code for one in results]


def granted(cluster: Cluster, targets: Targets) -> Decision:
    decision = reassign(cluster, targets)
    assert set(codes(decision)) == {0}
    return decision


def propose(cluster: Cluster, isr: Sequence[int], number: int = 1, partition_id: int = 0) -> int:
    """The leader says who is in sync; returns the error code."""
    now = cluster.partition(number, partition_id)
    asked = AlterPartitionRequest.TopicData.PartitionData
    request = AlterPartitionRequest(
        broker_id=now.leader,
        broker_epoch=cluster.image.brokers[now.leader].epoch,
        topics=[
            AlterPartitionRequest.TopicData(
                topic_id=topic_id(number),
                partitions=[
                    asked(
                        partition_index=partition_id,
                        leader_epoch=now.leader_epoch,
                        partition_epoch=now.partition_epoch,
                        leader_recovery_state=int(now.is_recovering and len(isr) == 1),
                        new_isr_with_epochs=[asked.BrokerState(broker_id=one) for one in isr],
                    )
                ],
            )
        ],
    )
    reply = cluster.decide(decide_alter_partition, request, api_version=3).reply
    assert isinstance(reply, AlterPartitionResponse)
    return int(reply.topics[0].partitions[0].error_code)


def listed(cluster: Cluster, asked: dict[str, list[int]] | None = None) -> list[tuple[Any, ...]]:
    """Topic, partition, replicas, adding and removing of all that is under way."""
    topics = None
    if asked is not None:
        make = ListPartitionReassignmentsRequest.Topics
        topics = [make(name=name, partition_indexes=some) for name, some in asked.items()]
    reply = describe_reassignments(cluster.image, ListPartitionReassignmentsRequest(topics=topics))
    encode(reply, 0)
    assert (reply.error_code, reply.error_message) == (0, None)
    assert all(topic.partitions for topic in reply.topics)
    return [
        (topic.name, one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in reply.topics
        for one in topic.partitions
    ]


def allow_unclean(cluster: Cluster, topic: str = "topic-1") -> None:
    cluster.apply(
        ConfigRecord(
            resource_type=TOPIC, resource_name=topic, name="unclean.leader.election.enable", value="true"
        )
    )


# The arithmetic


@pytest.mark.parametrize(
    ("now", "target", "expected"),
    [
        (partition(3, 2, 1), (3, 2, 1), Move((3, 2, 1), (), ())),
        (partition(3, 2, 1), (3, 6, 2, 1, 5), Move((3, 6, 2, 1, 5), (), (5, 6))),
        (partition(3, 2, 1, 0), (3, 1), Move((3, 1, 0, 2), (0, 2), ())),
        (partition(3, 2, 1, 0), (7, 3, 1, 9), Move((7, 3, 1, 9, 0, 2), (0, 2), (7, 9))),
        (partition(3, 2, 1, 0), (0, 1, 3, 2), Move((0, 1, 3, 2), (), ())),
        # on their way already: 1 2 3 to 1 2 4
        (partition(1, 2, 4, 3, adding=(4,), removing=(3,)), (1, 2, 4), Move((1, 2, 4, 3), (3,), (4,))),
        (partition(1, 2, 4, 3, adding=(4,), removing=(3,)), (1, 2, 5), Move((1, 2, 5, 3, 4), (3, 4), (5,))),
        (partition(1, 2, 4, 3, adding=(4,), removing=(3,)), (1, 2, 3), Move((1, 2, 3, 4), (4,), ())),
        (partition(1, 2, 4, 3, adding=(4,), removing=(3,)), (4, 3, 2, 1), Move((4, 3, 2, 1), (), (4,))),
    ],
)
def test_what_a_partition_looks_like_while_it_moves(
    now: Partition, target: tuple[int, ...], expected: Move
) -> None:
    assert move(now, target) == expected


@pytest.mark.parametrize(
    ("now", "replicas", "isr"),
    [
        (partition(3, 2, 1, isr=(3, 2)), (3, 2, 1), (3, 2)),
        (partition(3, 2, 1, isr=(3, 2), removing=(2, 1)), (3, 2, 1), (3, 2)),
        (partition(4, 5, 3, 2, 1, isr=(4, 5, 2), adding=(4, 5)), (3, 2, 1), (2,)),
        (partition(4, 5, 3, 2, 1, isr=(4, 1), removing=(2,), adding=(4, 5)), (3, 2, 1), (1,)),
        (partition(4, 5, 3, 2, 1, isr=(4, 5), removing=(2,), adding=(4, 5)), (3, 2, 1), ()),
    ],
)
def test_what_is_left_when_a_move_is_taken_back(
    now: Partition, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    assert take_back(now) == (replicas, isr)


# Starting


def test_a_move_begins_with_the_replicas_of_both_sides() -> None:
    cluster = Cluster([0, 1, 2, 3])
    cluster.create(1, [[1, 2, 3], [3, 2, 1]])
    decision = reassign(cluster, {0: [3, 2, 1], 1: [0, 2, 1], 2: [0, 2, 1]})
    assert codes(decision) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert decision.is_atomic
    moving = cluster.partition(1, 1)
    assert moving.replicas == (0, 2, 1, 3)
    assert moving.directories == tuple(map(directory, (0, 2, 1, 3)))
    assert (set(moving.isr), moving.leader, moving.leader_epoch) == ({1, 2, 3}, 3, 0)
    assert (moving.adding, moving.removing, moving.partition_epoch) == ((0,), (3,), 1)


def test_another_order_of_the_same_replicas_is_there_at_once_and_the_leader_stays() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(1, 2, 3, isr=(1, 3))])
    granted(cluster, {0: [3, 2, 1]})
    after = cluster.partition(1)
    assert (after.replicas, after.isr, after.leader) == ((3, 2, 1), (3, 1), 1)
    assert (after.leader_epoch, after.partition_epoch, after.is_reassigning) == (0, 1, False)
    assert after.directories == tuple(map(directory, (3, 2, 1)))


def test_what_is_there_already_needs_no_record() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3]])
    assert granted(cluster, {0: [1, 2, 3]}).records == []


def test_a_partition_that_only_loses_replicas_is_there_at_once_if_the_others_are_in_sync() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [partition(1, 2, 3, 4, isr=(1, 2, 4))])
    granted(cluster, {0: [1, 2, 4]})
    after = cluster.partition(1)
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((1, 2, 4), (1, 2, 4), 1, 1)


def test_and_otherwise_waits_for_them() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [partition(1, 2, 3, 4, isr=(1, 2))])
    granted(cluster, {0: [1, 4]})
    assert cluster.partition(1).removing == (2, 3)
    assert propose(cluster, [1, 2, 4]) == 0
    after = cluster.partition(1)
    assert (after.replicas, after.isr, after.is_reassigning) == ((1, 4), (1, 4), False)


def test_a_leader_that_is_removed_at_once_hands_over() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3]])
    decision = granted(cluster, {0: [2, 3]})
    assert (cluster.partition(1).leader, cluster.partition(1).leader_epoch) == (2, 1)
    assert decision.events == [LeadershipMoved("reassignment", partitions=1, leaderless=0, unclean=0)]


def test_a_partition_moves_to_wholly_other_replicas() -> None:
    cluster = Cluster(range(6))
    cluster.create(1, [[0, 1, 2]])
    granted(cluster, {0: [3, 4, 5]})
    assert propose(cluster, [0, 1, 2, 3, 4]) == 0
    assert cluster.partition(1).is_reassigning
    assert propose(cluster, [0, 1, 2, 3, 4, 5]) == ErrorCode.NEW_LEADER_ELECTED
    after = cluster.partition(1)
    assert (after.replicas, after.isr, after.leader) == ((3, 4, 5), (3, 4, 5), 3)


def test_fenced_brokers_can_be_the_target() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2]])
    cluster.fence(3)
    granted(cluster, {0: [1, 3]})
    assert cluster.partition(1).replicas == (1, 3, 2)


def test_a_new_replica_on_a_broker_with_several_directories_has_none_yet() -> None:
    cluster = Cluster([1])
    cluster.register(2, directories=2)
    cluster.create(1, [[1]])
    granted(cluster, {0: [1, 2]})
    assert cluster.partition(1).directories == (directory(1), UNASSIGNED)


@pytest.mark.parametrize("target", [[], [1, 9], [1, 1], [-1, 1]])
def test_targets_that_cannot_be(target: list[int]) -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    assert codes(reassign(cluster, {0: target})) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert cluster.partition(1) == partition(1, 2)


def test_unknown_topics() -> None:
    cluster = Cluster([1])
    decision = reassign(cluster, {0: [1], 1: None}, topic="none")
    assert codes(decision) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_more_replicas_than_a_partition_can_have() -> None:
    cluster = Cluster(range(70))
    cluster.create(1, [range(10), range(10)])
    decision = reassign(cluster, {0: range(65), 1: range(10, 70)})
    assert codes(decision) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 2
    reply = decision.reply
    assert isinstance(reply, AlterPartitionReassignmentsResponse)
    assert "70 replicas while it moves" in str(reply.responses[0].partitions[1].error_message)
    granted(cluster, {1: range(10, 64)})
    assert len(cluster.partition(1, 1).replicas) == 64


def test_the_same_partition_twice_in_one_request() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [[1, 2]])
    twice = [Target(partition_index=0, replicas=[1, 3]), Target(partition_index=0, replicas=[1, 4])]
    request = AlterPartitionReassignmentsRequest(topics=[Topic(name="topic-1", partitions=twice)])
    assert codes(cluster.decide(decide_alter_partition_reassignments, request)) == [0, 0]
    assert listed(cluster) == [("topic-1", 0, [1, 4, 2, 3], [4], [2, 3])]


def test_one_request_can_move_ten_thousand_partitions_and_no_more() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]] * (RECORDS_MAX + 1))
    with pytest.raises(ApiError, match="10001 records") as raised:
        reassign(cluster, dict.fromkeys(range(RECORDS_MAX + 1), (2, 1)))
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    assert cluster.partition(1) == partition(1, 2)
    assert len(granted(cluster, dict.fromkeys(range(RECORDS_MAX), (2, 1))).records) == RECORDS_MAX


# The replication factor


@pytest.mark.parametrize("target", [[1], [1, 2, 3]])
def test_the_replication_factor_changes_only_if_the_request_allows_it(target: list[int]) -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2]])
    refused = reassign(cluster, {0: target}, may_change_size=False)
    assert codes(refused) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert isinstance(refused.reply, AlterPartitionReassignmentsResponse)
    assert not refused.reply.allow_replication_factor_change
    (topic,) = refused.reply.responses
    reason = f"The replication factor is changed from 2 to {len(target)}"
    assert topic.partitions[0].error_message == reason
    assert codes(reassign(cluster, {0: [2, 3]}, may_change_size=False)) == [0]
    allowed = reassign(cluster, {0: target})
    assert codes(allowed) == [0]
    assert isinstance(allowed.reply, AlterPartitionReassignmentsResponse)
    assert allowed.reply.allow_replication_factor_change


def test_while_a_partition_moves_its_replication_factor_is_that_of_the_target() -> None:
    cluster = Cluster([1, 2, 3, 4, 5])
    cluster.create(1, [[1, 2]])
    granted(cluster, {0: [3, 4, 5]})
    assert len(cluster.partition(1).replicas) == 5
    assert codes(reassign(cluster, {0: [1, 2]}, may_change_size=False)) == [
        ErrorCode.INVALID_REPLICATION_FACTOR
    ]
    assert codes(reassign(cluster, {0: [2, 3, 4]}, may_change_size=False)) == [0]


def test_a_wrong_target_is_wrong_before_its_size_is_looked_at() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    decision = reassign(cluster, {0: [9]}, may_change_size=False)
    assert codes(decision) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


# Replacing


def test_a_new_target_also_removes_the_newcomers_of_the_old_one() -> None:
    cluster = Cluster(range(6))
    cluster.create(1, [[0, 1]])
    granted(cluster, {0: [2, 3]})
    assert listed(cluster) == [("topic-1", 0, [2, 3, 0, 1], [2, 3], [0, 1])]
    assert propose(cluster, [0, 1, 2]) == 0
    elect = ElectLeadersRequest.TopicPartitions(topic="topic-1", partitions=[0])
    cluster.decide(decide_elect_leaders, ElectLeadersRequest(election_type=0, topic_partitions=[elect]))
    assert cluster.partition(1).leader == 2
    granted(cluster, {0: [4, 5]})
    assert listed(cluster) == [("topic-1", 0, [4, 5, 0, 1, 2, 3], [4, 5], [0, 1, 2, 3])]
    assert cluster.partition(1).leader == 2  # a newcomer may lead until the move is over
    assert propose(cluster, [0, 1, 2, 3, 4, 5]) == ErrorCode.NEW_LEADER_ELECTED
    assert (cluster.partition(1).replicas, cluster.partition(1).leader) == ((4, 5), 4)
    assert listed(cluster) == []


def test_the_same_target_again_changes_nothing_and_can_still_be_cancelled() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [[1, 2, 3]])
    granted(cluster, {0: [1, 2, 4]})
    before = cluster.partition(1)
    assert granted(cluster, {0: [1, 2, 4]}).records == []
    assert cluster.partition(1) == before
    granted(cluster, {0: None})
    assert cluster.partition(1).replicas == (1, 2, 3)


def test_a_target_with_the_replicas_of_both_sides_keeps_them_all() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [[1, 2, 3]])
    granted(cluster, {0: [1, 2, 4]})
    granted(cluster, {0: [1, 2, 3, 4]})
    assert listed(cluster) == [("topic-1", 0, [1, 2, 3, 4], [4], [])]
    assert propose(cluster, [1, 2, 3, 4]) == 0
    assert cluster.partition(1) == replace(partition(1, 2, 3, 4), partition_epoch=3)


def test_a_move_back_to_where_it_began() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [[1, 2, 3]])
    granted(cluster, {0: [1, 2, 4]})
    assert propose(cluster, [1, 2]) == 0
    granted(cluster, {0: [1, 2, 3]})
    assert listed(cluster) == [("topic-1", 0, [1, 2, 3, 4], [], [4])]
    assert propose(cluster, [1, 2, 3]) == 0
    assert (cluster.partition(1).replicas, cluster.partition(1).is_reassigning) == ((1, 2, 3), False)


def test_a_removal_that_is_replaced_by_what_was_there_is_over() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(1, 2, 3, isr=(1, 3))])
    granted(cluster, {0: [1, 2]})
    assert cluster.partition(1).removing == (3,)
    granted(cluster, {0: [1, 2, 3]})
    assert not cluster.partition(1).is_reassigning


def test_a_newcomer_of_both_targets_goes_when_the_move_is_cancelled() -> None:
    cluster = Cluster(range(1, 7))
    cluster.create(1, [[1, 2, 3]])
    granted(cluster, {0: [1, 4, 5]})
    granted(cluster, {0: [1, 4, 6]})
    assert listed(cluster) == [("topic-1", 0, [1, 4, 6, 2, 3, 5], [4, 6], [2, 3, 5])]
    granted(cluster, {0: None})
    assert set(cluster.partition(1).replicas) == {1, 2, 3, 5}  # 5 was dropped before, and waits to be removed


# Cancelling


def test_a_cancelled_move_leaves_the_replicas_of_before() -> None:
    cluster = Cluster([0, 1, 2, 3])
    cluster.create(1, [[3, 2, 1]])
    granted(cluster, {0: [0, 2, 1]})
    decision = granted(cluster, {0: None})
    assert decision.records == [
        PartitionChangeRecord(
            topic_id=topic_id(1),
            partition_id=0,
            replicas=[2, 1, 3],
            directories=list(map(directory, (2, 1, 3))),
            leader=3,  # the same one, in a new epoch: a replica is gone
            removing_replicas=[],
            adding_replicas=[],
        )
    ]
    after = cluster.partition(1)
    assert (after.leader_epoch, after.partition_epoch, after.is_reassigning) == (1, 2, False)


def test_a_cancelled_move_takes_the_newcomers_out_of_the_isr() -> None:
    cluster = Cluster(range(5))
    cluster.create(1, [partition(4, 3, 2, isr=(4, 2))])
    granted(cluster, {0: [1, 2, 3, 4, 0]})
    assert listed(cluster) == [("topic-1", 0, [1, 2, 3, 4, 0], [0, 1], [])]
    assert propose(cluster, [4, 1, 2]) == 0
    granted(cluster, {0: None})
    after = cluster.partition(1)
    assert (after.replicas, set(after.isr), after.leader, after.leader_epoch) == ((2, 3, 4), {2, 4}, 4, 1)


def test_a_newcomer_that_leads_hands_over_when_the_move_is_cancelled() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(3, 1, 2, isr=(3, 2), leader=3, adding=(3,))])
    decision = granted(cluster, {0: None})
    after = cluster.partition(1)
    assert (after.replicas, after.isr, after.leader) == ((1, 2), (2,), 2)
    assert decision.events == [LeadershipMoved("reassignment", partitions=1, leaderless=0, unclean=0)]


def test_there_must_be_something_to_cancel() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    decision = reassign(cluster, {0: None, 7: None})
    assert codes(decision) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert decision.records == []


def test_when_only_newcomers_are_in_sync_a_cancel_would_lose_records() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(3, 1, 2, isr=(3,), leader=3, adding=(3,), removing=(1,))])
    assert codes(reassign(cluster, {0: None})) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert cluster.partition(1).is_reassigning
    allow_unclean(cluster)
    granted(cluster, {0: None})
    after = cluster.partition(1)
    assert (after.replicas, after.isr, after.leader, after.is_reassigning) == ((1, 2), (1,), 1, False)


def test_an_unclean_cancel_leads_on_whoever_is_alive() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(3, 1, 2, isr=(3,), leader=3, adding=(3,), removing=(1,))])
    cluster.fence(1)
    allow_unclean(cluster)
    decision = granted(cluster, {0: None})
    after = cluster.partition(1)
    assert (after.isr, after.leader, after.is_recovering) == ((2,), 2, True)
    assert decision.events == [LeadershipMoved("reassignment", partitions=1, leaderless=0, unclean=1)]


def test_a_cancel_with_nobody_left_alive_leaves_nobody_to_lead() -> None:
    cluster = Cluster([1, 3])
    cluster.create(1, [partition(3, 1, isr=(3, 1), leader=3, adding=(3,), removing=(1,))])
    cluster.fence(1)
    decision = granted(cluster, {0: None})
    assert (cluster.partition(1).leader, cluster.partition(1).isr) == (NO_LEADER, (1,))
    assert decision.events == [LeadershipMoved("reassignment", partitions=1, leaderless=1, unclean=0)]


def test_newcomers_that_a_cancel_drops_are_not_eligible() -> None:
    cluster = Cluster([1, 2, 3], elr=True)
    resource_type, name = CLUSTER_DEFAULT
    cluster.apply(
        ConfigRecord(resource_type=resource_type, resource_name=name, name="min.insync.replicas", value="2")
    )
    cluster.create(1, [partition(1, 2, 3, isr=(1, 3), adding=(3,))])
    granted(cluster, {0: None})
    after = cluster.partition(1)
    assert (after.replicas, after.isr, after.elr) == ((1, 2), (1,), ())


# Listing


def test_moves_are_listed_all_or_those_that_are_asked_for() -> None:
    cluster = Cluster(range(6))
    cluster.create(2, [[1, 2, 3], [3, 2, 1]], name="foo")
    cluster.create(3, [[1]], name="bar")
    cluster.create(4, [[2, 3]], name="baz")
    assert listed(cluster) == []
    reassign(cluster, {1: [5, 0, 1]}, topic="foo")
    reassign(cluster, {0: [4]}, topic="bar")
    foo = ("foo", 1, [5, 0, 1, 2, 3], [0, 5], [2, 3])
    bar = ("bar", 0, [4, 1], [4], [1])
    assert listed(cluster) == [bar, foo]
    assert listed(cluster, {"foo": [0, 1, 2]}) == [foo]
    assert listed(cluster, {"foo": [0], "baz": [0], "none": [0]}) == []
    assert listed(cluster, {"foo": [1], "bar": [0]}) == [foo, bar]
    assert listed(cluster, {}) == []


def test_reading_does_not_change_the_image() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2]])
    granted(cluster, {0: [1, 3]})
    before = cluster.partition(1)
    listed(cluster)
    assert cluster.partition(1) == before


# Laws

BROKERS = range(5)
TARGETS = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True)
STEPS = st.one_of(
    st.tuples(st.just("reassign"), TARGETS),
    st.tuples(st.just("cancel"), st.just([])),
    st.tuples(st.just("in sync"), st.lists(st.sampled_from(BROKERS), max_size=4, unique=True)),
    st.tuples(st.just("in sync"), st.just(list(BROKERS))),
    st.tuples(st.just("fence"), st.lists(st.sampled_from(BROKERS), min_size=1, max_size=1)),
)


@given(st.lists(STEPS, max_size=20), TARGETS, st.booleans(), st.booleans())
def test_whatever_is_asked_for_the_laws_hold(
    steps: list[tuple[str, list[int]]], first: list[int], elr: bool, unclean: bool
) -> None:
    cluster = Cluster(BROKERS, elr=elr)
    cluster.create(1, [first])
    resource_type, name = CLUSTER_DEFAULT
    cluster.apply(
        ConfigRecord(resource_type=resource_type, resource_name=name, name="min.insync.replicas", value="2")
    )
    if unclean:
        allow_unclean(cluster)
    for what, brokers in steps:
        before = cluster.partition(1)
        took = step(cluster, what, brokers)
        after = cluster.partition(1)
        assert_lawful(before, after)
        assert took or after == before
        if took and what == "reassign":
            moving = move(before, brokers)
            if after.is_reassigning:
                assert_moving(after, moving)
            else:
                assert_arrived(after, moving)
        elif took and what == "cancel":
            assert not after.is_reassigning
            assert after.replicas == take_back(before)[0]
        elif what == "in sync" and before.is_reassigning and not after.is_reassigning:
            assert_arrived(after, Move(before.replicas, before.removing, before.adding))


def step(cluster: Cluster, what: str, brokers: list[int]) -> bool:
    """Does something; returns whether it was granted."""
    now = cluster.partition(1)
    if what == "reassign":
        return codes(reassign(cluster, {0: brokers})) == [0]
    if what == "cancel":
        return codes(reassign(cluster, {0: None})) == [0]
    if what == "fence":
        others = [one for one in BROKERS if one not in brokers]
        if cluster.image.brokers[brokers[0]].is_fenced:
            cluster.register(brokers[0])
        elif any(one in now.isr and cluster.image.brokers[one].is_active for one in others):
            cluster.fence(brokers[0])
        return True
    if now.leader == NO_LEADER:
        return False
    isr = [one for one in now.replicas if one in brokers or one == now.leader]
    return propose(cluster, isr) in (0, ErrorCode.NEW_LEADER_ELECTED)


def assert_lawful(before: Partition, after: Partition) -> None:
    assert after.replicas
    assert len(set(after.replicas)) == len(after.replicas) == len(after.directories)
    assert set(after.isr) <= set(after.replicas)
    assert set(after.elr) <= set(after.replicas) - set(after.isr)
    assert set(after.adding) | set(after.removing) <= set(after.replicas)
    assert not set(after.adding) & set(after.removing)
    assert after.leader in (*after.isr, NO_LEADER)
    assert after.leader_epoch >= before.leader_epoch
    assert after.partition_epoch >= before.partition_epoch
    assert after == before or after.partition_epoch == before.partition_epoch + 1
    if after.leader != before.leader or not set(before.replicas) <= set(after.replicas):
        assert after.leader_epoch == before.leader_epoch + 1


def assert_moving(after: Partition, moving: Move) -> None:
    assert after.replicas == moving.replicas
    assert (set(after.removing), set(after.adding)) == (set(moving.removing), set(moving.adding))


def assert_arrived(after: Partition, moving: Move) -> None:
    """A move is over only when whoever was added is in sync, and, if more went than came, all are."""
    assert after.replicas == tuple(one for one in moving.replicas if one not in moving.removing)
    unclean = after.is_recovering  # then only the leader is
    assert unclean or set(moving.adding) <= set(after.isr)
    assert unclean or len(moving.removing) <= len(moving.adding) or set(after.replicas) == set(after.isr)
