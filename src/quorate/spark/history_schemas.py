"""The tables of history, declared with comments.

Each row is an interval `[start, end)`. `TABLES` has them by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = [
    "BROKER_SESSIONS",
    "BROKER_STATES",
    "COMMITTED_OFFSETS",
    "CONFIGS",
    "CONTROLLER_TERMS",
    "FEATURES",
    "GROUP_GENERATIONS",
    "GROUP_MEMBERS",
    "IDS",
    "PARTITION_ISR",
    "PARTITION_LEADERS",
    "PARTITION_STATES",
    "TABLES",
    "TOPICS",
    "column",
]

_TEXT: Final = StringType()
_INT: Final = IntegerType()
_LONG: Final = LongType()
_TIME: Final = TimestampType()
_FLAG: Final = BooleanType()
IDS: Final = ArrayType(IntegerType())


def column(name: str, kind: DataType, comment: str) -> StructField:
    return StructField(name, kind, metadata={"comment": comment})


_CLUSTER: Final = column("cluster_id", _TEXT, "of the cluster")
_BROKER: Final = column("broker_id", _INT, "of the broker")
_BROKER_EPOCH: Final = column("broker_epoch", _LONG, "of this incarnation: the offset at which it registered")
_TOPIC_ID: Final = column("topic_id", _TEXT, "of the topic, as Kafka prints it")
_TOPIC: Final = column("topic", _TEXT, "its name; null if the log does not go back to it")
_PARTITION: Final = column("partition", _INT, "of the topic")
_LEADER: Final = column("leader", _INT, "the broker that leads it, -1 for none")
_LEADER_EPOCH: Final = column(
    "leader_epoch", _INT, "of the leader; null if the log does not go back far enough"
)
_ISR: Final = column("isr", IDS, "the brokers in sync, in ascending order")
_REPLICAS: Final = column("replicas", IDS, "the brokers that have it, the preferred leader first")
_GROUP: Final = column("group_id", _TEXT, "of the group")
_GROUP_TYPE: Final = column("group_type", _TEXT, "classic, consumer, share or streams")
_SPAN: Final = [
    column("origin", _TEXT, "log, or snapshot: then it began earlier, nobody knows when"),
    column("start_offset", _LONG, "of the record with which it began to be so"),
    column("end_offset", _LONG, "of the record with which it ceased to be so; null if it is still so"),
    column("start_ts", _TIME, "when it began, by the clock of the controller"),
    column("end_ts", _TIME, "when it ceased; may lie before the start, since clocks step back"),
    column("is_start_known", _FLAG, "false if it was found so in a snapshot"),
    column("is_end_known", _FLAG, "false if a snapshot shows that it is no longer so; null if it still is"),
]


def _table(*fields: StructField) -> StructType:
    return StructType([_CLUSTER, *fields, *_SPAN])


BROKER_SESSIONS: Final = _table(
    _BROKER,
    _BROKER_EPOCH,
    column("incarnation_id", _TEXT, "of the process that registered"),
    column("rack", _TEXT, "that it said it is in"),
    column(
        "endpoints",
        ArrayType(
            StructType(
                [
                    StructField("name", _TEXT),
                    StructField("host", _TEXT),
                    StructField("port", _INT),
                    StructField("security_protocol", _INT),
                ]
            )
        ),
        "where it listens",
    ),
)
BROKER_STATES: Final = _table(
    _BROKER, _BROKER_EPOCH, column("state", _TEXT, "fenced, unfenced or shutting_down")
)
CONTROLLER_TERMS: Final = _table(
    column("epoch", _INT, "of the controllers"),
    column("controller_id", _INT, "the active controller; null if the log does not say"),
)
PARTITION_LEADERS: Final = _table(_TOPIC_ID, _TOPIC, _PARTITION, _LEADER, _LEADER_EPOCH)
PARTITION_ISR: Final = _table(_TOPIC_ID, _TOPIC, _PARTITION, _ISR, _REPLICAS)
PARTITION_STATES: Final = _table(_TOPIC_ID, _TOPIC, _PARTITION, _LEADER, _LEADER_EPOCH, _ISR, _REPLICAS)
TOPICS: Final = _table(_TOPIC_ID, column("topic", _TEXT, "its name"))
CONFIGS: Final = _table(
    column("resource_type", _INT, "2 topic, 4 broker, 16 client metrics, 32 group"),
    column("resource_name", _TEXT, "of the topic, broker...; empty for the default of all brokers"),
    column("name", _TEXT, "of the config"),
    column("value", _TEXT, "that it is set to"),
)
FEATURES: Final = _table(
    column("name", _TEXT, "of the feature"), column("level", _INT, "that it is finalized at")
)
GROUP_GENERATIONS: Final = _table(
    _GROUP,
    _GROUP_TYPE,
    column("generation", _INT, "of a classic group; of the others, their epoch"),
    column("protocol", _TEXT, "the assignor that the members agreed on; classic groups only"),
    column("leader", _TEXT, "the member that assigns; classic groups only"),
    column("member_count", _INT, "classic groups only: the others have a record for each member"),
)
GROUP_MEMBERS: Final = _table(
    _GROUP,
    _GROUP_TYPE,
    column("member_id", _TEXT, "of the member"),
    column("instance_id", _TEXT, "of a static member"),
    column("client_id", _TEXT, "that the client calls itself"),
    column("client_host", _TEXT, "that it connects from"),
)
COMMITTED_OFFSETS: Final = _table(
    _GROUP,
    column("topic", _TEXT, "its name"),
    _PARTITION,
    column("committed_offset", _LONG, "that the group goes on from"),
)

TABLES: Final[Mapping[str, StructType]] = {
    "broker_sessions": BROKER_SESSIONS,
    "broker_states": BROKER_STATES,
    "controller_terms": CONTROLLER_TERMS,
    "partition_leaders": PARTITION_LEADERS,
    "partition_isr": PARTITION_ISR,
    "partition_states": PARTITION_STATES,
    "topics": TOPICS,
    "configs": CONFIGS,
    "features": FEATURES,
    "group_generations": GROUP_GENERATIONS,
    "group_members": GROUP_MEMBERS,
    "committed_offsets": COMMITTED_OFFSETS,
}
