"""The cluster at any moment of its history, and what differs between two.

    from quorate.spark import time_travel

    before = time_travel.image_at_offset(records, 4_000)
    after = time_travel.image_at_time(records, datetime(2026, 5, 4, 12, 3, tzinfo=UTC))
    before.partitions.where("leader = -1").show()
    time_travel.difference(before, after).show()

The cluster at a moment is what the records up to then come to: what began and has not ended. *At* an offset
means with the record at that offset. At a time means up to the last record written by then, in the order of
offsets: clocks step back, the log does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorate.spark.history_brokers import broker_changes
from quorate.spark.history_partitions import partition_changes, partition_intervals
from quorate.spark.history_schemas import (
    BROKER_SESSIONS,
    CONFIGS,
    FEATURES,
    IDS,
    PARTITION_STATES,
    TOPICS,
    column,
)
from quorate.spark.history_topics import configs, features, topics
from quorate.spark.intervals import declared, intervals

__all__ = [
    "BROKERS",
    "DIFFERENCE",
    "PARTITIONS",
    "Image",
    "difference",
    "image",
    "image_at_offset",
    "image_at_time",
    "up_to_offset",
    "up_to_time",
]

_SINCE: Final = [
    column("since_offset", LongType(), "of the record with which it became so"),
    column("since_ts", TimestampType(), "when it became so, by the clock of the controller"),
    column("is_since_known", BooleanType(), "false if it was found so in a snapshot"),
]


def _at(schema: StructType, *others: StructField) -> StructType:
    """The things of a table of intervals, at one moment."""
    ends = ("origin", "start_offset", "end_offset", "start_ts", "end_ts", "is_start_known", "is_end_known")
    return StructType([one for one in schema.fields if one.name not in ends] + [*others, *_SINCE])


BROKERS: Final = _at(
    BROKER_SESSIONS,
    column("is_fenced", BooleanType(), "whether it may not serve"),
    column("is_shutting_down", BooleanType(), "whether it asked to go"),
)
PARTITIONS: Final = _at(
    PARTITION_STATES,
    column("partition_epoch", IntegerType(), "how often it changed"),
    column("adding_replicas", IDS, "that shall have it"),
    column("removing_replicas", IDS, "that shall not have it any more"),
)
DIFFERENCE: Final = StructType(
    [
        column("cluster_id", StringType(), "of the cluster"),
        column("kind", StringType(), "broker, topic, partition, config or feature"),
        column("name", StringType(), "of the thing, in words"),
        column("change", StringType(), "added, removed or changed"),
        column("before", StringType(), "how it was, as JSON; null if it was not there"),
        column("after", StringType(), "how it is, as JSON; null if it is not there"),
    ]
)


class Image(NamedTuple):
    """What there is at one moment, for each cluster."""

    brokers: DataFrame
    topics: DataFrame
    partitions: DataFrame
    configs: DataFrame
    features: DataFrame


def image_at_offset(records: DataFrame, offset: int) -> Image:
    return image(up_to_offset(records, offset))


def image_at_time(records: DataFrame, ts: datetime) -> Image:
    return image(up_to_time(records, ts))


def up_to_offset(records: DataFrame, offset: int) -> DataFrame:
    """The records with this offset and those before, of each cluster."""
    return records.where(fn.col("offset") <= fn.lit(offset))


def up_to_time(records: DataFrame, ts: datetime) -> DataFrame:
    """The records up to the last one that was written by then, of each cluster."""
    last = (
        records.where(fn.col("ts") <= fn.lit(ts))
        .groupBy("cluster_id")
        .agg(fn.max("offset").alias("last_offset"))
        .alias("last")
    )
    is_by_then = (fn.col("record.cluster_id") == fn.col("last.cluster_id")) & (
        fn.col("record.offset") <= fn.col("last.last_offset")
    )
    return records.alias("record").join(fn.broadcast(last), is_by_then).select("record.*")


def image(records: DataFrame) -> Image:
    """The clusters at the end of these records."""
    brokers = intervals(
        broker_changes(records),
        ("cluster_id", "broker_id"),
        ("broker_epoch", "incarnation_id", "rack", "endpoints", "is_fenced", "is_shutting_down"),
    )
    partitions = partition_intervals(
        partition_changes(records),
        records,
        (
            "leader",
            "leader_epoch",
            "isr",
            "replicas",
            "partition_epoch",
            "adding_replicas",
            "removing_replicas",
        ),
    )
    return Image(
        brokers=_present(brokers, BROKERS),
        topics=_present(topics(records), _at(TOPICS)),
        partitions=_present(partitions, PARTITIONS),
        configs=_present(configs(records), _at(CONFIGS)),
        features=_present(features(records), _at(FEATURES)),
    )


def difference(before: Image, after: Image) -> DataFrame:
    """What was added, removed or changed, one row for each thing."""
    broker = _differences("broker", before.brokers, after.brokers, ("broker_id",), BROKERS)
    topic = _differences("topic", before.topics, after.topics, ("topic", "topic_id"), _at(TOPICS))
    partition = _differences(
        "partition", before.partitions, after.partitions, ("topic", "partition", "topic_id"), PARTITIONS
    )
    config = _differences(
        "config", before.configs, after.configs, ("resource_type", "resource_name", "name"), _at(CONFIGS)
    )
    feature = _differences("feature", before.features, after.features, ("name",), _at(FEATURES))
    return declared(broker.union(topic).union(partition).union(config).union(feature), DIFFERENCE)


def _present(spans: DataFrame, schema: StructType) -> DataFrame:
    now = spans.where(fn.col("end_offset").isNull()).select(
        "*",
        fn.col("start_offset").alias("since_offset"),
        fn.col("start_ts").alias("since_ts"),
        fn.col("is_start_known").alias("is_since_known"),
    )
    return declared(now, schema)


def _differences(
    kind: str, before: DataFrame, after: DataFrame, keys: Sequence[str], schema: StructType
) -> DataFrame:
    """A thing that looks the same now and then is left out, whatever happened to it between."""
    since = {one.name for one in _SINCE}
    state = [one.name for one in schema.fields if one.name not in {"cluster_id", *keys, *since}]
    was, now = before.alias("was"), after.alias("now")
    is_same_thing = fn.lit(True)
    for key in ("cluster_id", *keys):
        is_same_thing &= fn.col(f"was.{key}").eqNullSafe(fn.col(f"now.{key}"))
    was_there, is_there = fn.col("was.cluster_id").isNotNull(), fn.col("now.cluster_id").isNotNull()
    before_json, after_json = _json("was", [*keys, *state]), _json("now", [*keys, *state])
    change = fn.when(~was_there, "added").when(~is_there, "removed").otherwise("changed")
    name = fn.concat_ws(
        " ", *[fn.coalesce(f"now.{key}", f"was.{key}").cast("string") for key in keys if key != "topic_id"]
    )
    return (
        was.join(now, is_same_thing, "full")
        .where(~was_there | ~is_there | ~before_json.eqNullSafe(after_json))
        .select(
            fn.coalesce("now.cluster_id", "was.cluster_id").alias("cluster_id"),
            fn.lit(kind).alias("kind"),
            name.alias("name"),
            change.alias("change"),
            fn.when(was_there, before_json).alias("before"),
            fn.when(is_there, after_json).alias("after"),
        )
    )


def _json(side: str, names: Sequence[str]) -> Column:
    return fn.to_json(fn.struct(*[fn.col(f"{side}.{name}").alias(name) for name in names]))
