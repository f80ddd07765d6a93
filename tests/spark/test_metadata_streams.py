"""The metadata log as a stream and at once, from files: the readers, driven as Spark drives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from metadata_directories import CLUSTER, copy_of, data, leads
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThanOrEqual, StringStartsWith

from quorate.spark.log_reader import DataLossError, LogStreamReader, PushingLogReader
from quorate.spark.metadata_options import Wanted, read_log_options, wanted_by
from quorate.spark.metadata_source import reader, stream_reader
from quorate.spark.schemas import RECORDS
from quorate.spark.stream_limits import ReadAllAvailable, ReadMaxRows
from quorate.storage.snapshots import SnapshotId

EPOCH_1 = [leads(0, 1), data(1, 1, 3), data(4, 1)]  # 0 to 4
EPOCH_2 = [leads(5, 2), data(6, 2, 2)]  # 5 to 7
EPOCH_3 = [leads(8, 3), data(9, 3)]


def stream_of(path: Path, **options: str) -> LogStreamReader:
    found = stream_reader({"path": str(path), **options}, RECORDS)
    assert isinstance(found, LogStreamReader)
    return found


def rows_between(stream: LogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        row
        for partition in stream.partitions(start, end)
        for batch in stream.read(partition)
        for row in batch.to_pylist()
    ]


def rows_at_once(path: Path | str, **options: str) -> list[dict[str, Any]]:
    found = reader({"path": str(path), **options}, RECORDS)
    return [row for part in found.partitions() for batch in found.read(part) for row in batch.to_pylist()]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


def test_a_stream_gives_what_is_confirmed_and_later_the_rest(tmp_path: Path) -> None:
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))
    stream = stream_of(tmp_path)
    start = stream.initialOffset()
    first = stream.latestOffset(start, ReadAllAvailable())
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2, *EPOCH_3]))
    second = stream.latestOffset(first, ReadAllAvailable())

    assert first == {"logs": {CLUSTER: {"next": 5, "epoch": 1}}}
    assert offsets(rows_between(stream, start, first)) == [0, 1, 2, 3, 4]
    assert offsets(rows_between(stream, first, second)) == [5, 6, 7]
    assert stream.latestOffset(second, ReadAllAvailable()) == second
    assert stream.partitions(second, second) == []
    json.dumps(second)


def test_after_a_restart_the_same_range_gives_the_same_rows(tmp_path: Path) -> None:
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2, *EPOCH_3]))
    stream = stream_of(tmp_path)
    first = stream.latestOffset(stream.initialOffset(), ReadMaxRows(3))
    second = stream.latestOffset(first, ReadMaxRows(3))

    again = rows_between(stream_of(tmp_path), first, second)

    assert offsets(again) == [3, 4, 5]
    assert again == rows_between(stream, first, second)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_any_limit_gives_every_row_once(tmp_path: Path, rows: int) -> None:
    copy_of(tmp_path / "a", (0, [*EPOCH_1, *EPOCH_2, *EPOCH_3]), cluster_id="a")
    late = copy_of(tmp_path / "b", (5, [*EPOCH_2, *EPOCH_3]), cluster_id="b", snapshots=[SnapshotId(6, 2)])
    stream = stream_of(tmp_path, maxOffsetsPerTrigger=str(rows))
    found: list[dict[str, Any]] = []
    position = stream.initialOffset()
    for _ in range(40):
        following = stream.latestOffset(position, stream.getDefaultReadLimit())
        found += rows_between(stream, position, following)
        position = following

    assert offsets([row for row in found if row["cluster_id"] == "a"]) == list(range(8))
    of_b = [(row["origin"], row["offset"]) for row in found if row["cluster_id"] == "b"]
    assert of_b == [("snapshot", 5)] * 4 + [("log", 6), ("log", 7)]
    assert late.exists()


def test_a_spark_that_does_not_say_where_it_is_is_given_all_at_first(tmp_path: Path) -> None:
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2, *EPOCH_3]))
    restarted = stream_of(tmp_path, maxOffsetsPerTrigger="1")

    assert restarted.latestOffset()["logs"][CLUSTER]["next"] == 8


def test_available_now_ends_at_what_there_was(tmp_path: Path) -> None:
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))
    stream = stream_of(tmp_path)
    stream.prepareForTriggerAvailableNow()
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2, *EPOCH_3]))

    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())

    assert end["logs"][CLUSTER]["next"] == 5
    assert stream.reportLatestOffset() == end


def test_a_log_that_moved_on_is_continued_with_its_snapshot(tmp_path: Path) -> None:
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))
    stream = stream_of(tmp_path)
    first = stream.latestOffset(stream.initialOffset(), ReadMaxRows(2))
    (tmp_path / "__cluster_metadata-0" / f"{0:020d}.log").unlink()
    copy_of(tmp_path, (8, [*EPOCH_3, leads(10, 4), data(11, 4)]), snapshots=[SnapshotId(8, 2)])

    second = stream.latestOffset(first, ReadAllAvailable())

    rows = rows_between(stream, first, second)
    assert [(row["origin"], row["offset"], row["gap"]) for row in rows] == [
        ("snapshot", 7, "retention"),
        *[("snapshot", 7, None)] * 3,
        ("log", 8, None),
        ("log", 9, None),
    ]


def test_a_log_that_was_replaced_after_it_was_read_is_noticed(tmp_path: Path) -> None:
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))
    first = stream_of(tmp_path).latestOffset({"logs": {}}, ReadAllAvailable())
    copy_of(tmp_path, (0, [EPOCH_1[0], leads(1, 7), data(2, 7, 9), leads(11, 8), data(12, 8)]))

    with pytest.raises(DataLossError, match="offset 4 was of epoch 1"):
        stream_of(tmp_path).latestOffset(first, ReadAllAvailable())
    forgiving = stream_of(tmp_path, failOnDataLoss="false")
    second = forgiving.latestOffset(first, ReadAllAvailable())
    assert offsets(rows_between(forgiving, first, second)) == [5, 6, 7, 8, 9, 10]


def test_at_once_what_is_not_confirmed_is_there_too(tmp_path: Path) -> None:
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))

    assert offsets(rows_at_once(tmp_path)) == list(range(8))
    assert offsets(rows_at_once(tmp_path, include="confirmed")) == list(range(5))
    assert offsets(rows_at_once(tmp_path, include="unconfirmed")) == [5, 6, 7]
    assert offsets(rows_at_once(tmp_path, startingOffset="3", endingOffset="6")) == [3, 4, 5]
    assert offsets(rows_at_once(tmp_path, recordTypes="LeaderChange")) == [0, 5]


def test_filters_are_taken_over(tmp_path: Path) -> None:
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))
    found = reader({"path": str(tmp_path), "pushdown": "true"}, RECORDS)
    assert isinstance(found, PushingLogReader)
    of_topics = StringStartsWith(("topic",), "a")
    range_ = [GreaterThan(("offset",), 3), LessThanOrEqual(("offset",), 6)]

    left = list(found.pushFilters([In(("type",), ("NoOpRecord",)), *range_, of_topics]))

    assert left == [*range_, of_topics]
    rows = [row for part in found.partitions() for batch in found.read(part) for row in batch.to_pylist()]
    assert offsets(rows) == [4, 6]


def test_filters_narrow_each_other() -> None:
    types = Wanted(types=frozenset({"A", "B"}))

    assert wanted_by([EqualTo(("type",), "B")], types)[0].types == {"B"}
    assert wanted_by([EqualTo(("offset",), 7)], Wanted())[0] == Wanted(first_offset=7, end_offset=8)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "one of the options"),
        ({"path": "/x", "controllers": "h:1"}, "expected one of them"),
        ({"path": "/x", "include": "some"}, "include='some'"),
        ({"path": "/x", "recordTypes": " "}, "recordTypes"),
        ({"path": "/x", "startingOffset": "-3"}, "startingOffset='-3'"),
        ({"path": "/x", "failOnDataLoss": "perhaps"}, "failOnDataLoss='perhaps'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_log_options(options)


def test_a_path_without_a_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no metadata log in"):
        rows_at_once(tmp_path)
