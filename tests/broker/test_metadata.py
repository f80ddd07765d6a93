"""What clients are told of brokers, topics and partitions, in every version."""

import asyncio
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.test_listeners import register
from controller_cluster import CLUSTER_ID, Cluster, directory, topic_id
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.handlers import partition_rows
from quorate.broker.handlers.metadata import Metadata
from quorate.broker.handlers.own_view import OwnView
from quorate.broker.handlers.topic_creation import NAMES_MAX, TopicCreation
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.broker.settings import BrokerSettings
from quorate.metadata.partitions import LOST, UNASSIGNED, Partition
from quorate.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from quorate.net.routes import RequestContext
from quorate.protocol.api.admin import DescribeClusterRequest
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.frame import decode_request, decode_response, encode_request, encode_response_parts
from quorate.protocol.types import ZERO_UUID

ANN = RequestContext("PLAINTEXT", "10.1.1.1", 4711, "her client", "User:ann")
VERSIONS = MetadataRequest.__versions__
NOT_ASKED = -0x80000000


class Forwarder:
    """A controller that creates whatever it is asked for, when the test says so."""

    def __init__(self):
        self.controller_versions = None
        self.asked = []
        self.outcome = ErrorCode.NONE
        self.failure = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def forward(self, request, version, principal, client_id, client_host=""):
        self.asked.append((request, version, principal, client_id, client_host))
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        result = CreateTopicsResponse.CreatableTopicResult
        return CreateTopicsResponse(
            topics=[
                result(name=one.name, error_code=self.outcome, error_message="because")
                for one in request.topics
            ]
        )


class Gated(Broker):
    """A broker with a list of what is forbidden: operation, kind, name."""

    __slots__ = ("forbidden",)

    def authorize(self, _context, operation, kind, name):
        return (operation, kind, name) not in self.forbidden


class Asked:
    """A broker of a cluster, and a client that asks it: everything goes over the wire's bytes."""

    def __init__(self, cluster, forwarder=None, own_view=None, **changes):
        self.cluster = cluster
        self.own_view = own_view or OwnView(lambda: cluster.image)
        self.forwarder = forwarder
        self.broker = Gated(
            settings=BrokerSettings(broker_id=1, cluster_id=CLUSTER_ID, **changes),
            configs=DynamicConfig(1),
            replicas=None,
            proposals=None,
            control_plane=None,
            random=Random(1),
            now_ms=lambda: 0.0,
            wall_ms=lambda: 0,
            current_image=lambda: cluster.image,
            broker_epoch=lambda: 1,
        )
        self.broker.forbidden = set()
        self.creation = TopicCreation(self.broker.settings, forwarder)
        self.handlers = {
            route.request: route.handler
            for route in Metadata(self.broker, self.creation, self.own_view).routes()
        }

    def ask(self, request, version, context=ANN):
        header, sent = decode_request(encode_request(request, version, 5, context.client_id)[4:])
        response = self.handlers[type(request)](context, header, sent)
        return self.heard(request, version, response)

    def heard(self, request, version, response):
        frame = b"".join(map(bytes, encode_response_parts(response, version, 5)))
        return decode_response(request.__key__, version, frame, 4)[1]

    async def wait_for(self, request, version, context=ANN):
        """The answer to a request of which not everything is done at once."""
        header, sent = decode_request(encode_request(request, version, 5, context.client_id)[4:])
        return await self.handlers[type(request)](context, header, sent)

    def metadata(self, *names, version=13, listener="PLAINTEXT", **about):
        topics = [MetadataRequest.Topic(name=name) for name in names]
        context = RequestContext(listener, ANN.client_host, 1, ANN.client_id, ANN.principal)
        return self.ask(MetadataRequest(topics=topics, **about), version, context)

    def everything(self, version=13):
        return self.ask(MetadataRequest(topics=[] if version == 0 else None), version)


def topic_request(name=None, topic=ZERO_UUID):
    return MetadataRequest.Topic(name=name, topic_id=topic)


