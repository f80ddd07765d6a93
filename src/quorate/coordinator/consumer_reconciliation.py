"""How a member gets from what it has to what it shall have, without two ever having the same partition.

A member takes one step per heartbeat. It first gives back what is no longer its own, and only once it has
said so does its epoch move; what it shall get is given to it as soon as nobody else holds it.

    STABLE                 at the target's epoch it stays; at another, a step is computed
    UNREVOKED_PARTITIONS   stays until the member names its partitions and none of them is to be given back
    UNRELEASED_PARTITIONS  a step is computed at every heartbeat: partitions may have been released meanwhile

A step:

    keep    what it has and shall have
    revoke  what it has and shall not have
    add     what it shall have, has not, and nobody else holds

    revoke, and the member still has it      UNREVOKED_PARTITIONS, old epoch, keep
    otherwise, something is held by others   UNRELEASED_PARTITIONS, new epoch, keep + add
    otherwise                                STABLE, new epoch, keep + add

Between two targets a member may change its subscription. What it no longer subscribes to is then taken from
it at once, whatever the target says.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from quorate.coordinator.consumer_members import NOTHING_HELD, Held, Member, MemberState, Partitions
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

__all__ = ["STEPS", "Reconciliation", "reconcile"]


_NONE_OF_IT: Final[frozenset[int]] = frozenset()
_NOTHING_OF_IT: Final[Mapping[int, int]] = {}


class Reconciliation(NamedTuple):
    """What a step of a member depends on."""

    target_epoch: int
    target: Partitions
    subscribed: Container[Uuid]
    """The topics that the member subscribes to and that exist."""
    owner_of: Callable[[Uuid, int], str | None]
    """Who holds a partition now, be it only to give it back."""
    owned: Partitions | None
    """What the member says it has; None if it did not say."""
    subscription_changed: bool


def reconcile(member: Member, step: Reconciliation) -> Member:
    """The member after this heartbeat; the same object if nothing changes."""
    if not step.subscription_changed and member.is_reconciled_to(step.target_epoch):
        return member
    return STEPS[member.state](member, step)


def _from_stable(member: Member, step: Reconciliation) -> Member:
    if member.epoch != step.target_epoch:
        return _next(member, step)
    return _without_unsubscribed(member, step)


def _from_unrevoked(member: Member, step: Reconciliation) -> Member:
    if _still_has(member.pending_revocation, step.owned):
        return _without_unsubscribed(member, step) if step.subscription_changed else member
    return _next(member, step)


def _from_unknown(member: Member, step: Reconciliation) -> Member:
    """A newer coordinator left the member in a state that we cannot judge: it has to begin again."""
    if step.owned is None or step.owned:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in an unknown state. It must abandon all its partitions and rejoin.",
        )
    return _next(member, step)


def _next(member: Member, step: Reconciliation) -> Member:
    keep: dict[Uuid, Mapping[int, int]] = {}
    revoke: dict[Uuid, Mapping[int, int]] = {}
    add: dict[Uuid, dict[int, int]] = {}
    waits = False
    for topic_id in sorted(step.target.keys() | member.assigned.keys()):
        current = member.assigned.get(topic_id, _NOTHING_OF_IT)
        target = step.target.get(topic_id, _NONE_OF_IT) if topic_id in step.subscribed else _NONE_OF_IT
        if current.keys() <= target:
            if current:
                keep[topic_id] = current
        else:
            revoke[topic_id] = {p: epoch for p, epoch in current.items() if p not in target}
            if kept := {p: epoch for p, epoch in current.items() if p in target}:
                keep[topic_id] = kept
        if len(target) == len(current) and topic_id not in revoke:
            continue  # nothing is to be added: it is one and the same
        for partition in target:
            if partition in current:
                continue
            # What the member itself is giving back is in nobody else's hands.
            owner = step.owner_of(topic_id, partition)
            if owner is None or owner == member.member_id:
                add.setdefault(topic_id, {})[partition] = step.target_epoch
            else:
                waits = True
    if revoke and _still_has(revoke, step.owned):
        return _stepped(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, keep, revoke)
    for topic_id, added in add.items():
        keep[topic_id] = {**keep.get(topic_id, {}), **added}
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _stepped(member, step.target_epoch, state, keep, NOTHING_HELD)


def _without_unsubscribed(member: Member, step: Reconciliation) -> Member:
    """The member without the topics it no longer subscribes to; its way to the target goes on as it was."""
    dropped = {
        topic_id: held for topic_id, held in member.assigned.items() if topic_id not in step.subscribed
    }
    if not dropped:
        return member
    assigned = {topic_id: held for topic_id, held in member.assigned.items() if topic_id not in dropped}
    revoke: dict[Uuid, Mapping[int, int]] = dict(member.pending_revocation)
    for topic_id, held in dropped.items():
        revoke[topic_id] = {**revoke.get(topic_id, {}), **held}
    if _still_has(revoke, step.owned):
        return _stepped(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoke)
    return _stepped(member, member.epoch, member.state, assigned, member.pending_revocation)


def _stepped(member: Member, epoch: int, state: MemberState, assigned: Held, pending: Held) -> Member:
    if (epoch, state) == (member.epoch, member.state) and (assigned, pending) == (
        member.assigned,
        member.pending_revocation,
    ):
        return member
    return member.at_epoch(epoch, state, assigned, pending)


def _still_has(held: Held, owned: Partitions | None) -> bool:
    """Whether the member still has any of these; one that does not say is believed to have them all."""
    if owned is None:
        return True
    return any(not held[topic_id].keys().isdisjoint(owned.get(topic_id, ())) for topic_id in held)


STEPS: Final[Mapping[MemberState, Callable[[Member, Reconciliation], Member]]] = {
    MemberState.STABLE: _from_stable,
    MemberState.UNREVOKED_PARTITIONS: _from_unrevoked,
    MemberState.UNRELEASED_PARTITIONS: _next,
    MemberState.UNKNOWN: _from_unknown,
}
