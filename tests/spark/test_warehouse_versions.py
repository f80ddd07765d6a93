"""A value that changes as a whole, and a warehouse that is one: readers, writers, crashes, and tidying up."""

import json
import multiprocessing
from pathlib import Path

import pytest

from quorate.spark.compaction import MERGED_TOGETHER, mergeable
from quorate.spark.swap import KEPT, Versions
from quorate.spark.warehouse import Contents, Part, StreamState, Warehouse, WarehouseError

PART = Part("one", 3, 100, ("c",))


def test_the_newest_version_is_the_value(tmp_path: Path):
    versions = Versions(tmp_path / "versions")
    assert versions.current() is None
    versions.change(lambda _: {"number": 1})
    versions.change(lambda before: {"number": (before or {})["number"] + 1})
    assert versions.current() == {"number": 2}


def test_a_change_that_makes_nothing_changes_nothing(tmp_path: Path):
    versions = Versions(tmp_path)
    versions.change(lambda _: {"number": 1})
    versions.change(lambda _: None)
    assert len(list(tmp_path.glob("0*.json"))) == 1


def test_a_version_that_is_half_written_is_not_one(tmp_path: Path):
    versions = Versions(tmp_path)
    versions.change(lambda _: {"number": 1})
    (tmp_path / ".000000000002.json.77").write_text('{"num')
    assert versions.current() == {"number": 1}


def test_versions_that_are_held_stay(tmp_path: Path):
    versions = Versions(tmp_path)
    versions.change(lambda _: {"number": 0})
    held = versions.hold()
    assert held is not None
    for number in range(1, KEPT + 3):
        versions.change(lambda _, number=number: {"number": number})
    assert [one["number"] for one in versions.tidy()] == [0, *range(3, KEPT + 3)]
    held.release()
    assert [one["number"] for one in versions.tidy()] == list(range(3, KEPT + 3))


def count_up(directory: Path, times: int) -> None:
    versions = Versions(directory)
    for _ in range(times):
        versions.change(lambda before: {"count": (before or {"count": 0})["count"] + 1})


def test_changes_of_several_processes_come_one_after_the_other(tmp_path: Path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=count_up, args=(tmp_path, 25)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert Versions(tmp_path).current() == {"count": 100}


def test_contents_survive_being_written():
    contents = (
        Contents()
        .with_part("records", PART)
        .with_stream("records/c/live/id", StreamState(4, {"c/log": (0, 17)}))
        .with_unconfirmed("records", "d", Part("two", 1, 1, ("d",)))
    )
    assert Contents.from_json(json.loads(json.dumps(contents.as_json()))) == contents
    assert contents.clusters == ("c", "d")
    assert contents.places() == {"tables/records/part=one", "tables/records/part=two"}


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "is not there"), ([], "is not a warehouse"), (["a.txt"], "is not a warehouse")],
    ids=["nothing", "an empty directory", "other files"],
)
def test_whoever_reads_what_is_not_a_warehouse_is_told(tmp_path: Path, content: list[str] | None, said: str):
    place = tmp_path / "house"
    if content is not None:
        place.mkdir()
        for name in content:
            (place / name).touch()
    with pytest.raises(WarehouseError, match=said):
        Warehouse.open(place)


def test_a_directory_with_other_things_does_not_become_a_warehouse(tmp_path: Path):
    (tmp_path / "letters.txt").touch()
    with pytest.raises(WarehouseError, match="a directory of its own"):
        Warehouse.create(tmp_path)


def test_a_warehouse_keeps_its_format(tmp_path: Path):
    Warehouse.create(tmp_path / "house")
    assert Warehouse.create(tmp_path / "house").raw_format == "parquet"
    with pytest.raises(WarehouseError, match="keeps the format it began with"):
        Warehouse.create(tmp_path / "house", "delta")


def test_a_layout_of_the_future_is_refused(tmp_path: Path):
    (tmp_path / "warehouse.json").write_text('{"layout": 2, "format": "parquet"}')
    with pytest.raises(WarehouseError, match="layout 2; this quorate knows layout 1"):
        Warehouse.open(tmp_path)


def test_two_pipelines_do_not_run_on_one_warehouse(tmp_path: Path):
    warehouse = Warehouse.create(tmp_path / "house")
    said = r"already runs on .* \(process \d+ on "
    with (
        warehouse.running(),
        pytest.raises(WarehouseError, match=said),
        Warehouse.open(tmp_path / "house").running(),
    ):
        pass
    with warehouse.running():
        pass  # the one before has ended


def fill(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / "part.parquet").touch()
    return place


def test_what_a_crash_left_behind_is_removed_and_the_rest_is_not(tmp_path: Path):
    warehouse = Warehouse.create(tmp_path / "house")
    named = fill(warehouse.table_place("records", "one"))
    left_over = fill(warehouse.table_place("records", "two"))
    warehouse.change(lambda newest: newest.with_part("records", PART))
    with warehouse.new_part("records") as name:
        being_written = fill(warehouse.table_place("records", name))
        assert warehouse.tidy() == 1
        assert (named.exists(), being_written.exists(), left_over.exists()) == (True, True, False)
    assert not being_written.exists(), "no version names it"


def test_parts_of_a_version_that_somebody_reads_stay(tmp_path: Path):
    warehouse = Warehouse.create(tmp_path / "house")
    place = fill(warehouse.table_place("records", "one"))
    warehouse.change(lambda newest: newest.with_part("records", PART))
    contents, held = Warehouse.open(tmp_path / "house").hold()
    assert held is not None
    for _ in range(KEPT + 1):
        warehouse.change(lambda newest: newest.with_parts("records", ()))
    warehouse.tidy()
    assert contents.tables["records"] == (PART,)
    assert place.exists()
    held.release()
    warehouse.tidy()
    assert not place.exists()


def test_merging_keeps_the_number_of_parts_small_and_rewrites_rarely():
    parts: list[Part] = []
    rewritten = 0
    for number in range(5000):
        parts.append(Part(str(number), 1, 100_000))
        while merged := mergeable(parts):
            parts = [one for one in parts if one not in merged]
            size_bytes = sum(one.size_bytes for one in merged)
            rewritten += size_bytes
            parts.append(Part(f"merged {number} {size_bytes}", sum(one.rows for one in merged), size_bytes))
    assert sum(one.rows for one in parts) == 5000
    assert len(parts) < 6 * MERGED_TOGETHER
    assert rewritten < 6 * 5000 * 100_000
