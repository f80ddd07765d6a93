"""A node in a thread, with a topic and groups, for commands that are run as a user runs them."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from node.one_node import OneNode
from quorate.cli.main import app
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster
from quorate.client.fetcher import FetcherSettings, Reset
from quorate.client.group_consumer import GroupConsumer, GroupConsumerSettings, GroupProtocol
from quorate.client.group_offsets import Committed, commit_offsets
from quorate.client.membership import MembershipSettings
from quorate.client.metadata import TopicPartition
from quorate.client.producer import Producer

SETTINGS = {
    "offsets_topic_num_partitions": "2",
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
    "group_consumer_heartbeat_interval_ms": "100",
    "group_consumer_min_heartbeat_interval_ms": "100",
    "quorate_events_publish": "true",
}
RECORDS = 10
DEADLINE_S = 60


class Town:
    """A node in a thread, with a topic of two partitions, and groups that tests make."""

    def __init__(self, node: OneNode, loop: asyncio.AbstractEventLoop) -> None:
        self.node = node
        self._loop = loop

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)

    def run(self, *words: str) -> Any:
        return CliRunner().invoke(app, ["groups", *words, "--bootstrap-server", self.node.bootstrap])

    def read(self, *words: str) -> Any:
        """What a command prints as JSON; it must end well."""
        done = self.run(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def commit(self, group: str, **offsets: int) -> None:
        """Offsets by partition, as in `p0=3`."""

        async def commit() -> None:
            async with Cluster(self.node.bootstrap) as cluster:
                places = {
                    TopicPartition("orders", int(name[1:])): Committed(offset)
                    for name, offset in offsets.items()
                }
                await commit_offsets(cluster, group, places)

        self.do(commit())

    def publish(self, *events: dict[str, Any]) -> None:
        """Events, as nodes publish them."""

        async def publish() -> None:
            async with Cluster(self.node.bootstrap) as cluster, Producer(cluster) as producer:
                for event in events:
                    await producer.send("__cluster_events", json.dumps(event).encode(), partition=0)
                await producer.flush()

        self.do(publish())

    def member(
        self, group: str, protocol: GroupProtocol = GroupProtocol.CLASSIC, instance_id: str | None = None
    ) -> Callable[[], None]:
        """A member that has everything; what ends it."""

        async def join() -> tuple[Cluster, GroupConsumer]:
            cluster = Cluster(self.node.bootstrap)
            settings = GroupConsumerSettings(
                protocol=protocol,
                membership=MembershipSettings(heartbeat_interval_ms=100, instance_id=instance_id),
                fetcher=FetcherSettings(reset=Reset.EARLIEST),
            )
            consumer = GroupConsumer(cluster, group, ["orders"], settings)
            while len(consumer.assignment) < 2:
                await consumer.fetch(timeout_ms=100)
            return cluster, consumer

        async def leave() -> None:
            await consumer.close()
            await cluster.close()

        cluster, consumer = self.do(join())
        return lambda: self.do(leave())


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    node = OneNode(tmp_path_factory.mktemp("town"), **SETTINGS)
    made = Town(node, loop)

    async def begin() -> None:
        await node.__aenter__()
        async with Cluster(node.bootstrap) as cluster, Producer(cluster) as producer:
            # The node would wait for more brokers before it makes the topic of events.
            await Admin(cluster).create_topics(NewTopic("orders", 2, 1), NewTopic("__cluster_events", 1, 1))
            for number in range(2 * RECORDS):
                await producer.send(
                    "orders", b"x", partition=number % 2, timestamp_ms=1_700_000_000_000 + number // 2
                )
            await producer.flush()

    try:
        made.do(begin())
        yield made
        made.do(node.__aexit__())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
