"""Other people's clients find out what a server of ours serves, and talk to it."""

import asyncio
import io
import struct

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kio.schema.api_versions.v4.request import ApiVersionsRequest as KioRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse as KioResponse
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeader
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeader
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32
from nodes import HOST, raw, serving

from quorate.net.routes import Features, Route
from quorate.net.server import Server
from quorate.protocol.api.admin import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.api.groups import FindCoordinatorRequest
from quorate.protocol.api.produce_fetch import FetchRequest, ProduceRequest
from quorate.protocol.api.topics import CreateTopicsRequest, MetadataRequest, MetadataResponse

pytestmark = pytest.mark.interop


class Broker:
    """The least that clients want of a broker: it knows itself and one topic."""

    def __init__(self) -> None:
        self.port = 0

    def routes(self) -> list[Route]:
        unused = [FetchRequest, FindCoordinatorRequest, CreateTopicsRequest]
        return [
            Route(MetadataRequest, self.metadata),
            Route(DescribeClusterRequest, self.describe_cluster),
            Route(ProduceRequest, self.refuse, advertised=range(14)),
            *(Route(cls, self.refuse) for cls in unused),
        ]

    def metadata(self, *_) -> MetadataResponse:
        partition = MetadataResponse.Topic.Partition(
            error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        return MetadataResponse(
            brokers=[MetadataResponse.Broker(node_id=1, host=HOST, port=self.port)],
            cluster_id="quorate",
            controller_id=1,
            topics=[MetadataResponse.Topic(error_code=0, name="orders", partitions=[partition])],
        )

    def describe_cluster(self, *_) -> DescribeClusterResponse:
        broker = DescribeClusterResponse.Broker(broker_id=1, host=HOST, port=self.port)
        return DescribeClusterResponse(
            throttle_time_ms=0, error_code=0, cluster_id="quorate", controller_id=1, brokers=[broker]
        )

    def refuse(self, *_) -> None:
        raise AssertionError("nobody asks this here")


async def in_thread(function, *arguments):
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def serving_as(broker: Broker):
    return serving(
        *broker.routes(),
        features=Features(supported={"group.version": range(2)}, finalized={"group.version": 1}),
    )


def address(server: Server) -> str:
    return f"{HOST}:{server.port}"


async def test_kio_reads_what_we_serve():
    broker = Broker()
    async with serving_as(broker) as server, raw(server) as peer:
        out = io.BytesIO()
        header = KioRequestHeader(
            request_api_key=i16(18), request_api_version=i16(4), correlation_id=i32(9), client_id="kio"
        )
        entity_writer(KioRequestHeader)(out, header)
        entity_writer(KioRequest)(
            out, KioRequest(client_software_name="kio", client_software_version="0.6.5")
        )
        peer.say(struct.pack(">i", len(out.getvalue())) + out.getvalue())
        data = await peer.frame()
    header, position = entity_reader(KioResponseHeader)(data, 0)
    response, end = entity_reader(KioResponse)(data, position)
    assert header.correlation_id == 9
    assert position + end == len(data)
    served = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert served[0] == (0, 13)
    assert served[3] == (0, 13)
    assert served[18] == (0, 4)
    assert [one.name for one in response.finalized_features] == ["group.version"]


async def test_kafka_python():
    def ask(bootstrap: str):
        admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="kafka-python")
        try:
            return admin.list_topics(), admin.describe_cluster()
        finally:
            admin.close()

    broker = Broker()
    async with serving_as(broker) as server:
        broker.port = server.port
        topics, cluster = await in_thread(ask, address(server))
    assert "orders" in str(topics)
    assert cluster["cluster_id"] == "quorate"


async def test_librdkafka():
    def ask(bootstrap: str):
        return AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20)

    broker = Broker()
    async with serving_as(broker) as server:
        broker.port = server.port
        metadata = await in_thread(ask, address(server))
    assert list(metadata.topics) == ["orders"]
    assert metadata.brokers[1].port == broker.port


async def test_aiokafka():
    broker = Broker()
    async with serving_as(broker) as server:
        broker.port = server.port
        admin = AIOKafkaAdminClient(bootstrap_servers=address(server))
        await admin.start()
        try:
            assert await admin.list_topics() == ["orders"]
        finally:
            await admin.close()
