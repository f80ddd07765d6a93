"""Groups of stream processors: the server assigns tasks of a topology."""

from quorate.protocol.message import Request, Response, Struct
from quorate.protocol.types import Array, Bool, Int8, Int16, Int32, Int64, String, Uint16


class StreamsGroupHeartbeatKeyValue(Struct):
    key: String
    value: String


class StreamsGroupHeartbeatRequest(Request, key=88, versions="0", flexible="0+", listeners="broker"):
    """A stream processor joins, lives in, and leaves a group whose tasks the server assigns."""

    class Topology(Struct):
        class Subtopology(Struct):
            class TopicInfo(Struct):
                name: String
                partitions: Int32
                replication_factor: Int16
                topic_configs: Array[StreamsGroupHeartbeatKeyValue]

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

    class TaskIds(Struct):
        subtopology_id: String
        partitions: Array[Int32]

    class Endpoint(Struct):
        host: String
        port: Uint16

    class TaskOffset(Struct):
        subtopology_id: String
        partition: Int32
        offset: Int64

    group_id: String
    member_id: String
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: Array[TaskIds] | None = None
    standby_tasks: Array[TaskIds] | None = None
    warmup_tasks: Array[TaskIds] | None = None
    process_id: String | None = None
    user_endpoint: Endpoint | None = None
    client_tags: Array[StreamsGroupHeartbeatKeyValue] | None = None
    task_offsets: Array[TaskOffset] | None = None
    task_end_offsets: Array[TaskOffset] | None = None
    shutdown_application: Bool = False


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0", flexible="0+"):
    class Status(Struct):
        status_code: Int8
        status_detail: String

    class TaskIds(Struct):
        subtopology_id: String
        partitions: Array[Int32]

    class EndpointToPartitions(Struct):
        class Endpoint(Struct):
            host: String
            port: Uint16

        class TopicPartition(Struct):
            topic: String
            partitions: Array[Int32]

        user_endpoint: Endpoint
        active_partitions: Array[TopicPartition]
        standby_partitions: Array[TopicPartition]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    member_id: String
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag: Int32
    task_offset_interval_ms: Int32
    status: Array[Status] | None
    active_tasks: Array[TaskIds] | None = None
    standby_tasks: Array[TaskIds] | None = None
    warmup_tasks: Array[TaskIds] | None = None
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: Array[EndpointToPartitions] | None = None


class StreamsGroupDescribeRequest(Request, key=89, versions="0", flexible="0+", listeners="broker"):
    """The state of streams groups, member by member."""

    group_ids: Array[String]
    include_authorized_operations: Bool


class StreamsGroupDescribeKeyValue(Struct):
    key: String
    value: String


class StreamsGroupDescribeResponse(Response, key=89, versions="0", flexible="0+"):
    class DescribedGroup(Struct):
        class Topology(Struct):
            class Subtopology(Struct):
                class TopicInfo(Struct):
                    name: String
                    partitions: Int32
                    replication_factor: Int16
                    topic_configs: Array[StreamsGroupDescribeKeyValue]

                subtopology_id: String
                source_topics: Array[String]
                repartition_sink_topics: Array[String]
                state_changelog_topics: Array[TopicInfo]
                repartition_source_topics: Array[TopicInfo]

            epoch: Int32
            subtopologies: Array[Subtopology] | None = None

        class Member(Struct):
            class Endpoint(Struct):
                host: String
                port: Uint16

            class TaskOffset(Struct):
                subtopology_id: String
                partition: Int32
                offset: Int64

            class Assignment(Struct):
                class TaskIds(Struct):
                    subtopology_id: String
                    partitions: Array[Int32]

                active_tasks: Array[TaskIds]
                standby_tasks: Array[TaskIds]
                warmup_tasks: Array[TaskIds]

            member_id: String
            member_epoch: Int32
            instance_id: String | None = None
            rack_id: String | None = None
            client_id: String
            client_host: String
            topology_epoch: Int32
            process_id: String
            user_endpoint: Endpoint | None = None
            client_tags: Array[StreamsGroupDescribeKeyValue]
            task_offsets: Array[TaskOffset]
            task_end_offsets: Array[TaskOffset]
            assignment: Assignment
            target_assignment: Assignment
            is_classic: Bool

        error_code: Int16
        error_message: String | None = None
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        topology: Topology | None = None
        members: Array[Member]
        authorized_operations: Int32 = -0x80000000

    throttle_time_ms: Int32
    groups: Array[DescribedGroup]
