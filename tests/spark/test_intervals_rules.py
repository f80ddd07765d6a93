"""The rules of intervals, each on a thing of its own in one small table."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from story_logs import clock

from quorate.spark.intervals import following, identified, in_order, intervals, milliseconds

pytestmark = pytest.mark.spark

SCHEMA = (
    "name string, state string, at_offset bigint, at_ts timestamp, offset bigint, origin string,"
    " position int, is_gone boolean, cut struct<offset: bigint, ts: timestamp, is_known: boolean>"
)


def change(name: str, state: str | None, at: int, **other: Any) -> tuple[Any, ...]:
    """A change at an offset; the time is as many seconds after noon, unless it is said otherwise."""
    seconds, offset = other.get("seconds", at), other.get("offset", at)
    cut = other.get("cut")
    return (
        name,
        state,
        at,
        clock(seconds),
        offset,
        other.get("origin", "log"),
        0,
        other.get("is_gone", False),
        None if cut is None else (cut, clock(cut), other.get("is_cut_known", True)),
    )


CHANGES = [
    change("changes", "a", 1),
    change("changes", "b", 5),
    change("says the same again", "a", 1),
    change("says the same again", "a", 5),
    change("ends", "a", 1),
    change("ends", None, 7, is_gone=True),
    change("comes back as it was", "a", 1),
    change("comes back as it was", None, 5, is_gone=True),
    change("comes back as it was", "a", 9),
    change("has no state", None, 1),
    change("has no state", "a", 4),
    change("clock steps back", "a", 1, seconds=100),
    change("clock steps back", "b", 2, seconds=40),
    change("is cut", "a", 1, cut=6),
    change("is cut and returns", "a", 1, cut=6),
    change("is cut and returns", "a", 8),
    change("is named by the cut", "a", 1, cut=6, is_cut_known=False),
    change("is named by the cut", "a", 6, origin="snapshot"),
    change("is not in the snapshot", "a", 1, cut=6, is_cut_known=False),
    change("is other in the snapshot", "a", 1, cut=6, is_cut_known=False),
    change("is other in the snapshot", "b", 6, origin="snapshot"),
    change("changes twice at once", "a", 1),
    change("changes twice at once", "b", 5, offset=3),
    change("changes twice at once", "a", 5, offset=4),
    change("comes and goes at once", "a", 5, offset=3),
    change("comes and goes at once", None, 5, offset=4, is_gone=True),
]

EXPECTED = {
    "changes": [("a", 1, 5, True, True), ("b", 5, None, True, None)],
    "says the same again": [("a", 1, None, True, None)],
    "ends": [("a", 1, 7, True, True)],
    "comes back as it was": [("a", 1, 5, True, True), ("a", 9, None, True, None)],
    "has no state": [(None, 1, 4, True, True), ("a", 4, None, True, None)],
    "clock steps back": [("a", 1, 2, True, True), ("b", 2, None, True, None)],
    "is cut": [("a", 1, 6, True, True)],
    "is cut and returns": [("a", 1, 6, True, True), ("a", 8, None, True, None)],
    "is named by the cut": [("a", 1, None, True, None)],
    "is not in the snapshot": [("a", 1, 6, True, False)],
    "is other in the snapshot": [("a", 1, 6, True, False), ("b", 6, None, False, None)],
    "changes twice at once": [("a", 1, None, True, None)],
}


def test_every_rule(spark: SparkSession) -> None:
    changes = spark.createDataFrame(CHANGES, SCHEMA)

    followed = identified(changes, ["name"]).select("*", following(in_order()))
    spans = intervals(followed, ["name"], ["state"])

    rows = spans.select("*", milliseconds(spans.start_ts, spans.end_ts).alias("lasted_ms")).collect()
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in sorted(rows, key=lambda row: row.start_offset):
        span = (row.state, row.start_offset, row.end_offset, row.is_start_known, row.is_end_known)
        found.setdefault(row.name, []).append(span)
    assert found == EXPECTED
    assert [row.lasted_ms for row in rows if row.name == "clock steps back" and row.end_offset] == [-60_000]
