"""Brokers as processes under load: a producer whose every record has a number, and what it was told of each.

    with Load(cluster, "orders") as load:
        load.wait_for_more(500)
        cluster.kill(101)
        load.wait_for_more(500)
    load.check()

The law: what was acknowledged is there, at the offset that was told; with idempotence nothing is there twice;
the numbers of a partition are in order.
"""

import contextlib
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from node.cluster import ClusterProcesses
from node.processes import CLUSTER_ID, DEADLINE_S, quorate, run_quorate
from quorate.net.client import ConnectionLost
from quorate.protocol.api.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode

POLL_S = 0.01
IN_A_BURST = 20
QUEUED_MAX = 2000  # records that are not acknowledged yet

PartitionView = MetadataResponse.Topic.Partition


class BrokerProcesses(ClusterProcesses):
    """A cluster to break."""

    mode = "kraft"

    @property
    def cluster_id(self) -> str:
        return CLUSTER_ID

    @property
    def governors(self) -> list[int]:
        """Without these nodes nothing can be decided."""
        return list(self.controller_ids)

    def create_topic(self, name: str, *replicas: Sequence[int], **configs: Any) -> None:
        """A topic with these replicas, a list for each partition; the first of each leads."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment(
                    partition_index=number, broker_ids=list(ids)
                )
                for number, ids in enumerate(replicas)
            ],
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(
                    name=key.replace("_", "."), value=str(value)
                )
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(DEADLINE_S * 1000))
        response = self.ask_broker(self.running_brokers[0], request)
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0]
        for one in self.running_brokers:
            self.wait(f"broker {one} knows {name}", lambda one=one: self._is_led(name, one))  # type: ignore[misc]

    def _is_led(self, topic: str, as_known_to: int) -> bool:
        found = self.partitions(topic, as_known_to=as_known_to)
        return bool(found) and all(one.leader_id >= 0 for one in found)

    @property
    def running_brokers(self) -> list[int]:
        return [one for one in self.broker_ids if one in self._running]

    def partitions(self, topic: str, *, as_known_to: int | None = None) -> list[PartitionView]:
        """What a broker says of the partitions of a topic, in their order; nothing if it does not answer."""
        request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=False)
        for one in self.running_brokers if as_known_to is None else [as_known_to]:
            with contextlib.suppress(ApiError, ConnectionLost):
                found = self.ask_broker(one, request)
                assert isinstance(found, MetadataResponse)
                return sorted(found.topics[0].partitions, key=lambda each: each.partition_index)
        return []

    def leader_of(self, topic: str, partition: int = 0) -> int:
        found = self.partitions(topic)
        return found[partition].leader_id if partition < len(found) else -1

    def wait_until_in_sync(self, topic: str) -> None:
        """Until every replica of a topic is."""
        self.wait(
            f"all replicas of {topic} are in sync",
            lambda: (
                (found := self.partitions(topic))
                and all(set(one.isr_nodes) == set(one.replica_nodes) for one in found)
            ),
        )

    def wait_for_leader_of(self, topic: str, partition: int = 0, *, other_than: int) -> int:
        return self.wait(
            f"{topic}-{partition} is led by another than {other_than}",
            lambda: leader if (leader := self.leader_of(topic, partition)) not in (-1, other_than) else None,
        )

    # What is done to them

    def signal(self, node_id: int, number: int) -> None:
        self._running[node_id].send_signal(number)

    def limit_files(self, node_id: int, size_bytes: int) -> None:
        """No file of a node may become larger: for it, the disk is full."""
        pid = self._running[node_id].pid
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))

    def empty(self, node_id: int) -> None:
        """Replaces the disk of a node that does not run."""
        assert node_id not in self._running
        shutil.rmtree(self.directory(node_id))
        self.format(node_id)

    def run_twin(self, broker_id: int, **changes: str) -> subprocess.CompletedProcess[str]:
        """Runs another process with the id of a broker, on a disk and ports of its own, to its end."""
        directory = self.root / f"twin-{broker_id}"
        port = self.client_port(broker_id)
        text = self.configuration(broker_id).read_text()
        text = text.replace(str(self.directory(broker_id)), str(directory)).replace(f":{port}", ":0")
        lines = [text, *(f"{key.replace('_', '.')}={value}" for key, value in changes.items())]
        path = self.root / f"twin-{broker_id}.properties"
        path.write_text("\n".join(lines) + "\n")
        formatted = run_quorate("storage", "format", "-t", CLUSTER_ID, "-c", str(path))
        assert formatted.returncode == 0, formatted.stderr
        return subprocess.run(
            quorate("node", str(path)), capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )

    # What they have

    def resident_bytes(self, node_id: int) -> int:
        """How much memory the process of a node takes now."""
        pages = int(Path(f"/proc/{self.process_id(node_id)}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def process_id(self, node_id: int) -> int:
        return self._running[node_id].pid

    def stored(self, broker_id: int, topic: str, partition: int = 0) -> bytes:
        """The batches of a replica, as they are on disk now."""
        paths: list[Path] = sorted(self.partition_directory(broker_id, topic, partition).glob("*.log"))
        return b"".join(path.read_bytes() for path in paths)


class Load:
    """Produces numbered records, as fast as they are acknowledged, until it is left."""

    def __init__(
        self, cluster: BrokerProcesses, topic: str, *, partitions: int = 1, padding: int = 0, **settings: Any
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._padding = b"." * padding
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "reconnect.backoff.max.ms": 300,
                "topic.metadata.refresh.interval.ms": 5000,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._is_over = threading.Event()
        self.sent = 0
        self.failures: list[KafkaError] = []
        self.acknowledged: dict[int, dict[int, int]] = {one: {} for one in range(partitions)}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for _ in range(IN_A_BURST if len(self._producer) < QUEUED_MAX else 0):
                value = f"{self.sent} ".encode() + self._padding
                partition = self.sent % self._partitions
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(POLL_S)
        self._producer.flush(DEADLINE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[_known(message.partition())][_number(message)] = _known(message.offset())

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def wait_for_more(self, count: int, partition: int | None = None) -> None:
        """Until so many more records are acknowledged, in a partition or in each."""
        chosen = self.acknowledged.values() if partition is None else [self.acknowledged[partition]]
        goals = [(one, len(one) + count) for one in chosen]
        self._cluster.wait(
            f"{count} more records of {self._topic} are acknowledged",
            lambda: all(len(one) >= goal for one, goal in goals),
        )

    def check(self) -> None:
        """Reads everything, and compares."""
        assert not self.failures, self.failures[:5]
        assert self.count == self.sent, "not all records are acknowledged"
        for partition, acknowledged in self.acknowledged.items():
            found = read_all(self._cluster, self._topic, partition)
            numbers = list(found.values())
            by_offset = {offset: number for number, offset in acknowledged.items()}
            lost = {one: by_offset[one] for one in by_offset if found.get(one) != by_offset[one]}
            assert not lost, f"not where they were acknowledged: {dict(list(lost.items())[:5])}"
            assert len(set(numbers)) == len(numbers), "a record is there twice"
            assert numbers == sorted(numbers), "records are out of order"


def read_all(cluster: BrokerProcesses, topic: str, partition: int) -> dict[int, int]:
    """The number of every record that is committed, by offset, as a consumer reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "checker",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    found: dict[int, int] = {}
    deadline = time.monotonic() + DEADLINE_S
    try:
        place = TopicPartition(topic, partition, 0)
        end = _end_of(consumer, place, deadline)
        consumer.assign([place])
        while len(found) < end:
            assert time.monotonic() < deadline, f"{len(found)} of {end} records of {topic}-{partition} read"
            for message in consumer.consume(10_000, 0.2):
                if message.error() is None:
                    found[_known(message.offset())] = _number(message)
    finally:
        consumer.close()
    return found


def _end_of(consumer: Consumer, place: TopicPartition, deadline: float) -> int:
    while True:
        try:
            offsets = consumer.get_watermark_offsets(place, timeout=5)
        except KafkaException:
            offsets = None
        if offsets is not None:
            return int(offsets[1])
        assert time.monotonic() < deadline, f"nobody says where {place} ends"


def _number(message: Message) -> int:
    value = message.value()
    assert value is not None
    return int(value.split()[0])


def _known(value: int | None) -> int:
    assert value is not None
    return value
