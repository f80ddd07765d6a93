"""The uniform assignor where members subscribe to different topics.

Everybody keeps what it has. What is free goes, topic by topic beginning with those that the fewest subscribe
to, to the subscriber with the least. Then partitions are moved, one at a time, from a member to a subscriber
of the same topic that has at least two less, until there is no such pair. Each move makes the sizes more
alike (the sum of their squares falls), so that this comes to an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from quorate.coordinator.assignor_specs import Claims, MemberSpec, claims_of
from quorate.coordinator.consumer_members import Partitions
from quorate.protocol.types import Uuid

__all__ = ["assign_mixed"]


def assign_mixed(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    """Balanced as far as the subscriptions allow by single moves, and sticky."""
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].topic_ids:
            if topic_id in partition_counts:
                subscribers.setdefault(topic_id, []).append(member_id)
    topic_ids = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id))
    claims, taken = claims_of(members, partition_counts)
    sizes = {member_id: sum(map(len, claim.values())) for member_id, claim in claims.items()}
    for topic_id in topic_ids:
        used = taken.get(topic_id, ())
        free = [p for p in range(partition_counts[topic_id]) if p not in used]
        _deal(topic_id, free, subscribers[topic_id], claims, sizes)
    # What a round moves may allow more in a topic that was already looked at.
    moved = True
    while moved:
        moved = False
        for topic_id in topic_ids:
            moved |= _level(topic_id, subscribers[topic_id], claims, sizes)
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in claim.items() if partitions}
        for member_id, claim in claims.items()
    }


def _deal(
    topic_id: Uuid, free: Sequence[int], subscribers: Sequence[str], claims: Claims, sizes: dict[str, int]
) -> None:
    queue = [(sizes[member_id], member_id) for member_id in subscribers]
    heapify(queue)
    for partition in free:
        size, member_id = queue[0]
        heapreplace(queue, (size + 1, member_id))
        claims[member_id].setdefault(topic_id, []).append(partition)
        sizes[member_id] = size + 1


def _level(topic_id: Uuid, subscribers: Sequence[str], claims: Claims, sizes: dict[str, int]) -> bool:
    """Moves partitions of one topic from those with much to those with little; whether any moved."""
    givers = [(-sizes[member_id], member_id) for member_id in subscribers if claims[member_id].get(topic_id)]
    takers = [(sizes[member_id], member_id) for member_id in subscribers]
    heapify(givers)
    heapify(takers)
    moved = False
    while givers:
        giver, taker = givers[0][1], takers[0][1]
        # Whoever changed was queued anew; what is queued from before is passed over.
        if sizes[giver] != -givers[0][0] or not claims[giver][topic_id]:
            heappop(givers)
            continue
        if sizes[taker] != takers[0][0]:
            heappop(takers)
            continue
        if sizes[giver] - sizes[taker] < 2:
            break
        # What came last is what it got in this very assignment, if anything: what it had before stays.
        claims[taker].setdefault(topic_id, []).append(claims[giver][topic_id].pop())
        moved = True
        for member_id, change in ((giver, -1), (taker, 1)):
            sizes[member_id] += change
            heappush(givers, (-sizes[member_id], member_id))
            heappush(takers, (sizes[member_id], member_id))
    return moved
