"""In which format the raw tables are kept: Parquet, or Delta or Iceberg for those who have their jars.

Whatever the format, one version of the warehouse names one state of each table: for Parquet a list of
parts, for the others the number that they give to a state themselves. There an append is seen by everybody
before a version names it, so a crash between the two leaves rows that no stream says it has covered. Appends
are tagged; the next one takes back what is tagged and was never named, whichever stream it came from, before
it adds its own. What others do to such a table, merging its files for instance, has no tag and stays.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql import functions as F

from quorate.spark.parts import look_at, read_parts
from quorate.spark.raw_tables import RAW_TABLES, all_nullable, coverage_key
from quorate.spark.session import FOR_MANY_ROWS
from quorate.spark.warehouse import Contents, Part, Warehouse, WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["Batch", "Storage", "Written", "in_parts", "session_settings", "storage_of"]

_TAG: Final = "quorate-batch"
# What Java says of a jar that was made for another Spark.
_MISFIT: Final = re.compile(r"NoSuchMethodError|IncompatibleClassChangeError|AbstractMethodError")
_MANY_ROWS: Final = 1_000_000
_LOOKED_BACK: Final = 100  # states of a table before its newest, of which at most one or two are not named


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
    def turn(self, table: str) -> AbstractContextManager[object]:
        """Held from before an append until it is published, where only one at a time may be between."""
        ...

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
    """What a session is best started with for so many rows, and must be for this format, beside the jars."""
    tables = warehouse.contents().tables
    rows = sum(part.rows for parts in tables.values() for part in parts)
    settings = dict(FOR_MANY_ROWS) if rows >= _MANY_ROWS else {}
    if warehouse.raw_format == "delta":
        settings |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # Of its own list of files, which is short: 50, the default, takes seconds for each append.
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    return settings


class _Parquet:
    """Each append is a part of its own. One writer, and no format to ask: what a version names is there."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark, self._warehouse = spark, warehouse

    def turn(self, table: str) -> AbstractContextManager[object]:
        del table
        return nullcontext()

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


_turns: dict[tuple[Path, str], Lock] = {}


