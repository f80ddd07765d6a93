"""What happened when a broker left: why, how soon that was noticed, who took over, and how long it took.

The metadata log knows what was decided and when. How long a broker had been silent before it was fenced only
the controller knew, and says in an event; without events that is null.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from quorate.spark.answers_departures import CONTROLLED, departures, lost_leaderships, with_reach
from quorate.spark.answers_schemas import FAILOVERS, FLAPPING
from quorate.spark.history_brokers import FENCED
from quorate.spark.history_partitions import NO_LEADER
from quorate.spark.intervals import declared, milliseconds

__all__ = ["failovers", "flapping"]

_ONE: Final = ("cluster_id", "broker_id", "offset")
_NEAR_MS: Final = 30_000  # an event further from the record than that speaks of another fencing


def failovers(
    records: DataFrame, broker_states: DataFrame, partition_leaders: DataFrame, events: DataFrame
) -> DataFrame:
    """One row for each time that a broker ceased to serve, whether it led anything or not."""
    left = with_reach(departures(broker_states), records, "offset", "reach")
    lost = fn.col("lost")
    is_leaderless = lost["next_leader"] == NO_LEADER
    no_leader_ms = fn.when(is_leaderless, milliseconds(lost["ts"], lost["led_ts"]))
    counted = (
        lost_leaderships(left, partition_leaders)
        .groupBy(*_ONE)
        .agg(
            _count(~is_leaderless).alias("moved"),
            _count(is_leaderless).alias("leaderless"),
            fn.max(fn.when(~is_leaderless, lost["ts"])).alias("moved_ts"),
            fn.max(lost["led_ts"]).alias("led_ts"),
            fn.bool_and(lost["is_led"]).alias("are_led"),
            fn.max(no_leader_ms).alias("leaderless_ms"),
        )
    )
    found = left.join(counted, list(_ONE), "left").join(_noticed(left, events), list(_ONE), "left")
    are_led = fn.coalesce("are_led", fn.lit(False))
    return declared(
        found.select(
            "*",
            fn.coalesce("moved", fn.lit(0)).alias("partitions_moved"),
            fn.coalesce("leaderless", fn.lit(0)).alias("partitions_leaderless"),
            milliseconds(fn.col("ts"), fn.col("moved_ts")).alias("election_ms"),
            fn.when(are_led, milliseconds(fn.col("ts"), fn.col("led_ts"))).alias("recovery_ms"),
            fn.when(are_led, fn.col("leaderless_ms")).alias("leaderless_ms_max"),
            fn.col("noticed.check").alias("check"),
            fn.col("noticed.silent_ms").alias("detection_ms"),
            fn.timestamp_millis(fn.unix_millis("ts") - fn.col("noticed.silent_ms")).alias(
                "last_heartbeat_ts"
            ),
            fn.col("returned.offset").alias("returned_offset"),
            fn.col("returned.ts").alias("returned_ts"),
            fn.col("returned.epoch").alias("returned_epoch"),
            milliseconds(fn.col("ts"), fn.col("returned.ts")).alias("outage_ms"),
        ),
        FAILOVERS,
    )


def flapping(broker_states: DataFrame, min_fences: int = 3, near_minutes: int = 60) -> DataFrame:
    """How often each broker was fenced, and at what intervals. It flaps if that happened at least
    `min_fences` times, the median interval being at most `near_minutes`. Brokers that never left are not
    there."""
    left = departures(broker_states)
    is_fencing = fn.col("cause") == FENCED
    order = Window.partitionBy("cluster_id", "broker_id").orderBy("offset")
    fenced_ts = fn.when(is_fencing, fn.col("ts"))
    before = fn.last(fenced_ts, ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, -1))
    spaced = left.select("*", fn.when(is_fencing, milliseconds(before, fn.col("ts"))).alias("interval_ms"))
    counted = spaced.groupBy("cluster_id", "broker_id").agg(
        _count(is_fencing).alias("fence_count"),
        _count(fn.col("cause") == CONTROLLED).alias("shutdown_count"),
        fn.min(fenced_ts).alias("first_ts"),
        fn.max(fenced_ts).alias("last_ts"),
        fn.min("interval_ms").alias("interval_ms_min"),
        fn.median("interval_ms").cast("bigint").alias("interval_ms_median"),
        fn.sum(fn.when(is_fencing, milliseconds(fn.col("ts"), fn.col("returned.ts")))).alias("fenced_ms"),
    )
    is_near = fn.coalesce(fn.col("interval_ms_median") <= near_minutes * 60_000, fn.lit(False))
    is_flapping = (fn.col("fence_count") >= min_fences) & is_near
    return declared(counted.select("*", is_flapping.alias("is_flapping")), FLAPPING)


def _noticed(left: DataFrame, events: DataFrame) -> DataFrame:
    """What the controller said about each fencing: the event nearest in time, of the same incarnation."""
    said = events.where(fn.col("kind") == "BrokerFenced").select(
        "cluster_id",
        "broker_id",
        _field("epoch").try_cast("bigint").alias("broker_epoch"),
        fn.col("ts").alias("event_ts"),
        _field("check").alias("check"),
        _field("ms_since_heartbeat").try_cast("bigint").alias("silent_ms"),
    )
    fenced = left.where(fn.col("cause") == FENCED).select(*_ONE, "broker_epoch", "ts")
    distance_ms = fn.abs(milliseconds(fn.col("ts"), fn.col("event_ts")))
    return (
        fenced.join(said, ["cluster_id", "broker_id", "broker_epoch"])
        .where(distance_ms <= _NEAR_MS)
        .groupBy(*_ONE)
        .agg(fn.min_by(fn.struct("check", "silent_ms"), distance_ms).alias("noticed"))
    )


def _count(condition: Column) -> Column:
    return fn.sum(fn.when(condition, 1).otherwise(0))


def _field(name: str) -> Column:
    return fn.get_json_object("fields", f"$.{name}")
