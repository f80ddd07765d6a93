"""Requests that brokers forward: who answers, in whose name, and what is not forwarded."""

import asyncio
from struct import pack

import pytest

from quorate.controller.refusals import refusal
from quorate.net.routes import NO_RESPONSE, RequestContext, Route, RouteTable
from quorate.node.envelope import FORWARDED, serve_envelope
from quorate.protocol.api import APIS
from quorate.protocol.api.brokers import BrokerHeartbeatRequest, EnvelopeRequest, UnregisterBrokerRequest
from quorate.protocol.api.quorum import VoteRequest
from quorate.protocol.api.security import DefaultPrincipalData
from quorate.protocol.api.topics import CreateTopicsRequest, ElectLeadersRequest
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.frame import decode_response, encode_request

BROKER = RequestContext("CONTROLLER", "10.0.0.1", 4711, "broker-1", "User:broker")
TOPIC = CreateTopicsRequest.CreatableTopic(
    name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[]
)
CREATION = CreateTopicsRequest(topics=[TOPIC], timeout_ms=1000)
VERSION = 7
ELECTED = ElectLeadersRequest.TopicPartitions(topic="a", partitions=[0])


def principal(kind="User", name="ann"):
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=False)
    return pack(">h", 0) + encode(data, 0)


def envelope(request, version, who=None):
    frame = encode_request(request, version, 42, "her client")
    return EnvelopeRequest(
        request_data=bytes(frame[4:]),
        request_principal=principal() if who is None else who,
        client_host_address=b"\x7f\0\0\1",
    )


def served(sent, handler=lambda *_: NO_RESPONSE, kind=CreateTopicsRequest):
    return asyncio.run(serve_envelope(BROKER, sent, RouteTable([Route(kind, handler)])))


def test_what_is_inside_is_answered_as_if_the_client_itself_had_asked():
    seen = []

    async def create(context, _header, request):
        seen.append((context.principal, context.client_id, context.listener, request.topics[0].name))
        return refusal(request, ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "there is one"), VERSION)

    answer = served(envelope(CREATION, VERSION), create)
    assert answer.error_code == ErrorCode.NONE
    assert seen == [("User:ann", "her client", "CONTROLLER", "a")]
    header, response = decode_response(CreateTopicsRequest.__key__, VERSION, answer.response_data)
    assert header.correlation_id == 42
    assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    "request_",
    [
        UnregisterBrokerRequest(broker_id=1),  # the answer has one error code
        CREATION,  # one for each topic
        ElectLeadersRequest(topic_partitions=[ELECTED], timeout_ms=1),  # or for each partition
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_broker_learns_that_it_has_asked_a_standby(request_):
    standby = ApiError(ErrorCode.NOT_CONTROLLER, "not here")
    for version in type(request_).__served__:
        sent = envelope(request_, version)
        answer = served(sent, lambda *_, v=version: refusal(request_, standby, v), type(request_))
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert answer.response_data is None


@pytest.mark.parametrize(
    "request_",
    [
        BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=1, current_metadata_offset=1, want_fence=False, want_shut_down=False
        ),
        VoteRequest(cluster_id=None, topics=[]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_nodes_say_in_their_own_name_is_not_forwarded(request_):
    def handler(*_):
        raise AssertionError("it was answered")

    answer = served(envelope(request_, 0), handler, type(request_))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_an_envelope_in_an_envelope():
    inner = envelope(CREATION, VERSION)
    assert served(envelope(inner, 0), kind=EnvelopeRequest).error_code == ErrorCode.INVALID_REQUEST


def test_what_is_not_a_request():
    for data in (b"", b"\0", b"\0\x13\0\7garbage"):
        sent = EnvelopeRequest(request_data=data, request_principal=principal(), client_host_address=b"")
        assert served(sent).error_code == ErrorCode.INVALID_REQUEST


def test_a_version_that_nobody_knows():
    data = pack(">hhih", CreateTopicsRequest.__key__, 99, 1, -1)
    sent = EnvelopeRequest(request_data=data, request_principal=principal(), client_host_address=b"")
    assert served(sent).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("who", [b"", b"\0", pack(">h", 9) + b"x", pack(">h", 0) + b"\xff\xff"])
def test_a_principal_that_makes_no_sense(who):
    assert served(envelope(CREATION, VERSION, who)).error_code == ErrorCode.INVALID_REQUEST


def test_nobody_waits_for_an_answer_that_does_not_come():
    assert served(envelope(CREATION, VERSION)).error_code == ErrorCode.INVALID_REQUEST


def test_all_that_is_forwarded_is_served_by_controllers():
    assert all("controller" in one.__listeners__ for one in FORWARDED)
    assert len(FORWARDED) == len({one.__key__ for one in FORWARDED} & set(APIS))
