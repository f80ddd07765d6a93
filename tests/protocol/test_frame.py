"""Frames: sizes, headers and bodies together."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from quorate.protocol import frame
from quorate.protocol.api import request_class, response_class
from quorate.protocol.api.brokers import EnvelopeRequest
from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.api.groups import HeartbeatRequest
from quorate.protocol.api.produce_fetch import FetchResponse
from quorate.protocol.api.zookeeper_era import ControlledShutdownRequest
from quorate.protocol.errors import ErrorCode, ProtocolError

REQUEST_VERSIONS = [(cls, version) for cls in samples.REQUESTS for version in cls.__versions__]


@settings(max_examples=400)
@given(st.sampled_from(REQUEST_VERSIONS), st.data())
def test_requests_and_responses_round_trip(which, data):
    cls, version = which
    request = data.draw(samples.messages(cls, version))
    encoded = bytes(frame.encode_request(request, version, 77, "me"))
    assert int.from_bytes(encoded[:4], "big") == len(encoded) - 4
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        header, decoded = frame.decode_request(buffer, 4)
        assert decoded == request
        assert (header.request_api_key, header.request_api_version) == (cls.__key__, version)
        assert header.correlation_id == 77
    assert frame.decode_request_header(encoded, 4)[0] == header

    response_cls = response_class(cls.__key__)
    response = data.draw(samples.messages(response_cls, version))
    encoded = bytes(frame.encode_response(response, version, 78))
    response_header, decoded = frame.decode_response(cls.__key__, version, encoded, 4)
    assert (response_header.correlation_id, decoded) == (78, response)
    assert b"".join(frame.encode_response_parts(response, version, 78)) == encoded


def test_the_size_counts_parts_that_are_not_copied():
    data = FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=0, error_code=0, high_watermark=0, aborted_transactions=[], records=bytes(100_000)
    )
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])
    parts = frame.encode_response_parts(FetchResponse(responses=[topic]), 4, 1)
    assert parts[1] is data.records
    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4


def test_the_two_exceptions_among_headers():
    assert frame.response_header_version(ApiVersionsResponse.__key__, 4) == 0
    assert frame.request_header_version(ApiVersionsRequest.__key__, 4) == 2
    assert frame.request_header_version(ControlledShutdownRequest.__key__, 0) == 0
    encoded = frame.encode_request(ControlledShutdownRequest(broker_id=5), 0, 1, "nobody")
    assert encoded.hex() == "0000000c000700000000000100000005"


def test_a_new_version_of_api_versions_can_be_answered():
    """The header is read although the version is unknown, so that the answer finds its question."""
    raw = bytes.fromhex("0012 0063 00000007 0002 6d65 00 ffff".replace(" ", ""))
    with pytest.raises(ProtocolError) as caught:
        frame.decode_request(raw)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    header, body = frame.decode_request_header(raw)
    assert (header.request_api_version, header.correlation_id, header.client_id, body) == (99, 7, "me", 13)


@pytest.mark.parametrize("key", [-1, 93, 32767])
def test_an_unknown_key(key):
    with pytest.raises(ProtocolError, match=f"no request with key {key}"):
        frame.decode_request(key.to_bytes(2, "big", signed=True) + bytes(20))


@pytest.mark.parametrize("size", range(4))
def test_too_short_for_a_key(size):
    with pytest.raises(ProtocolError, match=f"a request of {size} bytes"):
        frame.decode_request(bytes(size))


def test_errors_in_header_and_body_name_their_message():
    good = bytes(frame.encode_request(heartbeat(), 4, 1, "me"))[4:]
    with pytest.raises(ProtocolError, match="RequestHeader v2, field client_id, position 10: needs 2 bytes"):
        frame.decode_request(good[:11])
    with pytest.raises(
        ProtocolError, match="HeartbeatRequest v4, field group_id, position 14: needs 1 bytes"
    ):
        frame.decode_request(good[:14])
    with pytest.raises(ProtocolError, match="RequestHeader v2, field client_id: is 3, not a string"):
        frame.encode_request(heartbeat(), 4, 1, 3)
    with pytest.raises(ProtocolError, match="HeartbeatRequest v4, field group_id: is 3, not a string"):
        frame.encode_request(heartbeat(group_id=3), 4, 1, "me")


def heartbeat(**changes):
    return HeartbeatRequest(**{"group_id": "g", "generation_id": 3, "member_id": "m"} | changes)


def envelope(inner: bytes) -> EnvelopeRequest:
    return EnvelopeRequest(request_data=inner, request_principal=None, client_host_address=b"\x7f\0\0\1")


def test_an_envelope_holds_a_request():
    inner = frame.encode_request(heartbeat(), 4, 9, "client")[4:]
    outer = frame.encode_request(envelope(inner), 0, 1, "broker")
    _, opened = frame.decode_request(outer, 4)
    header, request = frame.open_envelope(opened)
    assert (header.client_id, request) == ("client", heartbeat())


def test_an_envelope_in_an_envelope_is_refused():
    inner = frame.encode_request(envelope(b""), 0, 1, "broker")[4:]
    with pytest.raises(ProtocolError, match=r"EnvelopeRequest v0, field request_data.*inside an Envelope"):
        frame.open_envelope(envelope(inner))


def test_every_key_has_a_pair():
    for key in range(93):
        assert request_class(key).__key__ == response_class(key).__key__ == key
        assert request_class(key).__versions__ == response_class(key).__versions__
        assert request_class(key).__flexible__ == response_class(key).__flexible__
