"""A DataFrame into topics: at least once by the tasks themselves, or exactly once by way of a staging place.

A batch write is done by its tasks, in parallel, each with an idempotent producer: whatever brokers do,
nothing is lost or repeated. But a task that fails and is tried again by Spark writes its rows again, as with
Spark's own connector.

A stream is written exactly once, through everything that can be killed: how, is in `topic_staging`. The
option `delivery=at-least-once` makes it do without.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from quorate.client.metadata import TopicPartition
from quorate.net.tls import TlsSettings
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.spark.security_options import SECURITY, security_of
from quorate.spark.topic_client import DEADLINE_MS, Client, client_of
from quorate.spark.topic_options import bootstrap_of
from quorate.spark.topic_staging import Piece, Staging

if TYPE_CHECKING:
    import pyarrow as pa

    from quorate.spark.topic_encode import Encoded

__all__ = ["SinkOptions", "TopicStreamWriter", "TopicWriter", "sink_options"]

_BATCH_BYTES: Final = 900_000  # brokers take 1 MiB unless told otherwise
_HELD_BYTES: Final = 8 << 20
_ROWS_AT_ONCE: Final = 10_000
_COLUMNS: Final = ("key", "value", "topic", "partition", "headers")
_TEXT_OR_BYTES: Final = (StringType, BinaryType)
_KAFKA: Final = frozenset(
    {"bootstrap.servers", "client.id", "compression.type", "batch.size", "default.api.timeout.ms", *SECURITY}
)
# What Spark tells tasks about the query that they belong to.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    bootstrap: str
    topic: str | None
    codec: Codec
    batch_bytes_max: int
    client_id: str
    deadline_ms: int
    is_exactly_once: bool
    staging: str | None  # where a stream waits until it is whole
    tls: TlsSettings | None = None


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has done: batches that it sent, or pieces of a file for the driver to send."""

    query_id: str
    rows: int
    pieces: tuple[tuple[TopicPartition, Piece], ...] = ()


