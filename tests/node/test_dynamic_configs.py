"""What is set while a node runs, and what the node then does."""

import asyncio
import logging
from pathlib import Path

import pytest

from broker.serving import in_loop
from node.one_node import OneNode
from quorate.broker.groups import ASSIGNMENT_INTERVAL
from quorate.client.admin import Admin, NewTopic, Resource, ResourceKind
from quorate.client.cluster import ANY, Cluster
from quorate.client.group_admin import Groups
from quorate.client.producer import Producer
from quorate.coordinator.settings import GroupSettings
from quorate.coordinator.shard import GroupShard
from quorate.protocol.api.admin import ListConfigResourcesRequest, ListConfigResourcesResponse
from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.frame import encode_request

ME, ALL = Resource(ResourceKind.BROKER, "1"), Resource(ResourceKind.BROKER, "")
LOGGERS = Resource(ResourceKind.BROKER_LOGGER, "1")
GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72
SOURCE = {"broker": 2, "cluster": 3, "file": 4, "default": 5}


async def is_worth(admin: Admin, key: str) -> tuple[str | None, int]:
    entry = (await admin.describe_configs(ME, [key]))[key]
    return entry.value, entry.source


@in_loop
async def test_a_value_of_the_broker_then_of_all_then_of_the_file(tmp_path: Path):
    async with OneNode(tmp_path, message_max_bytes="3000") as node, Cluster(node.bootstrap) as cluster:
        admin, key = Admin(cluster), "message.max.bytes"
        await admin.create_topics(NewTopic("t", partitions=1, replication_factor=1))
        configs = node.node.broker.configs

        async def takes(count: int) -> bool:
            try:
                async with Producer(cluster) as producer:
                    await (await producer.send("t", b"x" * count))
            except ApiError as error:
                assert error.code is ErrorCode.MESSAGE_TOO_LARGE
                return False
            return True

        assert await is_worth(admin, key) == ("3000", SOURCE["file"])
        assert await takes(2500)
        await admin.alter_configs(ALL, put={key: "2000"})
        await node.until(lambda: configs[key] == 2000)
        assert await is_worth(admin, key) == ("2000", SOURCE["cluster"])
        assert not await takes(2500)
        await admin.alter_configs(ME, put={key: "4000"})
        await node.until(lambda: configs[key] == 4000)
        assert await is_worth(admin, key) == ("4000", SOURCE["broker"])
        assert await takes(3500)
        await admin.alter_configs(ME, delete=[key])
        await admin.alter_configs(ALL, delete=[key])
        await node.until(lambda: configs[key] == 3000)
        assert not await takes(3500)


@in_loop
async def test_what_was_set_outlives_the_process(tmp_path: Path):
    node = OneNode(tmp_path)
    async with node, Cluster(node.bootstrap) as cluster:
        await Admin(cluster).alter_configs(ME, put={"max.connections": "77"})
    async with node, Cluster(node.bootstrap) as cluster:
        assert await is_worth(Admin(cluster), "max.connections") == ("77", SOURCE["broker"])
        assert node.node.broker.listeners()[0].admitted.limits.connections_max == 77


@in_loop
async def test_how_many_may_connect_changes_at_once(tmp_path: Path):
    async with OneNode(tmp_path) as node, Cluster(node.bootstrap) as cluster:
        (server,) = node.node.broker.listeners()

        async def is_let_in() -> bool:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            try:
                writer.write(encode_request(ApiVersionsRequest(), 0, 1, "test"))
                return await reader.read(1) != b""
            except ConnectionError:
                return False
            finally:
                writer.close()
                await writer.wait_closed()

        admin = Admin(cluster)
        assert await is_let_in()
        await node.until(lambda: server.connections <= 1)
        await admin.alter_configs(ME, put={"max.connections.per.ip": "1"})
        await node.until(lambda: server.admitted.limits.per_address_max == 1)
        assert not await is_let_in()
        await admin.alter_configs(ME, delete=["max.connections.per.ip"])
        await node.until(lambda: server.admitted.limits.per_address_max == 2**31 - 1)
        assert await is_let_in()


