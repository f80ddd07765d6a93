"""The tables of answers, declared with comments. `TABLES` has them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from quorate.spark.history_schemas import column

__all__ = [
    "AVAILABILITY",
    "FAILOVERS",
    "FLAPPING",
    "IMBALANCE",
    "INCIDENTS",
    "LAG",
    "REBALANCES",
    "ROLLING_RESTARTS",
    "TABLES",
]

_TEXT: Final = StringType()
_INT: Final = IntegerType()
_LONG: Final = LongType()
_SHARE: Final = DoubleType()
_TIME: Final = TimestampType()
_FLAG: Final = BooleanType()
_CLUSTER: Final = column("cluster_id", _TEXT, "of the cluster")
_BROKER: Final = column("broker_id", _INT, "of the broker")
_BROKER_EPOCH: Final = column("broker_epoch", _LONG, "of the incarnation that left")

AVAILABILITY: Final = StructType(
    [
        _CLUSTER,
        column("level", _TEXT, "what the row is about: partition, topic, broker or cluster"),
        column("topic_id", _TEXT, "of the topic, at the levels partition and topic"),
        column("topic", _TEXT, "its name, at the levels partition and topic"),
        column("partition", _INT, "of the topic, at the level partition"),
        column("broker_id", _INT, "at the level broker: of all partitions that it has a replica of"),
        column("partitions", _INT, "that the row is about"),
        column("observed_ms", _LONG, "how long they were there, added up"),
        column("leaderless_ms", _LONG, "how long nobody led them, added up"),
        column("under_min_isr_ms", _LONG, "how long too few replicas were in sync, added up"),
        column("leaderless_count", _INT, "how often they lost their leader"),
        column("leaderless_share", _SHARE, "of the time that they were there"),
        column("under_min_isr_share", _SHARE, "of the time that they were there"),
        column("leaderless_nines", _SHARE, "3.0 means led 99.9 % of the time; null if always"),
        column("under_min_isr_nines", _SHARE, "likewise, with enough replicas in sync; null if always"),
    ]
)
FAILOVERS: Final = StructType(
    [
        _CLUSTER,
        _BROKER,
        _BROKER_EPOCH,
        column("cause", _TEXT, "fenced, controlled shutdown, registered anew, unregistered or unknown"),
        column("check", _TEXT, "why it was fenced, from events; null if there are none"),
        column("offset", _LONG, "of the record with which it left"),
        column("ts", _TIME, "when it left"),
        column("last_heartbeat_ts", _TIME, "of the broker, from events; null if nobody said"),
        column("detection_ms", _LONG, "from the last heartbeat until it was fenced; null if nobody said"),
        column("election_ms", _LONG, "until the last of the partitions that could be was led by another"),
        column("recovery_ms", _LONG, "until all were led again; null if some are not yet"),
        column("partitions_moved", _INT, "that another broker took over at once"),
        column("partitions_leaderless", _INT, "that nobody could take over at once"),
        column(
            "leaderless_ms_max", _LONG, "how long the worst of these had no leader; null if it has none yet"
        ),
        column("returned_offset", _LONG, "of the record with which the broker came back; null if it did not"),
        column("returned_ts", _TIME, "when the broker came back; null if it did not"),
        column("returned_epoch", _LONG, "of the incarnation that came back: another one after a restart"),
        column("outage_ms", _LONG, "how long the broker was away; null if it still is"),
    ]
)
FLAPPING: Final = StructType(
    [
        _CLUSTER,
        _BROKER,
        column("fence_count", _INT, "how often it was fenced though it had not asked to go"),
        column("shutdown_count", _INT, "how often it asked to go"),
        column("first_ts", _TIME, "when it was first fenced"),
        column("last_ts", _TIME, "when it was last fenced"),
        column("interval_ms_min", _LONG, "between two fencings; null if there was one only"),
        column("interval_ms_median", _LONG, "between two fencings; null if there was one only"),
        column("fenced_ms", _LONG, "how long it was away altogether, the times that are over"),
        column("is_flapping", _FLAG, "often, and in quick succession: see the function"),
    ]
)
ROLLING_RESTARTS: Final = StructType(
    [
        _CLUSTER,
        column("restart", _INT, "number of the rolling restart, in each cluster from 1"),
        column("step", _INT, "the broker's turn in it, from 1"),
        _BROKER,
        column("broker_epoch", _LONG, "of the incarnation that went"),
        column("new_epoch", _LONG, "of the incarnation that came"),
        column("left_ts", _TIME, "when it left"),
        column("down_ts", _TIME, "when it was gone for good: fenced, or replaced"),
        column("returned_ts", _TIME, "when the new one was unfenced"),
        column("downtime_ms", _LONG, "from leaving to coming back"),
        column("was_controlled", _FLAG, "whether it asked to go first"),
        column("leaderships_moved", _INT, "that were given away before it was gone"),
        column("leaderships_lost", _INT, "that it still had when it was gone"),
        column("did_leadership_move_first", _FLAG, "whether it led nothing any more when it went"),
        column("under_replicated_before_next", _INT, "partitions not whole when the next broker left"),
        column("was_isr_whole_before_next", _FLAG, "whether there were none; null for the last broker"),
        column("is_good", _FLAG, "controlled, leadership moved first, and in sync before the next left"),
    ]
)
IMBALANCE: Final = StructType(
    [
        _CLUSTER,
        _BROKER,
        column("replica_count", _INT, "partitions that it has at the end"),
        column("leader_count", _INT, "of these, that it leads"),
        column("preferred_count", _INT, "of these, that it should lead: it is their first replica"),
        column("preferred_led_count", _INT, "of these, that it leads"),
        column("leader_share", _SHARE, "of all partitions with a leader in the cluster, that it leads"),
        column("imbalance_share", _SHARE, "of those that it should lead, how many it does not"),
        column("imbalance_time_share", _SHARE, "likewise over all of the history, by time"),
    ]
)
REBALANCES: Final = StructType(
    [
        _CLUSTER,
        column("group_id", _TEXT, "of the group"),
        column("group_type", _TEXT, "classic, consumer, share or streams"),
        column("generation", _INT, "that came out of it; for other than classic groups, the epoch"),
        column("source", _TEXT, "events, records or both"),
        column("trigger", _TEXT, "what set it off; null without events"),
        column("member_id", _TEXT, "whose doing it was; null if nobody's, or without events"),
        column("client_id", _TEXT, "what that member calls itself"),
        column("client_host", _TEXT, "where that member connects from"),
        column("reason", _TEXT, "that the client gave"),
        column("removed", ArrayType(_TEXT), "members that did not come back in time"),
        column("member_count", _INT, "afterwards"),
        column("start_ts", _TIME, "when it began; null without events"),
        column("end_ts", _TIME, "when it ended; if that is not told, when the new generation began"),
        column("duration_ms", _LONG, "how long it took; null if that is not told"),
        column("recent_count", _INT, "rebalances of the group up to here in the time of a storm"),
        column("is_storm", _FLAG, "so many that it counts as a storm: see the function"),
    ]
)
LAG: Final = StructType(
    [
        _CLUSTER,
        column("group_id", _TEXT, "of the group"),
        column("topic", _TEXT, "its name"),
        column("partition", _INT, "of the topic"),
        column("ts", _TIME, "of the sample of the end offset"),
        column("end_offset", _LONG, "of the partition"),
        column("committed_offset", _LONG, "of the group, by then"),
        column("lag", _LONG, "records between them"),
        column(
            "lag_ms", _LONG, "how long ago, at least, the first of these was written; 0 if there are none"
        ),
    ]
)
INCIDENTS: Final = StructType(
    [
        _CLUSTER,
        column("ts", _TIME, "when it began"),
        column("end_ts", _TIME, "when it was over; null if it is not, or lasted no time"),
        column("kind", _TEXT, "broker left, controller changed, unavailable, rebalance storm or fault"),
        column("broker_id", _INT, "that it is about"),
        column("topic", _TEXT, "that it is about"),
        column("group_id", _TEXT, "that it is about"),
        column("partitions", _INT, "that it is about"),
        column("text", _TEXT, "in words"),
    ]
)

TABLES: Final[Mapping[str, StructType]] = {
    "availability": AVAILABILITY,
    "failovers": FAILOVERS,
    "flapping": FLAPPING,
    "rolling_restarts": ROLLING_RESTARTS,
    "imbalance": IMBALANCE,
    "rebalances": REBALANCES,
    "lag": LAG,
    "incidents": INCIDENTS,
}
