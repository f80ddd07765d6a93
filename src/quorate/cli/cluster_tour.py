"""A whole cluster of one node, for as long as it takes to write to it and read from it."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Callable
from typing import Final

from quorate.cli.quiet import without_log_lines
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster
from quorate.client.fetcher import EARLIEST, Fetcher
from quorate.client.producer import Producer
from quorate.node.config import parse_config
from quorate.node.format import format_storage, random_cluster_id
from quorate.node.host import real_host
from quorate.node.node import Node

__all__ = ["show_cluster"]

RECORDS: Final = 1000
_HOST: Final = "127.0.0.1"
_TIMEOUT_S: Final = 60


def show_cluster() -> None:
    """Starts a node that is controller and broker, creates a topic, writes, reads, and stops it in order."""
    with without_log_lines(), tempfile.TemporaryDirectory() as directory:
        asyncio.run(_show(directory))


async def _show(directory: str) -> None:
    began = time.perf_counter()
    with socket.create_server((_HOST, 0)) as free:
        port = free.getsockname()[1]
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{_HOST}:{port}",
        "listeners": f"CONTROLLER://{_HOST}:{port},PLAINTEXT://{_HOST}:0",
        "log.dirs": directory,
        "quorate.admin.listener": "",
        "quorate.events.publish": "false",
    }
    config = parse_config("tour.properties", properties)
    host = real_host("1")
    await format_storage(host, config, random_cluster_id(host))
    node = Node(host, config)
    async with asyncio.timeout(_TIMEOUT_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(node.run())
        await _until(lambda: node.broker is not None and "PLAINTEXT" in node.broker.ports)
        assert node.broker is not None
        address = f"{_HOST}:{node.broker.ports['PLAINTEXT']}"
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topics(NewTopic("orders", partitions=3))
            print(
                f"a broker serves at {address}, {(time.perf_counter() - began) * 1000:.0f} ms after nothing"
            )
            await _write(cluster)
            await _read(cluster)
        node.stop()
        await running
    print("the broker was let go by the controller, and everything is closed in order")


async def _write(cluster: Cluster) -> None:
    async with Producer(cluster) as producer:
        receipts = [
            await producer.send("orders", f"order {number}".encode(), key=f"customer {number % 7}".encode())
            for number in range(RECORDS)
        ]
        where = [await receipt for receipt in receipts]
    counts = {partition: sum(one.partition == partition for one in where) for partition in range(3)}
    print(f"{RECORDS} records were written, acknowledged by all replicas: by partition {counts}")


async def _read(cluster: Cluster) -> None:
    count, last = 0, b""  # how many, and what the last one says
    async with Fetcher(cluster) as fetcher:
        fetcher.assign({("orders", partition): EARLIEST for partition in range(3)})
        while count < RECORDS:
            for part in await fetcher.fetch():
                for record in part.records():
                    count, last = count + 1, record.value or b""
    print(f"{count} records were read; one of them says {last!r}")


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)
