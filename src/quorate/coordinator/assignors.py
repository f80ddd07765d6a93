"""Who of a group shall have which partitions: the assignors that run in the coordinator.

    uniform   everybody gets as many partitions as everybody else, and keeps what it has where that allows it
    range     of each topic everybody gets a run of neighbours, so that topics with equally many partitions,
              subscribed to by the same members, are divided alike

An assignor is a function of the members, with what they subscribe to and shall have now, and of the sizes of
the topics. It gives every partition of a topic that somebody subscribes to to exactly one subscriber. Topics
that do not exist are nobody's. None of them looks at racks; those of Apache Kafka 4 do not either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quorate.coordinator.assignor_mixed import assign_mixed
from quorate.coordinator.assignor_range import assign_range
from quorate.coordinator.assignor_specs import MemberSpec
from quorate.coordinator.assignor_uniform import assign_same
from quorate.coordinator.consumer_members import Partitions
from quorate.protocol.types import Uuid

__all__ = ["ASSIGNORS", "UNIFORM", "MemberSpec", "assign_range", "assign_uniform"]


def assign_uniform(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    """Balanced and sticky. It is simpler, and exact, where everybody subscribes to the same topics."""
    subscriptions = {spec.topic_ids for spec in members.values()}
    if len(subscriptions) <= 1:
        return assign_same(members, partition_counts)
    return assign_mixed(members, partition_counts)


Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, int]], dict[str, Partitions]]

UNIFORM: Final = "uniform"
ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniform, "range": assign_range}
"""By the names that clients and the configuration use."""
