"""The uniform assignor where all members subscribe to the same topics.

A group is assigned anew whenever somebody comes or goes, and hardly anything changes then: only those who
have too much or too little are looked at partition by partition, and all others keep what they have as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

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
    by_size: dict[int, list[str]] = {}
    for member_id, held in kept.items():
        by_size.setdefault(sum(map(len, held.values())), []).append(member_id)
    return {**kept, **_changes(kept, by_size, taken, topic_ids, partition_counts)}


def reassign_same(
    targets: Targets,
    member_ids: Collection[str],
    topic_ids: Iterable[Uuid],
    partition_counts: Mapping[Uuid, int],
) -> dict[str, Partitions] | None:
    """What `assign_same` says of these members that is not their target already. None if targets are not what
    it left behind, so that it has to look at each of them: one has what another has, or what there is not.
    """
    wanted = sorted(topic_id for topic_id in topic_ids if topic_id in partition_counts)
    claimed, known = targets.claimed, targets.by_member.keys()
    if targets.is_disputed or not claimed.keys() <= set(wanted):
        return None
    if not all(targets.are_below(topic_id, partition_counts[topic_id]) for topic_id in claimed):
        return None
    newcomers = sorted(set(member_ids) - known)
    if len(known) + len(newcomers) != len(member_ids):
        return None  # somebody who is gone has a target
    by_size: Mapping[int, Sequence[str]] = targets.by_size
    if newcomers:
        by_size = {**by_size, 0: sorted([*by_size.get(0, ()), *newcomers])}
    changed = _changes(targets.by_member, by_size, claimed, wanted, partition_counts)
    for member_id in newcomers:
        changed.setdefault(member_id, {})
    return changed


def _changes(
    held_by: Mapping[str, Partitions],
    by_size: Mapping[int, Sequence[str]],
    taken: Mapping[Uuid, Collection[int]],
    topic_ids: Iterable[Uuid],
    partition_counts: Mapping[Uuid, int],
) -> dict[str, Partitions]:
    """Who gets something else than it has. `by_size` has all members, by how much they have, in the order of
    their ids: most have what they should, and are not looked at."""
    topic_ids = list(topic_ids)
    if not by_size:
        return {}
    free = [
        (topic_id, partition)
        for topic_id in topic_ids
        if len(taken.get(topic_id, ())) < partition_counts[topic_id]
        for partition in range(partition_counts[topic_id])
        if partition not in taken.get(topic_id, ())
    ]
    changed: dict[str, dict[Uuid, list[int]]] = {}
    rooms: deque[tuple[str, int]] = deque()
    for member_id, room in _rooms(by_size, sum(partition_counts[topic_id] for topic_id in topic_ids)):
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


def _rooms(by_size: Mapping[int, Sequence[str]], total: int) -> list[tuple[str, int]]:
    """Who has too little or too much, and how much that is, in the order of their ids.

    Some get one more than the others: first those who have it already; among equals, by their ids.
    """
    least, extra = divmod(total, sum(map(len, by_size.values())))
    have_it = _of_sizes(by_size, [size for size in by_size if size > least])
    others = _of_sizes(by_size, [size for size in by_size if size <= least])
    rooms: dict[str, int] = {}
    for size, member_ids in by_size.items():
        wanted = least + (size > least)
        if size != wanted:
            rooms.update(dict.fromkeys(member_ids, wanted - size))
    for member_id in have_it[extra:]:
        rooms[member_id] = rooms.get(member_id, 0) - 1
    for member_id in others[: max(0, extra - len(have_it))]:
        rooms[member_id] = rooms.get(member_id, 0) + 1
    return sorted((member_id, room) for member_id, room in rooms.items() if room)


def _of_sizes(by_size: Mapping[int, Sequence[str]], sizes: Sequence[int]) -> Sequence[str]:
    """The members that have so many, in the order of their ids."""
    if len(sizes) == 1:
        return by_size[sizes[0]]
    return sorted(chain.from_iterable(by_size[size] for size in sizes))


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
