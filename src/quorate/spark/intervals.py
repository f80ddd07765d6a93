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

__all__ = [
    "CHANGE",
    "PLACED",
    "SPAN",
    "THING",
    "declared",
    "following",
    "identified",
    "in_order",
    "intervals",
    "last_known",
    "milliseconds",
    "things",
]

# The columns that every change has beside its keys and its state, those by which `identified` lets Spark find
# its place quickly, with the rest that is still needed then, and those that every interval has.
CHANGE: Final = ("at_offset", "at_ts", "offset", "origin", "position", "is_gone", "cut")
THING: Final = ("thing_high", "thing_low")
PLACED: Final = (*THING, "moment", "at_ts", "offset", "position", "is_gone", "cut")
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
_SNAPSHOT: Final = "snapshot"


def things(keys: Sequence[str]) -> list[Column]:
    """The columns `THING`, a number of 128 bits for each thing, so that no two have the same. To sort and to
    tell apart is most of the work, and text, which begins alike in all rows of a cluster, is slow at both."""
    interleaved = [one for at, key in enumerate(keys) for one in (fn.lit(at), fn.col(key))]
    return [fn.xxhash64(*keys).alias(THING[0]), fn.xxhash64(*interleaved).alias(THING[1])]


def identified(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Adds `THING`, and `moment`: the offset at which a change counts and its origin, in one number. A
    snapshot stands for its offset as well, so it comes after what the log has there."""
    is_restated = fn.when(fn.col("origin") == _LOG, 0).otherwise(1)
    return changes.select("*", *things(keys), (fn.col("at_offset") * 2 + is_restated).alias("moment"))


def in_order() -> WindowSpec:
    """The changes of one thing, in the order in which they came to count. They must be `identified`."""
    return Window.partitionBy(*THING).orderBy("moment", "offset", "position")


def last_known(column: Column, order: WindowSpec) -> Column:
    """The newest value up to each row: records say only what changed."""
    return fn.last(column, ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, 0))


def following(order: WindowSpec) -> Column:
    """The column `following`: the moment of the next change of the same thing."""
    return fn.lead("moment").over(order).alias("following")


def intervals(changes: DataFrame, keys: Sequence[str], state: Sequence[str]) -> DataFrame:
    """One row per stretch in which a thing was there and its state the same: keys, state and `SPAN`. The
    changes must be `identified` and have `following`: who looks at the next row should do so in the same step
    in which he looks at those before.

    A null end means that it is still so. Nothing lasts from an offset to itself: of several changes that
    count at the same offset, as those of a metadata transaction do, the last one is seen. A snapshot that
    repeats what the log says changes nothing."""
    order = in_order()
    cut, moment, next_moment = fn.col("cut"), fn.col("moment"), fn.col("following")
    is_lost = next_moment.isNull() | (_offset(next_moment) > cut["offset"])
    settled = changes.where(next_moment.isNull() | (next_moment > moment)).select(
        *keys, *state, *PLACED, fn.when(is_lost, cut).alias("lost")
    )
    kept = (*keys, *state, *THING, "moment", "at_ts", "offset", "position", "is_gone")
    now = fn.struct(*state, "is_gone")
    starts = settled.select(
        *kept,
        fn.lag(now).over(order).alias("before"),
        fn.lag("lost").over(order).alias("lost_before"),
        fn.last("lost")
        .over(order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
        .alias("lost_last"),
    ).where(fn.col("before").isNull() | fn.col("lost_before").isNotNull() | ~fn.col("before").eqNullSafe(now))
    ended_by = fn.struct(
        _offset(moment).alias("offset"), fn.col("at_ts").alias("ts"), _is_of_log(moment).alias("is_known")
    )
    ends = starts.select(
        *kept, "lost_last", fn.lead(fn.coalesce("lost_before", ended_by)).over(order).alias("ended_by")
    )
    return (
        ends.where(~fn.col("is_gone"))
        .select(*keys, *state, "moment", "at_ts", fn.coalesce("ended_by", "lost_last").alias("end"))
        .where(fn.col("end").isNull() | (fn.col("end")["offset"] > _offset(moment)))
        .select(
            *keys,
            *state,
            fn.when(_is_of_log(moment), _LOG).otherwise(_SNAPSHOT).alias("origin"),
            _offset(moment).alias("start_offset"),
            fn.col("end")["offset"].alias("end_offset"),
            fn.col("at_ts").alias("start_ts"),
            fn.col("end")["ts"].alias("end_ts"),
            _is_of_log(moment).alias("is_start_known"),
            fn.col("end")["is_known"].alias("is_end_known"),
        )
    )


def _offset(moment: Column) -> Column:
    return fn.shiftright(moment, 1)


def _is_of_log(moment: Column) -> Column:
    return moment.bitwiseAND(1) == 0


def declared(table: DataFrame, schema: StructType) -> DataFrame:
    """The columns of a declared table, in their order, with their types and comments."""
    return table.select(
        *[fn.col(one.name).cast(one.dataType).alias(one.name, metadata=one.metadata) for one in schema.fields]
    )


def milliseconds(start: Column, end: Column) -> Column:
    """From one time to another. Clocks step back, so it may be negative; null if one of them is unknown."""
    return fn.unix_millis(end) - fn.unix_millis(start)
