"""Problems: what is wrong with files is found, named, and does not stop the rest."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from metadata_directories import CLUSTER, copy_of, data, leads
from pyspark.sql import SparkSession

from quorate.spark.found_problems import Problem
from quorate.spark.metadata_columns import record_batch
from quorate.spark.problems import KINDS, file_problems, problem_batch, problems_in, replaced_rows
from quorate.spark.schemas import PROBLEMS, RECORDS

EPOCH_1 = [leads(0, 1), data(1, 1, 3), data(4, 1)]


def test_all_logs_under_a_path_are_looked_at(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, [*EPOCH_1, b"\0" * 30]))
    groups, events = root / "__consumer_offsets-0", root / "events"
    groups.mkdir()
    events.mkdir()
    (groups / f"{0:020d}.log").write_bytes(b"a letter" * 30)
    (events / f"events-{0:020d}.jsonl").write_text('{"kind"')

    found = file_problems([str(tmp_path)])

    assert [(one.kind, Path(one.source).parent.name) for one in found] == [
        ("truncated", "__cluster_metadata-0"),
        ("foreign", "__consumer_offsets-0"),
        ("truncated", "events"),
    ]
    assert {one.cluster_id for one in found} == {CLUSTER}
    assert {one.kind for one in found} <= KINDS.keys()


def test_a_path_needs_one_log_and_not_all(tmp_path: Path) -> None:
    copy_of(tmp_path / "logs", (0, EPOCH_1))
    (tmp_path / "empty").mkdir()

    assert file_problems([str(tmp_path / "logs")]) == []
    assert [one.kind for one in file_problems([str(tmp_path / "empty")])] == ["missing"]


def test_problems_are_rows() -> None:
    when = datetime(2026, 1, 2, tzinfo=UTC)

    (row,) = problem_batch([Problem("corrupt", "/a.log", "why", "c1", 7)], when).to_pylist()

    assert row == {
        "cluster_id": "c1",
        "source": "/a.log",
        "offset": 7,
        "kind": "corrupt",
        "text": "why",
        "found_ts": when,
    }
    assert list(row) == PROBLEMS.fieldNames()


@pytest.mark.spark
def test_rows_say_what_is_wrong_with_them(spark: SparkSession) -> None:
    log = leads(0, 1) + data(1, 1, value=bytes.fromhex("01630000")) + data(9, 1, value=b"") + data(10, 1)
    rows = spark.createDataFrame(record_batch(CLUSTER, log).to_pylist(), RECORDS)

    found = problems_in(rows, "/logs").collect()

    assert [(one.offset, one.kind) for one in sorted(found, key=lambda one: one.offset)] == [
        (1, "unknown"),
        (9, "malformed"),
    ]
    assert problems_in(rows, "/logs").columns == PROBLEMS.fieldNames()


@pytest.mark.spark
def test_rows_that_were_replaced_are_found(spark: SparkSession) -> None:
    before = record_batch(CLUSTER, leads(0, 1) + data(1, 1, 3)).to_pylist()
    now = record_batch(CLUSTER, leads(0, 1) + data(1, 1) + leads(2, 2) + data(3, 2)).to_pylist()

    found = replaced_rows(
        spark.createDataFrame(before, RECORDS), spark.createDataFrame(now, RECORDS), "/logs"
    ).collect()

    assert sorted((one.offset, one.text) for one in found) == [
        (2, "it was of epoch 1 when it was read, and is of epoch 2 now"),
        (3, "it was of epoch 1 when it was read, and is of epoch 2 now"),
    ]
