"""The channel to the active controller: it is found, found again, and asked in the right name."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from random import Random

import pytest

from controller_cluster import directory, incarnation, topic_id
from net.nodes import HOST, beat, serving, wait_until
from node.test_controller import formatted, until
from quorate.broker.control_plane import IsrAnswer
from quorate.broker.leadership import Proposal
from quorate.broker.partition import TopicPartition
from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.net.client import ConnectionLost
from quorate.net.connections import Backoff, Connections
from quorate.net.routes import Route, RouteTable
from quorate.node.controller_channel import ControllerChannel, KraftControlPlane, patience_ms
from quorate.node.envelope import serve_envelope
from quorate.node.host import real_host
from quorate.node.node import Node
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    EnvelopeRequest,
    EnvelopeResponse,
)
from quorate.protocol.api.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.raft.voters import Endpoint

ME, EPOCH = 7, 70
VERSION = 7
DEADLINE_S = 30
KEY = TopicPartition("a", topic_id(1), 0)
ANOTHER = TopicPartition("b", topic_id(2), 3)


class World:
    """Whom this node believes to lead, and a control plane that asks whoever that is."""

    def __init__(self, closing: AsyncExitStack):
        self.leaders = []  # one after the other
        self.find = lambda: self.leaders[0] if self.leaders else None
        self.broker_epoch = EPOCH
        self.channels = [self._channel(closing) for _ in range(2)]
        self.plane = KraftControlPlane(
            ME,
            lambda: self.broker_epoch,
            forwarding=self.channels[0],
            proposing=self.channels[1],
        )

    def _channel(self, closing):
        backoff = Backoff(first_ms=1, max_ms=2)
        connections = Connections(rng=Random(1), backoff=backoff)
        closing.push_async_callback(connections.close)
        return ControllerChannel(connections, self.leader, Random(1), backoff=backoff)

    def leader(self):
        return self.find()

    def lead(self, *servers):
        self.leaders = [Endpoint("CONTROLLER", HOST, one.port) for one in servers]

    def fail_over(self):
        """The replica hears of the next leader."""
        self.leaders.pop(0)


@asynccontextmanager
async def world():
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as closing:
        yield World(closing)


def run(scenario):
    asyncio.run(scenario())


def creation(**changes):
    topic = CreateTopicsRequest.CreatableTopic(
        name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], **changes)


def created(name="orders", code=ErrorCode.NONE):
    result = CreateTopicsResponse.CreatableTopicResult(name=name, error_code=code, error_message=None)
    return CreateTopicsResponse(topics=[result])


def controller(handler=lambda *_: created(), seen=None):
    """The routes of an active controller that creates topics."""
    inside = RouteTable([Route(CreateTopicsRequest, handler)])

    async def open_envelope(context, _header, request):
        if seen is not None:
            seen.append(request)
        return await serve_envelope(context, request, inside)

    return [Route(EnvelopeRequest, open_envelope)]


def answering(code, count=None):
    """A controller that answers envelopes with an error; the count says how often it was asked."""

    def answer(*_):
        if count is not None:
            count.append(1)
        return EnvelopeResponse(error_code=code)

    return Route(EnvelopeRequest, answer)


def forward(plane, request=None, **about):
    return plane.forward(
        creation() if request is None else request, VERSION, "User:ann", "her client", **about
    )


# Forwarding


def test_a_client_is_asked_for_in_its_own_name():
    async def scenario():
        asked, envelopes = [], []

        def create(context, header, request):
            asked.append((context.principal, context.client_id, header.request_api_version, request))
            return created(code=ErrorCode.TOPIC_ALREADY_EXISTS)

        async with world() as it, serving(*controller(create, envelopes)) as server:
            it.lead(server)
            response = await forward(it.plane, client_host="10.1.2.3")
        assert asked == [("User:ann", "her client", VERSION, creation())]
        assert response == created(code=ErrorCode.TOPIC_ALREADY_EXISTS)
        assert bytes(envelopes[0].client_host_address) == ip_address("10.1.2.3").packed

    run(scenario)


@pytest.mark.parametrize(
    ("host", "packed"),
    [
        ("127.0.0.1", b"\x7f\0\0\1"),
        ("::1", ip_address("::1").packed),
        ("fe80::1%eth0", ip_address("fe80::1").packed),
        ("a-simulated-client", bytes(4)),
        ("", bytes(4)),
    ],
)
def test_addresses_travel_as_bytes(host, packed):
    async def scenario():
        envelopes = []
        async with world() as it, serving(*controller(seen=envelopes)) as server:
            it.lead(server)
            await forward(it.plane, client_host=host)
        assert bytes(envelopes[0].client_host_address) == packed

    run(scenario)


def test_who_was_asked_is_a_standby_and_another_leads():
    async def scenario():
        async with world() as it, serving(*controller()) as active:

            def not_me(*_):
                it.fail_over()
                return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)

            async with serving(Route(EnvelopeRequest, not_me)) as standby:
                it.lead(standby, active)
                assert await forward(it.plane) == created()

    run(scenario)


def test_who_was_asked_is_about_to_become_active():
    async def scenario():
        asked = []

        async def not_yet(context, _header, request):
            asked.append(request)
            if len(asked) < 4:
                return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
            return await serve_envelope(
                context, request, RouteTable([Route(CreateTopicsRequest, lambda *_: created())])
            )

        async with world() as it, serving(Route(EnvelopeRequest, not_yet)) as server:
            it.lead(server)
            assert await forward(it.plane) == created()
            assert len(asked) == 4

    run(scenario)


def test_nobody_leads_for_a_while():
    async def scenario():
        async with world() as it, serving(*controller()) as server:
            waiting = asyncio.create_task(forward(it.plane))
            await asyncio.sleep(0)
            assert not waiting.done()
            it.lead(server)
            assert await waiting == created()

    run(scenario)


def test_a_controller_that_dies_in_the_middle_is_replaced():
    async def scenario():
        async with world() as it, serving(*controller()) as active:

            def die(*_):
                it.fail_over()
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "it ends the connection")

            async with serving(Route(EnvelopeRequest, die)) as dying:
                it.lead(dying, active)
                assert await forward(it.plane) == created()

    run(scenario)


def test_a_controller_that_comes_back_at_its_address_is_asked_again():
    async def scenario():
        async with world() as it:
            async with serving(*controller()) as server:
                port = server.port
                it.lead(server)
                assert await forward(it.plane) == created()
            waiting = asyncio.create_task(forward(it.plane))
            async with serving(*controller(), port=port):
                assert await waiting == created()

    run(scenario)


def test_time_is_limited_and_the_reason_is_told():
    async def scenario():
        async with world() as it:
            request = creation()
            with pytest.raises(ApiError, match="nobody leads") as told:
                await it.channels[0].ask(request, timeout_ms=20)
            assert told.value.code is ErrorCode.REQUEST_TIMED_OUT
            async with serving(answering(ErrorCode.NOT_CONTROLLER)) as standby:
                it.lead(standby)
                envelope = EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=b"")
                with pytest.raises(ApiError, match="is not the active controller"):
                    await it.channels[0].ask(envelope, timeout_ms=200)

    run(scenario)


def test_a_silent_controller_can_be_given_up():
    async def scenario():
        asked = []

        async def say_nothing(*_):
            asked.append(1)
            await asyncio.Event().wait()

        silent_route = Route(EnvelopeRequest, say_nothing)
        async with world() as it, serving(*controller()) as active, serving(silent_route) as silent:
            it.channels[0].look_elsewhere()  # nobody was asked yet
            it.lead(silent, active)
            waiting = asyncio.create_task(forward(it.plane))
            await wait_until(lambda: asked)
            it.fail_over()
            it.channels[0].look_elsewhere()
            assert await waiting == created()

    run(scenario)


@pytest.mark.parametrize(
    ("answered", "raised"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION),  # the client negotiates again
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR),  # ours, not the client's
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR),  # and nothing in it
        (9999, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_envelope_that_is_refused(answered, raised):
    async def scenario():
        count = []
        async with world() as it, serving(answering(answered, count)) as server:
            it.lead(server)
            with pytest.raises(ApiError) as told:
                await forward(it.plane)
            assert told.value.code is raised
            assert len(count) == 1

    run(scenario)


def test_an_answer_that_is_none():
    async def scenario():
        def garbage(*_):
            return EnvelopeResponse(response_data=b"\0\0\0\0garbage", error_code=0)

        async with world() as it, serving(Route(EnvelopeRequest, garbage)) as server:
            it.lead(server)
            with pytest.raises(ApiError) as told:
                await forward(it.plane)
            assert told.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(scenario)


def test_a_client_that_went_away_does_not_take_the_connection_along():
    async def scenario():
        may_answer = asyncio.Event()
        asked = []

        async def create(*_):
            asked.append(1)
            await may_answer.wait()
            return created()

        async with world() as it, serving(*controller(create)) as server:
            it.lead(server)
            gone = asyncio.create_task(forward(it.plane))
            other = asyncio.create_task(forward(it.plane))
            await wait_until(lambda: asked)
            gone.cancel()
            may_answer.set()
            assert await other == created()
            assert server.counters.connections_accepted == 1

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "tried_ms"),
    [
        (creation(timeout_ms=5000), 5000),
        (creation(timeout_ms=0), 1000),
        (creation(timeout_ms=-1), 1000),
        (ElectLeadersRequest(topic_partitions=None, timeout_ms=2**31 - 1), 60_000),
        (DescribeTopicPartitionsRequest(topics=[]), 60_000),  # says nothing of time
    ],
)
def test_how_long_it_is_tried(request_, tried_ms):
    assert patience_ms(request_) == tried_ms


# What a controller serves


def test_versions_are_those_of_whoever_leads():
    async def scenario():
        old = Route(AlterPartitionRequest, lambda *_: None, versions=range(2, 3))
        new = Route(AlterPartitionRequest, lambda *_: None)
        async with world() as it, serving(old) as first, serving(new) as second:
            assert it.plane.controller_versions is None
            it.lead(first, second)
            await it.channels[0].versions()
            assert it.plane.controller_versions[AlterPartitionRequest.__key__] == range(2, 3)
            asked = first.counters.requests
            await it.channels[0].versions()
            assert first.counters.requests == asked  # it is known
            it.fail_over()
            assert it.plane.controller_versions is None
            watching = asyncio.create_task(it.plane.run())
            await wait_until(lambda: it.plane.controller_versions is not None)
            assert it.plane.controller_versions[AlterPartitionRequest.__key__] == range(2, 4)
            watching.cancel()

    run(scenario)


def test_what_a_lost_controller_served_is_not_known_any_more():
    async def scenario():
        async with world() as it:
            async with serving() as server:
                it.lead(server)
                await it.channels[0].versions()
            with pytest.raises(ConnectionLost):
                await it.channels[0].ask_once(beat(), timeout_ms=100)
            assert it.plane.controller_versions is None

    run(scenario)


# Proposals


def isr(*members, leader_epoch=3, partition_epoch=5, epochs=()):
    return Proposal(members, leader_epoch, partition_epoch, dict(epochs))


def agreeing(seen, **result):
    """A controller that agrees to every proposal, but for the changes."""
    data = AlterPartitionResponse.TopicData

    def agree(_context, header, request):
        seen.append((header.request_api_version, request))
        topics = [
            data(
                topic_id=topic.topic_id,
                partitions=[
                    data.PartitionData(
                        **{
                            "partition_index": one.partition_index,
                            "error_code": 0,
                            "leader_id": ME,
                            "leader_epoch": one.leader_epoch,
                            "isr": [ME, 8],
                            "partition_epoch": one.partition_epoch + 1,
                            **result,
                        }
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics)

    return agree


def members(request):
    """What was asked for: by topic and partition the members with their epochs."""
    return {
        (topic.topic_id, one.partition_index): {
            member.broker_id: member.broker_epoch for member in one.new_isr_with_epochs
        }
        for topic in request.topics
        for one in topic.partitions
    }


def test_a_proposal_names_the_incarnations_that_are_in_sync():
    async def scenario():
        seen = []
        async with world() as it, serving(Route(AlterPartitionRequest, agreeing(seen))) as server:
            it.lead(server)
            first = isr(ME, 8, epochs={8: 80})
            answers = await it.plane.propose([(KEY, first), (ANOTHER, isr(ME, 9))])
        ((version, request),) = seen
        assert (version, request.broker_id, request.broker_epoch) == (3, ME, EPOCH)
        assert members(request) == {
            (KEY.topic_id, 0): {ME: EPOCH, 8: 80},
            (ANOTHER.topic_id, 3): {ME: EPOCH, 9: -1},
        }
        agreed = IsrAnswer(ErrorCode.NONE, (ME, 8), leader_epoch=3, partition_epoch=6)
        assert answers == {KEY: agreed, ANOTHER: agreed}

    run(scenario)


def test_a_proposal_is_repeated_as_it_was_made_but_for_our_own_epoch():
    async def scenario():
        seen = []
        proposal = isr(ME, 8, epochs={8: 80})
        async with world() as it, serving(Route(AlterPartitionRequest, agreeing(seen))) as server:
            assert await it.plane.propose([(KEY, proposal)]) is ErrorCode.NOT_CONTROLLER  # nobody leads
            it.broker_epoch = 71
            it.lead(server)
            await it.plane.propose([(KEY, proposal)])
            await it.plane.propose([(KEY, isr(ME, 8, epochs={8: 81}))])
        assert [members(request)[KEY.topic_id, 0] for _, request in seen] == [
            {ME: 71, 8: 80},
            {ME: 71, 8: 81},
        ]

    run(scenario)


def test_an_older_controller_gets_a_proposal_that_it_can_read():
    async def scenario():
        seen = []
        route = Route(AlterPartitionRequest, agreeing(seen), versions=range(2, 3))
        async with world() as it, serving(route) as server:
            it.lead(server)
            answers = await it.plane.propose([(KEY, isr(ME, 8))])
        ((version, request),) = seen
        assert (version, request.topics[0].partitions[0].new_isr) == (2, [ME, 8])
        assert answers[KEY].error is ErrorCode.NONE

    run(scenario)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
        (9999, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_proposal_that_is_refused(code, error):
    async def scenario():
        route = Route(AlterPartitionRequest, agreeing([], error_code=code, leader_recovery_state=1))
        async with world() as it, serving(route) as server:
            it.lead(server)
            answer = (await it.plane.propose([(KEY, isr(ME))]))[KEY]
        assert (answer.error, answer.is_recovering) == (error, True)

    run(scenario)


def test_what_was_not_asked_for_is_not_answered():
    async def scenario():
        route = Route(AlterPartitionRequest, agreeing([], partition_index=99))
        async with world() as it, serving(route) as server:
            it.lead(server)
            assert await it.plane.propose([(KEY, isr(ME))]) == {}

    run(scenario)


def test_all_proposals_fail_together():
    async def scenario():
        def stale(*_):
            return AlterPartitionResponse(
                throttle_time_ms=0, error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[]
            )

        async with world() as it:
            async with serving(Route(AlterPartitionRequest, stale)) as server:
                it.lead(server)
                assert await it.plane.propose([(KEY, isr(ME))]) is ErrorCode.STALE_BROKER_EPOCH

            def hang_up(*_):
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "it ends the connection")

            async with serving(Route(AlterPartitionRequest, hang_up)) as server:
                it.lead(server)
                assert await it.plane.propose([(KEY, isr(ME))]) is ErrorCode.NETWORK_EXCEPTION

    run(scenario)


# Producer ids


def test_producer_ids_come_in_blocks():
    async def scenario():
        codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH]

        def allocate(_context, _header, request):
            assert (request.broker_id, request.broker_epoch) == (ME, EPOCH)
            return AllocateProducerIdsResponse(
                throttle_time_ms=0, error_code=codes.pop(0), producer_id_start=3000, producer_id_len=1000
            )

        async with world() as it, serving(Route(AllocateProducerIdsRequest, allocate)) as server:
            it.lead(server)
            assert await it.plane.allocate_producer_ids() == range(3000, 4000)
            with pytest.raises(ApiError) as told:
                await it.plane.allocate_producer_ids()
            assert told.value.code is ErrorCode.STALE_BROKER_EPOCH

    run(scenario)


# With a controller of ours


def registration(cluster_id):
    return BrokerRegistrationRequest(
        broker_id=ME,
        cluster_id=cluster_id,
        incarnation_id=incarnation(ME),
        listeners=[
            BrokerRegistrationRequest.Listener(name="PLAINTEXT", host=HOST, port=1, security_protocol=0)
        ],
        features=[
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[directory(ME)],
    )


def test_a_real_controller_takes_what_is_sent(tmp_path):
    async def scenario():
        node = Node(real_host("1"), await formatted(tmp_path, idle_ms=500))
        running = asyncio.create_task(node.run())
        await node.is_listening.wait()
        async with world() as it:
            channel, plane = it.channels[0], it.plane
            it.find = lambda: node.replica.quorum.leader_endpoint
            registered = await channel.ask(registration(node.replica.cluster_id), timeout_ms=20_000)
            it.broker_epoch = registered.broker_epoch
            heartbeat = BrokerHeartbeatRequest(
                broker_id=ME,
                broker_epoch=it.broker_epoch,
                current_metadata_offset=node.state.position.offset,
                want_fence=False,
                want_shut_down=False,
            )
            assert not (await channel.ask(heartbeat, timeout_ms=20_000)).is_fenced

            response = await plane.forward(creation(), VERSION, "User:ann", "c", client_host="::1")
            assert response.topics[0].error_code == ErrorCode.NONE
            again = await plane.forward(creation(), VERSION, "User:ann", "c")
            assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

            first, second = await plane.allocate_producer_ids(), await plane.allocate_producer_ids()
            assert (len(first), second.start) == (1000, first.stop)

            topic = node.state.image.topics.by_name["orders"]
            state = node.state.image.partition(topic.id, 0)
            key = TopicPartition("orders", topic.id, 0)
            answers = await plane.propose([(key, Proposal((ME,), state.leader_epoch, state.partition_epoch))])
            assert answers[key].error is ErrorCode.NONE
            assert answers[key].isr == (ME,)
            await until(lambda: node.state.image.next_producer_id == second.stop)
        node.stop()
        await running

    run(scenario)
