"""Records of groups as rows: keys, values, tombstones, what is new, what is broken; and files of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quorate.coordinator import group_records as g
from quorate.coordinator import log_format
from quorate.coordinator.effects import LogRecord
from quorate.protocol.batch import ControlType, Record, build, build_control, build_encoded
from quorate.spark.gaps import GapLabels
from quorate.spark.group_columns import GroupPlace, group_record_batch
from quorate.spark.group_source import reader, stream_reader
from quorate.spark.log_reader import LogStreamReader
from quorate.spark.schemas import GROUP_RECORDS
from quorate.spark.stream_limits import ReadAllAvailable, ReadMaxRows

Pair = tuple[bytes | None, bytes | None]


def commit(group: str = "g", offset: int = 7, metadata: str = "", partition: int = 0) -> Pair:
    key = g.OffsetCommitKey(group=group, topic="orders", partition=partition)
    value = g.OffsetCommitValue(offset=offset, leader_epoch=3, metadata=metadata, commit_timestamp=1_000)
    return log_format.encode(LogRecord(key, value))


def tombstone(group: str = "g") -> Pair:
    return log_format.encode(LogRecord(g.OffsetCommitKey(group=group, topic="orders", partition=0), None))


def member(member_id: str = "m") -> Pair:
    key = g.ConsumerGroupTargetAssignmentMemberKey(group_id="cg", member_id=member_id)
    return log_format.encode(LogRecord(key, g.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=[])))


def rows_of(*pairs: Pair, types: frozenset[str] | None = None) -> list[dict[str, Any]]:
    count = len(pairs)
    return group_record_batch(
        pa.array([key for key, _ in pairs], pa.binary()),
        pa.array([value for _, value in pairs], pa.binary()),
        np.arange(count),
        pa.array([1_000] * count, pa.timestamp("ms", tz="UTC")),
        pa.array([5] * count, pa.int32()),
        pa.nulls(count, pa.string()),
        GroupPlace(cluster_id="c1", partition=4, types=types),
    ).to_pylist()


def test_a_committed_offset() -> None:
    (row,) = rows_of(commit(offset=42))

    assert (row["cluster_id"], row["partition"], row["epoch"], row["type"]) == ("c1", 4, 5, "OffsetCommit")
    assert (row["group_id"], row["topic"], row["topic_partition"]) == ("g", "orders", 0)
    assert (row["committed_offset"], row["version"], row["is_tombstone"]) == (42, 3, False)
    assert json.loads(row["fields"]) == {
        "offset": 42,
        "leaderEpoch": 3,
        "metadata": "",
        "commitTimestamp": 1000,
    }
    assert json.loads(row["key_fields"]) == {"group": "g", "topic": "orders", "partition": 0}


def test_what_is_read_in_bulk_is_what_is_read_one_by_one() -> None:
    pairs = [commit(f"g{at % 3}", offset=at, metadata="why" if at % 5 == 0 else "") for at in range(50)]

    rows = rows_of(*pairs, member(), tombstone())

    assert [row["committed_offset"] for row in rows] == [*range(50), None, None]
    assert [json.loads(row["fields"])["metadata"] for row in rows[:50]] == [
        "why" if at % 5 == 0 else "" for at in range(50)
    ]
    assert list(json.loads(rows[0]["fields"])) == list(json.loads(rows[1]["fields"]))


def test_members_and_tombstones() -> None:
    one, gone = rows_of(member("m-1"), tombstone())

    assert (one["type"], one["group_id"], one["member_id"]) == (
        "ConsumerGroupTargetAssignmentMember",
        "cg",
        "m-1",
    )
    assert (gone["is_tombstone"], gone["fields"], gone["version"]) == (True, None, None)
    assert gone["group_id"] == "g"


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        ((b"\x03\xe7rest", b"\0\0x"), "Unknown"),
        ((b"\x00", b"\0\0"), "Malformed"),
        ((None, b"\0\0"), "Malformed"),
        ((commit()[0], b"\0\x03short"), "Malformed"),
        ((commit()[0], b"\0\x63" + bytes(30)), "Unknown"),
    ],
)
def test_what_cannot_be_read_keeps_its_bytes(pair: Pair, kind: str) -> None:
    before, row, after = rows_of(commit(), pair, commit())

    assert (before["type"], row["type"], after["type"]) == ("OffsetCommit", kind, "OffsetCommit")
    assert pair[1] is not None
    if row["fields"]:
        assert base64.b64decode(json.loads(row["fields"])["base64"]) == pair[1]


def test_only_some_types_of_groups() -> None:
    rows = rows_of(commit(), member(), commit(), types=frozenset({"OffsetCommit"}))

    assert [row["offset"] for row in rows] == [0, 2]


def test_gaps_over_several_parts() -> None:
    gaps = GapLabels(0, 5, [])

    assert gaps.labels(np.array([6, 7])).to_pylist() == ["retention", None]
    gaps.hide(np.array([8]))
    assert gaps.labels(np.array([], np.int64)).to_pylist() == []
    assert gaps.labels(np.array([9, 12])).to_pylist() == ["marker", "compaction"]


# Files


def batch(offset: int, *pairs: Pair, **about: Any) -> bytes:
    stored = [Record(offset + at, 1_000, key, value) for at, (key, value) in enumerate(pairs)]
    return bytes(build(stored, base_offset=offset, leader_epoch=2, **about))


def marker(offset: int, kind: ControlType, producer_id: int) -> bytes:
    return bytes(
        build_control(
            [(kind, bytes(6))],
            timestamp=1_000,
            base_offset=offset,
            leader_epoch=2,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
        )
    )


def log_directory(root: Path, batches: Sequence[bytes], high_watermark: int | None, begin: int = 0) -> Path:
    directory = root / "__consumer_offsets-4"
    directory.mkdir(parents=True, exist_ok=True)
    (root / "meta.properties").write_text("version=1\ncluster.id=c1\nnode.id=1\n")
    (directory / f"{begin:020d}.log").write_bytes(b"".join(batches))
    if high_watermark is not None:
        checkpoint = f"0\n1\n__consumer_offsets 4 {high_watermark}\n"
        (root / "replication-offset-checkpoint").write_text(checkpoint)
    return root


def file_rows(root: Path, **options: str) -> list[dict[str, Any]]:
    found = reader({"path": str(root), **options}, GROUP_RECORDS)
    return [row for part in found.partitions() for some in found.read(part) for row in some.to_pylist()]


def test_files_are_confirmed_up_to_the_high_watermark(tmp_path: Path) -> None:
    root = log_directory(tmp_path, [batch(0, commit(), commit()), batch(2, commit())], 2)

    rows = file_rows(root)

    assert [(row["offset"], row["is_confirmed"]) for row in rows] == [(0, True), (1, True), (2, False)]
    assert {(row["cluster_id"], row["partition"], row["epoch"]) for row in rows} == {("c1", 4, 2)}
    assert [row["offset"] for row in file_rows(root, include="unconfirmed")] == [2]


def test_of_two_copies_the_furthest_is_read_and_either_may_know_the_high_watermark(tmp_path: Path) -> None:
    log_directory(tmp_path / "1", [batch(0, commit()), batch(1, commit())], None)
    log_directory(tmp_path / "2", [batch(0, commit())], 1)

    rows = file_rows(tmp_path)

    assert [(row["offset"], row["is_confirmed"]) for row in rows] == [(0, True), (1, False)]


def test_aborted_offsets_are_not_there_and_open_ones_not_yet(tmp_path: Path) -> None:
    root = log_directory(
        tmp_path,
        [
            batch(0, commit()),
            batch(1, commit(), producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True),
            batch(2, commit()),
            marker(3, ControlType.ABORT, 8),
            batch(4, commit(), producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True),
            marker(5, ControlType.COMMIT, 9),
            batch(6, commit()),
            batch(7, commit(), producer_id=9, producer_epoch=0, base_sequence=1, is_transactional=True),
            batch(8, commit()),
        ],
        9,
    )

    rows = file_rows(root)

    assert [(row["offset"], row["gap"]) for row in rows] == [
        (0, None),
        (2, "marker"),
        (4, "marker"),
        (6, "marker"),
    ]


def test_holes_are_compaction_and_a_late_beginning_is_retention(tmp_path: Path) -> None:
    root = log_directory(tmp_path, [batch(5, commit()), batch(9, commit())], 10, begin=5)

    assert [(row["offset"], row["gap"]) for row in file_rows(root)] == [(5, "retention"), (9, "compaction")]


def test_deleted_records_are_not_there_though_their_bytes_are(tmp_path: Path) -> None:
    root = log_directory(tmp_path, [batch(0, commit(), commit()), batch(2, commit())], 3)
    for start, expected in ((1, [(1, "retention"), (2, None)]), (2, [(2, "retention")])):
        (root / "log-start-offset-checkpoint").write_text(f"0\n1\n__consumer_offsets 4 {start}\n")
        assert [(row["offset"], row["gap"]) for row in file_rows(root)] == expected


def test_damage_is_a_loss(tmp_path: Path) -> None:
    broken = bytearray(batch(1, commit()))
    broken[70] ^= 1
    root = log_directory(tmp_path, [batch(0, commit()), bytes(broken), batch(2, commit())], 3)

    assert [(row["offset"], row["gap"]) for row in file_rows(root)] == [(0, None), (2, "loss")]


def test_a_batch_that_is_not_what_it_says_is_one_row(tmp_path: Path) -> None:
    bad = build_encoded(b"\x80" * 9, 1, base_offset=1, leader_epoch=2, timestamp=1_000)
    root = log_directory(tmp_path, [batch(0, commit()), bytes(bad), batch(2, commit())], 3)

    rows = file_rows(root)

    assert [(row["offset"], row["type"]) for row in rows] == [
        (0, "OffsetCommit"),
        (1, "Malformed"),
        (2, "OffsetCommit"),
    ]
    assert base64.b64decode(json.loads(rows[1]["fields"])["base64"]) == bad
    assert not any(row["gap"] for row in rows)


def test_any_split_of_a_stream_of_groups_gives_the_same_rows(tmp_path: Path) -> None:
    producer = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    batches = [batch(0, commit(), commit()), batch(2, commit(), **producer), marker(3, ControlType.ABORT, 8)]
    batches += [batch(7, commit(), member()), batch(9, tombstone())]
    root = log_directory(tmp_path, batches, 10)
    for rows_max in (1, 2, 3, 100):
        stream = stream_reader({"path": str(root)}, GROUP_RECORDS)
        assert isinstance(stream, LogStreamReader)
        position, found = stream.initialOffset(), []
        for _ in range(12):
            following = stream.latestOffset(position, ReadMaxRows(rows_max))
            parts = stream.partitions(position, following)
            found += [row for part in parts for some in stream.read(part) for row in some.to_pylist()]
            position = following
        assert found == file_rows(root)
        assert stream.latestOffset(position, ReadAllAvailable()) == position
