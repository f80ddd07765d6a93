"""The uniform assignor, said as plainly as possible: what the fast one is held to."""

from collections import deque
from collections.abc import Mapping

from quorate.coordinator.assignor_specs import MemberSpec, claims_of
from quorate.protocol.types import Uuid

Assignment = dict[str, dict[Uuid, frozenset[int]]]


def assign_plainly(members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]) -> Assignment:
    if not members:
        return {}
    topic_ids = sorted(
        topic_id for topic_id in next(iter(members.values())).topic_ids if topic_id in partition_counts
    )
    claims, taken = claims_of(members, partition_counts)
    least, extra = divmod(sum(partition_counts[topic_id] for topic_id in topic_ids), len(claims))
    sizes = {member_id: sum(map(len, claim.values())) for member_id, claim in claims.items()}
    favoured = set(sorted(claims, key=lambda member_id: sizes[member_id] <= least)[:extra])
    quotas = {member_id: least + (member_id in favoured) for member_id in claims}
    free = [
        (topic_id, partition)
        for topic_id in topic_ids
        for partition in range(partition_counts[topic_id])
        if partition not in taken.get(topic_id, ())
    ]
    rooms: deque[tuple[str, int]] = deque()
    for member_id, claim in claims.items():
        for _ in range(sizes[member_id] - quotas[member_id]):
            topic_id = max(claim, key=lambda topic_id, claim=claim: (len(claim[topic_id]), topic_id))
            free.append((topic_id, claim[topic_id].pop()))
            if not claim[topic_id]:
                del claim[topic_id]
        if sizes[member_id] < quotas[member_id]:
            rooms.append((member_id, quotas[member_id] - sizes[member_id]))
    for topic_id, partition in sorted(free):
        member_id, room = rooms.popleft()
        claims[member_id].setdefault(topic_id, []).append(partition)
        if room > 1:
            rooms.append((member_id, room - 1))
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in claim.items()}
        for member_id, claim in claims.items()
    }
