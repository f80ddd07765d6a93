"""Uuids, varints and error codes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.protocol.errors import ApiError, ErrorCode, ProtocolError
from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.protocol.varint import MalformedError, read_uvarint, uvarint


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_is_what_it_prints(raw):
    uuid = Uuid(raw)
    assert Uuid.parse(str(uuid)) == uuid == raw
    assert len(str(uuid)) == 22
    assert repr(uuid) == f"Uuid('{uuid}')"


def test_a_uuid_prints_like_kafkas():
    assert str(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert str(Uuid(b"\xfb" * 16)) == "-_v7-_v7-_v7-_v7-_v7-w"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "!" * 22, "ä" * 22, "AAAAAAAAAAAAAAAAAAAA\n\n"])
def test_what_is_not_a_uuid(text):
    with pytest.raises(ValueError, match="uuid"):
        Uuid.parse(text)


@given(st.integers(0, 2**32 - 1))
def test_varints_round_trip(value):
    data = uvarint(value)
    assert read_uvarint(b"?" + data + b"?", 1) == (value, 1 + len(data))
    for end in range(len(data)):
        with pytest.raises(IndexError):
            read_uvarint(data[:end], 0)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80" * 5 + b"\x01"])
def test_varints_have_32_bits(data):
    with pytest.raises(MalformedError):
        read_uvarint(data, 0)


def test_error_codes():
    assert ErrorCode(0) is ErrorCode.NONE
    assert ErrorCode.NOT_CONTROLLER.retriable
    assert not ErrorCode.DUPLICATE_BROKER_REGISTRATION.retriable
    assert str(ApiError(ErrorCode.STALE_BROKER_EPOCH, "7 < 9")) == "STALE_BROKER_EPOCH: 7 < 9"
    assert str(ApiError(ErrorCode.NONE)) == "NONE"


def test_a_protocol_error_is_an_api_error_that_says_where():
    error = ProtocolError("FetchRequest", 12, "topics[0].topic", 17, "too short")
    assert isinstance(error, ApiError)
    assert str(error) == "INVALID_REQUEST: FetchRequest v12, field topics[0].topic, position 17: too short"
