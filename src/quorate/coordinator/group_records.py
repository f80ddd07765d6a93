"""The log of the group coordinator, `__consumer_offsets`: offsets, classic groups and consumer groups."""

from quorate.protocol.message import Record, Struct, field
from quorate.protocol.types import ZERO_UUID, Array, Bytes, Int8, Int32, Int64, String, Uuid


class LegacyOffsetCommitKey(Record, key=0, versions="0", flexible="none"):
    """An offset of a group, in the oldest form of key."""

    group: String
    topic: String
    partition: Int32


class LegacyOffsetCommitValue(Record, key=0, versions="0", flexible="none"):
    """An offset of a group, in its oldest form."""

    offset: Int64
    metadata: String
    commit_timestamp: Int64


class OffsetCommitKey(Record, key=1, versions="0", flexible="none"):
    """A partition whose offset a group has committed."""

    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(Record, key=1, versions="0-4", flexible="4+"):
    """The committed offset."""

    offset: Int64
    leader_epoch: Int32 = field(default=-1, since=3, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(default=-1, since=1, until=1, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=4, tag=0, ignorable=True)


class GroupMetadataKey(Record, key=2, versions="0", flexible="none"):
    """A classic group."""

    group: String


class GroupMetadataValue(Record, key=2, versions="0-4", flexible="4+"):
    """A classic group in full: generation, leader, members and their assignments."""

    class MemberMetadata(Struct):
        member_id: String
        group_instance_id: String | None = field(default=None, since=3, ignorable=True)
        client_id: String
        client_host: String
        rebalance_timeout: Int32 = field(default=-1, since=1, ignorable=True)
        session_timeout: Int32
        subscription: Bytes
        assignment: Bytes

    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field(default=-1, since=2, ignorable=True)
    members: Array[MemberMetadata]


class ConsumerGroupMetadataKey(Record, key=3, versions="0", flexible="none"):
    """A consumer group."""

    group_id: String


class ConsumerGroupMetadataValue(Record, key=3, versions="0", flexible="0+"):
    """The epoch of a consumer group."""

    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Record, key=4, versions="0", flexible="none"):
    """A consumer group whose subscribed topics were noted."""

    group_id: String


class ConsumerGroupPartitionMetadataValue(Record, key=4, versions="0", flexible="0+"):
    """The subscribed topics as the group last saw them. No longer written by Kafka 4.1."""

    class TopicMetadata(Struct):
        class PartitionMetadata(Struct):
            partition: Int32
            racks: Array[String]

        topic_id: Uuid
        topic_name: String
        num_partitions: Int32
        partition_metadata: Array[PartitionMetadata]

    topics: Array[TopicMetadata]


class ConsumerGroupMemberMetadataKey(Record, key=5, versions="0", flexible="none"):
    """A member of a consumer group."""

    group_id: String
    member_id: String


class ConsumerGroupMemberMetadataValue(Record, key=5, versions="0", flexible="0+"):
    """What a member of a consumer group said about itself."""

    class ClassicMemberMetadata(Struct):
        class ClassicProtocol(Struct):
            name: String
            metadata: Bytes

        session_timeout_ms: Int32 = 0
        supported_protocols: Array[ClassicProtocol] = field(default=())

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(
        default=ClassicMemberMetadata, nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Record, key=6, versions="0", flexible="none"):
    """A consumer group with a target assignment."""

    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(Record, key=6, versions="0", flexible="0+"):
    """The epoch of the target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Record, key=7, versions="0", flexible="none"):
    """A member with a target assignment."""

    group_id: String
    member_id: String


class ConsumerGroupTargetAssignmentMemberValue(Record, key=7, versions="0", flexible="0+"):
    """The partitions that a member shall have."""

    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: Array[Int32]

    topic_partitions: Array[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(Record, key=8, versions="0", flexible="none"):
    """A member with partitions."""

    group_id: String
    member_id: String


class ConsumerGroupCurrentMemberAssignmentValue(Record, key=8, versions="0", flexible="0+"):
    """The partitions that a member has, and those that it must give back first."""

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]
        assignment_epochs: Array[Int32] | None = field(default=(), tag=0)

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[TopicPartitions]
    partitions_pending_revocation: Array[TopicPartitions]


class ConsumerGroupRegularExpressionKey(Record, key=16, versions="0", flexible="none"):
    """A regular expression that a group subscribes to."""

    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(Record, key=16, versions="0", flexible="0+"):
    """The topics that the expression matched."""

    topics: Array[String]
    version: Int64
    timestamp: Int64
