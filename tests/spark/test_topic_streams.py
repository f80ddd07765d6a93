"""A topic as a stream: real Spark on a real cluster, stopped and started, limited, and misled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from topic_data import awaited, begun, create, delete, delete_records, fill

from quorate.testing import Cluster
from quorate.testing.control import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Cluster(mode="processes") as kafka:
        yield kafka.bootstrap_servers


def numbered(begin: int, end: int, **more: object) -> list[dict[str, object]]:
    return [{"value": b"%d" % number, **more} for number in range(begin, end)]


def start(spark: SparkSession, servers: str, home: Path, **options: object) -> StreamingQuery:
    """Copies what there is into a table of files, and ends."""
    trigger = options.pop("trigger", {"availableNow": True})
    given = {"bootstrap.servers": servers, "startingOffsets": "earliest", **options}
    source = spark.readStream.format("quorate").options(**given).load()  # type: ignore[arg-type]
    writer = source.writeStream.format("parquet").option("path", str(home / "table"))
    writer = writer.option("checkpointLocation", str(home / "checkpoint"))
    return writer.trigger(**trigger).start()  # type: ignore[arg-type]


def run(spark: SparkSession, servers: str, home: Path, **options: object) -> list[dict[str, Any]]:
    """The micro-batches of a run that had rows."""
    query = awaited(lambda: start(spark, servers, home, **options))
    return [one for one in query.recentProgress if one["numInputRows"]]


def seen(spark: SparkSession, home: Path) -> list[bytes]:
    rows = spark.read.parquet(str(home / "table")).select("value", "partition", "offset").collect()
    assert len({(one.partition, one.offset) for one in rows}) == len(rows), "something was read twice"
    return sorted((bytes(one.value) for one in rows), key=int)


def test_runs_continue_where_the_last_one_ended(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    create(servers, "runs", 2)
    fill(servers, "runs", numbered(0, 1000))
    first = run(spark, servers, tmp_path, subscribe="runs", maxOffsetsPerTrigger="300")
    assert [one["numInputRows"] for one in first[:3]] == [300, 300, 300]
    fill(servers, "runs", numbered(1000, 1500))
    second = run(spark, servers, tmp_path, subscribe="runs", minPartitions="5")
    assert [one["numInputRows"] for one in second] == [500]
    assert run(spark, servers, tmp_path, subscribe="runs") == []
    assert seen(spark, tmp_path) == [b"%d" % number for number in range(1500)]
    position = json.loads(second[-1]["sources"][0]["endOffset"])
    assert sum(position["offsets"]["runs"].values()) == 1500


def test_a_stream_follows_a_topic_that_grows(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """New records, and new topics of a pattern, in a query that goes on."""
    create(servers, "live-a")
    fill(servers, "live-a", numbered(0, 10))
    trigger = {"processingTime": "200 milliseconds"}
    query = begun(lambda: start(spark, servers, tmp_path, subscribePattern="live-.*", trigger=trigger))
    try:
        wait_until(lambda: rows_of(query) == 10, 120, "the first records")
        fill(servers, "live-a", numbered(10, 20))
        create(servers, "live-b")
        fill(servers, "live-b", numbered(20, 30))
        wait_until(lambda: rows_of(query) == 30, 120, "the other records")
    finally:
        query.stop()
    assert seen_values(spark, tmp_path) == {b"%d" % number for number in range(30)}


def rows_of(query: StreamingQuery) -> int:
    error = query.exception()
    assert error is None, error
    return sum(one["numInputRows"] for one in query.recentProgress)


def seen_values(spark: SparkSession, home: Path) -> set[bytes]:
    return {bytes(one.value) for one in spark.read.parquet(str(home / "table")).collect()}


def test_a_batch_that_was_planned_is_read_again_as_it_was(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    """The driver dies after a micro-batch was planned, and before it was committed."""
    create(servers, "again-and-again")
    fill(servers, "again-and-again", numbered(0, 100))
    run(spark, servers, tmp_path, subscribe="again-and-again")
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "table")
    fill(servers, "again-and-again", numbered(100, 200))
    batches = run(spark, servers, tmp_path, subscribe="again-and-again")
    assert [one["numInputRows"] for one in batches] == [100, 100]
    assert seen(spark, tmp_path) == [b"%d" % number for number in range(200)]


def test_what_is_lost_between_two_runs_is_an_error_or_passed_over(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    create(servers, "forgetful")
    fill(servers, "forgetful", numbered(0, 10))
    run(spark, servers, tmp_path, subscribe="forgetful")
    fill(servers, "forgetful", numbered(10, 100))
    delete_records(servers, "forgetful", 0, 50)
    with pytest.raises(StreamingQueryException, match=r"offsets 10 to 49 of forgetful-0 are lost"):
        run(spark, servers, tmp_path, subscribe="forgetful")
    run(spark, servers, tmp_path, subscribe="forgetful", failOnDataLoss="false", includeGaps="true")
    table = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "table"))
    assert [one.offset for one in table.where("gap = 'retention'").collect()] == [50]
    assert table.count() == 60


def test_a_topic_that_is_created_anew_between_two_runs(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    create(servers, "reborn")
    fill(servers, "reborn", numbered(0, 10))
    run(spark, servers, tmp_path, subscribe="reborn")
    delete(servers, "reborn")
    create(servers, "reborn")
    fill(servers, "reborn", numbered(10, 30))
    with pytest.raises(StreamingQueryException, match="reborn was deleted and created again"):
        run(spark, servers, tmp_path, subscribe="reborn")
    run(spark, servers, tmp_path, subscribe="reborn", failOnDataLoss="false")
    assert seen_values(spark, tmp_path) == {b"%d" % number for number in range(30)}


def test_a_checkpoint_of_another_cluster_is_refused(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    create(servers, "here")
    fill(servers, "here", numbered(0, 10))
    run(spark, servers, tmp_path, subscribe="here")
    with Cluster() as other:
        create(other.bootstrap_servers, "here")
        fill(other.bootstrap_servers, "here", numbered(0, 20))
        with pytest.raises(StreamingQueryException, match="a stream cannot go on in another cluster"):
            run(spark, other.bootstrap_servers, tmp_path, subscribe="here")
