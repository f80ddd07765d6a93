"""Rows to record batches, against the plain encoder and the plain partitioner."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.client.metadata import TopicPartition
from quorate.client.partitioner import murmur2, partition_for_key
from quorate.protocol.batch import records, validate_produced
from quorate.protocol.compression import Codec
from quorate.spark.topic_encode import Encoder, UnknownTopicError, murmur2_of_all

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": HEADERS,
}
some_bytes = st.none() | st.binary(max_size=200)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": some_bytes,
            "value": some_bytes,
            "topic": st.sampled_from(["orders", "payments"]),
            "partition": st.none() | st.integers(0, 2),
            "headers": st.none()
            | st.lists(st.fixed_dictionaries({"key": st.text(max_size=9), "value": some_bytes})),
        }
    ),
    max_size=40,
)
ENCODER = Encoder({"orders": 3, "payments": 5}, None, Codec.NONE, 500, turn=1)


def table(found: list[dict[str, object]], *names: str) -> pa.RecordBatch:
    chosen = names or tuple(TYPES)
    return pa.RecordBatch.from_pylist(found, schema=pa.schema([(name, TYPES[name]) for name in chosen]))


def decoded(encoder: Encoder, *batches: pa.RecordBatch) -> dict[TopicPartition, list[tuple[object, ...]]]:
    found: dict[TopicPartition, list[tuple[object, ...]]] = {}
    for at, count, data in encoder.encode(iter(batches), 1234):
        header = validate_produced(data)
        assert header.record_count == count
        assert header.max_timestamp == 1234
        for record in records(data, header):
            found.setdefault(at, []).append((record.key, record.value, tuple(record.headers)))
    return found


@given(rows, rows, st.sampled_from(list(Codec)))
def test_every_row_becomes_one_record_in_order(first: list, second: list, codec: Codec) -> None:
    encoder = Encoder(ENCODER.partitions, None, codec, 500, turn=1)
    found = decoded(encoder, table(first), table(second))
    expected: dict[str, list[tuple[object, ...]]] = {}
    for row in first + second:
        headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
        record = row["key"], row["value"], headers
        if row["partition"] is not None or row["key"] is not None:
            partition = row["partition"]
            if partition is None:
                partition = partition_for_key(row["key"], ENCODER.partitions[row["topic"]])
            keyed = found[TopicPartition(row["topic"], partition)]
            assert record in keyed
        expected.setdefault(row["topic"], []).append(record)
    for topic, wanted in expected.items():
        got = [one for at, some in found.items() if at.topic == topic for one in some]
        assert sorted(map(repr, got)) == sorted(map(repr, wanted))
        for some in (some for at, some in found.items() if at.topic == topic):
            left = iter(wanted)
            assert all(one in left for one in some)  # in the order of the rows


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_all_keys_are_hashed_as_each_would_be(keys: list[bytes]) -> None:
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    starts = ends - np.array([len(key) for key in keys], np.int64)
    raw = np.frombuffer(b"".join(keys) or b"\0", np.uint8)
    assert murmur2_of_all(raw, starts, ends).tolist() == [murmur2(key) for key in keys]


def test_rows_without_keys_are_dealt_out_and_large_ones_get_batches_of_their_own() -> None:
    values = [{"value": b"x" * size} for size in (10, 2000, 10, 10)]
    encoder = Encoder({"orders": 2}, "orders", Codec.NONE, 500, turn=0)
    encoded = list(encoder.encode(iter([table(values, "value")]), 0))
    assert [(one.at.partition, one.rows) for one in encoded] == [(0, 1), (0, 1), (1, 2)]


def test_a_slice_of_a_larger_table_is_encoded_alone() -> None:
    whole = table(
        [
            {"key": b"%d" % n, "value": b"v%d" % n, "headers": [{"key": "h", "value": b"%d" % n}]}
            for n in range(9)
        ],
        "key",
        "value",
        "headers",
    )
    encoder = Encoder({"orders": 1}, "orders", Codec.NONE, 500, turn=0)
    found = decoded(encoder, whole.slice(3, 2))
    assert found == {
        TopicPartition("orders", 0): [(b"3", b"v3", (("h", b"3"),)), (b"4", b"v4", (("h", b"4"),))]
    }


def test_text_is_taken_for_its_bytes() -> None:
    rows = pa.RecordBatch.from_pylist([{"key": "k", "value": "wärme"}])
    encoder = Encoder({"orders": 1}, "orders", Codec.NONE, 500, turn=0)
    assert decoded(encoder, rows) == {TopicPartition("orders", 0): [(b"k", "wärme".encode(), ())]}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"topic": None, "value": b""}, "a row has no topic"),
        ({"topic": "orders", "value": b"", "partition": 3}, "partition 3, but 'orders' has 3 partitions"),
        ({"topic": "orders", "value": b"", "partition": -2}, "partition -2"),
        ({"topic": "orders", "value": b"", "headers": [{"key": None, "value": b""}]}, "a header has no key"),
    ],
)
def test_rows_that_cannot_be_written_are_refused(row: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decoded(ENCODER, table([{**dict.fromkeys(TYPES), **row}]))


def test_a_topic_that_is_not_known_is_asked_for() -> None:
    rows = table([{**dict.fromkeys(TYPES), "topic": "new", "value": b"v"}])
    with pytest.raises(UnknownTopicError, match="new"):
        decoded(ENCODER, rows)
    known: dict[str, int] = {}

    def learn(topics: list[str]) -> None:
        known.update(dict.fromkeys(topics, 1))

    encoder = Encoder(known, None, Codec.NONE, 500, turn=0, learn=learn)
    assert decoded(encoder, rows) == {TopicPartition("new", 0): [(None, b"v", ())]}
