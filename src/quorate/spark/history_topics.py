"""Topics, configs and features over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from quorate.spark.history_replay import cut_at, replayed
from quorate.spark.history_schemas import CONFIGS, FEATURES, TOPICS
from quorate.spark.intervals import declared, following, identified, in_order, intervals

__all__ = ["TOPIC_RESOURCE", "configs", "features", "topic_lives", "topics"]

TOPIC_RESOURCE: Final = 2
_TOPIC: Final = "TopicRecord"
_REMOVE_TOPIC: Final = "RemoveTopicRecord"
_RESOURCE: Final = ("cluster_id", "resource_type", "resource_name")
_CUT: Final = "struct<offset:bigint,ts:timestamp,is_known:boolean>"
_ENDLESS: Final = ("at_offset", "at_ts", "offset", "origin", "position")


def topics(records: DataFrame) -> DataFrame:
    """From creation to deletion. A topic that is created again under the same name has another id."""
    rows = replayed(records).where(fn.col("type").isin(_TOPIC, _REMOVE_TOPIC))
    changes = rows.select(
        "cluster_id",
        "topic_id",
        "topic",
        *_ENDLESS,
        (fn.col("type") == _REMOVE_TOPIC).alias("is_gone"),
        "cut",
    )
    return declared(_intervals(changes, ("cluster_id", "topic_id"), "topic"), TOPICS)


def topic_lives(records: DataFrame) -> DataFrame:
    """The name of each topic id, the moment of its deletion (`removed`, null if it was not), and where the
    record of that stands (`removal_offset`)."""
    is_removal = fn.col("type") == _REMOVE_TOPIC
    return (
        replayed(records)
        .where(fn.col("type").isin(_TOPIC, _REMOVE_TOPIC))
        .groupBy("cluster_id", "topic_id")
        .agg(
            fn.max(fn.when(~is_removal, fn.col("topic"))).alias("topic"),
            fn.max(fn.when(is_removal, cut_at(fn.col("at_offset"), fn.col("at_ts"), fn.lit(True)))).alias(
                "removed"
            ),
            fn.max(fn.when(is_removal, fn.col("offset"))).alias("removal_offset"),
        )
    )


def configs(records: DataFrame) -> DataFrame:
    """What was set, until it was set otherwise or removed. A deleted topic takes its configs with it, and no
    record says so."""
    value = _field("value")
    rows = replayed(records).where(fn.col("type") == "ConfigRecord")
    settings = rows.select(
        "cluster_id",
        _field("resourceType").try_cast("int").alias("resource_type"),
        _field("resourceName").alias("resource_name"),
        _field("name").alias("name"),
        value.alias("value"),
        *_ENDLESS,
        value.isNull().alias("is_gone"),
        "cut",
        fn.lit(None).cast(_CUT).alias("removal"),
    )
    both = settings.union(_removals(records))
    newest_first = Window.partitionBy(*_RESOURCE).orderBy(
        *[fn.desc(one) for one in ("at_offset", "origin", "offset", "position")]
    )
    next_removal = fn.last("removal", ignorenulls=True).over(
        newest_first.rowsBetween(Window.unboundedPreceding, 0)
    )
    changes = both.select(
        *_RESOURCE, "name", "value", *_ENDLESS, "is_gone", "cut", next_removal.alias("next_removal")
    ).where(fn.col("name").isNotNull())
    snapshot, removal = fn.col("cut"), fn.col("next_removal")
    earlier = fn.when(snapshot["offset"] < removal["offset"], snapshot).otherwise(
        fn.coalesce(removal, snapshot)
    )
    cut = changes.select(*_RESOURCE, "name", "value", *_ENDLESS, "is_gone", earlier.alias("cut"))
    return declared(_intervals(cut, (*_RESOURCE, "name"), "value"), CONFIGS)


def features(records: DataFrame) -> DataFrame:
    """The level that each feature is finalized at; level 0 means that it is not. `kraft.version` is the
    quorum's own and has other records."""
    level = _field("featureLevel").try_cast("int")
    name = _field("name")
    rows = replayed(records).where((fn.col("type") == "FeatureLevelRecord") & (name != "kraft.version"))
    changes = rows.select(
        "cluster_id",
        name.alias("name"),
        level.alias("level"),
        *_ENDLESS,
        (level == 0).alias("is_gone"),
        "cut",
    )
    return declared(_intervals(changes, ("cluster_id", "name"), "level"), FEATURES)


def _removals(records: DataFrame) -> DataFrame:
    """The deletions of topics, by name, in the shape of settings."""
    nothing = fn.lit(None).cast("string")
    removed = fn.col("removed")
    return (
        topic_lives(records)
        .where(removed.isNotNull() & fn.col("topic").isNotNull())
        .select(
            "cluster_id",
            fn.lit(TOPIC_RESOURCE).alias("resource_type"),
            fn.col("topic").alias("resource_name"),
            nothing.alias("name"),
            nothing.alias("value"),
            removed["offset"].alias("at_offset"),
            removed["ts"].alias("at_ts"),
            fn.col("removal_offset").alias("offset"),
            fn.lit("log").alias("origin"),
            fn.lit(0).alias("position"),
            fn.lit(True).alias("is_gone"),
            fn.lit(None).cast(_CUT).alias("cut"),
            removed.alias("removal"),
        )
    )


def _intervals(changes: DataFrame, keys: Sequence[str], state: str) -> DataFrame:
    return intervals(identified(changes, keys).select("*", following(in_order())), keys, (state,))


def _field(name: str) -> Column:
    return fn.get_json_object("fields", f"$.{name}")
