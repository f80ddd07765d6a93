"""Topics that get more partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from controller_cluster import Cluster, directory, topic_id
from quorate.controller.decision import Decision
from quorate.controller.partitions_of_topics import decide_create_partitions
from quorate.metadata.partitions import Partition
from quorate.metadata.records import PartitionRecord
from quorate.protocol.api.topics import CreatePartitionsRequest, CreatePartitionsResponse
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode

Topic = CreatePartitionsRequest.Topic


def more(count: int, assignments: Sequence[Sequence[int]] | None = None, name: str = "a") -> Topic:
    given = None
    if assignments is not None:
        given = [Topic.Assignment(broker_ids=list(replicas)) for replicas in assignments]
    return Topic(name=name, count=count, assignments=given)


def ask(cluster: Cluster, *topics: Topic, validate_only: bool = False, api_version: int = 3) -> Decision:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=100, validate_only=validate_only)
    return cluster.decide(decide_create_partitions, request, api_version=api_version)


def grow(cluster: Cluster, *topics: Topic, **how: Any) -> list[ErrorCode]:
    reply = ask(cluster, *topics, **how).reply
    assert isinstance(reply, CreatePartitionsResponse)
    encode(reply, 3)
    for one in reply.results:
        assert (one.error_message is None) == (one.error_code == ErrorCode.NONE)
    return [ErrorCode(one.error_code) for one in reply.results]


def refused(cluster: Cluster, topic: Topic) -> ErrorCode:
    """What it is refused with; nothing must come of it."""
    before = cluster.next_offset
    (code,) = grow(cluster, topic)
    assert cluster.next_offset == before
    return code


def partitions(cluster: Cluster, number: int = 1) -> list[Partition]:
    return [one for _, one in cluster.image.partitions_of(topic_id(number))]


@pytest.fixture
def cluster() -> Cluster:
    """Topic a with two partitions of two replicas, on three brokers."""
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2], [2, 3]], "a")
    return cluster


def test_more_partitions(cluster: Cluster) -> None:
    decision = ask(cluster, more(5))
    assert decision.is_atomic
    assert [one.partition_id for one in decision.records if isinstance(one, PartitionRecord)] == [2, 3, 4]
    assert len(decision.records) == 3
    for one in partitions(cluster)[2:]:
        assert len(one.replicas) == 2
        assert one.isr == one.replicas
        assert one.leader == one.replicas[0]
        assert one.directories == tuple(map(directory, one.replicas))


def test_the_old_ones_stay_as_they_are(cluster: Cluster) -> None:
    before = partitions(cluster)
    grow(cluster, more(5))
    assert partitions(cluster)[:2] == before


def test_more_partitions_by_hand(cluster: Cluster) -> None:
    assert grow(cluster, more(4, [[3, 1], [2, 1]])) == [ErrorCode.NONE]
    assert [one.replicas for one in partitions(cluster)] == [(1, 2), (2, 3), (3, 1), (2, 1)]


def test_validating_writes_nothing(cluster: Cluster) -> None:
    assert grow(cluster, more(5), more(1, name="b"), validate_only=True) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert len(partitions(cluster)) == 2


def test_one_that_fails_does_not_keep_the_others_from_growing(cluster: Cluster) -> None:
    cluster.create(2, [[1]], "b")
    assert grow(cluster, more(2), more(2, name="b")) == [ErrorCode.INVALID_PARTITIONS, ErrorCode.NONE]
    assert len(partitions(cluster, 2)) == 2


def test_nothing_asked_for(cluster: Cluster) -> None:
    assert grow(cluster) == []


def test_an_unknown_topic(cluster: Cluster) -> None:
    assert refused(cluster, more(5, name="z")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("count", [2, 1, 0, -1, -(1 << 31)])
def test_not_more_than_there_are(cluster: Cluster, count: int) -> None:
    assert refused(cluster, more(count)) == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize(
    "assignments",
    [
        [],
        [[1, 2]],
        [[1, 2], [2, 3], [3, 1]],
        [[1, 2], []],
        [[1, 2], [1]],
        [[1, 2], [1, 2, 3]],
        [[1, 2], [1, 1]],
        [[1, 2], [1, 9]],
        [[1, 2], [1, -1]],
    ],
)
def test_bad_replicas_by_hand(cluster: Cluster, assignments: list[list[int]]) -> None:
    assert refused(cluster, more(4, assignments)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_replicas_by_hand_that_are_all_fenced(cluster: Cluster) -> None:
    cluster.fence(1)
    cluster.shut_down(2)
    assert refused(cluster, more(4, [[3, 1], [1, 2]])) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_replicas_by_hand_of_which_some_are_fenced(cluster: Cluster) -> None:
    cluster.fence(1)
    assert grow(cluster, more(3, [[1, 2]])) == [ErrorCode.NONE]
    added = partitions(cluster)[2]
    assert (added.replicas, added.isr, added.leader) == ((1, 2), (2,), 2)


def test_all_brokers_fenced(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    assert refused(cluster, more(3)) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_all_brokers_shutting_down(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.shut_down(broker_id)
    assert refused(cluster, more(3)) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_fenced_broker_holds_a_replica_out_of_sync(cluster: Cluster) -> None:
    cluster.fence(2)
    cluster.fence(3)
    assert grow(cluster, more(6)) == [ErrorCode.NONE]
    for one in partitions(cluster)[2:]:
        assert (one.replicas[0], one.isr, one.leader) == (1, (1,), 1)


def test_the_same_topic_twice(cluster: Cluster) -> None:
    assert grow(cluster, more(3), more(4)) == [ErrorCode.INVALID_REQUEST]
    assert len(partitions(cluster)) == 2


def test_a_topic_that_is_being_moved_has_as_many_replicas_as_it_will_have() -> None:
    cluster = Cluster([1, 2, 3, 4])
    moving = Partition(
        (3, 4, 1, 2), tuple(map(directory, (3, 4, 1, 2))), (1, 2), 1, removing=(1, 2), adding=(3, 4)
    )
    cluster.create(1, [moving], "a")
    assert grow(cluster, more(2)) == [ErrorCode.NONE]
    assert len(partitions(cluster)[1].replicas) == 2


@pytest.mark.parametrize("count", [10_003, (1 << 31) - 1])
def test_too_many_at_once_fail_as_a_whole(cluster: Cluster, count: int) -> None:
    for validate_only in (False, True):
        with pytest.raises(ApiError) as caught:
            ask(cluster, more(count), validate_only=validate_only)
        assert caught.value.code == ErrorCode.POLICY_VIOLATION


def test_too_many_in_several_topics_fail_as_a_whole(cluster: Cluster) -> None:
    cluster.create(2, [[1]], "b")
    with pytest.raises(ApiError) as caught:
        ask(cluster, more(6000), more(6000, name="b"))
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


def test_as_many_as_a_batch_can_hold(cluster: Cluster) -> None:
    request = CreatePartitionsRequest(topics=[more(10_002)], timeout_ms=100, validate_only=False)
    assert len(decide_create_partitions(cluster.situation(3), request).records) == 10_000


def test_before_there_were_directories_none_are_written() -> None:
    cluster = Cluster([1], metadata_version=16)
    cluster.create(1, [[1]], "a")
    assert grow(cluster, more(2)) == [ErrorCode.NONE]
