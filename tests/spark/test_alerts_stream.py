"""Alerts: the fold against a plain oracle without Spark, and once as a stream against the tables of
history."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from naive_fold import naive_history
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester
from random_logs import Log, as_table, random_logs
from story_logs import Story, bad_day, clock, flappy_day

from quorate.spark import alerts, history
from quorate.spark.alerts_fold import Limits, Signal

pytestmark = pytest.mark.spark

LIMITS = Limits(flapping_count=3, flapping_ms=3_600_000)


def signals_of(rows: list[dict[str, Any]]) -> list[Signal]:
    """What `signals` selects, by hand."""
    found = []
    for row in rows:
        fields = json.loads(row["fields"] or "{}") if row["type"] not in ("Unknown", "Malformed") else {}
        is_broker = row["type"] in alerts._TYPES[:5]
        fenced = None
        if row["type"] == "RegisterBrokerRecord":
            fenced = fields["fenced"]
        elif row["type"] == "BrokerRegistrationChangeRecord" and fields.get("fenced"):
            fenced = fields["fenced"] == 1
        if row["type"] in ("FenceBrokerRecord", "UnfenceBrokerRecord"):
            fenced = row["type"] == "FenceBrokerRecord"
        leaving = bool(fields.get("inControlledShutdown")) if is_broker else None
        if row["type"] != "RegisterBrokerRecord" and not leaving:
            leaving = None
        if row["type"] not in alerts._TYPES or (
            row["type"].startswith("Partition") and row["leader"] is None
        ):
            continue
        found.append(
            Signal(
                cluster_id=row["cluster_id"],
                origin=row["origin"],
                offset=row["offset"],
                position=row["position"],
                ts_ms=round(row["ts"].timestamp() * 1000),
                type=row["type"],
                broker_id=row["broker_id"],
                broker_epoch=row["broker_epoch"],
                is_fenced=fenced,
                is_shutting_down=leaving,
                topic_id=row["topic_id"],
                topic=row["topic"],
                partition=row["partition"],
                leader=row["leader"],
                leader_epoch=fields.get("leaderEpoch") if row["type"] == "PartitionRecord" else None,
            )
        )
    return found


def watched(signals: list[Signal], random: Random) -> list[dict[str, Any]]:
    """What the processor says, the log coming in batches of any size and each in any order."""
    tester = TwsTester(alerts.Watcher(LIMITS))
    found: list[dict[str, Any]] = []
    at = 0
    while at < len(signals):
        batch = signals[at : at + random.choice([1, 2, 7, 50, 300])]
        at += len(batch)
        rows = [Row(**one._asdict()) for one in random.sample(batch, len(batch))]
        found += [row.asDict() for row in tester.test((batch[0].cluster_id,), rows)]
    return found


def closed_in(log: Log, table: str, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row[name] for name in names)
        for row in naive_history(log)[table]
        if row["end_offset"] is not None
    )


SPAN = ("origin", "start_offset", "end_offset", "is_end_known")
STATES = ("broker_id", "broker_epoch", "state", *SPAN)
LEADERS = ("topic_id", "topic", "partition", "leader", "leader_epoch", *SPAN)


def test_closed_intervals_are_those_of_a_naive_fold() -> None:
    count = 0
    for log in random_logs(range(200, 208)):
        signals = signals_of(as_table([log]).to_pylist())
        if not signals or signals[-1].origin == "snapshot":
            continue  # whether a snapshot is over shows only when the log goes on
        rows = [row for row in watched(signals, Random(1)) if row["kind"] == "closed"]

        states = sorted(tuple(row[name] for name in STATES) for row in rows if row["broker_id"] is not None)
        leaders = sorted(tuple(row[name] for name in LEADERS) for row in rows if row["partition"] is not None)

        assert states == closed_in(log, "broker_states", STATES)
        assert leaders == closed_in(log, "partition_leaders", LEADERS)
        count += len(states) + len(leaders)
    assert count > 300


def alerts_in(story: Story) -> list[tuple[str, int, str]]:
    rows = watched(signals_of(story.table().to_pylist()), Random(2))
    return [
        (row["kind"], row["start_ts_ms"], row["text"])
        for row in sorted(rows, key=lambda row: row["start_offset"])
        if row["kind"] != "closed"
    ]


def test_a_bad_day_is_told_at_once() -> None:
    assert alerts_in(bad_day()) == [
        ("leaderless", _ms(100), "solo-0 has no leader; it was 2"),
        ("fenced", _ms(100), "broker 2 was fenced"),
        ("leaderless", _ms(312), "solo-0 has no leader; it was 2"),
    ]


def test_the_third_fencing_within_an_hour_is_flapping() -> None:
    assert alerts_in(flappy_day()) == [
        ("fenced", _ms(600), "broker 5 was fenced"),
        ("fenced", _ms(1200), "broker 5 was fenced"),
        ("fenced", _ms(1800), "broker 5 was fenced"),
        ("flapping", _ms(1800), "broker 5 was fenced 3 times in 1200 s"),
    ]


def _ms(seconds: float) -> int:
    return round(clock(seconds).timestamp() * 1000)


def test_a_stream_closes_what_history_closes(spark: SparkSession, tmp_path: Path) -> None:
    logs = [log for log in random_logs(range(2)) if log.cluster_id.startswith(("whole", "holed"))]
    days = [bad_day(), flappy_day()]
    table = as_table([*logs, *days])  # type: ignore[list-item]
    (tmp_path / "records").mkdir()
    third = len(table) // 3
    records = spark.createDataFrame(table)
    for number, rows in enumerate((table[:third], table[third : 2 * third], table[2 * third :])):
        pq.write_table(rows, tmp_path / "records" / f"{number}.parquet")

    stream = (
        spark.readStream.schema(records.schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "records"))
    )
    query = (
        alerts.watch(stream)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "watched"))
    )
    query.awaitTermination()

    watched = spark.read.parquet(str(tmp_path / "watched"))
    for closed, expected in (
        (alerts.closed_broker_states(watched), history.broker_states(records)),
        (alerts.closed_partition_leaders(watched), history.partition_leaders(records)),
    ):
        over = expected.where("end_offset is not null")
        assert closed.exceptAll(over).count() == 0
        assert over.exceptAll(closed).count() == 0
        assert over.count() > 0
    found = {(row["kind"], row["text"]) for row in alerts.raised(watched).toArrow().to_pylist()}
    assert {("fenced", "broker 2 was fenced"), ("flapping", "broker 5 was fenced 3 times in 1200 s")} <= found
