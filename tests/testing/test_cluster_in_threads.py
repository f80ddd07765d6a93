"""`quorate.testing.Cluster` inside the process of the caller."""

import asyncio
import threading
from pathlib import Path

import pytest

from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster as Client
from quorate.client.fetcher import EARLIEST, Fetcher
from quorate.client.producer import Producer
from quorate.testing import Cluster, ClusterError


async def write(bootstrap: str, *values: bytes) -> None:
    async with Client(bootstrap) as client:
        if "t" not in (await Admin(client).list_topics()):
            await Admin(client).create_topics(NewTopic("t", partitions=1))
        async with Producer(client) as producer:
            for value in values:
                await (await producer.send("t", value))


async def read(bootstrap: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Client(bootstrap) as client, Fetcher(client) as fetcher:
        fetcher.assign({("t", 0): EARLIEST})
        while len(found) < count:
            for part in await fetcher.fetch():
                found += [record.value for record in part.records()]
    return found


def test_a_cluster_is_there_for_a_block_and_nothing_is_left_of_it():
    before = {one.name for one in threading.enumerate()}
    with Cluster() as kafka:
        directory = kafka.directory
        assert [(one.id, one.roles, one.is_ready) for one in kafka.nodes] == [
            (1, ("broker", "controller"), True)
        ]
        assert kafka.bootstrap_servers == f"127.0.0.1:{kafka.node(1).port}"
        asyncio.run(write(kafka.bootstrap_servers, b"a", b"b"))
        assert asyncio.run(read(kafka.bootstrap_servers, 2)) == [b"a", b"b"]
    assert not directory.exists()
    assert {one.name for one in threading.enumerate()} <= before
    with pytest.raises(ClusterError, match="not running"):
        _ = kafka.nodes


def test_data_that_is_kept_is_there_again(tmp_path: Path):
    with Cluster(data=tmp_path / "kept") as kafka:
        asyncio.run(write(kafka.bootstrap_servers, b"a"))
        cluster_id = kafka.cluster_id
    with Cluster(data=tmp_path / "kept") as kafka:
        assert kafka.cluster_id == cluster_id
        assert asyncio.run(read(kafka.bootstrap_servers, 1)) == [b"a"]


def test_a_node_is_stopped_and_started_again():
    with Cluster(brokers=2, controllers=1, settings={"num.partitions": "3"}) as kafka:
        assert [one.id for one in kafka.nodes] == [1, 2, 101]
        kafka.stop(2)
        assert (kafka.node(2).state, kafka.node(2).is_ready) == ("stopped", False)
        found = {one["id"]: one["state"] for one in kafka.ask(101, "/v1/brokers")["brokers"]}
        assert found == {1: "active", 2: "fenced"}
        kafka.restart(2)
        kafka.wait_until_ready()
        assert kafka.node(2).is_ready


def test_what_needs_processes_says_so():
    with Cluster() as kafka:
        for order in (kafka.kill, kafka.pause, kafka.resume):
            with pytest.raises(ClusterError, match='mode="processes"'):
                order(1)
        with pytest.raises(ClusterError, match="there is no node 7: the nodes are 1"):
            kafka.node(7)
        with pytest.raises(ClusterError, match=r"waited 0\.05 s for rain"):
            kafka.wait_until(lambda: False, 0.05, "rain")


def test_it_may_be_started_on_an_event_loop():
    async def test() -> None:
        with Cluster() as kafka:
            await write(kafka.bootstrap_servers, b"a")

    asyncio.run(test())


def test_what_cannot_be_says_why(tmp_path: Path):
    (tmp_path / "letter.txt").write_text("Dear")
    with pytest.raises(ClusterError, match="has something else in it"), Cluster(data=tmp_path):
        pass
    with pytest.raises(ValueError, match="allowed is threads, processes or zookeeper"):
        Cluster(mode="fibres")  # type: ignore[arg-type]