@pytest.fixture
def cluster():
    cluster = Cluster()
    register(cluster, 1, [("PLAINTEXT", "one", 9092), ("INTERNAL", "10.0.0.1", 9093)])
    register(cluster, 2, [("PLAINTEXT", "two", 9092), ("INTERNAL", "10.0.0.2", 9093)])
    register(cluster, 3, [("PLAINTEXT", "three", 9092)], fenced=True)
    cluster.create(1, [[1, 2], [2, 3]], name="orders")
    cluster.create(2, [[2]], name="__consumer_offsets")
    return cluster


@pytest.fixture
def asked(cluster):
    return Asked(cluster, auto_create_topics_enable=False)


def errors(response):
    return {one.name: ErrorCode(one.error_code).name for one in response.topics}


# Brokers


def test_brokers_are_at_the_addresses_of_the_clients_listener(asked):
    def seen(**about):
        return [(one.node_id, one.host, one.port) for one in asked.metadata(**about).brokers]

    assert seen() == [(1, "one", 9092), (2, "two", 9092)]
    assert seen(listener="INTERNAL") == [(1, "10.0.0.1", 9093), (2, "10.0.0.2", 9093)]
    assert seen(listener="ELSE") == []


def test_a_broker_that_knows_of_nobody_alive_names_itself(cluster, asked):
    """As one that has been let go, and is asked once more: a client must not be left without any broker."""
    for one, host in ((1, "one"), (2, "two")):
        register(cluster, one, [("PLAINTEXT", host, 9092)], fenced=True)
    answer = asked.metadata()
    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [(1, "one", 9092)]
    assert answer.controller_id == -1


def test_any_broker_that_is_alive_may_be_taken_for_the_controller(asked):
    assert {asked.metadata().controller_id for _ in range(50)} == {1, 2}
    assert asked.metadata(listener="ELSE").controller_id == -1


def test_where_a_broker_is_elected_clients_are_told_of_that_one(asked):
    asked.broker.controller_id = lambda: 2
    assert {asked.metadata().controller_id for _ in range(10)} == {2}
    asked.broker.controller_id = lambda: 3  # which is not alive, as far as this broker knows
    assert asked.metadata().controller_id == -1


def test_the_cluster_has_its_id(asked):
    assert asked.metadata(version=2).cluster_id == CLUSTER_ID


# Topics


def test_all_or_none(asked):
    everything = {"orders", "__consumer_offsets"}
    for version in VERSIONS:
        assert set(errors(asked.everything(version))) == everything
        if version:
            assert asked.metadata(version=version).topics == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_in_every_version(asked, version):
    (topic,) = asked.metadata("orders", version=version).topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "orders", False)
    assert topic.topic_id == (topic_id(1) if version >= 10 else ZERO_UUID)
    first, second = topic.partitions
    assert (first.error_code, first.partition_index, first.leader_id) == (0, 0, 1)
    assert first.leader_epoch == (0 if version >= 7 else -1)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1, 2], [1, 2], [])
    if version == 0:
        assert second.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        assert (second.replica_nodes, second.isr_nodes) == ([2], [2])
    else:
        assert second.error_code == 0
        assert (second.replica_nodes, second.isr_nodes) == ([2, 3], [2, 3])
        assert second.offline_replicas == ([3] if version >= 5 else [])


def test_each_topic_is_told_once_and_internal_ones_are_marked(asked):
    topics = asked.metadata("orders", "__consumer_offsets", "orders").topics
    assert [(one.name, one.is_internal) for one in topics] == [
        ("orders", False),
        ("__consumer_offsets", True),
    ]


def test_topics_that_do_not_exist(asked):
    assert errors(asked.metadata("missing", "bad name", "..", "x" * 250)) == {
        "missing": "UNKNOWN_TOPIC_OR_PARTITION",
        "bad name": "INVALID_TOPIC_EXCEPTION",
        "..": "INVALID_TOPIC_EXCEPTION",
        "x" * 250: "INVALID_TOPIC_EXCEPTION",
    }


