"""What is passed on to the active controller, what comes back, and what clients are offered."""

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from broker.test_metadata import ANN, Asked
from controller_cluster import Cluster
from net.nodes import HOST, connected, serving
from node.test_controller import formatted
from node.test_controller_channel import creation, registration
from quorate.broker.handlers.alter_configs import AlteringConfigs
from quorate.broker.handlers.forwarding import FORWARDED, Forwarding, limit_to_controller
from quorate.broker.handlers.own_view import OwnView
from quorate.broker.handlers.security import Security
from quorate.metadata.image import TOPIC
from quorate.net.client import ConnectionLost
from quorate.net.connections import Connections
from quorate.net.routes import RouteTable
from quorate.net.server import Server
from quorate.node import envelope
from quorate.node.controller_channel import ControllerChannel, KraftControlPlane
from quorate.node.host import real_host
from quorate.node.node import Node
from quorate.protocol.api import response_class
from quorate.protocol.api.admin import AlterConfigsRequest, IncrementalAlterConfigsRequest
from quorate.protocol.api.connection import ApiVersionsRequest, RequestHeader
from quorate.protocol.api.quorum import DescribeQuorumRequest
from quorate.protocol.api.topics import CreateTopicsRequest, DeleteTopicsRequest
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ApiError, ErrorCode
from samples import Seeded, message

# What the broker has something to say about: see `test_alter_configs`.
JUDGED_FIRST = {AlterConfigsRequest, IncrementalAlterConfigsRequest}


class Full(Seeded):
    """One of everything, and nothing null."""

    def count(self):
        return 1

    def boolean(self):
        return False

    def integer(self, low, high):
        return high if (low, high) == (0, 3) else super().integer(low, high)  # whether it is null


def sample(kind, version):
    return message(kind, version, Full(f"{kind.__name__} {version}"))


class Forwarder:
    """A controller that answers with what the test says, or fails."""

    def __init__(self, answer=None, failure=None):
        self.controller_versions = None
        self.asked = []
        self.answer = answer
        self.failure = failure

    async def forward(self, request, version, principal, client_id, client_host=""):
        self.asked.append((request, version, principal, client_id, client_host))
        if self.failure is not None:
            raise self.failure
        return self.answer(request) if callable(self.answer) else self.answer


def routes_to(forwarder):
    """Everything that may be passed on, in a cluster where rights mean something."""
    broker = Asked(Cluster([1, 2]), has_authorizer=True).broker
    forwarding = Forwarding(forwarder)
    routes = [
        *forwarding.routes(),
        *AlteringConfigs(broker, forwarding, OwnView(broker.current_image)).routes(),
        *Security(broker, forwarding).routes(),
    ]
    return [route for route in routes if route.request in FORWARDED]


def handlers(forwarder):
    return {route.request: route.handler for route in routes_to(forwarder)}


def header(request, version):
    return RequestHeader(
        request_api_key=request.__key__, request_api_version=version, correlation_id=1, client_id="c"
    )


def forward(forwarder, request, version):
    return asyncio.run(handlers(forwarder)[type(request)](ANN, header(request, version), request))


def test_everything_is_passed_on_that_controllers_take():
    assert set(FORWARDED) == set(envelope.FORWARDED)
    assert set(handlers(Forwarder())) == set(FORWARDED)
    assert all("broker" in one.__listeners__ for one in FORWARDED)


@pytest.mark.parametrize(
    "kind", [one for one in FORWARDED if one not in JUDGED_FIRST], ids=lambda one: one.__name__
)
def test_a_request_is_passed_on_as_it_is_and_so_is_the_answer(kind):
    for version in kind.__served__:
        request, response = sample(kind, version), sample(response_class(kind.__key__), version)
        forwarder = Forwarder(response)
        assert forward(forwarder, request, version) == response
        assert forwarder.asked == [(request, version, "User:ann", "her client", "10.1.1.1")]


@pytest.mark.parametrize("kind", FORWARDED, ids=lambda one: one.__name__)
def test_a_controller_that_cannot_be_reached_is_an_error_that_the_client_can_read(kind):
    failure = ApiError(ErrorCode.REQUEST_TIMED_OUT, "nobody leads")
    for version in kind.__served__:
        request = sample(kind, version)
        if kind in JUDGED_FIRST:
            request.resources[0].resource_type = TOPIC
        response = forward(Forwarder(failure=failure), request, version)
        read = decode(response_class(kind.__key__), version, bytes(encode(response, version)))
        assert ErrorCode.REQUEST_TIMED_OUT in codes(read)


