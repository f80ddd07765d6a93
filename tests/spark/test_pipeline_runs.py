"""Runs of the pipeline over files: in pieces, twice, killed, over several clusters and over damaged ones."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from metadata_directories import CLUSTER, copy_of, data, leads
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from random_logs import random_logs

from quorate.spark.ingest import read_raw
from quorate.spark.origins import NothingToRead, files_in
from quorate.spark.pipeline import PipelineError, Update, read_logs, update
from quorate.spark.views import ANSWERS, held_tables
from quorate.spark.warehouse import Warehouse, WarehouseError

pytestmark = pytest.mark.spark

BATCHES = [bytes(batch) for batch in random_logs(range(3, 4), steps=12)[0].batches]
WORKERS_KILLED = 2


def write_log(root: Path, batches: Iterable[bytes], cluster_id: str = CLUSTER) -> Path:
    return copy_of(root, (0, batches), cluster_id=cluster_id)


def run(spark: SparkSession, warehouse: Warehouse, *roots: Path) -> Update:
    return update(spark, warehouse, files_in([str(root) for root in roots]))


def rows_of(spark: SparkSession, warehouse: Warehouse, name: str) -> list[dict[str, Any]]:
    with held_tables(spark, warehouse) as tables:
        return sorted((row.asDict(recursive=True) for row in tables[name].collect()), key=repr)


def assert_same(spark: SparkSession, one: Warehouse, other: Warehouse, *names: str) -> None:
    for name in names:
        assert rows_of(spark, one, name) == rows_of(spark, other, name), name


def read(spark: SparkSession, warehouse: Warehouse, *roots: Path) -> Update:
    """Without the answers, where they do not matter."""
    return read_logs(spark, warehouse, files_in([str(root) for root in roots]))


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """All of the log, read in one run."""
    home = tmp_path_factory.mktemp("whole")
    warehouse = Warehouse.create(home / "house")
    run(spark, warehouse, write_log(home / "log", BATCHES))
    return warehouse


def test_runs_in_pieces_equal_one_run(spark: SparkSession, whole: Warehouse, tmp_path: Path):
    warehouse = Warehouse.create(tmp_path / "house")
    for upto in (len(BATCHES) // 5, len(BATCHES) // 2, len(BATCHES) // 2 + 1):
        read(spark, warehouse, write_log(tmp_path / "log", BATCHES[:upto]))
    run(spark, warehouse, write_log(tmp_path / "log", BATCHES))
    assert_same(spark, warehouse, whole, "records", *ANSWERS)
    before = warehouse.contents()
    assert run(spark, warehouse, tmp_path / "log") == Update({}, has_new_answers=False)
    assert warehouse.contents() == before


KILLED = """
import os, sys
from quorate.spark import session
from quorate.spark.origins import files_in
from quorate.spark.pipeline import update
from quorate.spark.swap import Versions
from quorate.spark.warehouse import Warehouse

point, house, log, home = sys.argv[1:]
change = Versions.change
calls = 0

def die_at(self, how):
    global calls
    calls += 1
    if point == "before the first version":
        os.kill(os.getpid(), 9)
    value = change(self, how)
    if point == "after the first version" or (point == "before the answers" and value and value["streams"]):
        os.kill(os.getpid(), 9)
    return value

def die(*_):
    os.kill(os.getpid(), 9)

Versions.change = die_at
spark = session("local[1]", settings={"spark.driver.memory": "1g", "spark.local.dir": home})
if point == "among the answers":
    Versions.change = change
    import quorate.spark.publishing as publishing
    counted = publishing.count
    publishing.count = lambda place: die() if len(list(place.parent.glob("part=*"))) > 2 else counted(place)
update(spark, Warehouse.create(house), files_in([log]))
print("survived")
"""


@pytest.mark.parametrize(
    "point", ["before the first version", "after the first version", "among the answers"]
)
def test_a_killed_driver_costs_only_time(spark: SparkSession, whole: Warehouse, tmp_path: Path, point: str):
    log = write_log(tmp_path / "log", BATCHES)
    words = [point, str(tmp_path / "house"), str(log), str(tmp_path)]
    died = subprocess.run(
        [sys.executable, "-c", KILLED, *words], capture_output=True, text=True, timeout=400, check=False
    )
    assert died.returncode == -9, died.stdout + died.stderr
    warehouse = Warehouse.create(tmp_path / "house")
    if point == "among the answers":
        assert run(spark, warehouse, log) == Update({}, has_new_answers=True)
        assert_same(spark, warehouse, whole, *ANSWERS)
    else:
        read(spark, warehouse, log)
    assert_same(spark, warehouse, whole, "records")
    named = {str(warehouse.directory / place) for place in warehouse.contents().places()}
    assert {str(one) for one in warehouse.directory.glob("*/**/part=*") if "cluster_id" not in str(one)} <= {
        *named,
        *_of_older_versions(warehouse),
    }


def _of_older_versions(warehouse: Warehouse) -> set[str]:
    found = set()
    for version in (warehouse.directory / "versions").glob("0*.json"):
        value = json.loads(version.read_text())
        for table, parts in value["tables"].items():
            found |= {str(warehouse.table_place(table, one["name"])) for one in parts}
        found |= {str(warehouse.answer_place(one["name"])) for one in value["answers"].values()}
        for table, parts in value["unconfirmed"].items():
            found |= {str(warehouse.table_place(table, one["name"])) for one in parts.values()}
    return found


def workers_of_ours() -> set[int]:
    """Processes of Python that Spark's daemon started for this process."""
    parents, daemons = {}, set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                daemons.add(int(entry.name))
        except (OSError, ValueError):
            continue  # it has ended meanwhile

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return {pid for pid in daemons if parents.get(pid) in daemons and is_ours(pid)}


