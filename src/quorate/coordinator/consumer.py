"""A consumer group: members that tell what they want, and a coordinator that says who gets what.

Theory of operation. There is one request, the heartbeat. With it a member joins (epoch 0), says that it lives
and what it has, and leaves (-1; or -2, if it is static and will be back). The group counts in *epochs*:

    group epoch    goes up when there is a reason to assign anew: a member came, went, or wants other
                   topics, or the topics themselves changed
    target epoch   that of the last *target assignment*: who shall have what
    member epoch   that of the target which the member has come round to

Nobody waits for anybody: each member goes its own way to its target, one step per heartbeat (see
`consumer_reconciliation`). A partition is given to a member only when the one before has said that it gave it
back, or was put out of the group. A member that is silent for longer than the session time-out, or takes
longer than its rebalance time-out to give partitions back, is put out.

Everything that matters is in the log: the group with its epoch, the members, the target and what each member
has. The state is a fold over it (see `consumer_state`). The only things that the log does not keep are the
timers, and whether the topics must be looked at again; a coordinator that has just taken over begins with
full time-outs and looks.

How the shard uses it:

    group.apply(record)                       every record of this group's keys, loading or live
    group.begin_sessions(around, step)        once, when the log is loaded
    announce(group, request, caller, around, step)      before the heartbeat of one who comes, with others
    heartbeat(group, hearing, around, step)   ConsumerGroupHeartbeat to this group; answers always
    first_heartbeat(classic, ...)             to a name that no consumer group has; returns the group to keep
    expire(group, timer, around, step)        a timer of this group has come
    consumer_expressions.resolve(group, around, allowance, step)    its turn to look up what expressions match
    group.topics_changed(names)               topics that it subscribes to were created or deleted, or grew
    describe(group, around)                   a row of ConsumerGroupDescribe
    group.state.phase, is_empty, is_subscribed(topic)   for ListGroups, DeleteGroups, OffsetDelete and expiry
    migration.group_tombstones(group.state)   the records that delete it
    consumer_describe.check_offset_commit, check_txn_offset_commit, check_offset_fetch
    classic_in_consumer.join, sync, heartbeat, leave    requests of the classic protocol to this group

`around` is what surrounds a decision: the topics, and the rules (`consumer_rules.rules_of` of the settings
and the group's dynamic configuration). A tombstone of the group's own record ends it: then the shard drops
it. When a step converts the group to a classic one, `group.successor` is that group, to be put in its place:
see `migration`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quorate.coordinator.classic import ClassicGroup, State
from quorate.coordinator.consumer_admission import (
    admit_dynamic,
    admit_static,
    check_request,
    check_room,
    check_size,
)
from quorate.coordinator.consumer_describe import describe
from quorate.coordinator.consumer_group import ConsumerGroup, Surroundings
from quorate.coordinator.consumer_leaving import expire, leave
from quorate.coordinator.consumer_members import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Held,
    partitions_of,
)
from quorate.coordinator.consumer_says import as_it_says
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.consumer_steps import take_steps
from quorate.coordinator.effects import Caller, Ticket
from quorate.coordinator.events import MemberRefused
from quorate.coordinator.migration import release, upgraded
from quorate.coordinator.step import Step
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = [
    "ConsumerGroup",
    "Hearing",
    "Surroundings",
    "describe",
    "expire",
    "first_heartbeat",
    "heartbeat",
    "refuse_heartbeat",
]

_LEAVE_EPOCHS: Final = frozenset({LEAVE_EPOCH, STATIC_LEAVE_EPOCH})


class Hearing(NamedTuple):
    """One heartbeat, with all that is known of who sends it. `new_id` is new in the world."""

    ticket: Ticket
    request: ConsumerGroupHeartbeatRequest
    caller: Caller
    new_id: str


def heartbeat(group: ConsumerGroup, hearing: Hearing, around: Surroundings, step: Step) -> None:
    """Answers a heartbeat to a group; `migration.consumer_group_for` says which."""
    try:
        check_request(hearing.request, hearing.caller.version, around.rules.assignors)
        if hearing.request.member_epoch in _LEAVE_EPOCHS:
            leave(group, hearing, around, step)
        else:
            _hear(group, hearing, around, step)
    except ApiError as error:
        refuse_heartbeat(hearing, error, step)


def first_heartbeat(
    classic: ClassicGroup | None, hearing: Hearing, around: Surroundings, step: Step
) -> ConsumerGroup | None:
    """Answers a heartbeat to a name that no consumer group has, but a classic one may.

    Returns the group to be put under that name, or None if the heartbeat was refused.
    """
    request = hearing.request
    try:
        check_request(request, hearing.caller.version, around.rules.assignors)
        group, written = upgraded(classic, request.group_id, request.member_epoch, around, step)
    except ApiError as error:
        refuse_heartbeat(hearing, error, step)
        return None
    step.records.extend(written)
    heartbeat(group, hearing, around, step)
    if len(step.records) == len(written):
        step.records.clear()
        return None
    if classic is not None and classic.state is not State.EMPTY:
        release(classic, request.member_id or hearing.new_id, step)
    return group


def refuse_heartbeat(hearing: Hearing, error: ApiError, step: Step) -> None:
    """Answers with an error. Nothing of the step may have been written."""
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
    step.answer(hearing.ticket, response)
    request, caller = hearing.request, hearing.caller
    step.tell(
        MemberRefused(
            group_id=request.group_id,
            member_id=request.member_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            error=error.code.name,
            reason=error.message,
            request=_what(request),
        )
    )


def _what(request: ConsumerGroupHeartbeatRequest) -> str:
    """What a heartbeat is for: its epoch says so."""
    if request.member_epoch == 0:
        return "join"
    return "leave" if request.member_epoch in _LEAVE_EPOCHS else "heartbeat"


def _hear(group: ConsumerGroup, hearing: Hearing, around: Surroundings, step: Step) -> None:
    request, caller, state = hearing.request, hearing.caller, group.state
    member_id = request.member_id or hearing.new_id
    owned = None if request.topic_partitions is None else partitions_of(request.topic_partitions)
    if not _is_return(state, request):
        check_size(state, member_id, around.rules.max_size)
    if request.instance_id is None:
        admitted = admit_dynamic(state, member_id, request.member_epoch, owned)
    else:
        admitted = admit_static(state, member_id, request.instance_id, request.member_epoch, owned)
    member = admitted.member
    says = as_it_says(member, request, caller)
    if says is not member:
        check_room(state, says, around.rules.metadata_max_bytes)
    written, after = take_steps(group, admitted, says, owned, caller, around, step)
    step.records.extend(written)
    group.keep_alive(after, around.rules, step)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and owned is not None
    )
    shows = request.member_epoch == 0 or is_full or after.assigned != member.assigned
    step.answer(
        hearing.ticket,
        ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=around.rules.heartbeat_interval_ms,
            assignment=_shown(after.assigned) if shows else None,
        ),
    )


def _is_return(state: ConsumerGroupState, request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whoever takes a static member's place needs none of its own."""
    return request.instance_id is not None and request.instance_id in state.static


def _shown(held: Held) -> ConsumerGroupHeartbeatResponse.Assignment:
    assignment = ConsumerGroupHeartbeatResponse.Assignment
    return assignment(
        topic_partitions=[
            assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(held[topic_id]))
            for topic_id in sorted(held)
        ]
    )
