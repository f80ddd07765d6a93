"""Rolling restarts, found in the log and judged: a good one asks first, hands its partitions over, and waits
until all replicas are in sync again before the next broker goes."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from quorate.spark.answers_departures import (
    CONTROLLED,
    TOGETHER_MS,
    departures,
    lost_leaderships,
    with_reach,
)
from quorate.spark.answers_schemas import ROLLING_RESTARTS
from quorate.spark.intervals import declared, milliseconds

__all__ = ["rolling_restarts"]

_ONE: Final = ("cluster_id", "broker_id", "offset")


def rolling_restarts(
    records: DataFrame,
    broker_states: DataFrame,
    partition_leaders: DataFrame,
    partition_isr: DataFrame,
    pause_minutes: int = 10,
) -> DataFrame:
    """One row for each broker that was restarted in its turn. Restarts belong together if not more than
    `pause_minutes` lie between the return of one broker and the leaving of the next; those of one broker
    alone are not rolling. A restart is a broker that left and came back as another incarnation."""
    left = with_reach(departures(broker_states), records, "offset", "reach")
    all_left = with_reach(left, records, "down_offset", "down_reach")
    restarts = all_left.where(fn.col("returned.epoch") != fn.col("broker_epoch"))
    # What stands directly before the record of its end may still be of the shutdown, which is an older batch.
    is_late = (fn.col("lost.offset") > fn.col("down_reach")) & (fn.col("lost.ts") >= fn.col("down_ts"))
    handed_over = (
        lost_leaderships(left, partition_leaders)
        .join(restarts.select(*_ONE, "down_reach"), list(_ONE))
        .groupBy(*_ONE)
        .agg(_count(~is_late).alias("moved"), _count(is_late).alias("lost"))
    )
    rolls = _numbered(restarts, pause_minutes)
    whole = _under_replicated(rolls, partition_isr)
    joined = rolls.join(handed_over, list(_ONE), "left").join(whole, list(_ONE), "left")
    in_turn = Window.partitionBy("cluster_id", "restart").orderBy("offset")
    judged = joined.select(
        "*",
        fn.col("returned.epoch").alias("new_epoch"),
        fn.col("ts").alias("left_ts"),
        fn.col("returned.ts").alias("returned_ts"),
        milliseconds(fn.col("ts"), fn.col("returned.ts")).alias("downtime_ms"),
        (fn.col("cause") == CONTROLLED).alias("was_controlled"),
        fn.coalesce("moved", fn.lit(0)).alias("leaderships_moved"),
        fn.coalesce("lost", fn.lit(0)).alias("leaderships_lost"),
        (fn.coalesce("lost", fn.lit(0)) == 0).alias("did_leadership_move_first"),
        fn.lead("under_replicated").over(in_turn).alias("under_replicated_before_next"),
    ).select("*", (fn.col("under_replicated_before_next") == 0).alias("was_isr_whole_before_next"))
    is_good = (
        fn.col("was_controlled")
        & fn.col("did_leadership_move_first")
        & fn.coalesce("was_isr_whole_before_next", fn.lit(True))
    )
    return declared(judged.select("*", is_good.alias("is_good")), ROLLING_RESTARTS)


def _numbered(restarts: DataFrame, pause_minutes: int) -> DataFrame:
    """Restarts with the rolling restart that each belongs to, numbered, and its step in it."""
    in_cluster = Window.partitionBy("cluster_id").orderBy("offset")
    so_far = in_cluster.rowsBetween(Window.unboundedPreceding, 0)
    pause_ms = milliseconds(fn.lag("returned.ts").over(in_cluster), fn.col("ts"))
    begun = restarts.select("*", fn.coalesce(pause_ms > pause_minutes * 60_000, fn.lit(True)).alias("begins"))
    found = begun.select("*", fn.sum(fn.when(fn.col("begins"), 1).otherwise(0)).over(so_far).alias("run"))
    of_run = Window.partitionBy("cluster_id", "run")
    brokers = fn.size(fn.collect_set("broker_id").over(of_run))
    rolling = found.select("*", brokers.alias("brokers")).where(fn.col("brokers") > 1)
    return rolling.select(
        "*",
        fn.dense_rank().over(Window.partitionBy("cluster_id").orderBy("run")).alias("restart"),
        fn.row_number().over(of_run.orderBy("offset")).alias("step"),
    )


def _under_replicated(rolls: DataFrame, partition_isr: DataFrame) -> DataFrame:
    """How many partitions had replicas out of sync just before each broker left. What stands directly before
    the record of its leaving, and is as old, is a consequence of it."""
    under = partition_isr.where(fn.size("isr") < fn.size("replicas"))
    begun = under.select(
        "cluster_id",
        fn.col("start_offset").alias("at"),
        fn.col("start_ts").alias("ts"),
        fn.lit(1).alias("by"),
    )
    ended = under.where(fn.col("end_offset").isNotNull()).select(
        "cluster_id", "end_offset", "end_ts", fn.lit(-1)
    )
    asked = rolls.select(
        "cluster_id",
        fn.col("offset").alias("at"),
        "ts",
        fn.lit(0).alias("by"),
        fn.struct("broker_id", "offset", "ts", "reach", "cause").alias("leaving"),
    )
    points = begun.union(ended).unionByName(asked, allowMissingColumns=True)
    newest_first = Window.partitionBy("cluster_id").orderBy(fn.desc("at"))
    following = fn.last("leaving", ignorenulls=True).over(
        newest_first.rowsBetween(Window.unboundedPreceding, 0)
    )
    next_leaving = fn.col("next_leaving")
    is_consequence = fn.coalesce(
        fn.col("leaving").isNull()
        & (next_leaving["cause"] != CONTROLLED)
        & (fn.col("at") > next_leaving["reach"])
        & (milliseconds(fn.col("ts"), next_leaving["ts"]) <= TOGETHER_MS),
        fn.lit(False),
    )
    in_effect = points.select("*", following.alias("next_leaving")).select(
        "cluster_id",
        "leaving",
        "by",
        fn.when(is_consequence, next_leaving["offset"]).otherwise(fn.col("at")).alias("at"),
    )
    order = Window.partitionBy("cluster_id").orderBy("at", fn.col("leaving").isNull())
    so_far = fn.sum("by").over(order.rowsBetween(Window.unboundedPreceding, 0))
    return (
        in_effect.select("cluster_id", "leaving", so_far.alias("under_replicated"))
        .where(fn.col("leaving").isNotNull())
        .select("cluster_id", "leaving.broker_id", "leaving.offset", "under_replicated")
    )


def _count(condition: Column) -> Column:
    return fn.sum(fn.when(condition, 1).otherwise(0))
