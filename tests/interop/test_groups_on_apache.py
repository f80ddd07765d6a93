"""Our group members on an Apache broker: among themselves, and beside librdkafka's."""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from group_members import KINDS, Librdkafka, Ours, members_of, shared_by, until
from test_client_on_apache import ApacheBroker, make, programs

from node.processes import Processes
from quorate.client.cluster import Cluster
from quorate.client.group_admin import Group, Groups
from quorate.client.group_consumer import GroupProtocol
from quorate.client.group_offsets import committed_offsets
from quorate.client.metadata import TopicPartition

__all__ = ["programs"]
pytestmark = pytest.mark.interop

PARTITIONS = 4
both = pytest.mark.parametrize("protocol", list(GroupProtocol))


@pytest.fixture(scope="module")
def broker(programs, tmp_path_factory) -> Iterator[ApacheBroker]:
    root = tmp_path_factory.mktemp("apache")
    with Processes(root) as ports:
        made = ApacheBroker(programs, root, ports)
        with (root / "server.properties").open("a") as properties:
            properties.write("group.consumer.heartbeat.interval.ms=200\n")
            properties.write("group.consumer.min.heartbeat.interval.ms=200\n")
        with made.running():
            yield made


def topic_with_records(broker: ApacheBroker, name: str) -> set[bytes]:
    async def create() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await make(cluster, name, PARTITIONS)

    asyncio.run(create())
    return send(broker, name, 0)


def send(broker: ApacheBroker, topic: str, first: int) -> set[bytes]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    values = [str(first + number).encode() for number in range(40)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return set(values)


def asked(broker: ApacheBroker, group: str) -> tuple[Group, dict[TopicPartition, int]]:
    async def ask() -> tuple[Group, dict[TopicPartition, int]]:
        async with Cluster(broker.bootstrap) as cluster:
            offsets = await committed_offsets(cluster, group)
            return await Groups(cluster).describe(group), {at: one.offset for at, one in offsets.items()}

    return asyncio.run(ask())


@both
def test_ours_share_take_over_and_go_on(broker: ApacheBroker, protocol: GroupProtocol) -> None:
    topic = group = f"ours-{protocol.value}"
    first_part = topic_with_records(broker, topic)
    with members_of(broker.bootstrap, group, topic) as add:
        first, second = add(Ours(protocol)), add(Ours(protocol))
        until("each has a part", shared_by(PARTITIONS, first, second), first, second)
        until("all is read", lambda: {*first.seen, *second.seen} >= first_part, first, second)
        found, _ = asked(broker, group)
        assert (found.kind.lower(), found.state, len(found.members)) == (protocol.value, "Stable", 2)
        first.close()
        until("the other has taken over", shared_by(PARTITIONS, second), second)
        news = send(broker, topic, 40)
        until("it reads what comes", lambda: set(second.seen) >= news, second)
    found, offsets = asked(broker, group)
    assert found.state == "Empty"
    assert offsets == {TopicPartition(topic, at): 20 for at in range(PARTITIONS)}
    news = send(broker, topic, 80)
    with members_of(broker.bootstrap, group, topic) as add:
        third = add(Ours(protocol))
        until("it reads what is new", lambda: set(third.seen) >= news, third)
        assert set(third.seen) == news


@both
def test_ours_beside_librdkafka(broker: ApacheBroker, protocol: GroupProtocol) -> None:
    topic = group = f"beside-{protocol.value}"
    topic_with_records(broker, topic)
    name = "librdkafka, range" if protocol is GroupProtocol.CLASSIC else "librdkafka, consumer"
    with members_of(broker.bootstrap, group, topic) as add:
        theirs, ours = add(KINDS[name]()), add(Ours(protocol))
        until("each has a part", shared_by(PARTITIONS, theirs, ours), theirs, ours)
        news = send(broker, topic, 40)
        until("all is read", lambda: {*theirs.seen, *ours.seen} >= news, theirs, ours)
        theirs.close()
        until("ours has all", shared_by(PARTITIONS, ours), ours)


def test_a_static_member_of_ours_comes_back_and_nobody_notices(broker: ApacheBroker) -> None:
    topic = group = "static"
    topic_with_records(broker, topic)
    with members_of(broker.bootstrap, group, topic) as add:
        other = add(Librdkafka(partition_assignment_strategy="range", group_instance_id="a"))
        until("it has all", shared_by(PARTITIONS, other), other)
        ours = add(Ours(instance_id="b"))
        until("each has a half", shared_by(PARTITIONS, other, ours), other, ours)
        before, kept = other.owned, ours.owned
        ours.close()
        again = add(Ours(instance_id="b"))
        until("it has what it had", lambda: again.owned == kept, other, again)
        assert other.owned == before
