"""Small parts become large ones: every batch of a stream leaves a part, and reading thousands is slow.

Parts of about the same size are merged eight at a time, so that a row is rewritten as often as the logarithm
of the table's size says, not with every batch. The merged part is published in place of the others in one
version; who reads an older version still finds the parts of that one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from quorate.spark.parts import look_at, read_parts
from quorate.spark.raw_tables import LOGS, RAW_TABLES
from quorate.spark.warehouse import Contents, Part, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MERGED_TOGETHER", "compact", "mergeable"]

MERGED_TOGETHER: Final = 8
_SMALLEST_BYTES: Final = 64 * 1024
_PART_BYTES_MAX: Final = 512 * 1024 * 1024
_FILE_BYTES: Final = 128 * 1024 * 1024


def mergeable(parts: Iterable[Part]) -> list[Part]:
    """The parts to make one of next: those of the smallest size of which there are enough.

    >>> few = [Part(str(number), 10, 2000) for number in range(7)]
    >>> mergeable(few), len(mergeable([*few, Part("8", 10, 3000), Part("large", 10**6, 10**8)]))
    ([], 8)
    """
    classes: dict[int, list[Part]] = {}
    for part in parts:
        if part.size_bytes <= _PART_BYTES_MAX:
            classes.setdefault(_size_class(part.size_bytes), []).append(part)
    for _, alike in sorted(classes.items()):
        if len(alike) >= MERGED_TOGETHER:
            return alike
    return []


def compact(spark: SparkSession, warehouse: Warehouse) -> int:
    """Merges what can be merged in all tables; how many parts there are fewer."""
    fewer = 0
    for table in RAW_TABLES:
        if table in LOGS and warehouse.raw_format != "parquet":
            continue  # other formats have their own ways
        while merged := mergeable(warehouse.contents().tables.get(table, ())):
            _merge(spark, warehouse, table, merged)
            fewer += len(merged) - 1
    return fewer


def _merge(spark: SparkSession, warehouse: Warehouse, table: str, merged: list[Part]) -> None:
    order = [
        name for name in ("cluster_id", "partition", "offset", "sequence") if name in RAW_TABLES[table].names
    ]
    files = math.ceil(sum(part.size_bytes for part in merged) / _FILE_BYTES)
    rows = read_parts(spark, warehouse, table, merged)
    with warehouse.new_part(table) as name:
        place = warehouse.table_place(table, name)
        in_order = rows.repartitionByRange(max(files, 1), order[-1]).sortWithinPartitions(*order)
        in_order.write.partitionBy("cluster_id").parquet(str(place))
        found = look_at(place, table)
        assert found.rows == sum(part.rows for part in merged), f"{place}: rows were lost in merging"
        part = Part(name, found.rows, found.size_bytes, found.clusters)
        warehouse.change(lambda newest: _replaced(newest, table, merged, part))


def _replaced(newest: Contents, table: str, merged: list[Part], part: Part) -> Contents:
    kept = [one for one in newest.tables[table] if one not in merged]
    return newest.with_parts(table, (part, *kept))


def _size_class(size_bytes: int) -> int:
    return (
        0
        if size_bytes <= _SMALLEST_BYTES
        else math.ceil(math.log(size_bytes / _SMALLEST_BYTES, MERGED_TOGETHER))
    )
