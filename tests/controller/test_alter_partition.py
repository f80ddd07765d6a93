"""A leader proposes who is in sync."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller_cluster import Cluster, directory, topic_id
from quorate.controller.alter_partition import decide_alter_partition
from quorate.controller.decision import Decision
from quorate.controller.events import LeadershipMoved
from quorate.controller.partition_events import AlterPartitionRefused
from quorate.metadata.image import CLUSTER_DEFAULT, TOPIC
from quorate.metadata.partitions import NO_LEADER, Partition
from quorate.metadata.records import ConfigRecord
from quorate.protocol.api.brokers import AlterPartitionRequest, AlterPartitionResponse
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID, Uuid

Topic = AlterPartitionRequest.TopicData
Proposal = AlterPartitionRequest.TopicData.PartitionData
Member = AlterPartitionRequest.TopicData.PartitionData.BrokerState
Result = AlterPartitionResponse.TopicData.PartitionData


def partition(*replicas: int, **more: Any) -> Partition:
    return replace(Partition(replicas, tuple(map(directory, replicas)), replicas, replicas[0]), **more)


def proposal(
    cluster: Cluster, isr: list[int], number: int = 1, partition_id: int = 0, **more: Any
) -> Proposal:
    """What a leader that is up to date sends."""
    now = cluster.partition(number, partition_id)
    brokers = cluster.image.brokers
    fields: dict[str, Any] = {
        "partition_index": partition_id,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.partition_epoch,
        "leader_recovery_state": int(now.is_recovering),
        "new_isr_with_epochs": [
            Member(broker_id=one, broker_epoch=brokers[one].epoch if one in brokers else 0) for one in isr
        ],
    }
    return Proposal(**(fields | more))


def request(cluster: Cluster, sender: int, topics: dict[Uuid, list[Proposal]]) -> AlterPartitionRequest:
    return AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=cluster.image.brokers[sender].epoch,
        topics=[Topic(topic_id=key, partitions=some) for key, some in topics.items()],
    )


def propose(cluster: Cluster, sender: int, *proposals: Proposal, number: int = 1) -> Decision:
    asked = request(cluster, sender, {topic_id(number): list(proposals)})
    return cluster.decide(decide_alter_partition, asked, api_version=3)


def results(decision: Decision) -> list[Result]:
    reply = decision.reply
    assert isinstance(reply, AlterPartitionResponse)
    assert reply.error_code == 0
    encode(reply, 2)
    encode(reply, 3)
    return [one for topic in reply.topics for one in topic.partitions]


def only(decision: Decision) -> Result:
    (result,) = results(decision)
    return result


def refused(decision: Decision) -> ErrorCode:
    assert decision.records == []
    return ErrorCode(only(decision).error_code)


# What is granted


def test_the_isr_shrinks_and_expands() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3]])
    shrunk = only(propose(cluster, 1, proposal(cluster, [1, 3])))
    assert (shrunk.error_code, shrunk.leader_id, shrunk.isr) == (0, 1, [1, 3])
    assert (shrunk.leader_epoch, shrunk.partition_epoch) == (0, 1)  # a shrinking ISR keeps the leader epoch
    expanded = only(propose(cluster, 1, proposal(cluster, [3, 2, 1])))
    assert (sorted(expanded.isr), expanded.leader_epoch, expanded.partition_epoch) == ([1, 2, 3], 0, 2)
    assert cluster.partition(1).isr == (1, 2, 3)


def test_old_clusters_begin_a_leader_epoch_when_the_isr_shrinks_but_not_when_it_expands() -> None:
    cluster = Cluster([1, 2, 3], metadata_version=11)
    cluster.create(1, [[1, 2, 3]])
    assert only(propose(cluster, 1, proposal(cluster, [1, 2]))).leader_epoch == 1
    assert only(propose(cluster, 1, proposal(cluster, [1, 2, 3]))).leader_epoch == 1


def test_a_proposal_that_changes_nothing_is_answered_with_what_is_there() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, leader_epoch=4, partition_epoch=7)])
    decision = propose(cluster, 1, proposal(cluster, [2, 1]))
    result = only(decision)
    assert decision.records == []
    assert (result.error_code, result.leader_id, result.leader_epoch, result.partition_epoch) == (0, 1, 4, 7)
    assert result.isr == [1, 2]


def test_version_2_names_members_without_their_epochs() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3]])
    without_epochs = proposal(cluster, [], new_isr=[1, 3])
    asked = request(cluster, 1, {topic_id(1): [without_epochs]})
    decision = cluster.decide(decide_alter_partition, asked, api_version=2)
    assert only(decision).isr == [1, 3]


def test_a_member_may_come_without_its_epoch_in_version_3_too() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, isr=(1,))])
    members = [Member(broker_id=1, broker_epoch=-1), Member(broker_id=2, broker_epoch=-1)]
    result = only(propose(cluster, 1, proposal(cluster, [], new_isr_with_epochs=members)))
    assert (result.error_code, result.isr) == (0, [1, 2])


def test_partitions_that_are_refused_do_not_keep_the_others_back() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3], [2, 3, 1], [1, 3, 2]])
    decision = propose(
        cluster,
        1,
        proposal(cluster, [1, 2], partition_id=0),
        proposal(cluster, [1, 2], partition_id=1),
        proposal(cluster, [1, 3], partition_id=2),
    )
    assert [one.error_code for one in results(decision)] == [0, ErrorCode.INVALID_REQUEST, 0]
    assert [one.partition_index for one in results(decision)] == [0, 1, 2]
    assert not decision.is_atomic
    assert [set(cluster.partition(1, one).isr) for one in range(3)] == [{1, 2}, {1, 2, 3}, {1, 3}]


def test_of_two_proposals_for_one_partition_the_second_is_too_late() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3]])
    decision = propose(cluster, 1, proposal(cluster, [1, 2]), proposal(cluster, [1, 3]))
    assert [one.error_code for one in results(decision)] == [0, ErrorCode.INVALID_UPDATE_VERSION]
    assert cluster.partition(1).isr == (1, 2)


# What is refused


def test_who_is_not_the_registered_incarnation_is_refused_altogether() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    asked = request(cluster, 1, {topic_id(1): [proposal(cluster, [1])]})
    asked.broker_epoch += 1
    with pytest.raises(ApiError, match="broker 1 sent epoch") as raised:
        cluster.decide(decide_alter_partition, asked, api_version=3)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH
    asked.broker_id = 9
    with pytest.raises(ApiError, match="not registered") as raised:
        cluster.decide(decide_alter_partition, asked, api_version=3)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("key", [ZERO_UUID, topic_id(99)])
def test_topics_that_do_not_exist(key: Uuid) -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    asked = request(cluster, 1, {key: [proposal(cluster, [1])]})
    decision = cluster.decide(decide_alter_partition, asked, api_version=3)
    assert refused(decision) is ErrorCode.UNKNOWN_TOPIC_ID
    assert isinstance(decision.reply, AlterPartitionResponse)
    assert decision.reply.topics[0].topic_id == key


@pytest.mark.parametrize("partition_id", [1, -1])
def test_partitions_that_do_not_exist(partition_id: int) -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    decision = propose(cluster, 1, proposal(cluster, [1], partition_index=partition_id))
    assert refused(decision) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("sender", "isr", "wrong", "expected"),
    [
        (1, [1, 2], {"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        (1, [1, 2], {"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        (1, [1, 2], {"leader_epoch": 4, "partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        (1, [1, 2], {"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        (2, [1, 2], {"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        (2, [1, 2], {}, ErrorCode.INVALID_REQUEST),
        (2, [1, 2], {"partition_epoch": 6}, ErrorCode.INVALID_REQUEST),
        (1, [1, 2], {"partition_epoch": 6}, ErrorCode.INVALID_UPDATE_VERSION),
        (1, [1, 1], {"partition_epoch": 6}, ErrorCode.INVALID_UPDATE_VERSION),
        (1, [1, 2, 1], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 4], {}, ErrorCode.INVALID_REQUEST),  # 4 is a broker, but no replica
        (1, [1, -1], {}, ErrorCode.INVALID_REQUEST),
        (1, [2, 3], {}, ErrorCode.INVALID_REQUEST),
        (1, [], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 2], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        (1, [1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        (1, [1], {"leader_recovery_state": 2}, ErrorCode.INVALID_REQUEST),
        (1, [1], {"leader_recovery_state": -1}, ErrorCode.INVALID_REQUEST),
        (1, [1, 5], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),  # before 5 is looked at
        (1, [1, 5], {}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_each_check_in_its_order(
    sender: int, isr: list[int], wrong: dict[str, int], expected: ErrorCode
) -> None:
    cluster = Cluster([1, 2, 3, 4, 5])
    cluster.create(1, [partition(1, 2, 3, 5, isr=(1, 2, 3), leader_epoch=5, partition_epoch=7)])
    cluster.fence(5)
    before = cluster.partition(1)
    assert refused(propose(cluster, sender, proposal(cluster, isr, **wrong))) is expected
    assert cluster.partition(1) == before


def test_brokers_that_are_fenced_shutting_down_or_unknown_cannot_be_in_sync() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [partition(1, 2, 3, 4, 9, isr=(1, 4))])
    cluster.fence(2)
    cluster.shut_down(3)
    for one, reason in ((2, "is fenced"), (3, "is shutting down"), (9, "is not registered")):
        decision = propose(cluster, 1, proposal(cluster, [1, 4, one]))
        assert refused(decision) is ErrorCode.INELIGIBLE_REPLICA
        (event,) = decision.events
        assert isinstance(event, AlterPartitionRefused)
        assert reason in event.reason


def test_a_leader_that_is_fenced_itself_cannot_change_the_isr() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    cluster.fence(1)
    assert refused(propose(cluster, 1, proposal(cluster, [1]))) is ErrorCode.INELIGIBLE_REPLICA


def test_a_member_that_was_restarted_must_catch_up_again() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, isr=(1,))])
    of_the_one_before = proposal(cluster, [1, 2])
    cluster.register(2, run=1)
    assert refused(propose(cluster, 1, of_the_one_before)) is ErrorCode.INELIGIBLE_REPLICA
    assert only(propose(cluster, 1, proposal(cluster, [1, 2]))).error_code == 0


def test_refusals_are_said_once_for_each_check_with_the_first_reason() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]] * 3, name="orders")
    decision = propose(
        cluster,
        1,
        proposal(cluster, [2], partition_id=0),
        proposal(cluster, [1], partition_id=1, leader_epoch=9),
        proposal(cluster, [2], partition_id=2),
    )
    epoch = cluster.image.brokers[1].epoch
    first, second = decision.events
    assert isinstance(first, AlterPartitionRefused)
    assert (first.broker_id, first.epoch, first.error, first.partitions) == (1, epoch, "INVALID_REQUEST", 2)
    assert "orders-0 cannot have an ISR without its leader 1: [2]" in first.line()
    assert isinstance(second, AlterPartitionRefused)
    assert (second.error, second.partitions) == ("NOT_CONTROLLER", 1)


# Recovery after an unclean election


def test_a_leader_says_that_it_has_recovered() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, isr=(1,), is_recovering=True)])
    still = only(propose(cluster, 1, proposal(cluster, [1])))
    assert (still.error_code, still.leader_recovery_state, still.partition_epoch) == (0, 1, 0)
    too_early = propose(cluster, 1, proposal(cluster, [1, 2]))
    assert refused(too_early) is ErrorCode.INVALID_REQUEST
    done = only(propose(cluster, 1, proposal(cluster, [1], leader_recovery_state=0)))
    assert (done.error_code, done.leader_recovery_state, done.partition_epoch) == (0, 0, 1)
    assert not cluster.partition(1).is_recovering
    again = propose(cluster, 1, proposal(cluster, [1], leader_recovery_state=1))
    assert refused(again) is ErrorCode.INVALID_REQUEST


def test_a_leader_can_recover_and_take_others_in_at_once() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, isr=(1,), is_recovering=True)])
    result = only(propose(cluster, 1, proposal(cluster, [1, 2], leader_recovery_state=0)))
    assert (result.error_code, result.isr, result.leader_recovery_state) == (0, [1, 2], 0)


# Reassignments


def test_a_reassignment_is_complete_when_the_newcomer_is_in_sync() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [partition(1, 2, 4, 3, isr=(1, 2, 3), adding=(4,), removing=(3,))])
    result = only(propose(cluster, 1, proposal(cluster, [1, 2, 3, 4])))
    assert (result.error_code, result.leader_id, sorted(result.isr)) == (0, 1, [1, 2, 4])
    assert (result.leader_epoch, result.partition_epoch) == (1, 1)  # whoever loses a replica has a new epoch
    after = cluster.partition(1)
    assert (after.replicas, after.adding, after.removing) == ((1, 2, 4), (), ())


def test_a_reassignment_is_not_complete_without_the_newcomer() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [partition(1, 2, 4, 3, isr=(1, 2, 3), adding=(4,), removing=(3,))])
    result = only(propose(cluster, 1, proposal(cluster, [1, 2])))
    assert (result.error_code, result.isr, result.leader_epoch) == (0, [1, 2], 0)
    assert cluster.partition(1).is_reassigning


def test_a_leader_that_reassigns_itself_away_is_told_that_there_is_a_new_one() -> None:
    cluster = Cluster([0, 1, 2, 3])
    cluster.create(1, [partition(0, 2, 1, 3, isr=(1, 2, 3), leader=3, adding=(0,), removing=(3,))])
    decision = propose(cluster, 3, proposal(cluster, [3, 0, 2, 1]))
    result = only(decision)
    assert result.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (result.leader_id, result.isr, result.partition_epoch) == (0, [], 0)
    after = cluster.partition(1)
    assert (after.replicas, after.leader, after.leader_epoch) == ((0, 2, 1), 0, 1)
    assert decision.events == [LeadershipMoved("reassignment", partitions=1, leaderless=0, unclean=0)]
    assert propose_again(cluster) is ErrorCode.FENCED_LEADER_EPOCH


def propose_again(cluster: Cluster) -> ErrorCode:
    """The old leader has not heard of its end yet."""
    return refused(propose(cluster, 3, proposal(cluster, [0, 2, 1], leader_epoch=0, partition_epoch=0)))


def test_when_nobody_of_the_target_can_lead_the_partition_is_left_without_a_leader() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(2, 1, isr=(2, 1), leader=1, adding=(2,), removing=(1,))])
    lost = replace(cluster.partition(1), directories=(directory(2, 7), directory(1)))
    cluster.create(2, [lost])
    decision = propose(cluster, 1, proposal(cluster, [1, 2], number=2), number=2)
    assert only(decision).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert cluster.partition(2).leader == NO_LEADER
    assert decision.events == [LeadershipMoved("reassignment", partitions=1, leaderless=1, unclean=0)]


def test_where_unclean_elections_are_allowed_somebody_leads_all_the_same() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(
        1,
        [
            Partition(
                (2, 3, 1),
                (directory(2, 7), directory(3), directory(1)),
                (2, 1),
                1,
                adding=(2,),
                removing=(1,),
            )
        ],
    )
    allow = ConfigRecord(
        resource_type=TOPIC, resource_name="topic-1", name="unclean.leader.election.enable", value="true"
    )
    cluster.apply(allow)
    decision = propose(cluster, 1, proposal(cluster, [1, 2]))
    assert only(decision).error_code == ErrorCode.NEW_LEADER_ELECTED
    after = cluster.partition(1)
    assert (after.replicas, after.leader, after.isr, after.is_recovering) == ((2, 3), 3, (3,), True)
    assert decision.events == [LeadershipMoved("reassignment", partitions=1, leaderless=0, unclean=1)]


# Eligible leader replicas


def with_min_isr(cluster: Cluster, value: int) -> None:
    resource_type, name = CLUSTER_DEFAULT
    cluster.apply(
        ConfigRecord(
            resource_type=resource_type, resource_name=name, name="min.insync.replicas", value=str(value)
        )
    )


def test_who_leaves_an_isr_that_is_too_small_stays_eligible() -> None:
    cluster = Cluster([1, 2, 3], elr=True)
    with_min_isr(cluster, 3)
    cluster.create(1, [[1, 2, 3]])
    propose(cluster, 1, proposal(cluster, [1, 2]))
    assert (cluster.partition(1).isr, cluster.partition(1).elr) == ((1, 2), (3,))
    propose(cluster, 1, proposal(cluster, [1]))
    assert (cluster.partition(1).isr, cluster.partition(1).elr) == ((1,), (2, 3))
    propose(cluster, 1, proposal(cluster, [1, 3]))
    assert (cluster.partition(1).isr, cluster.partition(1).elr) == ((1, 3), (2,))
    propose(cluster, 1, proposal(cluster, [1, 2, 3]))
    assert (cluster.partition(1).isr, cluster.partition(1).elr) == ((1, 2, 3), ())


def test_the_isr_need_not_be_larger_than_the_replication_factor() -> None:
    cluster = Cluster([1, 2], elr=True)
    with_min_isr(cluster, 5)
    cluster.create(1, [[1, 2]])
    propose(cluster, 1, proposal(cluster, [1]))
    assert cluster.partition(1).elr == (2,)
    propose(cluster, 1, proposal(cluster, [1, 2]))
    assert cluster.partition(1).elr == ()


def test_replicas_that_a_reassignment_drops_are_not_eligible() -> None:
    cluster = Cluster([1, 2, 3, 4], elr=True)
    with_min_isr(cluster, 2)
    cluster.create(1, [partition(4, 1, 2, isr=(1, 2), leader=1, adding=(4,), removing=(1, 2))])
    propose(cluster, 1, proposal(cluster, [1, 2, 4]))
    after = cluster.partition(1)
    assert (after.replicas, after.isr, after.elr, after.leader) == ((4,), (4,), (), 4)
