"""librdkafka as a client of whatever cluster there is: the same program and the same settings for all."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 60
CONSUMED_AT_ONCE = 10_000
POLL_EVERY = 1000
QUEUE = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1 << 17, "linger.ms": 5}
# With the default of a second, a fast consumer whose queue is full sleeps for that long.
UNQUEUED = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000, "enable.auto.commit": False}


_numbers = count(1)


@dataclass(frozen=True)
class Flow:
    """Records that went through."""

    seconds: float
    records: int
    record_bytes: int
    client_cpu_seconds: float

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def megabytes(self) -> float:
        return self.records * self.record_bytes / 1e6


@contextmanager
def topic_on(bootstrap: str, partitions: int = 1, replicas: int = 1) -> Iterator[str]:
    """A new topic, of which nothing stays in the end."""
    name = f"bench-{next(_numbers)}"
    _create(bootstrap, name, partitions, replicas)
    try:
        yield name
    finally:
        _delete(bootstrap, name)


def _create(bootstrap: str, name: str, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, replicas)
    admin.create_topics([topic])[name].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while not _is_led(admin, bootstrap, name, partitions, replicas):
        assert time.monotonic() < deadline, f"{name} has no leaders"
        time.sleep(0.02)


def _is_led(admin: AdminClient, bootstrap: str, name: str, partitions: int, replicas: int) -> bool:
    """Whether all know who leads, the leaders among them."""
    found = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
    if len(found) < partitions or any(len(one.isrs) < replicas for one in found.values()):
        return False
    try:
        return stored(bootstrap, name, partitions) == 0
    except KafkaException:
        return False


def _delete(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(TIMEOUT_S)


def produce(
    settings: Mapping[str, Any],
    topic: str,
    partitions: int,
    records: int,
    record_bytes: int,
    *,
    is_told: bool = False,
) -> Flow:
    """Produces records, to all partitions in turn, and waits until all are acknowledged. `is_told` of each
    what became of it, the client has more to do."""
    producer = Producer({**QUEUE, **settings})
    value = bytes(record_bytes)
    delivered = 0

    def told(error: KafkaError | None, _: Message) -> None:
        nonlocal delivered
        delivered += error is None

    of_each = {"on_delivery": told} if is_told else {}
    producer.produce(topic, value, partition=0)  # which makes it connect
    assert producer.flush(TIMEOUT_S) == 0
    send, poll = producer.produce, producer.poll
    cpu, started = _own_cpu_seconds(), time.perf_counter()
    for number in range(records):
        try:
            send(topic, value, None, number % partitions, **of_each)
        except BufferError:
            while True:
                poll(0.001)
                try:
                    send(topic, value, None, number % partitions, **of_each)
                    break
                except BufferError:
                    continue
        if number % POLL_EVERY == 0:
            poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert delivered == (records if is_told else 0)
    return Flow(time.perf_counter() - started, records, record_bytes, _own_cpu_seconds() - cpu)


def stored(bootstrap: str, topic: str, partitions: int) -> int:
    """How many records a topic has."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, one), TIMEOUT_S) for one in range(partitions)
        ]
    finally:
        consumer.close()
    return sum(end for _, end in ends)


def consume(bootstrap: str, topic: str, partitions: int, records: int, record_bytes: int) -> Flow:
    """Reads so many records from the beginning of all partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"} | UNQUEUED)
    try:
        consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
        left = records
        first = consumer.consume(1, TIMEOUT_S)  # which makes it connect
        assert first, "nothing is there to consume"
        left -= 1
        cpu, started = _own_cpu_seconds(), time.perf_counter()
        while left > 0:
            found = consumer.consume(min(left, CONSUMED_AT_ONCE), TIMEOUT_S)
            assert found, f"{left} records do not arrive"
            left -= len(found)
        return Flow(time.perf_counter() - started, records, record_bytes, _own_cpu_seconds() - cpu)
    finally:
        consumer.close()


def latencies(bootstrap: str, topic: str, times: int, record_bytes: int, acks: str) -> list[float]:
    """Seconds until a record is acknowledged, one after the other; sorted."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": acks})
    value, clock = bytes(record_bytes), time.perf_counter
    found = []
    for number in range(times + times // 10):
        started = clock()
        producer.produce(topic, value, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        if number >= times // 10:
            found.append(clock() - started)
    return sorted(found)


def percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _own_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
