"""What the elected controller of a ZooKeeper cluster tells its brokers. Apache Kafka 4.0 removed these."""

from quorate.protocol.message import Request, Response, Struct, field
from quorate.protocol.types import ZERO_UUID, Array, Bool, Int8, Int16, Int32, Int64, String, Uuid


class LeaderAndIsrPartitionState(Struct):
    topic_name: String = field(default="", until=1, ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: Array[Int32]
    partition_epoch: Int32
    replicas: Array[Int32]
    adding_replicas: Array[Int32] = field(default=(), since=3, ignorable=True)
    removing_replicas: Array[Int32] = field(default=(), since=3, ignorable=True)
    is_new: Bool = field(default=False, since=1, ignorable=True)
    leader_recovery_state: Int8 = field(default=0, since=6)


class LeaderAndIsrRequest(Request, key=4, versions="0-7", flexible="4+", served="none", of_nodes=True):
    """Makes a broker leader or follower of partitions."""

    class TopicState(Struct):
        topic_name: String
        topic_id: Uuid = field(default=ZERO_UUID, since=5, ignorable=True)
        partition_states: Array[LeaderAndIsrPartitionState]

    class LiveLeader(Struct):
        broker_id: Int32
        host_name: String
        port: Int32

    controller_id: Int32
    is_kraft_controller: Bool = field(default=False, since=7)
    controller_epoch: Int32
    broker_epoch: Int64 = field(default=-1, since=2, ignorable=True)
    type: Int8 = field(default=0, since=5)
    ungrouped_partition_states: Array[LeaderAndIsrPartitionState] = field(default=(), until=1)
    topic_states: Array[TopicState] = field(default=(), since=2)
    live_leaders: Array[LiveLeader]


class LeaderAndIsrPartitionError(Struct):
    topic_name: String = field(default="", until=4, ignorable=True)
    partition_index: Int32
    error_code: Int16


class LeaderAndIsrResponse(Response, key=4, versions="0-7", flexible="4+"):
    class TopicError(Struct):
        topic_id: Uuid
        partition_errors: Array[LeaderAndIsrPartitionError]

    error_code: Int16
    partition_errors: Array[LeaderAndIsrPartitionError] = field(default=(), until=4)
    topics: Array[TopicError] = field(default=(), since=5)


class StopReplicaRequest(Request, key=5, versions="0-4", flexible="2+", served="none", of_nodes=True):
    """Makes a broker stop, and perhaps delete, replicas."""

    class PartitionV0(Struct):
        topic_name: String
        partition_index: Int32

    class TopicV1(Struct):
        name: String
        partition_indexes: Array[Int32]

    class TopicState(Struct):
        class PartitionState(Struct):
            partition_index: Int32
            leader_epoch: Int32 = -1
            delete_partition: Bool

        topic_name: String
        partition_states: Array[PartitionState]

    controller_id: Int32
    is_kraft_controller: Bool = field(default=False, since=4)
    controller_epoch: Int32
    broker_epoch: Int64 = field(default=-1, since=1, ignorable=True)
    delete_partitions: Bool = field(default=False, until=2)
    ungrouped_partitions: Array[PartitionV0] = field(default=(), until=0)
    topics: Array[TopicV1] = field(default=(), since=1, until=2)
    topic_states: Array[TopicState] = field(default=(), since=3)


class StopReplicaResponse(Response, key=5, versions="0-4", flexible="2+"):
    class PartitionError(Struct):
        topic_name: String
        partition_index: Int32
        error_code: Int16

    error_code: Int16
    partition_errors: Array[PartitionError]


class UpdateMetadataPartitionState(Struct):
    topic_name: String = field(default="", until=4, ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: Array[Int32]
    zk_version: Int32
    replicas: Array[Int32]
    offline_replicas: Array[Int32] = field(default=(), since=4, ignorable=True)


class UpdateMetadataRequest(Request, key=6, versions="0-8", flexible="6+", served="none", of_nodes=True):
    """Tells a broker what to answer to Metadata requests."""

    class TopicState(Struct):
        topic_name: String
        topic_id: Uuid = field(default=ZERO_UUID, since=7, ignorable=True)
        partition_states: Array[UpdateMetadataPartitionState]

    class Broker(Struct):
        class Endpoint(Struct):
            port: Int32
            host: String
            listener: String = field(default="", since=3, ignorable=True)
            security_protocol: Int16

        id: Int32
        v0_host: String = field(default="", until=0, ignorable=True)
        v0_port: Int32 = field(default=0, until=0, ignorable=True)
        endpoints: Array[Endpoint] = field(default=(), since=1, ignorable=True)
        rack: String | None = field(default="", since=2, ignorable=True)

    controller_id: Int32
    is_kraft_controller: Bool = field(default=False, since=8)
    type: Int8 = field(default=0, since=8, tag=0)
    controller_epoch: Int32
    broker_epoch: Int64 = field(default=-1, since=5, ignorable=True)
    ungrouped_partition_states: Array[UpdateMetadataPartitionState] = field(default=(), until=4)
    topic_states: Array[TopicState] = field(default=(), since=5)
    live_brokers: Array[Broker]


class UpdateMetadataResponse(Response, key=6, versions="0-8", flexible="6+"):
    error_code: Int16


class ControlledShutdownRequest(Request, key=7, versions="0-3", flexible="3+", served="none"):
    """A broker asks the controller to move its leaderships away before it stops."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1, since=2, ignorable=True)


class ControlledShutdownResponse(Response, key=7, versions="0-3", flexible="3+"):
    class RemainingPartition(Struct):
        topic_name: String
        partition_index: Int32

    error_code: Int16
    remaining_partitions: Array[RemainingPartition]
