"""A topic as `format("quorate")` offers it: its columns, who reads it and who writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorate.spark.topic_options import columns_of, read_topic_options
from quorate.spark.topic_reader import PushingTopicReader, TopicReader
from quorate.spark.topic_stream import TopicStreamReader
from quorate.spark.topic_writer import TopicStreamWriter, TopicWriter, sink_options

__all__ = ["reader", "schema", "stream_reader", "stream_writer", "writer"]

_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    "gap": StringType(),
}


def schema(options: Mapping[str, str]) -> StructType:
    """The columns of Spark's own Kafka source, and those that options add or take away."""
    return StructType([StructField(name, _TYPES[name]) for name in columns_of(options)])


def reader(options: Mapping[str, str], _schema: StructType) -> DataSourceReader:
    read = read_topic_options(options, streaming=False)
    return PushingTopicReader(read) if read.pushdown else TopicReader(read)


def stream_reader(options: Mapping[str, str], _schema: StructType) -> DataSourceStreamReader:
    return TopicStreamReader(read_topic_options(options, streaming=True))


def writer(options: Mapping[str, str], schema: StructType) -> DataSourceWriter:
    return TopicWriter(sink_options(options, schema, streaming=False))


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamWriter:
    return TopicStreamWriter(sink_options(options, schema, streaming=True), schema)
