"""The data path: records in, records out, and the offsets that delimit them."""

from quorate.protocol.message import Request, Response, Struct, field
from quorate.protocol.types import ZERO_UUID, Array, Int8, Int16, Int32, Int64, Records, String, Uuid


class ProduceRequest(Request, key=0, versions="0-13", flexible="9+", served="3-13", listeners="broker"):
    """Appends record batches to partitions."""

    class TopicProduceData(Struct):
        class PartitionProduceData(Struct):
            index: Int32
            records: Records | None

        name: String = field(default="", until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partition_data: Array[PartitionProduceData]

    transactional_id: String | None = field(default=None, since=3)
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[TopicProduceData]


class ProduceResponse(Response, key=0, versions="0-13", flexible="9+"):
    class TopicProduceResponse(Struct):
        class PartitionProduceResponse(Struct):
            class BatchIndexAndErrorMessage(Struct):
                batch_index: Int32
                batch_index_error_message: String | None = None

            class LeaderIdAndEpoch(Struct):
                leader_id: Int32 = -1
                leader_epoch: Int32 = -1

            index: Int32
            error_code: Int16
            base_offset: Int64
            log_append_time_ms: Int64 = field(default=-1, since=2, ignorable=True)
            log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
            record_errors: Array[BatchIndexAndErrorMessage] = field(default=(), since=8, ignorable=True)
            error_message: String | None = field(default=None, since=8, ignorable=True)
            current_leader: LeaderIdAndEpoch | None = field(default=None, since=10, tag=0)

        name: String = field(default="", until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partition_responses: Array[PartitionProduceResponse]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None

    responses: Array[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=10, tag=0)


class FetchRequest(
    Request, key=1, versions="0-18", flexible="12+", served="4-18", listeners="broker controller"
):
    """Reads record batches. Consumers, followers and the members of the metadata quorum all use it."""

    class ReplicaState(Struct):
        replica_id: Int32 = -1
        replica_epoch: Int64 = -1

    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            current_leader_epoch: Int32 = field(default=-1, since=9, ignorable=True)
            fetch_offset: Int64
            last_fetched_epoch: Int32 = field(default=-1, since=12)
            log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
            partition_max_bytes: Int32
            replica_directory_id: Uuid = field(default=ZERO_UUID, since=17, tag=0, ignorable=True)
            high_watermark: Int64 = field(default=0x7FFFFFFFFFFFFFFF, since=18, tag=1, ignorable=True)

        topic: String = field(default="", until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partitions: Array[Partition]

    class ForgottenTopic(Struct):
        topic: String = field(default="", until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partitions: Array[Int32]

    cluster_id: String | None = field(default=None, since=12, tag=0, ignorable=True)
    replica_id: Int32 = field(default=-1, until=14)
    replica_state: ReplicaState | None = field(default=None, since=15, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFFFFFF, since=3, ignorable=True)
    isolation_level: Int8 = field(default=0, since=4, ignorable=True)
    session_id: Int32 = field(default=0, since=7, ignorable=True)
    session_epoch: Int32 = field(default=-1, since=7, ignorable=True)
    topics: Array[Topic]
    forgotten_topics_data: Array[ForgottenTopic] = field(default=(), since=7)
    rack_id: String = field(default="", since=11, ignorable=True)


class FetchResponse(Response, key=1, versions="0-18", flexible="12+"):
    class FetchableTopicResponse(Struct):
        class PartitionData(Struct):
            class EpochEndOffset(Struct):
                epoch: Int32 = -1
                end_offset: Int64 = -1

            class LeaderIdAndEpoch(Struct):
                leader_id: Int32 = -1
                leader_epoch: Int32 = -1

            class SnapshotId(Struct):
                end_offset: Int64 = -1
                epoch: Int32 = -1

            class AbortedTransaction(Struct):
                producer_id: Int64
                first_offset: Int64

            partition_index: Int32
            error_code: Int16
            high_watermark: Int64
            last_stable_offset: Int64 = field(default=-1, since=4, ignorable=True)
            log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
            diverging_epoch: EpochEndOffset | None = field(default=None, since=12, tag=0)
            current_leader: LeaderIdAndEpoch | None = field(default=None, since=12, tag=1)
            snapshot_id: SnapshotId | None = field(default=None, since=12, tag=2)
            aborted_transactions: Array[AbortedTransaction] | None = field(
                default=(), since=4, ignorable=True
            )
            preferred_read_replica: Int32 = field(default=-1, since=11)
            records: Records | None

        topic: String = field(default="", until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partitions: Array[PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0, since=7, ignorable=True)
    session_id: Int32 = field(default=0, since=7)
    responses: Array[FetchableTopicResponse]
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=16, tag=0)


class ListOffsetsRequest(Request, key=2, versions="0-11", flexible="6+", served="1-11", listeners="broker"):
    """Which offset belongs to this timestamp, or to the beginning or end of a partition?"""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            current_leader_epoch: Int32 = field(default=-1, since=4, ignorable=True)
            timestamp: Int64
            max_num_offsets: Int32 = field(default=1, until=0)

        name: String
        partitions: Array[Partition]

    replica_id: Int32
    isolation_level: Int8 = field(default=0, since=2)
    topics: Array[Topic]
    timeout_ms: Int32 = field(default=0, since=10, ignorable=True)


class ListOffsetsResponse(Response, key=2, versions="0-11", flexible="6+"):
    class TopicResponse(Struct):
        class PartitionResponse(Struct):
            partition_index: Int32
            error_code: Int16
            old_style_offsets: Array[Int64] = field(default=(), until=0)
            timestamp: Int64 = field(default=-1, since=1)
            offset: Int64 = field(default=-1, since=1)
            leader_epoch: Int32 = field(default=-1, since=4)

        name: String
        partitions: Array[PartitionResponse]

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    topics: Array[TopicResponse]


class OffsetForLeaderEpochRequest(
    Request, key=23, versions="0-4", flexible="4+", served="2-4", listeners="broker"
):
    """Where did this leader epoch end? Tells a follower or consumer where its log diverged."""

    class OffsetForLeaderTopic(Struct):
        class OffsetForLeaderPartition(Struct):
            partition: Int32
            current_leader_epoch: Int32 = field(default=-1, since=2, ignorable=True)
            leader_epoch: Int32

        topic: String
        partitions: Array[OffsetForLeaderPartition]

    replica_id: Int32 = field(default=-2, since=3, ignorable=True)
    topics: Array[OffsetForLeaderTopic]


class OffsetForLeaderEpochResponse(Response, key=23, versions="0-4", flexible="4+"):
    class OffsetForLeaderTopicResult(Struct):
        class EpochEndOffset(Struct):
            error_code: Int16
            partition: Int32
            leader_epoch: Int32 = field(default=-1, since=1, ignorable=True)
            end_offset: Int64 = -1

        topic: String
        partitions: Array[EpochEndOffset]

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    topics: Array[OffsetForLeaderTopicResult]


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+", listeners="broker"):
    """Moves the start of partitions forward."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            offset: Int64

        name: String
        partitions: Array[Partition]

    topics: Array[Topic]
    timeout_ms: Int32


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    class TopicResult(Struct):
        class PartitionResult(Struct):
            partition_index: Int32
            low_watermark: Int64
            error_code: Int16

        name: String
        partitions: Array[PartitionResult]

    throttle_time_ms: Int32
    topics: Array[TopicResult]
