"""Reassignments and elections on nodes that run as processes: what the controller decides, they do."""

import asyncio
from collections.abc import Iterator

import pytest
from sessions import DEADLINE_S

from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster as Client
from quorate.client.offsets import LATEST
from quorate.client.producer import Producer
from quorate.testing.cluster import Cluster

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]


@pytest.fixture(scope="module")
def cluster(zookeeper_jars: None) -> Iterator[Cluster]:  # noqa: ARG001
    with Cluster(brokers=3, mode="zookeeper", settings={"min.insync.replicas": "1"}) as found:
        yield found


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 2 * DEADLINE_S))


async def settled(admin):
    async with asyncio.timeout(DEADLINE_S):
        while await admin.list_reassignments():
            await asyncio.sleep(0.05)


def kept(cluster, directory):
    """Who has a directory."""
    return {one.id for one in cluster.nodes if (one.data / directory).is_dir()}


async def until(condition):
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.05)


def test_a_partition_moves_with_all_its_records(cluster):
    async def story():
        async with Client(cluster.bootstrap_servers) as client:
            admin = Admin(client)
            await admin.create_topics(NewTopic("moved", assignments={0: [1, 2]}))
            async with Producer(client) as producer:
                for number in range(200):
                    await producer.send("moved", value=b"%d" % number)
            await admin.reassign({("moved", 0): [3, 2]})
            await settled(admin)
            found = (await admin.describe_topics("moved"))["moved"].partitions[0]
            assert list(found.replicas) == [3, 2]
            assert found.leader == 3
            await until(lambda: kept(cluster, "moved-0") == {2, 3})
            ends = await admin.list_offsets({("moved", 0): LATEST})
            assert [one.offset for one in ends.values()] == [200]
            # And its leader goes where it is wanted.
            await admin.reassign({("moved", 0): [2, 3]})
            await settled(admin)
            await admin.elect_leaders([("moved", 0)])
            async with asyncio.timeout(DEADLINE_S):
                while (await admin.describe_topics("moved"))["moved"].partitions[0].leader != 2:
                    await asyncio.sleep(0.05)

    run(story())
