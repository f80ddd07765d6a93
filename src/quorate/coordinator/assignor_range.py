"""The range assignor: of each topic, a run of neighbouring partitions for every subscriber."""

from __future__ import annotations

from collections.abc import Mapping

from quorate.coordinator.assignor_specs import MemberSpec
from quorate.coordinator.consumer_members import Partitions
from quorate.protocol.types import Uuid

__all__ = ["assign_range"]


def assign_range(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    """The order of the members decides, not what they have: static ones come first, by their instance ids, so
    that a restart moves nothing. What does not divide evenly goes to the first of them.
    """
    ordered = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in ordered:
        for topic_id in members[member_id].topic_ids:
            if topic_id in partition_counts:
                subscribers.setdefault(topic_id, []).append(member_id)
    assignment: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in ordered}
    for topic_id in sorted(subscribers):
        member_ids = subscribers[topic_id]
        quota, extra = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + quota + (index < extra)
            if start < end:
                assignment[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assignment)


def _rank(member_id: str, spec: MemberSpec) -> tuple[bool, str]:
    return (False, spec.instance_id) if spec.instance_id is not None else (True, member_id)
