"""Metadata records in their frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import samples
from quorate.metadata import records
from quorate.metadata.log_format import decode_record, encode_record, record_class
from quorate.protocol.errors import ErrorCode, ProtocolError

KINDS = [cls for cls in samples.RECORDS_OF_LOGS if cls.__module__ == records.__name__]


@given(st.sampled_from(KINDS), st.data())
def test_records_survive_their_frame(cls, data):
    version = data.draw(st.sampled_from(list(cls.__versions__)))
    record = data.draw(samples.messages(cls, version))
    value = encode_record(record, version)
    assert value[0] == 1
    assert decode_record(value) == (record, version)
    assert decode_record(memoryview(value)) == (record, version)


def test_every_kind_is_found_by_its_key():
    assert len(KINDS) == 26
    assert all(record_class(cls.__key__) is cls for cls in KINDS)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "ends inside its frame"),
        ("0180", "ends inside its frame"),
        ("021400", "frame version, position 0: is 2, not 1"),
        ("016300", "there is no record with key 99"),
        ("011405", "NoOpRecord v5: there is no such version"),
        ("011400", "NoOpRecord v0"),
    ],
)
def test_what_is_not_a_record(value, reason):
    with pytest.raises(ProtocolError, match=reason):
        decode_record(bytes.fromhex(value))


def test_a_kind_of_a_newer_release_has_its_own_code():
    with pytest.raises(ProtocolError) as caught:
        decode_record(bytes.fromhex("01630000"))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
