"""What the states of a classic group ask for: calling members together, beginning a generation, putting
members out. Why all this happens stands in `classic`.

Rules of Kafka that surprise:

- An empty group that waits for more members does not begin its first generation early, though everybody who
  came is waiting; but it does if an id that was given out, or a member, expires meanwhile.
- A static member may miss the time to come back. It may not miss its session, and not the time to sync.
- Whoever is given a new generation must ask for its assignment within the rebalance time-out, and is put out
  otherwise, even if the group has become stable without it.

And one of ours: after an assignment that could not be stored the next generation begins a second later at
the soonest. Until the log takes records again members do nothing but come back, as fast as they can.
"""

from __future__ import annotations

from quorate.coordinator.classic import Cause, ClassicGroup, State, Trigger
from quorate.coordinator.classic_answers import assigned, join_refused, joined, sync_refused
from quorate.coordinator.classic_members import NOBODY, Member
from quorate.coordinator.events import AssignmentStored, MemberRemoved, RebalanceEnded, RebalanceStarted
from quorate.coordinator.step import Step, TimerKind
from quorate.protocol.errors import ErrorCode

__all__ = [
    "complete_if_all_joined",
    "end_join_time",
    "end_session",
    "end_sync_time",
    "hand_out",
    "prepare",
    "prepare_or_complete",
    "release_all",
    "remove",
    "send_away",
]


def prepare(group: ClassicGroup, cause: Cause, step: Step) -> None:
    """Calls the members together. Those who wait for an assignment are sent back to join."""
    if group.state is State.COMPLETING:
        for member in group.members:
            member.assignment = b""
            _answer_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, step)
    group.awaited_syncs.clear()
    step.cancel_timer(group.timer(TimerKind.SYNC))
    _tell_start(group, cause, step)
    group.cause, group.cause_ms = cause, step.now_ms
    group.move(cause.trigger, step.wall_ms)
    if group.is_delayed:
        delay_ms = step.settings.group_initial_rebalance_delay_ms
        group.delay_until_ms = step.now_ms + max(group.members.rebalance_timeout_ms, delay_ms)
        group.has_newcomer = False
        step.set_timer(group.timer(TimerKind.JOIN), delay_ms)
    elif group.members.all_joined:
        _complete(group, step)
    else:
        step.set_timer(group.timer(TimerKind.JOIN), group.members.rebalance_timeout_ms)


def prepare_or_complete(group: ClassicGroup, cause: Cause, step: Step) -> None:
    """Something has changed: the group rebalances for it, or is about to and may be complete now."""
    if group.state is State.PREPARING:
        complete_if_all_joined(group, step)
    else:
        prepare(group, cause, step)


def complete_if_all_joined(group: ClassicGroup, step: Step) -> None:
    """Nobody has to be waited for any more, unless more members are awaited before the first generation."""
    if group.state is not State.PREPARING or group.is_delayed or not group.members.all_joined:
        return
    if group.members and step.now_ms < group.not_before_ms:
        step.set_timer(group.timer(TimerKind.JOIN), group.not_before_ms - step.now_ms)
    else:
        _complete(group, step)


# Time


def end_join_time(group: ClassicGroup, step: Step) -> None:
    """The time to come back is over; or the delay of the first generation, which newcomers extend."""
    if group.state is not State.PREPARING:
        return
    if group.is_delayed and group.has_newcomer and step.now_ms < group.delay_until_ms:
        group.has_newcomer = False
        delay_ms = step.settings.group_initial_rebalance_delay_ms
        step.set_timer(group.timer(TimerKind.JOIN), min(delay_ms, group.delay_until_ms - step.now_ms))
    else:
        _complete(group, step)


def end_sync_time(group: ClassicGroup, step: Step) -> None:
    """Whoever has not asked for its assignment until now does not want it."""
    if group.state not in {State.COMPLETING, State.STABLE} or not group.awaited_syncs:
        return
    silent = [member for member in group.members if member.member_id in group.awaited_syncs]
    for member in silent:
        remove(group, member, Trigger.SYNC_OVERDUE, step)
    cause = Cause(Trigger.SYNC_OVERDUE, silent[0])
    prepare(group, cause, step)


def end_session(group: ClassicGroup, member_id: str, step: Step) -> None:
    """A member was silent for too long, or an id was not used."""
    if member_id in group.members.pending:
        group.members.pending.pop(member_id, None)
        _complete_early(group, step)
        return
    member = group.members.get(member_id)
    if member is None or member.is_excused:
        return
    remove(group, member, Trigger.EXPIRED, step)
    if group.state is State.PREPARING:
        _complete_early(group, step)
    else:
        prepare(group, Cause(Trigger.EXPIRED, member), step)


