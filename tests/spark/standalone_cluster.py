"""A Spark cluster on this machine: a master and workers, each a process, as pyspark brings them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from quorate.spark.java import find_java_home

DEADLINE_S = 120
# For Java machines that live for a minute and share two cores.
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_HOME = Path(pyspark.__file__).parent
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")


@contextmanager
def standalone(directory: Path, workers: int, environment: Mapping[str, str]) -> Iterator[str]:
    """The URL of a master with so many workers of one core each, for the time of the block."""
    surroundings = {
        **environment,
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
        "SPARK_WORKER_OPTS": "-Dspark.worker.ui.enabled=false",
    }
    with ExitStack() as stack:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
        log = directory / "master.log"
        stack.enter_context(_running([*master, "--webui-port", "0"], log, surroundings))
        url = _said(log, _MASTER)[1]
        for number in range(workers):
            work = directory / f"worker-{number}"
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"]
            words = [*worker, "--cores", "1", "--memory", "1g", "--work-dir", str(work), url]
            stack.enter_context(_running(words, directory / f"worker-{number}.log", surroundings))
        for number in range(workers):
            _said(directory / f"worker-{number}.log", _REGISTERED)
        yield url


@contextmanager
def _running(words: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), *words]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=dict(environment), start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, 15)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


def _said(log: Path, what: re.Pattern[str]) -> re.Match[str]:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = what.search(log.read_text(errors="replace"))
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{log}: {what.pattern} was never said:\n{log.read_text(errors='replace')}")
