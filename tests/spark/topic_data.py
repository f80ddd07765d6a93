"""Topics for tests of Spark: made, filled and looked at with our own client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import LeaderOf
from quorate.protocol.api.produce_fetch import DeleteRecordsRequest
from quorate.protocol.compression import Codec
from quorate.spark.topic_client import client_of
from quorate.spark.topic_encode import Encoder
from quorate.spark.topic_offsets import known_partitions, planned, resolved
from quorate.spark.topic_options import read_topic_options
from quorate.spark.topic_publish import Publisher, new_identity
from quorate.spark.topic_reader import read_range
from quorate.testing.control import wait_until

__all__ = ["awaited", "begun", "create", "delete", "delete_records", "fill", "values"]


def create(servers: str, topic: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    client = client_of(servers)
    named = {name.replace("_", "."): value for name, value in configs.items()}
    new = NewTopic(topic, partitions, replicas, configs=named)
    client.run(Admin(client.cluster).create_topics(new))
    client.run(client.cluster.topic(topic))


def delete(servers: str, topic: str) -> None:
    client = client_of(servers)
    client.run(Admin(client.cluster).delete_topics(topic))


def fill(
    servers: str, topic: str, rows: Iterable[Mapping[str, Any]], *, now_ms: int = 1_700_000_000_000
) -> None:
    """Adds rows with any of `key`, `value`, `partition` and `headers`, all with this time."""
    client = client_of(servers)
    known = client.run(client.cluster.topic(topic))
    publisher = Publisher(client.cluster, client.run(new_identity(client.cluster)))
    types = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
    table = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=pa.schema(types))
    encoder = Encoder({topic: len(known.partitions)}, topic, Codec.NONE, 100_000, turn=0)
    for encoded in encoder.encode(iter([table]), now_ms):
        client.run(publisher.publish(*encoded))


def delete_records(servers: str, topic: str, partition: int, before_offset: int) -> None:
    client = client_of(servers)
    kind = DeleteRecordsRequest.Topic
    request = DeleteRecordsRequest(
        topics=[
            kind(
                name=topic,
                partitions=[kind.Partition(partition_index=partition, offset=before_offset)],
            )
        ],
        timeout_ms=30_000,
    )
    client.run(client.cluster.request(LeaderOf(topic, partition), request))


def values(servers: str, topic: str) -> list[bytes | None]:
    """All values of a topic, partition by partition, in order."""
    options = read_topic_options(
        {"bootstrap.servers": servers, "subscribe": topic, "columns": "value"}, streaming=False
    )
    client = client_of(servers)
    known = client.run(known_partitions(client.cluster, options.what))
    starts = client.run(resolved(client.cluster, options.starting, known, options))
    ends = client.run(resolved(client.cluster, options.ending, known, options))
    return [
        value
        for one in planned(starts, ends, known)
        for batch in read_range(one, options)
        for value in batch.column("value").to_pylist()
    ]


def awaited(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has ended by itself."""
    return _patiently(start, lambda query: not query.isActive)


def begun(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that runs, and has done something."""
    return _patiently(start, lambda query: bool(query.recentProgress))


def _patiently(
    start: Callable[[], StreamingQuery], is_reached: Callable[[StreamingQuery], bool]
) -> StreamingQuery:
    """Spark gives the Python process of a stream ten seconds to begin, and a busy machine can miss that: then
    the query is started again, from its checkpoint."""
    for _ in range(10):
        query = start()
        wait_until(lambda: is_reached(query) or not query.isActive, 600, "a query")  # noqa: B023
        try:
            if not query.isActive:
                query.awaitTermination()  # raises what ended it
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return query
    raise AssertionError("the Python process of a stream never began in time")
