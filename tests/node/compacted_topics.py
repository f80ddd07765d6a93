"""A compacted topic under load, and what must be in it: for every key the last value that was acknowledged.

with KeyedLoad(cluster, "profiles") as load:
    ...
load.check(cluster)
"""

import contextlib
import random
import threading
import time
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from node.broker_processes import BrokerProcesses
from node.processes import DEADLINE_S

CONFIGS = {
    "cleanup_policy": "compact",
    "segment_bytes": 1 << 20,
    "segment_ms": 300,
    "min_cleanable_dirty_ratio": "0.1",
    "delete_retention_ms": 100,
    "index_interval_bytes": 1024,
}
SETTINGS = {
    "log_cleaner_backoff_ms": "200",
    "log_cleaner_dedupe_buffer_size": str(1 << 20),
    "replica_high_watermark_checkpoint_interval_ms": "500",
}
KEYS = 300
IN_A_BURST = 50
QUEUED_MAX = 3000


class KeyedLoad:
    """Writes to a few hundred keys, some of them now and then deleted, with an idempotent producer."""

    def __init__(
        self, cluster: BrokerProcesses, topic: str, *, seed: int = 1, printable: bool = False
    ) -> None:
        self._topic = topic
        self._random = random.Random(seed)
        self._printable = printable
        self._cluster = cluster
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._sent = 0
        self._acknowledged: dict[int, tuple[bytes, bytes | None]] = {}  # by offset
        self.failures: list[KafkaError] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def count(self) -> int:
        return len(self._acknowledged)

    def wait_for_more(self, count: int) -> None:
        wanted, deadline = self.count + count, time.monotonic() + DEADLINE_S
        while self.count < wanted:
            assert time.monotonic() < deadline, f"{self.count} of {wanted} records acknowledged"
            assert not self.failures, self.failures
            time.sleep(0.01)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 2,
                "batch.num.messages": 100,
                "message.timeout.ms": int(DEADLINE_S * 2000),
                "reconnect.backoff.max.ms": 500,
            }
        )
        while not self._is_over.is_set():
            if self._sent - self.count < QUEUED_MAX:
                for _ in range(IN_A_BURST):
                    key = b"key-%d" % self._random.randrange(KEYS)
                    is_deleted = self._random.random() < 0.1
                    value = None if is_deleted else self._value()
                    producer.produce(self._topic, value, key, partition=0, on_delivery=self._told(key, value))
                    self._sent += 1
            producer.poll(0.01)
        assert producer.flush(DEADLINE_S * 2) == 0

    def _value(self) -> bytes:
        noise = self._random.randbytes(self._random.randrange(500))
        return b"%d-" % self._sent + (noise.hex().encode() if self._printable else noise)

    def _told(self, key: bytes, value: bytes | None):  # type: ignore[no-untyped-def]
        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                offset = message.offset()
                assert offset is not None
                self._acknowledged[offset] = key, value

        return told

    def expected(self) -> dict[bytes, bytes]:
        """What every key is in the end."""
        state: dict[bytes, bytes] = {}
        for _, (key, value) in sorted(self._acknowledged.items()):
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        return state

    def check(self) -> None:
        """What was read is what was acknowledged; and it is little: the cleaner has worked."""
        assert not self.failures
        found = read_keyed(self._cluster.bootstrap, self._topic)
        for offset, one in found.items():
            assert self._acknowledged[offset] == one, f"offset {offset}"
        state = {}
        for _, (key, value) in sorted(found.items()):
            state[key] = value
        assert {key: value for key, value in state.items() if value is not None} == self.expected()


def read_keyed(servers: str, topic: str) -> dict[int, tuple[bytes, bytes | None]]:
    """All records of a partition, by offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "compacted",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    found: dict[int, tuple[bytes, bytes | None]] = {}
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + DEADLINE_S
        while True:
            assert time.monotonic() < deadline, f"{len(found)} records read"
            for message in consumer.consume(1000, 0.5):
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return found
                    continue
                found[message.offset()] = message.key(), message.value()


def sizes_of(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(directory.glob("*.log"))}
