"""What an earlier release has left on disk is opened and served by today's code, and nodes go over singly.

The archive was made by `tools/make_release_fixture.py`, which says what is in it. Where the history of the
project is at hand, a cluster of that release is also replaced by today's, node by node and under load;
elsewhere that test is skipped.
"""

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from node.broker_processes import BrokerProcesses, Load
from node.processes import DEADLINE_S
from quorate.client.admin import Admin, Resource, ResourceKind
from quorate.client.cluster import Cluster
from quorate.protocol.api.produce_fetch import ProduceRequest, ProduceResponse
from quorate.protocol.api.security import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from quorate.protocol.api.transactions import DescribeProducersRequest, DescribeProducersResponse
from quorate.protocol.batch import Record, build
from quorate.protocol.errors import ErrorCode
from unpacking import unpack

pytestmark = pytest.mark.processes

REPOSITORY = Path(__file__).parents[2]
ARCHIVE = REPOSITORY / "tests" / "fixtures" / "release-0.1.0.dev1.tar.xz"
COMMAND = "from quorate.cli.main import app; app(prog_name='quorate')"  # of the release
PARTITIONS = 2
PRODUCERS = 5  # one for each codec
SETTINGS = {
    # What is in the archive becomes old, but shall stay.
    "log_retention_check_interval_ms": "3600000",
    "replica_lag_time_max_ms": "3000",
    "leader_imbalance_check_interval_seconds": "1",
}

Placed = dict[tuple[str, int], dict[int, tuple[str, str]]]  # key and value by offset, by partition


