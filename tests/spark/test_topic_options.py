"""What options say, and what is wrong with those that say something else."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from quorate.client.fetcher import Isolation
from quorate.client.metadata import TopicPartition
from quorate.client.offsets import EARLIEST, LATEST
from quorate.protocol.compression import Codec
from quorate.spark.topic_offsets import TopicRange, planned
from quorate.spark.topic_options import (
    COLUMNS,
    Assigned,
    AtOffsets,
    AtTimestamps,
    Subscribed,
    SubscribedPattern,
    columns_of,
    read_topic_options,
)
from quorate.spark.topic_stream import limited
from quorate.spark.topic_writer import sink_options

SERVERS = {"bootstrap.servers": "localhost:9092"}
ORDERS = {**SERVERS, "subscribe": "orders"}
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_a_batch_reads_everything_unless_told_otherwise() -> None:
    options = read_topic_options({**SERVERS, "subscribe": "orders, payments,orders"}, streaming=False)
    assert options.what == Subscribed(("orders", "payments"))
    assert (options.starting, options.ending) == (AtOffsets(EARLIEST), AtOffsets(LATEST))
    assert options.fail_on_data_loss
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert options.columns == COLUMNS


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert read_topic_options(ORDERS, streaming=True).starting == AtOffsets(LATEST)


def test_names_of_options_are_taken_in_any_case_and_by_both_names() -> None:
    given = {"KAFKA.bootstrap.servers": "localhost:9092", "subscribePATTERN": "ord.*"}
    options = read_topic_options(given, streaming=False)
    assert options.bootstrap == "localhost:9092"
    assert options.what == SubscribedPattern("ord.*")


def test_offsets_and_times_by_partition() -> None:
    given = {
        **SERVERS,
        "assign": '{"orders":[0,1]}',
        "startingOffsets": '{"orders":{"0":23,"1":-2}}',
        "endingOffsets": '{"orders":{"0":50,"1":-1}}',
    }
    options = read_topic_options(given, streaming=False)
    assert options.what == Assigned((A, B))
    assert options.starting == AtOffsets(each={A: 23, B: EARLIEST})
    assert options.ending == AtOffsets(each={A: 50, B: LATEST})
    given["startingOffsetsByTimestamp"] = '{"orders":{"0":1000,"1":2000}}'
    assert read_topic_options(given, streaming=False).starting == AtTimestamps(each_ms={A: 1000, B: 2000})
    given["startingTimestamp"] = "3000"
    assert read_topic_options(given, streaming=False).starting == AtTimestamps(3000)


def test_columns_can_be_added_and_left_out() -> None:
    both = {"includeHeaders": "true", "includeGaps": "true"}
    assert columns_of(both) == (*COLUMNS, "headers", "gap")
    assert columns_of({**both, "columns": "offset, gap"}) == ("offset", "gap")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"subscribe": "orders"}, "bootstrap.servers is missing"),
        ({"subscribe": "orders", "bootstrap.servers": "localhost"}, "expected host:port"),
        (SERVERS, "one of the options subscribe, subscribePattern, assign is needed; given: none"),
        ({**ORDERS, "assign": "{}"}, "subscribe and assign"),
        ({**SERVERS, "subscribe": " , "}, "expected names of topics"),
        ({**SERVERS, "subscribePattern": "ord("}, "not a regular expression"),
        ({**SERVERS, "assign": '{"orders":["0"]}'}, "expected partitions by topic"),
        ({**ORDERS, "startingOffsets": "{orders"}, "option startingOffsets='{orders': not JSON"),
        ({**ORDERS, "startingOffsets": '{"orders":{"0":-3}}'}, "expected numbers by partition"),
        ({**ORDERS, "startingOffsets": '{"orders":{"x":3}}'}, "expected numbers by partition"),
        ({**ORDERS, "startingOffsets": "[]"}, "expected a JSON object"),
        ({**ORDERS, "startingOffsets": "latest"}, "a batch cannot have latest"),
        ({**ORDERS, "endingOffsets": '{"orders":{"0":-2}}'}, "a batch cannot have earliest"),
        ({**ORDERS, "startingTimestamp": "yesterday"}, "expected a whole number"),
        ({**ORDERS, "failOnDataLoss": "maybe"}, "allowed is true or false"),
        ({**ORDERS, "minPartitions": "0"}, "expected a number above 0"),
        ({**ORDERS, "columns": "offset,headers"}, "expected some of key, value"),
        ({**ORDERS, "kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
        ({**ORDERS, "kafka.sasl.mechanism": "PLAIN"}, "option kafka.sasl.mechanism='PLAIN'"),
        ({**ORDERS, "minOffsetsPerTrigger": "7"}, "minOffsetsPerTrigger='7': it is not supported"),
    ],
)
def test_what_is_wrong_is_told_with_the_option(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_topic_options(given, streaming=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ValueError, match="a stream has no end"):
        read_topic_options({**ORDERS, "endingOffsets": "latest"}, streaming=True)


def test_ranges_are_split_by_share_and_by_size() -> None:
    starts, ends, ids = {A: 0, B: 0}, {A: 300, B: 100}, {A: "id", B: "id"}

    def sizes(**limits: int) -> list[tuple[int, int, int]]:
        return [
            (one.partition, one.start_offset, one.end_offset) for one in planned(starts, ends, ids, **limits)
        ]

    assert sizes() == [(0, 0, 300), (1, 0, 100)]
    assert sizes(min_partitions=4) == [(0, 0, 100), (0, 100, 200), (0, 200, 300), (1, 0, 100)]
    assert sizes(min_partitions=1) == sizes()
    assert len(sizes(max_records=50)) == 8
    assert planned(starts, starts, ids) == []
    assert planned({A: 0}, {A: 2}, ids, min_partitions=9) == [
        TopicRange("orders", "id", 0, 0, 1),
        TopicRange("orders", "id", 0, 1, 2),
    ]


def test_a_limit_is_shared_and_nobody_starves() -> None:
    assert limited({A: 0, B: 0}, {A: 10, B: 5}, 100) == {A: 10, B: 5}
    assert limited({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10) == {A: 9, B: 1}
    assert limited({A: 7, B: 5}, {A: 7, B: 1000}, 10) == {A: 7, B: 15}


def schema(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])  # type: ignore[arg-type]


def test_a_sink_is_exactly_once_if_it_is_a_stream() -> None:
    given = {**SERVERS, "topic": "out", "checkpointLocation": "/tmp/point/"}
    stream = sink_options(given, schema(value=StringType()), streaming=True)
    assert stream.is_exactly_once
    assert stream.staging == "/tmp/point/quorate-sink"
    assert stream.codec is Codec.NONE
    batch = sink_options(
        {**given, "kafka.compression.type": "zstd"}, schema(value=BinaryType()), streaming=False
    )
    assert not batch.is_exactly_once
    assert batch.codec is Codec.ZSTD


@pytest.mark.parametrize(
    ("columns", "given", "reason"),
    [
        ({"key": StringType()}, {"topic": "out"}, "a column value is needed; there are key"),
        ({"value": LongType()}, {"topic": "out"}, "column value is bigint: string or binary is needed"),
        ({"value": StringType()}, {}, "A column topic, or an option topic, is needed"),
        ({"value": StringType(), "topic": IntegerType()}, {}, "column topic is int"),
        ({"value": StringType(), "partition": LongType()}, {"topic": "out"}, "column partition is bigint"),
        ({"value": StringType(), "headers": ArrayType(StringType())}, {"topic": "out"}, "column headers is"),
        ({"value": StringType()}, {"topic": "out", "delivery": "maybe"}, "exactly-once or at-least-once"),
        ({"value": StringType()}, {"topic": "out", "kafka.acks": "0"}, "option kafka.acks='0'"),
        ({"value": StringType()}, {"topic": "out", "kafka.compression.type": "xz"}, "none, gzip"),
        ({"value": StringType()}, {"topic": "out", "kafka.batch.size": "-1"}, "expected a number above 0"),
    ],
)
def test_what_cannot_be_written_is_refused(
    columns: dict[str, object], given: dict[str, str], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        sink_options({**SERVERS, **given}, schema(**columns), streaming=False)


def test_exactly_once_needs_a_place_and_a_stream() -> None:
    with pytest.raises(ValueError, match="checkpointLocation or stagingLocation is needed"):
        sink_options({**SERVERS, "topic": "out"}, schema(value=StringType()), streaming=True)
    with pytest.raises(ValueError, match="only a stream"):
        sink_options(
            {**SERVERS, "topic": "out", "delivery": "exactly-once"},
            schema(value=StringType()),
            streaming=False,
        )
