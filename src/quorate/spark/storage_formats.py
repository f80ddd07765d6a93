"""In which format the raw tables are kept: Parquet, or Delta or Iceberg for those who have their jars.

Whatever the format, one version of the warehouse names one state of each table: for Parquet a list of
parts, for the others the number that they give to a state themselves. An append is tagged with its stream
and batch, and one that is there already is found by its tag, so that a batch that comes again after a crash
is not added twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import functions as F

from quorate.spark.parts import look_at, read_parts
from quorate.spark.raw_tables import RAW_TABLES, all_nullable, coverage_key
from quorate.spark.warehouse import Contents, Part, Warehouse, WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Batch", "Storage", "Written", "in_parts", "session_settings", "storage_of"]

_ICEBERG: Final = "quorate_iceberg"
_TAG: Final = "quorate-batch"


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that a stream adds to a table, under a name that they get again if they come again."""

    frame: DataFrame
    table: str
    stream: str
    batch_id: int

    @property
    def tag(self) -> str:
        return f"{self.stream}/{self.batch_id}"


@dataclass(frozen=True, slots=True)
class Written:
    """What an append came to: the part to publish, and which offsets were in it."""

    part: Part | None
    rows: int
    clusters: tuple[str, ...]
    covered: Mapping[str, tuple[int, int]]


class Storage(Protocol):
    def append(self, batch: Batch, part_name: str, before: tuple[Part, ...]) -> Written: ...

    def publish(self, newest: Contents, table: str, part: Part) -> Contents: ...

    def read(self, table: str, contents: Contents) -> DataFrame: ...


def storage_of(spark: SparkSession, warehouse: Warehouse) -> Storage:
    """How this warehouse keeps its raw tables; `WarehouseError` if Spark lacks what that needs."""
    match warehouse.raw_format:
        case "parquet":
            return _Parquet(spark, warehouse)
        case "delta":
            _require(spark, "delta", "io.delta:delta-spark_2.13")
            return _Delta(spark, warehouse)
        case "iceberg":
            _require(spark, "iceberg", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13")
            return _Iceberg(spark, warehouse)
    raise WarehouseError(f"{warehouse.directory}: format {warehouse.raw_format!r} is not known")


def in_parts(spark: SparkSession, warehouse: Warehouse) -> Storage:
    """How tables are kept that are small whatever the format of the logs is: as parts."""
    return _Parquet(spark, warehouse)


def session_settings(warehouse: Warehouse) -> dict[str, str]:
    """What a session has to be started with for this format, beside the jars."""
    if warehouse.raw_format == "delta":
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    if warehouse.raw_format == "iceberg":
        return {
            f"spark.sql.catalog.{_ICEBERG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{_ICEBERG}.type": "hadoop",
            f"spark.sql.catalog.{_ICEBERG}.warehouse": (warehouse.directory / "iceberg").as_uri(),
        }
    return {}


class _Parquet:
    """Each append is a part of its own. One writer, and no format to ask: what a version names is there."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark, self._warehouse = spark, warehouse

    def append(self, batch: Batch, part_name: str, before: tuple[Part, ...]) -> Written:
        del before
        place = self._warehouse.table_place(batch.table, part_name)
        batch.frame.write.partitionBy("cluster_id").parquet(str(place))
        found = look_at(place, batch.table)
        part = Part(part_name, found.rows, found.size_bytes, found.clusters) if found.rows else None
        return Written(part, found.rows, found.clusters, found.covered)

    def publish(self, newest: Contents, table: str, part: Part) -> Contents:
        return newest.with_part(table, part)

    def read(self, table: str, contents: Contents) -> DataFrame:
        return read_parts(self._spark, self._warehouse, table, contents.tables.get(table, ()))


class _Foreign:
    """What Delta and Iceberg have in common: the whole table is one part, named after its newest state."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark, self._warehouse = spark, warehouse

    def append(self, batch: Batch, part_name: str, before: tuple[Part, ...]) -> Written:
        del part_name  # the format names its files itself
        key = coverage_key(batch.table).alias("key")
        ends = [F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("rows")]
        found = batch.frame.groupBy("cluster_id", key).agg(*ends).collect()
        rows, clusters = sum(one.rows for one in found), tuple(sorted({one.cluster_id for one in found}))
        if not rows:
            return Written(None, 0, (), {})
        state = self._state_with(batch)
        all_clusters = sorted({*clusters, *(one for part in before for one in part.clusters)})
        all_rows = rows + sum(part.rows for part in before)
        part = Part(state, all_rows, 0, tuple(all_clusters))
        return Written(part, rows, clusters, {one.key: (one.first, one.last + 1) for one in found})

    def publish(self, newest: Contents, table: str, part: Part) -> Contents:
        return newest.with_parts(table, (part,))

    def read(self, table: str, contents: Contents) -> DataFrame:
        schema = all_nullable(RAW_TABLES[table])
        parts = contents.tables.get(table, ())
        if not parts:
            return self._spark.createDataFrame([], schema)
        return self._read_state(table, parts[0].name).select(*schema.names)

    def _state_with(self, batch: Batch) -> str:
        raise NotImplementedError

    def _read_state(self, table: str, state: str) -> DataFrame:
        raise NotImplementedError


class _Delta(_Foreign):
    def _state_with(self, batch: Batch) -> str:
        place = str(self._warehouse.directory / "delta" / batch.table)
        writer = batch.frame.write.format("delta").mode("append").partitionBy("cluster_id")
        writer = writer.option("txnAppId", batch.stream).option("txnVersion", batch.batch_id)
        writer.option("mergeSchema", "true").save(place)
        newest = self._spark.sql(f"DESCRIBE HISTORY delta.`{place}`").agg(F.max("version"))
        return str(newest.collect()[0][0])

    def _read_state(self, table: str, state: str) -> DataFrame:
        place = str(self._warehouse.directory / "delta" / table)
        return self._spark.read.format("delta").option("versionAsOf", state).load(place)


class _Iceberg(_Foreign):
    def _state_with(self, batch: Batch) -> str:
        name = f"{_ICEBERG}.raw.{batch.table}"
        tagged = f"SELECT snapshot_id FROM {name}.snapshots WHERE summary['{_TAG}'] = :tag"
        if self._spark.catalog.tableExists(name):
            found = self._spark.sql(tagged, {"tag": batch.tag}).collect()
            if not found:
                self._tagged(batch, name).append()
        else:
            self._tagged(batch, name).partitionedBy(F.col("cluster_id")).create()
        return str(self._spark.sql(tagged, {"tag": batch.tag}).collect()[0][0])

    @staticmethod
    def _tagged(batch: Batch, name: str) -> Any:
        return batch.frame.writeTo(name).option(f"snapshot-property.{_TAG}", batch.tag)

    def _read_state(self, table: str, state: str) -> DataFrame:
        return self._spark.read.option("snapshot-id", state).table(f"{_ICEBERG}.raw.{table}")


def _require(spark: SparkSession, name: str, coordinates: str) -> None:
    """Spark says which formats it has only when one is asked for."""
    try:
        spark.read.format(name).load("/nowhere")
    except Exception as error:  # which one depends on the format
        if "DATA_SOURCE_NOT_FOUND" in str(error) or "ClassNotFound" in str(error):
            raise WarehouseError(
                f"format {name} needs its jar, which this Spark has not: start with"
                f" --spark-conf spark.jars.packages={coordinates}:VERSION, or leave --format out for parquet"
            ) from None
