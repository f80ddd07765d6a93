"""A broker says in which directory its replicas are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller_cluster import Cluster, directory, topic_id
from quorate.controller.decision import Decision
from quorate.controller.directories import decide_assign_replicas_to_dirs
from quorate.controller.events import LeadershipMoved
from quorate.metadata.image import CLUSTER_DEFAULT, TOPIC
from quorate.metadata.partitions import LOST, NO_LEADER, UNASSIGNED, Partition
from quorate.metadata.records import ConfigRecord, PartitionChangeRecord
from quorate.protocol.api.brokers import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

OFFLINE = Uuid(b"disk that broke.")
Given = AssignReplicasToDirsRequest.DirectoryData
Topic = AssignReplicasToDirsRequest.DirectoryData.TopicData
One = AssignReplicasToDirsRequest.DirectoryData.TopicData.PartitionData

Places = list[tuple[Uuid, int, int]]  # directory, number of the topic, partition id


def partition(*replicas: int, **more: Any) -> Partition:
    return replace(Partition(replicas, tuple(map(directory, replicas)), replicas, replicas[0]), **more)


def request(cluster: Cluster, broker_id: int, places: Places) -> AssignReplicasToDirsRequest:
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.brokers[broker_id].epoch,
        directories=[
            Given(
                id=place,
                topics=[Topic(topic_id=topic_id(number), partitions=[One(partition_index=partition_id)])],
            )
            for place, number, partition_id in places
        ],
    )


def assign(cluster: Cluster, broker_id: int, places: Places) -> Decision:
    return cluster.decide(decide_assign_replicas_to_dirs, request(cluster, broker_id, places))


def codes(decision: Decision) -> list[ErrorCode]:
    reply = decision.reply
    assert isinstance(reply, AssignReplicasToDirsResponse)
    assert reply.error_code == 0
    encode(reply, 0)
    return [
        ErrorCode(one.error_code)
        for given in reply.directories
        for topic in given.topics
        for one in topic.partitions
    ]


def change(number: int, partition_id: int, **what: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=topic_id(number), partition_id=partition_id, **what)


def configure(cluster: Cluster, name: str, value: str, resource: tuple[int, str] = CLUSTER_DEFAULT) -> None:
    cluster.apply(ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value))


def test_where_replicas_are_is_written_down_first_and_then_what_it_means() -> None:
    cluster = Cluster([2])
    cluster.register(1, directories=2)
    cluster.create(1, [[1, 2]] * 3, name="a")
    cluster.create(2, [[1, 2]] * 2, name="b")
    cluster.create(3, [[2]], name="c")
    first, second, other = directory(1, 0), directory(1, 1), directory(2)
    decision = assign(
        cluster,
        1,
        [
            (second, 1, 0),
            (first, 1, 1),  # where it was
            (OFFLINE, 1, 2),
            (second, 2, 0),
            (LOST, 2, 1),
            (second, 9, 1),
            (second, 1, 137),
            (second, 3, 0),
        ],
    )
    assert codes(decision) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]
    assert decision.records == [
        change(1, 0, directories=[second, other]),
        change(1, 2, directories=[OFFLINE, other]),
        change(2, 0, directories=[second, other]),
        change(2, 1, directories=[LOST, other]),
        change(1, 2, isr=[2], leader=2),
        change(2, 1, isr=[2], leader=2),
    ]
    assert not decision.is_atomic
    (event,) = decision.events
    assert isinstance(event, LeadershipMoved)
    assert (event.partitions, event.leaderless) == (2, 0)
    assert "log directory that is not online" in event.line()


def test_an_assignment_changes_the_partition_epoch_and_not_the_leader_epoch() -> None:
    cluster = Cluster([2])
    cluster.register(1, directories=2)
    cluster.create(1, [partition(2, 1, directories=(directory(2), UNASSIGNED), leader_epoch=3)])
    assign(cluster, 1, [(directory(1, 1), 1, 0)])
    after = cluster.partition(1)
    assert after.directories == (directory(2), directory(1, 1))
    assert (after.leader_epoch, after.partition_epoch, after.isr) == (3, 1, (2, 1))


def test_a_follower_in_a_lost_directory_is_not_in_sync() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[2, 1]])
    decision = assign(cluster, 1, [(LOST, 1, 0)])
    after = cluster.partition(1)
    assert (after.isr, after.leader, after.leader_epoch, after.partition_epoch) == ((2,), 2, 0, 2)
    assert decision.events == []


def test_the_last_in_sync_replica_stays_listed_but_does_not_lead() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, isr=(1,))])
    decision = assign(cluster, 1, [(OFFLINE, 1, 0)])
    after = cluster.partition(1)
    assert (after.isr, after.leader, after.leader_epoch) == ((1,), NO_LEADER, 1)
    (event,) = decision.events
    assert isinstance(event, LeadershipMoved)
    assert (event.partitions, event.leaderless, event.unclean) == (1, 1, 0)


def test_where_unclean_elections_are_allowed_another_replica_leads() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, isr=(1,))])
    configure(cluster, "unclean.leader.election.enable", "true", (TOPIC, "topic-1"))
    assign(cluster, 1, [(OFFLINE, 1, 0)])
    after = cluster.partition(1)
    assert (after.isr, after.leader, after.is_recovering) == ((2,), 2, True)


def test_eligible_leader_replicas_stay_eligible() -> None:
    cluster = Cluster([2, 3], elr=True)
    cluster.register(1, directories=2)
    configure(cluster, "min.insync.replicas", "3")
    cluster.create(1, [partition(1, 2, 3, isr=(1, 2), elr=(3,))])
    assign(cluster, 1, [(directory(1, 1), 1, 0)])
    assert (cluster.partition(1).isr, cluster.partition(1).elr) == ((1, 2), (3,))
    assign(cluster, 2, [(LOST, 1, 0)])
    assert (cluster.partition(1).isr, cluster.partition(1).elr) == ((1,), (2, 3))
    assign(cluster, 1, [(LOST, 1, 0)])
    after = cluster.partition(1)
    assert (after.isr, after.elr, after.leader) == ((3,), (1, 2), 3)


def test_reserved_ids_that_are_no_directories_do_not_take_a_replica_out() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    decision = assign(cluster, 1, [(UNASSIGNED, 1, 0)])
    assert decision.records == [change(1, 0, directories=[UNASSIGNED, directory(2)])]


def test_the_same_assignment_again_needs_no_record() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    assert assign(cluster, 1, [(directory(1), 1, 0)]).records == []
    assign(cluster, 1, [(OFFLINE, 1, 0)])
    assert assign(cluster, 1, [(OFFLINE, 1, 0)]).records == []


def test_what_a_request_says_last_counts() -> None:
    cluster = Cluster([2])
    cluster.register(1, directories=2)
    cluster.create(1, [[1, 2]])
    decision = assign(cluster, 1, [(OFFLINE, 1, 0), (directory(1, 1), 1, 0)])
    assert codes(decision) == [ErrorCode.NONE] * 2
    after = cluster.partition(1)
    assert (after.directories[0], after.leader, after.isr) == (directory(1, 1), 1, (1, 2))


def test_who_is_not_the_registered_incarnation_is_refused_altogether() -> None:
    cluster = Cluster([1])
    cluster.create(1, [[1]])
    stale = request(cluster, 1, [(LOST, 1, 0)])
    stale.broker_epoch -= 1
    unknown = request(cluster, 1, [(LOST, 1, 0)])
    unknown.broker_id = 5
    for asked in (stale, unknown):
        with pytest.raises(ApiError) as raised:
            cluster.decide(decide_assign_replicas_to_dirs, asked)
        assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_older_clusters_know_no_directories() -> None:
    cluster = Cluster([1], metadata_version=16)
    cluster.create(1, [[1]])
    with pytest.raises(ApiError, match=r"metadata\.version is 16") as raised:
        assign(cluster, 1, [(directory(1), 1, 0)])
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
