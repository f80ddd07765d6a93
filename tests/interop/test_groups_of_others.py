"""Other people's consumers in groups that we coordinate: alone among themselves, and all together."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Producer
from group_members import (
    KINDS,
    AioKafka,
    KafkaPython,
    Librdkafka,
    Ours,
    members_of,
    shared_by,
    until,
)

from node.broker_processes import BrokerProcesses
from node.zookeeper_processes import BOTH_MODES, cluster_of
from quorate.client.cluster import Cluster
from quorate.client.group_admin import Group, Groups
from quorate.client.group_consumer import GroupProtocol
from quorate.client.group_offsets import committed_offsets
from quorate.client.metadata import TopicPartition

pytestmark = pytest.mark.interop

PARTITIONS = 4
SETTINGS = {
    "offsets_topic_num_partitions": "4",
    "offsets_topic_replication_factor": "2",
    "group_initial_rebalance_delay_ms": "0",
    "group_consumer_heartbeat_interval_ms": "200",
    "group_consumer_min_heartbeat_interval_ms": "200",
    "replica_fetch_wait_max_ms": "100",
}


@pytest.fixture(scope="module", params=BOTH_MODES)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcesses]:
    root = tmp_path_factory.mktemp("cluster")
    with cluster_of(request.param, root, controllers=1, brokers=2, **SETTINGS) as running:
        yield running


class Topic:
    """A topic of numbers."""

    def __init__(self, cluster: BrokerProcesses, name: str) -> None:
        self.name = name
        self.sent: list[bytes] = []
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 2})
        cluster.create_topic(name, *[(101, 102), (102, 101)] * (PARTITIONS // 2))
        cluster.wait_until_led(name, PARTITIONS)  # kafka-python keeps it in mind if a broker does not know it

    def send(self, number: int = 40) -> set[bytes]:
        """Some records to each partition. What they are."""
        values = [str(len(self.sent) + one).encode() for one in range(number)]
        for one, value in enumerate(values):
            self._producer.produce(self.name, value, partition=one % PARTITIONS)
        assert self._producer.flush(60) == 0
        self.sent += values
        return set(values)


_NAMES = count()


@pytest.fixture
def topic(cluster: BrokerProcesses) -> Topic:
    return Topic(cluster, f"topic-{next(_NAMES)}")


def described(cluster: BrokerProcesses, group: str) -> Group:
    async def ask() -> Group:
        async with Cluster(cluster.bootstrap) as client:
            return await Groups(client).describe(group)

    return asyncio.run(ask())


def committed(cluster: BrokerProcesses, group: str) -> dict[TopicPartition, int]:
    async def ask() -> dict[TopicPartition, int]:
        async with Cluster(cluster.bootstrap) as client:
            return {at: one.offset for at, one in (await committed_offsets(client, group)).items()}

    return asyncio.run(ask())


@pytest.mark.parametrize("name", KINDS)
def test_members_share_take_over_and_go_on(cluster: BrokerProcesses, topic: Topic, name: str) -> None:
    group = f"{name} alone"
    topic.send()
    with members_of(cluster.bootstrap, group, topic.name) as add:
        first, second = add(KINDS[name]()), add(KINDS[name]())
        both = (first, second)
        until("each has a part", shared_by(PARTITIONS, *both), *both)
        until("all is read", lambda: {*first.seen, *second.seen} >= set(topic.sent), *both)
        found = described(cluster, group)
        assert found.kind.lower() == ("consumer" if name.endswith(", consumer") else "classic")
        assert len(found.members) == 2
        owned = [tuple(at) for one in found.members for at in one.partitions]
        assert sorted(owned) == [(topic.name, one) for one in range(PARTITIONS)]
        first.close()
        until("the other has taken over", shared_by(PARTITIONS, second), second)
        news = topic.send()
        until("it reads what comes", lambda: set(second.seen) >= news, second)
    assert described(cluster, group).state.lower() == "empty"
    each = len(topic.sent) // PARTITIONS
    assert committed(cluster, group) == {TopicPartition(topic.name, at): each for at in range(PARTITIONS)}
    news = topic.send()
    with members_of(cluster.bootstrap, group, topic.name) as add:
        third = add(KINDS[name]())
        until("it reads what is new", lambda: set(third.seen) >= news, third)
        assert set(third.seen) == news


def test_classic_members_of_all_clients_are_one_group(cluster: BrokerProcesses, topic: Topic) -> None:
    topic.send()
    with members_of(cluster.bootstrap, "all", topic.name) as add:
        kinds = [Librdkafka(partition_assignment_strategy="range"), KafkaPython(), AioKafka(), Ours()]
        members = [add(one) for one in kinds]
        until("each has one", shared_by(PARTITIONS, *members), *members)
        news = topic.send()
        until("all is read", lambda: {v for one in members for v in one.seen} >= {*topic.sent}, *members)
        for one in members[:3]:
            one.close()
        until("ours has all", shared_by(PARTITIONS, members[3]), members[3])
        news = topic.send()
        until("and reads it", lambda: set(members[3].seen) >= news, members[3])
    found = described(cluster, "all")
    assert (found.kind.lower(), found.state) == ("classic", "Empty")


@pytest.mark.parametrize("leads", ["theirs", "ours"])
def test_ours_and_librdkafka_lead_each_other(cluster: BrokerProcesses, topic: Topic, leads: str) -> None:
    """Who comes first divides the partitions, and so the other has to understand the division."""
    kinds = [Librdkafka(partition_assignment_strategy="range"), Ours()]
    with members_of(cluster.bootstrap, f"led by {leads}", topic.name) as add:
        first = add(kinds.pop(0 if leads == "theirs" else 1))
        until("it has all", shared_by(PARTITIONS, first), first)
        second = add(kinds.pop())
        until("each has a half", shared_by(PARTITIONS, first, second), first, second)
        news = topic.send()
        until("all is read", lambda: {*first.seen, *second.seen} >= news, first, second)
        assert not set(first.seen) & set(second.seen)


@pytest.mark.parametrize("new", ["librdkafka", "quorate"])
def test_a_group_goes_over_to_the_consumer_protocol_and_back(
    cluster: BrokerProcesses, topic: Topic, new: str
) -> None:
    group = f"upgraded by {new}"
    fresh = Librdkafka(group_protocol="consumer") if new == "librdkafka" else Ours(GroupProtocol.CONSUMER)
    topic.send()
    with members_of(cluster.bootstrap, group, topic.name) as add:
        old = [add(Librdkafka(partition_assignment_strategy="range")) for _ in range(2)]
        until("each has a half", shared_by(PARTITIONS, *old), *old)
        assert described(cluster, group).kind.lower() == "classic"
        upgraded = add(fresh)
        members = [*old, upgraded]
        until("each has a part", shared_by(PARTITIONS, *members), *members)
        found = described(cluster, group)
        assert (found.kind.lower(), len(found.members)) == ("consumer", 3)
        news = topic.send()
        until("all is read", lambda: {v for one in members for v in one.seen} >= {*topic.sent}, *members)
        upgraded.close()
        until("the old have it again", shared_by(PARTITIONS, *old), *old)
        found = described(cluster, group)
        assert (found.kind.lower(), len(found.members)) == ("classic", 2)
        news = topic.send()
        until("all is read", lambda: {v for one in old for v in one.seen} >= news, *old)
        # And forward to the end: one after the other comes back as a member of the new kind.
        last = add(Librdkafka(group_protocol="consumer"))
        for one in old:
            one.close()
        until("the new one has all", shared_by(PARTITIONS, last), last)
        news = topic.send()
        until("and reads it", lambda: set(last.seen) >= news, last)
        found = described(cluster, group)
        assert (found.kind.lower(), len(found.members)) == ("consumer", 1)
