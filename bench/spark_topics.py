"""Topics into Spark and into Arrow: our source against Spark's own connector, and against confluent-kafka.

All sides read the same topic of the same broker, in turns; the best of a few rounds counts. Spark's sides
hand every record, with all columns, to a sink that does nothing with them (`noop`). Arrow's sides end with
record batches of the same columns, in one process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from bench.timing import Row
from quorate.client.admin import Admin, NewTopic
from quorate.protocol.compression import Codec
from quorate.spark import session
from quorate.spark.topic_client import Client, client_of
from quorate.spark.topic_encode import Encoder
from quorate.spark.topic_offsets import known_partitions, planned, resolved
from quorate.spark.topic_options import read_topic_options
from quorate.spark.topic_publish import Publisher, new_identity
from quorate.spark.topic_reader import read_range
from quorate.testing import Cluster

__all__ = ["section"]

ROUNDS = 3
PARTITIONS = 2
# A value's bytes, how many of them, and what they are called.
SIZES = ((100, 1_000_000, "100 B"), (1000, 200_000, "1 KB"))
POLL_MESSAGES = 10_000


def section() -> Iterator[Row]:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "interop"))
    from spark_connector import connector_jars

    spark = session("local[2]", app_name="bench", settings={"spark.jars": connector_jars()})
    try:
        with Cluster(mode="processes") as kafka:
            client = client_of(kafka.bootstrap_servers)
            for value_bytes, count, label in SIZES:
                topic = f"values-of-{value_bytes}"
                _fill(client, topic, value_bytes, count)
                yield from _spark(spark, kafka.bootstrap_servers, topic, count, label)
                yield from _arrow(kafka.bootstrap_servers, topic, count, label)
    finally:
        spark.stop()


def _spark(spark: Any, servers: str, topic: str, count: int, label: str) -> Iterator[Row]:
    def read(source: str) -> None:
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
        frame = spark.read.format(source).options(**options).load()
        frame.write.format("noop").mode("overwrite").save()

    ours, theirs = _best(lambda: read("quorate"), lambda: read("kafka"))
    yield Row(
        f"records of {label} into Spark: quorate / Spark's own connector, records per second",
        theirs / ours,
        at_least=1.0,
        note=f"{count / ours / 1e6:.2f} and {count / theirs / 1e6:.2f} million records/s",
    )


def _arrow(servers: str, topic: str, count: int, label: str) -> Iterator[Row]:
    ours, theirs = _best(
        lambda: _check(count, _by_quorate(servers, topic)),
        lambda: _check(count, _by_confluent(servers, topic, count)),
    )
    yield Row(
        f"records of {label} into Arrow: quorate / confluent-kafka, records per second",
        theirs / ours,
        at_least=2.0,
        note=f"{count / ours / 1e6:.2f} and {count / theirs / 1e6:.2f} million records/s",
    )


def _by_quorate(servers: str, topic: str) -> Iterator[pa.RecordBatch]:
    options = read_topic_options({"bootstrap.servers": servers, "subscribe": topic}, streaming=False)
    client = client_of(servers)
    known = client.run(known_partitions(client.cluster, options.what))
    starts = client.run(resolved(client.cluster, options.starting, known, options))
    ends = client.run(resolved(client.cluster, options.ending, known, options))
    for one in planned(starts, ends, known):
        yield from read_range(one, options)


def _by_confluent(servers: str, topic: str, count: int) -> Iterator[pa.RecordBatch]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 8 << 20,
            "queued.max.messages.kbytes": 64 << 10,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        left = count
        while left:
            messages = consumer.consume(min(left, POLL_MESSAGES), timeout=10)
            left -= len(messages)
            times = [one.timestamp() for one in messages]
            yield pa.RecordBatch.from_pydict(
                {
                    "key": pa.array([one.key() for one in messages], pa.binary()),
                    "value": pa.array([one.value() for one in messages], pa.binary()),
                    "topic": pa.array([one.topic() for one in messages], pa.string()),
                    "partition": pa.array([one.partition() for one in messages], pa.int32()),
                    "offset": pa.array([one.offset() for one in messages], pa.int64()),
                    "timestamp": pa.array([one[1] * 1000 for one in times], pa.timestamp("us", tz="UTC")),
                    "timestampType": pa.array([one[0] for one in times], pa.int32()),
                }
            )
    finally:
        consumer.close()


def _check(count: int, batches: Iterator[pa.RecordBatch]) -> None:
    found = sum(batch.num_rows for batch in batches)
    assert found == count, f"{found} of {count} records"


def _best(ours: Callable[[], None], theirs: Callable[[], None]) -> tuple[float, float]:
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for side, read in enumerate((ours, theirs)):
            started = time.perf_counter()
            read()
            best[side] = min(best[side], time.perf_counter() - started)
    return best[0], best[1]


def _fill(client: Client, topic: str, value_bytes: int, count: int) -> None:
    client.run(Admin(client.cluster).create_topics(NewTopic(topic, partitions=PARTITIONS)))
    publisher = Publisher(client.cluster, client.run(new_identity(client.cluster)))
    encoder = Encoder({topic: PARTITIONS}, topic, Codec.NONE, 100_000, turn=0)
    for begin in range(0, count, 20_000):
        numbers = range(begin, min(begin + 20_000, count))
        rows = pa.RecordBatch.from_pydict(
            {
                "key": pa.array([b"key-%d" % number for number in numbers], pa.binary()),
                "value": pa.array([os.urandom(value_bytes) for _ in numbers], pa.binary()),
            }
        )
        for encoded in encoder.encode(iter([rows]), int(time.time() * 1000)):
            client.run(publisher.publish(*encoded))
