"""`format("quorate")` with the internal logs, in a real Spark: files at once, as streams, with filters."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from metadata_directories import CLUSTER, NOOP, copy_of, data, leads
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from histories import History, batch_of
from quorate.spark.metadata_columns import record_batch
from quorate.spark.schemas import EVENTS, GROUP_RECORDS, RECORDS
from quorate.storage.snapshots import SnapshotId

pytestmark = pytest.mark.spark

EPOCH_1 = [leads(0, 1), data(1, 1, 3), data(4, 1)]
EPOCH_2 = [leads(5, 2), data(6, 2, 2)]
EPOCH_3 = [leads(8, 3), data(9, 3)]


def read(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    return spark.read.format("quorate").options(log="metadata", **options).load(str(path))


def stream_into(spark: SparkSession, path: Path, target: Path, **options: str) -> list[dict[str, Any]]:
    """What one available-now run adds to what is there."""
    source = spark.readStream.format("quorate").options(log="metadata", **options).load(str(path))
    query = (
        source.writeStream.format("parquet")
        .option("checkpointLocation", str(target / "checkpoint"))
        .option("path", str(target / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.read.schema(RECORDS).parquet(str(target / "rows"))
    return [row.asDict() for row in rows.orderBy("cluster_id", "offset", "origin", "position").collect()]


def test_a_table_with_the_declared_columns(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(5)
    history = History(random)
    for _ in range(8):
        history.create_topics()
        history.change_partitions()
        history.say_what_nobody_knows()
    batch = bytes(batch_of(history.values, 1))
    copy_of(tmp_path, (0, [leads(0, 3, voters=[1]), batch]))

    rows = read(spark, tmp_path)

    assert rows.schema == RECORDS
    expected = record_batch(CLUSTER, leads(0, 3, voters=[1]) + batch).to_pylist()
    found = [row.asDict() for row in rows.orderBy("offset").collect()]
    assert [{**row, "ts": row["ts"].timestamp()} for row in found] == [
        {**row, "ts": row["ts"].timestamp()} for row in expected
    ]
    assert [row["fields"] for row in found] == [row["fields"] for row in expected]
    assert [row["isr"] for row in found] == [row["isr"] for row in expected]


def test_filters_reach_the_source(spark: SparkSession, tmp_path: Path) -> None:
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))

    rows = read(spark, tmp_path).where("type = 'LeaderChange' and offset >= 2")

    assert [row.offset for row in rows.collect()] == [5]
    assert read(spark, tmp_path, pushdown="false").where("type = 'LeaderChange'").count() == 2
    assert read(spark, tmp_path, recordTypes="LeaderChange").count() == 2


def test_many_clusters_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    for name in "abc":
        copy_of(tmp_path / name, (0, [*EPOCH_1, *EPOCH_2]), cluster_id=name)
    copy_of(tmp_path / "late", (5, EPOCH_2), cluster_id="late", snapshots=[SnapshotId(6, 2)])

    rows = read(spark, f"{tmp_path}/*").groupBy("cluster_id", "origin").agg(f.count("*").alias("n"))

    assert {(row.cluster_id, row.origin): row.n for row in rows.collect()} == {
        ("a", "log"): 8,
        ("b", "log"): 8,
        ("c", "log"): 8,
        ("late", "log"): 2,
        ("late", "snapshot"): 4,
    }


def test_a_stream_of_files_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "target"
    copy_of(logs, (0, [*EPOCH_1, *EPOCH_2]))
    first = stream_into(spark, logs, target, maxOffsetsPerTrigger="2")
    again = stream_into(spark, logs, target, maxOffsetsPerTrigger="2")
    copy_of(logs, (0, [*EPOCH_1, *EPOCH_2, *EPOCH_3]))
    second = stream_into(spark, logs, target)

    assert [row["offset"] for row in first] == list(range(5))
    assert again == first
    assert [row["offset"] for row in second] == list(range(8))
    at_once = read(spark, logs, include="confirmed").orderBy("offset").collect()
    assert second == [row.asDict() for row in at_once]


def test_a_stream_whose_log_was_replaced_fails_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "target"
    copy_of(logs, (0, [*EPOCH_1, *EPOCH_2]))
    stream_into(spark, logs, target)
    copy_of(logs, (0, [leads(0, 7), data(1, 7, 9), leads(10, 8), data(11, 8)]))

    with pytest.raises(Exception, match="the log was replaced after it had been read"):
        stream_into(spark, logs, target)


def test_groups_and_events_are_tables_too(spark: SparkSession, tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, EPOCH_1))
    (root / "events").mkdir()
    (root / "events" / f"events-{0:020d}.jsonl").write_text('{"kind":"A","sequence":0,"node":1}\n')

    events = spark.read.format("quorate").options(log="events").load(str(root))
    groups = spark.read.format("quorate").options(log="groups").load(str(root))

    assert (events.schema, groups.schema) == (EVENTS, GROUP_RECORDS)
    assert [(row.cluster_id, row.kind) for row in events.collect()] == [(CLUSTER, "A")]
    assert groups.count() == 0


@pytest.mark.parametrize(("option", "variant"), [("json", "parse_json(fields)"), ("variant", "fields")])
def test_fields_are_variants_if_somebody_wants_that(
    spark: SparkSession, tmp_path: Path, option: str, variant: str
) -> None:
    copy_of(tmp_path, (0, EPOCH_1))

    rows = read(spark, tmp_path, fields=option).where("type = 'LeaderChange'").selectExpr(f"{variant} v")

    assert [row.leader for row in rows.selectExpr("v:leaderId::int leader").collect()] == [1]


def test_a_stream_of_nothing_confirmed_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    logs = copy_of(tmp_path / "logs", (0, [leads(0, 1), data(1, 1, value=NOOP)]))

    assert stream_into(spark, logs, tmp_path / "target") == []
