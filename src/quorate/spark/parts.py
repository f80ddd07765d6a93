"""Parts of raw tables: directories of Parquet files, looked at without Spark and read with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as arrow_dataset
from pyarrow import parquet

from quorate.spark.raw_tables import LOGS, RAW_TABLES, all_nullable, key_text
from quorate.spark.warehouse import Part, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Found", "are_equal", "count", "look_at", "read_parts", "texts_of"]

_BY_CLUSTER: Final = arrow_dataset.partitioning(pa.schema([("cluster_id", pa.string())]), flavor="hive")
_COMPARED_ROWS_MAX: Final = 200_000
_KEYS: Final = {
    "records": ("cluster_id", "origin"),
    "group_records": ("cluster_id", "partition"),
    "events": ("cluster_id", "partition", "node_id", "incarnation"),
}


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a part; `covered` has the first offset and the one after the last, by `coverage_key`."""

    rows: int
    size_bytes: int
    clusters: tuple[str, ...]
    covered: Mapping[str, tuple[int, int]]


def look_at(place: Path, table: str) -> Found:
    """Reads only what tells rows apart: no job of Spark's for it."""
    files = sorted(place.rglob("*.parquet"))
    size_bytes = sum(file.stat().st_size for file in files)
    if not files:
        return Found(0, 0, (), {})
    data = arrow_dataset.dataset(
        files, format="parquet", partitioning=_BY_CLUSTER, partition_base_dir=str(place)
    )
    if table not in LOGS:
        of_clusters = data.to_table(columns=["cluster_id"]).column("cluster_id")
        names = {name for name in of_clusters.unique().to_pylist() if name is not None}
        return Found(len(of_clusters), size_bytes, tuple(sorted(names)), {})
    keys = _KEYS[table]
    wanted: list[Any] = [("offset", "min"), ("offset", "max"), ("offset", "count")]
    groups = data.to_table(columns=[*keys, "offset"]).group_by(list(keys)).aggregate(wanted).to_pylist()
    covered: dict[str, tuple[int, int]] = {}
    for group in groups:
        key = key_text(table, group)
        first, end = covered.get(key, (group["offset_min"], 0))
        covered[key] = min(first, group["offset_min"]), max(end, group["offset_max"] + 1)
    clusters = tuple(sorted({group["cluster_id"] for group in groups}))
    return Found(sum(group["offset_count"] for group in groups), size_bytes, clusters, covered)


def count(place: Path) -> tuple[int, int]:
    """How many rows and bytes are in the files of a directory."""
    files = sorted(place.rglob("*.parquet"))
    rows = sum(parquet.read_metadata(file).num_rows for file in files)
    return rows, sum(file.stat().st_size for file in files)


def are_equal(place: Path, other: Path) -> bool:
    """Whether two parts have the same rows; large ones count as different."""
    rows, _ = count(place)
    if rows != count(other)[0] or rows > _COMPARED_ROWS_MAX:
        return False
    tables = [
        arrow_dataset.dataset(sorted(one.rglob("*.parquet")), format="parquet").to_table()
        for one in (place, other)
    ]
    order = [
        (name, "ascending") for name in ("partition", "offset", "position") if name in tables[0].column_names
    ]
    return bool(tables[0].sort_by(order).equals(tables[1].sort_by(order)))


def texts_of(place: Path, rows_max: int) -> list[str]:
    """What the first rows of a part say in words."""
    data = arrow_dataset.dataset(sorted(place.rglob("*.parquet")), format="parquet")
    return [text for text in data.head(rows_max, columns=["text"]).column("text").to_pylist() if text]


def read_parts(spark: SparkSession, warehouse: Warehouse, table: str, parts: Iterable[Part]) -> DataFrame:
    """The rows of some parts; columns that they do not have yet are null."""
    schema = all_nullable(RAW_TABLES[table])
    places = [str(warehouse.table_place(table, part.name)) for part in parts]
    if not places:
        return spark.createDataFrame([], schema)
    # The base has to be said: otherwise each part would count as a table of its own.
    reader = spark.read.schema(schema).option("basePath", str(warehouse.table_place(table)))
    return reader.parquet(*places).select(*schema.names)
