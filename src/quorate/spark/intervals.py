"""What was true from when to when: changes into intervals `[start, end)`, in offsets and in time.

`intervals` is the definition that all of history follows. It takes one row per change of a thing, and gives
one row per stretch in which the thing did not change. The order is that of offsets, never that of time: the
clocks of controllers step back, and what lasted from then to now may seem to have lasted less than nothing.

A change is a row with the columns that say which thing it is about (the keys) and how the thing is from
then on (the state), and with these:

| column | meaning |
|---|---|
| `at_offset`, `at_ts` | when it came to count |
| `offset`, `origin`, `position` | where its record stands: the order of changes that count at one offset |
| `is_gone` | the thing ends here, whatever its state |
| `cut` | where the thing ends unless a change says that it is still there; null for nowhere |

A *cut* is how a thing ends of which no record says so: the topic was deleted that it belongs to, or there
is a snapshot, which names everything that there is, and this is not in it. It has an offset and a time, and
says whether that is known to be the true end.

Only `select` and its like are used, so that the functions run in Declarative Pipelines too (see
docs/history.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, WindowSpec
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

__all__ = ["CHANGE", "SPAN", "declared", "identified", "in_order", "intervals", "last_known", "milliseconds"]

# The columns that every change has beside its keys and its state, and those that every interval has.
CHANGE: Final = ("at_offset", "at_ts", "offset", "origin", "position", "is_gone", "cut")
SPAN: Final = (
    "origin",
    "start_offset",
    "end_offset",
    "start_ts",
    "end_ts",
    "is_start_known",
    "is_end_known",
)
_LOG: Final = "log"


def in_order(keys: Sequence[str]) -> WindowSpec:
    """The changes of one thing, in the order in which they came to count. A snapshot stands for its offset as
    well, so it comes after what the log has there. The rows must be `identified`."""
    return Window.partitionBy("thing", *keys).orderBy("at_offset", "origin", "offset", "position")


def identified(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Adds `thing`, a number for each thing. Spark sorts by it first, and compares text, which begins alike
    in all rows of a cluster, only where the numbers are the same. Sorting is most of the work."""
    return rows.select("*", fn.xxhash64(*keys).alias("thing"))


def last_known(column: Column, order: WindowSpec) -> Column:
    """The newest value up to each row: records say only what changed."""
    return fn.last(column, ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, 0))


def intervals(changes: DataFrame, keys: Sequence[str], state: Sequence[str]) -> DataFrame:
    """One row per stretch in which a thing was there and its state the same: keys, state and `SPAN`. The
    changes must be `identified`.

    A null end means that it is still so. Nothing lasts from an offset to itself: of several changes that
    count at the same offset, as those of a metadata transaction do, the last one is seen. A snapshot that
    repeats what the log says changes nothing."""
    order = in_order(keys)
    cut, following = fn.col("cut"), fn.col("following")
    is_later = (following["at_offset"] > fn.col("at_offset")) | (following["origin"] != fn.col("origin"))
    is_lost = following.isNull() | (following["at_offset"] > cut["offset"])
    settled = (
        changes.select(
            "thing",
            *keys,
            *state,
            *CHANGE,
            fn.lead(fn.struct("at_offset", "origin")).over(order).alias("following"),
        )
        .where(following.isNull() | is_later)
        .select("*", fn.when(is_lost, cut).alias("lost"))
    )
    now = fn.struct(*state, "is_gone")
    starts = settled.select(
        "*",
        now.alias("now"),
        fn.lag(now).over(order).alias("before"),
        fn.lag("lost").over(order).alias("lost_before"),
        fn.last("lost")
        .over(order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
        .alias("lost_last"),
    ).where(
        fn.col("before").isNull()
        | fn.col("lost_before").isNotNull()
        | ~fn.col("before").eqNullSafe(fn.col("now"))
    )
    ended_by = fn.struct(
        fn.col("at_offset").alias("offset"),
        fn.col("at_ts").alias("ts"),
        (fn.col("origin") == _LOG).alias("is_known"),
    )
    ends = starts.select(
        "*",
        fn.lead(fn.coalesce("lost_before", ended_by)).over(order).alias("ended_by"),
    ).select("*", fn.coalesce("ended_by", "lost_last").alias("end"))
    return (
        ends.where(~fn.col("is_gone"))
        .select(
            *keys,
            *state,
            "origin",
            fn.col("at_offset").alias("start_offset"),
            fn.col("end")["offset"].alias("end_offset"),
            fn.col("at_ts").alias("start_ts"),
            fn.col("end")["ts"].alias("end_ts"),
            (fn.col("origin") == _LOG).alias("is_start_known"),
            fn.col("end")["is_known"].alias("is_end_known"),
        )
        .where("end_offset is null or end_offset > start_offset")
    )


def declared(table: DataFrame, schema: StructType) -> DataFrame:
    """The columns of a declared table, in their order, with their types and comments."""
    return table.select(
        *[fn.col(one.name).cast(one.dataType).alias(one.name, metadata=one.metadata) for one in schema.fields]
    )


def milliseconds(start: Column, end: Column) -> Column:
    """From one time to another. Clocks step back, so it may be negative; null if one of them is unknown."""
    return fn.unix_millis(end) - fn.unix_millis(start)
