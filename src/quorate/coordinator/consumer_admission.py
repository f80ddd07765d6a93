"""Who may speak in a consumer group, and as whom.

    epoch 0, an id that nobody has         is a new member
    epoch 0, an id that is known           begins again, and is told what it has
    epoch 0, an instance that left (-2)    takes its place, with all that it had
    epoch 0, an instance that is in use    UNRELEASED_INSTANCE_ID, unless it is the holder itself
    its own epoch                          is heard
    its epoch before that                  is heard if what it has is still its own: it did not get the answer
    any other epoch                        FENCED_MEMBER_EPOCH: it has to drop everything and begin again
    an id that is not known                UNKNOWN_MEMBER_ID
    an instance that another id holds      FENCED_INSTANCE_ID

Whoever leaves says so with an epoch below 0: see `consumer_leaving`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from quorate.coordinator.consumer_members import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Member,
    Partitions,
    contains_all,
)
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = [
    "Admitted",
    "admit_dynamic",
    "admit_static",
    "check_epoch",
    "check_request",
    "check_room",
    "check_size",
    "known_member",
    "taking_the_place_of",
]


class Admitted(NamedTuple):
    """The member as it was before it was heard. `replaces` is the static member whose place it takes."""

    member: Member
    replaces: Member | None = None


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str]) -> None:
    """What the request alone shows to be wrong."""
    if version >= 1 or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH:
        _check_not_blank(request.member_id, "MemberId")
    _check_not_blank(request.group_id, "GroupId")
    if request.instance_id is not None:
        _check_not_blank(request.instance_id, "InstanceId")
    if request.rack_id is not None:
        _check_not_blank(request.rack_id, "RackId")
    if request.member_epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported."
            f" Supported assignors: {', '.join(assignors)}.",
        )


def check_size(state: ConsumerGroupState, member_id: str, size_max: int) -> None:
    """A member has its place; anybody else needs a free one."""
    if len(state.members) >= size_max and member_id not in state.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def check_room(state: ConsumerGroupState, says: Member, limit_bytes: int) -> None:
    """Whether the coordinator can remember what all members say, with this one. A member may always say what
    it has said before, or less."""
    before = state.members.get(says.member_id)
    more_bytes = says.said_bytes - (0 if before is None else before.said_bytes)
    if more_bytes > 0 and state.said_bytes + more_bytes > limit_bytes:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The members of the consumer group say {state.said_bytes} bytes about themselves,"
            f" and may not say {more_bytes} more.",
        )


def admit_dynamic(
    state: ConsumerGroupState, member_id: str, epoch: int, owned: Partitions | None
) -> Admitted:
    """The member that speaks without an instance id. Epoch 0 is always a beginning."""
    member = state.members.get(member_id)
    if member is None:
        if epoch != 0:
            raise _unknown(state, member_id)
        return Admitted(Member(member_id=member_id))
    check_epoch(member, epoch, owned)
    return Admitted(member)


def admit_static(
    state: ConsumerGroupState, member_id: str, instance_id: str, epoch: int, owned: Partitions | None
) -> Admitted:
    """The member that speaks with an instance id."""
    holder = state.static_member(instance_id)
    if epoch != 0:
        holder = known_member(state, member_id, instance_id)
        check_epoch(holder, epoch, owned)
        return Admitted(holder)
    if holder is None:
        known = state.members.get(member_id)
        return Admitted(Member(member_id=member_id) if known is None else known)
    if holder.member_id == member_id and holder.epoch != STATIC_LEAVE_EPOCH:
        return Admitted(holder)
    if holder.classic is None and holder.epoch != STATIC_LEAVE_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group"
            " because the instance id is owned by a member.",
        )
    return taking_the_place_of(holder, member_id)


def taking_the_place_of(holder: Member, member_id: str) -> Admitted:
    """A member with everything that a static member had, but for its id and its epochs."""
    return Admitted(replace(holder, member_id=member_id, epoch=0, previous_epoch=0), holder)


def known_member(state: ConsumerGroupState, member_id: str, instance_id: str | None) -> Member:
    """The member that must be there already."""
    if instance_id is None:
        member = state.members.get(member_id)
        if member is None:
            raise _unknown(state, member_id)
        return member
    member = state.static_member(instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id}"
            f" was fenced by member {member.member_id}.",
        )
    return member


def check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """Whether a member may speak at an epoch."""
    if epoch in {0, member.epoch}:
        return
    is_late = epoch == member.previous_epoch and owned is not None and contains_all(member.assigned, owned)
    if epoch < member.epoch and is_late:
        return
    order = "greater" if epoch > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {order} member epoch ({epoch}) than the one known by the group"
        f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _check_not_blank(text: str, name: str) -> None:
    if not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _unknown(state: ConsumerGroupState, member_id: str) -> ApiError:
    return ApiError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {state.group_id}."
    )
