"""The uniform assignor where all members subscribe to the same topics.

A group is assigned anew whenever somebody comes or goes, and hardly anything changes then: only those who
have too much or too little are looked at partition by partition, and all others keep what they have as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from quorate.coordinator.assignor_specs import MemberSpec, claims_of
from quorate.coordinator.consumer_members import NO_PARTITIONS, Partitions
from quorate.coordinator.consumer_targets import Targets
from quorate.protocol.types import Uuid

__all__ = ["assign_same", "reassign_same"]

Taken = dict[Uuid, set[int]]


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
    kept, taken = _kept(members, topic_ids, partition_counts)
    sizes = {member_id: sum(map(len, held.values())) for member_id, held in kept.items()}
    return {**kept, **_changes(kept, sizes, taken, topic_ids, partition_counts)}


def reassign_same(
    targets: Targets,
    member_ids: Iterable[str],
    topic_ids: Iterable[Uuid],
    partition_counts: Mapping[Uuid, int],
) -> dict[str, Partitions] | None:
    """What `assign_same` says of these members that is not their target already. None if targets are not what
    it left behind, so that it has to look at each of them: one has what another has, or what there is not.
    """
    wanted = sorted(topic_id for topic_id in topic_ids if topic_id in partition_counts)
    claimed = targets.claimed
    if targets.is_disputed or not claimed.keys() <= set(wanted):
        return None
    if not all(targets.are_below(topic_id, partition_counts[topic_id]) for topic_id in claimed):
        return None
    known = targets.sizes
    sizes = {member_id: known.get(member_id, 0) for member_id in sorted(member_ids)}
    if not known.keys() <= sizes.keys():
        return None
    changed = _changes(targets.by_member, sizes, claimed, wanted, partition_counts)
    if len(known) < len(sizes):
        for member_id in sizes.keys() - known.keys():
            changed.setdefault(member_id, {})
    return changed


def _changes(
    held_by: Mapping[str, Partitions],
    sizes: Mapping[str, int],
    taken: Mapping[Uuid, Collection[int]],
    topic_ids: Iterable[Uuid],
    partition_counts: Mapping[Uuid, int],
) -> dict[str, Partitions]:
    """Who gets something else than it has. `sizes` has all members, in the order of their ids."""
    topic_ids = list(topic_ids)
    if not sizes:
        return {}
    least, extra = divmod(sum(partition_counts[topic_id] for topic_id in topic_ids), len(sizes))
    favoured = set(_favoured(sizes, least, extra))
    free = [
        (topic_id, partition)
        for topic_id in topic_ids
        if len(taken.get(topic_id, ())) < partition_counts[topic_id]
        for partition in range(partition_counts[topic_id])
        if partition not in taken.get(topic_id, ())
    ]
    changed: dict[str, dict[Uuid, list[int]]] = {}
    rooms: deque[tuple[str, int]] = deque()
    for member_id, size in sizes.items():
        room = least - size + (member_id in favoured)
        if room:
            held = held_by.get(member_id, NO_PARTITIONS)
            changed[member_id] = claim = {topic_id: sorted(held[topic_id]) for topic_id in sorted(held)}
            if room > 0:
                rooms.append((member_id, room))
            else:
                free += _given_up(claim, -room)
    for topic_id, partition in sorted(free):
        member_id, room = rooms.popleft()
        changed[member_id].setdefault(topic_id, []).append(partition)
        if room > 1:
            rooms.append((member_id, room - 1))
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in claim.items()}
        for member_id, claim in changed.items()
    }


def _kept(
    members: Mapping[str, MemberSpec], topic_ids: Iterable[Uuid], partition_counts: Mapping[Uuid, int]
) -> tuple[dict[str, Partitions], Taken]:
    """What each member may keep if it can, and the same by topic: all that it has, in most cases."""
    held = {member_id: members[member_id].current for member_id in sorted(members)}
    taken = _undisputed(held.values(), topic_ids, partition_counts)
    if taken is not None:
        return held, taken
    claims, claimed = claims_of(members, partition_counts)
    found: dict[str, Partitions] = {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in claim.items()}
        for member_id, claim in claims.items()
    }
    return found, {topic_id: claimed.get(topic_id, set()) for topic_id in topic_ids}


def _undisputed(
    held: Iterable[Partitions], topic_ids: Iterable[Uuid], partition_counts: Mapping[Uuid, int]
) -> Taken | None:
    """What everybody has together, if nobody has what another has, or what there is not."""
    parts: dict[Uuid, list[frozenset[int]]] = {topic_id: [] for topic_id in topic_ids}
    for one in held:
        for topic_id, partitions in one.items():
            if topic_id not in parts or not partitions:
                return None
            parts[topic_id].append(partitions)
    taken: Taken = {}
    for topic_id, some in parts.items():
        together: set[int] = set().union(*some)
        if len(together) != sum(map(len, some)):
            return None
        if together and not 0 <= min(together) <= max(together) < partition_counts[topic_id]:
            return None
        taken[topic_id] = together
    return taken


def _favoured(sizes: Mapping[str, int], least: int, extra: int) -> list[str]:
    """Who gets one more than the others: first those who have it already; among equals, by their ids."""
    if not extra:
        return []
    have_it = [member_id for member_id, size in sizes.items() if size > least]
    if len(have_it) >= extra:
        return have_it[:extra]
    others = [member_id for member_id, size in sizes.items() if size <= least]
    return have_it + others[: extra - len(have_it)]


def _given_up(claim: dict[Uuid, list[int]], count: int) -> list[tuple[Uuid, int]]:
    """Takes partitions out of a claim, each time of the topic that has the most."""
    if len(claim) == 1 and len(claim[only := next(iter(claim))]) > count:
        gone = claim[only][-count:]
        del claim[only][-count:]
        return [(only, partition) for partition in gone]
    given_up = []
    for _ in range(count):
        topic_id = max(claim, key=lambda topic_id: (len(claim[topic_id]), topic_id))
        given_up.append((topic_id, claim[topic_id].pop()))
        if not claim[topic_id]:
            del claim[topic_id]
    return given_up
