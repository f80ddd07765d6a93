"""Whatever ApiVersions lists is answered, by controllers and by brokers; what old versions of it say."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.serving import in_loop
from node.one_node import HOST, OneNode
from quorate.client.cluster import ANY, Cluster
from quorate.protocol.api import request_class
from quorate.protocol.api.admin import DescribeClusterRequest
from quorate.protocol.api.brokers import EnvelopeRequest
from quorate.protocol.api.connection import ApiVersionsRequest
from quorate.protocol.api.produce_fetch import ProduceRequest
from quorate.protocol.api.quorum import DescribeQuorumRequest
from quorate.protocol.api.security import SaslAuthenticateRequest, SaslHandshakeRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.frame import decode_response, encode_request
from quorate.protocol.message import Request
from quorate.protocol.types import ZERO_UUID
from samples import message

BROKERS, CONTROLLERS = 1, 2
METADATA_TOPIC = "__cluster_metadata"
# An envelope is a request with another inside, and one that makes no sense closes the connection.
# Produce is listed from version 0 on for old clients, and served from 3 on.
NOT_ALONE = (EnvelopeRequest, ProduceRequest)


class Least:
    """A source of choices for messages that say as little as they can; arrays have `count` items."""

    def __init__(self, count: int) -> None:
        self._count = count

    def integer(self, low: int, high: int) -> int:
        return 1 if (low, high) == (0, 3) else max(low, 0)  # a choice of null is not taken

    def boolean(self) -> bool:
        return False

    def number(self) -> float:
        return 0.0

    def text(self) -> str:
        return ""

    def data(self, size: int | None = None) -> bytes:
        return bytes(size or 0)

    def count(self) -> int:
        return self._count


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: Request, version: int) -> Any:
        self._writer.write(encode_request(request, version, 1, "test"))
        try:
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        except asyncio.IncompleteReadError:
            raise AssertionError(f"{type(request).__name__} v{version} closes the connection") from None
        answer = memoryview(await self._reader.readexactly(size))
        return decode_response(request.__key__, version, answer)[1]


@asynccontextmanager
async def connected(node: OneNode, kind: int) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection(HOST, node._ports[kind - 1])
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("kind", [BROKERS, CONTROLLERS])
@in_loop
async def test_every_version_that_is_listed_is_answered(tmp_path, kind):
    async with OneNode(tmp_path) as node, connected(node, kind) as connection:
        listed = (await connection.ask(ApiVersionsRequest(), 0)).api_keys
        assert len(listed) > 40
        for one in listed:
            cls = request_class(one.api_key)
            if cls in NOT_ALONE:
                continue
            for version in range(one.min_version, one.max_version + 1):
                for count in (0, 1):
                    await connection.ask(message(cls, version, Least(count)), version)


@in_loop
async def test_a_controller_lists_what_apaches_lists(tmp_path):
    async with OneNode(tmp_path) as node, connected(node, CONTROLLERS) as connection:
        listed = (await connection.ask(ApiVersionsRequest(), 0)).api_keys
    for_controllers = [
        cls for cls in map(request_class, range(93)) if "controller" in cls.__listeners__ and cls.__served__
    ]
    assert {one.api_key: range(one.min_version, one.max_version + 1) for one in listed} == {
        cls.__key__: cls.__served__ for cls in for_controllers
    }


@pytest.mark.parametrize("version", DescribeQuorumRequest.__served__)
@in_loop
async def test_old_clients_are_told_who_leads(tmp_path, version):
    topic = DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(
        topics=[topic(topic_name=METADATA_TOPIC, partitions=[topic.PartitionData(partition_index=0)])]
    )
    async with OneNode(tmp_path) as node, Cluster(node.bootstrap) as cluster:
        answer = await cluster.request(ANY, request, version_cap=version)
        (partition,) = answer.topics[0].partitions
        assert partition.leader_id == 1
        (voter,) = partition.current_voters
        # a static voter is known by its id alone
        assert voter.replica_directory_id == ZERO_UUID
        assert [one.node_id for one in answer.nodes] == ([1] if version >= 2 else [])


@in_loop
async def test_nodes_tell_of_their_own_kind_only(tmp_path):
    async def asked(kind: int, version: int, wanted: int) -> tuple[int, str | None]:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=wanted)
        async with connected(node, kind) as connection:
            answer = await connection.ask(request, version)
        return answer.error_code, answer.error_message

    async with OneNode(tmp_path) as node:
        for kind in (BROKERS, CONTROLLERS):
            assert await asked(kind, 1, kind) == (ErrorCode.NONE, None)
            assert await asked(kind, 2, 3) == (
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                "Unsupported endpoint type 3",
            )
        wrong = "The request was sent to an endpoint of type {}, but we wanted an endpoint of type {}".format
        mismatched = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert await asked(BROKERS, 1, CONTROLLERS) == (mismatched, wrong("BROKER", "CONTROLLER"))
        assert await asked(CONTROLLERS, 2, BROKERS) == (mismatched, wrong("CONTROLLER", "BROKER"))
        # version 0 does not know that error
        refused = ErrorCode.INVALID_REQUEST, wrong("CONTROLLER", "BROKER")
        assert await asked(CONTROLLERS, 0, BROKERS) == refused


@pytest.mark.parametrize("kind", [BROKERS, CONTROLLERS])
@in_loop
async def test_who_wants_sasl_is_told_that_there_is_none(tmp_path, kind):
    async with OneNode(tmp_path) as node, connected(node, kind) as connection:
        answer = await connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=b"\0me\0secret"), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
