"""Share groups: consumers that share partitions record by record, and where their state is kept."""

from quorate.protocol.message import Request, Response, Struct, field
from quorate.protocol.types import Array, Bool, Int8, Int16, Int32, Int64, Records, String, Uuid


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+", listeners="broker"):
    """A consumer joins, lives in, and leaves a share group."""

    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = None
    subscribed_topic_names: Array[String] | None = None


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    class Assignment(Struct):
        class TopicPartitions(Struct):
            topic_id: Uuid
            partitions: Array[Int32]

        topic_partitions: Array[TopicPartitions]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


class ShareGroupDescribeRequest(Request, key=77, versions="1", flexible="0+", listeners="broker"):
    """The state of share groups, member by member."""

    group_ids: Array[String]
    include_authorized_operations: Bool


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    class DescribedGroup(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: Uuid
                    topic_name: String
                    partitions: Array[Int32]

                topic_partitions: Array[TopicPartitions]

            member_id: String
            rack_id: String | None = None
            member_epoch: Int32
            client_id: String
            client_host: String
            subscribed_topic_names: Array[String]
            assignment: Assignment

        error_code: Int16
        error_message: String | None = None
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: String
        members: Array[Member]
        authorized_operations: Int32 = -0x80000000

    throttle_time_ms: Int32
    groups: Array[DescribedGroup]


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+", listeners="broker"):
    """Acquires records of share partitions, and acknowledges earlier ones."""

    class FetchTopic(Struct):
        class FetchPartition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: Int64
                last_offset: Int64
                acknowledge_types: Array[Int8]

            partition_index: Int32
            partition_max_bytes: Int32 = field(default=0, until=0)
            acknowledgement_batches: Array[AcknowledgementBatch]

        topic_id: Uuid
        partitions: Array[FetchPartition]

    class ForgottenTopic(Struct):
        topic_id: Uuid
        partitions: Array[Int32]

    group_id: String | None = None
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = field(default=0, since=2, ignorable=True)
    is_renew_ack: Bool = field(default=False, since=2)
    topics: Array[FetchTopic]
    forgotten_topics_data: Array[ForgottenTopic]


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    class ShareFetchableTopicResponse(Struct):
        class PartitionData(Struct):
            class LeaderIdAndEpoch(Struct):
                leader_id: Int32
                leader_epoch: Int32

            class AcquiredRecords(Struct):
                first_offset: Int64
                last_offset: Int64
                delivery_count: Int16

            partition_index: Int32
            error_code: Int16
            error_message: String | None = None
            acknowledge_error_code: Int16
            acknowledge_error_message: String | None = None
            current_leader: LeaderIdAndEpoch
            records: Records | None = field(nullable="0")
            acquired_records: Array[AcquiredRecords]

        topic_id: Uuid
        partitions: Array[PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32
    responses: Array[ShareFetchableTopicResponse]
    node_endpoints: Array[NodeEndpoint]


class ShareAcknowledgeRequest(Request, key=79, versions="1-2", flexible="0+", listeners="broker"):
    """Acknowledges, releases or rejects acquired records."""

    class AcknowledgeTopic(Struct):
        class AcknowledgePartition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: Int64
                last_offset: Int64
                acknowledge_types: Array[Int8]

            partition_index: Int32
            acknowledgement_batches: Array[AcknowledgementBatch]

        topic_id: Uuid
        partitions: Array[AcknowledgePartition]

    group_id: String | None = None
    member_id: String | None
    share_session_epoch: Int32
    is_renew_ack: Bool = field(default=False, since=2)
    topics: Array[AcknowledgeTopic]


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    class TopicResponse(Struct):
        class PartitionData(Struct):
            class LeaderIdAndEpoch(Struct):
                leader_id: Int32
                leader_epoch: Int32

            partition_index: Int32
            error_code: Int16
            error_message: String | None = None
            current_leader: LeaderIdAndEpoch

        topic_id: Uuid
        partitions: Array[PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = field(default=0, since=2, ignorable=True)
    responses: Array[TopicResponse]
    node_endpoints: Array[NodeEndpoint]


class InitializeShareGroupStateRequest(Request, key=83, versions="0", flexible="0+", listeners="broker"):
    """Starts the persistent state of share partitions."""

    class InitializeStateData(Struct):
        class PartitionData(Struct):
            partition: Int32
            state_epoch: Int32
            start_offset: Int64

        topic_id: Uuid
        partitions: Array[PartitionData]

    group_id: String
    topics: Array[InitializeStateData]


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    class InitializeStateResult(Struct):
        class PartitionResult(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = None

        topic_id: Uuid
        partitions: Array[PartitionResult]

    results: Array[InitializeStateResult]


class ReadShareGroupStateRequest(Request, key=84, versions="0", flexible="0+", listeners="broker"):
    """Reads the persistent state of share partitions."""

    class ReadStateData(Struct):
        class PartitionData(Struct):
            partition: Int32
            leader_epoch: Int32

        topic_id: Uuid
        partitions: Array[PartitionData]

    group_id: String
    topics: Array[ReadStateData]


class ReadShareGroupStateResponse(Response, key=84, versions="0", flexible="0+"):
    class ReadStateResult(Struct):
        class PartitionResult(Struct):
            class StateBatch(Struct):
                first_offset: Int64
                last_offset: Int64
                delivery_state: Int8
                delivery_count: Int16

            partition: Int32
            error_code: Int16
            error_message: String | None = None
            state_epoch: Int32
            start_offset: Int64
            state_batches: Array[StateBatch]

        topic_id: Uuid
        partitions: Array[PartitionResult]

    results: Array[ReadStateResult]


class WriteShareGroupStateRequest(Request, key=85, versions="0-1", flexible="0+", listeners="broker"):
    """Writes the persistent state of share partitions."""

    class WriteStateData(Struct):
        class PartitionData(Struct):
            class StateBatch(Struct):
                first_offset: Int64
                last_offset: Int64
                delivery_state: Int8
                delivery_count: Int16

            partition: Int32
            state_epoch: Int32
            leader_epoch: Int32
            start_offset: Int64
            delivery_complete_count: Int32 = field(default=-1, since=1, ignorable=True)
            state_batches: Array[StateBatch]

        topic_id: Uuid
        partitions: Array[PartitionData]

    group_id: String
    topics: Array[WriteStateData]


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    class WriteStateResult(Struct):
        class PartitionResult(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = None

        topic_id: Uuid
        partitions: Array[PartitionResult]

    results: Array[WriteStateResult]


class DeleteShareGroupStateRequest(Request, key=86, versions="0", flexible="0+", listeners="broker"):
    """Deletes the persistent state of share partitions."""

    class DeleteStateData(Struct):
        class PartitionData(Struct):
            partition: Int32

        topic_id: Uuid
        partitions: Array[PartitionData]

    group_id: String
    topics: Array[DeleteStateData]


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    class DeleteStateResult(Struct):
        class PartitionResult(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = None

        topic_id: Uuid
        partitions: Array[PartitionResult]

    results: Array[DeleteStateResult]


class ReadShareGroupStateSummaryRequest(Request, key=87, versions="0-1", flexible="0+", listeners="broker"):
    """Reads where share partitions start, without their state batches."""

    class ReadStateSummaryData(Struct):
        class PartitionData(Struct):
            partition: Int32
            leader_epoch: Int32

        topic_id: Uuid
        partitions: Array[PartitionData]

    group_id: String
    topics: Array[ReadStateSummaryData]


class ReadShareGroupStateSummaryResponse(Response, key=87, versions="0-1", flexible="0+"):
    class ReadStateSummaryResult(Struct):
        class PartitionResult(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = None
            state_epoch: Int32
            leader_epoch: Int32
            start_offset: Int64
            delivery_complete_count: Int32 = field(default=-1, since=1, ignorable=True)

        topic_id: Uuid
        partitions: Array[PartitionResult]

    results: Array[ReadStateSummaryResult]


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+", listeners="broker"):
    """Where do the share partitions of a group start?"""

    class Group(Struct):
        class Topic(Struct):
            topic_name: String
            partitions: Array[Int32]

        group_id: String
        topics: Array[Topic] | None

    groups: Array[Group]


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    class Group(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: Int32
                start_offset: Int64
                leader_epoch: Int32
                lag: Int64 = field(default=-1, since=1, ignorable=True)
                error_code: Int16
                error_message: String | None = None

            topic_name: String
            topic_id: Uuid
            partitions: Array[Partition]

        group_id: String
        topics: Array[Topic]
        error_code: Int16
        error_message: String | None = None

    throttle_time_ms: Int32
    groups: Array[Group]


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+", listeners="broker"):
    """Moves the start of share partitions."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            start_offset: Int64

        topic_name: String
        partitions: Array[Partition]

    group_id: String
    topics: Array[Topic]


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16
            error_message: String | None = None

        topic_name: String
        topic_id: Uuid
        partitions: Array[Partition]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    responses: Array[Topic]


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+", listeners="broker"):
    """Forgets the starts of share partitions."""

    class Topic(Struct):
        topic_name: String

    group_id: String
    topics: Array[Topic]


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    class Topic(Struct):
        topic_name: String
        topic_id: Uuid
        error_code: Int16
        error_message: String | None = None

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    responses: Array[Topic]
