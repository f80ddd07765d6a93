"""The records that count, at the moment at which they came to count.

The metadata log holds more than what happened. What stands inside a metadata transaction counts from its
end on, and not at all if it is aborted or still open. A snapshot names everything that there is: what the
rows before it spoke of, and the snapshot does not, is gone, nobody knows since when.

Both are rare, so they are looked up in two tiny tables beside the log instead of by sorting all of it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

__all__ = ["cut_at", "replayed"]

_BEGIN: Final = "BeginTransactionRecord"
_END: Final = "EndTransactionRecord"
_ABORT: Final = "AbortTransactionRecord"
_LOG: Final = "log"
_SNAPSHOT: Final = "snapshot"


def replayed(records: DataFrame) -> DataFrame:
    """The rows of `records` that count, with `at_offset`, `at_ts` and `cut`: see `intervals`."""
    row, transaction, snapshot = records.alias("row"), _transactions(records), _snapshots(records)
    origin, offset = fn.col("row.origin"), fn.col("row.offset")
    is_inside = (
        (fn.col("row.cluster_id") == fn.col("transaction.cluster_id"))
        & (origin == _LOG)
        & (offset > fn.col("transaction.begin_offset"))
        & (fn.col("transaction.commit_offset").isNull() | (offset < fn.col("transaction.commit_offset")))
    )
    is_next_snapshot = (
        (fn.col("row.cluster_id") == fn.col("snapshot.cluster_id"))
        & ((offset < fn.col("snapshot.offset")) | ((offset == fn.col("snapshot.offset")) & (origin == _LOG)))
        & (
            fn.col("snapshot.offset_before").isNull()
            | (offset > fn.col("snapshot.offset_before"))
            | ((offset == fn.col("snapshot.offset_before")) & (origin == _SNAPSHOT))
        )
    )
    return (
        row.join(fn.broadcast(transaction.alias("transaction")), is_inside, "left")
        .join(fn.broadcast(snapshot.alias("snapshot")), is_next_snapshot, "left")
        .where(fn.col("transaction.begin_offset").isNull() | fn.col("transaction.is_kept"))
        .select(
            "row.*",
            fn.coalesce("transaction.commit_offset", "row.offset").alias("at_offset"),
            fn.coalesce("transaction.commit_ts", "row.ts").alias("at_ts"),
            fn.when(
                fn.col("snapshot.offset").isNotNull(),
                cut_at(fn.col("snapshot.offset"), fn.col("snapshot.ts"), fn.lit(False)),
            ).alias("cut"),
        )
    )


def cut_at(offset: Column, ts: Column, is_known: Column) -> Column:
    """An end that no record about the thing itself speaks of."""
    return fn.struct(offset.alias("offset"), ts.alias("ts"), is_known.alias("is_known"))


def _transactions(records: DataFrame) -> DataFrame:
    """Where each began, where it ended, and whether what is in it counts."""
    markers = records.where(fn.col("type").isin(_BEGIN, _END, _ABORT) & (fn.col("origin") == _LOG))
    closing = fn.lead(fn.struct("type", "offset", "ts")).over(
        Window.partitionBy("cluster_id").orderBy("offset")
    )
    return (
        markers.select("cluster_id", "type", "offset", closing.alias("closing"))
        .where(fn.col("type") == _BEGIN)
        .select(
            "cluster_id",
            fn.col("offset").alias("begin_offset"),
            fn.col("closing.offset").alias("commit_offset"),
            fn.col("closing.ts").alias("commit_ts"),
            fn.coalesce(fn.col("closing.type") == _END, fn.lit(False)).alias("is_kept"),
        )
    )


def _snapshots(records: DataFrame) -> DataFrame:
    """The offset that each stands for, and that of the one before."""
    return (
        records.where(fn.col("origin") == _SNAPSHOT)
        .groupBy("cluster_id", "offset")
        .agg(fn.max("ts").alias("ts"))
        .select(
            "*",
            fn.lag("offset").over(Window.partitionBy("cluster_id").orderBy("offset")).alias("offset_before"),
        )
    )
