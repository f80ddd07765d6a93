"""Replicas that somebody chose by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller_cluster import Cluster, directory
from quorate.controller.assignment import check_assignment
from quorate.metadata.records import BrokerRegistrationChangeRecord
from quorate.protocol.errors import ApiError, ErrorCode


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    cluster = Cluster(range(70))
    cluster.fence(3)
    cluster.shut_down(4)
    epoch = cluster.image.brokers[5].epoch
    cluster.apply(
        BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=epoch, cordoned_log_dirs=[directory(5)])
    )
    return cluster


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([1], None),
        ([1], 1),
        ([1, 2, 6], 3),
        ([6, 1, 2], None),
        ([5, 1], None),  # cordoned: nothing is placed there, but whoever names it means it
        ([3, 4], 2),  # fenced and shutting down: they hold a replica that is not in sync
        (range(64), None),
    ],
)
def test_different_registered_brokers_can_be_replicas(
    cluster: Cluster, replicas: Sequence[int], expected: int | None
) -> None:
    check_assignment(cluster.image, replicas, expected)


@pytest.mark.parametrize(
    ("replicas", "expected", "reason"),
    [
        ([], None, "an empty replica list"),
        ([], 0, "an empty replica list"),
        ([1, 100], None, "broker 100, but no such broker is registered"),
        ([1, 2, 1], None, "broker 1 more than once"),
        ([1, -1], None, "broker -1, but"),
        ([1, 2], 3, "2 replica"),
        ([1, 2, 5], 2, "3 replica"),
        (range(65), None, "65 replicas; a partition can have 64"),
        (range(65), 65, "65 replicas; a partition can have 64"),
    ],
)
def test_anything_else_cannot(
    cluster: Cluster, replicas: Sequence[int], expected: int | None, reason: str
) -> None:
    with pytest.raises(ApiError, match=reason) as raised:
        check_assignment(cluster.image, replicas, expected)
    assert raised.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
