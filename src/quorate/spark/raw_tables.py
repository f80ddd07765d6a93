"""The raw tables that a warehouse has, and what tells one row from another.

Offsets order the rows of a partition, and each stream covers a range of them. So whether a row is already
there is a question about ranges, not about rows: input that comes again, from another copy or after a
checkpoint was lost, costs nothing and adds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from quorate.spark.schemas import EVENTS, GROUP_RECORDS, PROBLEMS, RECORDS
from quorate.spark.warehouse import StreamState

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "ALERTS",
    "END_OFFSETS",
    "LOGS",
    "RAW_TABLES",
    "all_nullable",
    "coverage_key",
    "key_text",
    "not_covered",
]


def _column(
    name: str, kind: LongType | StringType | TimestampType | IntegerType, comment: str
) -> StructField:
    return StructField(name, kind, nullable=True, metadata={"comment": comment})


END_OFFSETS: Final = StructType(
    [
        _column("cluster_id", StringType(), "of the cluster"),
        _column("sequence", LongType(), "of the sample: each has all partitions"),
        _column("ts", TimestampType(), "when the brokers were asked"),
        _column("topic", StringType(), "name of the topic"),
        _column("partition", IntegerType(), "of the topic"),
        _column("end_offset", LongType(), "the offset that the next record gets"),
    ]
)

ALERTS: Final = StructType(
    [
        _column("cluster_id", StringType(), "of the cluster"),
        _column("ts", TimestampType(), "when it happened, by the controller's clock"),
        _column("offset", LongType(), "of the record that made it one"),
        _column("kind", StringType(), "one word"),
        _column("text", StringType(), "what happened, in words"),
    ]
)

RAW_TABLES: Final[Mapping[str, StructType]] = {
    "records": RECORDS,
    "group_records": GROUP_RECORDS,
    "events": EVENTS,
    "end_offsets": END_OFFSETS,
    "problems": PROBLEMS,
    "alerts": ALERTS,
}

LOGS: Final[Mapping[str, str]] = {"records": "metadata", "group_records": "groups", "events": "events"}
"""The tables that are logs, each with the `log` option of the data source that reads it."""

JOURNAL: Final = -1  # in place of a partition: an event that was read from the journal of a node
_RANGES: Final = "map<string,array<array<bigint>>>"


def all_nullable(schema: StructType) -> StructType:
    """Files promise nothing about nulls, and older ones lack columns."""
    return StructType([StructField(one.name, one.dataType, True, one.metadata) for one in schema.fields])


def coverage_key(table: str) -> Column:
    """What a range of offsets is a range of: a partition of a log, or the journal of one life of a node."""
    cluster_id, partition = F.col("cluster_id"), F.col("partition")
    match table:
        case "records":
            return F.concat_ws("/", cluster_id, F.col("origin"))
        case "group_records":
            return F.concat_ws("/", cluster_id, partition)
        case "events":
            journal = F.concat_ws("/", cluster_id, F.lit("journal"), F.col("node_id"), F.col("incarnation"))
            return F.when(partition == JOURNAL, journal).otherwise(F.concat_ws("/", cluster_id, partition))
    raise AssertionError(f"{table} is not a log")


def key_text(table: str, row: Mapping[str, object]) -> str:
    """The same as `coverage_key` for a row that is at hand.

    >>> key_text("group_records", {"cluster_id": "c", "partition": 7})
    'c/7'
    """
    match table:
        case "records":
            parts = [row["cluster_id"], row["origin"]]
        case "events" if row["partition"] == JOURNAL:
            parts = [row["cluster_id"], "journal", row["node_id"], row["incarnation"]]
        case _:
            parts = [row["cluster_id"], row["partition"]]
    return "/".join(str(part) for part in parts if part is not None)


def not_covered(frame: DataFrame, table: str, streams: Iterable[StreamState]) -> DataFrame:
    """The rows that no stream has covered. What a snapshot says is also covered by the log up to there."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for stream in streams:
        for key, at in stream.covered.items():
            ranges.setdefault(key, []).append(at)
    if not ranges:
        return frame
    known = F.from_json(F.lit(json.dumps(ranges)), _RANGES)

    def is_covered(key: Column) -> Column:
        found = F.try_element_at(known, key)
        within = F.exists(found, lambda at: (F.col("offset") >= at[0]) & (F.col("offset") < at[1]))
        return F.coalesce(within, F.lit(False))

    covered = is_covered(coverage_key(table))
    if table == "records":
        log = F.concat_ws("/", F.col("cluster_id"), F.lit("log"))
        covered = covered | ((F.col("origin") == "snapshot") & is_covered(log))
    return frame.where(~covered)
