"""Groups: why they rebalanced, how long it took, and how far behind they are."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from quorate.spark.answers_schemas import LAG, REBALANCES
from quorate.spark.intervals import declared, milliseconds

__all__ = ["lag", "rebalances"]

_STARTED: Final = "RebalanceStarted"
_ENDED: Final = "RebalanceEnded"
_BUMPED: Final = "GroupEpochBumped"
_CONSUMER_ENDED: Final = "ConsumerRebalanceEnded"
_SAID: Final = ("trigger", "member_id", "client_id", "client_host", "reason")
_TOLD: Final = (*_SAID, "start_ts")
_GROUP: Final = ("cluster_id", "group_id", "group_type", "generation")
_READER: Final = ("cluster_id", "group_id", "topic", "partition")


def rebalances(
    group_generations: DataFrame, events: DataFrame, storm_count: int = 5, storm_minutes: int = 5
) -> DataFrame:
    """One row for each new generation of a group. Events say what set it off and how long it took; without
    them only that it happened is known. It is part of a storm if it is at least the `storm_count`th of its
    group within `storm_minutes`."""
    first = fn.min(fn.struct(fn.col("start_offset").alias("offset"), fn.col("start_ts").alias("ts")))
    in_records = (
        group_generations.where(fn.col("generation") > 0)
        .groupBy(*_GROUP)
        .agg(first.alias("first"), fn.max_by("member_count", "start_offset").alias("members"))
    )
    in_events = _classic(events).unionByName(_consumer(events))
    both = in_records.join(in_events, list(_GROUP), "full")
    has_records, has_events = fn.col("first").isNotNull(), fn.col("told_ts").isNotNull()
    source = fn.when(has_records & has_events, "both").when(has_events, "events").otherwise("records")
    rows = both.select(
        *_GROUP,
        *_TOLD,
        "removed",
        "duration_ms",
        source.alias("source"),
        fn.coalesce("told_members", "members").alias("member_count"),
        fn.coalesce("told_ts", "first.ts").alias("end_ts"),
    )
    recent = (
        Window.partitionBy("cluster_id", "group_id")
        .orderBy(fn.unix_millis("end_ts"))
        .rangeBetween(-storm_minutes * 60_000, 0)
    )
    counted = rows.select("*", fn.count(fn.lit(1)).over(recent).alias("recent_count"))
    is_storm = fn.col("recent_count") >= storm_count
    return declared(counted.select("*", is_storm.alias("is_storm")), REBALANCES)


def lag(committed_offsets: DataFrame, end_offsets: DataFrame) -> DataFrame:
    """How far each group was behind at each sample of the end offsets: in records, and in time. The time is a
    lower bound, as exact as samples are frequent: since the first one that shows a record not yet read."""
    commits = committed_offsets.select(
        *_READER,
        fn.col("start_ts").alias("ts"),
        fn.struct(fn.col("committed_offset").alias("offset")).alias("commit"),
    )
    gone = committed_offsets.where(fn.col("end_offset").isNotNull()).select(
        *_READER,
        fn.col("end_ts").alias("ts"),
        fn.struct(fn.lit(None).cast("bigint").alias("offset")).alias("commit"),
    )
    readers = committed_offsets.select(*_READER).distinct()
    samples = end_offsets.select("cluster_id", "topic", "partition", "ts", "end_offset")
    asked = readers.join(samples, ["cluster_id", "topic", "partition"]).select(*_READER, "ts", "end_offset")
    # What began at a time counts at that time; what ended there counts only if nothing began.
    points = (
        commits.select("*", fn.lit(1).alias("turn"))
        .unionByName(gone.select("*", fn.lit(0).alias("turn")))
        .unionByName(asked.select("*", fn.lit(2).alias("turn")), allowMissingColumns=True)
    )
    order = Window.partitionBy(*_READER).orderBy("ts", "turn")
    known = fn.last("commit", ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, 0))
    behind = (
        points.select("*", known.alias("known"))
        .where(fn.col("end_offset").isNotNull() & fn.col("known.offset").isNotNull())
        .select(*_READER, "ts", "end_offset", fn.col("known.offset").alias("committed_offset"))
    )
    waiting = fn.greatest(fn.col("end_offset") - fn.col("committed_offset"), fn.lit(0))
    waits = fn.when(waiting == 0, 0).otherwise(milliseconds(fn.col("unread_ts"), fn.col("ts")))
    return declared(_with_first_unread(behind).select("*", waiting.alias("lag"), waits.alias("lag_ms")), LAG)


def _with_first_unread(behind: DataFrame) -> DataFrame:
    """Adds the time of the first sample that ends behind the committed offset."""
    ends = behind.select(*_READER, fn.col("end_offset").alias("at"), fn.col("ts").alias("seen_ts"))
    asks = behind.select(
        *_READER, fn.col("committed_offset").alias("at"), fn.struct("ts", "end_offset").alias("asked")
    )
    farther = Window.partitionBy(*_READER).orderBy(fn.desc("at")).rangeBetween(Window.unboundedPreceding, -1)
    return (
        ends.unionByName(asks, allowMissingColumns=True)
        .select("*", fn.min("seen_ts").over(farther).alias("unread_ts"))
        .where(fn.col("asked").isNotNull())
        .select(
            *_READER,
            fn.col("asked.ts").alias("ts"),
            fn.col("asked.end_offset").alias("end_offset"),
            fn.col("at").alias("committed_offset"),
            "unread_ts",
        )
    )


def _beginning(kind: str) -> Column:
    """What an event says that begins a rebalance; null for all others."""
    said = [_text(name).alias(name) for name in _SAID]
    return fn.when(fn.col("kind") == kind, fn.struct(*said, fn.col("ts").alias("start_ts")))


def _classic(events: DataFrame) -> DataFrame:
    """Each rebalance that ended, with what its beginning said."""
    told = _beginning(_STARTED)
    order = Window.partitionBy("cluster_id", "group_id").orderBy("ts", "partition", "offset")
    started = fn.last(told, ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, 0))
    rows = events.where(fn.col("kind").isin(_STARTED, _ENDED)).select("*", started.alias("started"))
    return rows.where(fn.col("kind") == _ENDED).select(
        "cluster_id",
        "group_id",
        fn.lit("classic").alias("group_type"),
        _field("generation").try_cast("int").alias("generation"),
        *[f"started.{name}" for name in _TOLD],
        fn.from_json(_field("removed"), "array<string>").alias("removed"),
        _field("members").try_cast("int").alias("told_members"),
        _field("duration_ms").try_cast("bigint").alias("duration_ms"),
        fn.col("ts").alias("told_ts"),
    )


def _consumer(events: DataFrame) -> DataFrame:
    """Each new epoch, with what set it off. The one that all members have come to has what is told of the
    end; those before it, on the way there, have not."""
    bumped = _beginning(_BUMPED)
    ended = fn.when(
        fn.col("kind") == _CONSUMER_ENDED,
        fn.struct(
            fn.from_json(_field("removed"), "array<string>").alias("removed"),
            _field("members").try_cast("int").alias("told_members"),
            _field("duration_ms").try_cast("bigint").alias("duration_ms"),
            fn.col("ts").alias("ts"),
        ),
    )
    epochs = (
        events.where(fn.col("kind").isin(_BUMPED, _CONSUMER_ENDED))
        .select(
            "cluster_id",
            "group_id",
            _field("epoch").try_cast("int").alias("generation"),
            bumped.alias("bumped"),
            ended.alias("ended"),
        )
        .groupBy("cluster_id", "group_id", "generation")
        .agg(
            # What the log refused is told twice; the last time it was so.
            fn.max_by("bumped", "bumped.start_ts").alias("bumped"),
            fn.max_by("ended", "ended.ts").alias("ended"),
        )
    )
    return epochs.select(
        "cluster_id",
        "group_id",
        fn.lit("consumer").alias("group_type"),
        "generation",
        *[f"bumped.{name}" for name in _TOLD],
        "ended.removed",
        "ended.told_members",
        "ended.duration_ms",
        fn.coalesce("ended.ts", "bumped.start_ts").alias("told_ts"),
    )


def _text(name: str) -> Column:
    """Events have empty text where there is nothing to say."""
    return fn.nullif(_field(name), fn.lit(""))


def _field(name: str) -> Column:
    return fn.get_json_object("fields", f"$.{name}")
