"""What a node's metrics say about its groups."""

from prometheus_client.parser import text_string_to_metric_families

from broker.serving import in_loop
from node.one_node import OneNode
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster
from quorate.client.group_consumer import GroupConsumer, GroupConsumerSettings, GroupProtocol
from quorate.client.group_offsets import Committed, commit_offsets
from quorate.client.membership import MembershipSettings
from quorate.client.metadata import TopicPartition
from quorate.coordinator.consumer_events import ConsumerRebalanceEnded
from quorate.coordinator.events import MemberRemoved, OffsetsExpired, RebalanceEnded
from quorate.node.group_metrics import GroupCounts, RebalanceTimes

NAMES = "kafka_server_group_coordinator_metrics_"
SETTINGS = {
    "offsets_topic_num_partitions": "3",
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
}


async def samples(node):
    """Values by name without its beginning, and labels."""
    status, text = await node.http("/metrics")
    assert status == 200
    return {
        (sample.name.removeprefix(NAMES), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(NAMES)
    }


async def join(cluster, group, protocol):
    settings = GroupConsumerSettings(
        protocol=protocol, membership=MembershipSettings(heartbeat_interval_ms=100)
    )
    consumer = GroupConsumer(cluster, group, ["orders"], settings)
    while not consumer.assignment:
        await consumer.fetch(timeout_ms=100)
    return consumer


@in_loop
async def test_groups_members_and_what_happens_to_them(tmp_path):
    async with OneNode(tmp_path, **SETTINGS) as node, Cluster(node.bootstrap) as cluster:
        await Admin(cluster).create_topics(NewTopic("orders", 2, 1))
        await commit_offsets(
            cluster, "simple", {TopicPartition("orders", one): Committed(1) for one in (0, 1)}
        )
        members = [
            await join(cluster, "classic", GroupProtocol.CLASSIC),
            await join(cluster, "consumer", GroupProtocol.CONSUMER),
        ]
        found = await samples(node)
        assert found["group_count", "classic", "Empty"] == 1
        assert found["group_count", "classic", "Stable"] == 1
        assert found["group_count", "consumer", "Stable"] == 1
        assert found["member_count", "classic"] == found["member_count", "consumer"] == 1
        assert found["offset_count",] == found["offset_commit_total",] == 2
        assert found["num_partitions", "active"] == found["partition_load_total",] == 3
        assert found["num_partitions", "loading"] == found["num_partitions", "failed"] == 0
        assert found["partition_load_time_max_ms",] <= found["partition_load_time_ms_total",]
        assert found["group_rebalance_total", "classic"] >= 1
        assert found["group_rebalance_total", "consumer"] >= 1
        assert found["group_completed_rebalance_total",] == 1
        assert found["group_timed_rebalance_total", "classic"] == 1
        assert found["group_timed_rebalance_total", "consumer"] == 1
        for protocol in ("classic", "consumer"):
            took_ms = found["group_rebalance_time_ms_total", protocol]
            assert 0 <= found["group_rebalance_time_max_ms", protocol] <= took_ms
        assert found["partition_unload_total",] == found["member_left_total",] == 0
        for one in members:
            await one.close()
        found = await samples(node)
        assert found["member_left_total",] == 2
        assert found["member_expired_total",] == 0
        assert found["group_count", "classic", "Empty"] == 2
        assert found["group_count", "consumer", "Empty"] == 1


def removed(check):
    return MemberRemoved("g", 1, "m", None, "c", "/h", check, 1000)


def test_members_that_are_put_out_are_not_those_who_leave():
    counts = GroupCounts()
    counts.saw([removed("members left"), removed("a member missed its heartbeats"), removed("did not join")])
    assert (counts.members_left, counts.members_expired) == (1, 2)


def test_rebalances_are_timed_if_it_is_known_when_they_began():
    counts = GroupCounts()
    ended = [
        ConsumerRebalanceEnded("g", epoch, 1, took_ms) for epoch, took_ms in ((2, 30), (3, None), (4, 20))
    ]
    counts.saw([*ended, RebalanceEnded("h", 1, "a member joined", 1, "a", "range", 500)])
    assert counts.rebalances_ended == {
        "classic": RebalanceTimes(1, 500, 500),
        "consumer": RebalanceTimes(2, 50, 30),
    }


def test_expired_offsets_are_counted_one_by_one():
    counts = GroupCounts()
    counts.saw([OffsetsExpired("g", 3, 1000), OffsetsExpired("h", 2, 1000)])
    assert counts.offsets_expired == 5
