"""`quorate.testing.Cluster` with a process per node: nodes die, pause, are cut off, and come back."""

import errno
import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.processes import has_ended
from quorate.testing import Cluster, ClusterError
from quorate.testing.control import Control, launch, read_state, wait_until
from quorate.testing.profiles import DEVELOPMENT

pytestmark = pytest.mark.processes

TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def broken() -> Iterator[Cluster]:
    with Cluster(brokers=3, controllers=3, mode="processes", timeout=TIMEOUT_S) as cluster:
        yield cluster


@pytest.fixture
def cluster(broken: Cluster) -> Cluster:
    broken.repair()
    return broken


def broker(cluster: Cluster, broker_id: int, asked: int = 101) -> dict[str, Any]:
    return next(one for one in cluster.ask(asked, "/v1/brokers")["brokers"] if one["id"] == broker_id)


def is_fenced(cluster: Cluster, broker_id: int) -> bool:
    return broker(cluster, broker_id)["state"] == "fenced"


def leader(cluster: Cluster, *asked: int) -> int | None:
    for one in asked:
        found = cluster.ask(one, "/v1/controller")
        if found["is_active"]:
            return one
    return None


def test_the_file_says_what_runs(cluster: Cluster):
    found = json.loads((cluster.directory / "cluster.json").read_text())
    assert found["ready"] is True
    assert found["mode"] == "kraft"
    assert found["cluster_id"] == cluster.cluster_id
    assert found["bootstrap_servers"] == cluster.bootstrap_servers
    assert found["bootstrap_controllers"].count(",") == 2
    assert [one["id"] for one in found["nodes"]] == [1, 2, 3, 101, 102, 103]
    keys = {"id", "roles", "pid", "host", "port", "listeners", "admin", "data"}
    for one in found["nodes"]:
        assert keys <= one.keys()
        assert Path(f"/proc/{one['pid']}").exists()


def test_a_node_that_is_killed_is_dead_until_it_is_restarted(cluster: Cluster):
    epoch = broker(cluster, 1)["epoch"]
    cluster.kill(1)
    assert (cluster.node(1).state, cluster.node(1).pid) == ("dead", None)
    cluster.wait_until(lambda: is_fenced(cluster, 1), what="broker 1 to be fenced")
    with pytest.raises(ClusterError, match="node 1 is not running"):
        cluster.kill(1)
    with pytest.raises(ClusterError, match="node 1 ended with status -9"):
        cluster.wait_until_ready()
    cluster.restart(1)
    assert broker(cluster, 1)["epoch"] > epoch
    cluster.wait_until(lambda: not is_fenced(cluster, 1))


def test_a_node_that_is_killed_from_outside_shows_as_dead(cluster: Cluster):
    pid = cluster.node(2).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    cluster.wait_until(lambda: cluster.node(2).state == "dead")
    assert not (read_state(cluster.directory) or {})["ready"]


def test_a_node_that_is_stopped_leaves_in_order(cluster: Cluster):
    cluster.stop(3)
    assert cluster.node(3).state == "stopped"
    assert is_fenced(cluster, 3)
    cluster.restart(3)


def test_a_node_that_is_paused_is_fenced_and_comes_back_as_the_same(cluster: Cluster):
    pid = cluster.node(1).pid
    cluster.pause(1)
    cluster.wait_until(lambda: is_fenced(cluster, 1), what="broker 1 to be fenced")
    cluster.resume(1)
    cluster.wait_until(lambda: not is_fenced(cluster, 1), what="broker 1 to be unfenced")
    assert cluster.node(1).pid == pid


def test_a_broker_that_is_cut_off_is_fenced_until_the_network_is_healed(cluster: Cluster):
    cluster.partition({1}, {2, 3, 101, 102, 103})
    cluster.wait_until(lambda: is_fenced(cluster, 1), what="broker 1 to be fenced")
    assert cluster.node(1).state == "running"
    cluster.heal()
    cluster.wait_until(lambda: not is_fenced(cluster, 1), what="broker 1 to be unfenced")
    cluster.wait_until_ready()


