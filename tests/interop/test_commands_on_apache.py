"""The `quorate` command on a cluster of Apache's: one node that runs, and its directories afterwards."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from typer.testing import CliRunner

from node.processes import CLUSTER_ID, HOST, Processes
from quorate.cli.main import app

pytestmark = pytest.mark.interop

LOG = "__cluster_metadata-0"


def good(*words: str, stdin: str = "") -> str:
    done = CliRunner().invoke(app, words, input=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def lines(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in good("metadata", "dump", *words).splitlines()]


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of an Apache node, broker and controller, after our commands have been there."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    programs = ApachePrograms()
    with Processes(tmp_path_factory.mktemp("visited")) as cluster:
        controller, broker = f"{HOST}:{cluster.port(1)}", f"{HOST}:{cluster.port(2)}"
        directory = cluster.directory(1)
        config = cluster.configure(
            1,
            process_roles="broker,controller",
            listeners=f"CONTROLLER://{controller},PLAINTEXT://{broker}",
            listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            controller_quorum_voters=f"1@{controller}",
            log_dirs=str(directory),
            offsets_topic_replication_factor="1",
            offsets_topic_num_partitions="1",
            group_initial_rebalance_delay_ms="0",
            metadata_log_max_snapshot_interval_ms="500",
        )
        programs.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
        with programs.node(config, cluster.root / "node-1.log"):
            cluster.wait("a broker", lambda: _is_serving(broker))
            _visit(broker, controller)
            cluster.wait("a snapshot of it", lambda: _is_in_snapshot(directory, "orders"))
        yield directory


def _is_serving(broker: str) -> bool:
    words = ["brokers", "list", "--json", "--bootstrap-server", broker]
    done = CliRunner().invoke(app, words)
    return done.exit_code == 0 and '"active"' in done.stdout


def _latest_snapshot(directory: Path) -> str:
    return str(max((directory / LOG).glob("*.checkpoint")))


def _is_in_snapshot(directory: Path, topic: str) -> bool:
    words = ["metadata", "shell", "--snapshot", _latest_snapshot(directory), "ls", f"/topics/{topic}"]
    return CliRunner().invoke(app, words).exit_code == 0


def _visit(broker: str, controller: str) -> None:
    server = "--bootstrap-server", broker
    good("topics", "create", "orders", "--partitions", "2", "--config", "retention.ms=86400000", *server)
    good("produce", "orders", "--key-separator", ":", "--partition", "1", *server, stdin="k:one\nk:two\n")
    assert good("consume", "orders", "--exit-at-end", *server) == "one\ntwo\n"
    assert good("consume", "orders", "--exit-at-end", "--group", "g", *server) == "one\ntwo\n"
    (topic,) = json.loads(good("topics", "describe", "orders", "--json", *server))
    assert [one["end_offset"] for one in topic["partitions"]] == [0, 2]
    (directory,) = json.loads(good("brokers", "describe", "1", "--json", *server))["log_directories"]
    assert {"orders-0", "orders-1"} <= {one["partition"] for one in directory["replicas"]}
    assert json.loads(good("quorum", "describe", "--json", *server))["leader_id"] == 1
    for where in (server, ("--bootstrap-controller", controller)):
        assert "orders" in json.loads(good("metadata", "at", "/topics", *where))


def test_the_directory_of_an_apache_node(visited: Path):
    (found,) = json.loads(good("storage", "info", str(visited), "--json"))
    assert found["meta_properties"]["cluster_id"] == CLUSTER_ID
    assert found["is_in_order"]
    assert found["metadata"]["snapshots"]
    assert found["metadata"]["quorum_state"]["leader_id"] == 1
    replicas = {(one["topic"], one["partition"]): one for one in found["replicas"]}
    assert replicas["orders", 1]["log"]["end_offset"] == replicas["orders", 1]["high_watermark"] == 2
    assert replicas["orders", 0]["log"]["end_offset"] == 0


def test_the_log_and_the_snapshots_of_an_apache_node(visited: Path):
    source = "--directory", str(visited)
    assert {"TopicRecord", "PartitionRecord", "RegisterBrokerRecord", "LeaderChangeMessage"} <= {
        one["type"] for one in lines(*source)
    }
    (topic,) = [one for one in lines(*source, "--type", "TopicRecord") if one["data"]["name"] == "orders"]
    at = "metadata", "at", *source, "/topics", "--offset"
    assert "orders" not in json.loads(good(*at, str(topic["offset"] - 1)))
    assert "orders" in json.loads(good(*at, str(topic["offset"])))
    snapshot = _latest_snapshot(visited)
    shell = "metadata", "shell", "--snapshot", snapshot
    assert "orders/" in good(*shell, "ls", "/topics").splitlines()
    assert good(*shell, "cat", "/topics/orders/configs/retention.ms") == "86400000\n"
    assert {"RegisterBrokerRecord", "TopicRecord"} <= {one["type"] for one in lines("--snapshot", snapshot)}