class Inherited(BrokerProcesses):
    """Three nodes, brokers and controllers, on the directories of the archive."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, combined=3, **SETTINGS)
        with tarfile.open(ARCHIVE) as archive:
            unpack(archive, root)
        self.expected: dict[str, Any] = json.loads((root / "expected.json").read_text())

    def prepare(self) -> None:
        for one in self.node_ids:
            assert (self.directory(one) / "meta.properties").exists()
            self.configure_node(one)

    @property
    def records(self) -> Placed:
        placed: Placed = defaultdict(dict)
        for one in self.expected["records"]:
            placed[one["topic"], one["partition"]][one["offset"]] = one["key"], one["value"]
        return placed


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inherited]:
    with Inherited(tmp_path_factory.mktemp("inherited")) as cluster:
        for topic in cluster.expected["topics"]:
            cluster.wait_until_led(topic, PARTITIONS)
        yield cluster


def read(cluster: BrokerProcesses, topic: str, partition: int, count: int) -> dict[int, tuple[str, str]]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    found: dict[int, tuple[str, str]] = {}

    def read_on() -> bool:
        for message in consumer.consume(count, 0.2):
            assert message.error() is None, message.error()
            key, value, offset = message.key(), message.value(), message.offset()
            assert key is not None
            assert value is not None
            assert offset is not None
            found[offset] = key.decode(), value.decode()
        return len(found) >= count

    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        cluster.wait(f"{count} records of {topic}-{partition} are read", read_on)
    finally:
        consumer.close()
    return found


def test_every_record_is_where_it_was(cluster: Inherited):
    assert len(cluster.records) == len(cluster.expected["topics"]) * PARTITIONS
    for (topic, partition), records in cluster.records.items():
        assert read(cluster, topic, partition, len(records)) == records


def test_topics_configurations_and_credentials(cluster: Inherited):
    async def ask() -> None:
        async with Cluster(cluster.bootstrap) as client:
            admin = Admin(client)
            topics = {name for name in await admin.list_topics() if not name.startswith("__")}
            assert topics == set(cluster.expected["topics"])
            for topic, configs in cluster.expected["topics"].items():
                found = await admin.describe_configs(Resource(ResourceKind.TOPIC, topic))
                own = {name: one.value for name, one in found.items() if one.source == 1}
                assert own == configs
            found = await admin.describe_configs(Resource(ResourceKind.BROKER, "1"))
            own = {name: one.value for name, one in found.items() if one.source == 2}
            assert own == cluster.expected["broker_config"]

    asyncio.run(ask())
    users = cluster.ask_broker(1, DescribeUserScramCredentialsRequest(users=None))
    assert isinstance(users, DescribeUserScramCredentialsResponse)
    (user,) = users.results
    assert (user.user, [one.iterations for one in user.credential_infos]) == ("ann", [4096])


def producers(cluster: BrokerProcesses, topic: str, partition: int) -> dict[int, tuple[int, int]]:
    """Epoch and last sequence of those that a leader remembers."""
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])

    def ask() -> dict[int, tuple[int, int]] | None:
        """Nothing if the leader was another one by the time that it was asked."""
        leader = cluster.leader_of(topic, partition)
        found = cluster.ask_broker(leader, DescribeProducersRequest(topics=[asked]))
        assert isinstance(found, DescribeProducersResponse)
        (answer,) = found.topics[0].partitions
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return None
        assert answer.error_code == 0
        return {one.producer_id: (one.producer_epoch, one.last_sequence) for one in answer.active_producers}

    return cluster.wait(f"the leader of {topic}-{partition} to tell its producers", ask)


def test_a_batch_that_is_sent_again_is_known(cluster: Inherited):
    for (topic, partition), records in cluster.records.items():
        known = producers(cluster, topic, partition)
        each = len(records) // PRODUCERS
        assert sorted(known.values()) == [(0, each - 1)] * PRODUCERS
        if topic != "plain":
            continue
        newest = max(known)
        again = build(
            [Record(number, 0, b"k", b"again") for number in range(4)],
            producer_id=newest,
            producer_epoch=0,
            base_sequence=each - 4,
        )
        part = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=int(DEADLINE_S * 1000),
            topic_data=[
                part(
                    name=topic,
                    partition_data=[part.PartitionProduceData(index=partition, records=bytes(again))],
                )
            ],
        )
        answer = cluster.ask_broker(cluster.leader_of(topic, partition), request, 12)
        assert isinstance(answer, ProduceResponse)
        (said,) = answer.responses[0].partition_responses
        assert (said.error_code, said.base_offset) == (0, len(records) - 4)


def test_nodes_go_over_one_by_one(tmp_path: Path):
    """Two of three make a cluster. The third was killed, comes later, and has to catch up."""
    cluster = Inherited(tmp_path)
    cluster.prepare()
    try:
        cluster.start(1, 2)
        cluster.wait_until_unfenced(1, 2)
        cluster.create_topic("new", (1, 2), (2, 1))
        with Load(cluster, "new", partitions=2) as load:
            load.wait_for_more(50)
            cluster.start(3)
            cluster.wait_until_unfenced(1, 2, 3)
            for topic in cluster.expected["topics"]:
                cluster.wait_until_in_sync(topic)
            for one in (1, 2, 3):
                assert cluster.terminate(one) == 0
                load.wait_for_more(20)
                cluster.start(one)
                cluster.wait_until_unfenced(1, 2, 3)
                cluster.wait_until_in_sync("new")
        load.check()
        for (topic, partition), records in cluster.records.items():
            assert read(cluster, topic, partition, len(records)) == records
    finally:
        cluster.__exit__()


class Mixed(BrokerProcesses):
    """Nodes of an earlier release, until they are started again as today's."""

    def __init__(self, root: Path, release: Path, **settings: str) -> None:
        super().__init__(root, **settings)
        self._release = release
        self.new: set[int] = set()

    def start(self, *node_ids: int) -> None:
        for one in node_ids:
            if one in self.new:
                super().start(one)
                continue
            with (self.root / f"node-{one}.log").open("ab") as output:
                self._running[one] = subprocess.Popen(
                    [sys.executable, "-c", COMMAND, "node", str(self.configuration(one))],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=os.environ | {"PYTHONPATH": str(self._release / "src")},
                )


def the_release(directory: Path) -> Path:
    """Its source, from the history of the project."""
    with tarfile.open(ARCHIVE) as archive:
        described = archive.extractfile("expected.json")
        assert described is not None
        commit = json.load(described)["commit"]
    command = ["git", "-C", str(REPOSITORY), "archive", "--format=tar", commit, "src"]
    found = subprocess.run(command, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"the history of the project has no {commit}")
    packed = directory / "release.tar"
    packed.write_bytes(found.stdout)
    with tarfile.open(packed) as archive:
        unpack(archive, directory / "release")
    return directory / "release"


def test_a_running_cluster_of_the_last_release_is_replaced_node_by_node(tmp_path: Path):
    with Mixed(tmp_path, the_release(tmp_path), **SETTINGS) as cluster:
        ids = list(cluster.broker_ids)
        cluster.create_topic("t", *(ids[one:] + ids[:one] for one in range(3)), min_insync_replicas=2)
        with Load(cluster, "t", partitions=3) as load:
            for one in [*cluster.controller_ids, *cluster.broker_ids]:
                load.wait_for_more(20)
                assert cluster.terminate(one) == 0
                cluster.new.add(one)
                cluster.start(one)
                cluster.wait_for_leader()
                cluster.wait_until_unfenced(*cluster.broker_ids)
                cluster.wait_until_in_sync("t")
            load.wait_for_more(20)
        load.check()