@in_loop
async def test_how_often_groups_are_assigned_anew_changes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    copies = {"offsets_topic_replication_factor": "1"}
    async with OneNode(tmp_path, **copies) as node, Cluster(node.bootstrap) as cluster:
        groups = node.node.broker.parts.groups
        with pytest.raises(ApiError):
            await Groups(cluster).describe("nobody")  # whose coordinator is looked for
        await node.until(groups.shards.all_active)

        used: dict[GroupShard, int] = {}

        def noted(shard: GroupShard, settings: GroupSettings) -> None:
            used[shard] = settings.group_consumer_assignment_interval_ms

        def all_use(interval_ms: int) -> bool:
            return used == {one.shard: interval_ms for one in groups.shards}

        monkeypatch.setattr(GroupShard, "reconfigure", noted)
        admin = Admin(cluster)
        await admin.alter_configs(ME, put={ASSIGNMENT_INTERVAL: "7"})
        await node.until(lambda: all_use(7))
        await admin.alter_configs(ME, put={ASSIGNMENT_INTERVAL: "86400000"})
        await node.until(lambda: all_use(15_000))
        await admin.alter_configs(ME, delete=[ASSIGNMENT_INTERVAL])
        await node.until(lambda: all_use(1000))


@in_loop
async def test_what_takes_a_restart_says_so(tmp_path: Path):
    async with OneNode(tmp_path) as node, Cluster(node.bootstrap) as cluster:
        admin = Admin(cluster)
        for key in ("num.partitions", "listeners", "log.dirs"):
            assert (await admin.describe_configs(ME, [key]))[key].is_read_only
            with pytest.raises(
                ApiError, match=r"Cannot update these configs dynamically.*restart"
            ) as refused:
                await admin.alter_configs(ME, put={key: "3"})
            assert refused.value.code is ErrorCode.INVALID_REQUEST


@in_loop
async def test_levels_of_loggers(tmp_path: Path):
    logger = logging.getLogger("quorate.broker.1")
    async with OneNode(tmp_path) as node, Cluster(node.bootstrap) as cluster:
        admin = Admin(cluster)
        try:
            await admin.alter_configs(LOGGERS, put={logger.name: "ERROR"})
            assert logger.level == logging.ERROR
            assert (await admin.describe_configs(LOGGERS, [logger.name]))[logger.name].value == "ERROR"
        finally:
            await admin.alter_configs(LOGGERS, delete=[logger.name])
        assert logger.level == logging.NOTSET


@in_loop
async def test_client_metrics_are_configured_and_nobody_is_asked_for_them(tmp_path: Path):
    async with OneNode(tmp_path) as node, Cluster(node.bootstrap) as cluster:
        admin, resource = Admin(cluster), Resource(ResourceKind.CLIENT_METRICS, "slow-clients")
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        versions = await cluster.request(ANY, request)
        assert isinstance(versions, ApiVersionsResponse)
        offered = {one.api_key for one in versions.api_keys}
        assert ListConfigResourcesRequest.__key__ in offered
        assert offered.isdisjoint({GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY})

        await admin.alter_configs(resource, put={"interval.ms": "1000", "match": "client_id=slow.*"})
        found = await admin.describe_configs(resource)
        assert (found["interval.ms"].value, found["metrics"].value) == ("1000", "")
        listed = await cluster.request(ANY, ListConfigResourcesRequest(resource_types=[16]))
        assert isinstance(listed, ListConfigResourcesResponse)
        assert [one.resource_name for one in listed.config_resources] == ["slow-clients"]
        for wrong, code in (
            ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
            ({"no.such": "1"}, ErrorCode.INVALID_REQUEST),
            ({"match": "nobody=1"}, ErrorCode.INVALID_CONFIG),
        ):
            with pytest.raises(ApiError) as refused:
                await admin.alter_configs(resource, put=wrong)
            assert refused.value.code is code
        await admin.alter_configs(resource, delete=["interval.ms", "match"])
        listed = await cluster.request(ANY, ListConfigResourcesRequest(resource_types=[16]))
        assert isinstance(listed, ListConfigResourcesResponse)
        assert listed.config_resources == []
