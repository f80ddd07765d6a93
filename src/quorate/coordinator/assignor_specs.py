"""What an assignor is told about a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from quorate.coordinator.consumer_members import NO_PARTITIONS, Partitions
from quorate.protocol.types import Uuid

__all__ = ["Claims", "MemberSpec", "claims_of"]

Claims = dict[str, dict[Uuid, list[int]]]
"""Sorted partitions, by member and topic."""


class MemberSpec(NamedTuple):
    """A member as an assignor sees it."""

    topic_ids: frozenset[Uuid]
    """The topics it subscribes to."""
    current: Partitions = NO_PARTITIONS
    """What it shall have so far."""
    instance_id: str | None = None


def claims_of(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> tuple[Claims, dict[Uuid, set[int]]]:
    """What members may keep if they can, and the same by topic.

    A member has a claim on what it has, if it still subscribes to the topic, the partition exists, and nobody
    before it had the same.
    """
    claims: Claims = {}
    taken: dict[Uuid, set[int]] = {}
    for member_id in sorted(members):
        spec = members[member_id]
        claims[member_id] = claim = {}
        for topic_id in sorted(spec.current):
            if topic_id not in spec.topic_ids or topic_id not in partition_counts:
                continue
            count = partition_counts[topic_id]
            others = taken.setdefault(topic_id, set())
            kept = sorted(p for p in spec.current[topic_id] if 0 <= p < count and p not in others)
            if kept:
                claim[topic_id] = kept
                others.update(kept)
    return claims, taken
