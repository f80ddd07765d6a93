"""Streams groups in the log of the group coordinator."""

from quorate.protocol.message import Record, Struct, field
from quorate.protocol.types import Array, Int8, Int16, Int32, Int64, String, Uint16


class StreamsGroupMetadataKey(Record, key=17, versions="0", flexible="none"):
    """A streams group."""

    group_id: String


class StreamsGroupMetadataValue(Record, key=17, versions="0", flexible="0+"):
    """The epoch of a streams group."""

    class LastAssignmentConfig(Struct):
        key: String
        value: String

    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(default=-1, tag=0)
    last_assignment_configs: Array[LastAssignmentConfig] | None = field(default=(), tag=1)


class StreamsGroupMemberMetadataKey(Record, key=19, versions="0", flexible="none"):
    """A member of a streams group."""

    group_id: String
    member_id: String


class StreamsGroupMemberMetadataValue(Record, key=19, versions="0", flexible="0+"):
    """What a member of a streams group said about itself."""

    class Endpoint(Struct):
        host: String
        port: Uint16

    class KeyValue(Struct):
        key: String
        value: String

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = None
    client_tags: Array[KeyValue]


class StreamsGroupTargetAssignmentMetadataKey(Record, key=20, versions="0", flexible="none"):
    """A streams group with a target assignment."""

    group_id: String


class StreamsGroupTargetAssignmentMetadataValue(Record, key=20, versions="0", flexible="0+"):
    """The epoch of the target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0)


class StreamsGroupTargetAssignmentMemberKey(Record, key=21, versions="0", flexible="none"):
    """A member with a target assignment."""

    group_id: String
    member_id: String


class StreamsGroupTargetAssignmentMemberValue(Record, key=21, versions="0", flexible="0+"):
    """The tasks that a member shall have."""

    class TaskIds(Struct):
        subtopology_id: String
        partitions: Array[Int32]

    active_tasks: Array[TaskIds]
    standby_tasks: Array[TaskIds]
    warmup_tasks: Array[TaskIds]


class StreamsGroupCurrentMemberAssignmentKey(Record, key=22, versions="0", flexible="none"):
    """A member with tasks."""

    group_id: String
    member_id: String


class StreamsGroupCurrentMemberAssignmentValue(Record, key=22, versions="0", flexible="0+"):
    """The tasks that a member has, and those that it must give back first."""

    class TaskIds(Struct):
        subtopology_id: String
        partitions: Array[Int32]
        assignment_epochs: Array[Int32] | None = field(default=(), tag=0)

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: Array[TaskIds]
    standby_tasks: Array[TaskIds]
    warmup_tasks: Array[TaskIds]
    active_tasks_pending_revocation: Array[TaskIds]
    standby_tasks_pending_revocation: Array[TaskIds]
    warmup_tasks_pending_revocation: Array[TaskIds]


class StreamsGroupTopologyKey(Record, key=23, versions="0", flexible="none"):
    """A streams group with a topology."""

    group_id: String


class StreamsGroupTopologyValue(Record, key=23, versions="0", flexible="0+"):
    """The topology: its sub-topologies and their topics."""

    class Subtopology(Struct):
        class TopicInfo(Struct):
            class TopicConfig(Struct):
                key: String
                value: String

            name: String
            partitions: Int32
            replication_factor: Int16
            topic_configs: Array[TopicConfig]

        class CopartitionGroup(Struct):
            source_topics: Array[Int16]
            source_topic_regex: Array[Int16]
            repartition_source_topics: Array[Int16]

        subtopology_id: String
        source_topics: Array[String]
        source_topic_regex: Array[String]
        state_changelog_topics: Array[TopicInfo]
        repartition_sink_topics: Array[String]
        repartition_source_topics: Array[TopicInfo]
        copartition_groups: Array[CopartitionGroup]

    epoch: Int32
    subtopologies: Array[Subtopology]
