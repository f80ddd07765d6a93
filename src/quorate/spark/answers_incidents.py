"""One timeline of all that went wrong, in words."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from quorate.spark.answers_schemas import INCIDENTS
from quorate.spark.history_partitions import NO_LEADER
from quorate.spark.intervals import declared, milliseconds

__all__ = ["incidents"]

# Events of things that are wrong by themselves, and that no other row of the timeline speaks of.
_FAULTS: Final = (
    "DirectoriesFailed",
    "RegistrationRefused",
    "HeartbeatRefused",
    "BrokerGaveUp",
    "BrokerRequestFailed",
    "DecisionFailed",
    "GroupAppendRefused",
    "QueueFilled",
    "MemberFenced",
)
_COLUMNS: Final = {
    "cluster_id": "string",
    "ts": "timestamp",
    "end_ts": "timestamp",
    "kind": "string",
    "broker_id": "int",
    "topic": "string",
    "group_id": "string",
    "partitions": "int",
    "text": "string",
}


def incidents(
    failovers: DataFrame,
    controller_terms: DataFrame,
    partition_leaders: DataFrame,
    rebalances: DataFrame,
    events: DataFrame,
) -> DataFrame:
    """Brokers that left, changes of the controller, topics that had partitions without a leader, storms of
    rebalances, and what nodes reported as faults. Order it by `ts`. Times in the text are those of the
    session's time zone."""
    rows = [
        _departures(failovers),
        _controllers(controller_terms),
        _unavailable(partition_leaders),
        _storms(rebalances),
        _faults(events),
    ]
    return declared(reduce(DataFrame.union, rows), INCIDENTS)


def _departures(failovers: DataFrame) -> DataFrame:
    """As in "broker 2 was fenced at 12:03:07 after 9.0 s without a heartbeat; 412 partitions moved; 3 were
    leaderless for 1.2 s"."""
    cause = fn.col("cause")
    what = (
        fn.when(cause == "fenced", "was fenced")
        .when(cause == "controlled shutdown", "began a controlled shutdown")
        .when(cause == "registered anew", "was replaced by a new incarnation")
        .when(cause == "unregistered", "was unregistered")
        .otherwise("had left by")
    )
    missed = fn.col("check") == "missed heartbeats"
    silence = fn.when(
        fn.col("detection_ms").isNotNull() & (cause == "fenced") & fn.coalesce(missed, fn.lit(True)),
        fn.concat(fn.lit(" after "), _seconds(fn.col("detection_ms")), fn.lit(" without a heartbeat")),
    )
    why = fn.when(~missed & (fn.col("check") != "shut down"), fn.concat(fn.lit(" ("), "check", fn.lit(")")))
    first = fn.concat(
        fn.lit("broker "),
        "broker_id",
        fn.lit(" "),
        what,
        fn.when(cause == "unknown", " ").otherwise(" at "),
        _clock(fn.col("ts")),
        fn.coalesce(silence, why, fn.lit("")),
    )
    moved = fn.when(
        fn.col("partitions_moved") > 0,
        fn.concat(_counted(fn.col("partitions_moved"), "partition"), fn.lit(" moved")),
    )
    leaderless = fn.col("partitions_leaderless")
    lasted = fn.when(
        fn.col("leaderless_ms_max").isNotNull(),
        fn.concat(fn.lit(" leaderless for "), _seconds(fn.col("leaderless_ms_max"))),
    ).otherwise(" left without a leader")
    stuck = fn.when(
        leaderless > 0,
        fn.concat(leaderless.cast("string"), fn.when(leaderless == 1, " was").otherwise(" were"), lasted),
    )
    return failovers.select(
        *_row(
            ts=fn.col("ts"),
            end_ts=fn.col("returned_ts"),
            kind=fn.lit("broker left"),
            broker_id=fn.col("broker_id"),
            partitions=fn.col("partitions_moved") + leaderless,
            text=fn.concat_ws("; ", first, moved, stuck),
        )
    )


def _controllers(controller_terms: DataFrame) -> DataFrame:
    order = Window.partitionBy("cluster_id").orderBy("start_offset")
    before = fn.lag("controller_id").over(order)
    terms = controller_terms.select(
        "*", before.alias("before"), fn.lag("epoch").over(order).alias("epoch_before")
    )
    name = fn.when(fn.col("controller_id").isNull(), "somebody").otherwise(
        fn.concat(fn.lit("node "), "controller_id")
    )
    again = fn.col("controller_id").eqNullSafe(fn.col("before"))
    verb = fn.when(again, " was elected again as the controller at ").otherwise(" became the controller at ")
    text = fn.concat(name, verb, _clock(fn.col("start_ts")), fn.lit(", epoch "), "epoch")
    return terms.where(fn.col("epoch_before").isNotNull()).select(
        *_row(ts=fn.col("start_ts"), kind=fn.lit("controller changed"), text=text)
    )


