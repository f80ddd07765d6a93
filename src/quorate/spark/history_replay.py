"""The records that count, at the moment at which they came to count.

The metadata log holds more than what happened. What stands inside a metadata transaction counts from its
end on, and not at all if it is aborted or still open. A snapshot names everything that there is: what the
rows before it spoke of, and the snapshot does not, is gone, nobody knows since when.

Both are rare, so they are looked up in a tiny table beside the log instead of by sorting all of it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

__all__ = ["cut_at", "replayed"]

_BEGIN: Final = "BeginTransactionRecord"
_END: Final = "EndTransactionRecord"
_ABORT: Final = "AbortTransactionRecord"
_LOG: Final = "log"
_SNAPSHOT: Final = "snapshot"


def replayed(records: DataFrame) -> DataFrame:
    """The rows of `records` that count, with `at_offset`, `at_ts` and `cut`: see `intervals`."""
    row, bounds = records.alias("row"), _bounds(records).alias("bounds")
    origin, offset = fn.col("row.origin"), fn.col("row.offset")

    def is_around(transaction: Column) -> Column:
        commit_offset = transaction["commit_offset"]
        is_before_its_end = commit_offset.isNull() | (offset < commit_offset)
        return (origin == _LOG) & (offset > transaction["begin_offset"]) & is_before_its_end

    def is_later(snapshot: Column) -> Column:
        return (snapshot["offset"] > offset) | ((snapshot["offset"] == offset) & (origin == _LOG))

    found = row.join(fn.broadcast(bounds), fn.col("row.cluster_id") == fn.col("bounds.cluster_id"), "left")
    placed = found.select(
        "row.*",
        fn.get(fn.filter("bounds.transactions", is_around), fn.lit(0)).alias("transaction"),
        fn.get(fn.filter("bounds.snapshots", is_later), fn.lit(0)).alias("cut"),
    )
    return placed.where(fn.col("transaction").isNull() | fn.col("transaction.is_kept")).select(
        "*",
        fn.coalesce("transaction.commit_offset", "offset").alias("at_offset"),
        fn.coalesce("transaction.commit_ts", "ts").alias("at_ts"),
    )


def cut_at(offset: Column, ts: Column, is_known: Column) -> Column:
    """An end that no record about the thing itself speaks of."""
    return fn.struct(offset.alias("offset"), ts.alias("ts"), is_known.alias("is_known"))


def _bounds(records: DataFrame) -> DataFrame:
    """A row for each cluster that has any: its transactions (where each began, where it ended, and whether
    what is in it counts), and its snapshots, as cuts; both in the order of their offsets."""
    kind = fn.col("type")
    is_snapshot = fn.col("origin") == _SNAPSHOT
    is_marker = ~is_snapshot & kind.isin(_BEGIN, _END, _ABORT)
    marker = fn.when(is_marker, fn.struct("offset", "ts", "type"))
    snapshot = fn.when(is_snapshot, cut_at(fn.col("offset"), fn.col("ts"), fn.lit(False)))
    found = (
        records.where(is_snapshot | is_marker)
        .groupBy("cluster_id")
        .agg(
            fn.sort_array(fn.collect_list(marker)).alias("markers"),
            fn.sort_array(fn.collect_set(snapshot)).alias("snapshots"),
        )
    )

    def transaction(begin: Column, number: Column) -> Column:
        closing = fn.get("markers", number + 1)
        return fn.when(
            begin["type"] == _BEGIN,
            fn.struct(
                begin["offset"].alias("begin_offset"),
                closing["offset"].alias("commit_offset"),
                closing["ts"].alias("commit_ts"),
                fn.coalesce(closing["type"] == _END, fn.lit(False)).alias("is_kept"),
            ),
        )

    transactions = fn.array_compact(fn.transform("markers", transaction))
    return found.select("cluster_id", transactions.alias("transactions"), "snapshots")
