"""Apache's kafka-log-dirs and kafka-reassign-partitions, on brokers of ours with two log directories each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from apache_tools import ApacheTools
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from test_client_on_apache import ApacheBroker

from node.broker_processes import Load
from node.processes import CLUSTER_ID, DEADLINE_S, Processes
from node.several_disks import SETTINGS, SeveralDisks
from quorate.protocol.api.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request

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


# The same questions to a broker of Apache's and to one of ours, with two log directories each


class Asked:
    """A broker with the id 1: where it answers, and its log directories."""

    def __init__(self, ask: Callable[[Request, int], Any], paths: list[Path]) -> None:
        self._ask = ask
        self.paths = [str(path) for path in paths]

    def alter(self, version: int, path: str, topic: str, *partitions: int) -> list[tuple[str, int, str]]:
        data = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        topics = [data.AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
        answer = self._ask(AlterReplicaLogDirsRequest(dirs=[data(path=path, topics=topics)]), version)
        return sorted(
            (each.topic_name, one.partition_index, ErrorCode(one.error_code).name)
            for each in answer.results
            for one in each.partitions
        )

    def describe(self, version: int, topics: dict[str, list[int]] | None) -> dict[int, list[Any]]:
        """By the number of the directory: its error, whether it has room, and what is in it."""
        make = DescribeLogDirsRequest.DescribableLogDirTopic
        asked = None
        if topics is not None:
            asked = [make(topic=name, partitions=some) for name, some in topics.items()]
        answer = self._ask(DescribeLogDirsRequest(topics=asked), version)
        assert answer.error_code == 0
        return {
            self.paths.index(one.log_dir): [
                ErrorCode(one.error_code).name,
                (one.total_bytes > 0, one.usable_bytes > 0, one.is_cordoned),
                sorted(
                    (each.name, replica.partition_index, replica.offset_lag, replica.is_future_key)
                    for each in one.topics
                    for replica in each.partitions
                ),
            ]
            for one in answer.results
        }


def answers(asked: Asked) -> list[Any]:
    """The whole conversation."""
    there = asked.paths[1]
    said: list[Any] = []
    for version in (1, 2):
        said += [
            asked.alter(version, "/nowhere", "t", 0),
            asked.alter(version, "/nowhere", "x" * 249, 0),
            asked.alter(version, there, "x" * 249, 0),
            asked.alter(version, there, "t", 7),
            asked.alter(version, there, "unknown", 0),
            asked.alter(version, "", "t", 0),
            asked.alter(version, there + "/", "t", 0),
            asked.alter(version, there, "t"),
        ]
    for path in (there, there, asked.paths[0], asked.paths[0], there):
        said.append(asked.alter(2, path, "t", 0, 1))
        number = asked.paths.index(path)
        wanted = [("t", 0, 0, False), ("t", 1, 0, False)]
        deadline = time.monotonic() + DEADLINE_S
        while (found := asked.describe(4, {"t": [0, 1]}))[number][2] != wanted:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
    for version in range(1, 6):
        said += [
            asked.describe(version, {"t": [0, 1, 9], "unknown": [0]}),
            asked.describe(version, {"t": []}),
            asked.describe(version, {}),
            asked.describe(version, None),
        ]
    return said


def with_a_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce("t", b"value", partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.usefixtures("tools")  # or this is skipped
def test_every_question_is_answered_as_apache_answers_it(tmp_path: Path):
    programs = ApachePrograms()
    with Processes(tmp_path) as ports:
        apache = ApacheBroker(programs, tmp_path, ports)
        paths = [tmp_path / "data", tmp_path / "more"]
        text = apache._properties.read_text()
        apache._properties.write_text(text.replace(str(paths[0]), ",".join(map(str, paths))))
        words = ("format", "-t", CLUSTER_ID, "--ignore-formatted", "-c", str(apache._properties))
        programs.run("kafka.tools.StorageTool", *words)
        with apache.running():
            with_a_topic(apache.bootstrap)
            theirs = answers(Asked(lambda request, version: ports.ask(1, request, version), paths))
    (tmp_path / "ours").mkdir()
    with SeveralDisks(tmp_path / "ours", combined=1, **SETTINGS) as cluster:
        with_a_topic(cluster.bootstrap)
        cluster.wait_until_led("t", 2)
        ask = Asked(
            lambda request, version: cluster.ask_broker(1, request, version), cluster.log_directories(1)
        )
        ours = answers(ask)
    assert ours == theirs
