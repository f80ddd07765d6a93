"""What a leader makes of the positions of its replicas."""

from __future__ import annotations

from collections.abc import Mapping

from quorate.raft.state import Leader, Progress
from quorate.raft.voters import ReplicaKey, VoterSet

__all__ = ["high_watermark", "is_quorum_heard", "progress_of", "record_fetch", "successors"]

REPLICAS_MAX = 10_000
OBSERVER_SESSION_MS = 300_000


def high_watermark(
    voters: VoterSet, me: ReplicaKey, my_offset: int, replicas: Mapping[ReplicaKey, Progress]
) -> int:
    """The offset below which everything is on the disks of a majority of the voters."""
    offsets = []
    for voter in voters:
        if voter.matches(me):
            offsets.append(my_offset)
        else:
            offsets.append(progress_of(replicas, voters, voter.key).offset)
    offsets.sort(reverse=True)
    return offsets[len(offsets) // 2]


def progress_of(replicas: Mapping[ReplicaKey, Progress], voters: VoterSet, key: ReplicaKey) -> Progress:
    """The progress of a voter, whose key may be known by its id alone."""
    voter = voters.get(key.id)
    found = [
        progress
        for replica, progress in replicas.items()
        if replica == key or (voter is not None and replica.id == key.id and voter.matches(replica))
    ]
    # A static voter may have come back with another disk: what the old one had is gone.
    return max(found, key=lambda progress: progress.last_fetch_ms, default=Progress())


def record_fetch(
    leader: Leader, key: ReplicaKey, offset: int, end_offset: int, now_ms: float, wall_ms: int
) -> None:
    """A replica has fetched from an offset, and so has everything below it.

    The offset may be lower than the last one: a replica that lost its disk starts again.
    """
    progress = leader.replicas.get(key)
    if progress is None:
        _make_room(leader, now_ms)
        progress = leader.replicas[key] = Progress()
    if offset >= end_offset:
        progress.caught_up_wall_ms = wall_ms
    elif 0 <= progress.end_at_last_fetch <= offset:
        progress.caught_up_wall_ms = progress.last_fetch_wall_ms
    progress.offset = offset
    progress.last_fetch_ms = now_ms
    progress.last_fetch_wall_ms = wall_ms
    progress.end_at_last_fetch = end_offset


def _make_room(leader: Leader, now_ms: float) -> None:
    if len(leader.replicas) >= REPLICAS_MAX:
        stale = min(leader.replicas, key=lambda key: leader.replicas[key].last_fetch_ms)
        del leader.replicas[stale]
    for key, progress in list(leader.replicas.items()):
        if now_ms - progress.last_fetch_ms > OBSERVER_SESSION_MS:
            del leader.replicas[key]


def is_quorum_heard(leader: Leader, voters: VoterSet, me: ReplicaKey) -> bool:
    """Whether enough other voters have fetched for the leader to be sure that it still leads."""
    others = [voter for voter in voters if not voter.matches(me)]
    needed = voters.majority - (1 if voters.contains(me) else 0)
    return sum(voter.key.id in leader.fetched for voter in others) >= needed


def successors(leader: Leader, voters: VoterSet, me: ReplicaKey) -> tuple[ReplicaKey, ...]:
    """The other voters, those with the longest logs first."""
    others = [voter.key for voter in voters if not voter.matches(me)]
    return tuple(sorted(others, key=lambda key: (-progress_of(leader.replicas, voters, key).offset, key)))
