"""Topics and partitions: what there is, who leads it, and how that is changed."""

from quorate.protocol.message import Request, Response, Struct, field
from quorate.protocol.types import ZERO_UUID, Array, Bool, Int8, Int16, Int32, String, Uuid


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+", listeners="broker"):
    """Which brokers are there, and who leads which partition? By name, by id, or everything."""

    class Topic(Struct):
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        name: String | None = field(nullable="10+")

    topics: Array[Topic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field(default=True, since=4)
    include_cluster_authorized_operations: Bool = field(default=False, since=8, until=10)
    include_topic_authorized_operations: Bool = field(default=False, since=8)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    class Broker(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = field(default=None, since=1, ignorable=True)

    class Topic(Struct):
        class Partition(Struct):
            error_code: Int16
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = field(default=-1, since=7, ignorable=True)
            replica_nodes: Array[Int32]
            isr_nodes: Array[Int32]
            offline_replicas: Array[Int32] = field(default=(), since=5, ignorable=True)

        error_code: Int16
        name: String | None = field(nullable="12+")
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        is_internal: Bool = field(default=False, since=1, ignorable=True)
        partitions: Array[Partition]
        topic_authorized_operations: Int32 = field(default=-0x80000000, since=8)

    throttle_time_ms: Int32 = field(default=0, since=3, ignorable=True)
    brokers: Array[Broker]
    cluster_id: String | None = field(default=None, since=2, ignorable=True)
    controller_id: Int32 = field(default=-1, since=1, ignorable=True)
    topics: Array[Topic]
    cluster_authorized_operations: Int32 = field(default=-0x80000000, since=8, until=10)
    error_code: Int16 = field(default=0, since=13, ignorable=True)


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+", listeners="broker"):
    """Partitions of topics, page by page."""

    class TopicRequest(Struct):
        name: String

    class Cursor(Struct):
        topic_name: String
        partition_index: Int32

    topics: Array[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            error_code: Int16
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = -1
            replica_nodes: Array[Int32]
            isr_nodes: Array[Int32]
            eligible_leader_replicas: Array[Int32] | None = None
            last_known_elr: Array[Int32] | None = None
            offline_replicas: Array[Int32]

        error_code: Int16
        name: String | None
        topic_id: Uuid
        is_internal: Bool = False
        partitions: Array[Partition]
        topic_authorized_operations: Int32 = -0x80000000

    class Cursor(Struct):
        topic_name: String
        partition_index: Int32

    throttle_time_ms: Int32
    topics: Array[Topic]
    next_cursor: Cursor | None = None


class CreateTopicsRequest(
    Request, key=19, versions="0-7", flexible="5+", served="2-7", listeners="broker controller"
):
    """Creates topics, by count or with replicas given."""

    class CreatableTopic(Struct):
        class CreatableReplicaAssignment(Struct):
            partition_index: Int32
            broker_ids: Array[Int32]

        class CreatableTopicConfig(Struct):
            name: String
            value: String | None

        name: String
        num_partitions: Int32
        replication_factor: Int16
        assignments: Array[CreatableReplicaAssignment]
        configs: Array[CreatableTopicConfig]

    topics: Array[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = field(default=False, since=1)


class CreateTopicsResponse(Response, key=19, versions="0-7", flexible="5+"):
    class CreatableTopicResult(Struct):
        class CreatableTopicConfigs(Struct):
            name: String
            value: String | None
            read_only: Bool
            config_source: Int8 = -1
            is_sensitive: Bool

        name: String
        topic_id: Uuid = field(default=ZERO_UUID, since=7, ignorable=True)
        error_code: Int16
        error_message: String | None = field(default="", since=1, ignorable=True)
        topic_config_error_code: Int16 = field(default=0, since=5, tag=0, ignorable=True)
        num_partitions: Int32 = field(default=-1, since=5, ignorable=True)
        replication_factor: Int16 = field(default=-1, since=5, ignorable=True)
        configs: Array[CreatableTopicConfigs] | None = field(default=(), since=5, ignorable=True)

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    topics: Array[CreatableTopicResult]


class DeleteTopicsRequest(
    Request, key=20, versions="0-6", flexible="4+", served="1-6", listeners="broker controller"
):
    """Deletes topics, by name or by id."""

    class DeleteTopicState(Struct):
        name: String | None = None
        topic_id: Uuid

    topics: Array[DeleteTopicState] = field(default=(), since=6)
    topic_names: Array[String] = field(default=(), until=5, ignorable=True)
    timeout_ms: Int32


class DeleteTopicsResponse(Response, key=20, versions="0-6", flexible="4+"):
    class DeletableTopicResult(Struct):
        name: String | None = field(nullable="6+")
        topic_id: Uuid = field(default=ZERO_UUID, since=6, ignorable=True)
        error_code: Int16
        error_message: String | None = field(default=None, since=5, ignorable=True)

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    responses: Array[DeletableTopicResult]


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+", listeners="broker controller"):
    """Gives topics more partitions."""

    class Topic(Struct):
        class Assignment(Struct):
            broker_ids: Array[Int32]

        name: String
        count: Int32
        assignments: Array[Assignment] | None

    topics: Array[Topic]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    class TopicResult(Struct):
        name: String
        error_code: Int16
        error_message: String | None = None

    throttle_time_ms: Int32
    results: Array[TopicResult]


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+", listeners="broker controller"):
    """Starts leader elections: the preferred replica, or any that is left."""

    class TopicPartitions(Struct):
        topic: String
        partitions: Array[Int32]

    election_type: Int8 = field(default=0, since=1)
    topic_partitions: Array[TopicPartitions] | None
    timeout_ms: Int32 = 60000


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    class ReplicaElectionResult(Struct):
        class PartitionResult(Struct):
            partition_id: Int32
            error_code: Int16
            error_message: String | None

        topic: String
        partition_result: Array[PartitionResult]

    throttle_time_ms: Int32
    error_code: Int16 = field(default=0, since=1)
    replica_election_results: Array[ReplicaElectionResult]


class AlterPartitionReassignmentsRequest(
    Request, key=45, versions="0-1", flexible="0+", listeners="broker controller"
):
    """Starts or cancels the move of partitions to other replicas."""

    class ReassignableTopic(Struct):
        class ReassignablePartition(Struct):
            partition_index: Int32
            replicas: Array[Int32] | None = None

        name: String
        partitions: Array[ReassignablePartition]

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = field(default=True, since=1)
    topics: Array[ReassignableTopic]


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    class ReassignableTopicResponse(Struct):
        class ReassignablePartitionResponse(Struct):
            partition_index: Int32
            error_code: Int16
            error_message: String | None

        name: String
        partitions: Array[ReassignablePartitionResponse]

    throttle_time_ms: Int32
    allow_replication_factor_change: Bool = field(default=True, since=1, ignorable=True)
    error_code: Int16
    error_message: String | None
    responses: Array[ReassignableTopicResponse]


class ListPartitionReassignmentsRequest(
    Request, key=46, versions="0", flexible="0+", listeners="broker controller"
):
    """Which partitions are being moved?"""

    class Topics(Struct):
        name: String
        partition_indexes: Array[Int32]

    timeout_ms: Int32 = 60000
    topics: Array[Topics] | None = None


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    class OngoingTopicReassignment(Struct):
        class OngoingPartitionReassignment(Struct):
            partition_index: Int32
            replicas: Array[Int32]
            adding_replicas: Array[Int32]
            removing_replicas: Array[Int32]

        name: String
        partitions: Array[OngoingPartitionReassignment]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    topics: Array[OngoingTopicReassignment]
