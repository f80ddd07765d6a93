"""Apache's kafka-log-dirs and kafka-reassign-partitions, on brokers of ours with two log directories each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from apache_tools import ApacheTools

from node.broker_processes import Load
from node.several_disks import SETTINGS, SeveralDisks

pytestmark = pytest.mark.interop

ALL = (101, 102, 103)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralDisks]:
    with SeveralDisks(tmp_path_factory.mktemp("cluster"), **SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with ApacheTools.start(ApachePrograms()) as tools:
        yield tools


def described(cluster: SeveralDisks, tools: ApacheTools, topic: str) -> dict[tuple[int, str], list[str]]:
    """What kafka-log-dirs says is where, by broker and log directory."""
    printed = tools.run(
        "log_dirs", "--describe", "--bootstrap-server", cluster.bootstrap, "--topic-list", topic
    )
    (line,) = [one for one in printed.splitlines() if one.startswith("{")]
    found = {}
    for broker in json.loads(line)["brokers"]:
        for directory in broker["logDirs"]:
            assert directory["error"] is None
            names = sorted(one["partition"] for one in directory["partitions"])
            found[broker["broker"], directory["logDir"]] = names
    return found


def test_kafka_log_dirs_says_where_replicas_are(cluster: SeveralDisks, tools: ApacheTools):
    cluster.create_topic("described", ALL, ALL, ALL, ALL)
    with Load(cluster, "described", partitions=4) as load:
        load.wait_for_more(50)
    found = described(cluster, tools, "described")
    assert sorted(found) == sorted((one, str(path)) for one in ALL for path in cluster.log_directories(one))
    for (broker, path), names in found.items():
        assert names == sorted(one.name for one in Path(path).glob("described-?") if one.is_dir()), (
            f"of broker {broker}"
        )
        assert len(names) == 2, "they are spread evenly"


def test_kafka_reassign_partitions_moves_replicas_between_log_directories(
    cluster: SeveralDisks, tools: ApacheTools, tmp_path: Path
):
    """Within brokers and between them, while producers write: nothing is lost, and Apache sees it done."""
    cluster.create_topic("shifted", (101, 102), (102, 103), min_insync_replicas=1)
    targets = {one: [str(path) for path in cluster.log_directories(one)] for one in ALL}
    rounds = [
        {0: (101, 102), 1: (102, 103)},  # only other directories
        {0: (103, 101), 1: (101, 102)},  # another broker, which has no replica yet
        {0: (101, 102), 1: (102, 103)},
    ]
    with Load(cluster, "shifted", partitions=2, padding=500) as load:
        load.wait_for_more(500)
        for number, wanted in enumerate(rounds):
            plan = tmp_path / f"plan-{number}.json"
            entries = [
                {
                    "topic": "shifted",
                    "partition": partition,
                    "replicas": list(replicas),
                    "log_dirs": [targets[one][(number + partition) % 2] for one in replicas],
                }
                for partition, replicas in wanted.items()
            ]
            plan.write_text(json.dumps({"version": 1, "partitions": entries}))
            words = ("--reassignment-json-file", str(plan), "--bootstrap-server", cluster.bootstrap)
            tools.run("reassign", "--execute", *words)

            def is_complete(words: tuple[str, ...] = words) -> bool:
                printed = tools.run("reassign", "--verify", *words)
                partitions, replicas = printed.count("is completed"), printed.count("completed successfully")
                return (partitions, replicas) == (2, 4)

            cluster.wait("the reassignment is complete", is_complete)
            load.wait_for_more(200)
            for entry in entries:
                for one, path in zip(entry["replicas"], entry["log_dirs"], strict=True):
                    assert str(cluster.home(one, "shifted", entry["partition"])) == path
        cluster.wait_until_in_sync("shifted")
    load.check()
