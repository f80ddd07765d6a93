"""How members go: they leave, are silent for too long, or do not give partitions back in time.

Whoever goes takes the group's epoch up by one, and what it had is free at once. A static member that will be
back (-2) keeps everything for as long as its session lasts. If only members of the classic protocol are left,
the group becomes a classic one: see `migration`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quorate.coordinator import consumer_records as records
from quorate.coordinator.consumer_admission import known_member
from quorate.coordinator.consumer_group import ConsumerGroup, Surroundings, next_epoch
from quorate.coordinator.consumer_members import NOTHING_HELD, STATIC_LEAVE_EPOCH, Member
from quorate.coordinator.events import MemberRemoved
from quorate.coordinator.migration import downgrade, may_downgrade
from quorate.coordinator.step import Step, Timer, TimerKind
from quorate.coordinator.topics_view import metadata_hash
from quorate.protocol.api.groups import ConsumerGroupHeartbeatResponse
from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from quorate.coordinator.consumer import Hearing

__all__ = ["LEFT", "expire", "leave", "remove_members"]

LEFT: Final = "left"
"""Whoever goes of its own accord, or is removed by somebody; all others are put out by the coordinator."""


def leave(group: ConsumerGroup, hearing: Hearing, around: Surroundings, step: Step) -> None:
    """A member says that it goes."""
    request = hearing.request
    member = known_member(group.state, request.member_id, request.instance_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        group.rebalances.look(group.state)
        gone = replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation=NOTHING_HELD)
        step.records.append(records.current_assignment(group.group_id, gone))
        group.cancel_revocation(member.member_id, step)
    else:
        remove_members(group, [member], LEFT, around, step)
    step.answer(
        hearing.ticket,
        ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        ),
    )


def expire(group: ConsumerGroup, timer: Timer, around: Surroundings, step: Step) -> None:
    """A timer of the group has come."""
    member = group.state.members.get(timer.member_id)
    if member is None:
        return
    if timer.kind is TimerKind.REVOCATION and member.epoch != group.revocation_epochs.get(member.member_id):
        return
    remove_members(group, [member], _CHECKS[timer.kind], around, step)


def remove_members(
    group: ConsumerGroup, members: Sequence[Member], check: str, around: Surroundings, step: Step
) -> None:
    """Puts members out. Nobody else is told: they find out by what becomes free."""
    for member in members:
        group.cancel_timers(member.member_id, step)
        _tell_removed(group, member, check, around, step)
    if may_downgrade(group.state, members, around.rules):
        downgrade(group, members, around, step)
        return
    state = group.state
    for member in members:
        step.records += records.member_tombstones(state.group_id, member.member_id)
    going = Counter(member.regex for member in members if member.regex is not None)
    for expression in sorted(going):
        if state.regex_counts[expression] == going[expression]:
            step.records.append(records.regex_tombstone(state.group_id, expression))
    found_hash = metadata_hash(state.subscribed_topics(without=members), around.topics)
    removed = [] if check == LEFT else [member.member_id for member in members]
    trigger = f"members went: {check}"
    step.records.append(next_epoch(group, found_hash, trigger, members[0], step, removed=removed))
    if len(members) == len(state.members):
        group.rebalances.emptied(state, step)


def _tell_removed(group: ConsumerGroup, member: Member, check: str, around: Surroundings, step: Step) -> None:
    classic = member.classic
    step.tell(
        MemberRemoved(
            group_id=group.group_id,
            generation=group.state.epoch,
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            check=check,
            session_timeout_ms=around.rules.session_timeout_ms
            if classic is None
            else classic.session_timeout_ms,
        )
    )


_CHECKS = {
    TimerKind.MEMBER_SESSION: "missed its heartbeats",
    TimerKind.REVOCATION: "did not give its partitions back in time",
    TimerKind.MEMBER_JOIN: "did not join again in time",
    TimerKind.MEMBER_SYNC: "did not ask for its assignment in time",
}
