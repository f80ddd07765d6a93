"""Whether a list of brokers can be the replicas of a partition, when somebody chose them by hand.

Fenced brokers are allowed: they hold a replica that is not in sync until they are back. So are brokers whose
log directories are all cordoned: nothing is placed on them, but whoever names one by hand means it, and it
is the broker that chooses the directory.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import REPLICAS_MAX
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["check_assignment"]


def check_assignment(image: ClusterImage, replicas: Sequence[int], expected_replicas: int | None) -> None:
    """Raises `ApiError` unless these are different registered brokers, and as many as expected.

    None expects any number.
    """
    problem = _problem(image, replicas, expected_replicas)
    if problem:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _problem(image: ClusterImage, replicas: Sequence[int], expected_replicas: int | None) -> str:
    if not replicas:
        return "the assignment has an empty list of replicas: name at least one broker"
    if len(replicas) > REPLICAS_MAX:
        return f"the assignment has {len(replicas)} replicas; a partition can have {REPLICAS_MAX}"
    seen: set[int] = set()
    for broker_id in replicas:
        if broker_id < 0:
            return f"the assignment names broker {broker_id}: ids of brokers are not negative"
        if broker_id not in image.brokers:
            return f"the assignment names broker {broker_id}, which is not registered"
        if broker_id in seen:
            return f"the assignment names broker {broker_id} more than once"
        seen.add(broker_id)
    if expected_replicas is not None and len(replicas) != expected_replicas:
        return (
            f"the assignment has {len(replicas)} replica(s), but the other partitions of the topic"
            f" have {expected_replicas}"
        )
    return ""
