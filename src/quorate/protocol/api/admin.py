"""What operators ask and change: configurations, log directories, quotas, features, telemetry."""

from quorate.protocol.message import Request, Response, Struct, field
from quorate.protocol.types import Array, Bool, Bytes, Float64, Int8, Int16, Int32, Int64, String, Uuid


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+", listeners="broker controller"):
    """The nodes of the cluster: brokers, or controllers."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = field(default=1, since=1)
    include_fenced_brokers: Bool = field(default=False, since=2)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    class Broker(Struct):
        broker_id: Int32
        host: String
        port: Int32
        rack: String | None = None
        is_fenced: Bool = field(default=False, since=2)

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    endpoint_type: Int8 = field(default=1, since=1)
    cluster_id: String
    controller_id: Int32 = -1
    brokers: Array[Broker]
    cluster_authorized_operations: Int32 = -0x80000000


class DescribeConfigsRequest(
    Request, key=32, versions="0-4", flexible="4+", served="1-4", listeners="broker controller"
):
    """Configurations, where each value comes from, and what else it could have been."""

    class Resource(Struct):
        resource_type: Int8
        resource_name: String
        configuration_keys: Array[String] | None

    resources: Array[Resource]
    include_synonyms: Bool = field(default=False, since=1)
    include_documentation: Bool = field(default=False, since=3)


class DescribeConfigsResponse(Response, key=32, versions="0-4", flexible="4+"):
    class Result(Struct):
        class ResourceResult(Struct):
            class Synonym(Struct):
                name: String
                value: String | None
                source: Int8

            name: String
            value: String | None
            read_only: Bool
            is_default: Bool = field(default=False, until=0)
            config_source: Int8 = field(default=-1, since=1, ignorable=True)
            is_sensitive: Bool
            synonyms: Array[Synonym] = field(default=(), since=1, ignorable=True)
            config_type: Int8 = field(default=0, since=3, ignorable=True)
            documentation: String | None = field(default="", since=3, ignorable=True)

        error_code: Int16
        error_message: String | None
        resource_type: Int8
        resource_name: String
        configs: Array[ResourceResult]

    throttle_time_ms: Int32
    results: Array[Result]


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+", listeners="broker controller"):
    """Replaces all configurations of a resource."""

    class Resource(Struct):
        class AlterableConfig(Struct):
            name: String
            value: String | None

        resource_type: Int8
        resource_name: String
        configs: Array[AlterableConfig]

    resources: Array[Resource]
    validate_only: Bool


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    class ResourceResponse(Struct):
        error_code: Int16
        error_message: String | None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32
    responses: Array[ResourceResponse]


class IncrementalAlterConfigsRequest(
    Request, key=44, versions="0-1", flexible="1+", listeners="broker controller"
):
    """Sets, deletes, appends to or subtracts from single configurations."""

    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: String
            config_operation: Int8
            value: String | None

        resource_type: Int8
        resource_name: String
        configs: Array[AlterableConfig]

    resources: Array[AlterConfigsResource]
    validate_only: Bool


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    class AlterConfigsResourceResponse(Struct):
        error_code: Int16
        error_message: String | None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32
    responses: Array[AlterConfigsResourceResponse]


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+", listeners="broker"):
    """Which resources have configurations of their own? Until Kafka 4.1: client metrics resources."""

    resource_types: Array[Int8] = field(default=(), since=1)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    class ConfigResource(Struct):
        resource_name: String
        resource_type: Int8 = field(default=16, since=1, ignorable=True)

    throttle_time_ms: Int32
    error_code: Int16
    config_resources: Array[ConfigResource]


class DescribeLogDirsRequest(
    Request, key=35, versions="0-5", flexible="2+", served="1-5", listeners="broker"
):
    """Log directories of a broker and the replicas in them."""

    class DescribableLogDirTopic(Struct):
        topic: String
        partitions: Array[Int32]

    topics: Array[DescribableLogDirTopic] | None


class DescribeLogDirsResponse(Response, key=35, versions="0-5", flexible="2+"):
    class Result(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: Int32
                partition_size: Int64
                offset_lag: Int64
                is_future_key: Bool

            name: String
            partitions: Array[Partition]

        error_code: Int16
        log_dir: String
        topics: Array[Topic]
        total_bytes: Int64 = field(default=-1, since=4, ignorable=True)
        usable_bytes: Int64 = field(default=-1, since=4, ignorable=True)
        is_cordoned: Bool = field(default=False, since=5, ignorable=True)

    throttle_time_ms: Int32
    error_code: Int16 = field(default=0, since=3, ignorable=True)
    results: Array[Result]


class AlterReplicaLogDirsRequest(
    Request, key=34, versions="0-2", flexible="2+", served="1-2", listeners="broker"
):
    """Moves replicas between log directories of a broker."""

    class AlterReplicaLogDir(Struct):
        class AlterReplicaLogDirTopic(Struct):
            name: String
            partitions: Array[Int32]

        path: String
        topics: Array[AlterReplicaLogDirTopic]

    dirs: Array[AlterReplicaLogDir]


class AlterReplicaLogDirsResponse(Response, key=34, versions="0-2", flexible="2+"):
    class AlterReplicaLogDirTopicResult(Struct):
        class AlterReplicaLogDirPartitionResult(Struct):
            partition_index: Int32
            error_code: Int16

        topic_name: String
        partitions: Array[AlterReplicaLogDirPartitionResult]

    throttle_time_ms: Int32
    results: Array[AlterReplicaLogDirTopicResult]


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+", listeners="broker"):
    """Quotas of users, client ids and addresses."""

    class ComponentData(Struct):
        entity_type: String
        match_type: Int8
        match: String | None

    components: Array[ComponentData]
    strict: Bool


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: String
            entity_name: String | None

        class ValueData(Struct):
            key: String
            value: Float64

        entity: Array[EntityData]
        values: Array[ValueData]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    entries: Array[EntryData] | None


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+", listeners="broker controller"):
    """Changes quotas of users, client ids and addresses."""

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: String
            entity_name: String | None

        class OpData(Struct):
            key: String
            value: Float64
            remove: Bool

        entity: Array[EntityData]
        ops: Array[OpData]

    entries: Array[EntryData]
    validate_only: Bool


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: String
            entity_name: String | None

        error_code: Int16
        error_message: String | None
        entity: Array[EntityData]

    throttle_time_ms: Int32
    entries: Array[EntryData]


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+", listeners="broker controller"):
    """Changes finalized feature levels such as `metadata.version`."""

    class FeatureUpdateKey(Struct):
        feature: String
        max_version_level: Int16
        allow_downgrade: Bool = field(default=False, until=0)
        upgrade_type: Int8 = field(default=1, since=1)

    timeout_ms: Int32 = 60000
    feature_updates: Array[FeatureUpdateKey]
    validate_only: Bool = field(default=False, since=1)


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    class UpdatableFeatureResult(Struct):
        feature: String
        error_code: Int16
        error_message: String | None

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: Array[UpdatableFeatureResult] = field(default=(), until=1, ignorable=True)


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+", listeners="broker"):
    """A client asks which of its metrics are wanted."""

    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: Array[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Bool
    requested_metrics: Array[String]


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+", listeners="broker"):
    """A client delivers its metrics."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
