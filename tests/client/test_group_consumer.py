"""Members of groups, by both protocols, against a node of ours."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from broker.serving import in_loop
from node.one_node import OneNode
from quorate.client.admin import Admin, NewTopic
from quorate.client.classic_membership import divide_by_ranges
from quorate.client.cluster import Cluster
from quorate.client.group_admin import Groups
from quorate.client.group_consumer import GroupConsumer, GroupConsumerSettings, GroupProtocol
from quorate.client.group_offsets import Committed, commit_offsets, committed_offsets
from quorate.client.membership import MembershipSettings
from quorate.client.metadata import TopicPartition
from quorate.client.producer import Producer
from quorate.net.connections import Connections
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest
from quorate.protocol.errors import ApiError, ErrorCode

PARTITIONS = 4
ALL = {TopicPartition("orders", one) for one in range(PARTITIONS)}
both = pytest.mark.parametrize("protocol", list(GroupProtocol))


def quick(directory):
    return OneNode(
        directory,
        offsets_topic_num_partitions="3",
        offsets_topic_replication_factor="1",
        group_initial_rebalance_delay_ms="0",
        group_min_session_timeout_ms="100",
        group_consumer_heartbeat_interval_ms="50",
        group_consumer_min_heartbeat_interval_ms="50",
        group_consumer_session_timeout_ms="1000",
        group_consumer_min_session_timeout_ms="1000",
    )


class Orders:
    """A topic of numbers, and whoever reads it."""

    def __init__(self, node, cluster):
        self.node = node
        self.cluster = cluster
        self.sent = 0

    async def send(self, count):
        async with Producer(self.cluster) as producer:
            for _ in range(count):
                await producer.send("orders", str(self.sent).encode(), partition=self.sent % PARTITIONS)
                self.sent += 1
            await producer.flush()

    @asynccontextmanager
    async def consumer(self, protocol, **membership):
        """A member on connections of its own, as in another process."""
        settings = GroupConsumerSettings(
            protocol=protocol,
            membership=MembershipSettings(
                **{
                    "heartbeat_interval_ms": 50,
                    "session_timeout_ms": 1000,
                    "rebalance_timeout_ms": 10_000,
                    **membership,
                }
            ),
        )
        async with (
            Cluster(self.node.bootstrap) as cluster,
            GroupConsumer(cluster, "readers", ["orders"], settings) as consumer,
        ):
            yield consumer


@asynccontextmanager
async def orders(directory):
    async with quick(directory) as node, Cluster(node.bootstrap) as cluster:
        await Admin(cluster).create_topics(NewTopic("orders", PARTITIONS, 1))
        yield Orders(node, cluster)


async def read(consumer, seen):
    for part in await consumer.fetch(timeout_ms=50):
        seen += [int(record.value) for record in part.records()]


async def until(condition, *consumers):
    """Everybody reads until something is so. What was read."""
    seen = []
    while not condition(seen):
        await asyncio.gather(*(read(one, seen) for one in consumers))
    return seen


def shares(*consumers):
    """Whether everything is somebody's, nothing is two people's, and nobody has nothing."""
    owned = [at for one in consumers for at in one.assignment]
    return len(owned) == PARTITIONS and set(owned) == ALL and all(one.assignment for one in consumers)


@both
@in_loop
async def test_a_member_alone_reads_everything(tmp_path, protocol):
    async with orders(tmp_path) as topic:
        await topic.send(40)
        async with topic.consumer(protocol) as consumer:
            seen = await until(lambda seen: len(seen) >= 40, consumer)
            assert sorted(seen) == list(range(40))
            assert consumer.assignment == ALL


@both
@in_loop
async def test_members_share_and_take_over(tmp_path, protocol):
    async with orders(tmp_path) as topic, AsyncExitStack() as staying:
        first = await staying.enter_async_context(topic.consumer(protocol))
        await until(lambda _: shares(first), first)
        async with topic.consumer(protocol) as second:
            await until(lambda _: shares(first, second), first, second)
            assert len(first.assignment) == len(second.assignment) == 2
            await topic.send(40)
            assert sorted(await until(lambda seen: len(seen) >= 40, first, second)) == list(range(40))
        await until(lambda _: shares(first), first)


@in_loop
async def test_an_answer_that_gives_partitions_and_is_lost_is_asked_for_again(tmp_path, monkeypatch):
    """Whoever was told, as far as the coordinator knows, is told only of changes; so it must be asked for
    everything. One answer to each member is lost: what it must give up, and what it gets."""
    lost = {}

    async def request_once(self, address, request, *args, **named):
        answer = await ask(self, address, request, *args, **named)
        if isinstance(request, ConsumerGroupHeartbeatRequest) and request.rebalance_timeout_ms == -1:
            given = answer.assignment
            if given is not None and given.topic_partitions and request.member_id not in lost:
                lost[request.member_id] = given
                raise ConnectionError("the answer is lost")
        return answer

    ask = Connections.request
    protocol = GroupProtocol.CONSUMER
    for_ever = {"rebalance_timeout_ms": 3_600_000}  # whoever does not give up what it should keeps it
    async with orders(tmp_path) as topic, topic.consumer(protocol, **for_ever) as first:
        await until(lambda _: first.assignment == ALL, first)
        monkeypatch.setattr(Connections, "request", request_once)
        async with topic.consumer(protocol, **for_ever) as second:
            await until(lambda _: len(lost) == 2 and shares(first, second), first, second)


@both
@in_loop
async def test_those_who_look_in_shortly_take_part_as_well(tmp_path, protocol):
    """A rebalance takes longer than one call, and may be over before the next."""

    async def look_in(*consumers):
        for one in consumers:
            await one.fetch(timeout_ms=1)
        await asyncio.sleep(0.02)

    async with orders(tmp_path) as topic, AsyncExitStack() as staying:
        first = await staying.enter_async_context(topic.consumer(protocol))
        while not shares(first):
            await look_in(first)
        for _ in range(3):
            async with topic.consumer(protocol) as second:
                while not shares(first, second):
                    await look_in(first, second)
            while not shares(first):
                await look_in(first)


@both
@in_loop
async def test_the_next_member_goes_on_where_the_last_one_was(tmp_path, protocol):
    async with orders(tmp_path) as topic:
        await topic.send(40)
        async with topic.consumer(protocol) as consumer:
            await until(lambda seen: len(seen) >= 40, consumer)
            await consumer.commit()
        await topic.send(10)
        async with topic.consumer(protocol) as consumer:
            assert sorted(await until(lambda seen: len(seen) >= 10, consumer)) == list(range(40, 50))


@both
@in_loop
async def test_what_was_read_is_committed_when_it_is_given_up(tmp_path, protocol):
    async with orders(tmp_path) as topic:
        await topic.send(40)
        async with topic.consumer(protocol) as consumer:
            await until(lambda seen: len(seen) >= 40, consumer)
            await read(consumer, [])  # whoever asks for more is done with what it had
        committed = await committed_offsets(topic.cluster, "readers")
        assert {at: one.offset for at, one in committed.items()} == dict.fromkeys(ALL, 10)


@both
@in_loop
async def test_a_silent_member_loses_its_partitions_and_notices(tmp_path, protocol):
    async with orders(tmp_path) as topic, AsyncExitStack() as staying:
        silent = await staying.enter_async_context(topic.consumer(protocol))
        await until(lambda _: shares(silent), silent)
        membership = silent._membership
        membership._beating.cancel()  # as if its process were stopped
        other = await staying.enter_async_context(topic.consumer(protocol))
        await until(lambda _: shares(other), other)
        with pytest.raises(ApiError) as refusal:
            await commit_offsets(
                topic.cluster, "readers", {TopicPartition("orders", 0): Committed(1)}, membership.member
            )
        assert refusal.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


@both
@in_loop
async def test_a_static_member_comes_back_without_a_rebalance(tmp_path, protocol):
    async with orders(tmp_path) as topic, AsyncExitStack() as staying:
        other = await staying.enter_async_context(topic.consumer(protocol))
        async with topic.consumer(protocol, instance_id="one") as first:
            await until(lambda _: shares(first, other), first, other)
            had, generation = first.assignment, other.generation
        async with topic.consumer(protocol, instance_id="one") as again:
            await until(lambda _: again.assignment == had, again, other)
            assert other.generation == generation


@both
@in_loop
async def test_groups_are_described(tmp_path, protocol):
    async with orders(tmp_path) as topic:
        groups = Groups(topic.cluster)
        with pytest.raises(ApiError) as refusal:
            await groups.describe("readers")
        assert refusal.value.code == ErrorCode.GROUP_ID_NOT_FOUND
        await topic.send(40)
        async with topic.consumer(protocol) as consumer:
            await until(lambda seen: len(seen) >= 40, consumer)
            await consumer.commit()
            (listed,) = await groups.all()
            assert (listed.group, listed.kind, listed.state) == ("readers", protocol.value, "Stable")
            found = await groups.describe("readers")
            assert found.coordinator == 1
            assert [set(one.partitions) for one in found.members] == [ALL]
            await topic.send(4)
            assert {one.at: one.lag for one in await groups.lag("readers")} == dict.fromkeys(ALL, 1)
            with pytest.raises(ApiError) as refusal:
                await groups.delete("readers")
            assert refusal.value.code == ErrorCode.NON_EMPTY_GROUP
        await groups.delete("readers")
        assert await groups.all() == []


@pytest.mark.parametrize(
    ("wanted", "counts", "expected"),
    [
        ({"a": ["t"]}, {"t": 2}, {"a": [("t", 0), ("t", 1)]}),
        ({"b": ["t"], "a": ["t"]}, {"t": 1}, {"a": [("t", 0)], "b": []}),
        (
            {"a": ["t", "u"], "b": ["t"]},
            {"t": 3, "u": 1},
            {"a": [("t", 0), ("t", 1), ("u", 0)], "b": [("t", 2)]},
        ),
        ({"a": ["gone"]}, {}, {"a": []}),
    ],
)
def test_partitions_are_divided_by_ranges(wanted, counts, expected):
    assert divide_by_ranges(wanted, counts) == expected
