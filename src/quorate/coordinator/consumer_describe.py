"""What a consumer group shows of itself, and whom it lets commit offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from quorate.coordinator.classic import ClassicGroup
from quorate.coordinator.consumer_group import ConsumerGroup, Surroundings
from quorate.coordinator.consumer_members import Member
from quorate.coordinator.topics_view import TopicsView
from quorate.protocol.api.groups import ConsumerGroupDescribeResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

__all__ = [
    "CommitCheck",
    "check_offset_commit",
    "check_offset_fetch",
    "check_txn_offset_commit",
    "describe",
    "describe_missing",
]

Described = ConsumerGroupDescribeResponse.DescribedGroup
Assignment = Described.Member.Assignment

CommitCheck = Callable[[Uuid, int], ErrorCode]
"""Whether the offset of a partition may be committed."""

CLASSIC_TYPE: Final = 0
CONSUMER_TYPE: Final = 1
COMMIT_VERSION_MIN: Final = 9
"""Before, a commit could not say a member epoch."""


def describe(group: ConsumerGroup, around: Surroundings) -> ConsumerGroupDescribeResponse.DescribedGroup:
    """A row of ConsumerGroupDescribe. Topics that are gone are left out."""
    state = group.state
    return Described(
        error_code=ErrorCode.NONE,
        group_id=state.group_id,
        group_state=state.phase,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=state.preferred_assignor(around.rules.assignors[0]),
        members=[
            _member(group, state.members[member_id], around.topics) for member_id in sorted(state.members)
        ],
    )


def describe_missing(
    group_id: str, classic: ClassicGroup | None
) -> ConsumerGroupDescribeResponse.DescribedGroup:
    """The row of a group that is not there, or is of the other protocol."""
    reason = "not found" if classic is None else "is not a consumer group"
    return Described(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {reason}.",
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(group: ConsumerGroup, member: Member, topics: TopicsView) -> Described.Member:
    holds: dict[Uuid, set[int]] = {}
    for held in (member.assigned, member.pending_revocation):
        for topic_id, partitions in held.items():
            holds.setdefault(topic_id, set()).update(partitions)
    return Described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_shown(holds, topics),
        target_assignment=_shown(group.state.target_of(member), topics),
        member_type=CONSUMER_TYPE if member.classic is None else CLASSIC_TYPE,
    )


def _shown(partitions: Mapping[Uuid, AbstractSet[int]], topics: TopicsView) -> Assignment:
    listed = []
    for topic_id in sorted(partitions):
        topic = topics.by_id(topic_id)
        if topic is not None:
            listed.append(
                Assignment.TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id])
                )
            )
    return Assignment(topic_partitions=listed)


# Offsets


def check_offset_commit(group: ConsumerGroup, member_id: str, epoch: int, version: int) -> CommitCheck | None:
    """Whose commit this is must be clear, or `ApiError` is raised. The answer judges each partition;
    None if all are taken.

    A member that commits at an older epoch may do so for what it has held since then: it has not heard of its
    new epoch yet, and nobody else can have got the partition meanwhile.
    """
    if epoch < 0 and group.state.is_empty:
        return None
    member = _member_of(group, member_id)
    if member.classic is None and version < COMMIT_VERSION_MIN:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"OffsetCommit version {COMMIT_VERSION_MIN} or above must be used by members"
            " using the consumer group protocol.",
        )
    return _commit_check(member, epoch)


def check_txn_offset_commit(
    group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int
) -> CommitCheck | None:
    """The same within a transaction. A producer need not be a member of the group it commits for."""
    if epoch < 0 and (group.state.is_empty or (not member_id and instance_id is None)):
        return None
    return _commit_check(_member_of(group, member_id), epoch)


def check_offset_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raises `ApiError` if a member that names itself is none, or is at another epoch."""
    if member_id is None and epoch < 0:
        return
    member = _member_of(group, member_id or "")
    if epoch != member.epoch:
        raise _stale(member, f"The received member epoch {epoch} does not match the expected {member.epoch}.")


def _commit_check(member: Member, epoch: int) -> CommitCheck | None:
    if epoch == member.epoch:
        return None
    if epoch > member.epoch:
        raise _stale(member, f"The received member epoch {epoch} is newer than the current {member.epoch}.")

    def check(topic_id: Uuid, partition: int) -> ErrorCode:
        since = member.assignment_epoch(topic_id, partition)
        return _stale_code(member) if since is None or epoch < since else ErrorCode.NONE

    return check


def _member_of(group: ConsumerGroup, member_id: str) -> Member:
    member = group.state.members.get(member_id)
    if member is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def _stale_code(member: Member) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _stale(member: Member, message: str) -> ApiError:
    return ApiError(_stale_code(member), message)
