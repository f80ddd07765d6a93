"""The fixtures `kafka` and `kafka_cluster`, as somebody else's tests use them."""

import subprocess
import sys
from pathlib import Path

import pytest

USES = """
import asyncio
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.producer import Producer

async def write(kafka):
    settings = ClusterSettings(allow_auto_topic_creation=True)
    async with Cluster(kafka.bootstrap_servers, settings=settings) as client, Producer(client) as producer:
        return (await (await producer.send(kafka.topic(), b"a"))).offset

def test_one(kafka):
    assert asyncio.run(write(kafka)) == 0
    assert kafka.topic() == kafka.topic()
    assert kafka.topic() != kafka.topic("other")

def test_another_has_topics_of_its_own(kafka):
    assert asyncio.run(write(kafka)) == 0
"""

BREAKS = """
def test_a_broker_is_killed(kafka_cluster):
    kafka_cluster.kill(1)
    assert kafka_cluster.node(1).state == "dead"

def test_the_next_finds_it_repaired(kafka_cluster):
    assert [one.state for one in kafka_cluster.nodes] == ["running"] * 3
"""

NOTHING = """
import sys

def test_nothing_of_a_cluster_is_loaded():
    loaded = [name for name in sys.modules if name.startswith("quorate.")]
    assert sorted(loaded) == ["quorate.testing", "quorate.testing.plugin"]
"""


def run(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_them.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    return subprocess.run(
        [*command, str(directory)], capture_output=True, text=True, check=False, cwd=directory, timeout=300
    )


def test_every_test_has_topics_of_its_own(tmp_path: Path):
    done = run(tmp_path, USES)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_run_that_does_not_ask_for_it_does_not_load_it(tmp_path: Path):
    done = run(tmp_path, NOTHING)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.processes
def test_what_one_test_broke_is_repaired_for_the_next(tmp_path: Path):
    done = run(tmp_path, BREAKS)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
