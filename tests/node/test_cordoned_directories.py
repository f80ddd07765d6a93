"""Log directories that get no new replicas, on a whole node: set while it runs, and by its file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from node.one_node import OneNode
from quorate.client.admin import Admin, NewTopic, Resource, ResourceKind
from quorate.client.cluster import Cluster
from quorate.client.log_dirs import describe_log_dirs
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.properties import parse_properties

KEY = "cordoned.log.dirs"
SECONDS_MAX = 60
US = Resource(ResourceKind.BROKER, "1")
REFUSED = ErrorCode.INVALID_REPLICATION_FACTOR


def run(scenario: Callable[[], Any]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await scenario()

    asyncio.run(timed())


class Disks(OneNode):
    """A node with two log directories."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.a, self.b = str(root / "data"), str(root / "other")
        super().__init__(root, log_dirs=f"{self.a},{self.b}", **settings)

    async def wait_until_known(self, *paths: str) -> None:
        """Until the controller knows that these are cordoned, and no others."""

        wanted = {
            parse_properties((Path(one) / "meta.properties").read_text())["directory.id"] for one in paths
        }

        def is_known() -> bool:
            assert self.node is not None
            return set(map(str, self.node.state.image.brokers[1].cordoned)) == wanted

        await self.until(is_known)


async def homes(cluster: Cluster, topic: str) -> set[str]:
    """Where the replicas of a topic are."""
    return {
        one.path
        for one in await describe_log_dirs(cluster, 1)
        for place in one.replicas
        if place.topic == topic
    }


async def cordoned(cluster: Cluster) -> list[str]:
    return [one.path for one in await describe_log_dirs(cluster, 1) if one.is_cordoned]


def test_new_replicas_go_elsewhere_and_those_that_are_there_stay(tmp_path: Path):
    async def scenario() -> None:
        async with Disks(tmp_path) as node, Cluster(node.bootstrap) as cluster:
            admin = Admin(cluster)
            await admin.create_topics(NewTopic("before", partitions=4))
            await admin.alter_configs(US, put={KEY: node.b})
            await node.wait_until_known(node.b)
            assert await cordoned(cluster) == [node.b]
            await admin.create_topics(NewTopic("after", partitions=4))
            assert await homes(cluster, "before") == {node.a, node.b}
            assert await homes(cluster, "after") == {node.a}
            assert node.node is not None
            (directory,) = (await node.http("/v1/brokers/1"))[1]["broker"]["cordoned_directories"]
            assert directory in map(str, node.node.state.image.brokers[1].directories)
            assert (
                f'kafka_log_logmanager_logdirectorycordoned{{logDirectory="{node.b}"}} 1.0'
                in (await node.http("/metrics"))[1]
            )
            await admin.alter_configs(US, subtract={KEY: node.b})
            await node.wait_until_known()
            assert await cordoned(cluster) == []
            await admin.create_topics(NewTopic("again", partitions=4))
            assert node.b in await homes(cluster, "again")

    run(scenario)


def test_a_broker_whose_directories_are_all_cordoned_gets_nothing_by_itself(tmp_path: Path):
    async def scenario() -> None:
        async with Disks(tmp_path) as node, Cluster(node.bootstrap) as cluster:
            admin = Admin(cluster)
            await admin.create_topics(NewTopic("before"))
            for value in ("*", f"{node.a},{node.b}"):
                await admin.alter_configs(US, put={KEY: value})
                await node.wait_until_known(node.a, node.b)
                with pytest.raises(ApiError, match="log directories cordoned") as caught:
                    await admin.create_topics(NewTopic("t"))
                assert caught.value.code is REFUSED
                with pytest.raises(ApiError) as caught:
                    await admin.create_partitions({"before": 2})
                assert caught.value.code is REFUSED
            await admin.create_topics(NewTopic("by-hand", assignments={0: [1]}))
            assert len(await homes(cluster, "by-hand")) == 1
            await admin.alter_configs(US, delete=[KEY])
            await node.wait_until_known()
            await admin.create_topics(NewTopic("t"))

    run(scenario)


def test_only_directories_of_the_broker_can_be_cordoned(tmp_path: Path):
    async def scenario() -> None:
        async with Disks(tmp_path) as node, Cluster(node.bootstrap) as cluster:
            admin = Admin(cluster)
            for put, append, message in (
                ({KEY: "/nowhere"}, {}, f"Invalid entry in {KEY}: /nowhere. All cordoned log dirs must be"),
                ({KEY: f"{node.a},*"}, {}, r"is set to \*, it must not contain other values"),
                ({}, {KEY: f"{node.b},/nowhere"}, f"Invalid entry in {KEY}: /nowhere"),
            ):
                with pytest.raises(ApiError, match=message) as caught:
                    await admin.alter_configs(US, put=put, append=append)
                assert caught.value.code is ErrorCode.INVALID_REQUEST
            await admin.alter_configs(US, append={KEY: node.a})
            await node.wait_until_known(node.a)

    run(scenario)


def test_the_file_counts_until_something_is_set(tmp_path: Path):
    async def scenario() -> None:
        node = Disks(tmp_path, cordoned_log_dirs=str(tmp_path / "other"))
        async with node, Cluster(node.bootstrap) as cluster:
            assert await cordoned(cluster) == [node.b]
            admin = Admin(cluster)
            await admin.create_topics(NewTopic("t", partitions=4))
            assert await homes(cluster, "t") == {node.a}
            await admin.alter_configs(US, put={KEY: node.a})
            await node.wait_until_known(node.a)
            assert await cordoned(cluster) == [node.a]
        async with node, Cluster(node.bootstrap) as cluster:
            assert await cordoned(cluster) == [node.a]
            await Admin(cluster).create_topics(NewTopic("u", partitions=4))
            assert await homes(cluster, "u") == {node.b}

    run(scenario)
