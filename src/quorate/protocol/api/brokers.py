"""Brokers and the controller: membership, in-sync replicas, log directories, forwarded requests."""

from quorate.protocol.message import Request, Response, Struct, field
from quorate.protocol.types import (
    ZERO_UUID,
    Array,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    Uint16,
    Uuid,
)


class BrokerRegistrationRequest(Request, key=62, versions="0-4", flexible="0+", listeners="controller"):
    """A broker asks to become a member. The answer is its epoch."""

    class Listener(Struct):
        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class Feature(Struct):
        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: Array[Listener]
    features: Array[Feature]
    rack: String | None
    is_migrating_zk_broker: Bool = field(default=False, since=1)
    log_dirs: Array[Uuid] = field(default=(), since=2, ignorable=True)
    previous_broker_epoch: Int64 = field(default=-1, since=3, ignorable=True)


class BrokerRegistrationResponse(Response, key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    broker_epoch: Int64 = -1


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+", listeners="controller"):
    """A broker says that it lives, how far it has read the metadata, and what it would like to be."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    want_fence: Bool
    want_shut_down: Bool
    offline_log_dirs: Array[Uuid] = field(default=(), since=1, tag=0)
    cordoned_log_dirs: Array[Uuid] | None = field(default=None, since=2, tag=1)


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+", listeners="broker controller"):
    """Makes the cluster forget a broker."""

    broker_id: Int32


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None


class ControllerRegistrationRequest(Request, key=70, versions="0", flexible="0+", listeners="controller"):
    """A controller tells the active one its endpoints and features."""

    class Listener(Struct):
        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class Feature(Struct):
        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    listeners: Array[Listener]
    features: Array[Feature]


class ControllerRegistrationResponse(Response, key=70, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None


class AlterPartitionRequest(
    Request, key=56, versions="0-3", flexible="0+", served="2-3", listeners="controller", of_nodes=True
):
    """A partition leader proposes a new set of in-sync replicas."""

    class TopicData(Struct):
        class PartitionData(Struct):
            class BrokerState(Struct):
                broker_id: Int32
                broker_epoch: Int64 = -1

            partition_index: Int32
            leader_epoch: Int32
            new_isr: Array[Int32] = field(default=(), until=2)
            new_isr_with_epochs: Array[BrokerState] = field(default=(), since=3)
            leader_recovery_state: Int8 = field(default=0, since=1)
            partition_epoch: Int32

        topic_name: String = field(default="", until=1, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=2, ignorable=True)
        partitions: Array[PartitionData]

    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: Array[TopicData]


class AlterPartitionResponse(Response, key=56, versions="0-3", flexible="0+"):
    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: Int32
            error_code: Int16
            leader_id: Int32
            leader_epoch: Int32
            isr: Array[Int32]
            leader_recovery_state: Int8 = field(default=0, since=1, ignorable=True)
            partition_epoch: Int32

        topic_name: String = field(default="", until=1, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=2, ignorable=True)
        partitions: Array[PartitionData]

    throttle_time_ms: Int32
    error_code: Int16
    topics: Array[TopicData]


class AssignReplicasToDirsRequest(
    Request, key=73, versions="0", flexible="0+", listeners="controller", of_nodes=True
):
    """A broker says in which log directory it keeps which replica."""

    class DirectoryData(Struct):
        class TopicData(Struct):
            class PartitionData(Struct):
                partition_index: Int32

            topic_id: Uuid
            partitions: Array[PartitionData]

        id: Uuid
        topics: Array[TopicData]

    broker_id: Int32
    broker_epoch: Int64 = -1
    directories: Array[DirectoryData]


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    class DirectoryData(Struct):
        class TopicData(Struct):
            class PartitionData(Struct):
                partition_index: Int32
                error_code: Int16

            topic_id: Uuid
            partitions: Array[PartitionData]

        id: Uuid
        topics: Array[TopicData]

    throttle_time_ms: Int32
    error_code: Int16
    directories: Array[DirectoryData]


class AllocateProducerIdsRequest(Request, key=67, versions="0", flexible="0+", listeners="controller"):
    """A broker asks for a block of producer ids that nobody else will get."""

    broker_id: Int32
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Response, key=67, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+", listeners="controller"):
    """A client request that a broker forwards to the active controller, with the principal that made it."""

    request_data: Bytes
    request_principal: Bytes | None
    client_host_address: Bytes


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: Bytes | None = None
    error_code: Int16
