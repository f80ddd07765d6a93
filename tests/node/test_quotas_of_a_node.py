"""Quotas of a whole node: set over the protocol, they count at once, and its connections keep to them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.serving import a_batch, in_loop
from node.one_node import HOST, OneNode
from node.test_broker_metrics import samples_of
from quorate.broker.throttled_replication import FOLLOWER_RATE, LEADER_RATE, UNLIMITED
from quorate.net.client import Connection, ConnectionLost
from quorate.protocol.api.admin import AlterClientQuotasRequest, IncrementalAlterConfigsRequest
from quorate.protocol.api.produce_fetch import FetchRequest, ProduceRequest
from quorate.protocol.api.topics import CreateTopicsRequest, MetadataRequest
from quorate.protocol.errors import ErrorCode

TIMEOUT_MS = 60_000
BATCH_BYTES = 50_000


@asynccontextmanager
async def connected(node: OneNode, client_id: str):
    port = int(node.bootstrap.rpartition(":")[2])
    connection = await Connection.connect(HOST, port, timeout_ms=TIMEOUT_MS, client_id=client_id)
    try:
        yield connection
    finally:
        connection.abort("over")
        await connection.close()


def role_of(node: OneNode) -> Any:
    assert node.node is not None
    return node.node.broker


async def ask(connection: Connection, request: Any, cap: int | None = None) -> Any:
    version = connection.version_for(type(request), cap)
    return await connection.request(request, version, timeout_ms=TIMEOUT_MS)


async def set_quota(connection: Connection, entity: dict[str, str | None], **values: float | None) -> None:
    data = AlterClientQuotasRequest.EntryData
    entry = data(
        entity=[data.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[data.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    answer = await ask(connection, AlterClientQuotasRequest(entries=[entry], validate_only=False))
    assert answer.entries[0].error_code == ErrorCode.NONE, answer.entries[0]


def creation(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def production(topic: str) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(index=0, records=a_batch(1, value_bytes=BATCH_BYTES))
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data(name=topic, partition_data=[partition])])


def fetching(topic: str) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchRequest.Topic(topic=topic, partitions=[partition])]
    )


async def is_muted(connection: Connection) -> bool:
    """Whether a harmless question is left unanswered; unlike all others it asks for nothing."""
    question = asyncio.create_task(ask(connection, MetadataRequest(topics=[])))
    done, _ = await asyncio.wait([question], timeout=0.3)
    question.cancel()
    return not done


@in_loop
async def test_clients_are_held_to_what_was_set_a_moment_ago(tmp_path: Path):
    async with OneNode(tmp_path) as node, connected(node, "admin") as admin:
        assert (await ask(admin, creation("t", 1))).topics[0].error_code == 0
        role = role_of(node)
        await node.until(lambda: (one := role.replicas.named("t", 0)) is not None and one.leading)
        async with connected(node, "app") as app:
            assert (await ask(app, production("t"), 12)).throttle_time_ms == 0
            await set_quota(admin, {"client-id": "app"}, producer_byte_rate=100)
            await node.until(lambda: role.parts.quotas.produce.is_set)
            answer = await ask(app, production("t"), 12)
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert answer.throttle_time_ms > 400_000
            assert await is_muted(app)
        async with connected(node, "reader") as reader:
            await set_quota(admin, {"user": None}, consumer_byte_rate=100)
            await node.until(lambda: role.parts.quotas.fetch.is_set)
            answer = await ask(reader, fetching("t"), 12)
            assert answer.throttle_time_ms > 300_000
            assert len(answer.responses[0].partitions[0].records) > BATCH_BYTES, "a batch is given whole"
            assert await is_muted(reader)
        assert not await is_muted(admin)
        await set_quota(admin, {"client-id": "app"}, producer_byte_rate=None)
        await node.until(lambda: not role.parts.quotas.produce.is_set)
        async with connected(node, "app") as app:
            assert (await ask(app, production("t"), 12)).throttle_time_ms == 0
        _, text = await node.http("/metrics")
        samples = samples_of(text)
        for kind, throttles in (("produce", 1), ("fetch", 1), ("request", 0)):
            assert samples["kafka_server_throttles_total", ("quota", kind)] == throttles
        assert samples["kafka_server_fetch_quota", ("client_id", ""), ("user", "ANONYMOUS")] == 100
        assert samples["kafka_server_throttle_time_ms_total", ("quota", "produce")] > 400_000


@in_loop
async def test_the_time_of_the_broker_is_a_quota_too(tmp_path: Path):
    async with OneNode(tmp_path) as node, connected(node, "admin") as admin:
        await set_quota(admin, {"client-id": "app"}, request_percentage=0.0001)
        await node.until(lambda: role_of(node).parts.quotas.request.is_set)
        async with connected(node, "app") as app:
            answer = await ask(app, MetadataRequest(topics=None))
            assert 0 < answer.throttle_time_ms <= 1000
            answer = await ask(app, MetadataRequest(topics=None), 2)
            assert answer.throttle_time_ms == 0, "the version has no such field"
            assert await is_muted(app)


@in_loop
async def test_whoever_creates_too_many_partitions_hears_it_from_the_controller(tmp_path: Path):
    async with OneNode(tmp_path) as node, connected(node, "admin") as admin:
        await set_quota(admin, {"user": None, "client-id": "app"}, controller_mutation_rate=1)
        async with connected(node, "app") as app:
            first = await ask(app, creation("a", 30))
            assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0)
            second = await ask(app, creation("b", 1))
            assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert 10_000 < second.throttle_time_ms <= 19_000
            assert await is_muted(app)
        async with connected(node, "app") as app:
            permissive = await ask(app, creation("b", 1), 5)
            assert permissive.topics[0].error_code == 0, "old clients are served, and then wait"
            assert permissive.throttle_time_ms > 0
            assert await is_muted(app)
        assert role_of(node).parts.quotas.mutations.count == 2


@in_loop
async def test_connections_that_come_too_fast_are_not_served(tmp_path: Path):
    async with OneNode(tmp_path) as node, connected(node, "admin") as admin:
        await set_quota(admin, {"ip": HOST}, connection_creation_rate=1)
        await node.until(lambda: role_of(node).parts.quotas.connections.is_set)
        refused = 0
        for _ in range(12):
            try:
                async with connected(node, "app"):
                    pass
            except ConnectionLost:
                refused += 1
                break
        assert refused == 1
        await set_quota(admin, {"ip": HOST}, connection_creation_rate=None)
        await node.until(lambda: not role_of(node).parts.quotas.connections.is_set)
        async with connected(node, "app") as app:
            await ask(app, MetadataRequest(topics=[]))


@in_loop
async def test_the_throttles_of_replication_are_set_while_it_runs(tmp_path: Path):
    async with OneNode(tmp_path) as node, connected(node, "admin") as admin:
        role = role_of(node)
        assert role.parts.leader_throttle.limit >= UNLIMITED
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            resource.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in ((LEADER_RATE, "1000"), (FOLLOWER_RATE, "2000"))
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[resource(resource_type=4, resource_name="1", configs=configs)], validate_only=False
        )
        assert (await ask(admin, request)).responses[0].error_code == 0
        await node.until(
            lambda: (role.parts.leader_throttle.limit, role.parts.follower_throttle.limit) == (1000, 2000)
        )
