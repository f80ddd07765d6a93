"""The raw tables, declared with comments: what the internal logs of a cluster look like in Spark.

Each is declared once. `arrow_schema` says the same in Arrow's words, which is what the readers fill.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
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

__all__ = ["ARROW_IDS", "EVENTS", "GROUP_RECORDS", "PROBLEMS", "RECORDS", "arrow_schema"]

_TEXT: Final = StringType()
_INT: Final = IntegerType()
_LONG: Final = LongType()
_TIME: Final = TimestampType()
_FLAG: Final = BooleanType()
_IDS: Final = ArrayType(IntegerType(), containsNull=False)


def _always(name: str, kind: DataType, comment: str) -> StructField:
    return StructField(name, kind, nullable=False, metadata={"comment": comment})


def _perhaps(name: str, kind: DataType, comment: str) -> StructField:
    return StructField(name, kind, nullable=True, metadata={"comment": comment})


RECORDS: Final = StructType(
    [
        _always("cluster_id", _TEXT, "of the cluster"),
        _always("origin", _TEXT, "log, or snapshot: then the true start of what it says is unknown"),
        _always("offset", _LONG, "of the record; from a snapshot, the last offset that it stands for"),
        _always("position", _INT, "of a row within its snapshot; 0 in the log"),
        _always("epoch", _INT, "of the controllers, in which it was written"),
        _perhaps("ts", _TIME, "when the controller wrote its batch; from a snapshot, the last before it"),
        _always("type", _TEXT, "RegisterBrokerRecord, LeaderChange...; Unknown, Malformed"),
        _perhaps("version", _INT, "of the record"),
        _perhaps("broker_id", _INT, "of the broker that it is about"),
        _perhaps("broker_epoch", _LONG, "of the broker that it is about"),
        _perhaps("topic_id", _TEXT, "of the topic that it is about, as Kafka prints it"),
        _perhaps("topic", _TEXT, "the name of the topic, if the record carries it"),
        _perhaps("partition", _INT, "of the topic"),
        _perhaps("leader", _INT, "null if the record does not say, -1 for none"),
        _perhaps("isr", _IDS, "in sync; null if the record does not say"),
        _perhaps("replicas", _IDS, "null if the record does not say"),
        _perhaps("fields", _TEXT, "all of the record, as JSON with Kafka's names"),
        _always("is_confirmed", _FLAG, "false where files do not prove that it was committed"),
        _perhaps("gap", _TEXT, "why offsets before it are missing: retention, loss; null if none is"),
    ]
)

GROUP_RECORDS: Final = StructType(
    [
        _always("cluster_id", _TEXT, "of the cluster"),
        _always("partition", _INT, "of __consumer_offsets"),
        _always("offset", _LONG, "of the record"),
        _always("epoch", _INT, "of the partition's leader, in which it was written"),
        _perhaps("ts", _TIME, "when the coordinator wrote it"),
        _always("type", _TEXT, "OffsetCommit, GroupMetadata...; Unknown, Malformed"),
        _perhaps("version", _INT, "of the value; null for a tombstone"),
        _perhaps("group_id", _TEXT, "of the group"),
        _perhaps("member_id", _TEXT, "of the member, if it is about one"),
        _perhaps("topic", _TEXT, "of a committed offset"),
        _perhaps("topic_partition", _INT, "of a committed offset"),
        _perhaps("committed_offset", _LONG, "null for a tombstone"),
        _always("is_tombstone", _FLAG, "it removes what its key names"),
        _perhaps("key_fields", _TEXT, "all of the key, as JSON with Kafka's names"),
        _perhaps("fields", _TEXT, "all of the value, likewise; null for a tombstone"),
        _always("is_confirmed", _FLAG, "false where files do not prove that it was committed"),
        _perhaps("gap", _TEXT, "why offsets before it are missing: compaction, marker, retention, loss"),
    ]
)

EVENTS: Final = StructType(
    [
        _always("cluster_id", _TEXT, "of the cluster"),
        _always("partition", _INT, "of __cluster_events; -1 from a journal"),
        _always("offset", _LONG, "in that partition; from a journal, the sequence"),
        _perhaps("ts", _TIME, "when it happened, by the clock of the node that says so"),
        _perhaps("node_id", _INT, "of the node that says so"),
        _perhaps("incarnation", _TEXT, "of that node: with node and sequence, the identity of an event"),
        _perhaps("sequence", _LONG, "in that node's journal; an event may be met twice"),
        _always("kind", _TEXT, "BrokerFenced, BrokerRegistered...; Malformed"),
        _perhaps("text", _TEXT, "in words, as the log of the node has it"),
        _perhaps("broker_id", _INT, "of the broker that it is about"),
        _perhaps("group_id", _TEXT, "of the group that it is about"),
        _perhaps("fields", _TEXT, "all of it, as JSON"),
    ]
)

PROBLEMS: Final = StructType(
    [
        _perhaps("cluster_id", _TEXT, "null if nobody knows whose it is"),
        _always("source", _TEXT, "a file or an address"),
        _perhaps("offset", _LONG, "where in the log, if that is known"),
        _always("kind", _TEXT, "one word: see docs/pipeline.md"),
        _always("text", _TEXT, "what is wrong, in words"),
        _always("found_ts", _TIME, "when it was noticed"),
    ]
)

ARROW_IDS: Final = pa.list_(pa.field("element", pa.int32(), nullable=False))
_ARROW: Final[dict[DataType, pa.DataType]] = {
    _TEXT: pa.string(),
    _INT: pa.int32(),
    _LONG: pa.int64(),
    _TIME: pa.timestamp("us", tz="UTC"),
    _FLAG: pa.bool_(),
    _IDS: ARROW_IDS,
}


def arrow_schema(table: StructType) -> pa.Schema:
    """The same table for Arrow, to the letter: Spark compares the two.

    >>> arrow_schema(PROBLEMS).field("offset").type
    DataType(int64)
    """
    return pa.schema(
        [pa.field(one.name, _ARROW[one.dataType], nullable=one.nullable) for one in table.fields]
    )
