"""Availability against a naive sum over random logs. These set no `min.insync.replicas`, but configs of other
names on topics, brokers and the cluster: one of them is taken for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from naive_fold import naive_history
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from random_logs import as_table, random_logs

from quorate.spark import answers, history

pytestmark = pytest.mark.spark

Row = dict[str, Any]
Sums = tuple[int, int, int, int]
TAKEN = "a"
TOPIC, BROKER = 2, 4


def test_availability_is_the_sum_of_all_pieces(spark: SparkSession) -> None:
    logs = random_logs(range(6))
    records = spark.createDataFrame(as_table(logs)).cache()
    ends = {
        row["cluster_id"]: row["last"]["ts"]
        for row in records.groupBy("cluster_id")
        .agg(fn.max(fn.struct("offset", "ts")).alias("last"))
        .toArrow()
        .to_pylist()
    }
    configs = history.configs(records).select(
        "cluster_id",
        "resource_type",
        "resource_name",
        fn.when(fn.col("name") == TAKEN, "min.insync.replicas").alias("name"),
        "value",
        "start_offset",
        "end_offset",
        "start_ts",
        "end_ts",
    )
    table = answers.availability(history.partition_states(records), configs, records)
    found = {
        (row["cluster_id"], row["topic_id"], row["partition"]): sums_of(row)
        for row in table.where("level = 'partition'").toArrow().to_pylist()
    }

    expected: dict[tuple[str, str, int], Sums] = {}
    for log in logs:
        tables = naive_history(log)
        for (topic_id, partition), states in by_partition(tables["partition_states"]).items():
            sums = naive_sums(states, tables["configs"], ends[log.cluster_id])
            if sums is not None:
                expected[log.cluster_id, topic_id, partition] = sums
    assert len(expected) > 100
    assert {sums[1] > 0 for sums in expected.values()} == {True, False}
    assert {sums[2] > 0 for sums in expected.values()} == {True, False}
    assert found == expected


def sums_of(row: Row) -> Sums:
    return row["observed_ms"], row["leaderless_ms"], row["under_min_isr_ms"], row["leaderless_count"]


def by_partition(states: list[Row]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for state in sorted(states, key=lambda one: one["start_offset"]):
        found.setdefault((state["topic_id"], state["partition"]), []).append(state)
    return found


def naive_sums(states: list[Row], configs: list[Row], log_end: datetime) -> Sums | None:
    """None if it is never known where the replicas are."""
    observed = leaderless = under = losses = 0
    is_known, before = False, None
    for state in states:
        is_loss, before = state["leader"] == -1 and before != -1, state["leader"]
        if state["replicas"] is None:
            continue
        is_known = True
        losses += is_loss
        for start, lasted_ms in pieces(state, configs, log_end):
            observed += lasted_ms
            leaderless += lasted_ms * (state["leader"] == -1)
            needed = min(min_isr_at(start, state, configs), len(state["replicas"]))
            under += lasted_ms * (len(state["isr"]) < needed)
    return (observed, leaderless, under, losses) if is_known else None


def pieces(state: Row, configs: list[Row], log_end: datetime) -> Iterator[tuple[int, int]]:
    """Where each begins, and how long it lasts."""
    is_open = state["end_offset"] is None
    times = {state["start_offset"]: state["start_ts"]}
    for config in configs:
        if is_about(config, state):
            times |= {config["start_offset"]: config["start_ts"], config["end_offset"]: config["end_ts"]}
    first, end = state["start_offset"], state["end_offset"]
    inside = sorted(at for at in times if at is not None and at > first and (is_open or at < end))
    bounds = [(first, state["start_ts"]), *((at, times[at]) for at in inside)]
    ends = [*(ts for _, ts in bounds[1:]), log_end if is_open else state["end_ts"]]
    for (at, ts), until in zip(bounds, ends, strict=True):
        yield at, milliseconds(until) - milliseconds(ts)


def min_isr_at(offset: int, state: Row, configs: list[Row]) -> int:
    for resource in resources(state):
        for config in configs:
            is_set = config["start_offset"] <= offset and (
                config["end_offset"] is None or offset < config["end_offset"]
            )
            if config["name"] == TAKEN and resource_of(config) == resource and is_set:
                return int(config["value"])
    return 1


def is_about(config: Row, state: Row) -> bool:
    return config["name"] == TAKEN and resource_of(config) in resources(state)


def resources(state: Row) -> list[tuple[int, str]]:
    """Of which the first counts that says anything."""
    return [(TOPIC, state["topic"]), (BROKER, str(state["leader"])), (BROKER, "")]


def resource_of(config: Row) -> tuple[int, str]:
    return config["resource_type"], config["resource_name"]


def milliseconds(ts: datetime) -> int:
    return round(ts.timestamp() * 1000)
