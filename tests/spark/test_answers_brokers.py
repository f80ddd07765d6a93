"""What brokers did, and what it meant for partitions: answers to logs that tell a story."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from story_logs import bad_day, clock, flappy_day

from quorate.spark import answers, history
from quorate.spark.schemas import EVENTS

pytestmark = pytest.mark.spark

Rows = list[dict[str, Any]]


class Day:
    """All tables of history of two stories, computed once."""

    def __init__(self, spark: SparkSession) -> None:
        stories = [bad_day(), flappy_day()]
        table = pa.concat_tables([one.table() for one in stories])
        self.records = spark.createDataFrame(table).cache()
        self.broker_states = history.broker_states(self.records).cache()
        self.partition_leaders = history.partition_leaders(self.records).cache()
        self.partition_isr = history.partition_isr(self.records).cache()
        self.partition_states = history.partition_states(self.records).cache()
        self.configs = history.configs(self.records).cache()
        fenced = {"epoch": 3, "check": "missed heartbeats", "ms_since_heartbeat": 9000}
        self.events = spark.createDataFrame(
            [
                (
                    "bad-day",
                    -1,
                    7,
                    clock(100),
                    3000,
                    "i",
                    7,
                    "BrokerFenced",
                    "...",
                    2,
                    None,
                    json.dumps(fenced),
                )
            ],
            EVENTS,
        )
        self.failovers = answers.failovers(
            self.records, self.broker_states, self.partition_leaders, self.events
        ).cache()


@pytest.fixture(scope="module")
def day(spark: SparkSession) -> Day:
    return Day(spark)


def of(table: DataFrame, cluster_id: str) -> Rows:
    rows: Rows = table.where(f"cluster_id = '{cluster_id}'").toArrow().to_pylist()
    return rows


def test_a_failover_says_why_and_how_long(day: Day) -> None:
    fenced, first, second, third = sorted(of(day.failovers, "bad-day"), key=lambda row: row["offset"])

    assert (fenced["broker_id"], fenced["cause"], fenced["ts"]) == (2, "fenced", clock(100))
    assert (fenced["check"], fenced["detection_ms"]) == ("missed heartbeats", 9000)
    assert fenced["last_heartbeat_ts"] == clock(91)
    assert (fenced["partitions_moved"], fenced["partitions_leaderless"]) == (1, 1)
    assert (fenced["election_ms"], fenced["recovery_ms"], fenced["leaderless_ms_max"]) == (0, 10_000, 10_000)
    assert (fenced["returned_ts"], fenced["outage_ms"]) == (clock(110), 10_000)
    assert fenced["returned_epoch"] == fenced["broker_epoch"]
    assert (first["broker_id"], first["cause"], first["partitions_moved"]) == (1, "controlled shutdown", 1)
    assert (first["check"], first["detection_ms"]) == (None, None)
    assert (second["broker_id"], second["partitions_moved"], second["partitions_leaderless"]) == (2, 1, 1)
    assert second["recovery_ms"] == 6_000
    assert (third["broker_id"], third["cause"], third["partitions_moved"]) == (3, "registered anew", 3)


def test_a_broker_that_leads_nothing_leaves_too(day: Day) -> None:
    *flaps, last = sorted(of(day.failovers, "flappy-day"), key=lambda row: row["offset"])

    assert [row["partitions_moved"] for row in flaps] == [1, 1, 1]
    assert (last["cause"], last["partitions_moved"], last["returned_ts"]) == ("unregistered", 0, None)
    assert (last["recovery_ms"], last["outage_ms"], last["last_heartbeat_ts"]) == (None, None, None)


def test_flapping_is_told_from_leaving_once(day: Day) -> None:
    rows = {row["broker_id"]: row for row in of(answers.flapping(day.broker_states), "flappy-day")}

    five, six = rows[5], rows[6]
    assert (five["fence_count"], five["shutdown_count"], five["is_flapping"]) == (3, 0, True)
    assert (five["interval_ms_min"], five["interval_ms_median"]) == (600_000, 600_000)
    assert (five["first_ts"], five["last_ts"], five["fenced_ms"]) == (clock(600), clock(1800), 45_000)
    assert (six["fence_count"], six["is_flapping"]) == (0, False)


def test_a_rolling_restart_is_found_and_judged(day: Day) -> None:
    table = answers.rolling_restarts(day.records, day.broker_states, day.partition_leaders, day.partition_isr)
    first, second, third = sorted(of(table, "bad-day"), key=lambda row: row["step"])

    assert [row["broker_id"] for row in (first, second, third)] == [1, 2, 3]
    assert {row["restart"] for row in (first, second, third)} == {1}
    assert (first["was_controlled"], first["leaderships_moved"], first["leaderships_lost"]) == (True, 1, 0)
    assert (first["did_leadership_move_first"], first["was_isr_whole_before_next"]) == (True, True)
    assert first["is_good"]
    assert (first["left_ts"], first["down_ts"], first["returned_ts"]) == (clock(300), clock(302), clock(306))
    assert first["downtime_ms"] == 6_000
    assert (second["was_controlled"], second["leaderships_moved"], second["leaderships_lost"]) == (True, 1, 1)
    assert (second["did_leadership_move_first"], second["under_replicated_before_next"]) == (False, 3)
    assert (second["was_isr_whole_before_next"], second["is_good"]) == (False, False)
    assert (third["was_controlled"], third["leaderships_lost"]) == (False, 3)
    assert (third["was_isr_whole_before_next"], third["is_good"]) == (None, False)
    assert of(table, "flappy-day") == []


def test_availability_counts_every_leaderless_second(day: Day) -> None:
    table = answers.availability(day.partition_states, day.configs, day.records)
    rows = of(table, "bad-day")
    by_level: dict[str, Rows] = {}
    for row in rows:
        by_level.setdefault(row["level"], []).append(row)

    topics = {row["topic"]: row for row in by_level["topic"]}
    solo, orders = topics["solo"], topics["orders"]
    # leaderless from 100 to 110 and from 312 to 316; there from 3 to 400
    assert (solo["leaderless_ms"], solo["observed_ms"], solo["leaderless_count"]) == (14_000, 397_000, 2)
    assert solo["leaderless_share"] == pytest.approx(14 / 397)
    assert solo["leaderless_nines"] == pytest.approx(1.4527, abs=1e-4)
    assert (orders["leaderless_ms"], orders["leaderless_nines"]) == (0, None)
    # one in sync instead of two, from 320 to 325, three partitions
    assert orders["under_min_isr_ms"] == 15_000
    assert solo["under_min_isr_ms"] == 0
    (cluster,) = by_level["cluster"]
    assert (cluster["partitions"], cluster["leaderless_ms"]) == (4, 14_000)
    assert cluster["observed_ms"] == 397_000 + 3 * 398_000
    brokers = {row["broker_id"]: row["leaderless_ms"] for row in by_level["broker"]}
    assert brokers == {1: 0, 2: 14_000, 3: 0}
    assert len(by_level["partition"]) == 4


def test_min_isr_is_that_of_the_time(spark: SparkSession) -> None:
    from story_logs import Story

    story = Story("changing")
    story.elect(0, 3000)
    story.create(0, "a", [1, 2, 3])
    story.create(0, "b", [1, 2, 3], min_insync_replicas="3")
    story.write(10, story.change("a", 0, isr=[1]), story.change("b", 0, isr=[1, 2]))
    story.write(20, story.set("", "min.insync.replicas", "2"))  # of the cluster
    story.write(30, story.set("a", "min.insync.replicas", "1"), story.set("b", "min.insync.replicas", None))
    story.write(40, story.set("a", "min.insync.replicas", "9"))  # more than there are replicas
    story.write(50, story.change("a", 0, isr=[1, 2, 3]))
    story.remove(60, "a")
    story.write(100, story.set("", "min.insync.replicas", None))
    records = spark.createDataFrame(story.table())

    table = answers.availability(history.partition_states(records), history.configs(records), records)

    found = {row["topic"]: row for row in table.where("level = 'topic'").toArrow().to_pylist()}
    # a: from 20 to 30 too few for the cluster, from 40 to 50 too few for itself; deleted at 60
    assert (found["a"]["under_min_isr_ms"], found["a"]["observed_ms"]) == (20_000, 60_000)
    # b: from 10 to 30 too few for itself; then the cluster's 2 is enough
    assert (found["b"]["under_min_isr_ms"], found["b"]["observed_ms"]) == (20_000, 100_000)


def test_imbalance_is_what_is_not_led_by_the_first_replica(day: Day) -> None:
    rows = {
        row["broker_id"]: row for row in of(answers.imbalance(day.partition_states, day.records), "bad-day")
    }

    assert {broker_id: row["leader_count"] for broker_id, row in rows.items()} == {1: 3, 2: 1, 3: 0}
    assert {broker_id: row["replica_count"] for broker_id, row in rows.items()} == {1: 3, 2: 4, 3: 3}
    assert (rows[2]["preferred_count"], rows[2]["preferred_led_count"]) == (2, 1)
    assert (rows[3]["imbalance_share"], rows[1]["imbalance_share"]) == (1.0, 0.0)
    assert rows[1]["leader_share"] == 0.75
    # orders-0 was led by others from 300 to 320
    assert rows[1]["imbalance_time_share"] == pytest.approx(20 / 398)


def test_incidents_are_told_in_words(day: Day, spark: SparkSession) -> None:
    from quorate.spark.answers_schemas import REBALANCES

    table = answers.incidents(
        day.failovers,
        history.controller_terms(day.records),
        day.partition_leaders,
        spark.createDataFrame([], REBALANCES),
        day.events,
    )
    rows = sorted(of(table, "bad-day"), key=lambda row: (row["ts"], row["kind"]))

    assert [row["text"] for row in rows] == [
        "broker 2 was fenced at 12:01:40 after 9.0 s without a heartbeat; 1 partition moved;"
        " 1 was leaderless for 10.0 s",
        "1 partition of solo had no leader from 12:01:40 for 10.0 s",
        "node 3001 became the controller at 12:03:20, epoch 2",
        "broker 1 began a controlled shutdown at 12:05:00; 1 partition moved",
        "broker 2 began a controlled shutdown at 12:05:10; 1 partition moved; 1 was leaderless for 4.0 s",
        "1 partition of solo had no leader from 12:05:12 for 4.0 s",
        "broker 3 was replaced by a new incarnation at 12:05:20; 3 partitions moved",
    ]


def test_answers_take_tables_without_rows(spark: SparkSession) -> None:
    from inspect import Parameter, signature

    from quorate.spark.raw_tables import RAW_TABLES

    tables = {name: spark.createDataFrame([], schema) for name, schema in RAW_TABLES.items()}
    for module in (history, answers):
        for name, schema in module.TABLES.items():
            function = getattr(module, name)
            inputs = [
                one.name for one in signature(function).parameters.values() if one.default is Parameter.empty
            ]
            tables[name] = function(*[tables[one] for one in inputs])
            found = [(one.name, one.dataType.simpleString(), one.metadata) for one in tables[name].schema]
            assert found == [(one.name, one.dataType.simpleString(), one.metadata) for one in schema]
    assert tables["incidents"].count() == 0
