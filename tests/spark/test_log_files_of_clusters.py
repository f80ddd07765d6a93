"""Logs out of copies: what is read, what counts as committed, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from metadata_directories import CLUSTER, copy_of, data, leads, write_snapshot

from quorate.protocol.batch import read_header
from quorate.spark.log_files import ClusterLog, read_chunk, read_clusters
from quorate.spark.log_places import GROUPS, METADATA, find_places
from quorate.spark.log_scan import ScanCache
from quorate.storage.snapshots import SnapshotId


def logs_of(*paths: Path | str, cache: ScanCache | None = None, **options: Any) -> list[ClusterLog]:
    places = find_places([str(path) for path in paths], METADATA, **options)
    return read_clusters(places.found, cache or ScanCache())


def log_of(*paths: Path | str) -> ClusterLog:
    (log,) = logs_of(*paths)
    return log


def rows_of(log: ClusterLog, *range_: int) -> list[dict[str, Any]]:
    return [row for chunk in log.chunks(*range_) for batch in read_chunk(chunk) for row in batch.to_pylist()]


def offsets_of(log: ClusterLog, *range_: int) -> list[int]:
    return [row["offset"] for row in rows_of(log, *range_)]


def kinds_of(log: ClusterLog) -> list[str]:
    return [problem.kind for problem in log.problems]


EPOCH_1 = [leads(0, 1), data(1, 1, 3), data(4, 1)]  # 0 to 4
EPOCH_2 = [leads(5, 2), data(6, 2, 2)]  # 5 to 7
EPOCH_3 = [leads(8, 3)]


def test_one_copy_is_read_in_order(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (0, EPOCH_1), (5, EPOCH_2)))

    rows = rows_of(log)
    assert [row["offset"] for row in rows] == list(range(8))
    assert {row["cluster_id"] for row in rows} == {CLUSTER}
    assert [row["epoch"] for row in rows] == [1] * 5 + [2] * 3
    assert not log.problems
    assert offsets_of(log, 2, 6) == [2, 3, 4, 5]


# What is confirmed


def test_a_later_epoch_confirms_what_was_there_when_it_began(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2])))

    assert log.confirmed_end == 5
    assert [row["is_confirmed"] for row in rows_of(log)] == [True] * 5 + [False] * 3


def test_a_leader_that_has_changed_nothing_confirms_nothing(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2, *EPOCH_3])))

    assert log.confirmed_end == 5


def test_a_snapshot_confirms_what_it_stands_for(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (0, EPOCH_1), snapshots=[SnapshotId(4, 1)]))

    assert log.confirmed_end == 4
    assert {row["origin"] for row in rows_of(log)} == {
        "log"
    }  # it is all there: the snapshot says nothing new


def test_two_of_three_voters_are_a_majority(tmp_path: Path) -> None:
    ahead = copy_of(tmp_path / "1", (0, [*EPOCH_1, *EPOCH_2]), node_id=1)
    behind = copy_of(tmp_path / "2", (0, [*EPOCH_1, *EPOCH_2[:1]]), node_id=2)

    assert log_of(ahead, behind).confirmed_end == 6
    assert log_of(ahead).confirmed_end == 5
    assert offsets_of(log_of(ahead, behind)) == list(range(8))


def test_the_copy_of_one_voter_counts_once_and_an_observer_does_not(tmp_path: Path) -> None:
    log = [*EPOCH_1, *EPOCH_2]
    first, again = copy_of(tmp_path / "a", (0, log), node_id=1), copy_of(tmp_path / "b", (0, log), node_id=1)
    observer = copy_of(tmp_path / "c", (0, log), node_id=9)

    assert log_of(first, again, observer).confirmed_end == 5


def test_old_records_on_a_majority_are_not_committed_by_being_there(tmp_path: Path) -> None:
    ahead = copy_of(tmp_path / "1", (0, [*EPOCH_1, *EPOCH_3[:0], leads(5, 4)]), node_id=1)
    others = [copy_of(tmp_path / str(one), (0, EPOCH_1), node_id=one) for one in (2, 3)]

    assert log_of(ahead, *others).confirmed_end == 0


def test_a_single_voter_is_its_own_majority(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (0, [leads(0, 1, voters=[1]), data(1, 1, 4)])))

    assert log.confirmed_end == 5


# What is missing, and what another copy has


def test_a_log_that_begins_late_begins_with_its_snapshot(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (5, EPOCH_2), snapshots=[SnapshotId(6, 2), SnapshotId(8, 2)]))

    rows = rows_of(log)
    snapshot = [row for row in rows if row["origin"] == "snapshot"]
    assert [(row["offset"], row["position"]) for row in snapshot] == [(5, 0), (5, 1), (5, 2), (5, 3)]
    assert [row["type"] for row in snapshot] == [
        "SnapshotHeader",
        "NoOpRecord",
        "NoOpRecord",
        "SnapshotFooter",
    ]
    assert [row["gap"] for row in rows] == ["retention", *[None] * 5]
    assert [row["offset"] for row in rows if row["origin"] == "log"] == [6, 7]
    assert log.confirmed_end == 8
    assert not log.problems


def test_a_late_log_without_a_snapshot_says_so(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (5, EPOCH_2)))

    assert [row["gap"] for row in rows_of(log)] == ["retention", None, None]
    assert kinds_of(log) == ["no_snapshot"]


def test_a_snapshot_alone(tmp_path: Path) -> None:
    root = copy_of(tmp_path, snapshots=[SnapshotId(6, 2)])

    assert offsets_of(log_of(root)) == [5] * 4


def test_a_missing_segment_is_a_loss(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (0, EPOCH_1[:2]), (5, EPOCH_2)))

    rows = rows_of(log)
    assert [(row["offset"], row["gap"]) for row in rows if row["gap"]] == [(5, "loss")]
    assert [(problem.kind, problem.offset) for problem in log.problems] == [("loss", 4)]


def test_a_snapshot_bridges_a_loss(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (0, EPOCH_1[:2]), (5, EPOCH_2), snapshots=[SnapshotId(7, 2)]))

    rows = rows_of(log)
    assert {(row["origin"], row["offset"]) for row in rows if row["gap"]} == {("snapshot", 6), ("log", 5)}
    assert sorted({row["offset"] for row in rows if row["origin"] == "log"}) == [0, 1, 2, 3, 5, 6, 7]


def test_what_one_copy_lacks_another_has(tmp_path: Path) -> None:
    late = copy_of(tmp_path / "1", (5, [*EPOCH_2, data(8, 2)]), node_id=1)
    early = copy_of(tmp_path / "2", (0, EPOCH_1), (5, EPOCH_2), node_id=2)

    log = log_of(late, early)

    assert offsets_of(log) == list(range(9))
    assert log.confirmed_end == 8
    assert not log.problems


def test_what_was_never_committed_is_not_taken_from_a_copy(tmp_path: Path) -> None:
    current = copy_of(tmp_path / "1", (0, [*EPOCH_1, *EPOCH_2]), node_id=1)
    cut_off = copy_of(tmp_path / "2", (0, [*EPOCH_1, data(5, 1, 9)]), node_id=2)

    log = log_of(current, cut_off)

    assert [row["epoch"] for row in rows_of(log)] == [1] * 5 + [2] * 3
    assert [(problem.kind, problem.offset) for problem in log.problems] == [("diverged", 5)]


def test_two_clusters_with_one_id(tmp_path: Path) -> None:
    one = copy_of(tmp_path / "1", (0, [*EPOCH_1, *EPOCH_2]))
    other = copy_of(tmp_path / "2", (0, [leads(0, 1), data(1, 1, 3, time_ms=77)]), node_id=2)

    log = log_of(one, other)

    assert [(problem.kind, problem.offset) for problem in log.problems] == [("conflict", 1)]
    assert str(tmp_path / "2") in log.problems[0].source
    assert offsets_of(log) == list(range(8))


# Damage


def damaged(path: Path, position: int, with_: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(with_)] = with_
    path.write_bytes(content)


def segment_in(root: Path, begin: int = 0) -> Path:
    return root / "__cluster_metadata-0" / f"{begin:020d}.log"


def test_a_changed_byte_costs_one_batch(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))
    damaged(segment_in(root), len(EPOCH_1[0]) + 65, b"\xff")

    log = log_of(root)

    assert offsets_of(log) == [0, 4, 5, 6, 7]
    assert [(problem.kind, problem.offset) for problem in log.problems] == [("corrupt", 1), ("loss", 1)]
    assert [row["gap"] for row in rows_of(log)] == [None, "loss", None, None, None]


def test_a_broken_length_is_stepped_over(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))
    damaged(segment_in(root), len(EPOCH_1[0]) + 8, b"\x7f\xff\xff\xff")

    assert offsets_of(log_of(root)) == [0, 4, 5, 6, 7]


def test_damage_in_one_copy_is_made_good_by_another(tmp_path: Path) -> None:
    roots = [copy_of(tmp_path / str(one), (0, [*EPOCH_1, *EPOCH_2]), node_id=one) for one in (1, 2)]
    damaged(segment_in(roots[0]), len(EPOCH_1[0]) + 65, b"\xff")

    log = log_of(*roots)

    assert offsets_of(log) == list(range(8))
    assert kinds_of(log) == ["corrupt"]


def test_a_log_that_ends_within_a_batch(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, [*EPOCH_1, EPOCH_2[0][:-3]]))

    log = log_of(root)

    assert offsets_of(log) == list(range(5))
    assert [(problem.kind, problem.offset) for problem in log.problems] == [("truncated", 5)]


def test_a_file_that_is_no_log(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, [b"this is a letter to my aunt" * 20]), (5, EPOCH_2))

    log = log_of(root)

    assert offsets_of(log) == [5, 6, 7]
    assert kinds_of(log)[0] == "foreign"


def test_a_broken_snapshot_is_reported_and_not_used(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (5, EPOCH_2), snapshots=[SnapshotId(6, 2), SnapshotId(7, 2)])
    broken = root / "__cluster_metadata-0" / f"{SnapshotId(6, 2)}.checkpoint"
    damaged(broken, 100, b"\xff\xff")

    log = log_of(root)

    assert [row["offset"] for row in rows_of(log) if row["origin"] == "snapshot"] == [6] * 4
    assert [(problem.kind, problem.source) for problem in log.problems] == [("corrupt", str(broken))]


def test_a_segment_twice(tmp_path: Path) -> None:
    log = log_of(copy_of(tmp_path, (0, EPOCH_1), (5, [*EPOCH_1, *EPOCH_2])))

    assert offsets_of(log) == list(range(8))
    assert set(kinds_of(log)) == {"overlap"}


def test_a_file_that_changes_after_planning_is_an_error(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, EPOCH_1))
    chunks = log_of(root).chunks()
    segment_in(root).write_bytes(EPOCH_1[0])

    with pytest.raises(OSError, match="not what it was"):
        list(read_chunk(chunks[0]))


# Which places there are


def test_a_directory_of_copies_and_a_pattern(tmp_path: Path) -> None:
    for cluster in ("a", "b"):
        for node in (1, 2):
            copy_of(tmp_path / cluster / str(node), (0, EPOCH_1), node_id=node, cluster_id=cluster)

    assert [log.cluster_id for log in logs_of(tmp_path)] == ["a", "b"]
    assert [len(log.copies) for log in logs_of(f"{tmp_path}/*/1")] == [1, 1]
    assert [log.cluster_id for log in logs_of(tmp_path / "b" / "1" / "__cluster_metadata-0")] == ["b"]


def test_a_single_file(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, EPOCH_1), (5, EPOCH_2))
    snapshot = write_snapshot(root / "__cluster_metadata-0", SnapshotId(6, 2))

    assert offsets_of(log_of(segment_in(root))) == list(range(5))
    assert offsets_of(log_of(snapshot)) == [5] * 4


def test_a_copy_without_meta_properties(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, EPOCH_1), cluster_id=None)

    places = find_places([str(root)], METADATA)

    assert [place.cluster_id for place in places.found] == [f"path:{root}/__cluster_metadata-0"]
    assert [problem.kind for problem in places.problems] == ["no_cluster_id"]
    assert [log.cluster_id for log in logs_of(root, cluster_id="mine")] == ["mine"]


def test_foreign_files_and_empty_places_are_problems(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear aunt")
    (tmp_path / "empty").mkdir()

    places = find_places([str(letter), str(tmp_path / "empty"), str(tmp_path / "nowhere")], METADATA)

    assert not places.found
    assert [problem.kind for problem in places.problems] == ["foreign", "missing", "missing"]


def test_a_log_may_be_named_beside_what_it_is_in(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, EPOCH_1))

    places = find_places([str(root), str(root / "__cluster_metadata-0")], METADATA)

    assert len(places.found) == 1
    assert not places.problems


def test_directories_of_other_logs_are_not_taken_for_one(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, EPOCH_1))
    (root / "bootstrap.checkpoint").write_bytes(b"")
    groups = root / "__consumer_offsets-3"
    groups.mkdir()
    (groups / f"{0:020d}.log").write_bytes(b"")

    assert [Path(place.directory).name for place in find_places([str(root)], METADATA).found] == [
        "__cluster_metadata-0"
    ]
    assert [Path(place.directory).name for place in find_places([str(root)], GROUPS).found] == [
        "__consumer_offsets-3"
    ]
    assert not find_places([str(groups)], METADATA).found
    assert not find_places([str(root / "__cluster_metadata-0")], GROUPS).found


def test_a_directory_under_another_name(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, EPOCH_1))
    renamed = (root / "__cluster_metadata-0").rename(root / "copied-log")

    assert offsets_of(log_of(renamed)) == list(range(5))


# Looking again


def test_a_log_that_grew_is_read_from_where_it_was(tmp_path: Path) -> None:
    root, cache = copy_of(tmp_path, (0, EPOCH_1)), ScanCache()
    logs_of(root, cache=cache)
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2]))

    (log,) = logs_of(root, cache=cache)

    assert offsets_of(log) == list(range(8))


def test_a_log_that_was_truncated_is_read_anew(tmp_path: Path) -> None:
    root, cache = copy_of(tmp_path, (0, [*EPOCH_1, data(5, 1, 9)])), ScanCache()
    logs_of(root, cache=cache)
    copy_of(tmp_path, (0, [*EPOCH_1, *EPOCH_2, data(8, 2, 30), data(38, 2, 30)]))

    (log,) = logs_of(root, cache=cache)

    assert [row["epoch"] for row in rows_of(log)][:8] == [1] * 5 + [2] * 3
    assert log.epoch_at(6) == 2


def test_the_voters_are_looked_for_in_segments_before(tmp_path: Path) -> None:
    first = [leads(0, 1, voters=[1]), data(1, 1, 4)]
    root = copy_of(tmp_path, (0, first), (5, [data(5, 1)]), (6, [data(6, 1, 2)]))
    places = find_places([str(root)], METADATA)

    (log,) = read_clusters(places.found, ScanCache(), lambda _: 7)

    assert log.confirmed_end == 8
    assert offsets_of(log, 7) == [7]


def test_a_snapshot_that_has_changed_is_looked_at_again(tmp_path: Path) -> None:
    root, cache = copy_of(tmp_path, (5, EPOCH_2), snapshots=[SnapshotId(6, 2)]), ScanCache()
    (before,) = logs_of(root, cache=cache)
    damaged(root / "__cluster_metadata-0" / f"{SnapshotId(6, 2)}.checkpoint", 100, b"\xff\xff\xff")
    (after,) = logs_of(root, cache=cache)

    assert not before.problems
    assert kinds_of(after) == ["corrupt", "no_snapshot"]


def test_segments_before_an_offset_are_not_looked_into(tmp_path: Path) -> None:
    root = copy_of(tmp_path, (0, [b"whatever"]), (5, EPOCH_2))
    places = find_places([str(root)], METADATA)

    (log,) = read_clusters(places.found, ScanCache(), lambda _: 6)

    assert offsets_of(log, 6) == [6, 7]
    assert not log.problems
    assert [row["gap"] for row in rows_of(log, 6)] == [None, None]


# Neither offset nor epoch is covered by a checksum: here batches seem whole, and contradict others.
@example([(0, b"\x01"), (217, b"\x80")], 0)  # the first offset and the epoch of the third batch
@example([(118, b"\x03")], 0)  # an offset within what the next two batches cover
@example([(212, b"\x05")], 0)  # the offset of the next batch
@example([(126, b"\x02")], 0)  # the epoch that begins two batches later
@example([(863 + 15, b"\x09")], 0)  # an epoch that never was, in the last batch but one
@example([(863 + 7, b"\x1e")], 0)  # and the offset of the last
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=40)), max_size=3),
    st.integers(0, 99),
)
def test_whatever_is_damaged_costs_only_what_it_touches(
    tmp_path: Path, damages: list[tuple[int, bytes]], cut: int
) -> None:
    batches = [*EPOCH_1, *EPOCH_2, data(8, 2, 20), leads(28, 3), data(29, 3), data(30, 3, 5)]
    whole = b"".join(batches)
    content = bytearray(whole)
    for place, junk in damages:
        at = place % len(content)
        content[at : at + len(junk)] = junk[: len(content) - at]
    content = content[: len(content) - cut]
    root = copy_of(tmp_path, (0, []))
    segment_in(root).write_bytes(content)

    log = log_of(root)

    untouched, position = [], 0
    for one in batches:
        if content[position : position + len(one)] == one:
            header = read_header(one)
            untouched += range(header.base_offset, header.next_offset)
        position += len(one)
    found = offsets_of(log)
    assert set(untouched) <= set(found)
    assert found == sorted(set(found))
    if content != whole[: len(content)]:
        assert log.problems
