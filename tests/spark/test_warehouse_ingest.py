"""Batches get into a table once, whatever happens between writing them and saying so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from quorate.spark.compaction import compact
from quorate.spark.ingest import BatchWriter, read_raw, replace_unconfirmed
from quorate.spark.schemas import RECORDS
from quorate.spark.storage_formats import storage_of
from quorate.spark.warehouse import Warehouse, WarehouseError

pytestmark = pytest.mark.spark

WHEN = datetime(2026, 11, 15, 12, tzinfo=UTC)


def record(offset: int, cluster_id: str = "c", **columns: Any) -> tuple[Any, ...]:
    values = {
        "cluster_id": cluster_id,
        "origin": "log",
        "offset": offset,
        "position": 0,
        "epoch": 1,
        "ts": WHEN,
    }
    values |= {"type": "NoOpRecord", "is_confirmed": True, **columns}
    return tuple(values.get(name) for name in RECORDS.names)


class Log:
    """A log that grows by a file at a time; each file is a batch of the stream."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place = spark, place
        place.mkdir()

    def grow(self, *rows: tuple[Any, ...]) -> None:
        self.spark.createDataFrame(rows, RECORDS).coalesce(1).write.mode("append").parquet(str(self.place))

    def stream_into(
        self, warehouse: Warehouse, name: str = "records/c/live", writer: Any = None
    ) -> list[int]:
        """Reads what is new; how many rows each batch had."""
        counts: list[int] = []
        storage = storage_of(self.spark, warehouse)
        write = writer or BatchWriter(
            warehouse, storage, table="records", cluster_id="c", stream=name, tell=counts.append
        )
        query = (
            self.spark.readStream.schema(RECORDS)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.place))
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(warehouse.checkpoint(name)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return counts


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.create(tmp_path / "house")


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Iterator[Log]:
    yield Log(spark, tmp_path / "log")
    shutil.rmtree(tmp_path / "log")


def rows_of(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    return read_raw(spark, warehouse, warehouse.contents(), "records")


def offsets(spark: SparkSession, warehouse: Warehouse) -> list[int]:
    return sorted(row.offset for row in rows_of(spark, warehouse).select("offset").collect())


def test_batches_are_added_and_then_nothing(spark: SparkSession, warehouse: Warehouse, log: Log):
    assert offsets(spark, warehouse) == []
    log.grow(record(0, isr=[1, 2]), record(1))
    log.grow(record(2))
    assert sorted(log.stream_into(warehouse)) == [1, 2]
    assert log.stream_into(warehouse) == []
    assert offsets(spark, warehouse) == [0, 1, 2]
    first = rows_of(spark, warehouse).where("offset = 0").collect()[0]
    assert (first.cluster_id, first.isr, first.leader) == ("c", [1, 2], None)
    (state,) = warehouse.contents().streams.values()
    assert state.covered == {"c/log": (0, 3)}


class Death(Exception):  # noqa: N818
    """Stands for the end of the process."""


class Dying:
    """A writer that dies at one point of its first batch, and works afterwards."""

    def __init__(self, warehouse: Warehouse, writer: BatchWriter, point: str) -> None:
        self.warehouse, self.writer, self.point, self.is_dead = warehouse, writer, point, False

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if self.is_dead:
            return self.writer(frame, batch_id)
        self.is_dead = True
        if self.point == "before the version":
            # What a killed process leaves: rows in a place that nobody names.
            frame.write.partitionBy("cluster_id").parquet(str(self.warehouse.table_place("records", "left")))
            raise Death
        self.writer(frame, batch_id)
        raise Death


@pytest.mark.parametrize("point", ["before the version", "before Spark's commit"])
def test_a_batch_that_comes_again_is_there_once(
    spark: SparkSession, warehouse: Warehouse, log: Log, point: str
):
    log.grow(record(0), record(1))
    writer = BatchWriter(
        warehouse,
        storage_of(spark, warehouse),
        table="records",
        cluster_id="c",
        stream="records/c/live",
        tell=lambda _: None,
    )
    dying = Dying(warehouse, writer, point)
    with pytest.raises(PySparkException):
        log.stream_into(warehouse, writer=dying)
    log.grow(record(2))
    log.stream_into(warehouse, writer=dying)
    assert offsets(spark, warehouse) == [0, 1, 2]
    warehouse.tidy()
    assert offsets(spark, warehouse) == [0, 1, 2]
    assert not warehouse.table_place("records", "left").exists()


def test_a_lost_checkpoint_adds_nothing_twice(spark: SparkSession, warehouse: Warehouse, log: Log):
    log.grow(record(0), record(1))
    log.stream_into(warehouse)
    shutil.rmtree(warehouse.checkpoint("records/c/live"))
    log.grow(record(2))
    log.stream_into(warehouse)
    assert offsets(spark, warehouse) == [0, 1, 2]


def test_another_copy_of_the_log_adds_only_what_is_new(
    spark: SparkSession, warehouse: Warehouse, log: Log, tmp_path: Path
):
    log.grow(record(5), record(6))
    log.stream_into(warehouse)
    copy = Log(spark, tmp_path / "copy")
    copy.grow(*map(record, range(10)))
    copy.stream_into(warehouse, "records/c/files")
    assert offsets(spark, warehouse) == list(range(10))


def test_a_snapshot_of_what_the_log_told_is_not_added(
    spark: SparkSession, warehouse: Warehouse, log: Log, tmp_path: Path
):
    log.grow(*map(record, range(10)))
    log.stream_into(warehouse)
    copy = Log(spark, tmp_path / "copy")
    copy.grow(*[record(7, origin="snapshot", position=at) for at in range(3)], record(8))
    copy.grow(*[record(12, origin="snapshot", position=at) for at in range(2)])
    copy.grow(record(12, origin="snapshot", position=2), record(13))
    copy.stream_into(warehouse, "records/c/files")
    assert offsets(spark, warehouse) == [*range(10), 12, 12, 12, 13]


def test_a_checkpoint_refuses_rows_of_another_cluster(spark: SparkSession, warehouse: Warehouse, log: Log):
    log.grow(record(0))
    log.stream_into(warehouse)
    log.grow(record(1, "d"))
    with pytest.raises(PySparkException, match="there came rows of cluster d"):
        log.stream_into(warehouse)
    assert offsets(spark, warehouse) == [0]


def test_unconfirmed_rows_are_replaced_and_give_way_to_confirmed_ones(
    spark: SparkSession, warehouse: Warehouse, log: Log
):
    log.grow(record(0))
    log.stream_into(warehouse)
    for ends in (3, 4):
        rows = [record(at, is_confirmed=False) for at in range(1, ends)]
        replace_unconfirmed(warehouse, "records", "c", spark.createDataFrame(rows, RECORDS))
        assert offsets(spark, warehouse) == list(range(ends))
    log.grow(record(1), record(2))
    log.stream_into(warehouse)
    assert offsets(spark, warehouse) == [0, 1, 2, 3]
    assert rows_of(spark, warehouse).where("is_confirmed").count() == 3


def test_a_part_without_a_column_has_nulls_there(spark: SparkSession, warehouse: Warehouse, log: Log):
    log.grow(record(0, gap="loss"))
    log.stream_into(warehouse)
    (part,) = warehouse.contents().tables["records"]
    place = warehouse.table_place("records", part.name)
    old = spark.read.parquet(str(place)).selectExpr("* EXCEPT (gap)", "1 AS removed_since")
    old.write.partitionBy("cluster_id").parquet(str(place) + "-old")
    shutil.rmtree(place)
    Path(str(place) + "-old").rename(place)
    (row,) = rows_of(spark, warehouse).collect()
    assert (row.offset, row.gap) == (0, None)
    assert row.__fields__ == RECORDS.names


def test_merged_parts_have_the_same_rows_and_old_readers_keep_theirs(
    spark: SparkSession, warehouse: Warehouse, log: Log
):
    for offset in range(9):
        log.grow(record(offset))
    log.stream_into(warehouse)
    contents, held = warehouse.hold()
    assert held is not None
    assert len(contents.tables["records"]) == 9
    assert compact(spark, warehouse) == 8
    for _ in range(4):
        warehouse.change(lambda newest: newest)
    warehouse.tidy()
    assert len(warehouse.contents().tables["records"]) == 1
    assert offsets(spark, warehouse) == list(range(9))
    before = read_raw(spark, warehouse, contents, "records")
    assert before.count() == 9
    held.release()
    warehouse.tidy()
    assert len(list(warehouse.table_place("records").glob("part=*"))) == 1


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_format_without_its_jar_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path, name: str):
    with pytest.raises(WarehouseError, match=r"needs its jar.*spark\.jars\.packages"):
        storage_of(spark, Warehouse.create(tmp_path / "house", name))
