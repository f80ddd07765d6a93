"""Brokers that left: the moments at which one ceased to serve, and the leaderships that it lost by that.

A controller writes what follows for the partitions of a broker that is fenced *before* the record that fences
it, so that nobody who reads the log sees a fenced leader that could have been avoided. A departure therefore
reaches back over the changes of partitions that stand directly before its record.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from quorate.spark.history_brokers import FENCED, SHUTTING_DOWN, UNFENCED
from quorate.spark.history_partitions import NO_LEADER
from quorate.spark.intervals import THING, milliseconds, things

__all__ = ["ANEW", "CONTROLLED", "TOGETHER_MS", "departures", "lost_leaderships", "with_reach"]

CONTROLLED: Final = "controlled shutdown"
ANEW: Final = "registered anew"
_UNREGISTERED: Final = "unregistered"
_UNKNOWN: Final = "unknown"
_BROKER: Final = ("cluster_id", "broker_id")
_PARTITION: Final = ("cluster_id", "topic_id", "partition")
TOGETHER_MS: Final = 1000  # what is older belongs to another decision, though it stands directly before


def departures(broker_states: DataFrame) -> DataFrame:
    """One row for each time that a broker ceased to serve: `broker_epoch`, `cause`, `offset` and `ts` of
    that; `down_offset` and `down_ts`, when it was gone for good; and the struct `returned` (offset, ts,
    epoch), null if it did not come back."""
    order = Window.partitionBy(*_BROKER).orderBy("start_offset")
    newest_first = Window.partitionBy(*_BROKER).orderBy(fn.desc("start_offset"))
    is_serving = fn.col("state") == UNFENCED
    serving = fn.when(
        is_serving,
        fn.struct(
            fn.col("start_offset").alias("offset"),
            fn.col("start_ts").alias("ts"),
            fn.col("broker_epoch").alias("epoch"),
        ),
    )
    returned = fn.last(serving, ignorenulls=True).over(
        newest_first.rowsBetween(Window.unboundedPreceding, -1)
    )
    following = fn.lead(fn.struct("start_offset", "end_offset", "end_ts", "broker_epoch", "state")).over(
        order
    )
    left = broker_states.select("*", following.alias("following"), returned.alias("returned")).where(
        is_serving & fn.col("end_offset").isNotNull()
    )
    after = fn.col("following")
    is_next = fn.coalesce(after["start_offset"] == fn.col("end_offset"), fn.lit(False))
    is_same = is_next & (after["broker_epoch"] == fn.col("broker_epoch"))
    is_leaving = is_same & (after["state"] == SHUTTING_DOWN)
    cause = (
        fn.when(~fn.col("is_end_known"), _UNKNOWN)
        .when(is_leaving, CONTROLLED)
        .when(is_same, FENCED)
        .when(is_next, ANEW)
        .otherwise(_UNREGISTERED)
    )
    return left.select(
        *_BROKER,
        "broker_epoch",
        cause.alias("cause"),
        fn.col("end_offset").alias("offset"),
        fn.col("end_ts").alias("ts"),
        fn.when(is_leaving, after["end_offset"]).otherwise(fn.col("end_offset")).alias("down_offset"),
        fn.when(is_leaving, after["end_ts"]).otherwise(fn.col("end_ts")).alias("down_ts"),
        "returned",
    )


def with_reach(moments: DataFrame, records: DataFrame, of: str, name: str) -> DataFrame:
    """Adds where a moment reaches back to: the last record before it that is not a change of a partition."""
    others = records.where((fn.col("origin") == "log") & (fn.col("type") != "PartitionChangeRecord"))
    before = fn.lag("offset").over(Window.partitionBy("cluster_id").orderBy("offset"))
    reaches = others.select("cluster_id", fn.col("offset").alias("at"), before.alias("before")).alias("reach")
    is_it = (fn.col("moment.cluster_id") == fn.col("reach.cluster_id")) & (
        fn.col(f"moment.{of}") == fn.col("reach.at")
    )
    return (
        moments.alias("moment")
        .join(reaches, is_it, "left")
        .select("moment.*", fn.coalesce("reach.before", fn.col(f"moment.{of}") - 1).alias(name))
    )


def lost_leaderships(left: DataFrame, partition_leaders: DataFrame) -> DataFrame:
    """One row for each partition that a departed broker led: the departure's columns (with `reach`), and the
    struct `lost`: offset and ts of the loss, the next leader (-1 for none), and when there was one again.

    What a broker loses between leaving and coming back is due to its leaving.
    """
    of_partition = Window.partitionBy(*THING).orderBy("start_offset")
    following = fn.lead(fn.struct("leader", "end_offset", "end_ts")).over(of_partition)
    ends = (
        partition_leaders.where(fn.col("leader").isNotNull())
        .select("*", *things(_PARTITION))
        .select("cluster_id", "leader", "end_offset", "end_ts", following.alias("following"))
        .where(
            fn.col("end_offset").isNotNull()
            & (fn.col("leader") != NO_LEADER)
            & (fn.col("following.leader") != fn.col("leader"))
        )
    )
    is_moved = fn.col("following.leader") != NO_LEADER
    lost = fn.struct(
        fn.col("end_offset").alias("offset"),
        fn.col("end_ts").alias("ts"),
        fn.col("following.leader").alias("next_leader"),
        fn.when(is_moved, fn.col("end_ts")).otherwise(fn.col("following.end_ts")).alias("led_ts"),
        (is_moved | fn.col("following.end_offset").isNotNull()).alias("is_led"),
    )
    losses = ends.select(
        "cluster_id",
        fn.col("leader").alias("broker_id"),
        fn.col("end_offset").alias("at"),
        lost.alias("lost"),
    )
    return _attached(losses, left)


def _attached(losses: DataFrame, left: DataFrame) -> DataFrame:
    """Each loss with the departure that it belongs to: the last one that reaches back to before it."""
    columns = ("broker_epoch", "cause", "offset", "ts", "down_offset", "down_ts", "returned", "reach")
    departure = fn.struct(*columns)
    of_left = left.select(*_BROKER, fn.col("reach").alias("at"), departure.alias("departure"))
    with_nothing = _padded(of_left, losses).select("*", *things(_BROKER))
    order = Window.partitionBy(*THING).orderBy("at", "is_loss")
    last = fn.last("departure", ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, 0))
    returned, offset = fn.col("departure.returned"), fn.col("departure.offset")
    early_ms = milliseconds(fn.col("lost.ts"), fn.col("departure.ts"))
    return (
        with_nothing.select(*_BROKER, "lost", last.alias("departure"))
        .where(
            fn.col("lost").isNotNull()
            & fn.col("departure").isNotNull()
            & (returned.isNull() | (fn.col("lost.offset") < returned["offset"]))
            & ((fn.col("lost.offset") > offset) | (early_ms <= TOGETHER_MS))
        )
        .select(*_BROKER, *[f"departure.{one}" for one in columns], "lost")
    )


def _padded(of_left: DataFrame, losses: DataFrame) -> DataFrame:
    """Both in one, each with nothing where the other has something."""
    left = of_left.select(*_BROKER, "at", "departure", fn.lit(False).alias("is_loss"))
    lost = losses.select(*_BROKER, "at", "lost", fn.lit(True).alias("is_loss"))
    return left.unionByName(lost, allowMissingColumns=True)
