"""Who gets a vote: the rules, one function each."""

from __future__ import annotations

from quorate.raft.messages import Vote
from quorate.raft.positions import Position
from quorate.raft.state import Follower, Leader, Prospective, Role, Unattached
from quorate.raft.voters import ReplicaKey

__all__ = ["grants", "is_log_up_to_date", "is_well_formed", "successor_delay_ms"]


def is_log_up_to_date(theirs: Position, ours: Position) -> bool:
    """The log with the later last epoch wins; in the same epoch, the longer one."""
    return (theirs.epoch, theirs.offset) >= (ours.epoch, ours.offset)


def is_well_formed(ask: Vote) -> bool:
    """A candidate has written nothing yet in the epoch that it wants to lead."""
    newest_epoch = ask.epoch if ask.pre_vote else ask.epoch - 1
    return ask.last.offset >= 0 and 0 <= ask.last.epoch <= newest_epoch


def grants(role: Role, ask: Vote, ours: Position) -> bool:
    """Whether a replica in this role grants an ask of its own epoch."""
    if ask.pre_vote:
        return _grants_pre_vote(role, ask, ours)
    if not isinstance(role, (Unattached, Prospective)):
        return False
    if role.voted is not None:
        return _is_same_candidate(role.voted, ask.candidate)
    return role.leader_id < 0 and is_log_up_to_date(ask.last, ours)


def _grants_pre_vote(role: Role, ask: Vote, ours: Position) -> bool:
    """Granting costs nothing, so only those who know better refuse: a leader, and whoever fetches from one.

    A follower that has not fetched yet does not know better: otherwise two followers of a dead leader would
    send each other back to it for ever.
    """
    if isinstance(role, Leader):
        return False
    if isinstance(role, Follower) and role.has_fetched:
        return False
    return is_log_up_to_date(ask.last, ours)


def _is_same_candidate(voted: ReplicaKey, candidate: ReplicaKey) -> bool:
    """A vote without a directory, as older state files have it, was for whoever has the id."""
    return voted.id == candidate.id and (not any(voted.directory) or voted.directory == candidate.directory)


def successor_delay_ms(successors: tuple[ReplicaKey, ...], me: ReplicaKey, max_ms: int) -> int:
    """How long to wait before trying to succeed a leader that resigned: the first at once, then doubling."""
    ids = [one.id for one in successors]
    if not ids:
        return 0
    if me.id not in ids:
        return max_ms
    place = ids.index(me.id)
    if place == 0:
        return 0
    return min(max_ms, (max_ms >> (len(ids) - 1)) << (place - 1))
