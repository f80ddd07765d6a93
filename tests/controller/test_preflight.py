"""What stopping nodes would do, in small clusters, and against a naive model in drawn ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_cluster import Cluster, directory
from quorate.controller.preflight import EXAMPLES_MAX, PartitionsFound, Verdict, preflight_stop
from quorate.controller.topic_settings import min_isr
from quorate.metadata.image import BROKER, TOPIC
from quorate.metadata.partitions import NO_LEADER, Partition
from quorate.metadata.records import ConfigRecord, RemoveTopicRecord

NONE = PartitionsFound()
VOTERS = (3001, 3002, 3003)


def stop(cluster: Cluster, *ids: int, voters=VOTERS, caught_up=VOTERS):
    return preflight_stop(cluster.image, cluster.settings, ids, voters=voters, caught_up=caught_up)


def partition(replicas, isr, leader, elr=()):
    return Partition(tuple(replicas), tuple(map(directory, replicas)), tuple(isr), leader, elr=tuple(elr))


def set_min_isr(cluster: Cluster, value: int, topic: str = ""):
    kind = TOPIC if topic else BROKER
    record = ConfigRecord(
        resource_type=kind, resource_name=topic, name="min.insync.replicas", value=str(value)
    )
    cluster.apply(record)


# Brokers


def test_one_of_three_replicas_can_go():
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [(1, 2, 3), (2, 3, 1)])
    set_min_isr(cluster, 2)
    report = stop(cluster, 1)
    assert report.verdict is Verdict.SAFE
    assert report.reasons == ()
    assert report.nodes.brokers == (1,)
    assert (report.below_min_isr, report.leaderless, report.already_offline) == (NONE, NONE, NONE)


def test_two_of_three_replicas_cannot():
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [(1, 2, 3), (2, 3, 1)])
    set_min_isr(cluster, 2)
    report = stop(cluster, 2, 1)
    assert report.verdict is Verdict.UNSAFE
    assert report.below_min_isr == PartitionsFound(2, ("topic-1-0", "topic-1-1"))
    assert report.leaderless == NONE
    assert report.reasons == ("2 partitions would be below min.insync.replicas",)


def test_the_only_replica_in_sync_leaves_nobody_to_lead():
    cluster = Cluster([1, 2])
    cluster.create(1, [partition((1, 2), (1,), 1), (2, 1)])
    report = stop(cluster, 1)
    assert report.leaderless == PartitionsFound(1, ("topic-1-0",))
    assert report.below_min_isr == PartitionsFound(1, ("topic-1-0",))
    assert report.reasons[0] == "1 partition would have no leader"


def test_a_replica_that_is_in_sync_but_fenced_or_leaving_does_not_count():
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [(1, 2, 3)])
    cluster.fence(2)
    cluster.shut_down(3)
    assert stop(cluster, 1).leaderless.count == 1


def test_an_eligible_replica_can_lead_but_is_not_in_sync():
    cluster = Cluster([1, 2], elr=True)
    cluster.create(1, [partition((1, 2), (1,), 1, elr=(2,))])
    report = stop(cluster, 1)
    assert report.leaderless == NONE
    assert report.below_min_isr.count == 1


def test_an_eligible_replica_that_is_fenced_cannot_lead():
    cluster = Cluster([1, 2], elr=True)
    cluster.create(1, [partition((1, 2), (1,), 1, elr=(2,))])
    cluster.fence(2)
    assert stop(cluster, 1).leaderless.count == 1


def test_what_is_offline_already_is_not_blamed_on_the_stop():
    cluster = Cluster([1, 2, 3])
    cluster.fence(3)
    cluster.create(1, [partition((3,), (3,), NO_LEADER), (1, 2)])
    report = stop(cluster, 1)
    assert report.already_offline == PartitionsFound(1, ("topic-1-0",))
    assert report.verdict is Verdict.SAFE


def test_what_is_below_already_and_would_lose_another_replica_is_unsafe():
    cluster = Cluster([1, 2, 3, 4])
    cluster.create(1, [partition((1, 2, 3), (1, 2), 1)])
    set_min_isr(cluster, 3)
    assert stop(cluster, 1).below_min_isr.count == 1
    assert stop(cluster, 3).below_min_isr == NONE  # it is not in sync anyway
    assert stop(cluster, 4).verdict is Verdict.SAFE


def test_a_topic_of_its_own_mind_about_min_isr():
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [(1, 2, 3)], name="strict")
    cluster.create(2, [(1, 2, 3)], name="lax")
    set_min_isr(cluster, 3, "strict")
    assert stop(cluster, 3).below_min_isr == PartitionsFound(1, ("strict-0",))


def test_min_isr_is_never_more_than_a_topic_has_replicas():
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [(1, 2)])
    cluster.create(2, [(1,)])
    set_min_isr(cluster, 3)
    assert stop(cluster, 3).verdict is Verdict.SAFE
    assert stop(cluster, 1).below_min_isr.examples == ("topic-2-0", "topic-1-0")


def test_a_topic_that_is_gone_is_not_counted():
    cluster = Cluster([1, 2])
    topic = cluster.create(1, [(1,), (1,)])
    cluster.apply(RemoveTopicRecord(topic_id=topic))
    cluster.create(2, [(2,)])
    assert stop(cluster, 1).verdict is Verdict.SAFE


def test_examples_are_few_however_many_there_are():
    cluster = Cluster([1, 2])
    cluster.create(1, [(1,)] * 50)
    cluster.create(2, [(1, 2)] * 3)
    set_min_isr(cluster, 2)
    report = stop(cluster, 1)
    assert report.below_min_isr.count == 53
    assert report.leaderless.count == 50
    assert report.leaderless.examples == tuple(f"topic-1-{number}" for number in range(EXAMPLES_MAX))


def test_a_fenced_broker_is_said_to_be():
    cluster = Cluster([1, 2])
    cluster.create(1, [(2,)])
    cluster.fence(1)
    report = stop(cluster, 1)
    assert report.nodes.already_fenced == (1,)
    assert report.verdict is Verdict.SAFE


# The quorum


@pytest.mark.parametrize(
    ("ids", "caught_up", "lost"),
    [
        ((3001,), VOTERS, False),
        ((3001, 3002), VOTERS, True),
        ((3001,), (3001, 3002), True),  # 3003 is behind, so 3002 would be alone
        ((3003,), (3001, 3002), False),
        ((1,), (3001,), False),  # no voter: whatever is lost, it is not by this
    ],
)
def test_the_quorum_needs_a_majority_that_has_caught_up(ids, caught_up, lost):
    report = stop(Cluster([1, 2]), *ids, caught_up=caught_up)
    assert report.quorum_lost is lost
    assert (report.verdict is Verdict.UNSAFE) is lost
    assert report.voters_needed == 2


def test_a_node_that_is_broker_and_voter_is_judged_as_both():
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [(1,)])
    report = stop(cluster, 1, voters=(1,), caught_up=(1,))
    assert report.quorum_lost
    assert report.leaderless.count == 1
    assert (report.nodes.brokers, report.nodes.voters) == ((1,), (1,))


def test_a_node_that_nobody_knows_is_no_promise():
    report = stop(Cluster([1]), 7, 3001)
    assert report.nodes.unknown == (7,)
    assert report.verdict is Verdict.UNSAFE
    assert report.reasons == ("unknown: 7 (neither a broker nor a voter)",)


def test_stopping_nobody_is_safe():
    cluster = Cluster()
    assert stop(cluster, voters=(), caught_up=()).verdict is Verdict.SAFE


# Against a model that goes through partitions one by one

BROKERS = range(1, 7)


@st.composite
def clusters(draw):
    cluster = Cluster(BROKERS, elr=True)
    set_min_isr(cluster, draw(st.integers(1, 3)))
    for number in range(draw(st.integers(1, 4))):
        partitions = []
        for _ in range(draw(st.integers(1, 3))):
            replicas = draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=5, unique=True))
            isr = draw(st.lists(st.sampled_from(replicas), unique=True))
            others = [one for one in replicas if one not in isr]
            elr = draw(st.lists(st.sampled_from(others), unique=True)) if others else []
            partitions.append(partition(replicas, isr, draw(st.sampled_from(isr)) if isr else NO_LEADER, elr))
        cluster.create(number, partitions)
        if draw(st.booleans()):
            set_min_isr(cluster, draw(st.integers(1, 4)), f"topic-{number}")
    for broker_id in BROKERS:
        draw(st.sampled_from([cluster.fence, cluster.shut_down, int, int]))(broker_id)
    return cluster, draw(st.lists(st.sampled_from(BROKERS), unique=True))


@given(clusters())
def test_it_finds_what_a_model_finds(drawn):
    cluster, ids = drawn
    below, leaderless, offline = set(), set(), set()
    alive = {one.id for one in cluster.image.brokers.values() if one.is_active} - set(ids)
    for topic in cluster.image.topics:
        bound = min_isr(cluster.image, cluster.settings, topic.name)
        for partition_id, one in cluster.image.partitions_of(topic.id):
            name = f"{topic.name}-{partition_id}"
            if set(one.isr) & set(ids) and len(set(one.isr) & alive) < bound:
                below.add(name)
            if one.leader in ids and not (set(one.isr) | set(one.elr)) & alive:
                leaderless.add(name)
            if one.leader == NO_LEADER:
                offline.add(name)
    report = stop(cluster, *ids)
    assert set(report.below_min_isr.examples) == below
    assert set(report.leaderless.examples) == leaderless
    assert set(report.already_offline.examples) == offline
    assert report.below_min_isr.count == len(below)