class TopicWriter(DataSourceArrowWriter):
    """Sends the rows of a task as they come."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish_rows(self._options, iterator)


if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamWriter
else:
    _StreamWriter = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)


class TopicStreamWriter(_StreamWriter):
    """Stages the rows of a task; the driver publishes when all tasks are done."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        takes_arrow = hasattr(datasource, "DataSourceStreamArrowWriter")
        rows = iterator if takes_arrow else _as_arrow(iterator, self._schema)
        if not self._options.is_exactly_once:
            return publish_rows(self._options, rows)
        return stage_rows(self._options, rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        written = [one for one in messages if isinstance(one, Written) and one.pieces]
        if not written or not self._options.is_exactly_once:
            return
        from quorate.spark.topic_commit import commit_pieces

        assert self._options.staging is not None
        staging = Staging(self._options.staging, written[0].query_id)
        pieces = [piece for one in written for piece in one.pieces]
        commit_pieces(client_for(self._options), staging, batchId, pieces)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was published; what was staged is removed when a later micro-batch is done."""


def publish_rows(options: SinkOptions, rows: Iterator[pa.RecordBatch]) -> Written:
    """Sends rows at once; returns when all of them are there."""
    from quorate.spark.topic_publish import Publisher, new_identity

    client = client_for(options)
    # Taken out while it is used: after an error it does not know whether its last batches are there.
    publisher = client.publishers.pop("tasks", None)
    if publisher is None:
        publisher = Publisher(client.cluster, client.run(new_identity(client.cluster)))
    count = 0
    for together in _by_partition(encoded_rows(options, client, rows)):
        client.run(publisher.publish_all(together))
        count += sum(rows for batches in together.values() for rows, _ in batches)
    client.publishers["tasks"] = publisher
    return Written("", count)


def _by_partition(batches: Iterable[Encoded]) -> Iterator[dict[TopicPartition, list[tuple[int, bytearray]]]]:
    """Batches that go out side by side, as many as there is room for."""
    held: dict[TopicPartition, list[tuple[int, bytearray]]] = {}
    held_bytes = 0
    for at, count, data in batches:
        held.setdefault(at, []).append((count, data))
        held_bytes += len(data)
        if held_bytes >= _HELD_BYTES:
            yield held
            held, held_bytes = {}, 0
    if held:
        yield held


def stage_rows(options: SinkOptions, rows: Iterator[pa.RecordBatch]) -> Written:
    """Puts encoded rows into a file, and says where in it what is."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    batch_id = context.getLocalProperty(_BATCH_ID) if context is not None else None
    if context is None or query_id is None or batch_id is None:
        raise RuntimeError("this task does not know which streaming query and micro-batch it belongs to")
    assert options.staging is not None
    staging = Staging(options.staging, query_id)
    pieces: list[tuple[TopicPartition, Piece]] = []
    file, out = "", None
    position = count = 0
    for encoded in encoded_rows(options, client_for(options), rows):
        if out is None:
            name = f"{context.partitionId()}-{context.taskAttemptId()}-{uuid.uuid4().hex}"
            file, out = staging.open(int(batch_id), name)
        out.write(memoryview(encoded.data))
        pieces.append((encoded.at, Piece(file, position, len(encoded.data), encoded.rows)))
        position += len(encoded.data)
        count += encoded.rows
    if out is not None:
        out.close()
    return Written(query_id, count, tuple(pieces))


def encoded_rows(options: SinkOptions, client: Client, rows: Iterator[pa.RecordBatch]) -> Iterator[Encoded]:
    """The batches of these rows; topics that they name are asked for as they come up."""
    from pyspark import TaskContext

    from quorate.spark.topic_encode import Encoder

    context = TaskContext.get()
    known: dict[str, int] = {}

    def learn(topics: Sequence[str]) -> None:
        for topic in topics:
            try:
                known[topic] = len(client.run(client.cluster.topic(topic)).partitions)
            except ApiError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise ValueError(f"there is no topic {topic!r} on this cluster") from None
                raise

    learn([] if options.topic is None else [options.topic])
    turn = 0 if context is None else context.partitionId()
    encoder = Encoder(known, options.topic, options.codec, options.batch_bytes_max, turn, learn)
    yield from encoder.encode(rows, time.time_ns() // 1_000_000)


def client_for(options: SinkOptions) -> Client:
    return client_of(options.bootstrap, options.client_id, options.deadline_ms, options.tls)


def sink_options(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    """The options of a write, and whether the columns are such that they can be written."""
    given = {name.lower(): value for name, value in options.items()}
    for name, value in given.items():
        if name.startswith("kafka.") and name.removeprefix("kafka.") not in _KAFKA:
            allowed = ", ".join(sorted(_KAFKA))
            raise ValueError(f"option {name}={value!r}: of Kafka's own settings there are {allowed}")
    _check_columns(schema, given.get("topic"))
    delivery = given.get("delivery", "exactly-once" if streaming else "at-least-once")
    if delivery not in ("exactly-once", "at-least-once"):
        raise ValueError(f"option delivery={delivery!r}: allowed is exactly-once or at-least-once")
    if delivery == "exactly-once" and not streaming:
        raise ValueError("option delivery='exactly-once': only a stream has the checkpoint that it needs")
    staging = given.get("staginglocation")
    if staging is None and "checkpointlocation" in given:
        staging = given["checkpointlocation"].rstrip("/") + "/quorate-sink"
    if delivery == "exactly-once" and staging is None:
        raise ValueError(
            "option checkpointLocation or stagingLocation is needed: a directory that the driver and all"
            " executors see. With delivery=at-least-once none is."
        )
    return SinkOptions(
        bootstrap=bootstrap_of(given),
        topic=given.get("topic"),
        codec=_codec(given.get("kafka.compression.type", "none")),
        batch_bytes_max=_positive(given, "kafka.batch.size", _BATCH_BYTES),
        client_id=given.get("kafka.client.id", "quorate-spark"),
        deadline_ms=_positive(given, "kafka.default.api.timeout.ms", DEADLINE_MS),
        is_exactly_once=delivery == "exactly-once",
        staging=staging,
        tls=security_of(given),
    )


def _check_columns(schema: StructType, topic: str | None) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ValueError(f"a column value is needed; there are {', '.join(types) or 'none'}")
    if topic is None and "topic" not in types:
        raise ValueError("where should it go? A column topic, or an option topic, is needed")
    _check_type(types, "key", *_TEXT_OR_BYTES)
    _check_type(types, "value", *_TEXT_OR_BYTES)
    _check_type(types, "topic", StringType)
    _check_type(types, "partition", IntegerType)
    headers = types.get("headers")
    if headers is not None:
        inner = headers.elementType if isinstance(headers, ArrayType) else None
        names = [field.name for field in inner.fields] if isinstance(inner, StructType) else []
        if names != ["key", "value"]:
            raise ValueError(
                f"column headers is {headers.simpleString()}: array<struct<key,value>> is needed"
            )


def _check_type(types: Mapping[str, DataType], name: str, *allowed: type[DataType]) -> None:
    if name in types and not isinstance(types[name], allowed):
        names = " or ".join(one.typeName() for one in allowed)
        raise ValueError(f"column {name} is {types[name].simpleString()}: {names} is needed")


def _codec(text: str) -> Codec:
    if text.upper() not in Codec.__members__:
        allowed = ", ".join(one.lower() for one in Codec.__members__)
        raise ValueError(f"option kafka.compression.type={text!r}: allowed is {allowed}")
    return Codec[text.upper()]


def _positive(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"option {name}={text!r}: expected a number above 0")
    return int(text)


def _as_arrow(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """For Spark before 4.1, which gives the writer of a stream one row after the other."""
    import pyarrow as pa

    from quorate.spark.topic_arrow import ARROW_TYPES

    names = [name for name in schema.names if name in _COLUMNS]
    types = {name: ARROW_TYPES[name] for name in names}
    for name in ("key", "value"):
        if name in types and isinstance(schema[name].dataType, StringType):
            types[name] = pa.string()
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = {name: [row[name] for row in some] for name in names}
        if "headers" in columns:
            columns["headers"] = [
                None if one is None else [{"key": pair[0], "value": pair[1]} for pair in one]
                for one in columns["headers"]
            ]
        arrays = [pa.array(columns[name], types[name]) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=names)
