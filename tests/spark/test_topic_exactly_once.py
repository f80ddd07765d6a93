"""From a topic into a table and back into a topic while brokers and drivers are killed: all records once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from topic_data import create, fill, values

from quorate.testing import Cluster

pytestmark = pytest.mark.spark

TIMEOUT_S = 300
TOTAL = 6000


@contextmanager
def driver(servers: str, home: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver, its Java machine and its workers: a group of processes that is killed as one."""
    program = Path(__file__).parent / "copying_driver.py"
    with (home / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(program), servers, str(home), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # it may have ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def written(kafka: Cluster, count: int, process: subprocess.Popen[bytes], home: Path) -> None:
    """Returns when so many records have arrived at the end."""

    def is_written() -> bool:
        assert process.poll() is None, (home / "driver.log").read_text()[-4000:]
        return len(values(kafka.bootstrap_servers, "to")) >= count

    kafka.wait_until(is_written, TIMEOUT_S, f"{count} records at the end")


def numbered(begin: int, end: int) -> list[dict[str, object]]:
    return [{"key": b"%d" % number, "value": b"%d" % number} for number in range(begin, end)]


def copied_through_kills(home: Path, *arguments: str) -> Counter[bytes | None]:
    settings = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    with Cluster(3, mode="processes", settings=settings) as kafka:
        servers = kafka.bootstrap_servers
        create(servers, "from", 2, 3)
        create(servers, "to", 2, 3)
        fill(servers, "from", numbered(0, TOTAL // 2))
        with driver(servers, home, *arguments) as process:
            written(kafka, 1, process, home)
            kafka.kill(2)
            written(kafka, TOTAL // 6, process, home)
        # The driver is dead: its second life begins with a broker less, and sees another one die.
        fill(servers, "from", numbered(TOTAL // 2, TOTAL))
        with driver(servers, home, *arguments) as process:
            written(kafka, TOTAL // 2, process, home)
            kafka.restart(2)
            kafka.kill(1)
            written(kafka, TOTAL * 2 // 3, process, home)
        (home / "enough").touch()
        kafka.restart(1)
        with driver(servers, home, *arguments) as process:
            assert process.wait(TIMEOUT_S) == 0, (home / "driver.log").read_text()[-4000:]
        return Counter(values(servers, "to"))


def test_with_our_source(tmp_path: Path) -> None:
    found = copied_through_kills(tmp_path, "quorate")
    assert found == Counter(b"%d" % number for number in range(TOTAL))


@pytest.mark.interop
def test_with_sparks_own_connector(tmp_path: Path) -> None:
    from apache_oracle import missing
    from spark_connector import connector_jars

    if reason := missing():
        pytest.skip(reason)
    found = copied_through_kills(tmp_path, "kafka", connector_jars())
    assert found == Counter(b"%d" % number for number in range(TOTAL))