def test_a_topic_without_partitions_is_not_there_yet(asked):
    asked.cluster.apply(TopicRecord(name="empty", topic_id=topic_id(9)))
    assert errors(asked.metadata("empty")) == {"empty": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert "empty" not in errors(asked.everything())


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_their_ids(asked, version):
    request = MetadataRequest(topics=[topic_request(None, topic_id(1)), topic_request(None, topic_id(77))])
    found, unknown = asked.ask(request, version).topics
    assert (found.name, len(found.partitions)) == ("orders", 2)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        topic_id(77),
    )


def test_a_topic_with_neither_name_nor_id(asked):
    (topic,) = asked.ask(MetadataRequest(topics=[topic_request()]), 12).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("topic", [topic_request(None), topic_request("orders", topic_id(1))])
def test_ids_cannot_be_asked_for_before_version_12(asked, version, topic):
    response = asked.ask(MetadataRequest(topics=[topic]), version)
    assert [one.error_code for one in response.topics] == [ErrorCode.INVALID_REQUEST]
    assert response.topics[0].partitions == response.brokers == []


# Leaders and replicas


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_leader(asked, version):
    asked.cluster.create(
        5, [Partition((1, 2), (directory(1), directory(2)), (1,), -1, leader_epoch=4)], "led"
    )
    (partition,) = asked.metadata("led", version=version).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.leader_epoch == (4 if version >= 7 else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_that_has_not_the_listener_of_the_client(asked, version):
    register(asked.cluster, 4, [("INTERNAL", "10.0.0.4", 9093)])
    asked.cluster.create(5, [[4, 1]], name="led")
    (partition,) = asked.metadata("led", version=version).topics[0].partitions
    code = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.error_code, partition.leader_id) == (code, -1)
    (partition,) = asked.metadata("led", version=version, listener="INTERNAL").topics[0].partitions
    assert partition.leader_id == 4


def test_replicas_that_are_offline(asked):
    register(asked.cluster, 4, [("INTERNAL", "10.0.0.4", 9093)])
    directories = directory(1), directory(2, 9), directory(3), directory(4), UNASSIGNED
    state = Partition((1, 2, 3, 4, 99), directories, (1,), 1)
    asked.cluster.create(5, [state], name="led")
    (partition,) = asked.metadata("led").topics[0].partitions
    assert partition.offline_replicas == [2, 3, 4, 99]  # a directory, fenced, no listener, nobody


# A few, or many


@st.composite
def clusters(draw):
    """A cluster in which much is wrong."""
    random = Random(draw(st.integers(0, 2**32)))
    cluster = Cluster()
    for broker_id in range(1, 7):
        if random.random() < 0.85:
            names = [name for name in ("PLAINTEXT", "INTERNAL") if random.random() < 0.85]
            register(
                cluster,
                broker_id,
                [(name, f"{name}-{broker_id}", 9092) for name in names],
                fenced=random.random() < 0.2,
                directories=random.choice([1, 1, 1, 2]),
            )
    for number in range(1, random.choice([2, 4, 9])):
        key = topic_id(number)
        cluster.apply(TopicRecord(name=f"topic-{number}", topic_id=key))
        widths = random.choice([[1], [3], [2, 3], [1, 5]])
        for partition_id in range(random.choice([0, 1, 3, 20])):
            if random.random() < 0.05:
                continue
            replicas = random.sample(range(1, 8), random.choice(widths))
            isr = random.sample(replicas, random.randint(0, len(replicas)))
            elr = [one for one in replicas if one not in isr and random.random() < 0.5]
            cluster.apply(
                PartitionRecord(
                    partition_id=partition_id,
                    topic_id=key,
                    replicas=replicas,
                    isr=isr,
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=random.choice([-1, *isr]),
                    leader_epoch=random.randint(0, 9),
                    directories=[
                        random.choice([directory(one)] * 5 + [directory(one, 1), LOST, UNASSIGNED])
                        for one in replicas
                    ],
                    eligible_leader_replicas=elr,
                    last_known_elr=random.choice([None, [], [replicas[0]]]),
                )
            )
    return cluster


