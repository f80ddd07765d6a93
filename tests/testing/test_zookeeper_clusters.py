"""`quorate up` and `quorate.testing.Cluster` in ZooKeeper mode, with a ZooKeeper that they start."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from node.processes import has_ended, quorate, run_quorate
from node.zookeeper_processes import check_java
from quorate.testing import Cluster, ClusterError
from quorate.testing.control import launch, wait_until
from quorate.testing.profiles import DEVELOPMENT
from zookeeper.zookeeper_servers import ZooKeeperServer, free_ports, jars

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

DEADLINE_S = 90.0


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ZooKeeper of these tests, as if somebody had unpacked it."""
    check_java()
    monkeypatch.setenv("ZOOKEEPER_HOME", str(jars()))


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    check_java()
    patched = pytest.MonkeyPatch()
    patched.setenv("ZOOKEEPER_HOME", str(jars()))
    try:
        with Cluster(brokers=3, mode="zookeeper", timeout=DEADLINE_S) as cluster:
            yield cluster
    finally:
        patched.undo()


def controller(cluster: Cluster) -> int:
    found = [
        one.id for one in cluster.nodes if one.admin and cluster.ask(one.id, "/v1/controller")["is_active"]
    ]
    return found[0] if len(found) == 1 else -1


def test_a_cluster_in_a_test(running: Cluster):
    cluster = running
    state = json.loads((cluster.directory / "cluster.json").read_text())
    assert state["mode"] == "zookeeper"
    assert state["zookeeper"]["connect"] == cluster.zookeeper
    assert state["cluster_id"] == cluster.cluster_id != ""
    assert [one["state"] for one in state["zookeeper"]["servers"]] == ["running"]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for done in admin.create_topics([NewTopic("t", 3, 3)]).values():
        done.result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(30):
        producer.produce("t", str(number).encode())
    assert producer.flush(DEADLINE_S) == 0
    assert controller(cluster) == cluster.ask(1, "/v1/controller")["controller_id"]
    assert cluster.ask(2, "/v1/partitions") | {"total": 3, "leaderless": 0, "under_replicated": 0} == (
        cluster.ask(2, "/v1/partitions")
    )


def test_nodes_and_zookeeper_are_broken_and_repaired(running: Cluster):
    cluster = running
    cluster.repair()
    before = cluster.wait_until(lambda: max(0, controller(cluster)))
    cluster.kill(before)
    after = cluster.wait_until(
        lambda: (found := controller(cluster)) != before and max(0, found), what="another controller"
    )
    assert after != before
    cluster.kill_zookeeper()
    cluster.start_zookeeper()
    cluster.repair()
    cluster.wait_until(lambda: len(cluster.ask(after, "/v1/brokers")["brokers"]) == 3)
    with pytest.raises(ClusterError, match="no server zookeeper-2"):
        cluster.kill_zookeeper(2)


def wait_for(path: Path, condition: str, process: subprocess.Popen[str]) -> dict[str, object]:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        if path.exists():
            found: dict[str, object] = json.loads(path.read_text())
            if found[condition]:
                return found
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def run_up(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        quorate("up", "--port", "0", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_up_starts_a_private_one_and_says_which(tmp_path: Path):
    process = run_up("--mode", "zookeeper", "--brokers", "2", "--data", str(tmp_path / "c"))
    try:
        found = wait_for(tmp_path / "c" / "cluster.json", "ready", process)
    finally:
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=DEADLINE_S)[0]
    assert process.returncode == 0, said
    assert found["mode"] == "zookeeper"
    assert f"(private, {jars()})" in said
    state = json.loads((tmp_path / "c" / "cluster.json").read_text())
    assert [one["pid"] for one in state["zookeeper"]["servers"]] == [None]
    assert [one["state"] for one in state["nodes"]] == ["stopped", "stopped"]


def test_up_uses_one_that_runs(tmp_path: Path):
    server = ZooKeeperServer(tmp_path / "zookeeper", *free_ports(1))
    server.start()
    try:
        server.wait()
        address = f"{server.address}/some/path"
        process = run_up("--zookeeper", address, "--data", str(tmp_path / "c"))
        try:
            found = wait_for(tmp_path / "c" / "cluster.json", "ready", process)
        finally:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=DEADLINE_S)[0]
        assert process.returncode == 0, said
        assert found["zookeeper"] == {"connect": address, "distribution": None, "servers": []}
        assert f"ZooKeeper: {address}" in said
    finally:
        server.kill()


def test_up_without_any_says_what_would_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ZOOKEEPER_HOME")
    monkeypatch.setenv("QUORATE_MAVEN_REPOSITORY", str(tmp_path))
    if Path("/usr/share/java/zookeeper.jar").exists():
        pytest.skip("the system has one")
    ended = run_quorate("up", "--mode", "zookeeper", "--data", str(tmp_path / "c"), "--port", "0")
    assert ended.returncode == 1
    assert "no ZooKeeper is installed: install your system's package" in ended.stderr
    assert not (tmp_path / "c" / "node-1").exists()


def test_words_that_contradict_each_other():
    assert "--mode raft: allowed is kraft or zookeeper" in run_quorate("up", "--mode", "raft").stderr
    both = run_quorate("up", "--mode", "kraft", "--zookeeper", "h:1")
    assert "--zookeeper: not with --mode kraft" in both.stderr


def test_its_servers_end_too_when_whoever_started_them_is_gone(tmp_path: Path):
    """The brokers then have no ZooKeeper that would let them go."""
    launched = launch(tmp_path / "a", {"brokers": 2, "mode": "zookeeper", "settings": dict(DEVELOPMENT)})
    state = launched.wait_until_ready(DEADLINE_S)
    launched.process.kill()
    launched.process.wait()
    for one in (*state["nodes"], *state["zookeeper"]["servers"]):
        wait_until(lambda pid=one["pid"]: has_ended(pid), DEADLINE_S)
    assert all((Path(one["data"]) / ".kafka_cleanshutdown").exists() for one in state["nodes"])
    assert launched.process.stdin is not None
    launched.process.stdin.close()