def _unavailable(partition_leaders: DataFrame) -> DataFrame:
    """Partitions of a topic that lost their leader by the same event are one row."""
    lost = partition_leaders.where(fn.col("leader") == NO_LEADER)
    together = lost.groupBy("cluster_id", "topic_id", "topic", fn.col("start_ts").alias("ts")).agg(
        fn.count(fn.lit(1)).alias("partitions"),
        fn.max("end_ts").alias("last_ts"),
        fn.bool_and(fn.col("end_offset").isNotNull()).alias("is_over"),
    )
    end_ts = fn.when(fn.col("is_over"), fn.col("last_ts"))
    partitions = fn.col("partitions")
    lasted = fn.when(
        end_ts.isNotNull(), fn.concat(fn.lit(" for "), _seconds(milliseconds(fn.col("ts"), end_ts)))
    ).otherwise(", and not all have one yet")
    text = fn.concat(
        _counted(partitions, "partition"),
        fn.lit(" of "),
        fn.coalesce("topic", "topic_id"),
        fn.lit(" had no leader from "),
        _clock(fn.col("ts")),
        lasted,
    )
    return together.select(
        *_row(
            ts=fn.col("ts"),
            end_ts=end_ts,
            kind=fn.lit("unavailable"),
            topic=fn.col("topic"),
            partitions=partitions,
            text=text,
        )
    )


def _storms(rebalances: DataFrame) -> DataFrame:
    """One row for each storm: where its first rebalance that counts as one follows one that does not."""
    order = Window.partitionBy("cluster_id", "group_id").orderBy("end_ts", "generation")
    begins = fn.col("is_storm") & ~fn.coalesce(fn.lag("is_storm").over(order), fn.lit(False))
    so_far = order.rowsBetween(Window.unboundedPreceding, 0)
    marked = rebalances.select("*", begins.alias("begins"))
    numbered = marked.select(
        "*", fn.sum(fn.when(fn.col("begins"), 1).otherwise(0)).over(so_far).alias("storm")
    )
    storms = (
        numbered.where(fn.col("is_storm"))
        .groupBy("cluster_id", "group_id", "storm")
        .agg(
            fn.min("end_ts").alias("ts"),
            fn.max("end_ts").alias("last_ts"),
            (fn.count(fn.lit(1)) + fn.min("recent_count") - 1).alias("count"),
            fn.mode("trigger").alias("trigger"),
        )
    )
    text = fn.concat(
        fn.lit("group "),
        "group_id",
        fn.lit(" rebalanced "),
        "count",
        fn.lit(" times in quick succession until "),
        _clock(fn.col("last_ts")),
        fn.coalesce(fn.concat(fn.lit(", mostly because: "), "trigger"), fn.lit("")),
    )
    return storms.select(
        *_row(
            ts=fn.col("ts"),
            end_ts=fn.col("last_ts"),
            kind=fn.lit("rebalance storm"),
            group_id=fn.col("group_id"),
            text=text,
        )
    )


def _faults(events: DataFrame) -> DataFrame:
    text = fn.coalesce("text", "kind")
    return events.where(fn.col("kind").isin(*_FAULTS)).select(
        *_row(
            ts=fn.col("ts"),
            kind=fn.lit("fault"),
            broker_id=fn.col("broker_id"),
            group_id=fn.col("group_id"),
            text=text,
        )
    )


def _row(**said: Column) -> list[Column]:
    """All columns of the timeline, null where nothing is said."""
    return [
        (fn.col("cluster_id") if name == "cluster_id" else said.get(name, fn.lit(None)))
        .cast(kind)
        .alias(name)
        for name, kind in _COLUMNS.items()
    ]


def _clock(ts: Column) -> Column:
    return fn.coalesce(fn.date_format(ts, "HH:mm:ss"), fn.lit("an unknown time"))


def _seconds(milliseconds: Column) -> Column:
    return fn.format_string("%.1f s", milliseconds / 1000)


def _counted(number: Column, noun: str) -> Column:
    return fn.concat(number.cast("string"), fn.when(number == 1, f" {noun}").otherwise(f" {noun}s"))
