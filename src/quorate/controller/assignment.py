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
        return "The manual partition assignment includes an empty replica list."
    if len(replicas) > REPLICAS_MAX:
        return f"the assignment has {len(replicas)} replicas; a partition can have {REPLICAS_MAX}"
    seen: set[int] = set()
    for broker_id in replicas:
        if broker_id not in image.brokers:
            return (
                f"The manual partition assignment includes broker {broker_id}, but no such broker is"
                " registered."
            )
        if broker_id in seen:
            return f"The manual partition assignment includes the broker {broker_id} more than once."
        seen.add(broker_id)
    if expected_replicas is not None and len(replicas) != expected_replicas:
        return (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this"
            f" is not consistent with previous partitions, which have {expected_replicas} replica(s)."
        )
    return ""
