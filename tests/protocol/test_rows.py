"""Columns instead of objects: the same bytes, the same values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from quorate.protocol import codec
from quorate.protocol.api.groups import OffsetCommitRequest
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.api.topics import MetadataResponse
from quorate.protocol.errors import ProtocolError
from quorate.protocol.rows import Ragged, Table, encode_rows
from quorate.protocol.types import Uuid

Partition = FetchRequest.Topic.Partition


def fetch(partitions, version):
    topic = {"topic_id": Uuid(bytes(range(16)))} if version > 12 else {"topic": "t"}
    topics = [FetchRequest.Topic(**topic, partitions=partitions)]
    return FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics)


def partition(number, **more):
    return Partition(partition=number, fetch_offset=number * 10, partition_max_bytes=100, **more)


@pytest.mark.parametrize("version", FetchRequest.__versions__)
def test_a_table_has_the_columns_of_its_rows(version):
    request = fetch([partition(number) for number in range(20)], version)
    table = (
        codec.decode_tables(FetchRequest, version, bytes(codec.encode(request, version))).topics[0].partitions
    )
    assert isinstance(table, Table)
    assert len(table) == 20
    assert table.column("fetch_offset").tolist() == [number * 10 for number in range(20)]
    assert table.column("last_fetched_epoch").tolist() == [-1] * 20
    assert table.column("high_watermark").tolist() == [0x7FFFFFFFFFFFFFFF] * 20
    assert table.rows() == request.topics[0].partitions
    with pytest.raises(KeyError):
        table.column("no_such_field")


def test_rows_that_all_carry_the_same_tags_are_a_rectangle_too():
    request = fetch([partition(number, high_watermark=number) for number in range(9)], 18)
    raw = bytes(codec.encode(request, 18))
    table = codec.decode_tables(FetchRequest, 18, raw).topics[0].partitions
    assert table.column("high_watermark").tolist() == list(range(9))
    assert np.shares_memory(table.column("high_watermark"), np.frombuffer(raw, np.uint8))
    assert table == request.topics[0].partitions


@pytest.mark.parametrize("odd", [0, 3, 8])
@pytest.mark.parametrize("base", [{}, {"high_watermark": 5}, {"replica_directory_id": Uuid(b"d" * 16)}])
def test_rows_with_different_tags_are_read_one_by_one(odd, base):
    rows = [partition(number, **base) for number in range(9)]
    rows[odd] = partition(odd, high_watermark=77)
    rows[odd].__unknown_tags__ = {9: b"nine"}
    request = fetch(rows, 18)
    table = codec.decode_tables(FetchRequest, 18, codec.encode(request, 18)).topics[0].partitions
    assert table.rows() == rows
    assert table.column("high_watermark").tolist() == [row.high_watermark for row in rows]
    assert [bytes(one) for one in table.column("replica_directory_id")] == [
        r.replica_directory_id for r in rows
    ]


TABLE_MESSAGES = [cls for cls in samples.MESSAGES if cls.__name__.endswith(("Request", "Response"))]


@settings(max_examples=300)
@given(st.sampled_from(TABLE_MESSAGES), st.data())
def test_tables_and_objects_agree(cls, data):
    version = data.draw(st.sampled_from(list(cls.__versions__)))
    message = data.draw(samples.messages(cls, version))
    raw = bytes(codec.encode(message, version))
    assert repr_without_tables(codec.decode_tables(cls, version, raw)) == message
    for end in range(len(raw)):
        with pytest.raises(ProtocolError):
            codec.decode_tables(cls, version, raw[:end])


def repr_without_tables(value):
    """The message with every table turned back into a list."""
    for each in value.__fields__:
        inner = getattr(value, each.name)
        if isinstance(inner, Table):
            setattr(value, each.name, inner.rows())
        elif isinstance(inner, list):
            for item in inner:
                if hasattr(item, "__fields__"):
                    repr_without_tables(item)
        elif hasattr(inner, "__fields__"):
            repr_without_tables(inner)
    return value


def metadata(partitions):
    topic = MetadataResponse.Topic(error_code=0, name="t", partitions=partitions)
    return MetadataResponse(brokers=[], topics=[topic])


@settings(max_examples=100)
@given(st.sampled_from(list(MetadataResponse.__versions__)), st.integers(0, 40), st.integers(0, 2**32))
def test_rows_encoded_from_columns_are_those_encoded_from_objects(version, count, seed):
    random = np.random.default_rng(seed)
    replicas = random.integers(0, 100, (count, 3))
    in_sync = random.random((count, 3)) < 0.7
    offline = random.random((count, 3)) < 0.2
    leaders, epochs = random.integers(-1, 100, count), random.integers(0, 1000, count)
    objects = [
        MetadataResponse.Topic.Partition(
            error_code=0,
            partition_index=i,
            leader_id=int(leaders[i]),
            leader_epoch=int(epochs[i]),
            replica_nodes=replicas[i].tolist(),
            isr_nodes=replicas[i][in_sync[i]].tolist(),
            offline_replicas=replicas[i][offline[i]].tolist(),
        )
        for i in range(count)
    ]
    rows = encode_rows(
        MetadataResponse.Topic.Partition,
        MetadataResponse,
        version,
        {
            "error_code": 0,
            "partition_index": np.arange(count),
            "leader_id": leaders,
            "leader_epoch": epochs,
            "replica_nodes": Ragged(replicas, np.ones((count, 3), bool)),
            "isr_nodes": Ragged(replicas, in_sync),
            "offline_replicas": Ragged(replicas, offline),
        },
    )
    assert codec.encode(metadata(rows), version) == codec.encode(metadata(objects), version)
    assert b"".join(codec.encode_parts(metadata(rows), version)) == codec.encode(metadata(objects), version)


def test_long_arrays_have_longer_prefixes():
    counts = np.array([126, 127, 128, 0])
    values = np.arange(4 * 128).reshape(4, 128)
    columns = {"error_code": 0, "partition_index": np.arange(4), "leader_id": 1, "leader_epoch": 1}
    columns |= {
        name: Ragged(values, np.arange(128) < counts[:, None])
        for name in ("replica_nodes", "isr_nodes", "offline_replicas")
    }
    rows = encode_rows(MetadataResponse.Topic.Partition, MetadataResponse, 12, columns)
    decoded = codec.decode(MetadataResponse, 12, codec.encode(metadata(rows), 12)).topics[0].partitions
    assert [one.replica_nodes for one in decoded] == [values[i, :n].tolist() for i, n in enumerate(counts)]


def test_a_struct_with_strings_has_no_table():
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequest.Topic(
                name="t",
                partitions=[
                    OffsetCommitRequest.Topic.Partition(
                        partition_index=0, committed_offset=1, committed_metadata="m"
                    )
                ],
            )
        ],
    )
    raw = codec.encode(request, 8)
    assert codec.decode_tables(OffsetCommitRequest, 8, raw) == request
