"""The history of clusters, as tables of intervals `[start, end)` in offsets and in time.

    from quorate.spark import history, session

    spark = session()
    records = spark.read.parquet("warehouse/records")
    history.broker_states(records).where("state = 'fenced'").show()
    records.transform(history.partition_leaders).where("leader = -1").show()

Each function takes a raw table (`records` or `group_records`, see docs/pipeline.md) and gives one of the
tables of docs/history.md. None of them computes anything until it is asked for rows, and each works on any
part of the log and on many clusters at once."""

from __future__ import annotations

from quorate.spark.history_brokers import broker_sessions, broker_states, controller_terms
from quorate.spark.history_groups import committed_offsets, group_generations, group_members
from quorate.spark.history_partitions import partition_isr, partition_leaders, partition_states
from quorate.spark.history_schemas import TABLES
from quorate.spark.history_topics import configs, features, topics

__all__ = [
    "TABLES",
    "broker_sessions",
    "broker_states",
    "committed_offsets",
    "configs",
    "controller_terms",
    "features",
    "group_generations",
    "group_members",
    "partition_isr",
    "partition_leaders",
    "partition_states",
    "topics",
]
