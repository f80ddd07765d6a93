"""The records of a consumer group, as Kafka 4.3 writes them. Lists are sorted: equal states write equally."""

from __future__ import annotations

from collections.abc import Iterable

from quorate.coordinator.consumer_members import ClassicMember, Held, Member, Partitions
from quorate.coordinator.effects import LogRecord
from quorate.coordinator.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

__all__ = [
    "current_assignment",
    "group_epoch",
    "group_tombstones",
    "member_metadata",
    "member_tombstones",
    "partition_metadata_tombstone",
    "regex_tombstone",
    "resolved_regex",
    "target_assignment",
    "target_epoch",
]


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> LogRecord:
    return LogRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_metadata(group_id: str, member: Member) -> LogRecord:
    return LogRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=_classic(member.classic),
        ),
    )


def target_epoch(group_id: str, epoch: int, wall_ms: int) -> LogRecord:
    return LogRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms),
    )


def target_assignment(group_id: str, member_id: str, partitions: Partitions) -> LogRecord:
    topic_partition = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    return LogRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                topic_partition(topic_id=topic_id, partitions=sorted(partitions[topic_id]))
                for topic_id in sorted(partitions)
            ]
        ),
    )


def current_assignment(group_id: str, member: Member) -> LogRecord:
    return LogRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state.value,
            assigned_partitions=_with_epochs(member.assigned),
            partitions_pending_revocation=_with_epochs(member.pending_revocation),
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[LogRecord]:
    """The member is no more: first its partitions, then its target, then itself."""
    return [
        LogRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        LogRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        LogRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def resolved_regex(
    group_id: str, expression: str, topics: Iterable[str], version: int, wall_ms: int
) -> LogRecord:
    return LogRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=wall_ms),
    )


def regex_tombstone(group_id: str, expression: str) -> LogRecord:
    return LogRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression), None
    )


def partition_metadata_tombstone(group_id: str) -> LogRecord:
    """What Kafka up to 4.0 noted of the topics is replaced by the hash in the group's own record."""
    return LogRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def group_tombstones(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str], *, has_partition_metadata: bool
) -> list[LogRecord]:
    """The whole group is no more."""
    members = sorted(member_ids)
    records = [
        LogRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        for member_id in members
    ]
    records += [
        LogRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        for member_id in members
    ]
    records.append(LogRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    records += [
        LogRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
        for member_id in members
    ]
    records += [regex_tombstone(group_id, expression) for expression in sorted(regexes)]
    if has_partition_metadata:
        records.append(partition_metadata_tombstone(group_id))
    records.append(LogRecord(ConsumerGroupMetadataKey(group_id=group_id), None))
    return records


def _classic(classic: ClassicMember | None) -> ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None:
    if classic is None:
        return None
    metadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
    return metadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            metadata.ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols
        ],
    )


def _with_epochs(held: Held) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    topic_partitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    listed = []
    for topic_id in sorted(held):
        partitions = sorted(held[topic_id])
        epochs = [held[topic_id][partition] for partition in partitions]
        listed.append(topic_partitions(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs))
    return listed