class _Foreign(ABC):
    """What Delta and Iceberg have in common: the whole table is one part, named after its newest state."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark, self._warehouse = spark, warehouse

    def turn(self, table: str) -> AbstractContextManager[object]:
        """The newest state has all that was appended: it may be named only while nobody else is at it."""
        return _turns.setdefault((self._warehouse.directory, table), Lock())

    def append(self, batch: Batch, part_name: str, before: tuple[Part, ...]) -> Written:
        del part_name  # the format names its files itself
        key = coverage_key(batch.table).alias("key")
        ends = [F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("rows")]
        frame = batch.frame.persist()  # it is read twice
        try:
            found = frame.groupBy("cluster_id", key).agg(*ends).collect()
            if not found:
                return Written(None, 0, (), {})
            self._take_back(batch.table, before[0].name if before else None)
            state = self._added(frame, batch.table, batch.tag)
        finally:
            frame.unpersist()
        rows, clusters = sum(one.rows for one in found), tuple(sorted({one.cluster_id for one in found}))
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
        frame = self._state(table, parts[0].name)
        known = set(frame.columns)
        return frame.select(
            *(
                F.col(one.name) if one.name in known else F.lit(None).cast(one.dataType).alias(one.name)
                for one in schema.fields
            )
        )

    @abstractmethod
    def _take_back(self, table: str, state: str | None) -> None:
        """Undoes what was appended after a state, or ever, and not published."""

    @abstractmethod
    def _added(self, frame: DataFrame, table: str, tag: str) -> str:
        """Appends rows; the name of the state that has them."""

    @abstractmethod
    def _state(self, table: str, state: str) -> DataFrame:
        """The rows of a state."""


class _Delta(_Foreign):
    def _take_back(self, table: str, state: str | None) -> None:
        place = self._place(table)
        if not (Path(place) / "_delta_log").is_dir():
            return
        newer = [
            one
            for one in self._history(place, _LOOKED_BACK)
            if (one.userMetadata or "").startswith(_TAG) and (state is None or one.version > int(state))
        ]
        if newer:
            undo = "DELETE FROM {}" if state is None else f"RESTORE TABLE {{}} TO VERSION AS OF {int(state)}"
            self._spark.sql(undo.format(f"delta.`{place}`")).collect()

    def _added(self, frame: DataFrame, table: str, tag: str) -> str:
        place = self._place(table)
        writer = frame.write.format("delta").mode("append").partitionBy("cluster_id")
        writer = writer.option("mergeSchema", "true").option("userMetadata", f"{_TAG} {tag}")
        writer.save(place)
        return str(self._history(place, 1)[0].version)

    def _state(self, table: str, state: str) -> DataFrame:
        return self._spark.read.format("delta").option("versionAsOf", state).load(self._place(table))

    def _history(self, place: str, limit: int) -> list[Row]:
        """The newest states, the newest first."""
        return self._spark.sql(f"DESCRIBE HISTORY delta.`{place}` LIMIT {limit}").collect()

    def _place(self, table: str) -> str:
        return str(self._warehouse.directory / "delta" / table)


class _Iceberg(_Foreign):
    """Its tables are in a catalog of their own, which is nothing but the directory."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        super().__init__(spark, warehouse)
        home = warehouse.directory / "iceberg"
        self._catalog = f"quorate_{hashlib.sha256(bytes(home)).hexdigest()[:12]}"
        key = f"spark.sql.catalog.{self._catalog}"
        spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"{key}.type", "hadoop")
        spark.conf.set(f"{key}.warehouse", home.as_uri())
        # A stream has a session of its own, which would not see what another has changed.
        spark.conf.set(f"{key}.cache-enabled", "false")

    def _take_back(self, table: str, state: str | None) -> None:
        if not self._spark.catalog.tableExists(self._name(table)):
            return
        if self._has_tag_after(table, state):
            if state is None:
                self._spark.sql(f"DELETE FROM {self._name(table)}").collect()
            else:
                undo = f"CALL {self._catalog}.system.rollback_to_snapshot('raw.{table}', {int(state)})"
                self._spark.sql(undo).collect()

    def _has_tag_after(self, table: str, state: str | None) -> bool:
        columns = "snapshot_id, parent_id, summary"
        rows = self._spark.sql(f"SELECT {columns} FROM {self._name(table)}.snapshots").collect()
        snapshots = {str(one.snapshot_id): one for one in rows}
        at = self._newest(table)
        while at is not None and at != state and at in snapshots:
            if _TAG in snapshots[at].summary:
                return True
            before = snapshots[at].parent_id
            at = None if before is None else str(before)
        return False

    def _added(self, frame: DataFrame, table: str, tag: str) -> str:
        name = self._name(table)
        if not self._spark.catalog.tableExists(name):
            empty = self._spark.createDataFrame([], all_nullable(frame.schema))
            made = empty.writeTo(name).tableProperty("write.spark.accept-any-schema", "true")
            made.partitionedBy(F.col("cluster_id")).create()
        writer = frame.writeTo(name).option("mergeSchema", "true")
        writer.option(f"snapshot-property.{_TAG}", tag).append()
        newest = self._newest(table)
        assert newest is not None, f"{name} has just been appended to"
        return newest

    def _newest(self, table: str) -> str | None:
        refs = self._spark.sql(f"SELECT snapshot_id FROM {self._name(table)}.refs WHERE name = 'main'")
        return next((str(one.snapshot_id) for one in refs.collect()), None)

    def _state(self, table: str, state: str) -> DataFrame:
        return self._spark.read.option("snapshot-id", state).table(self._name(table))

    def _name(self, table: str) -> str:
        return f"{self._catalog}.raw.{table}"


def _require(spark: SparkSession, name: str, coordinates: str) -> None:
    """Spark says which formats it has only when one is asked for."""
    try:
        spark.read.format(name).load("/nowhere")
    except Exception as error:  # which one depends on the format
        said = str(error)
        if _MISFIT.search(said):
            raise WarehouseError(
                f"format {name}: its jar is not for Spark {spark.version}; docs/pipeline.md says which go"
                " together. Or leave --format out for parquet"
            ) from None
        if "DATA_SOURCE_NOT_FOUND" in said or "ClassNotFound" in said:
            raise WarehouseError(
                f"format {name} needs its jar, which this Spark has not: start with"
                f" --spark-conf spark.jars.packages={coordinates}:VERSION, or leave --format out for parquet"
            ) from None
