"""What a controller replicates: batches and snapshots become the image, and what cannot be is fatal."""

import pytest

from controller_cluster import Cluster, topic_id
from quorate.metadata.errors import ImageError
from quorate.metadata.log_format import encode_record
from quorate.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    NoOpRecord,
    TopicRecord,
)
from quorate.metadata.sections import encode_sections
from quorate.node.cluster_state import ClusterState
from quorate.protocol import batch as batches
from quorate.raft.effects import Leadership
from quorate.raft.positions import Position

TIME_MS = 1_700_000_000_000
FENCING = BrokerRegistrationChangeRecord(broker_id=9, broker_epoch=9, fenced=1)  # of nobody


def batch(base_offset, *records, epoch=3, timestamp_ms=TIME_MS):
    values = [encode_record(one, 0) for one in records]
    return batches.build(
        [batches.Record(base_offset + i, timestamp_ms, None, value) for i, value in enumerate(values)],
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def topic(number):
    return TopicRecord(name=f"topic-{number}", topic_id=topic_id(number))


def topics_of(state):
    return sorted(state.image.topics.by_name)


def snapshot_of(cluster, *more):
    sections = [*cluster.image.freeze().sections(), *(encode_sections([one], 30)[0] for one in more)]
    return [
        batches.build_encoded(data, count, base_offset=0, leader_epoch=1, timestamp=TIME_MS)
        for count, data in sections
    ]


def test_batches_are_applied_and_whoever_waits_is_told():
    state, told = ClusterState(), []
    state.when_applied.append(told.append)
    state.apply(batch(0, topic(1), topic(2)))
    state.apply(batch(2, NoOpRecord(), epoch=4, timestamp_ms=TIME_MS + 1))
    assert topics_of(state) == ["topic-1", "topic-2"]
    assert (state.position, told) == (Position(3, 4), [2, 3])
    assert state.last_timestamp_ms == TIME_MS + 1
    assert state.bytes_since_snapshot > 0


def test_a_snapshot_takes_the_place_of_everything():
    state, told = ClusterState(), []
    state.when_applied.append(told.append)
    state.apply(batch(0, topic(1)))
    cluster = Cluster([1, 2])
    state.load(Position(500, 7), snapshot_of(cluster))
    assert topics_of(state) == []
    assert state.image.brokers.keys() == {1, 2}
    assert {one.registration_offset for one in state.image.brokers.values()} == {499}
    assert (state.position, told, state.bytes_since_snapshot) == (Position(500, 7), [1, 500], 0)


def test_of_a_transaction_nothing_is_seen_before_its_end():
    state = ClusterState()
    state.apply(batch(0, topic(1), BeginTransactionRecord(name="t"), topic(2)))
    assert topics_of(state) == ["topic-1"]
    state.apply(batch(3, topic(3)))
    assert topics_of(state) == ["topic-1"]
    assert state.image.is_in_transaction
    state.apply(batch(4, EndTransactionRecord(), topic(4)))
    assert topics_of(state) == ["topic-1", "topic-2", "topic-3", "topic-4"]


def test_of_a_transaction_that_is_aborted_nothing_is_ever_seen():
    state = ClusterState()
    state.apply(batch(0, BeginTransactionRecord(name="t"), topic(2)))
    state.apply(batch(2, AbortTransactionRecord(reason="failover"), topic(3)))
    assert topics_of(state) == ["topic-3"]
    assert not state.image.is_in_transaction


@pytest.mark.parametrize(
    "records",
    [
        [FENCING],
        [topic(1), topic(1)],
        [EndTransactionRecord()],
        [AbortTransactionRecord(reason="")],
        [BeginTransactionRecord(name="a"), BeginTransactionRecord(name="b")],
    ],
    ids=lambda records: type(records[-1]).__name__,
)
def test_what_cannot_follow_is_fatal_in_the_log(records):
    state, told = ClusterState(), []
    state.when_applied.append(told.append)
    with pytest.raises(ImageError):
        state.apply(batch(0, *records))
    assert told == [], "nobody is told of what was not applied"


@pytest.mark.parametrize("record", [FENCING, BeginTransactionRecord(name="a"), EndTransactionRecord()])
def test_what_happened_is_fatal_in_a_snapshot(record):
    state = ClusterState()
    state.apply(batch(0, topic(1)))
    with pytest.raises(ImageError):
        state.load(Position(500, 7), snapshot_of(Cluster(), record))
    assert (topics_of(state), state.position) == (["topic-1"], Position(1, 3)), "it is what it was"


def test_who_leads_is_passed_on():
    state, told = ClusterState(), []
    state.when_led.append(told.append)
    state.lead(Leadership(4, 2))
    assert state.leadership == Leadership(4, 2)
    assert told == [Leadership(4, 2)]
