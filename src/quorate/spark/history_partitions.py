"""Partitions over time: who led them, who was in sync.

A record of a change says only what changed, so the rest is what was known before. Neither does it say the
leader's epoch: every record that names a leader, even the same one or none, begins a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, WindowSpec
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from quorate.spark.history_replay import replayed
from quorate.spark.history_schemas import PARTITION_ISR, PARTITION_LEADERS, PARTITION_STATES
from quorate.spark.history_topics import topic_lives
from quorate.spark.intervals import (
    CHANGE,
    PLACED,
    SPAN,
    declared,
    following,
    identified,
    in_order,
    intervals,
    last_known,
)

__all__ = [
    "NO_LEADER",
    "partition_changes",
    "partition_intervals",
    "partition_isr",
    "partition_leaders",
    "partition_states",
]

NO_LEADER: Final = -1
_WHOLE: Final = "PartitionRecord"
_CHANGE: Final = "PartitionChangeRecord"
_KEYS: Final = ("cluster_id", "topic_id", "partition")


def partition_leaders(records: DataFrame) -> DataFrame:
    """Who led each partition, and in which epoch."""
    rows = _rows(records).where(fn.col("leader").isNotNull())
    order = in_order()
    counted = rows.select(
        "leader",
        "said_leader_epoch",
        _count(~fn.col("is_whole"), order).alias("elections"),
        *PLACED,
        following(order),
    )
    base = last_known(fn.col("said_leader_epoch") - fn.col("elections"), order)
    changes = counted.select(
        "leader", (base + fn.col("elections")).alias("leader_epoch"), *PLACED, "following"
    )
    return declared(partition_intervals(changes, records, ("leader", "leader_epoch")), PARTITION_LEADERS)


def partition_isr(records: DataFrame) -> DataFrame:
    """Who was in sync with the leader, of those who have the partition."""
    rows = _rows(records).where(fn.col("isr").isNotNull() | fn.col("replicas").isNotNull())
    order = in_order()
    changes = rows.select(
        last_known(fn.col("isr"), order).alias("isr"),
        last_known(fn.col("replicas"), order).alias("replicas"),
        *PLACED,
        following(order),
    )
    return declared(partition_intervals(changes, records, ("isr", "replicas")), PARTITION_ISR)


def partition_states(records: DataFrame) -> DataFrame:
    """Leader, ISR and replicas together: both tables in one, split wherever either is."""
    state = ("leader", "leader_epoch", "isr", "replicas")
    return declared(partition_intervals(partition_changes(records), records, state), PARTITION_STATES)


def partition_changes(records: DataFrame) -> DataFrame:
    """A row for every record about a partition, with all that is known of it from then on: changes in the
    sense of `intervals`."""
    order = in_order()
    is_change = ~fn.col("is_whole")
    counted = _rows(records).select(
        "said_leader_epoch",
        "said_partition_epoch",
        *[
            last_known(fn.col(name), order).alias(name)
            for name in ("leader", "isr", "replicas", "adding_replicas", "removing_replicas")
        ],
        _count(is_change & fn.col("leader").isNotNull(), order).alias("elections"),
        _count(is_change, order).alias("changes"),
        *PLACED,
        following(order),
    )
    leader_base = last_known(fn.col("said_leader_epoch") - fn.col("elections"), order)
    partition_base = last_known(fn.col("said_partition_epoch") - fn.col("changes"), order)
    return counted.select(
        "leader",
        (leader_base + fn.col("elections")).alias("leader_epoch"),
        (partition_base + fn.col("changes")).alias("partition_epoch"),
        "isr",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        *PLACED,
        "following",
    )


def partition_intervals(changes: DataFrame, records: DataFrame, state: Sequence[str]) -> DataFrame:
    """Intervals of partitions, with the names of their topics, and ended where these were deleted."""
    spans = intervals(changes, _KEYS, state).alias("span")
    lives = topic_lives(records).alias("life")
    is_same = (fn.col("span.cluster_id") == fn.col("life.cluster_id")) & (
        fn.col("span.topic_id") == fn.col("life.topic_id")
    )
    removed, end_offset = fn.col("life.removed"), fn.col("span.end_offset")
    is_removed = removed["offset"].isNotNull() & (end_offset.isNull() | (end_offset > removed["offset"]))
    ends = [
        fn.when(is_removed, removed[of_removal]).otherwise(fn.col(f"span.{name}")).alias(name)
        for name, of_removal in (("end_offset", "offset"), ("end_ts", "ts"), ("is_end_known", "is_known"))
    ]
    others = [
        name for name in (*_KEYS, *state, *SPAN) if name not in ("end_offset", "end_ts", "is_end_known")
    ]
    ended = spans.join(fn.broadcast(lives), is_same, "left").select(
        *[f"span.{name}" for name in others], "life.topic", *ends
    )
    return ended.where("end_offset is null or end_offset > start_offset")


def _count(is_counted: Column, order: WindowSpec) -> Column:
    return fn.sum(fn.when(is_counted, 1).otherwise(0)).over(order.rowsBetween(Window.unboundedPreceding, 0))


def _rows(records: DataFrame) -> DataFrame:
    """The records about partitions, with what is needed of their JSON: it does not travel further."""
    is_whole = fn.col("type") == _WHOLE
    rows = replayed(records).where(fn.col("type").isin(_WHOLE, _CHANGE))
    said = rows.select(
        *_KEYS,
        is_whole.alias("is_whole"),
        "leader",
        # In one order: writers differ in the order in which they name the same brokers.
        fn.sort_array("isr").alias("isr"),
        "replicas",
        fn.when(is_whole, _number("leaderEpoch")).alias("said_leader_epoch"),
        fn.when(is_whole, _number("partitionEpoch")).alias("said_partition_epoch"),
        _ids("addingReplicas").alias("adding_replicas"),
        _ids("removingReplicas").alias("removing_replicas"),
        *[one for one in CHANGE if one != "is_gone"],
        fn.lit(False).alias("is_gone"),
    )
    return identified(said, _KEYS)


def _ids(name: str) -> Column:
    """Of replicas that move, which few records speak of: text that does not is not parsed."""
    said = fn.get_json_object("fields", f"$.{name}")
    return fn.when(fn.col("fields").contains(name), fn.from_json(said, "array<int>"))


def _number(name: str) -> Column:
    return fn.get_json_object("fields", f"$.{name}").try_cast("int")
