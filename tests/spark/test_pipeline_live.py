"""The pipeline on a cluster that runs: read once, followed, and its end offsets sampled."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster as Client
from quorate.client.metadata import TopicPartition
from quorate.spark.alerts import ALERTS
from quorate.spark.ingest import read_raw
from quorate.spark.lag_sampler import sample_end_offsets, spool_sample, take_in_samples
from quorate.spark.origins import live_cluster
from quorate.spark.pipeline import follow, read_logs
from quorate.spark.raw_tables import RAW_TABLES
from quorate.spark.warehouse import Warehouse
from quorate.testing import Cluster

pytestmark = pytest.mark.spark

DEADLINE_S = 240


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with Cluster(brokers=1) as cluster:
        yield cluster


def create(kafka: Cluster, topic: str) -> None:
    async def ask() -> None:
        async with Client(kafka.bootstrap_servers) as cluster:
            await Admin(cluster).create_topics(NewTopic(topic, partitions=2, replication_factor=1))

    asyncio.run(ask())


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)


def topics(spark: SparkSession, warehouse: Warehouse) -> set[str]:
    records = read_raw(spark, warehouse, warehouse.contents(), "records")
    return {row.topic for row in records.where("type = 'TopicRecord'").select("topic").collect()}


def test_reading_goes_on_where_it_was(spark: SparkSession, kafka: Cluster, tmp_path: Path):
    warehouse = Warehouse.create(tmp_path / "house")
    for topic in ("first", "second"):
        create(kafka, topic)
        done = read_logs(spark, warehouse, [live_cluster(kafka.bootstrap_servers)])
        assert done.rows["records"] > 0
        assert topic in topics(spark, warehouse)
    assert warehouse.contents().clusters == (kafka.cluster_id,)
    records = read_raw(spark, warehouse, warehouse.contents(), "records")
    assert records.count() == records.dropDuplicates(["origin", "offset", "position"]).count()
    ends = read_raw(spark, warehouse, warehouse.contents(), "end_offsets").collect()
    assert {row.sequence for row in ends} == {0, 1}
    assert {(row.topic, row.partition, row.end_offset) for row in ends} >= {
        ("second", 0, 0),
        ("second", 1, 0),
    }


def test_following_until_told_to_stop(spark: SparkSession, kafka: Cluster, tmp_path: Path):
    warehouse = Warehouse.create(tmp_path / "house")
    origins = [live_cluster(kafka.bootstrap_servers)]
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            follow(spark, warehouse, origins, stop=stop, every_s=DEADLINE_S)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: warehouse.contents().streams_of("records") or failures, "a first batch")
        create(kafka, "while-it-runs")
        wait_until(lambda: failures or "while-it-runs" in topics(spark, warehouse), "what is new")
        # Somebody asks beside it, and a stateful stream of alerts runs too.
        wait_until(lambda: failures or warehouse.contents().streams_of("alerts"), "the stream of alerts")
    finally:
        stop.set()
        thread.join(DEADLINE_S)
    assert failures == []
    assert not thread.is_alive()
    assert set(warehouse.contents().answers) >= {"failovers", "incidents"}


def test_samples_are_numbered_once_and_taken_in_once(spark: SparkSession, tmp_path: Path):
    warehouse = Warehouse.create(tmp_path / "house")
    ends = {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 9}
    assert [spool_sample(warehouse, "c", ends, now_ms) for now_ms in (1000, 2000)] == [0, 1]
    spooled = tmp_path / "spooled"
    shutil.copytree(warehouse.spool, spooled)
    assert take_in_samples(spark, warehouse) == 4
    # A process that died before it removed the files finds them again.
    shutil.copytree(spooled, warehouse.spool, dirs_exist_ok=True)
    assert take_in_samples(spark, warehouse) == 0
    assert list(warehouse.spool.rglob("*.jsonl")) == []
    assert spool_sample(warehouse, "c", ends, 3000) == 2
    rows = (
        read_raw(spark, warehouse, warehouse.contents(), "end_offsets")
        .orderBy("sequence", "partition")
        .collect()
    )
    assert [(row.sequence, row.partition, row.end_offset) for row in rows] == [
        (0, 0, 7),
        (0, 1, 9),
        (1, 0, 7),
        (1, 1, 9),
    ]
    assert [row.ts.timestamp() for row in rows[:3:2]] == [1.0, 2.0]


def test_a_sample_has_all_partitions(kafka: Cluster):
    create(kafka, "sampled")
    ends = asyncio.run(sample_end_offsets(kafka.bootstrap_servers))
    assert ends[TopicPartition("sampled", 0)] == ends[TopicPartition("sampled", 1)] == 0


def test_alerts_are_kept_as_they_are_raised():
    assert RAW_TABLES["alerts"].simpleString() == ALERTS.simpleString()
