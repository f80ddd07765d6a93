"""Journals of nodes as rows of `events`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quorate.spark.event_source import reader, stream_reader
from quorate.spark.log_reader import LogStreamReader
from quorate.spark.schemas import EVENTS
from quorate.spark.stream_limits import ReadAllAvailable, ReadMaxRows


def line(sequence: int, kind: str = "ControllerRegistered", **fields: Any) -> str:
    head = {"version": 1, "node": 1, "incarnation": "i-1", "sequence": sequence, "time_ms": 1_000 + sequence}
    return json.dumps({**head, "kind": kind, **fields}) + "\n"


def journal(root: Path, **files: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "meta.properties").write_text("version=1\ncluster.id=c1\nnode.id=1\n")
    for begin, content in files.items():
        (root / f"events-{int(begin[1:]):020d}.jsonl").write_text(content)
    return root


def rows_of(root: Path, **options: str) -> list[dict[str, Any]]:
    found = reader({"path": str(root), **options}, EVENTS)
    return [row for part in found.partitions() for some in found.read(part) for row in some.to_pylist()]


def test_a_line_is_a_row_with_its_words(tmp_path: Path) -> None:
    fenced = line(3, "BrokerUnregistered", broker_id=2, epoch=7, was_fenced=True, partitions=0, check="asked")
    rows = rows_of(journal(tmp_path, f0=line(0, controller_id=1) + fenced))

    assert [row["offset"] for row in rows] == [0, 3]
    row = rows[1]
    assert (row["cluster_id"], row["partition"], row["node_id"]) == ("c1", -1, 1)
    assert (row["incarnation"], row["sequence"], row["kind"]) == ("i-1", 3, "BrokerUnregistered")
    assert (row["broker_id"], row["ts"].timestamp()) == (2, 1.003)
    assert json.loads(row["fields"])["epoch"] == 7


def test_an_event_that_is_known_has_the_words_of_the_log(tmp_path: Path) -> None:
    expired = line(0, "OffsetsExpired", group_id="g", offsets=3, retention_ms=5)
    (row,) = rows_of(journal(tmp_path, f0=expired))

    assert row["group_id"] == "g"
    assert row["text"].startswith("Expired 3 offsets of group g")


def test_events_of_a_newer_version_and_broken_lines_are_kept(tmp_path: Path) -> None:
    rows = rows_of(journal(tmp_path, f0=line(0, "SomethingNew", x=1) + "{broken\n" + line(2)))

    assert [row["kind"] for row in rows] == ["SomethingNew", "Malformed", "ControllerRegistered"]
    assert [row["text"] is None for row in rows[:2]] == [True, True]
    assert [row["offset"] for row in rows] == [0, -1, 2]


def test_only_some_kinds(tmp_path: Path) -> None:
    root = journal(tmp_path, f0=line(0) + line(1, "Other"))

    assert [row["kind"] for row in rows_of(root, recordTypes="Other")] == ["Other"]


def test_journals_are_found_beside_logs_and_in_directories_of_their_own(tmp_path: Path) -> None:
    for name in ("node-1", "node-2/events"):
        journal(tmp_path / name, f0=line(0))
    (tmp_path / "node-1" / "t-0").mkdir()
    (tmp_path / "node-1" / "t-0" / f"{0:020d}.log").touch()

    assert len(rows_of(tmp_path)) == 2
    assert len(rows_of(tmp_path / "node-1")) == 1


def test_a_stream_of_journals_gives_every_line_once(tmp_path: Path) -> None:
    root = journal(tmp_path, f0=line(0) + line(1), f2=line(2) + line(3) + '{"half')
    stream = stream_reader({"path": str(root)}, EVENTS)
    assert isinstance(stream, LogStreamReader)
    position, found = stream.initialOffset(), []

    def step(limit: Any) -> None:
        nonlocal position
        following = stream.latestOffset(position, limit)
        for part in stream.partitions(position, following):
            found.extend(row["sequence"] for some in stream.read(part) for row in some.to_pylist())
        position = following

    for _ in range(5):
        step(ReadMaxRows(1))
    assert found == [0, 1, 2, 3]
    journal(tmp_path, f2=line(2) + line(3) + line(4), f5=line(5))
    (tmp_path / f"events-{0:020d}.jsonl").unlink()
    step(ReadAllAvailable())
    assert found == [0, 1, 2, 3, 4, 5]
