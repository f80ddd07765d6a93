"""SyncGroup, Heartbeat and LeaveGroup to a classic group, and whether it takes a commit.

| state               | heartbeat             | sync                  | commit of a member    | of nobody |
|---------------------|-----------------------|-----------------------|-----------------------|-----------|
| Empty               | UNKNOWN_MEMBER_ID     | UNKNOWN_MEMBER_ID     | UNKNOWN_MEMBER_ID     | taken     |
| PreparingRebalance  | REBALANCE_IN_PROGRESS | REBALANCE_IN_PROGRESS | taken                 | refused   |
| CompletingRebalance | taken                 | waits for the leader  | REBALANCE_IN_PROGRESS | refused   |
| Stable              | taken                 | the assignment        | taken                 | refused   |

Refused is UNKNOWN_MEMBER_ID. Before all that, a wrong generation is ILLEGAL_GENERATION, and a fenced member
is told FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.coordinator.classic import Cause, ClassicGroup, State, Trigger
from quorate.coordinator.classic_answers import assigned, sync_refused
from quorate.coordinator.classic_members import NOBODY, Member, Waiting
from quorate.coordinator.classic_rebalance import complete_if_all_joined, hand_out, prepare, remove
from quorate.coordinator.effects import Caller, Ticket
from quorate.coordinator.step import REASON_MAX, Step, TimerKind
from quorate.protocol.api.groups import (
    HeartbeatRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["check_commit", "check_txn_commit", "heartbeat", "leave", "sync"]


def sync(group: ClassicGroup, ticket: Ticket, request: SyncGroupRequest, caller: Caller, step: Step) -> None:
    """Answers, or lets the request wait for the leader's. Raises `ApiError`."""
    if group.state is State.EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the group is empty")
    member = group.check(request.member_id, request.group_instance_id, request.generation_id)
    _check_protocol(group, request)
    match group.state:
        case State.PREPARING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances")
        case State.COMPLETING:
            _note_sync(group, member, step)
            before, member.syncing = member.syncing, Waiting(ticket, caller.version)
            if before is not None:
                step.answer(before.ticket, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
            if member.member_id == group.leader:
                hand_out(
                    group, {each.member_id: bytes(each.assignment) for each in request.assignments}, step
                )
        case _:
            _note_sync(group, member, step)
            step.read_uncommitted()
            step.answer(ticket, assigned(group, member.assignment))


def _check_protocol(group: ClassicGroup, request: SyncGroupRequest) -> None:
    """Whoever says which protocol it speaks must speak the one that the group has chosen."""
    is_other_type = request.protocol_type is not None and request.protocol_type != group.protocol_type
    is_other = request.protocol_name is not None and request.protocol_name != group.protocol
    if is_other_type or is_other:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group speaks {group.protocol_type} {group.protocol},"
            f" not {request.protocol_type} {request.protocol_name}",
        )


def _note_sync(group: ClassicGroup, member: Member, step: Step) -> None:
    """The member has asked for its assignment; once all have, nobody is waited for."""
    group.awaited_syncs.discard(member.member_id)
    if not group.awaited_syncs:
        step.cancel_timer(group.timer(TimerKind.SYNC))


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, step: Step) -> ErrorCode:
    """What the member is told. Raises `ApiError` if it is none."""
    member = group.check(request.member_id, request.group_instance_id, request.generation_id)
    group.keep_alive(member, step)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE


def leave(
    group: ClassicGroup, leaving: Iterable[LeaveGroupRequest.MemberIdentity], step: Step
) -> list[LeaveGroupResponse.MemberResponse]:
    """Members go, on their own or because somebody removes them. The group rebalances once for all."""
    gone: list[Member] = []
    dropped_ids = False
    answers: list[LeaveGroupResponse.MemberResponse] = []
    reason = ""
    for one in leaving:
        reason = (one.reason or "")[:REASON_MAX]
        code = ErrorCode.NONE
        try:
            if one.member_id != NOBODY and one.member_id in group.members.pending:
                group.members.pending.pop(one.member_id, None)
                step.cancel_timer(group.session(one.member_id))
                dropped_ids = True
            else:
                member = _leaving_member(group, one)
                remove(group, member, Trigger.LEFT, step, reason)
                gone.append(member)
        except ApiError as error:
            code = error.code
        answers.append(
            LeaveGroupResponse.MemberResponse(
                member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code
            )
        )
    if group.state is State.PREPARING:
        complete_if_all_joined(group, step)
    elif (gone or dropped_ids) and group.state is not State.EMPTY:
        # As in Kafka an id that is given back ends a generation too, though nobody was a member under it.
        prepare(group, Cause(Trigger.LEFT, gone[0] if gone else None, reason), step)
    return answers


def _leaving_member(group: ClassicGroup, one: LeaveGroupRequest.MemberIdentity) -> Member:
    """Whoever administers a group names a static member by its instance id alone."""
    if one.member_id != NOBODY:
        return group.members.check(one.member_id, one.group_instance_id)
    member_id = group.members.by_instance.get(one.group_instance_id or "")
    if one.group_instance_id is None or member_id is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {one.group_instance_id}")
    return group.members[member_id]


# Commits


def check_commit(group: ClassicGroup, request: OffsetCommitRequest, step: Step) -> None:
    """Raises `ApiError` if the group does not take it. A commit of a member is a sign of life."""
    generation, member_id = request.generation_id_or_member_epoch, request.member_id
    if generation < 0 and group.state is State.EMPTY:
        return  # a consumer that belongs to no group, or somebody who sets offsets
    if not _names_member(generation, member_id, request.group_instance_id):
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group is {group.state}, only members can commit")
    member = group.check(member_id, request.group_instance_id, generation)
    if group.state is State.COMPLETING:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the assignment is not there yet")
    group.keep_alive(member, step)


def check_txn_commit(group: ClassicGroup, request: TxnOffsetCommitRequest) -> None:
    """The state does not matter here; members are checked if they say who they are."""
    if request.generation_id < 0 and group.state is State.EMPTY:
        return
    if _names_member(request.generation_id, request.member_id, request.group_instance_id):
        group.check(request.member_id, request.group_instance_id, request.generation_id)


def _names_member(generation: int, member_id: str, instance_id: str | None) -> bool:
    return generation >= 0 or member_id != NOBODY or instance_id is not None
