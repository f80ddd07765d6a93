"""How long partitions had no leader, or too few replicas in sync; and how far leadership is from what it
should be.

What is still so is counted up to the last record of its cluster: nobody knows more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from quorate.spark.answers_schemas import AVAILABILITY, IMBALANCE
from quorate.spark.history_partitions import NO_LEADER
from quorate.spark.intervals import THING, declared, milliseconds, things

__all__ = ["availability", "imbalance", "log_ends"]

_MIN_ISR: Final = "min.insync.replicas"
_TOPIC, _BROKER = 2, 4
_RESOURCE: Final = ("cluster_id", "resource_type", "resource_name")
_PARTITION: Final = ("cluster_id", "topic_id", "partition")
_LEVEL: Final = ("level", "topic_id", "topic", "partition", "broker_id")


def availability(partition_states: DataFrame, configs: DataFrame, records: DataFrame) -> DataFrame:
    """How long nobody led a partition, and how long fewer replicas were in sync than `min.insync.replicas`,
    as the topic, its leader's broker or the cluster has it at that time; else 1, and never more than there
    are replicas. For each partition, and added up for each topic, broker and cluster."""
    before = fn.lag("leader").over(Window.partitionBy(*THING).orderBy("start_offset"))
    spans = (
        _until_the_end(partition_states, records)
        .select("*", *things(_PARTITION))
        .select("*", (~fn.col("leader").eqNullSafe(before)).alias("is_first_piece"))
    )
    pieces = _with_min_isr(spans, configs)
    lasted = milliseconds(fn.col("start_ts"), fn.col("end_ts"))
    is_leaderless = fn.col("leader") == NO_LEADER
    is_under = fn.size("isr") < fn.least(fn.col("min_isr"), fn.size("replicas"))
    by_partition = pieces.groupBy("cluster_id", "topic_id", "topic", "partition", "replicas").agg(
        fn.sum(lasted).alias("observed_ms"),
        fn.sum(fn.when(is_leaderless, lasted).otherwise(0)).alias("leaderless_ms"),
        fn.sum(fn.when(is_under, lasted).otherwise(0)).alias("under_min_isr_ms"),
        fn.sum(fn.when(is_leaderless & fn.col("is_first_piece"), 1).otherwise(0)).alias("leaderless_count"),
    )
    at_levels = by_partition.select(
        "cluster_id",
        fn.struct("topic_id", "partition").alias("which"),
        "observed_ms",
        "leaderless_ms",
        "under_min_isr_ms",
        "leaderless_count",
        fn.explode(_levels()).alias("of"),
    )
    summed = at_levels.groupBy("cluster_id", "of").agg(
        fn.count_distinct("which").alias("partitions"),
        *[
            fn.sum(name).alias(name)
            for name in ("observed_ms", "leaderless_ms", "under_min_isr_ms", "leaderless_count")
        ],
    )
    shared = summed.select(
        "*",
        *[f"of.{name}" for name in _LEVEL],
        _share("leaderless_ms").alias("leaderless_share"),
        _share("under_min_isr_ms").alias("under_min_isr_share"),
    )
    return declared(
        shared.select(
            "*",
            _nines("leaderless_share").alias("leaderless_nines"),
            _nines("under_min_isr_share").alias("under_min_isr_nines"),
        ),
        AVAILABILITY,
    )


def imbalance(partition_states: DataFrame, records: DataFrame) -> DataFrame:
    """How many partitions each broker leads at the end, and how many it should: those whose first replica it
    is. Brokers without replicas are not there."""
    lasted = milliseconds(fn.col("start_ts"), fn.col("end_ts"))
    spans = _until_the_end(partition_states, records).select(
        "cluster_id",
        "leader",
        "is_open",
        lasted.alias("lasted_ms"),
        fn.get("replicas", fn.lit(0)).alias("preferred"),
        fn.explode("replicas").alias("broker_id"),
    )
    is_preferred = fn.col("preferred") == fn.col("broker_id")
    is_led = fn.col("leader") == fn.col("broker_id")
    counted = spans.groupBy("cluster_id", "broker_id").agg(
        _count(fn.col("is_open")).alias("replica_count"),
        _count(fn.col("is_open") & is_led).alias("leader_count"),
        _count(fn.col("is_open") & is_preferred).alias("preferred_count"),
        _count(fn.col("is_open") & is_preferred & is_led).alias("preferred_led_count"),
        fn.sum(fn.when(is_preferred, fn.col("lasted_ms"))).alias("preferred_ms"),
        fn.sum(fn.when(is_preferred & ~is_led, fn.col("lasted_ms")).otherwise(0)).alias("not_led_ms"),
    )
    all_led = fn.sum("leader_count").over(Window.partitionBy("cluster_id"))
    not_led = fn.col("preferred_count") - fn.col("preferred_led_count")
    return declared(
        counted.select(
            "*",
            fn.try_divide(fn.col("leader_count"), all_led).alias("leader_share"),
            fn.try_divide(not_led, fn.col("preferred_count")).alias("imbalance_share"),
            fn.try_divide(fn.col("not_led_ms"), fn.col("preferred_ms")).alias("imbalance_time_share"),
        ),
        IMBALANCE,
    )


def log_ends(records: DataFrame) -> DataFrame:
    """Up to when each cluster is known: the time of its last record."""
    last = fn.max(fn.when(fn.col("ts").isNotNull(), fn.struct("offset", "ts")))
    return (
        records.groupBy("cluster_id")
        .agg(last.alias("last"))
        .select("cluster_id", fn.col("last.ts").alias("log_end_ts"))
    )


def _until_the_end(spans: DataFrame, records: DataFrame) -> DataFrame:
    """What is still so lasts until the end of the log."""
    ends = log_ends(records)
    return spans.join(fn.broadcast(ends), "cluster_id", "left").select(
        "cluster_id",
        "topic_id",
        "topic",
        "partition",
        "leader",
        "isr",
        "replicas",
        "start_offset",
        "end_offset",
        "start_ts",
        fn.when(fn.col("end_offset").isNull(), fn.col("log_end_ts"))
        .otherwise(fn.col("end_ts"))
        .alias("end_ts"),
        fn.col("end_offset").isNull().alias("is_open"),
    )


def _with_min_isr(spans: DataFrame, configs: DataFrame) -> DataFrame:
    """The same spans with what `min.insync.replicas` was, cut wherever it changed."""
    values = _always(configs.where(fn.col("name") == _MIN_ISR))
    of_topic = _cut(spans, values, _TOPIC, fn.col("span.topic"), ["of_topic"])
    of_broker = _cut(
        of_topic, values, _BROKER, fn.col("span.leader").cast("string"), ["of_topic", "of_broker"]
    )
    pieces = _cut(of_broker, values, _BROKER, fn.lit(""), ["of_topic", "of_broker", "of_cluster"])
    min_isr = fn.coalesce("of_topic", "of_broker", "of_cluster", fn.lit(1))
    return pieces.select("*", min_isr.alias("min_isr"))


def _cut(
    spans: DataFrame, values: DataFrame, resource_type: int, name: Column, levels: Sequence[str]
) -> DataFrame:
    """Spans cut to the stretches in which one resource had one value, the last of `levels` being its
    column. A resource that never had one has no row at all, and its spans stay whole."""
    start, end = fn.col("span.start_offset"), fn.col("span.end_offset")
    set_at, set_until = fn.col("value.start_offset"), fn.col("value.end_offset")
    meet = (
        (fn.col("span.cluster_id") == fn.col("value.cluster_id"))
        & (fn.col("value.resource_type") == resource_type)
        & (fn.col("value.resource_name") == name)
        & (set_until.isNull() | (set_until > start))
        & (end.isNull() | (end > set_at))
    )
    begins_later, ends_earlier = set_at > start, set_until.isNotNull() & (end.isNull() | (set_until < end))
    clipped = {
        "start_offset": fn.when(begins_later, set_at).otherwise(start),
        "end_offset": fn.when(ends_earlier, set_until).otherwise(end),
        "start_ts": fn.when(begins_later, fn.col("value.start_ts")).otherwise(fn.col("span.start_ts")),
        "end_ts": fn.when(ends_earlier, fn.col("value.end_ts")).otherwise(fn.col("span.end_ts")),
        "is_first_piece": fn.col("span.is_first_piece") & ~fn.coalesce(begins_later, fn.lit(False)),
    }
    *known, level = levels
    kept = ["cluster_id", "topic_id", "topic", "partition", "leader", "isr", "replicas", *known]
    return (
        spans.alias("span")
        .join(fn.broadcast(values.alias("value")), meet, "left")
        .select(
            *[f"span.{one}" for one in kept],
            *[column.alias(one) for one, column in clipped.items()],
            fn.col("value.value").alias(level),
        )
    )


def _always(configs: DataFrame) -> DataFrame:
    """The value of a config at all times, null while it was not set, for each resource that ever set it."""
    value = fn.col("value").try_cast("int")
    nothing = fn.lit(None)
    moments = fn.array(
        _moment(fn.lit(-1), nothing, nothing),
        _moment(fn.col("start_offset"), fn.col("start_ts"), value),
        fn.when(fn.col("end_offset").isNotNull(), _moment(fn.col("end_offset"), fn.col("end_ts"), nothing)),
    )
    points = (
        configs.select(*_RESOURCE, fn.explode(moments).alias("at"))
        .where(fn.col("at").isNotNull())
        .groupBy(*_RESOURCE, fn.col("at.offset").alias("offset"))
        .agg(fn.max("at.ts").alias("ts"), fn.max("at.value").alias("value"))
    )
    order = Window.partitionBy(*_RESOURCE).orderBy("offset")
    return points.select(
        *_RESOURCE,
        "value",
        fn.col("offset").alias("start_offset"),
        fn.col("ts").alias("start_ts"),
        fn.lead("offset").over(order).alias("end_offset"),
        fn.lead("ts").over(order).alias("end_ts"),
    )


def _moment(offset: Column, ts: Column, value: Column) -> Column:
    return fn.struct(
        offset.cast("bigint").alias("offset"),
        ts.cast("timestamp").alias("ts"),
        value.cast("int").alias("value"),
    )


def _levels() -> Column:
    """What the time of a partition counts for: itself, its topic, its brokers, its cluster."""
    no_id, no_text = fn.lit(None).cast("int"), fn.lit(None).cast("string")
    topic_id, topic, partition = fn.col("topic_id"), fn.col("topic"), fn.col("partition")

    def level(name: str, *values: Column) -> Column:
        named = zip(_LEVEL, (fn.lit(name), *values), strict=True)
        return fn.struct(*[value.alias(one) for one, value in named])

    return fn.concat(
        fn.array(
            level("partition", topic_id, topic, partition, no_id),
            level("topic", topic_id, topic, no_id, no_id),
            level("cluster", no_text, no_text, no_id, no_id),
        ),
        fn.transform("replicas", lambda broker: level("broker", no_text, no_text, no_id, broker)),
    )


def _share(name: str) -> Column:
    return fn.try_divide(fn.col(name), fn.col("observed_ms"))


def _nines(share: str) -> Column:
    return fn.when(fn.col(share) > 0, -fn.log10(share))


def _count(condition: Column) -> Column:
    return fn.sum(fn.when(condition, 1).otherwise(0))
