"""The records of the metadata log, which is the truth about the cluster."""

from quorate.protocol.message import Record, Struct, field
from quorate.protocol.types import (
    Array,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    Uint16,
    Uuid,
)


class RegisterBrokerRecord(Record, key=0, versions="0-4", flexible="0+"):
    """A broker registered. The offset of this record is its epoch."""

    class BrokerEndpoint(Struct):
        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class BrokerFeature(Struct):
        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    broker_id: Int32
    is_migrating_zk_broker: Bool = field(default=False, since=2)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: Array[BrokerEndpoint]
    features: Array[BrokerFeature]
    rack: String | None
    fenced: Bool = True
    in_controlled_shutdown: Bool = field(default=False, since=1)
    log_dirs: Array[Uuid] = field(default=(), since=3, tag=0)
    cordoned_log_dirs: Array[Uuid] | None = field(default=None, since=4, tag=1)


class UnregisterBrokerRecord(Record, key=1, versions="0", flexible="0+"):
    """A broker was unregistered."""

    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(Record, key=2, versions="0", flexible="0+"):
    """A topic exists."""

    name: String
    topic_id: Uuid


class PartitionRecord(Record, key=3, versions="0-2", flexible="0+"):
    """A partition exists, with all that is known of it."""

    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: Array[Int32]
    isr: Array[Int32]
    removing_replicas: Array[Int32]
    adding_replicas: Array[Int32]
    leader: Int32 = -1
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Array[Uuid] = field(default=(), since=1)
    eligible_leader_replicas: Array[Int32] | None = field(default=None, since=2, tag=1)
    last_known_elr: Array[Int32] | None = field(default=None, since=2, tag=2)


class ConfigRecord(Record, key=4, versions="0", flexible="0+"):
    """A configuration was set, or, with a null value, removed."""

    resource_type: Int8
    resource_name: String
    name: String
    value: String | None


class PartitionChangeRecord(Record, key=5, versions="0-2", flexible="0+"):
    """What changed of a partition; a field at its default did not."""

    partition_id: Int32 = -1
    topic_id: Uuid
    isr: Array[Int32] | None = field(default=None, tag=0)
    leader: Int32 = field(default=-2, tag=1)
    replicas: Array[Int32] | None = field(default=None, tag=2)
    removing_replicas: Array[Int32] | None = field(default=None, tag=3)
    adding_replicas: Array[Int32] | None = field(default=None, tag=4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    directories: Array[Uuid] | None = field(default=None, since=1, tag=8)
    eligible_leader_replicas: Array[Int32] | None = field(default=None, since=2, tag=6)
    last_known_elr: Array[Int32] | None = field(default=None, since=2, tag=7)


class FenceBrokerRecord(Record, key=7, versions="0", flexible="0+"):
    """A broker was fenced. Superseded by BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(Record, key=8, versions="0", flexible="0+"):
    """A broker was unfenced. Superseded by BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


class RemoveTopicRecord(Record, key=9, versions="0", flexible="0+"):
    """A topic was deleted, with its partitions."""

    topic_id: Uuid


class DelegationTokenRecord(Record, key=10, versions="0", flexible="0+"):
    """A delegation token exists."""

    owner: String
    requester: String
    renewers: Array[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


class UserScramCredentialRecord(Record, key=11, versions="0", flexible="0+"):
    """A user has SCRAM credentials."""

    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


class FeatureLevelRecord(Record, key=12, versions="0", flexible="0+"):
    """A feature is finalized at a level."""

    name: String
    feature_level: Int16


class ClientQuotaRecord(Record, key=14, versions="0", flexible="0+"):
    """A quota was set or removed."""

    class EntityData(Struct):
        entity_type: String
        entity_name: String | None

    entity: Array[EntityData]
    key: String
    value: Float64
    remove: Bool


class ProducerIdsRecord(Record, key=15, versions="0", flexible="0+"):
    """A block of producer ids was given to a broker."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(Record, key=17, versions="0-3", flexible="0+"):
    """A registered broker was fenced or unfenced, began to shut down, or changed its directories.

    A field at its default did not change.
    """

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(default=0, tag=0)
    in_controlled_shutdown: Int8 = field(default=0, since=1, tag=1)
    log_dirs: Array[Uuid] = field(default=(), since=2, tag=2)
    cordoned_log_dirs: Array[Uuid] | None = field(default=None, since=3, tag=3)


class AccessControlEntryRecord(Record, key=18, versions="0", flexible="0+"):
    """An access control entry exists."""

    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class RemoveAccessControlEntryRecord(Record, key=19, versions="0", flexible="0+"):
    """An access control entry was removed."""

    id: Uuid


class NoOpRecord(Record, key=20, versions="0", flexible="0+"):
    """Nothing, so that the log moves on."""


class ZkMigrationStateRecord(Record, key=21, versions="0", flexible="0+"):
    """How far the migration from ZooKeeper has got."""

    zk_migration_state: Int8


class RemoveUserScramCredentialRecord(Record, key=22, versions="0", flexible="0+"):
    """SCRAM credentials of a user were removed."""

    name: String
    mechanism: Int8


class BeginTransactionRecord(Record, key=23, versions="0", flexible="0+"):
    """What follows counts only if the metadata transaction ends well."""

    name: String | None = field(default=None, tag=0)


class EndTransactionRecord(Record, key=24, versions="0", flexible="0+"):
    """The metadata transaction that began last happened."""


class AbortTransactionRecord(Record, key=25, versions="0", flexible="0+"):
    """The metadata transaction that began last did not happen."""

    reason: String | None = field(default=None, tag=0)


class RemoveDelegationTokenRecord(Record, key=26, versions="0", flexible="0+"):
    """A delegation token was removed."""

    token_id: String


class RegisterControllerRecord(Record, key=27, versions="0", flexible="0+"):
    """A controller registered."""

    class ControllerEndpoint(Struct):
        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class ControllerFeature(Struct):
        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    end_points: Array[ControllerEndpoint]
    features: Array[ControllerFeature]


class ClearElrRecord(Record, key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic, or of all, are forgotten."""

    topic_name: String
