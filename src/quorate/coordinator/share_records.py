"""Share groups in the log of the group coordinator, and the log of the share coordinator."""

from quorate.protocol.message import Record, Struct, field
from quorate.protocol.types import Array, Int8, Int16, Int32, Int64, String, Uuid


class ShareGroupMemberMetadataKey(Record, key=10, versions="0", flexible="none"):
    """A member of a share group."""

    group_id: String
    member_id: String


class ShareGroupMemberMetadataValue(Record, key=10, versions="0", flexible="0+"):
    """What a member of a share group said about itself."""

    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]


class ShareGroupMetadataKey(Record, key=11, versions="0", flexible="none"):
    """A share group."""

    group_id: String


class ShareGroupMetadataValue(Record, key=11, versions="0", flexible="0+"):
    """The epoch of a share group."""

    epoch: Int32
    metadata_hash: Int64


class ShareGroupTargetAssignmentMetadataKey(Record, key=12, versions="0", flexible="none"):
    """A share group with a target assignment."""

    group_id: String


class ShareGroupTargetAssignmentMetadataValue(Record, key=12, versions="0", flexible="0+"):
    """The epoch of the target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0)


class ShareGroupTargetAssignmentMemberKey(Record, key=13, versions="0", flexible="none"):
    """A member with a target assignment."""

    group_id: String
    member_id: String


class ShareGroupTargetAssignmentMemberValue(Record, key=13, versions="0", flexible="0+"):
    """The partitions that a member shall have."""

    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: Array[Int32]

    topic_partitions: Array[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(Record, key=14, versions="0", flexible="none"):
    """A member with partitions."""

    group_id: String
    member_id: String


class ShareGroupCurrentMemberAssignmentValue(Record, key=14, versions="0", flexible="0+"):
    """The partitions that a member has."""

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(Record, key=15, versions="0", flexible="none"):
    """A share group whose persistent state was noted."""

    group_id: String


class ShareGroupStatePartitionMetadataValue(Record, key=15, versions="0", flexible="0+"):
    """Which share partitions have persistent state, are getting it, or are losing it."""

    class TopicPartitionsInfo(Struct):
        topic_id: Uuid
        topic_name: String
        partitions: Array[Int32]

    class TopicInfo(Struct):
        topic_id: Uuid
        topic_name: String

    initializing_topics: Array[TopicPartitionsInfo]
    initialized_topics: Array[TopicPartitionsInfo]
    deleting_topics: Array[TopicInfo]


class ShareSnapshotKey(Record, key=0, versions="0", flexible="none"):
    """A share partition with a snapshot."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareSnapshotValue(Record, key=0, versions="0", flexible="0+"):
    """The whole state of a share partition."""

    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: Array[StateBatch]


class ShareUpdateKey(Record, key=1, versions="0", flexible="none"):
    """A share partition that changed."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareUpdateValue(Record, key=1, versions="0", flexible="0+"):
    """What changed of a share partition since its snapshot."""

    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    state_batches: Array[StateBatch]
