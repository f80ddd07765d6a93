"""Members of a consumer group that still speak the classic protocol.

They join, sync and send heartbeats as ever, and do not notice that there is no leader: nobody has to wait,
the coordinator assigns, and each of them goes its own way to its target like the other members. The
generation that they are told is their member epoch.

    JoinGroup   says what the member wants and has; is answered at once, with no leader and no list of members
    SyncGroup   tells the assignment, in the version that the member speaks
    Heartbeat   REBALANCE_IN_PROGRESS if the member has to join again: the group has moved on, or it must give
                partitions back, or what it waits for is free
    LeaveGroup  as ever; members of the consumer protocol can be removed with it too

Whoever is told to join has its rebalance time-out to do so, and as long again to sync. A member that joins
with the eager protocol says that it has nothing, since it gave everything back before it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from quorate.coordinator.classic import Cause, Trigger
from quorate.coordinator.classic_answers import join_refused, sync_refused
from quorate.coordinator.classic_joining import Joiner
from quorate.coordinator.classic_members import NOBODY
from quorate.coordinator.classic_rebalance import prepare
from quorate.coordinator.consumer_admission import (
    Admitted,
    check_room,
    check_size,
    known_member,
    taking_the_place_of,
)
from quorate.coordinator.consumer_group import ConsumerGroup, Surroundings
from quorate.coordinator.consumer_leaving import LEFT, remove_members
from quorate.coordinator.consumer_members import ClassicMember, Member, MemberState
from quorate.coordinator.consumer_payloads import (
    assignment_bytes,
    partitions_by_id,
    read_subscription,
    version_of,
)
from quorate.coordinator.consumer_protocol import ConsumerProtocolSubscription
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.consumer_steps import may_assign, take_steps
from quorate.coordinator.effects import Ticket
from quorate.coordinator.events import MemberRefused
from quorate.coordinator.migration import downgrade, may_downgrade
from quorate.coordinator.step import Step, TimerKind
from quorate.coordinator.subscriptions import CONSUMER
from quorate.protocol.api.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["heartbeat", "join", "leave", "sync"]

_NEEDS_KNOWN_ID: Final = 4


def join(group: ConsumerGroup, joiner: Joiner, around: Surroundings, step: Step) -> None:
    """Answers JoinGroup. The group has members: an empty one is replaced by a classic group."""
    try:
        _join(group, joiner, around, step)
    except ApiError as error:
        step.answer(joiner.ticket, join_refused(joiner.caller.version, error.code))
        _tell_refused(group, joiner, error, step)


def _join(group: ConsumerGroup, joiner: Joiner, around: Surroundings, step: Step) -> None:
    request, caller, state = joiner.request, joiner.caller, group.state
    is_unknown = request.member_id == NOBODY
    member_id = joiner.new_member_id if is_unknown else request.member_id
    if around.rules.migration_policy.lower() == "disabled":
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol"
            " because the group migration is disabled.",
        )
    if request.group_instance_id is None or request.group_instance_id not in state.static:
        check_size(state, member_id, around.rules.max_size)
    _check_protocols(state, joiner)
    if is_unknown and request.group_instance_id is None and caller.version >= _NEEDS_KNOWN_ID:
        step.answer(joiner.ticket, join_refused(caller.version, ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return
    admitted = _admit(state, member_id, request.group_instance_id, is_unknown=is_unknown)
    member, subscription = admitted.member, _subscription(joiner)
    says = replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",  # classic members match expressions themselves
        classic=ClassicMember(request.session_timeout_ms, tuple(joiner.protocols)),
    )
    check_room(state, says, around.rules.metadata_max_bytes)
    replaced = admitted.replaces
    if replaced is not None and may_downgrade(state, [replaced], around.rules, staying=1):
        after = _replace_last(group, replaced, says, around, step)
    else:
        owned = partitions_by_id(subscription.owned_partitions, around.topics)
        written, after = take_steps(group, admitted, says, owned, caller, around, step)
        step.records.extend(written)
        step.cancel_timer(group.timer(TimerKind.MEMBER_JOIN, after.member_id))
        group.keep_alive(after, around.rules, step)
        step.set_timer(group.timer(TimerKind.MEMBER_SYNC, after.member_id), after.rebalance_timeout_ms)
    step.answer(
        joiner.ticket,
        JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=after.epoch,
            protocol_type=CONSUMER,
            protocol_name=joiner.protocols[0][0],
            leader=NOBODY,
            member_id=after.member_id,
            members=[],
        ),
    )


def _check_protocols(state: ConsumerGroupState, joiner: Joiner) -> None:
    """All classic members must have a protocol in common, and it must be that of consumers."""
    names = {name for name, _ in joiner.protocols}
    speaks = any(state.classic_protocol_counts[name] == state.classic_count for name in names)
    if joiner.request.protocol_type != CONSUMER or not speaks:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {joiner.request.member_id}'s protocols are not supported.",
        )


def _subscription(joiner: Joiner) -> ConsumerProtocolSubscription:
    """What the member says it wants. Nobody reads it before the member has an id."""
    try:
        return read_subscription(joiner.protocols[0][1])
    except ValueError as error:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Malformed embedded consumer protocol: {error}."
        ) from error


def _admit(
    state: ConsumerGroupState, member_id: str, instance_id: str | None, *, is_unknown: bool
) -> Admitted:
    if instance_id is None:
        known = state.members.get(member_id)
        return Admitted(Member(member_id=member_id) if known is None else known)
    if not is_unknown:
        return Admitted(known_member(state, member_id, instance_id))
    holder = state.static_member(instance_id)
    if holder is None:
        return Admitted(Member(member_id=member_id))
    return taking_the_place_of(holder, member_id)


def _replace_last(
    group: ConsumerGroup, replaced: Member, says: Member, around: Surroundings, step: Step
) -> Member:
    """A static member comes back with the classic protocol, and was the last with the other one."""
    classic = downgrade(group, [replaced], around, step, joining=says)
    if says.topic_names != group.state.topics_of(replaced):
        prepare(classic, Cause(Trigger.CHANGED, classic.members[says.member_id]), step)
    return replace(says, epoch=classic.generation)


def sync(
    group: ConsumerGroup, ticket: Ticket, request: SyncGroupRequest, around: Surroundings, step: Step
) -> None:
    """Answers SyncGroup at once: the assignment is the coordinator's own."""
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        _check_sync_protocol(member, request)
        if (
            _is_behind(group.state, member, around, step)
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            _await_join(group, member, step)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "The group has moved on: the member must rejoin.")
        assignment = assignment_bytes(
            {topic_id: held.keys() for topic_id, held in member.assigned.items()},
            around.topics,
            _version(member),
        )
    except ApiError as error:
        step.answer(ticket, sync_refused(error.code))
        return
    step.cancel_timer(group.timer(TimerKind.MEMBER_SYNC, member.member_id))
    group.keep_alive(member, around.rules, step)
    step.read_uncommitted()
    step.answer(
        ticket,
        SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment,
        ),
    )


