"""The internal logs of a live cluster: what its nodes say, and the same as their files say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType

from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster as Client
from quorate.client.group_consumer import GroupConsumer
from quorate.client.producer import Producer
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.spark import event_source, group_source, metadata_source
from quorate.spark.schemas import EVENTS, GROUP_RECORDS, RECORDS
from quorate.spark.stream_limits import ReadAllAvailable, ReadMaxRows
from quorate.testing import Cluster

pytestmark = pytest.mark.processes

Row = dict[str, Any]
DEADLINE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(settings={"quorate.events.publish": "true", "quorate.events.settle.ms": "0"}) as cluster:
        asyncio.run(_create(cluster, "orders", 12))
        yield cluster


async def _create(cluster: Cluster, topic: str, partitions: int) -> None:
    async with Client(cluster.bootstrap_servers) as client:
        await Admin(client).create_topics(NewTopic(topic, partitions=partitions))


def rows_of(module: Any, table: StructType, **options: str) -> list[Row]:
    named = {name.replace("_", "."): value for name, value in options.items()}
    reader = module.reader(named, table)
    return [row for part in reader.partitions() for some in reader.read(part) for row in some.to_pylist()]


def eventually(find: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = find()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def test_brokers_controllers_and_files_tell_the_same(cluster: Cluster) -> None:
    from_brokers = rows_of(metadata_source, RECORDS, bootstrap_servers=cluster.bootstrap_servers)
    from_controllers = rows_of(metadata_source, RECORDS, controllers=cluster.bootstrap_controllers)
    from_files = rows_of(metadata_source, RECORDS, path=str(cluster.directory))

    count = len(from_brokers)
    assert {row["cluster_id"] for row in from_brokers} == {cluster.cluster_id}
    assert [row["offset"] for row in from_brokers] == list(range(count))
    assert from_controllers[:count] == from_brokers
    assert from_files[:count] == from_brokers
    created = [row for row in from_brokers if row["type"] == "PartitionRecord"]
    assert {row["partition"] for row in created if row["leader"] == 1} >= set(range(12))


def test_a_live_stream_goes_on_and_never_past_the_high_watermark(cluster: Cluster) -> None:
    stream = metadata_source.stream_reader({"bootstrap.servers": cluster.bootstrap_servers}, RECORDS)
    first = stream.latestOffset(stream.initialOffset(), ReadMaxRows(5))
    asyncio.run(_create(cluster, "payments", 3))
    second = stream.latestOffset(first, ReadAllAvailable())

    def rows(start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
        parts = stream.partitions(start, end)
        return [row for part in parts for some in stream.read(part) for row in some.to_pylist()]

    assert first == {"logs": {cluster.cluster_id: {"next": 5, "epoch": None}}}
    assert [row["offset"] for row in rows(stream.initialOffset(), first)] == list(range(5))
    end = second["logs"][cluster.cluster_id]["next"]
    assert [row["offset"] for row in rows(first, second)] == list(range(5, end))
    assert "payments" in {row["topic"] for row in rows(first, second)}
    stream.stop()


def test_the_checkpoint_of_another_cluster_is_refused(cluster: Cluster) -> None:
    stream = metadata_source.stream_reader({"controllers": cluster.bootstrap_controllers}, RECORDS)

    with pytest.raises(ValueError, match="this is the checkpoint of cluster another"):
        stream.latestOffset({"logs": {"another": {"next": 3, "epoch": None}}}, ReadAllAvailable())
    stream.stop()


def test_groups_are_read_as_soon_as_there_are_any(cluster: Cluster) -> None:
    async def commit() -> None:
        async with Client(cluster.bootstrap_servers) as client:
            async with Producer(client) as producer:
                await (await producer.send("orders", b"tea", partition=0))
            async with GroupConsumer(client, "readers", ["orders"]) as consumer:
                while not any(part.records() for part in await consumer.fetch()):
                    pass
                await consumer.commit()

    options = {"bootstrap.servers": cluster.bootstrap_servers}
    stream = group_source.stream_reader(options, GROUP_RECORDS)
    nothing = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    before = rows_of(group_source, GROUP_RECORDS, bootstrap_servers=cluster.bootstrap_servers)
    asyncio.run(commit())
    after = stream.latestOffset(nothing, ReadAllAvailable())

    parts = stream.partitions(nothing, after)
    streamed = [row for part in parts for some in stream.read(part) for row in some.to_pylist()]
    commits = [row for row in streamed if row["type"] == "OffsetCommit"]
    assert not before
    assert (commits[0]["group_id"], commits[0]["topic"]) == ("readers", "orders")
    assert 1 in {row["committed_offset"] for row in commits}
    assert all(row["cluster_id"] == cluster.cluster_id and row["epoch"] >= 0 for row in streamed)
    key = ("partition", "offset", "type", "fields", "epoch", "ts")
    from_files = rows_of(group_source, GROUP_RECORDS, path=str(cluster.directory))
    assert sorted([row[name] for name in key] for row in from_files)[: len(streamed)] == sorted(
        [row[name] for name in key] for row in streamed
    )


def test_events_of_the_topic_are_those_of_the_journals(cluster: Cluster) -> None:
    def identity(row: Row) -> tuple[Any, ...]:
        return row["node_id"], row["incarnation"], row["sequence"], row["kind"], row["text"]

    from_topic = eventually(
        lambda: rows_of(event_source, EVENTS, bootstrap_servers=cluster.bootstrap_servers)
    )
    from_journals = rows_of(event_source, EVENTS, path=str(cluster.directory))

    assert {identity(row) for row in from_topic} <= {identity(row) for row in from_journals}
    assert "BrokerRegistered" in {row["kind"] for row in from_topic}
    assert all(row["text"] for row in from_topic)
    assert {row["partition"] for row in from_journals} == {-1}


def test_a_stream_survives_a_change_of_leaders_and_copies_confirm_each_other() -> None:
    with Cluster(brokers=3) as cluster:
        asyncio.run(_create(cluster, "orders", 6))
        stream = metadata_source.stream_reader({"bootstrap.servers": cluster.bootstrap_servers}, RECORDS)
        first = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        leader_id = asyncio.run(_leader_of(cluster))
        cluster.stop(leader_id)
        asyncio.run(_create(cluster, "payments", 3))
        second = stream.latestOffset(first, ReadAllAvailable())
        parts = [*stream.partitions(stream.initialOffset(), first), *stream.partitions(first, second)]
        rows = [row for part in parts for some in stream.read(part) for row in some.to_pylist()]
        stream.stop()
        from_files = rows_of(metadata_source, RECORDS, path=str(cluster.directory), include="confirmed")
        (one_copy,) = cluster.directory.glob(f"node-{leader_id}/data")
        from_one = rows_of(metadata_source, RECORDS, path=str(one_copy), include="confirmed")

    assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert len({row["epoch"] for row in rows}) == 2
    assert "payments" in {row["topic"] for row in rows}
    assert from_files[: len(rows)] == rows
    assert len(from_one) < len(rows)
    assert rows[: len(from_one)] == from_one


async def _leader_of(cluster: Cluster) -> int:
    async with Client(cluster.bootstrap_servers) as client:
        return (await Admin(client).describe_quorum()).leader_id


def test_a_log_that_was_cut_off_begins_with_its_snapshot() -> None:
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "1",
        "metadata.max.idle.interval.ms": "50",
    }
    with Cluster(settings=settings) as cluster:
        asyncio.run(_create(cluster, "orders", 40))

        def rows() -> list[Row]:
            try:
                found = rows_of(metadata_source, RECORDS, bootstrap_servers=cluster.bootstrap_servers)
            except ApiError as error:  # it was cut off after it was planned what to read
                assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
                return []
            return found if found[0]["origin"] == "snapshot" else []

        found = eventually(rows)

    snapshot = [row for row in found if row["origin"] == "snapshot"]
    log = [row for row in found if row["origin"] == "log"]
    assert found[0]["gap"] == "retention"
    assert {row["offset"] for row in snapshot} == {snapshot[0]["offset"]}
    assert [row["position"] for row in snapshot] == list(range(len(snapshot)))
    assert [row["offset"] for row in log] == [snapshot[0]["offset"] + 1 + at for at in range(len(log))]
    assert not any(row["gap"] for row in log)
    assert len({row["partition"] for row in found if row["type"] == "PartitionRecord"}) == 40
