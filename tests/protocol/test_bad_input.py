"""Bytes that are not the message they should be: always a ProtocolError, never anything else."""

import pickle
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from quorate.protocol import codec
from quorate.protocol.api.brokers import BrokerHeartbeatRequest
from quorate.protocol.api.groups import HeartbeatRequest
from quorate.protocol.api.topics import CreateTopicsRequest, MetadataRequest
from quorate.protocol.errors import ErrorCode, ProtocolError
from samples import MESSAGES


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_truncation_and_trailing_garbage_is_refused(cls):
    for version in cls.__versions__:
        message = samples.message(cls, version, samples.Seeded(f"{cls.__name__} {version} cut"))
        encoded = bytes(codec.encode(message, version))
        step = max(1, len(encoded) // 50)
        for end in range(0, len(encoded), step):
            with pytest.raises(ProtocolError) as caught:
                codec.decode(cls, version, encoded[:end])
            assert caught.value.message_name == cls.__name__
            assert caught.value.version == version
            # what lies beyond the end must not be read as if it belonged to the message
            with pytest.raises(ProtocolError):
                codec.decode(cls, version, encoded + encoded, 0, end)
        with pytest.raises(ProtocolError, match="1 bytes left over after the message"):
            codec.decode(cls, version, encoded + b"\0")


@settings(max_examples=1500)
@given(st.sampled_from(MESSAGES), st.data())
def test_random_bytes(cls, data):
    version = data.draw(st.sampled_from(list(cls.__versions__)))
    raw = data.draw(st.binary(max_size=60))
    check_verdict(cls, version, raw)


@settings(max_examples=1500)
@given(st.sampled_from(MESSAGES), st.data())
def test_messages_with_changed_bytes(cls, data):
    version = data.draw(st.sampled_from(list(cls.__versions__)))
    seed = data.draw(st.integers(0, 50))
    message = samples.message(cls, version, samples.Seeded(f"{cls.__name__} {version} {seed}"))
    raw = codec.encode(message, version)
    for _ in range(data.draw(st.integers(1, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    check_verdict(cls, version, bytes(raw))


def check_verdict(cls, version, raw):
    """Either a message, which then survives another round, or a ProtocolError."""
    try:
        message = codec.decode(cls, version, raw)
    except ProtocolError as error:
        assert error.position is not None
        assert 0 <= error.position <= len(raw) + 5
        return
    again = codec.encode(message, version)
    decoded = codec.decode(cls, version, bytes(again))
    assert codec.encode(decoded, version) == again


def at(data: str) -> bytes:
    return bytes.fromhex(data.replace(" ", ""))


@pytest.mark.parametrize(
    ("cls", "version", "raw", "field", "position", "reason"),
    [
        (HeartbeatRequest, 4, at("00"), "group_id", 1, "is null, but this version does not allow null"),
        (HeartbeatRequest, 0, at("ffff"), "group_id", 2, "is null, but"),
        (HeartbeatRequest, 0, at("fffe"), "group_id", 2, "length -2 is negative"),
        (HeartbeatRequest, 4, at("0a 6162"), "group_id", 1, "needs 9 bytes, but only 2 are left"),
        (HeartbeatRequest, 4, at("03 61ff"), "group_id", 2, "not UTF-8"),
        (HeartbeatRequest, 4, at("ffffffffff01"), "group_id", 0, "varint of more than five bytes"),
        (HeartbeatRequest, 4, at("ffffffff7f"), "group_id", 0, "varint of more than 32 bits"),
        (HeartbeatRequest, 4, at("ff"), "group_id", 0, "ends inside a varint"),
        (HeartbeatRequest, 4, at("818002"), "group_id", 3, "string of 32768 bytes; at most 32767"),
        (HeartbeatRequest, 4, at("0261 000001"), "generation_id", 2, "needs 4 bytes, but only 3 are left"),
        (MetadataRequest, 1, at("7fffffff"), "topics", 4, "there are only 0 bytes left for 2147483647 items"),
        (MetadataRequest, 1, at("fffffffe"), "topics", 4, "length -2 is negative"),
        (MetadataRequest, 1, at("00000002 0001 61 0005 61"), "topics[1].name", 9, "needs 5 bytes"),
    ],
)
def test_the_error_names_field_and_position(cls, version, raw, field, position, reason):
    with pytest.raises(ProtocolError) as caught:
        codec.decode(cls, version, raw)
    error = caught.value
    assert (error.field, error.position) == (field, position)
    assert reason in error.reason
    assert f"{cls.__name__} v{version}" in str(error)


HEARTBEAT_V1 = at("00000001 0000000000000007 000000000000002a 00 00")


@pytest.mark.parametrize(
    ("version", "tags", "reason"),
    [
        (1, "02 05 00 05 00", "tag 5 after tag 5: tags must ascend"),
        (1, "02 05 00 04 00", "tag 4 after tag 5: tags must ascend"),
        (1, "01 00 01 02", "there are only 0 bytes left for 1 items"),
        (1, "01 00 02 01 00", "tag 0 was said to end at 27"),
        (1, "01 00 ff ff ff ff 07", "tag 0 has 2147483647 bytes, but only 0 are left"),
        (0, "01 00 01 01", "tag 0 belongs to another version of this message"),
        (1, "01 01 01 01", "tag 1 belongs to another version of this message"),
    ],
)
def test_tagged_fields_must_be_in_order_and_of_their_size(version, tags, reason):
    with pytest.raises(ProtocolError, match=reason):
        codec.decode(BrokerHeartbeatRequest, version, HEARTBEAT_V1 + at(tags))


def test_a_count_does_not_make_us_allocate():
    raw = at("7ffffff0") + bytes(100)
    tracemalloc.start()
    for version in (1, 4):
        with pytest.raises(ProtocolError):
            codec.decode(CreateTopicsRequest, version, raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_protocol_error_can_be_sent_to_another_process():
    error = ProtocolError("X", 1, "f", 2, "why", ErrorCode.CORRUPT_MESSAGE)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, again.position) == (str(error), ErrorCode.CORRUPT_MESSAGE, 2)
