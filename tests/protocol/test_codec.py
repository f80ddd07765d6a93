"""Encoding and decoding: every message, every version."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from quorate.protocol import codec
from quorate.protocol.api.brokers import BrokerHeartbeatRequest, BrokerRegistrationRequest
from quorate.protocol.api.connection import ApiVersionsResponse
from quorate.protocol.api.groups import HeartbeatRequest
from quorate.protocol.api.produce_fetch import FetchResponse, ProduceRequest
from quorate.protocol.api.topics import MetadataRequest
from quorate.protocol.errors import ErrorCode, ProtocolError
from quorate.protocol.interpreter import Reader, Writer
from quorate.protocol.layout import layout
from samples import MESSAGES, VERSIONS


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_round_trip_of_every_version(cls):
    @settings(max_examples=15)
    @given(st.data())
    def check(data):
        version = data.draw(st.sampled_from(list(cls.__versions__)))
        message = data.draw(samples.messages(cls, version))
        encoded = bytes(codec.encode(message, version))
        assert codec.decode(cls, version, encoded) == message
        assert codec.decode(cls, version, memoryview(encoded)) == message
        assert codec.decode(cls, version, bytearray(encoded)) == message
        assert b"".join(codec.encode_parts(message, version)) == encoded
        # inside a larger buffer, and as a prefix of one
        assert codec.decode(cls, version, b"??" + encoded + b"??", 2, 2 + len(encoded)) == message
        assert codec.decode_prefix(cls, version, encoded + b"??") == (message, len(encoded))

    check()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_compiled_and_plain_codec_agree(cls):
    for version in cls.__versions__:
        message = samples.message(cls, version, samples.Seeded(f"{cls.__name__} {version} plain"))
        part = layout(cls, version)
        writer = Writer()
        writer.write(part, message)
        encoded = codec.encode(message, version)
        assert writer.out == encoded
        reader = Reader(encoded, 0, len(encoded))
        assert reader.read(part) == message
        reader.finish()


def test_the_number_of_declared_messages():
    """93 pairs, two headers, and 87 records and other data."""
    assert (len(samples.REQUESTS), len(samples.RESPONSES), len(MESSAGES)) == (93, 93, 275)
    assert len(VERSIONS) > 700


def heartbeat(**changes):
    values = {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": None}
    return HeartbeatRequest(**values | changes)


def test_byte_fields_are_views_of_the_buffer():
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t",
                partition_data=[
                    ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=b"x" * 100)
                ],
            )
        ],
    )
    buffer = bytearray(codec.encode(request, 9))
    records = codec.decode(ProduceRequest, 9, buffer).topic_data[0].partition_data[0].records
    buffer[buffer.index(b"xxx")] = ord("y")
    assert bytes(records[:2]) == b"yx"


class FileRange:
    """Something with a size that is not a buffer."""

    def __len__(self):
        return 70_000


def fetch_response(*record_sets):
    data = FetchResponse.FetchableTopicResponse.PartitionData
    partitions = [
        data(partition_index=i, error_code=0, high_watermark=1, aborted_transactions=None, records=records)
        for i, records in enumerate(record_sets)
    ]
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)])


def test_large_record_sets_are_parts_of_their_own():
    large, small = memoryview(b"r" * 10_000), b"s" * 10
    parts = codec.encode_parts(fetch_response(small, large, None), 11)
    assert parts[1] is large
    assert len(parts) == 3
    assert b"".join(parts) == codec.encode(fetch_response(small, large, None), 11)


def test_a_record_set_may_be_anything_with_a_size():
    range_of_file = FileRange()
    head, middle, _ = codec.encode_parts(fetch_response(range_of_file), 12)
    assert middle is range_of_file
    assert head.endswith(b"\xf1\xa2\x04")  # the varint of 70,001
    with pytest.raises(ProtocolError, match=r"responses\[0\].partitions\[0\].records: is <.*not bytes"):
        codec.encode(fetch_response(range_of_file), 12)


def test_unknown_tagged_fields_survive():
    message = heartbeat()
    message.__unknown_tags__ = {7: b"seven", 300: b""}
    encoded = codec.encode(message, 4)
    assert encoded.endswith(b"\x02\x07\x05seven\xac\x02\x00")
    assert codec.decode(HeartbeatRequest, 4, encoded) == message
    assert codec.decode(HeartbeatRequest, 4, encoded) != heartbeat()


def test_unknown_tags_stand_among_known_ones_in_order():
    response = ApiVersionsResponse(error_code=0, api_keys=[], throttle_time_ms=0, finalized_features_epoch=5)
    response.__unknown_tags__ = {9: b"n"}
    encoded = codec.encode(response, 3)
    assert encoded.endswith(b"\x02\x01\x08" + (5).to_bytes(8, "big") + b"\x09\x01n")
    assert codec.decode(ApiVersionsResponse, 3, encoded) == response


@pytest.mark.parametrize("tag", [-1, 1])
def test_an_unknown_tag_must_be_unknown(tag):
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    response.__unknown_tags__ = {tag: b""}
    with pytest.raises(ProtocolError, match=f"tag {tag} is not an unknown one"):
        codec.encode(response, 3)


@pytest.mark.parametrize(
    ("message", "version", "problem"),
    [
        (heartbeat(group_instance_id="i"), 2, "HeartbeatRequest v2, field group_instance_id: is 'i', but"),
        (heartbeat(generation_id=2**31), 4, "generation_id: is 2147483648, which is no int32"),
        (heartbeat(generation_id=None), 4, "generation_id: is None"),
        (heartbeat(generation_id="3"), 4, "generation_id: is '3'"),
        (heartbeat(group_id=None), 4, "group_id: is None, but this version does not allow null"),
        (heartbeat(group_id=5), 4, "group_id: is 5, not a string"),
        (heartbeat(group_id="\ud800"), 4, "group_id: cannot be written as UTF-8"),
        (heartbeat(group_id="x" * 32768), 4, "string of 32768 bytes"),
        (heartbeat(group_id="x" * 32768), 3, "string of 32768 bytes"),
        (heartbeat(), 5, "HeartbeatRequest v5: there is no such version; known are 0 to 4"),
        (MetadataRequest(topics=None), 0, "topics: is None"),
        (MetadataRequest(topics=[heartbeat()]), 9, r"topics\[0\]: is HeartbeatRequest\("),
        (MetadataRequest(topics=3), 9, "topics: is 3, not an array"),
    ],
)
def test_what_cannot_be_encoded_says_why(message, version, problem):
    with pytest.raises(ProtocolError, match=problem):
        codec.encode(message, version)


def test_a_uuid_has_sixteen_bytes():
    request = BrokerRegistrationRequest(
        broker_id=1, cluster_id="c", incarnation_id=b"short", listeners=[], features=[], rack=None
    )
    with pytest.raises(ProtocolError, match="incarnation_id: is b'short', not a uuid of 16 bytes"):
        codec.encode(request, 0)


def test_failed_encoding_appends_nothing():
    out = bytearray(b"before")
    with pytest.raises(ProtocolError):
        codec.encode_into(out, heartbeat(member_id=None), 4)
    assert out == b"before"


def test_an_ignorable_field_is_left_out_of_a_version_without_it():
    request = BrokerRegistrationRequest(
        broker_id=1,
        cluster_id="c",
        incarnation_id=samples.ZERO_UUID,
        listeners=[],
        features=[],
        rack=None,
        previous_broker_epoch=9,
    )
    decoded = codec.decode(BrokerRegistrationRequest, 2, codec.encode(request, 2))
    assert decoded.previous_broker_epoch == -1


def test_an_unsupported_version_has_its_own_code():
    with pytest.raises(ProtocolError) as caught:
        codec.decode(BrokerHeartbeatRequest, 99, b"")
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