def _complete_early(group: ClassicGroup, step: Step) -> None:
    """Even if more members are awaited before the first generation: what Kafka does."""
    if group.state is State.PREPARING and group.members.all_joined:
        _complete(group, step)


# Generations


def _complete(group: ClassicGroup, step: Step) -> None:
    """Preparing is over. Dynamic members that have not come back are put out."""
    members = group.members
    step.cancel_timer(group.timer(TimerKind.JOIN))
    absent = [member for member in members if member.joining is None and member.instance_id is None]
    for member in absent:
        remove(group, member, Trigger.COMPLETE, step)
    if members and not members.elect_joined():
        # Nobody came, but static members are still in their sessions: it is up to these.
        step.set_timer_again(group.timer(TimerKind.JOIN), members.rebalance_timeout_ms)
        return
    group.begin_generation(step.wall_ms)
    group.completing_ms = step.now_ms
    _tell_end(group, tuple(member.member_id for member in absent), step)
    if not members:
        group.write(step, {})
        return
    for member in members:
        waiting = members.take_join(member)
        if waiting is not None:
            step.answer(waiting.ticket, joined(group, member))
        member.is_new = False
        group.keep_alive(member, step)
    group.awaited_syncs.update(members.by_id)
    step.set_timer(group.timer(TimerKind.SYNC), members.rebalance_timeout_ms)


def hand_out(group: ClassicGroup, assignments: dict[str, bytes], step: Step) -> None:
    """The leader has assigned: written to the log, and to everyone who waits once the log has it.

    A member that the leader forgot gets nothing; one that it made up is not there.
    """
    group.write(step, assignments)
    for member in group.members:
        waiting, member.syncing = member.syncing, None
        if waiting is not None:
            step.answer(waiting.ticket, assigned(group, assignments.get(member.member_id, b"")))
            group.keep_alive(member, step)
    step.tell(
        AssignmentStored(
            group_id=group.group_id,
            generation=group.generation,
            leader=group.leader,
            members=len(group.members),
            static_members=len(group.members.by_instance),
            without_assignment=sum(member.member_id not in assignments for member in group.members),
            duration_ms=round(step.now_ms - group.completing_ms),
        )
    )


# Members


def remove(group: ClassicGroup, member: Member, check: Trigger, step: Step, reason: str = "") -> None:
    """Puts a member out, and answers what it waits for: it may come again as a new one."""
    send_away(group, member, ErrorCode.UNKNOWN_MEMBER_ID, step)
    step.cancel_timer(group.session(member.member_id))
    group.awaited_syncs.discard(member.member_id)
    group.members.remove(member)
    step.tell(
        MemberRemoved(
            group_id=group.group_id,
            generation=group.generation,
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            check="did not join again in time" if check is Trigger.COMPLETE else str(check),
            session_timeout_ms=member.session_timeout_ms,
            reason=reason,
        )
    )


def release_all(group: ClassicGroup, code: ErrorCode, step: Step) -> None:
    """Sends everyone away who waits for an answer. Nothing else of the group changes."""
    for member in group.members:
        send_away(group, member, code, step)


def send_away(group: ClassicGroup, member: Member, code: ErrorCode, step: Step) -> None:
    """Answers what a member waits for, if it does. One that is not known any more has no id to come with."""
    waiting = group.members.take_join(member)
    if waiting is not None:
        member_id = NOBODY if code is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        step.answer(waiting.ticket, join_refused(waiting.version, code, member_id))
    _answer_sync(group, member, code, step)


def _answer_sync(group: ClassicGroup, member: Member, code: ErrorCode, step: Step) -> None:
    waiting, member.syncing = member.syncing, None
    if waiting is not None:
        step.answer(waiting.ticket, sync_refused(code))
        group.keep_alive(member, step)


# Events


def _tell_start(group: ClassicGroup, cause: Cause, step: Step) -> None:
    member = cause.member
    step.tell(
        RebalanceStarted(
            group_id=group.group_id,
            generation=group.generation,
            trigger=str(cause.trigger),
            state=str(group.state),
            members=len(group.members),
            member_id=NOBODY if member is None else member.member_id,
            instance_id=None if member is None else member.instance_id,
            client_id="" if member is None else member.client_id,
            client_host="" if member is None else member.client_host,
            reason=cause.reason,
        )
    )


def _tell_end(group: ClassicGroup, removed: tuple[str, ...], step: Step) -> None:
    step.tell(
        RebalanceEnded(
            group_id=group.group_id,
            generation=group.generation,
            trigger="" if group.cause is None else str(group.cause.trigger),
            members=len(group.members),
            leader=group.leader,
            protocol=group.protocol or "",
            duration_ms=round(step.now_ms - group.cause_ms),
            removed=removed,
        )
    )