@settings(max_examples=60)
@given(clusters(), st.sampled_from(VERSIONS), st.sampled_from(["PLAINTEXT", "INTERNAL"]), st.booleans())
def test_many_are_told_as_a_few_are(cluster, version, listener, is_all):
    asked = Asked(cluster, auto_create_topics_enable=False)
    context = RequestContext(listener, "", 1, "", "")
    names = [topic_request(f"topic-{number}") for number in (3, 1, 7, 2)]
    requests = [
        (MetadataRequest(topics=([] if version == 0 else None) if is_all else names), version),
        (DescribeTopicPartitionsRequest(topics=[], response_partition_limit=30), 0),
    ]
    for request, at in requests:
        answers = []
        for few in (-1, 10**9):
            asked.broker.random = Random(1)
            partition_rows.FEW, kept = few, partition_rows.FEW
            try:
                answers.append(asked.ask(request, at, context))
            finally:
                partition_rows.FEW = kept
        assert answers[0] == answers[1]


def test_a_thousand_partitions(asked):
    states = [
        Partition((1, 2, 3), (UNASSIGNED,) * 3, (1, 2, 3) if one % 2 else (2, 1), 1 + one % 2, one)
        for one in range(1000)
    ]
    asked.cluster.create(5, states, name="large")
    topics = {one.name: one for one in asked.everything().topics}
    assert len(topics) == 3
    for one, partition in enumerate(topics["large"].partitions):
        assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (
            one,
            1 + one % 2,
            one,
        )
        assert partition.isr_nodes == ([1, 2, 3] if one % 2 else [1, 2])
        assert partition.offline_replicas == [3]


# Who may


