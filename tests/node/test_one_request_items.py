"""What one request may cost a node by the items that it names: many of them, or one of them again and again.

A connection that asks for too much is closed; any other gets its answer. In either case the node's memory
grows in proportion, and it serves others meanwhile.
"""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from costliest import Way, costliest, ways
from node.broker_processes import BrokerProcesses
from node.one_request import Peer
from node.served_requests import NODE, SETTINGS, TOPIC, prepare, serve, served
from quorate.protocol.api.admin import DescribeConfigsRequest
from quorate.protocol.api.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
)
from quorate.protocol.api.produce_fetch import FetchRequest, ListOffsetsRequest
from quorate.protocol.message import Request
from sensible import Sensible

pytestmark = pytest.mark.processes

KIB, MIB = 1 << 10, 1 << 20
EACH_BYTES = 200 * KIB  # of one request of every kind


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), combined=1, **SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def topic_id(cluster: BrokerProcesses) -> bytes:
    return prepare(cluster)


CONFIGS = DescribeConfigsRequest, 4, ("resources",)
COORDINATORS = FindCoordinatorRequest, 4, ("coordinator_keys",)
COMMITTED = OffsetFetchRequest, 8, ("groups",)
GROUPS = DescribeGroupsRequest, 0, ("groups",)
TOPICS = ListOffsetsRequest, 8, ("topics",)
PARTITIONS = ListOffsetsRequest, 8, ("topics", "partitions")
FETCHED = FetchRequest, 4, ("topics", "partitions")
STATES = ListGroupsRequest, 5, ("states_filter",)


@pytest.mark.parametrize(
    ("asked", "size_bytes", "are_distinct", "is_answered"),
    [
        # One of them again and again
        (CONFIGS, 3 * MIB, False, False),
        (CONFIGS, 200 * KIB, False, True),
        (COORDINATORS, 4 * MIB, False, False),
        (COORDINATORS, 600 * KIB, False, True),
        (COMMITTED, 4 * MIB, False, False),
        (COMMITTED, 200 * KIB, False, True),
        (GROUPS, 4 * MIB, False, False),
        (GROUPS, 600 * KIB, False, True),
        (TOPICS, 4 * MIB, False, False),
        (TOPICS, 200 * KIB, False, True),
        (PARTITIONS, 3 * MIB, False, True),
        # Many
        (CONFIGS, 600 * KIB, True, True),
        (COORDINATORS, 600 * KIB, True, True),
        (COMMITTED, 200 * KIB, True, True),
        (GROUPS, 600 * KIB, True, True),
        (PARTITIONS, 3 * MIB, True, True),
        (FETCHED, 3_000_000, True, True),
        (STATES, 3 * MIB, True, True),
    ],
)
def test_many_items_cost_what_they_come_to(
    cluster: BrokerProcesses,
    topic_id: bytes,
    asked: tuple[type[Request], int, tuple[str, ...]],
    size_bytes: int,
    are_distinct: bool,
    is_answered: bool,
    record_property: Any,
) -> None:
    cls, version, items = asked
    words = Sensible(TOPIC, topic_id, are_distinct=are_distinct)
    found = serve(cluster, cls, version, Way(items, items), size_bytes, words)
    record_property("bystander_waited_ms", found.waited_ms)
    assert (found.answer_bytes is not None) == is_answered


@pytest.mark.parametrize("listener", ["of brokers", "of controllers"])
def test_the_costliest_request_of_every_kind_costs_what_it_comes_to(
    cluster: BrokerProcesses, topic_id: bytes, listener: str, record_property: Any
) -> None:
    port = cluster.port(NODE) if listener == "of controllers" else None
    worst_ms, worst = 0.0, ""
    for cls, versions in served(cluster, port).items():
        for way in ways(cls, versions[-1]):
            for are_distinct in (False, True):
                words = Sensible(TOPIC, topic_id, are_distinct=are_distinct)
                found = serve(cluster, cls, versions[-1], way, EACH_BYTES, words, port)
                if found.waited_ms > worst_ms:
                    worst_ms, worst = found.waited_ms, f"{cls.__name__} {way}"
    record_property("bystander_waited_ms", worst_ms)
    record_property("figure", f"the longest wait beside the costliest request {listener}: {worst}")


def test_a_node_ends_in_order_while_it_serves_such_a_request(
    cluster: BrokerProcesses, topic_id: bytes
) -> None:
    cls, version, items = COORDINATORS
    words = Sensible(TOPIC, topic_id, are_distinct=True)
    raw = costliest(cls, version, Way(items, items), MIB, words)
    with Peer(cluster) as peer:
        peer.say_bytes(len(raw).to_bytes(4, "big") + raw)
        cluster.signal(NODE, signal.SIGTERM)
        assert cluster.terminate(NODE) == 0
