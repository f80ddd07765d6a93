"""What a request may make of its bytes: items, tags and memory."""

import struct
import tracemalloc

import pytest

import samples
from costliest import costliest, header, ways, with_tags
from quorate.protocol import codec, frame
from quorate.protocol.api.brokers import AlterPartitionRequest
from quorate.protocol.api.connection import ApiVersionsRequest
from quorate.protocol.api.groups import DescribeGroupsRequest, FindCoordinatorRequest
from quorate.protocol.api.topics import MetadataRequest
from quorate.protocol.bounds import (
    ANYWAY_BYTES,
    FREE_BYTES,
    ITEMS_MAX,
    TAGS_MAX,
    TIMES,
    TIMES_OF_NODES,
    allow,
    allowed_bytes,
    smallest_bytes,
)
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frame import read_request
from quorate.protocol.layout import FieldLayout, StructOf, layout
from quorate.protocol.varint import uvarint

REQUESTS = [(cls, cls.__versions__[-1]) for cls in samples.REQUESTS]
LARGE_BYTES = 20_000


def read(raw, claim=allow):
    return read_request(int.from_bytes(raw[:4], "big"), raw, 0, len(raw), claim)


@pytest.mark.parametrize(("cls", "version"), REQUESTS)
def test_the_smallest_size_of_an_item_is_known_from_its_declaration(cls, version):
    whole = layout(cls, version)
    item = FieldLayout("", StructOf(whole), False, whole.flexible, None)
    none_of_it = header(cls, version)
    shortest = smallest_bytes(item)
    for way in ways(cls, version):
        assert len(costliest(cls, version, way, 0)) - len(none_of_it) >= shortest
    with pytest.raises(ProtocolError):
        read(none_of_it + bytes(max(0, shortest - 1)) if shortest else none_of_it[:-1])


@pytest.mark.parametrize(("cls", "version"), REQUESTS)
def test_no_request_takes_more_memory_than_it_has_claimed(cls, version):
    claimed = 0

    def claim(asked_bytes, allowed_bytes):
        nonlocal claimed
        claimed = asked_bytes
        return allow(asked_bytes, allowed_bytes) and asked_bytes

    for way in ways(cls, version):
        read(costliest(cls, version, way, 0))  # compiles the decoder
        raw = costliest(cls, version, way, LARGE_BYTES)
        claimed = FREE_BYTES
        tracemalloc.start()
        try:
            read(raw, claim)
            _, peak_bytes = tracemalloc.get_traced_memory()
        except ProtocolError as error:
            assert "bytes of memory" in error.reason, way
            continue
        finally:
            tracemalloc.stop()
        assert peak_bytes <= claimed * 1.2 + FREE_BYTES, way
        assert claimed <= allowed_bytes(len(raw), TIMES_OF_NODES if cls.__of_nodes__ else TIMES), way


def test_what_would_take_too_much_is_refused_before_it_is_made():
    few, many = (
        header(FindCoordinatorRequest, 4) + b"\x00" + uvarint(count + 1) + b"\x03ab" * count + b"\x00"
        for count in (1, 900_000)
    )
    read(few)  # compiles the decoder
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=r"coordinator_keys.*bytes of memory"):
            read(many)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < FREE_BYTES


def test_a_request_of_nodes_may_take_more():
    assert AlterPartitionRequest.__of_nodes__
    assert not MetadataRequest.__of_nodes__
    assert allowed_bytes(10, TIMES) == 80 + ANYWAY_BYTES
    assert TIMES_OF_NODES > TIMES


def test_an_array_has_a_million_items_at_most():
    for count, expected in ((ITEMS_MAX, "bytes of memory"), (ITEMS_MAX + 1, "at most 1000000")):
        raw = header(DescribeGroupsRequest, 0) + struct.pack(">i", count) + b"\x00\x00" * count
        with pytest.raises(ProtocolError, match=expected):
            read(raw)


def test_more_items_than_bytes_are_refused_by_the_size_of_each():
    raw = header(MetadataRequest, 12) + uvarint(4 + 1) + bytes(4 * 18 - 1)
    with pytest.raises(ProtocolError, match=r"only 71 bytes left for 4 items"):
        read(raw)


def test_tags_that_nobody_knows_are_counted_and_not_kept():
    few = with_tags(ApiVersionsRequest, 3, TAGS_MAX)
    _, request = read(few)
    assert request.__unknown_tags__ is None
    with pytest.raises(ProtocolError, match=f"{TAGS_MAX + 1} tagged fields; at most {TAGS_MAX}"):
        read(with_tags(ApiVersionsRequest, 3, TAGS_MAX + 1))


def test_who_shows_a_request_sees_the_tags_that_nobody_knows():
    raw = with_tags(ApiVersionsRequest, 3, 2)
    assert frame.decode_request(raw)[1].__unknown_tags__ == {1000: b"", 1001: b""}


def test_what_is_wrong_at_the_end_of_a_large_request_is_not_looked_for_for_long():
    count = 40_000
    good = header(DescribeGroupsRequest, 0) + struct.pack(">i", count) + b"\x00\x01a" * (count - 1)
    with pytest.raises(ProtocolError, match="somewhere behind its first 20000 values"):
        read(good + b"\x00\x01\xff")


def test_bytes_that_follow_a_request_are_ignored():
    raw = bytes(frame.encode_request(MetadataRequest(topics=None), 9, 7, "me"))[4:]
    assert read(raw + b"???")[1] == read(raw)[1] == frame.decode_request(raw)[1]


def test_an_answer_may_be_as_large_as_it_likes():
    """Only requests are bounded: a client has asked for what it gets."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name="a") for _ in range(TAGS_MAX * 10)])
    raw = codec.encode(request, 4)
    assert len(codec.decode(MetadataRequest, 4, raw).topics) == TAGS_MAX * 10