def heartbeat(
    group: ConsumerGroup, ticket: Ticket, request: HeartbeatRequest, around: Surroundings, step: Step
) -> None:
    """Answers Heartbeat."""
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
    except ApiError as error:
        step.answer(ticket, HeartbeatResponse(error_code=error.code))
        return
    group.keep_alive(member, around.rules, step)
    code = ErrorCode.NONE
    if _must_rejoin(group.state, member, around, step):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        _await_join(group, member, step)
    step.answer(ticket, HeartbeatResponse(error_code=code))


def _is_behind(state: ConsumerGroupState, member: Member, around: Surroundings, step: Step) -> bool:
    """Whether it would get on by joining again: there is a newer target, or may be one by now. If that has to
    wait the member would only join again and again."""
    return member.epoch < state.target_epoch or (
        member.epoch < state.epoch and may_assign(state, around.rules.assignment_interval_ms, step.wall_ms)
    )


def _must_rejoin(state: ConsumerGroupState, member: Member, around: Surroundings, step: Step) -> bool:
    if _is_behind(state, member, around, step) or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not state.waits_for_others(member)


def _await_join(group: ConsumerGroup, member: Member, step: Step) -> None:
    """The time to join runs from the first time that the member was told, not from the last."""
    timer = group.timer(TimerKind.MEMBER_JOIN, member.member_id)
    if timer not in step.deadlines:
        step.set_timer(timer, member.rebalance_timeout_ms)


def leave(
    group: ConsumerGroup,
    leaving: Iterable[LeaveGroupRequest.MemberIdentity],
    around: Surroundings,
    step: Step,
) -> list[LeaveGroupResponse.MemberResponse]:
    """Members go, on their own or because somebody removes them. The epoch goes up once for all."""
    gone: dict[str, Member] = {}
    answers = []
    for one in leaving:
        code = ErrorCode.NONE
        try:
            member = _leaving_member(group.state, one)
            gone[member.member_id] = member
        except ApiError as error:
            code = error.code
        answers.append(
            LeaveGroupResponse.MemberResponse(
                member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code
            )
        )
    if gone:
        remove_members(group, list(gone.values()), LEFT, around, step)
    return answers


def _leaving_member(state: ConsumerGroupState, one: LeaveGroupRequest.MemberIdentity) -> Member:
    """Whoever administers a group names a static member by its instance id alone."""
    if one.member_id == NOBODY and one.group_instance_id is not None:
        member = state.static_member(one.group_instance_id)
        if member is not None:
            return member
    return known_member(state, one.member_id, one.group_instance_id)


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    member = known_member(group.state, member_id, instance_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.epoch:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The generation {generation} is not the epoch {member.epoch} of member {member.member_id}.",
        )


def _check_sync_protocol(member: Member, request: SyncGroupRequest) -> None:
    chosen = _protocol(member)[0]
    is_other_type = request.protocol_type is not None and request.protocol_type != CONSUMER
    is_other = request.protocol_name is not None and request.protocol_name != chosen
    if is_other_type or is_other:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The member was told to speak {CONSUMER} {chosen},"
            f" not {request.protocol_type} {request.protocol_name}.",
        )


def _protocol(member: Member) -> tuple[str, bytes]:
    """The protocol that it likes best: the one whose name it was told."""
    assert member.classic is not None, "only classic members get here"
    return member.classic.protocols[0] if member.classic.protocols else ("", b"")


def _version(member: Member) -> int:
    try:
        return version_of(_protocol(member)[1])
    except ValueError:
        return 0


def _tell_refused(group: ConsumerGroup, joiner: Joiner, error: ApiError, step: Step) -> None:
    step.tell(
        MemberRefused(
            group_id=group.group_id,
            member_id=joiner.request.member_id,
            client_id=joiner.caller.client_id,
            client_host=joiner.caller.client_host,
            error=error.code.name,
            reason=error.message,
        )
    )
