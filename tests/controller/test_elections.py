"""Elections that somebody asks for, and those that bring leaderships back to where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_cluster import Cluster, directory, topic_id
from quorate.controller import elections
from quorate.controller.decision import RECORDS_MAX, Decision, count_records
from quorate.controller.elections import Changes, balance_leaders, decide_elect_leaders
from quorate.controller.events import LeadershipMoved
from quorate.controller.partition_change import Election, Wanted
from quorate.metadata.image import CLUSTER_DEFAULT, TOPIC
from quorate.metadata.partitions import LOST, MIGRATING, NO_LEADER, UNASSIGNED, Partition
from quorate.metadata.records import ConfigRecord, PartitionChangeRecord
from quorate.protocol.api.topics import ElectLeadersRequest, ElectLeadersResponse
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode

PREFERRED, UNCLEAN = 0, 1
Asked = dict[str, list[int]] | None


def partition(*replicas: int, **more: Any) -> Partition:
    return replace(Partition(replicas, tuple(map(directory, replicas)), replicas, replicas[0]), **more)


def request(kind: int, asked: Asked) -> ElectLeadersRequest:
    make = ElectLeadersRequest.TopicPartitions
    topics = None if asked is None else [make(topic=name, partitions=some) for name, some in asked.items()]
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics)


def elect(cluster: Cluster, kind: int, asked: Asked) -> Decision:
    return cluster.decide(decide_elect_leaders, request(kind, asked), api_version=2)


def results(decision: Decision) -> dict[tuple[str, int], ErrorCode]:
    reply = decision.reply
    assert isinstance(reply, ElectLeadersResponse)
    assert reply.error_code == 0
    for version in range(3):
        encode(reply, version)
    found = [(topic.topic, one) for topic in reply.replica_election_results for one in topic.partition_result]
    assert all((one.error_message is None) == (one.error_code == 0) for _, one in found)
    return {(name, one.partition_id): ErrorCode(one.error_code) for name, one in found}


def leaders(cluster: Cluster, number: int = 1) -> list[int]:
    return [one.leader for _, one in cluster.image.partitions_of(topic_id(number))]


def configure(cluster: Cluster, name: str, value: str, resource: tuple[int, str] = CLUSTER_DEFAULT) -> None:
    cluster.apply(ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value))


# Preferred leaders, asked for


def test_the_first_replica_gets_its_partition_back() -> None:
    cluster = Cluster([0, 1, 2, 3, 4])
    cluster.create(1, [partition(1, 2, 3, leader=2), [2, 3, 4], partition(0, 2, 1, leader=2)], name="foo")
    decision = elect(cluster, PREFERRED, {"foo": [0, 1, 2], "bar": [0]})
    assert results(decision) == {
        ("foo", 0): ErrorCode.NONE,
        ("foo", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("foo", 2): ErrorCode.NONE,
        ("bar", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert decision.records == [
        PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, leader=1),
        PartitionChangeRecord(topic_id=topic_id(1), partition_id=2, leader=0),
    ]
    assert decision.events == [LeadershipMoved("asked for", partitions=2, leaderless=0, unclean=0)]
    assert not decision.is_atomic
    assert leaders(cluster) == [1, 2, 0]
    assert (cluster.partition(1).leader_epoch, cluster.partition(1).partition_epoch) == (1, 1)


@pytest.mark.parametrize("asked", [{"foo": [0, 1, 2]}, None])
def test_a_first_replica_that_is_fenced_shutting_down_or_not_in_sync_cannot_lead(asked: Asked) -> None:
    cluster = Cluster([0, 1, 2, 3])
    cluster.create(
        1, [partition(1, 2, leader=2), partition(3, 2, leader=2), partition(0, 2, isr=(2,), leader=2)], "foo"
    )
    cluster.fence(1)
    cluster.shut_down(3)
    decision = elect(cluster, PREFERRED, asked)
    assert set(results(decision).values()) == {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert len(results(decision)) == 3
    assert (decision.records, decision.events) == ([], [])


@pytest.mark.parametrize("asked", [{"topic-1": [0]}, None])
def test_a_first_replica_whose_directory_is_lost_cannot_lead(asked: Asked) -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, leader=2, directories=(LOST, directory(2)))])
    decision = elect(cluster, PREFERRED, asked)
    assert results(decision) == {("topic-1", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_a_preferred_election_is_never_unclean() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(1, 2, 3, isr=(1,), leader=NO_LEADER)])
    cluster.fence(1)
    configure(cluster, "unclean.leader.election.enable", "true", (TOPIC, "topic-1"))
    for asked in ({"topic-1": [0]}, None):
        decision = elect(cluster, PREFERRED, asked)
        assert results(decision) == {("topic-1", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert cluster.partition(1).leader == NO_LEADER


@pytest.mark.parametrize("asked", [{"topic-1": [0]}, None])
def test_a_preferred_election_gives_a_leader_to_a_partition_that_has_none(asked: Asked) -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(1, 2, 3, isr=(1, 3), leader=NO_LEADER)])
    cluster.fence(1)
    assert results(elect(cluster, PREFERRED, asked)) == {("topic-1", 0): ErrorCode.NONE}
    assert cluster.partition(1).leader == 3


def test_what_is_asked_again_is_answered_again() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, leader=2), partition(3, 2, leader=2, isr=(2,)), [1, 2]])
    decision = elect(cluster, 0, {"topic-1": [0, 1, 2] * 3})
    reply = decision.reply
    assert isinstance(reply, ElectLeadersResponse)
    codes = [one.error_code for one in reply.replica_election_results[0].partition_result]
    unavailable, needless = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELECTION_NOT_NEEDED
    assert codes == [ErrorCode.NONE, unavailable, needless, *[needless, unavailable, needless] * 2]
    assert len(decision.records) == 1


def test_asking_for_all_leaves_out_those_that_need_nothing() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(1, 2, leader=2), [2, 1]], name="foo")
    cluster.create(2, [partition(3, 1, leader=1), [1, 2]], name="bar")
    cluster.create(3, [[1, 2, 3], [2, 3, 1]], name="baz")
    decision = elect(cluster, PREFERRED, None)
    assert results(decision) == {("foo", 0): ErrorCode.NONE, ("bar", 0): ErrorCode.NONE}
    assert (leaders(cluster, 1), leaders(cluster, 2)) == ([1, 2], [3, 1])
    assert elect(cluster, PREFERRED, None).records == []


def test_asking_for_all_builds_changes_only_where_they_can_come_to_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3]] * 500)
    cluster.create(2, [partition(3, 2, 1, leader=2), partition(1, 2, leader=2), partition(1, isr=(1,))])
    cluster.fence(3)
    built: list[int] = []
    build = elections.build_change

    def counting(*args: Any) -> PartitionChangeRecord | None:
        built.append(args[2])
        return build(*args)

    monkeypatch.setattr(elections, "build_change", counting)
    decision = elect(cluster, PREFERRED, None)
    assert built == [1]
    assert results(decision) == {
        ("topic-2", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("topic-2", 1): ErrorCode.NONE,
    }


def test_the_same_partition_twice_is_elected_once() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, leader=2)])
    decision = elect(cluster, PREFERRED, {"topic-1": [0, 0]})
    assert isinstance(decision.reply, ElectLeadersResponse)
    (topic,) = decision.reply.replica_election_results
    assert [one.error_code for one in topic.partition_result] == [0, ErrorCode.ELECTION_NOT_NEEDED]
    assert len(decision.records) == 1


@pytest.mark.parametrize("partition_id", [-1, 1])
def test_partitions_that_do_not_exist(partition_id: int) -> None:
    cluster = Cluster([1])
    cluster.create(1, [[1]])
    decision = elect(cluster, PREFERRED, {"topic-1": [partition_id]})
    assert results(decision) == {("topic-1", partition_id): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("kind", [-1, 2])
def test_there_are_two_types_of_elections(kind: int) -> None:
    with pytest.raises(ApiError, match=f"type {kind}") as raised:
        elect(Cluster([1]), kind, None)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("asked", [{"topic-1": list(range(RECORDS_MAX + 1))}, None])
def test_one_request_can_elect_ten_thousand_leaders_and_no_more(asked: Asked) -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, leader=2)] * (RECORDS_MAX + 1))
    with pytest.raises(ApiError, match="10001 records") as raised:
        elect(cluster, PREFERRED, asked)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    assert cluster.partition(1).leader == 2


# Unclean elections, asked for


@pytest.mark.parametrize("asked", [{"topic-1": [0, 1, 2]}, None])
def test_an_unclean_election_makes_anyone_alive_the_leader(asked: Asked) -> None:
    cluster = Cluster([0, 1, 2, 3, 4])
    cluster.create(
        1,
        [
            partition(1, 2, 3, isr=(1,), leader=NO_LEADER),
            partition(2, 3, 4, isr=(2, 4), leader=4),  # its preferred leader is available; not asked for
            partition(0, 2, 1, isr=(0,)),
        ],
    )
    cluster.fence(1)
    cluster.fence(3)
    decision = elect(cluster, UNCLEAN, asked)
    unneeded = ErrorCode.ELECTION_NOT_NEEDED
    expected = {("topic-1", 0): ErrorCode.NONE, ("topic-1", 1): unneeded, ("topic-1", 2): unneeded}
    if asked is None:
        expected = {("topic-1", 0): ErrorCode.NONE}
    assert results(decision) == expected
    after = cluster.partition(1)
    assert (after.leader, after.isr, after.is_recovering) == (2, (2,), True)
    assert leaders(cluster) == [2, 4, 0]
    assert decision.events == [LeadershipMoved("unclean election", partitions=1, leaderless=0, unclean=1)]


@pytest.mark.parametrize("asked", [{"topic-1": [0]}, None])
def test_an_unclean_election_prefers_who_is_in_sync(asked: Asked) -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(1, 2, 3, isr=(3,), leader=NO_LEADER)])
    decision = elect(cluster, UNCLEAN, asked)
    after = cluster.partition(1)
    assert (after.leader, after.isr, after.is_recovering) == (3, (3,), False)
    assert decision.events == [LeadershipMoved("unclean election", partitions=1, leaderless=0, unclean=0)]


@pytest.mark.parametrize("asked", [{"topic-1": [0, 1]}, None])
def test_nobody_alive_cannot_be_elected(asked: Asked) -> None:
    cluster = Cluster([1, 2, 3])
    lost = partition(3, isr=(3,), leader=NO_LEADER, directories=(LOST,))
    cluster.create(1, [partition(1, 2, isr=(1,), leader=NO_LEADER), lost])
    cluster.fence(1)
    cluster.shut_down(2)
    decision = elect(cluster, UNCLEAN, asked)
    expected = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert results(decision) == {("topic-1", 0): expected, ("topic-1", 1): expected}
    assert decision.records == []


def test_eligible_replicas_and_the_last_known_leader_come_before_anyone_else() -> None:
    cluster = Cluster([1, 2, 3], elr=True)
    configure(cluster, "min.insync.replicas", "2")
    nobody = partition(1, 2, 3, isr=(), leader=NO_LEADER)
    cluster.create(1, [replace(nobody, elr=(3,)), replace(nobody, last_known_leader=2), nobody])
    decision = elect(cluster, UNCLEAN, None)
    assert leaders(cluster) == [3, 2, 1]
    assert [cluster.partition(1, one).is_recovering for one in range(3)] == [False, True, True]
    assert decision.events == [LeadershipMoved("unclean election", partitions=3, leaderless=0, unclean=2)]


def test_a_preferred_election_finds_eligible_replicas_and_the_last_known_leader() -> None:
    cluster = Cluster([1, 2, 3], elr=True)
    configure(cluster, "min.insync.replicas", "2")
    nobody = partition(1, 2, 3, isr=(), leader=NO_LEADER)
    cluster.create(1, [replace(nobody, elr=(3,)), replace(nobody, last_known_leader=2), nobody])
    decision = elect(cluster, PREFERRED, None)
    assert leaders(cluster) == [3, 2, NO_LEADER]
    assert results(decision)["topic-1", 2] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


# The balancer


def test_leaderships_drift_back_by_themselves() -> None:
    cluster = Cluster([0, 1, 2, 3, 4])
    cluster.create(
        1, [partition(1, 2, 3, isr=(2, 3), leader=2), [2, 3, 4], partition(0, 2, 1, isr=(2,), leader=2)]
    )
    assert cluster.decide(balance_leaders).records == []  # not as long as they are not in sync
    cluster.create(2, [partition(3, 1, leader=1)])
    cluster.apply(PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, isr=[1, 2, 3]))
    decision = cluster.decide(balance_leaders)
    assert (leaders(cluster, 1), leaders(cluster, 2)) == ([1, 2, 2], [3])
    assert decision.events == [LeadershipMoved("preferred leader", partitions=2, leaderless=0, unclean=0)]
    assert cluster.decide(balance_leaders).records == []


def test_the_balancer_leaves_fenced_brokers_alone() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, leader=2)])
    cluster.fence(1)
    assert cluster.decide(balance_leaders).records == []


def test_the_balancer_gives_leaders_to_partitions_without_one() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [partition(1, 2, leader=NO_LEADER), partition(1, 2, isr=(1,), leader=NO_LEADER)])
    cluster.fence(1)
    decision = cluster.decide(balance_leaders)
    assert leaders(cluster) == [2, NO_LEADER]
    assert decision.events == [LeadershipMoved("preferred leader", partitions=1, leaderless=0, unclean=0)]


def test_the_balancer_does_so_much_at_a_time() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [partition(1, 2, leader=2)] * 5)
    cluster.create(2, [partition(3, 2, 1, leader=1)] * 2)
    counts = [count_records(cluster.decide(balance_leaders, 3).records) for _ in range(4)]
    assert counts == [3, 3, 1, 0]
    assert (leaders(cluster, 1), leaders(cluster, 2)) == ([1] * 5, [3] * 2)


def test_brokers_without_named_directories_can_lead() -> None:
    cluster = Cluster([1, 2], metadata_version=11)
    cluster.create(1, [partition(1, 2, leader=2)])
    assert len(cluster.decide(balance_leaders).records) == 1
    newer = Cluster([2])
    newer.register(1, directories=0)
    newer.create(1, [partition(1, 2, leader=2)])
    assert len(newer.decide(balance_leaders).records) == 1


# The search in the columns finds what a look at every partition finds


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    elr = draw(st.booleans())
    cluster = Cluster(elr=elr)
    for broker_id in range(5):
        cluster.register(broker_id, directories=draw(st.sampled_from([0, 1, 2])))
    configure(cluster, "min.insync.replicas", "2")
    for number in range(draw(st.integers(1, 3))):
        cluster.create(number, draw(st.lists(partitions(elr), min_size=1, max_size=4)))
    for broker_id in draw(st.lists(st.integers(0, 4), max_size=3, unique=True)):
        change = draw(st.sampled_from([cluster.fence, cluster.shut_down]))
        change(broker_id)
    return cluster


@st.composite
def partitions(draw: st.DrawFn, elr: bool) -> Partition:
    def some(of: Sequence[int], least: int = 0) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.sampled_from(of), min_size=least, unique=True))) if of else ()

    replicas = some(range(6), 1)  # 5 is no broker
    isr = some(replicas, 0 if elr else 1)
    last_known = draw(st.sampled_from([NO_LEADER, *replicas])) if elr else NO_LEADER
    places = [MIGRATING, UNASSIGNED, LOST, *(directory(one, two) for one in replicas for two in (0, 1))]
    return Partition(
        replicas=replicas,
        directories=tuple(draw(st.sampled_from(places)) for _ in replicas),
        isr=isr,
        leader=draw(st.sampled_from([NO_LEADER, *isr])),
        elr=some([one for one in replicas if one not in isr]) if elr else (),
        last_known_leader=last_known,
    )


@given(clusters(), st.sampled_from([PREFERRED, UNCLEAN]))
def test_asking_for_all_comes_to_the_same_as_naming_all(cluster: Cluster, kind: int) -> None:
    image = cluster.image
    every: Asked = {topic.name: [one for one, _ in image.partitions_of(topic.id)] for topic in image.topics}
    named = decide_elect_leaders(cluster.situation(2), request(kind, every))
    needed = {one: code for one, code in results(named).items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
    everywhere = decide_elect_leaders(cluster.situation(2), request(kind, None))
    assert results(everywhere) == needed
    assert sorted(map(repr, everywhere.records)) == sorted(map(repr, named.records))


@given(clusters())
def test_the_balancer_finds_every_partition_that_it_can_do_something_for(cluster: Cluster) -> None:
    changes = Changes(cluster.situation())
    for topic in cluster.image.topics:
        for partition_id, now in cluster.image.partitions_of(topic.id):
            record = changes.build(topic, partition_id, Wanted(election=Election.PREFERRED))
            if now.leader != now.replicas[0] and record is not None and record.leader >= 0:
                changes.add(topic, record)
    decision = balance_leaders(cluster.situation())
    assert sorted(map(repr, decision.records)) == sorted(map(repr, changes.records))
