"""The uniform assignor where all members subscribe to the same topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from quorate.coordinator.assignor_specs import Claims, MemberSpec, claims_of
from quorate.coordinator.consumer_members import Partitions
from quorate.protocol.types import Uuid

__all__ = ["assign_same"]


def assign_same(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    """Sizes differ by one at most, and no more partitions move than that takes.

    Whoever already has one more than the others stays with it as long as somebody must. What is free is dealt
    out in turns, so that each topic is spread over the members.
    """
    if not members:
        return {}
    topic_ids = sorted(
        topic_id for topic_id in next(iter(members.values())).topic_ids if topic_id in partition_counts
    )
    claims, taken = claims_of(members, partition_counts)
    quotas = _quotas(claims, sum(partition_counts[topic_id] for topic_id in topic_ids))
    free = [
        (topic_id, partition)
        for topic_id in topic_ids
        for partition in range(partition_counts[topic_id])
        if partition not in taken.get(topic_id, ())
    ]
    rooms: deque[tuple[str, int]] = deque()
    for member_id, claim in claims.items():
        size = sum(map(len, claim.values()))
        if size > quotas[member_id]:
            free += _given_up(claim, size - quotas[member_id])
        elif size < quotas[member_id]:
            rooms.append((member_id, quotas[member_id] - size))
    for topic_id, partition in sorted(free):
        member_id, room = rooms.popleft()
        claims[member_id].setdefault(topic_id, []).append(partition)
        if room > 1:
            rooms.append((member_id, room - 1))
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in claim.items()}
        for member_id, claim in claims.items()
    }


def _quotas(claims: Claims, total: int) -> dict[str, int]:
    least, extra = divmod(total, len(claims))
    quotas = dict.fromkeys(claims, least)
    sizes = {member_id: sum(map(len, claim.values())) for member_id, claim in claims.items()}
    # The sort is stable: among equals, the order of the ids decides.
    for member_id in sorted(claims, key=lambda member_id: sizes[member_id] <= least)[:extra]:
        quotas[member_id] += 1
    return quotas


def _given_up(claim: dict[Uuid, list[int]], count: int) -> list[tuple[Uuid, int]]:
    """Takes partitions out of a claim, each time of the topic that has the most."""
    given_up = []
    for _ in range(count):
        topic_id = max(claim, key=lambda topic_id: (len(claim[topic_id]), topic_id))
        given_up.append((topic_id, claim[topic_id].pop()))
        if not claim[topic_id]:
            del claim[topic_id]
    return given_up
