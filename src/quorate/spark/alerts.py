"""Live alerts: a stateful stream that follows the log of each cluster and says at once what is wrong.

    records = spark.readStream.format("quorate").option("log", "metadata").load()
    alerts.raised(alerts.watch(records)).writeStream.format("console").start()

The same stream tells which intervals are over: `closed_broker_states` and `closed_partition_leaders` are the
rows of `history.broker_states` and `history.partition_leaders` that have an end, as they get it. What is
still open is in the state of the stream.

A cluster is one key, because its log has one order: transactions and snapshots could not be followed
otherwise. Within a batch Spark promises no order, so the rows are sorted by offset. Spark 4.1 or newer is
needed, and the state store that `quorate.spark.session` sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as fn
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorate.spark.alerts_fold import CLOSED, Fold, Limits, Signal
from quorate.spark.history_brokers import says_fenced, says_shutting_down
from quorate.spark.history_schemas import BROKER_STATES, PARTITION_LEADERS, column
from quorate.spark.intervals import declared

__all__ = [
    "ALERTS",
    "WATCHED",
    "Watcher",
    "closed_broker_states",
    "closed_partition_leaders",
    "raised",
    "signals",
    "watch",
]

_TYPES: Final = (
    "RegisterBrokerRecord",
    "BrokerRegistrationChangeRecord",
    "UnregisterBrokerRecord",
    "FenceBrokerRecord",
    "UnfenceBrokerRecord",
    "TopicRecord",
    "RemoveTopicRecord",
    "PartitionRecord",
    "PartitionChangeRecord",
    "BeginTransactionRecord",
    "EndTransactionRecord",
    "AbortTransactionRecord",
)

WATCHED: Final = StructType(
    [
        StructField("cluster_id", StringType()),
        StructField("kind", StringType()),
        StructField("broker_id", IntegerType()),
        StructField("broker_epoch", LongType()),
        StructField("state", StringType()),
        StructField("topic_id", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("leader", IntegerType()),
        StructField("leader_epoch", IntegerType()),
        StructField("origin", StringType()),
        StructField("start_offset", LongType()),
        StructField("end_offset", LongType()),
        StructField("start_ts_ms", LongType()),
        StructField("end_ts_ms", LongType()),
        StructField("is_end_known", BooleanType()),
        StructField("text", StringType()),
    ]
)
ALERTS: Final = StructType(
    [
        column("cluster_id", StringType(), "of the cluster"),
        column("ts", TimestampType(), "when it happened, by the controller's clock"),
        column("offset", LongType(), "of the record that made it one"),
        column("kind", StringType(), "fenced, leaderless or flapping"),
        column("text", StringType(), "what happened, in words"),
    ]
)


def watch(records: DataFrame, limits: Limits | None = None) -> DataFrame:
    """Everything that the stream has to say: see `raised` and the `closed_` functions for what it means."""
    grouped = signals(records).groupBy("cluster_id")
    return grouped.transformWithState(Watcher(limits or Limits()), WATCHED, "Append", "None")


def raised(watched: DataFrame) -> DataFrame:
    """The alerts: a broker that served was fenced, a partition lost its leader and got no other, a broker is
    fenced again and again."""
    rows = watched.where(fn.col("kind") != CLOSED)
    said = rows.select(
        "cluster_id",
        fn.timestamp_millis("start_ts_ms").alias("ts"),
        fn.col("start_offset").alias("offset"),
        "kind",
        "text",
    )
    return declared(said, ALERTS)


def closed_broker_states(watched: DataFrame) -> DataFrame:
    """The rows of `history.broker_states` that are over."""
    return declared(_spans(watched.where(fn.col("broker_id").isNotNull())), BROKER_STATES)


def closed_partition_leaders(watched: DataFrame) -> DataFrame:
    """The rows of `history.partition_leaders` that are over."""
    return declared(_spans(watched.where(fn.col("partition").isNotNull())), PARTITION_LEADERS)


def signals(records: DataFrame) -> DataFrame:
    """What records say that matters for alerts, and no more: it travels to Python. The columns of
    `Signal`."""
    is_whole = fn.col("type") == "PartitionRecord"
    leader_epoch = fn.get_json_object("fields", "$.leaderEpoch").try_cast("int")
    is_of_partition = fn.col("type").isin("PartitionRecord", "PartitionChangeRecord")
    is_of_broker = fn.col("type").isin(*_TYPES[:5])
    return records.where(
        fn.col("type").isin(*_TYPES) & (~is_of_partition | fn.col("leader").isNotNull())
    ).select(
        "cluster_id",
        "origin",
        "offset",
        "position",
        fn.unix_millis("ts").alias("ts_ms"),
        "type",
        "broker_id",
        "broker_epoch",
        fn.when(is_of_broker, says_fenced()).alias("is_fenced"),
        fn.when(is_of_broker, says_shutting_down()).alias("is_shutting_down"),
        "topic_id",
        "topic",
        "partition",
        "leader",
        fn.when(is_whole, leader_epoch).alias("leader_epoch"),
    )


class Watcher(StatefulProcessor):
    """Keeps a `Fold` of each cluster between batches."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._subjects = handle.getMapState("subjects", "subject string", "content string")
        self._progress = handle.getValueState("progress", "content string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N803
        found = sorted((Signal(*row) for row in rows), key=lambda one: (one.offset, one.origin, one.position))
        if not found:
            return
        progress = self._progress.get() if self._progress.exists() else None
        fold = Fold(
            found[0].cluster_id,
            load=self._load,
            names=lambda: [name for (name,) in self._subjects.keys()],  # noqa: SIM118
            progress=None if progress is None else progress[0],
            limits=self._limits,
        )
        for signal in found:
            for row in fold.take(signal):
                yield Row(**{name: row.get(name) for name in WATCHED.names})
        subjects, kept = fold.save()
        for subject, content in subjects.items():
            if content is not None:
                self._subjects.updateValue((subject,), (content,))
            elif self._subjects.containsKey((subject,)):
                self._subjects.removeKey((subject,))
        self._progress.update((kept,))

    def close(self) -> None:
        """Nothing is open."""

    def _load(self, subject: str) -> str | None:
        found = self._subjects.getValue((subject,)) if self._subjects.exists() else None
        return None if found is None else found[0]


def _spans(watched: DataFrame) -> DataFrame:
    return watched.where(fn.col("kind") == CLOSED).select(
        "*",
        fn.timestamp_millis("start_ts_ms").alias("start_ts"),
        fn.timestamp_millis("end_ts_ms").alias("end_ts"),
        (fn.col("origin") == "log").alias("is_start_known"),
    )
