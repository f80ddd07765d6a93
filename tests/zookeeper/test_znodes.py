"""What stands in znodes: as Apache Kafka writes it, and whatever else may be found there."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.metadata.brokers import Listener
from quorate.protocol.types import Uuid
from quorate.zookeeper import znodes
from quorate.zookeeper.errors import MalformedZnode
from quorate.zookeeper.registration_json import Member
from quorate.zookeeper.znodes import (
    ControllerNode,
    PartitionAssignment,
    PartitionState,
    ProducerIdBlock,
    TopicNode,
)

ID = Uuid(bytes(range(16)))
BROKERS = st.integers(0, 2**31 - 1)
REPLICAS = st.lists(BROKERS, min_size=1, max_size=5, unique=True)


# Written


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (znodes.cluster_id("abc"), '{"version":"1","id":"abc"}'),
        (
            ControllerNode(1, 77).encode(),
            '{"version":2,"brokerid":1,"timestamp":"77","kraftControllerEpoch":-1}',
        ),
        (
            TopicNode(ID, {0: PartitionAssignment((1, 2, 3))}).encode(),
            f'{{"version":3,"topic_id":"{ID}","partitions":{{"0":[1,2,3]}},'
            '"adding_replicas":{},"removing_replicas":{}}',
        ),
        (
            TopicNode(ID, {0: PartitionAssignment((4, 1), (4,), (1,))}).encode(),
            f'{{"version":3,"topic_id":"{ID}","partitions":{{"0":[4,1]}},'
            '"adding_replicas":{"0":[4]},"removing_replicas":{"0":[1]}}',
        ),
        (
            PartitionState(1, 4, (1, 2), 7).encode(),
            '{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":7,"isr":[1,2]}',
        ),
        (
            PartitionState(1, 4, (1,), 7, is_recovering=True).encode(),
            '{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":7,"isr":[1],'
            '"leader_recovery_state":1}',
        ),
        (znodes.config({"k": "v"}), '{"version":1,"config":{"k":"v"}}'),
        (znodes.config_change("topics/t"), '{"version":2,"entity_path":"topics/t"}'),
        (
            ProducerIdBlock(1, 0, 999).encode(),
            '{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
        ),
        (
            znodes.feature({"f": 3}),
            '{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}',
        ),
        (
            znodes.reassignment({("t", 0): (4, 5)}),
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[4,5]}]}',
        ),
    ],
)
def test_nodes_are_written_as_kafka_writes_them(written, expected):
    assert written.decode() == expected


def test_a_registration_is_written_as_kafka_writes_it():
    member = Member(
        1,
        (Listener("INSIDE", "a", 1, 1), Listener("OUTSIDE", "::1", 2, 0)),
        rack="r",
        features={"f": (1, 3)},
        timestamp_ms=5,
    )
    assert json.loads(member.encode()) == {
        "version": 5,
        "host": "::1",
        "port": 2,
        "jmx_port": -1,
        "timestamp": "5",
        "endpoints": ["INSIDE://a:1", "OUTSIDE://[::1]:2"],
        "listener_security_protocol_map": {"INSIDE": "SSL", "OUTSIDE": "PLAINTEXT"},
        "rack": "r",
        "features": {"f": {"min_version": 1, "max_version": 3}},
    }
    assert Member.read("/brokers/ids/1", member.encode()) == member


# Read


@given(st.dictionaries(st.integers(0, 10_000), REPLICAS, min_size=1, max_size=5))
def test_topics_come_back(partitions):
    node = TopicNode(
        ID, {number: PartitionAssignment(tuple(some)) for number, some in sorted(partitions.items())}
    )
    assert TopicNode.read("/brokers/topics/t", node.encode()) == node


@given(BROKERS, BROKERS, REPLICAS, BROKERS, st.booleans(), BROKERS)
def test_states_come_back(leader, leader_epoch, isr, controller_epoch, is_recovering, version):
    state = PartitionState(leader, leader_epoch, tuple(isr), controller_epoch, is_recovering, version)
    assert PartitionState.read("/s", state.encode(), version) == state
    assert json.loads(state.encode())["isr"] == isr


def test_what_older_releases_wrote_is_read():
    first = TopicNode.read("/t", b'{"version":1,"partitions":{"1":[2],"0":[1]}}')
    assert first == TopicNode(None, {0: PartitionAssignment((1,)), 1: PartitionAssignment((2,))})
    assert ControllerNode.read("/c", b'{"version":1,"brokerid":3,"timestamp":"9"}') == ControllerNode(3, 9)
    assert (
        znodes.entity_path_in("/n", b'{"version":1,"entity_type":"clients","entity_name":"c"}') == "clients/c"
    )
    plain = Member.read("/brokers/ids/7", b'{"version":1,"host":"h","port":9092,"jmx_port":-1}')
    assert plain.listeners == (Listener("PLAINTEXT", "h", 9092),)
    third = b'{"version":3,"host":"h","port":1,"endpoints":["SSL://h:1"],"rack":"r","timestamp":"1"}'
    assert Member.read("/brokers/ids/7", third).listeners == (Listener("SSL", "h", 1, 1),)


def test_keys_from_the_future_are_ignored():
    data = b'{"version":9,"leader":1,"leader_epoch":2,"isr":[1],"controller_epoch":3,"more":{"x":[]}}'
    assert PartitionState.read("/s", data, 4) == PartitionState(1, 2, (1,), 3, partition_epoch=4)


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"{", b"\xff", b"{}", b'{"version":0}', b'{"version":5}']
)
def test_nonsense_is_called_by_its_path(data):
    for read in (
        lambda: Member.read("/brokers/ids/7", data),
        lambda: TopicNode.read("/brokers/ids/7", data),
        lambda: PartitionState.read("/brokers/ids/7", data, 0),
        lambda: ControllerNode.read("/brokers/ids/7", data),
        lambda: ProducerIdBlock.read("/brokers/ids/7", data),
        lambda: znodes.entity_path_in("/brokers/ids/7", data),
        lambda: znodes.cluster_id_in("/brokers/ids/7", data),
        lambda: znodes.controller_epoch_in("/brokers/ids/7", data),
    ):
        with pytest.raises(MalformedZnode, match="/brokers/ids/7 is malformed"):
            read()


@pytest.mark.parametrize(
    "data",
    [
        b'{"partitions":{"0":[]}}',
        b'{"partitions":{"0":[1,1]}}',
        b'{"partitions":{"0":[-1]}}',
        b'{"partitions":{"x":[1]}}',
        b'{"partitions":{"0":["1"]}}',
        b'{"partitions":{"0":[true]}}',
        b'{"topic_id":7,"partitions":{}}',
        b'{"topic_id":"?","partitions":{}}',
    ],
)
def test_topics_that_make_no_sense(data):
    with pytest.raises(MalformedZnode):
        TopicNode.read("/t", data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    for read in (
        lambda: Member.read("/brokers/ids/7", data),
        lambda: TopicNode.read("/t", data),
        lambda: PartitionState.read("/s", data, 0),
        lambda: znodes.config_in("/c", data),
        lambda: znodes.reassignments_in("/r", data),
        lambda: znodes.partitions_in("/r", data),
    ):
        with contextlib.suppress(MalformedZnode):
            read()


# Reassignments


def test_a_move_keeps_both_sides_until_it_is_over():
    before = PartitionAssignment((1, 2, 3))
    moving = before.moving_to((4, 2))
    assert moving == PartitionAssignment((4, 2, 1, 3), (4,), (1, 3))
    assert moving.target == (4, 2)
    assert set(moving.original) == {1, 2, 3}
    elsewhere = moving.moving_to((5, 2))
    assert elsewhere.adding == (5,)
    assert set(elsewhere.removing) == {1, 3}
    assert 4 not in elsewhere.replicas


@given(REPLICAS, REPLICAS, REPLICAS)
def test_moves_obey_their_laws(original, first, second):
    moving = PartitionAssignment(tuple(original)).moving_to(first).moving_to(second)
    assert moving.target == tuple(second)
    assert set(moving.original) == set(original)
    assert set(moving.replicas) == set(original) | set(second)
    assert len(set(moving.replicas)) == len(moving.replicas)
