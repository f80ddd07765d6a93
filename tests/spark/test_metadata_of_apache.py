"""The internal logs of a real Apache Kafka: live, and its files after it was killed and started again.

What the rows say is held against what Apache's own `kafka-dump-log` prints of the same files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from typer.testing import CliRunner

from node.processes import CLUSTER_ID, HOST, Processes
from quorate.cli.main import app
from quorate.spark import group_source, metadata_source
from quorate.spark.problems import file_problems
from quorate.spark.schemas import GROUP_RECORDS, RECORDS

pytestmark = pytest.mark.interop

PAYLOAD = re.compile(r"offset: (\d+) .*payload: (\{.*\})$")
Row = dict[str, Any]


class Visited(NamedTuple):
    """A node after its life: its directory, and what it said while it was alive."""

    directory: Path
    programs: ApachePrograms
    live: list[Row]
    live_groups: list[Row]


def rows_of(module: Any, table: Any, **options: str) -> list[Row]:
    named = {name.replace("_", "."): value for name, value in options.items()}
    reader = module.reader(named, table)
    return [row for part in reader.partitions() for some in reader.read(part) for row in some.to_pylist()]


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visited]:
    """A node with topics and a group, killed, started again, and ended in order."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    programs = ApachePrograms()
    with Processes(tmp_path_factory.mktemp("apache-logs")) as cluster:
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
        )
        programs.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
        with programs.node(config, cluster.root / "node-1.log") as node:
            cluster.wait("a broker", lambda: is_serving(broker))
            said("topics", "create", "orders", "--partitions", "3", "--bootstrap-server", broker)
            said("produce", "orders", "--bootstrap-server", broker, stdin="one\ntwo\n")
            said("consume", "orders", "--exit-at-end", "--group", "g", "--bootstrap-server", broker)
            node.kill()
            node.wait()
        with programs.node(config, cluster.root / "node-1-again.log"):
            cluster.wait("a broker", lambda: is_serving(broker))
            said("topics", "create", "payments", "--partitions", "2", "--bootstrap-server", broker)
            live = rows_of(metadata_source, RECORDS, bootstrap_servers=broker)
            live_groups = rows_of(group_source, GROUP_RECORDS, bootstrap_servers=broker)
        yield Visited(directory, programs, live, live_groups)


def said(*words: str, stdin: str = "") -> str:
    done = CliRunner().invoke(app, words, input=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def is_serving(broker: str) -> bool:
    done = CliRunner().invoke(app, ["brokers", "list", "--json", "--bootstrap-server", broker])
    return done.exit_code == 0 and '"active"' in done.stdout


def dumped(text: str) -> dict[int, Any]:
    """What the tool prints of each record that it decodes, by offset."""
    matches = [PAYLOAD.search(line) for line in text.splitlines()]
    return {int(match[1]): json.loads(match[2]) for match in matches if match}


def test_live_and_files_tell_the_same(visited: Visited) -> None:
    from_files = rows_of(metadata_source, RECORDS, path=str(visited.directory))

    log = [row for row in from_files if row["origin"] == "log"]
    live = [row for row in visited.live if row["origin"] == "log"]
    assert [row["offset"] for row in log] == list(range(len(log)))
    assert {row["cluster_id"] for row in from_files} == {CLUSTER_ID}
    assert log[: len(live)] == live
    assert all(row["is_confirmed"] for row in log)  # one voter, one copy
    assert not file_problems([str(visited.directory / "__cluster_metadata-0")])


def test_fields_are_what_apaches_own_tool_prints(visited: Visited) -> None:
    (segment,) = (visited.directory / "__cluster_metadata-0").glob("*.log")
    expected = dumped(visited.programs.dump_log(segment))

    rows = {row["offset"]: row for row in rows_of(metadata_source, RECORDS, path=str(segment))}

    decoded = {offset: row for offset, row in rows.items() if offset in expected}
    assert len(decoded) == len(expected) > 20
    for offset, said_there in expected.items():
        row = decoded[offset]
        assert json.loads(row["fields"]) == said_there["data"], row["type"]
        assert row["version"] == said_there["version"]
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", row["type"]).upper() == said_there["type"]


def test_the_story_is_in_the_rows(visited: Visited) -> None:
    rows = [
        row
        for row in rows_of(metadata_source, RECORDS, path=str(visited.directory))
        if row["origin"] == "log"
    ]
    kinds = [row["type"] for row in rows]

    assert kinds.count("LeaderChange") == 2
    assert [row["broker_id"] for row in rows if row["type"] == "RegisterBrokerRecord"] == [1, 1]
    topics = [row["topic"] for row in rows if row["type"] == "TopicRecord"]
    assert (topics[0], topics[-1]) == ("orders", "payments")
    leaders = [row["leader"] for row in rows if row["type"] == "PartitionRecord"]
    assert set(leaders) == {1}
    assert "Unknown" not in kinds
    assert "Malformed" not in kinds


def test_groups_are_what_apaches_own_tool_prints(visited: Visited) -> None:
    (segment,) = (visited.directory / "__consumer_offsets-0").glob("*.log")
    text = visited.programs.run(
        "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment)
    )
    rows = rows_of(group_source, GROUP_RECORDS, path=str(visited.directory))

    assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert all(row["is_confirmed"] for row in rows)
    commits = [row for row in rows if row["type"] == "OffsetCommit"]
    assert {(row["group_id"], row["topic"]) for row in commits} == {("g", "orders")}
    expected = dumped(text.replace("\tpayload", " payload"))
    assert expected
    for row in rows:
        said_there = expected.get(row["offset"])
        if said_there and said_there.get("value") not in (None, "<null>"):
            assert json.loads(row["key_fields"]) == said_there["key"]["data"]
            if row["type"] == "OffsetCommit":
                assert json.loads(row["fields"]) == said_there["value"]["data"]
    key = ("offset", "type", "fields", "epoch", "ts")
    assert [[row[name] for name in key] for row in visited.live_groups] == [
        [row[name] for name in key] for row in rows
    ][: len(visited.live_groups)]