def codes(part):
    """All error codes in a response."""
    found = []
    for declared in part.__fields__:
        value = getattr(part, declared.name)
        if declared.name == "error_code":
            found.append(value)
        elif isinstance(value, list):
            found += [code for one in value if hasattr(one, "__fields__") for code in codes(one)]
    return found


def test_a_version_that_the_controller_has_not_ends_the_connection():
    with pytest.raises(ApiError) as told:
        forward(Forwarder(failure=ApiError(ErrorCode.UNSUPPORTED_VERSION, "not mine")), creation(), 7)
    assert told.value.code is ErrorCode.UNSUPPORTED_VERSION


# What clients are offered


def offered(forwarder, version=4):
    table = RouteTable(routes_to(forwarder))
    limit_to_controller(table, forwarder)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = table.handler(18, version)(ANN, header(request, version), request)
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


@pytest.mark.parametrize("version", ApiVersionsRequest.__versions__)
def test_clients_are_offered_what_both_have(version):
    forwarder = Forwarder()
    before = offered(forwarder, version)
    assert {key for key in before if key != 18} == {one.__key__ for one in FORWARDED}
    assert before[CreateTopicsRequest.__key__] == (2, 7)
    forwarder.controller_versions = {
        key: range(max(0, high - 1), high + 3) for key, (_, high) in before.items()
    }
    forwarder.controller_versions[CreateTopicsRequest.__key__] = range(6)
    del forwarder.controller_versions[DeleteTopicsRequest.__key__]
    after = offered(forwarder, version)
    assert after[CreateTopicsRequest.__key__] == (2, 5)
    assert DeleteTopicsRequest.__key__ not in after
    assert after[18] == before[18]  # it is our own
    for key, (low, high) in after.items():
        assert before[key][0] <= low <= high <= before[key][1]


def test_nothing_in_common_is_not_offered():
    forwarder = Forwarder()
    forwarder.controller_versions = {CreateTopicsRequest.__key__: range(8, 10)}
    assert set(offered(forwarder)) == {18}


# With a controller of ours


async def started(closing, directory):
    """A controller, and a broker that passes on to it what it is asked: a node, a way to it, and a server."""
    node = Node(real_host("1"), await formatted(directory, idle_ms=500))
    running = asyncio.create_task(node.run())

    async def stop():
        node.stop()
        await running

    closing.push_async_callback(stop)
    await node.is_listening.wait()

    def channel():
        connections = Connections(rng=Random(1))
        closing.push_async_callback(connections.close)
        return ControllerChannel(connections, lambda: node.replica.quorum.leader_endpoint, Random(1))

    plane = KraftControlPlane(1, lambda: 1, forwarding=channel(), proposing=channel())
    table = RouteTable(routes_to(plane))
    limit_to_controller(table, plane)
    server = Server("PLAINTEXT", table)
    await server.start(HOST, 0)
    closing.push_async_callback(server.close, timeout_ms=0)
    return node, plane, server


def test_a_client_of_a_broker_is_answered_by_the_controller(tmp_path):
    async def scenario():
        async with asyncio.timeout(30), AsyncExitStack() as closing:
            node, plane, server = await started(closing, tmp_path)
            channel = plane._forwarding
            await channel.ask(registration(node.replica.cluster_id), timeout_ms=20_000)
            await channel.versions()
            async with connected(server) as client:
                version = client.version_for(CreateTopicsRequest)
                assert version == 7
                response = await client.request(creation(), version, timeout_ms=20_000)
                # The broker is registered, and fenced: there is nowhere to put a replica.
                assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
                topic = DescribeQuorumRequest.TopicData(
                    topic_name="__cluster_metadata",
                    partitions=[DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)],
                )
                response = await client.request(DescribeQuorumRequest(topics=[topic]), 2, timeout_ms=20_000)
                assert response.topics[0].partitions[0].leader_id == 1

    asyncio.run(scenario())


def test_a_client_that_asks_in_a_version_that_is_gone_is_disconnected():
    async def scenario():
        failure = ApiError(ErrorCode.UNSUPPORTED_VERSION, "not mine")
        routes = routes_to(Forwarder(failure=failure))
        async with serving(*routes) as server, connected(server) as client:
            with pytest.raises(ConnectionLost):
                await client.request(creation(), 7, timeout_ms=20_000)

    asyncio.run(scenario())