def test_killed_workers_cost_only_time(spark: SparkSession, whole: Warehouse, tmp_path: Path):
    log = write_log(tmp_path / "log", BATCHES)
    warehouse = Warehouse.create(tmp_path / "house")
    is_over = threading.Event()
    killed: list[int] = []

    def kill_some() -> None:
        while not is_over.wait(0.02) and len(killed) < WORKERS_KILLED:
            for pid in workers_of_ours() - set(killed):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    killer = threading.Thread(target=kill_some)
    killer.start()
    try:
        read(spark, warehouse, log)
    except (PipelineError, PySparkException):
        pass  # it gave up; what it did is whole
    finally:
        is_over.set()
        killer.join()
    read(spark, warehouse, log)
    assert_same(spark, warehouse, whole, "records")


def records(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    return read_raw(spark, warehouse, warehouse.contents(), "records")


def test_several_clusters_and_what_is_wrong_with_them(spark: SparkSession, tmp_path: Path):
    whole = [leads(0, 1, voters=[1]), data(1, 1, 3), leads(4, 2, voters=[1])]
    write_log(tmp_path / "a", whole, "cluster-a")
    damaged = [*whole[:2], b"\x00" * 7]
    write_log(tmp_path / "b", damaged, "cluster-b")
    warehouse = Warehouse.create(tmp_path / "house")
    read(spark, warehouse, tmp_path)
    found = records(spark, warehouse).groupBy("cluster_id").count().collect()
    assert {row.cluster_id: row["count"] for row in found} == {"cluster-a": 5, "cluster-b": 4}
    assert warehouse.contents().clusters == ("cluster-a", "cluster-b")
    problems = rows_of(spark, warehouse, "problems")
    assert {row["cluster_id"] for row in problems} == {"cluster-b"}
    assert "b/__cluster_metadata-0" in problems[0]["source"]
    read(spark, warehouse, tmp_path)
    assert len(rows_of(spark, warehouse, "problems")) == len(problems), "a problem is noted once"


def test_a_log_that_was_replaced_after_it_was_read_is_a_problem(spark: SparkSession, tmp_path: Path):
    first = [leads(0, 1, voters=[1]), data(1, 1, 3), leads(4, 2, voters=[1])]
    write_log(tmp_path / "log", [*first, data(5, 2, 2), leads(7, 3, voters=[1])])
    warehouse = Warehouse.create(tmp_path / "house")
    read(spark, warehouse, tmp_path / "log")
    shutil.rmtree(tmp_path / "log")
    replaced = [data(5, 4, 4, time_ms=77_000), leads(9, 5, voters=[1]), leads(10, 6, voters=[1])]
    write_log(tmp_path / "log", [*first, *replaced])
    read(spark, warehouse, tmp_path / "log")
    kinds = {(row["kind"], row["offset"]) for row in rows_of(spark, warehouse, "problems")}
    assert {("replaced", 5), ("replaced", 6)} <= kinds
    assert max(row.offset for row in records(spark, warehouse).select("offset").collect()) == 10


def test_who_names_nothing_to_read_is_told(tmp_path: Path):
    with pytest.raises(NothingToRead, match="no such directory"):
        files_in([str(tmp_path / "nowhere")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToRead, match="no log of a cluster is there"):
        files_in([str(tmp_path / "empty")])


def test_a_second_run_does_not_disturb_the_first(spark: SparkSession, tmp_path: Path):
    warehouse = Warehouse.create(tmp_path / "house")
    log = write_log(tmp_path / "log", BATCHES[:3])
    with warehouse.running(), pytest.raises(WarehouseError, match="already runs"):
        read(spark, Warehouse.open(tmp_path / "house"), log)


def test_a_stream_that_cannot_be_read_says_why(spark: SparkSession, tmp_path: Path):
    log = write_log(tmp_path / "log", BATCHES[:3])
    origins = files_in([str(log)])
    shutil.rmtree(log)
    with pytest.raises(PipelineError, match=f"records of cluster {CLUSTER}: no metadata log in"):
        update(spark, Warehouse.create(tmp_path / "house"), origins)
