"""Quotas and replication throttles: whether those who want more get just what they may have.

Clients that never wait by themselves write and read as fast as they are answered, for thirty seconds, while a
replica is copied under a throttle. What they moved is compared with what they were allowed. As in Kafka a
client may begin with what ten seconds of its quota are, and goes on in waves of a window; so what it has at
the start is not measured, and what is measured are whole windows.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.broker_nodes import Nodes, QuorateCommands
from bench.broker_wire import HOST, produce_request
from bench.timing import Row
from quorate.net.client import Connection
from quorate.protocol.api.admin import AlterClientQuotasRequest, IncrementalAlterConfigsRequest
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.api.topics import AlterPartitionReassignmentsRequest, CreateTopicsRequest
from quorate.protocol.errors import ErrorCode

QUOTA = 1_000_000
BATCH_BYTES = 20_000
FETCH_BYTES = 200_000
FILLED_BYTES = 60_000_000
WARM_UP_S = 11.0
MEASURED_S = 33.0  # three windows
TIMEOUT_MS = 600_000
TOPIC, COPIED = "quotas", "copied"
OFF_BY_MAX = 0.1

BROKER, TOPIC_CONFIG = 4, 2
LIST_KEY = "{}.replication.throttled.replicas"
RATE_KEY = "{}.replication.throttled.rate"


def section() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as root, Nodes("Quotas", Path(root), QuorateCommands(), 2) as nodes:
        for what, ratio in asyncio.run(_run(nodes, Path(root) / "quotas")):
            yield Row(what, ratio, note=f"within {OFF_BY_MAX:.0%}: {_verdict(ratio)}")


def _verdict(ratio: float) -> str:
    return "met" if abs(ratio - 1) <= OFF_BY_MAX else "MISSED"


async def _run(nodes: Nodes, root: Path) -> list[tuple[str, float]]:
    port = nodes.port_of(1)
    admin = await _connect(port, "admin")
    for topic in (TOPIC, COPIED):
        await _create(admin, topic)
        await asyncio.to_thread(nodes.leader_port, topic)
        await _fill(port, topic)
    found: dict[str, float] = {}
    await _set_quotas(admin, {"client-id": "limited"}, QUOTA)
    await _throttle_replication(admin, port, nodes.port_of(2))
    found |= await _together(
        {
            "produce, quota of a client id": _rate(_produced(port, "limited")),
            "fetch, quota of a client id": _rate(_fetched(port, "limited")),
            "replication, both sides throttled": _copied_rate(root / f"data-2/{COPIED}-0"),
        }
    )
    await _set_quotas(admin, {"client-id": "limited"}, None)
    await _set_quotas(admin, {"user": None}, QUOTA)
    found |= await _together(
        {
            "produce, default quota of users": _rate(_produced(port, "one")),
            "fetch, default quota of users": _rate(_fetched(port, "other")),
        }
    )
    admin.abort("over")
    await admin.close()
    return [(f"{name}: measured / allowed, {MEASURED_S:g} s", rate / QUOTA) for name, rate in found.items()]


async def _together(rates: Mapping[str, Awaitable[float]]) -> dict[str, float]:
    return dict(zip(rates, await asyncio.gather(*rates.values()), strict=True))


# Clients

Step = Callable[[], Awaitable[int]]


async def _rate(client: Awaitable[tuple[Connection, Step]]) -> float:
    """The bytes that a client moves in a second, step after step."""
    connection, step = await client
    clock, moved = time.monotonic, 0
    begun = clock() + WARM_UP_S
    try:
        async with asyncio.timeout(WARM_UP_S + MEASURED_S):
            while True:
                size_bytes = await step()
                moved += size_bytes if clock() >= begun else 0
    except TimeoutError:
        pass
    connection.abort("over")
    await connection.close()
    return moved / MEASURED_S


async def _produced(port: int, client_id: str) -> tuple[Connection, Step]:
    connection = await _connect(port, client_id)
    request = produce_request(TOPIC, [bytes(BATCH_BYTES)])

    async def step() -> int:
        answer = await _ask(connection, request, 9)
        assert not answer.responses[0].partition_responses[0].error_code, answer
        return BATCH_BYTES

    return connection, step


async def _fetched(port: int, client_id: str) -> tuple[Connection, Step]:
    connection = await _connect(port, client_id)
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    topics = [FetchRequest.Topic(topic=TOPIC, partitions=[partition])]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, topics=topics)

    async def step() -> int:
        answer = await _ask(connection, request, 12)
        return sum(len(one.records) for topic in answer.responses for one in topic.partitions)

    return connection, step


async def _copied_rate(directory: Path) -> float:
    """By how much the files of a replica grow in a second."""
    await asyncio.sleep(WARM_UP_S)
    before = _size_bytes(directory)
    await asyncio.sleep(MEASURED_S)
    return (_size_bytes(directory) - before) / MEASURED_S


def _size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


# What is set up


async def _connect(port: int, client_id: str) -> Connection:
    return await Connection.connect(HOST, port, timeout_ms=TIMEOUT_MS, client_id=client_id)


async def _ask(connection: Connection, request: Any, version: int | None = None) -> Any:
    version = connection.version_for(type(request)) if version is None else version
    return await connection.request(request, version, timeout_ms=TIMEOUT_MS)


async def _create(admin: Connection, topic: str) -> None:
    data = CreateTopicsRequest.CreatableTopic
    assignment = data.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    made = data(name=topic, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[])
    answer = await _ask(admin, CreateTopicsRequest(topics=[made], timeout_ms=30_000))
    assert answer.topics[0].error_code == ErrorCode.NONE, answer


async def _fill(port: int, topic: str) -> None:
    connection = await _connect(port, "filler")
    request = produce_request(topic, [bytes(BATCH_BYTES)] * 10)
    left_bytes = FILLED_BYTES
    while left_bytes > 0:
        answer = await _ask(connection, request, 9)
        left_bytes -= 0 if answer.responses[0].partition_responses[0].error_code else 10 * BATCH_BYTES
    connection.abort("over")
    await connection.close()


async def _set_quotas(admin: Connection, entity: Mapping[str, str | None], value: float | None) -> None:
    data = AlterClientQuotasRequest.EntryData
    entry = data(
        entity=[data.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            data.OpData(key=key, value=value or 0.0, remove=value is None)
            for key in ("producer_byte_rate", "consumer_byte_rate")
        ],
    )
    answer = await _ask(admin, AlterClientQuotasRequest(entries=[entry], validate_only=False))
    assert answer.entries[0].error_code == ErrorCode.NONE, answer


async def _throttle_replication(admin: Connection, *ports: int) -> None:
    """Throttles both sides of a topic, and then has it copied from the first broker to the second."""
    lists = {LIST_KEY.format(side): "*" for side in ("leader", "follower")}
    await _set_configs(admin, TOPIC_CONFIG, COPIED, lists)
    for broker_id, port in enumerate(ports, 1):
        connection = await _connect(port, "admin")
        rates = {RATE_KEY.format(side): str(QUOTA) for side in ("leader", "follower")}
        await _set_configs(connection, BROKER, str(broker_id), rates)
        connection.abort("over")
        await connection.close()
    data = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = data.ReassignablePartition(partition_index=0, replicas=[1, 2])
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=30_000, topics=[data(name=COPIED, partitions=[partition])]
    )
    answer = await _ask(admin, request)
    assert answer.error_code == ErrorCode.NONE, answer


async def _set_configs(connection: Connection, kind: int, name: str, values: Mapping[str, str]) -> None:
    data = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        data.AlterableConfig(name=key, config_operation=0, value=value) for key, value in values.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[data(resource_type=kind, resource_name=name, configs=configs)], validate_only=False
    )
    answer = await _ask(connection, request)
    assert answer.responses[0].error_code == ErrorCode.NONE, answer
