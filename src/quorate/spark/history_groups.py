"""Groups over time: their generations, their members, the offsets that they committed.

Each group lives in one partition of `__consumer_offsets`, so the offsets there are its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from quorate.spark.history_schemas import COMMITTED_OFFSETS, GROUP_GENERATIONS, GROUP_MEMBERS
from quorate.spark.intervals import CHANGE, declared, following, identified, in_order, intervals

__all__ = ["committed_offsets", "group_generations", "group_members"]

_CLASSIC: Final = "GroupMetadata"
_GROUPS: Final = {
    _CLASSIC: "classic",
    "ConsumerGroupMetadata": "consumer",
    "ShareGroupMetadata": "share",
    "StreamsGroupMetadata": "streams",
}
_MEMBERS: Final = {
    "ConsumerGroupMemberMetadata": "consumer",
    "ShareGroupMemberMetadata": "share",
    "StreamsGroupMemberMetadata": "streams",
}
_COMMITS: Final = ("OffsetCommit", "LegacyOffsetCommit")
_CUT: Final = "struct<offset:bigint,ts:timestamp,is_known:boolean>"
_CLASSIC_MEMBERS: Final = (
    "array<struct<memberId:string,groupInstanceId:string,clientId:string,clientHost:string>>"
)
_MEMBER: Final = ("instance_id", "client_id", "client_host")


def group_generations(group_records: DataFrame) -> DataFrame:
    """The generations of each group. A group that goes over to another protocol ends, and begins again."""
    members = fn.size(fn.from_json(_field("members"), "array<struct<memberId:string>>"))
    is_classic = fn.col("type") == _CLASSIC
    changes = group_records.where(fn.col("type").isin(*_GROUPS)).select(
        "cluster_id",
        "group_id",
        _named(_GROUPS).alias("group_type"),
        fn.coalesce(_field("generation"), _field("epoch")).try_cast("int").alias("generation"),
        _field("protocol").alias("protocol"),
        _field("leader").alias("leader"),
        fn.when(is_classic & ~fn.col("is_tombstone"), members).alias("member_count"),
        *_as_changes(),
    )
    state = ("generation", "protocol", "leader", "member_count")
    return declared(_intervals(changes, ("cluster_id", "group_id", "group_type"), state), GROUP_GENERATIONS)


def group_members(group_records: DataFrame) -> DataFrame:
    """Who was in each group. A classic group has one record for all: who is not in the next one has gone."""
    of_classic_groups = _classic_members(group_records.where(fn.col("type") == _CLASSIC))
    of_others = group_records.where(fn.col("type").isin(*_MEMBERS)).select(
        "cluster_id",
        "group_id",
        _named(_MEMBERS).alias("group_type"),
        "member_id",
        _field("instanceId").alias("instance_id"),
        _field("clientId").alias("client_id"),
        _field("clientHost").alias("client_host"),
        *_as_changes(),
    )
    keys = ("cluster_id", "group_id", "group_type", "member_id")
    return declared(_intervals(of_classic_groups.union(of_others), keys, _MEMBER), GROUP_MEMBERS)


def committed_offsets(group_records: DataFrame) -> DataFrame:
    """From where each group goes on, per partition. To commit the same offset again changes nothing."""
    changes = group_records.where(fn.col("type").isin(*_COMMITS)).select(
        "cluster_id",
        "group_id",
        "topic",
        fn.col("topic_partition").alias("partition"),
        "committed_offset",
        *_as_changes(),
    )
    keys = ("cluster_id", "group_id", "topic", "partition")
    return declared(_intervals(changes, keys, ("committed_offset",)), COMMITTED_OFFSETS)


def _intervals(changes: DataFrame, keys: Sequence[str], state: Sequence[str]) -> DataFrame:
    return intervals(identified(changes, keys).select("*", following(in_order())), keys, state)


def _classic_members(rows: DataFrame) -> DataFrame:
    following = fn.lead(
        fn.struct(fn.col("offset").alias("offset"), fn.col("ts").alias("ts"), fn.lit(True).alias("is_known"))
    ).over(Window.partitionBy("cluster_id", "group_id").orderBy("offset"))
    members = fn.from_json(_field("members"), _CLASSIC_MEMBERS)
    each = rows.select("*", following.cast(_CUT).alias("cut")).select(
        "cluster_id", "group_id", "offset", "ts", "cut", fn.explode(members).alias("member")
    )
    return each.select(
        "cluster_id",
        "group_id",
        fn.lit("classic").alias("group_type"),
        fn.col("member.memberId").alias("member_id"),
        fn.col("member.groupInstanceId").alias("instance_id"),
        fn.col("member.clientId").alias("client_id"),
        fn.col("member.clientHost").alias("client_host"),
        fn.col("offset").alias("at_offset"),
        fn.col("ts").alias("at_ts"),
        "offset",
        fn.lit("log").alias("origin"),
        fn.lit(0).alias("position"),
        fn.lit(False).alias("is_gone"),
        "cut",
    )


def _as_changes() -> list[Column]:
    """What `intervals` wants to know of a change: here it is the record's own place, and tombstones end."""
    said = {
        "at_offset": fn.col("offset"),
        "at_ts": fn.col("ts"),
        "offset": fn.col("offset"),
        "origin": fn.lit("log"),
        "position": fn.lit(0),
        "is_gone": fn.col("is_tombstone"),
        "cut": fn.lit(None).cast(_CUT),
    }
    return [said[name].alias(name) for name in CHANGE]


def _named(names: dict[str, str]) -> Column:
    (first, name), *others = names.items()
    found = fn.when(fn.col("type") == first, name)
    for kind, other in others:
        found = found.when(fn.col("type") == kind, other)
    return found


def _field(name: str) -> Column:
    return fn.get_json_object("fields", f"$.{name}")
