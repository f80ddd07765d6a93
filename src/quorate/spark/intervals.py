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

# The columns that every change has beside its keys and its state; what `identified` makes of them and of the
# keys, so that Spark finds the place of a change quickly and carries little; those that every interval has;
# and what of a change is needed once its moment is settled.
CHANGE: Final = ("at_offset", "at_ts", "offset", "origin", "position", "is_gone", "cut")
THING: Final = ("thing_high", "thing_low")
PLACED: Final = ("about", *THING, "moment", "place", "at_ts", "is_gone", "cut")
SPAN: Final = (
    "origin",
    "start_offset",
    "end_offset",
    "start_ts",
    "end_ts",
    "is_start_known",
    "is_end_known",
)
_KEPT: Final = ("about", *THING, "moment", "at_ts", "now")
_LOG: Final = "log"
_SNAPSHOT: Final = "snapshot"


def things(keys: Sequence[str]) -> list[Column]:
    """The columns `THING`, a number of 128 bits for each thing, so that no two have the same. To sort and to
    tell apart is most of the work, and text, which begins alike in all rows of a cluster, is slow at both."""
    interleaved = [one for at, key in enumerate(keys) for one in (fn.lit(at), fn.col(key))]
    return [fn.xxhash64(*keys).alias(THING[0]), fn.xxhash64(*interleaved).alias(THING[1])]


def identified(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Adds `THING`, and these:

    - `about`: the keys in one value, which is copied as a whole. Every step copies every row, column by
      column, and that is most of what it does.
    - `moment`: the offset at which a change counts and its origin, in one number. A snapshot stands for its
      offset as well, so it comes after what the log has there.
    - `place`: its place among the changes of one moment, which have one origin: the rows of a snapshot
      have one offset, and those of the log no position."""
    is_of_log = fn.col("origin") == _LOG
    return changes.select(
        "*",
        fn.struct(*keys).alias("about"),
        *things(keys),
        (fn.col("at_offset") * 2 + fn.when(is_of_log, 0).otherwise(1)).alias("moment"),
        fn.when(is_of_log, fn.col("offset")).otherwise(fn.col("position")).alias("place"),
    )


def in_order() -> WindowSpec:
    """The changes of one thing, in the order in which they came to count. They must be `identified`."""
    return Window.partitionBy(*THING).orderBy("moment", "place")


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
    # Each moment is there once then, so it is all of the order: as before, and nothing is sorted again.
    order = Window.partitionBy(*THING).orderBy("moment")
    cut, moment, next_moment = fn.col("cut"), fn.col("moment"), fn.col("following")
    is_lost = next_moment.isNull() | (_offset(next_moment) > cut["offset"])
    settled = changes.where(next_moment.isNull() | (next_moment > moment)).select(
        *_KEPT[:-1], fn.struct(*state, "is_gone").alias("now"), fn.when(is_lost, cut).alias("lost")
    )
    starts = settled.select(
        *_KEPT,
        fn.lag("now").over(order).alias("before"),
        fn.lag("lost").over(order).alias("lost_before"),
        fn.last("lost")
        .over(order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
        .alias("lost_last"),
    ).where("before is null or lost_before is not null or not before <=> now")
    ended_by = fn.struct(
        _offset(moment).alias("offset"), fn.col("at_ts").alias("ts"), _is_of_log(moment).alias("is_known")
    )
    ends = starts.select(
        *_KEPT, "lost_last", fn.lead(fn.coalesce("lost_before", ended_by)).over(order).alias("ended_by")
    )
    now, end = fn.col("now"), fn.coalesce("ended_by", "lost_last")
    return (
        ends.where(~now["is_gone"])
        .select(*_KEPT, end.alias("end"))
        .where(fn.col("end").isNull() | (fn.col("end")["offset"] > _offset(moment)))
        .select(
            *[fn.col("about")[key].alias(key) for key in keys],
            *[now[name].alias(name) for name in state],
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
