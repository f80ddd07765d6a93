"""Deleting topics."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller_cluster import Cluster, topic_id
from quorate.controller.decision import Decision
from quorate.controller.topics import decide_delete_topics
from quorate.metadata.image import TOPIC
from quorate.metadata.records import ConfigRecord, RemoveTopicRecord
from quorate.protocol.api.topics import DeleteTopicsRequest, DeleteTopicsResponse
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID, Uuid


def ask(
    cluster: Cluster,
    *topics: str | Uuid | tuple[str | None, Uuid],
    names: Sequence[str] = (),
    api_version: int = 6,
) -> Decision:
    def state(one: str | Uuid | tuple[str | None, Uuid]) -> DeleteTopicsRequest.DeleteTopicState:
        name, given = (
            one if isinstance(one, tuple) else (one, ZERO_UUID) if isinstance(one, str) else (None, one)
        )
        return DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=given)

    request = DeleteTopicsRequest(
        topics=[state(one) for one in topics], topic_names=list(names), timeout_ms=100
    )
    return cluster.decide(decide_delete_topics, request, api_version=api_version)


def delete(
    cluster: Cluster, *topics: str | Uuid | tuple[str | None, Uuid], **how: object
) -> list[tuple[str | None, Uuid, ErrorCode]]:
    reply = ask(cluster, *topics, **how).reply  # type: ignore[arg-type]
    assert isinstance(reply, DeleteTopicsResponse)
    encode(reply, 6)
    for one in reply.responses:
        is_told = how.get("api_version", 6) != 3 and one.error_code != ErrorCode.NONE
        assert (one.error_message is not None) == is_told  # there is no place for it in version 3
    return [(one.name, one.topic_id, ErrorCode(one.error_code)) for one in reply.responses]


@pytest.fixture
def cluster() -> Cluster:
    """Topics a, b and c, with the ids 1, 2 and 3."""
    cluster = Cluster([1])
    for number, name in enumerate("abc", 1):
        cluster.create(number, [[1]] * number, name)
    return cluster


A, B, C, UNKNOWN = (topic_id(number) for number in (1, 2, 3, 9))


def test_by_name(cluster: Cluster) -> None:
    assert delete(cluster, "b") == [("b", B, ErrorCode.NONE)]
    assert list(cluster.image.topics.by_name) == ["a", "c"]


def test_by_id(cluster: Cluster) -> None:
    assert delete(cluster, B, "c") == [("b", B, ErrorCode.NONE), ("c", C, ErrorCode.NONE)]
    assert list(cluster.image.topics.by_name) == ["a"]


def test_by_name_in_an_old_version(cluster: Cluster) -> None:
    assert delete(cluster, names=["a", "c"], api_version=3) == [
        ("a", A, ErrorCode.NONE),
        ("c", C, ErrorCode.NONE),
    ]


def test_one_record_takes_everything_with_it(cluster: Cluster) -> None:
    cluster.apply(ConfigRecord(resource_type=TOPIC, resource_name="c", name="retention.ms", value="5"))
    decision = ask(cluster, "c")
    assert list(decision.records) == [RemoveTopicRecord(topic_id=C)]
    assert decision.is_atomic
    assert (TOPIC, "c") not in cluster.image.configs
    assert len(cluster.image.partitions) == 3


def test_nothing_to_delete(cluster: Cluster) -> None:
    assert delete(cluster) == []


def test_what_does_not_exist(cluster: Cluster) -> None:
    assert delete(cluster, "z", UNKNOWN, "a") == [
        ("z", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID),
        ("a", A, ErrorCode.NONE),
    ]


def test_what_is_already_deleted(cluster: Cluster) -> None:
    delete(cluster, "a")
    assert delete(cluster, "a") == [("a", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert delete(cluster, A) == [(None, A, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_neither_name_nor_id(cluster: Cluster) -> None:
    assert delete(cluster, (None, ZERO_UUID)) == [(None, ZERO_UUID, ErrorCode.INVALID_REQUEST)]


def test_both_name_and_id(cluster: Cluster) -> None:
    assert delete(cluster, ("a", A)) == [("a", A, ErrorCode.INVALID_REQUEST)]
    assert "a" in cluster.image.topics.by_name


def test_a_name_twice(cluster: Cluster) -> None:
    assert delete(cluster, "a", "b", "a") == [("a", A, ErrorCode.INVALID_REQUEST), ("b", B, ErrorCode.NONE)]
    assert list(cluster.image.topics.by_name) == ["a", "c"]


def test_a_name_twice_in_an_old_version(cluster: Cluster) -> None:
    assert delete(cluster, names=["a", "a"], api_version=3) == [("a", A, ErrorCode.INVALID_REQUEST)]


def test_an_id_twice(cluster: Cluster) -> None:
    assert delete(cluster, A, A) == [("a", A, ErrorCode.INVALID_REQUEST)]
    assert delete(cluster, UNKNOWN, UNKNOWN) == [(None, UNKNOWN, ErrorCode.INVALID_REQUEST)]
    assert "a" in cluster.image.topics.by_name


def test_a_name_and_its_id(cluster: Cluster) -> None:
    assert delete(cluster, A, "a", "b") == [("a", A, ErrorCode.INVALID_REQUEST), ("b", B, ErrorCode.NONE)]
    assert delete(cluster, "c", C) == [("c", C, ErrorCode.INVALID_REQUEST)]
    assert list(cluster.image.topics.by_name) == ["a", "c"]


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_REQUEST), (2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_can_be_turned_off(version: int, code: ErrorCode) -> None:
    cluster = Cluster([1], delete_topic_enable=False)
    cluster.create(1, [[1]], "a")
    with pytest.raises(ApiError, match=r"delete\.topic\.enable") as caught:
        ask(cluster, names=["a"], api_version=version)
    assert caught.value.code == code
    assert "a" in cluster.image.topics.by_name