def test_a_leader_that_is_cut_off_is_replaced(cluster: Cluster):
    before = cluster.wait_until(lambda: leader(cluster, 101, 102, 103))
    others = {101, 102, 103} - {before}
    cluster.partition({before}, others | {1, 2, 3})
    after = cluster.wait_until(lambda: leader(cluster, *others), what="another leader")
    assert after != before
    cluster.heal()
    cluster.wait_until(
        lambda: cluster.ask(before, "/v1/controller")["controller_id"] == leader(cluster, *others),
        what="the old leader to follow",
    )


def test_a_directory_has_one_cluster_at_a_time_and_is_started_again(tmp_path: Path):
    directory = tmp_path / ("long-" * 30)  # the address of a socket cannot be that long
    launched = launch(directory, {"brokers": 1, "settings": dict(DEVELOPMENT)})
    try:
        first = launched.wait_until_ready(TIMEOUT_S)
        with pytest.raises(ClusterError, match="is in use: process"):
            launch(directory)
    finally:
        launched.end()
    ended = read_state(directory) or {}
    assert (ended["ready"], ended["nodes"][0]["pid"]) == (False, None)
    launched = launch(directory)
    try:
        again = launched.wait_until_ready(TIMEOUT_S)
        assert again["cluster_id"] == first["cluster_id"]
    finally:
        launched.end()


@pytest.mark.parametrize("brokers", [2, 3])
def test_nodes_that_are_both_end_together(tmp_path: Path, brokers: int):
    """The last of them are let go by nobody, and are not killed for that."""
    with Cluster(brokers=brokers, data=tmp_path / "a", mode="processes", timeout=TIMEOUT_S) as cluster:
        pass
    assert [one["exit_status"] for one in (read_state(cluster.directory) or {})["nodes"]] == [0] * brokers


def test_a_node_that_cannot_start_is_quoted(tmp_path: Path):
    with Cluster(data=tmp_path / "a", mode="processes", timeout=TIMEOUT_S) as one:
        file = one.node(1).data.parent / "node.properties"
    file.write_text(file.read_text() + "num.partitions=many\n")
    with (
        pytest.raises(ClusterError, match=r"num\.partitions=many"),
        Cluster(data=tmp_path / "a", mode="processes", timeout=TIMEOUT_S),
    ):
        pass


def test_nodes_end_in_order_when_whoever_started_them_is_gone(tmp_path: Path):
    """The controller does so first; and one of the brokers cannot hear anything as it is paused."""
    wanted = {"brokers": 2, "controllers": 1, "settings": dict(DEVELOPMENT)}
    launched = launch(tmp_path / "a", wanted)
    nodes = launched.wait_until_ready(TIMEOUT_S)["nodes"]
    launched.order("pause", 2)
    launched.process.kill()
    launched.process.wait()
    for one in nodes:
        wait_until(lambda pid=one["pid"]: has_ended(pid), TIMEOUT_S)
        with socket.socket() as connection:
            assert connection.connect_ex((one["host"], one["port"])) == errno.ECONNREFUSED
        assert (Path(one["data"]) / ".kafka_cleanshutdown").exists() or "controller" in one["roles"]
    assert launched.process.stdin is not None
    launched.process.stdin.close()


def test_a_full_disk_is_told_and_the_nodes_go_on(cluster: Cluster):
    """The launcher may not write a byte; what happens meanwhile is in the file once it may again."""
    control = Control(cluster.directory)
    launcher = control.state()["launcher"]
    limit, hard = resource.prlimit(launcher, resource.RLIMIT_FSIZE)
    resource.prlimit(launcher, resource.RLIMIT_FSIZE, (0, hard))
    cluster.kill(1)
    state = control.state()
    assert state["unwritten"] == "cluster.json cannot be written: File too large"
    assert state["nodes"][0]["state"] == "dead"
    assert (read_state(cluster.directory) or {})["nodes"][0]["state"] == "running"
    assert [one["state"] for one in state["nodes"][1:]] == ["running"] * 5
    resource.prlimit(launcher, resource.RLIMIT_FSIZE, (limit, hard))
    cluster.wait_until(lambda: control.state()["unwritten"] is None)
    assert (read_state(cluster.directory) or {})["nodes"][0]["state"] == "dead"
