"""A cluster is broken on purpose, and the tables tell exactly what was done to it.

The story is that of `quorate demo`: it leaves its directories, and a file that says what it did and when.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from quorate.spark.origins import Origin, files_in
from quorate.spark.pipeline import update
from quorate.spark.report import write_report
from quorate.spark.views import Tables, held_tables
from quorate.spark.warehouse import Warehouse
from whole_demo import Demo

pytestmark = pytest.mark.spark

Rows = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def directory(demo: Demo) -> Path:
    directory = Path(demo.directory)
    assert (directory / "story.json").exists(), demo.output
    return directory


@pytest.fixture(scope="module")
def origins(directory: Path) -> list[Origin]:
    """What the nodes left; not what the demo's own pipeline made of it."""
    return files_in([str(node) for node in sorted(directory.glob("node-*"))])


@pytest.fixture(scope="module")
def steps(directory: Path) -> list[dict[str, Any]]:
    return json.loads((directory / "story.json").read_text())["steps"]


@pytest.fixture(scope="module")
def warehouse(
    spark: SparkSession, origins: list[Origin], tmp_path_factory: pytest.TempPathFactory
) -> Warehouse:
    warehouse = Warehouse.create(tmp_path_factory.mktemp("story") / "house")
    done = update(spark, warehouse, origins)
    assert done.has_new_answers
    return warehouse


@pytest.fixture(scope="module")
def rows(spark: SparkSession, warehouse: Warehouse) -> Rows:
    with held_tables(spark, warehouse) as tables:
        found: dict[str, list[dict[str, Any]]] = {}
        return lambda name: found.setdefault(name, _collected(tables, name))


def _collected(tables: Tables, name: str) -> list[dict[str, Any]]:
    frame: DataFrame = tables[name]
    return [row.asDict() for row in frame.collect()]


def steps_of(steps: list[dict[str, Any]], what: str, role: str) -> list[dict[str, Any]]:
    return [step for step in steps if step["what"] == what and step.get("role") == role]


def within(offset: int, step: dict[str, Any]) -> bool:
    return step["metadata_offset_before"] <= offset < step["metadata_offset_after"]


def ms(row: dict[str, Any], name: str) -> float:
    return row[name].timestamp() * 1000


def test_the_killed_broker_was_fenced_when_the_story_says(rows: Rows, steps: list[dict[str, Any]]):
    (kill,) = steps_of(steps, "kill", "broker")
    (restart,) = steps_of(steps, "restart", "broker")
    fenced = [
        row
        for row in rows("broker_states")
        if row["broker_id"] == kill["node"] and row["state"] == "fenced" and within(row["start_offset"], kill)
    ]
    assert len(fenced) == 1
    assert fenced[0]["broker_epoch"] == kill["epoch"]
    assert kill["at_ms"] < ms(fenced[0], "start_ts") <= kill["until_ms"]
    assert abs(ms(fenced[0], "start_ts") - kill["fenced_at_ms"]) < 2000
    back = [
        row
        for row in rows("broker_states")
        if row["state"] == "unfenced" and row["broker_epoch"] == restart["epoch"]
    ]
    assert [row["broker_id"] for row in back] == [kill["node"]]
    assert within(back[0]["start_offset"], restart)


def test_the_failover_moved_the_partitions_that_the_broker_led(rows: Rows, steps: list[dict[str, Any]]):
    (kill,) = steps_of(steps, "kill", "broker")
    (failover,) = [row for row in rows("failovers") if row["cause"] == "fenced"]
    assert failover["broker_id"] == kill["node"]
    assert failover["broker_epoch"] == kill["epoch"]
    assert within(failover["offset"], kill)
    moved = [
        (row["topic"], row["partition"])
        for row in rows("partition_leaders")
        if row["leader"] == kill["node"] and row["end_offset"] is not None and within(row["end_offset"], kill)
    ]
    assert len(moved) == kill["leaderships"]
    assert failover["partitions_moved"] + failover["partitions_leaderless"] == len(moved)
    assert failover["returned_epoch"] == steps_of(steps, "restart", "broker")[0]["epoch"]
    # The journal of the controller knows when it last heard of the broker.
    assert failover["detection_ms"] is not None
    assert 2000 <= failover["detection_ms"] <= ms(failover, "ts") - kill["at_ms"] + 2000


def test_restarts_are_found_and_known_to_be_controlled(rows: Rows, steps: list[dict[str, Any]]):
    rolled = steps_of(steps, "roll", "broker")
    found = sorted(rows("rolling_restarts"), key=lambda row: row["new_epoch"])
    assert [(row["broker_id"], row["new_epoch"]) for row in found[-3:]] == [
        (step["node"], step["epoch"]) for step in rolled
    ]
    for row, step in zip(found[-3:], rolled, strict=True):
        assert row["was_controlled"], row
        assert row["did_leadership_move_first"], row
        assert row["leaderships_moved"] >= step["leaderships"], row
        assert step["at_ms"] - 1000 <= ms(row, "left_ts") <= ms(row, "returned_ts") <= step["until_ms"] + 1000


def test_terms_of_controllers(rows: Rows, steps: list[dict[str, Any]]):
    (kill,) = steps_of(steps, "kill", "controller")
    terms = {row["epoch"]: row for row in rows("controller_terms")}
    assert terms[kill["epoch"]]["controller_id"] == kill["node"]
    assert terms[kill["successor_epoch"]]["controller_id"] == kill["successor"]
    assert kill["at_ms"] < ms(terms[kill["successor_epoch"]], "start_ts") <= kill["until_ms"]


def test_nothing_else_happened_to_brokers(rows: Rows, steps: list[dict[str, Any]]):
    brokers = {step["node"] for step in steps_of(steps, "roll", "broker")}
    before_the_end = max(step["metadata_offset_after"] for step in steps)
    causes = sorted(row["cause"] for row in rows("failovers") if row["offset"] < before_the_end)
    assert causes == ["controlled shutdown"] * len(brokers) + ["fenced"]
    assert [row for row in rows("problems") if row["kind"] not in ("truncated", "diverged")] == []


def test_incidents_say_it_in_words(rows: Rows, steps: list[dict[str, Any]]):
    (kill,) = steps_of(steps, "kill", "broker")
    said = [row["text"] for row in rows("incidents")]
    assert any(f"broker {kill['node']} was fenced" in text and "without a heartbeat" in text for text in said)


def test_the_report_tells_the_same(spark: SparkSession, warehouse: Warehouse, rows: Rows, tmp_path: Path):
    assert write_report(spark, warehouse, tmp_path / "report.html") < 1_000_000
    page = (tmp_path / "report.html").read_text()
    for row in rows("incidents"):
        assert row["text"].partition(";")[0] in page


def test_running_again_changes_nothing(spark: SparkSession, warehouse: Warehouse, origins: list[Origin]):
    before = warehouse.contents()
    done = update(spark, warehouse, origins)
    after = warehouse.contents()
    assert (done.rows, done.has_new_answers) == ({}, False)
    assert (after.tables, after.answers, after.streams) == (before.tables, before.answers, before.streams)