def test_topics_that_the_client_may_not_see(asked):
    asked.broker.forbidden.add((Operation.DESCRIBE, ResourceKind.TOPIC, "orders"))
    asked.broker.forbidden.add((Operation.DESCRIBE, ResourceKind.TOPIC, "missing"))
    for version in VERSIONS:
        assert set(errors(asked.everything(version))) == {"__consumer_offsets"}
        topics = asked.metadata("orders", "missing", version=version).topics
        assert [(one.error_code, one.partitions) for one in topics] == [
            (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        ] * 2  # whether it exists is not told
        assert {one.topic_id for one in topics} == {ZERO_UUID}
    (topic,) = asked.ask(MetadataRequest(topics=[topic_request(None, topic_id(1))]), 12).topics
    assert (topic.error_code, topic.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


def bits(*operations):
    return sum(1 << one for one in operations)


TOPIC_BITS = bits(3, 4, 5, 6, 7, 8, 10, 11)
CLUSTER_BITS = bits(5, 7, 8, 9, 10, 11, 12)


@pytest.mark.parametrize("version", range(8, 14))
def test_what_the_client_may_do_is_told_if_it_asks(asked, version):
    (topic,) = asked.metadata("orders", version=version).topics
    assert topic.topic_authorized_operations == NOT_ASKED
    asked.broker.forbidden.add((Operation.DELETE, ResourceKind.TOPIC, "orders"))
    (topic,) = asked.metadata("orders", version=version, include_topic_authorized_operations=True).topics
    assert topic.topic_authorized_operations == TOPIC_BITS - bits(Operation.DELETE)


def test_what_the_client_may_do_to_the_cluster(asked):
    assert asked.metadata(version=8).cluster_authorized_operations == NOT_ASKED
    asking = {"version": 10, "include_cluster_authorized_operations": True}
    assert asked.metadata(**asking).cluster_authorized_operations == CLUSTER_BITS
    asked.broker.forbidden.add((Operation.DESCRIBE, ResourceKind.CLUSTER, "kafka-cluster"))
    assert asked.metadata(**asking).cluster_authorized_operations == 0


def test_a_topic_is_told_of_once_the_broker_has_carried_out_that_it_was_created(cluster):
    """Else whoever creates it on demand and writes to it at once is sent away by its leader."""

    async def scenario():
        carried_out, coming = 4, set()
        view = OwnView(lambda: cluster.image, lambda: 5, lambda: carried_out, coming.__contains__)
        asked = Asked(cluster, own_view=view)
        assert errors(asked.metadata("orders")) == {"orders": "NONE"}, "it is older than that"
        coming.add(cluster.image.topics.by_name["orders"].id)
        request = MetadataRequest(topics=[topic_request("orders"), topic_request("absent")])
        handler = asked.handlers[MetadataRequest]
        waiting = asyncio.ensure_future(
            handler(ANN, RequestHeader(request_api_key=3, request_api_version=13, correlation_id=5), request)
        )
        await idle()
        assert not waiting.done()
        assert errors(asked.metadata("__consumer_offsets")) == {"__consumer_offsets": "NONE"}
        assert len(asked.everything().topics) == 2
        cluster.create(7, [[1]], name="absent")  # it is described as it is then
        carried_out = 5
        view.applied()
        response = asked.heard(request, 13, await waiting)
        assert errors(response) == {"orders": "NONE", "absent": "NONE"}

    asyncio.run(scenario())


# Topics on demand


def on_demand(cluster, scenario, **changes):
    """Runs a scenario with a broker that creates topics, and a controller that does what the test says."""

    async def run():
        forwarder = Forwarder()
        asked = Asked(cluster, forwarder, **changes)
        await scenario(asked, forwarder)
        await asked.creation.close()

    asyncio.run(run())


async def idle():
    for _ in range(5):
        await asyncio.sleep(0)


def names_of(forwarder):
    return [[topic.name for topic in asked[0].topics] for asked in forwarder.asked]


def test_a_topic_is_created_in_the_name_of_who_asked_for_it(cluster):
    async def scenario(asked, forwarder):
        assert errors(asked.metadata("new", "orders")) == {
            "orders": "NONE",
            "new": "UNKNOWN_TOPIC_OR_PARTITION",
        }
        await idle()
        ((request, version, *who),) = forwarder.asked
        assert who == ["User:ann", "her client", "10.1.1.1"]
        assert version == CreateTopicsRequest.__served__[-1]
        (topic,) = request.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("new", 6, 2)

    on_demand(cluster, scenario, num_partitions=6, default_replication_factor=2)


def test_what_the_file_of_the_broker_does_not_say_is_up_to_the_controller(cluster):
    async def scenario(asked, forwarder):
        asked.metadata("new")
        await idle()
        (topic,) = forwarder.asked[0][0].topics
        assert (topic.num_partitions, topic.replication_factor) == (-1, -1)

    on_demand(cluster, scenario)


def test_a_name_is_on_its_way_once(cluster):
    async def scenario(asked, forwarder):
        forwarder.may_answer.clear()
        asked.metadata("new", "other")
        for _ in range(3):
            assert errors(asked.metadata("new")) == {"new": "UNKNOWN_TOPIC_OR_PARTITION"}
        asked.metadata("third", "other")
        await idle()
        assert names_of(forwarder) == [["new", "other"], ["third"]]
        forwarder.may_answer.set()
        await idle()
        asked.metadata("new")  # the metadata has not come yet, or it was refused
        await idle()
        assert names_of(forwarder)[2:] == [["new"]]

    on_demand(cluster, scenario)


@pytest.mark.parametrize(
    "outcome", [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.TOPIC_ALREADY_EXISTS, 9999]
)
def test_a_controller_that_says_no_is_asked_again_next_time(cluster, outcome):
    async def scenario(asked, forwarder):
        forwarder.outcome = outcome
        asked.metadata("new")
        await idle()
        forwarder.failure = ApiError(ErrorCode.REQUEST_TIMED_OUT, "nobody leads")
        asked.metadata("new")
        await idle()
        asked.metadata("new")
        await idle()
        assert names_of(forwarder) == [["new"]] * 3

    on_demand(cluster, scenario)


def test_the_log_says_once_why_a_topic_cannot_be_made(cluster, caplog):
    async def scenario(asked, forwarder):
        async def lines(outcome):
            caplog.clear()
            forwarder.outcome = outcome
            for _ in range(3):
                asked.metadata("new")
                await idle()
            return [one.message for one in caplog.records if one.levelname == "WARNING"]

        refusal = "topic not created topic=new error="
        assert await lines(ErrorCode.INVALID_REPLICATION_FACTOR) == [
            f"{refusal}INVALID_REPLICATION_FACTOR reason=because"
        ]
        assert await lines(ErrorCode.POLICY_VIOLATION) == [f"{refusal}POLICY_VIOLATION reason=because"]
        assert await lines(ErrorCode.POLICY_VIOLATION) == []
        assert await lines(ErrorCode.TOPIC_ALREADY_EXISTS) == []
        assert len(await lines(ErrorCode.POLICY_VIOLATION)) == 1
        with patch("quorate.broker.handlers.topic_creation.SAID_AGAIN_S", 0):  # time passes
            assert len(await lines(ErrorCode.POLICY_VIOLATION)) == 3
        forwarder.failure = ApiError(ErrorCode.REQUEST_TIMED_OUT, "nobody leads")
        assert await lines(ErrorCode.NONE) == [
            "topics not created topics=new reason=REQUEST_TIMED_OUT: nobody leads"
        ]

    on_demand(cluster, scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_before_version_4_every_client_wants_topics_to_be_created(cluster, version):
    async def scenario(asked, forwarder):
        asked.metadata("new", version=version, allow_auto_topic_creation=version < 4)
        await idle()
        assert names_of(forwarder) == ([["new"]] if version < 4 else [])

    on_demand(cluster, scenario)


def test_a_broker_may_be_told_not_to_create_topics(cluster):
    async def scenario(asked, forwarder):
        asked.metadata("new")
        await idle()
        assert forwarder.asked == []

    on_demand(cluster, scenario, auto_create_topics_enable=False)


def test_nobody_creates_what_cannot_be_called_so_or_has_an_id(cluster):
    async def scenario(asked, forwarder):
        assert errors(asked.metadata("bad name")) == {"bad name": "INVALID_TOPIC_EXCEPTION"}
        asked.ask(MetadataRequest(topics=[topic_request(None, topic_id(77))]), 13)
        await idle()
        assert forwarder.asked == []

    on_demand(cluster, scenario)


def test_creating_takes_the_right_to_for_the_cluster_or_the_topic(cluster):
    async def scenario(asked, forwarder):
        asked.broker.forbidden.add((Operation.CREATE, ResourceKind.CLUSTER, "kafka-cluster"))
        asked.broker.forbidden.add((Operation.CREATE, ResourceKind.TOPIC, "mine"))
        assert errors(asked.metadata("mine", "yours")) == {
            "mine": "TOPIC_AUTHORIZATION_FAILED",
            "yours": "UNKNOWN_TOPIC_OR_PARTITION",
        }
        await idle()
        assert names_of(forwarder) == [["yours"]]

    on_demand(cluster, scenario)


def test_internal_topics_have_settings_of_their_own(cluster):
    async def scenario(asked, forwarder):
        asked.metadata("__transaction_state")
        await idle()
        (topic,) = forwarder.asked[0][0].topics
        configs = {one.name: one.value for one in topic.configs}
        assert (topic.num_partitions, topic.replication_factor) == (50, 3)
        assert configs["cleanup.policy"] == "compact"
        few = replace(
            asked.broker.settings,
            offsets_topic_partitions=2,
            offsets_topic_replication_factor=1,
            offsets_topic_segment_bytes=2 << 20,
        )
        small = TopicCreation(few, forwarder)
        small.begin(["__consumer_offsets"], ANN)
        await idle()
        (topic,) = forwarder.asked[1][0].topics
        assert (topic.num_partitions, topic.replication_factor) == (2, 1)
        assert {one.name: one.value for one in topic.configs}["segment.bytes"] == str(2 << 20)
        await small.close()

    on_demand(cluster, scenario)


def test_an_older_controller_is_asked_in_its_version(cluster):
    async def scenario(asked, forwarder):
        forwarder.controller_versions = {CreateTopicsRequest.__key__: range(2, 6)}
        asked.metadata("new")
        await idle()
        assert forwarder.asked[0][1] == 5

    on_demand(cluster, scenario)


def test_how_many_are_on_their_way_is_limited(cluster):
    async def scenario(asked, forwarder):
        forwarder.may_answer.clear()
        topics = [topic_request(f"new-{number}") for number in range(NAMES_MAX + 5)]
        answer = await asked.wait_for(MetadataRequest(topics=topics), 13)
        assert len(answer.topics) == NAMES_MAX + 5
        asked.metadata("one-more")
        await idle()
        assert [len(names) for names in names_of(forwarder)] == [NAMES_MAX]

    on_demand(cluster, scenario)


# DescribeTopicPartitions


def cursor(topic, partition_id):
    return DescribeTopicPartitionsRequest.Cursor(topic_name=topic, partition_index=partition_id)


def page(asked, *names, limit=2000, at=None):
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=at,
    )
    return asked.ask(request, 0)


def shown(response):
    return [
        (one.name, [partition.partition_index for partition in one.partitions]) for one in response.topics
    ]


@pytest.fixture
def paged(asked):
    asked.cluster.create(3, [[1, 2]] * 5, name="a")
    asked.cluster.create(4, [[1, 2]] * 30, name="b")
    return asked


def test_pages_follow_each_other_until_everything_is_told(paged):
    seen, at, pages = [], None, 0
    while True:
        response = page(paged, limit=7, at=at)
        pages += 1
        assert sum(len(one.partitions) for one in response.topics) <= 7
        seen += [(name, one) for name, ids in shown(response) for one in ids]
        if response.next_cursor is None:
            break
        at = cursor(response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert seen == [
        ("__consumer_offsets", 0),
        *(("a", one) for one in range(5)),
        *(("b", one) for one in range(30)),
        *(("orders", one) for one in range(2)),
    ]
    assert pages == 6


def test_topics_of_a_page_are_in_the_order_of_their_names(paged):
    response = page(paged, "orders", "b", "missing", "a", "bad name", "a", limit=40)
    assert [one.name for one in response.topics] == ["a", "b", "bad name", "missing", "orders"]
    assert errors(response)["missing"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert errors(response)["bad name"] == "INVALID_TOPIC_EXCEPTION"
    assert response.next_cursor is None


def test_where_the_next_page_begins(paged):
    for limit, expected in ((5, ("b", 0)), (7, ("b", 2)), (0, ("a", 0)), (-3, ("a", 0))):
        following = page(paged, "a", "b", limit=limit).next_cursor
        assert (following.topic_name, following.partition_index) == expected
    assert page(paged, "a", "b", limit=35).next_cursor is None


def test_a_cursor_skips_what_comes_before_it(paged):
    assert shown(page(paged, "a", "b", "orders", at=cursor("b", 28))) == [("b", [28, 29]), ("orders", [0, 1])]
    assert shown(page(paged, "b", "orders", at=cursor("b", 99))) == [("b", []), ("orders", [0, 1])]
    assert shown(page(paged, at=cursor("c", 3))) == [("orders", [0, 1])]  # deleted since


@pytest.mark.parametrize("at", [cursor("c", 0), cursor("a", -1)])
def test_a_cursor_that_points_at_nothing(paged, at):
    assert errors(page(paged, "a", "b", at=at)) == {"a": "INVALID_REQUEST", "b": "INVALID_REQUEST"}


def test_pages_hide_what_the_client_may_not_see(paged):
    paged.broker.forbidden.add((Operation.DESCRIBE, ResourceKind.TOPIC, "b"))
    assert [name for name, _ in shown(page(paged))] == ["__consumer_offsets", "a", "orders"]
    response = page(paged, "a", "b")
    assert errors(response) == {"a": "NONE", "b": "TOPIC_AUTHORIZATION_FAILED"}
    assert response.topics[1].topic_id == ZERO_UUID
    assert response.topics[0].topic_authorized_operations == TOPIC_BITS


def test_eligible_leaders_are_told(paged):
    directories = directory(1), directory(2), directory(3)
    state = Partition((1, 2, 3), directories, (1,), -1, elr=(2,), last_known_leader=3)
    paged.cluster.create(6, [state] * 20, name="elr")
    for limit in (1, 20):
        partition = page(paged, "elr", limit=limit).topics[0].partitions[-1]
        assert (partition.error_code, partition.leader_id) == (0, -1)
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([2], [3])
        assert partition.offline_replicas == [3]


def test_a_page_has_its_limit_whatever_is_asked_for(paged):
    paged.cluster.create(7, [[1]] * 2100, name="large")
    response = page(paged, "large", limit=5000)
    assert len(response.topics[0].partitions) == 2000
    assert response.next_cursor.partition_index == 2000


# DescribeCluster


@pytest.mark.parametrize("version", DescribeClusterRequest.__versions__)
def test_the_cluster_as_a_whole(asked, version):
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = asked.ask(request, version)
    assert (response.error_code, response.cluster_id) == (0, CLUSTER_ID)
    assert [(one.broker_id, one.host, one.port) for one in response.brokers] == [
        (1, "one", 9092),
        (2, "two", 9092),
    ]
    assert response.controller_id in (1, 2)
    assert response.cluster_authorized_operations == CLUSTER_BITS


def test_fenced_brokers_are_shown_to_who_asks_for_them(asked):
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    response = asked.ask(request, 2)
    assert [(one.broker_id, one.is_fenced) for one in response.brokers] == [(1, False), (2, False), (3, True)]
    assert response.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE), (3, 115)],
)
def test_controllers_are_asked_for_controllers(asked, endpoint_type, code):
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    response = asked.ask(request, 1)
    assert (response.error_code, response.brokers) == (code, [])


# What changes while an answer is made


MANY = [f"topic-{number}" for number in range(1, 601)]  # more than one slice


@pytest.fixture
def many():
    cluster = Cluster()
    register(cluster, 1, [("PLAINTEXT", "one", 9092)])
    for number, name in enumerate(MANY, 1):
        cluster.create(number, [[1]], name=name)
    return cluster


def answered_while_one_goes(cluster, request, version):
    """The answer to a request in the midst of which the first topic is deleted, and another gets its slot."""

    async def scenario():
        asked = Asked(cluster, auto_create_topics_enable=False)
        waiting = asyncio.ensure_future(asked.wait_for(request, version))
        await asyncio.sleep(0)
        assert not waiting.done()
        cluster.apply(RemoveTopicRecord(topic_id=topic_id(1)))
        cluster.create(9999, [[1], [1], [1]], name="another")
        return asked.heard(request, version, await waiting)

    return asyncio.run(scenario())


def test_a_topic_that_is_deleted_while_metadata_is_put_together_does_not_look_like_another(many):
    by_name = MetadataRequest(topics=[topic_request(name) for name in MANY])
    answer = answered_while_one_goes(many, by_name, 13)
    assert {one.name for one in answer.topics} == set(MANY)
    assert errors(answer)["topic-1"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert {len(one.partitions) for one in answer.topics if not one.error_code} == {1}


def test_one_that_was_asked_for_by_its_id_is_unknown_by_its_id(many):
    by_id = MetadataRequest(topics=[topic_request(topic=topic_id(one)) for one in range(1, 601)])
    answer = answered_while_one_goes(many, by_id, 13)
    (gone,) = (one for one in answer.topics if one.error_code)
    assert (gone.error_code, gone.name, gone.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id(1))


@pytest.mark.parametrize("names", [MANY, []], ids=["named", "all"])
def test_nor_on_a_page_of_partitions(many, names):
    page = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=one) for one in names],
        response_partition_limit=2000,
    )
    answer = answered_while_one_goes(many, page, 0)
    assert {one.name for one in answer.topics if not one.error_code} == set(MANY[1:])
    assert [one.name for one in answer.topics if one.error_code] == names[:1]
