"""The cluster as the metadata log describes it: a fold over the records, and nothing else changes it.

`apply` takes one record, `apply_batch` a batch of the log with everything in it that can be done in bulk,
`load` the batches of a snapshot. All three give the same image for the same records.

What stands between the beginning and the end of a metadata transaction is kept aside until its end, and
forgotten if it is aborted. A record of a kind that we do not know comes from a newer Kafka: a reader keeps
its bytes, so that they survive in a snapshot, and counts it; a controller, which would have to act on it,
refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from quorate.metadata import records as r
from quorate.metadata.brokers import BrokerRegistration, ControllerRegistration
from quorate.metadata.errors import ImageError
from quorate.metadata.partitions import MIGRATING, NO_LEADER, Partition, PartitionTable
from quorate.metadata.topics import Topics
from quorate.metadata.versions import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, METADATA_VERSION_LOWEST
from quorate.protocol.message import Record
from quorate.protocol.types import Uuid

__all__ = [
    "BROKER",
    "CLIENT_METRICS",
    "CLUSTER_DEFAULT",
    "GROUP",
    "TOPIC",
    "ClusterImage",
    "Entity",
    "Resource",
]

# What a configuration belongs to: its type and its name, the name of the default for all brokers being empty.
Resource = tuple[int, str]
TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32
CLUSTER_DEFAULT: Final[Resource] = (BROKER, "")

# Whom a quota is for: pairs of type and name, sorted by type; None is the default for all of that type.
Entity = tuple[tuple[str, str | None], ...]


class ClusterImage:
    """The state of a cluster. Read its attributes; change them by records only."""

    def __init__(self, *, is_strict: bool = False) -> None:
        self.is_strict = is_strict  # refuses records of unknown kinds
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, ControllerRegistration] = {}
        self.features: dict[str, int] = {}
        self.topics = Topics()
        self.partitions = PartitionTable()
        self.configs: dict[Resource, dict[str, str]] = {}
        self.quotas: dict[Entity, dict[str, float]] = {}
        self.next_producer_id = 0
        self.acls: dict[Uuid, r.AccessControlEntryRecord] = {}
        self.scram: dict[tuple[str, int], r.UserScramCredentialRecord] = {}
        self.tokens: dict[str, r.DelegationTokenRecord] = {}
        self.unknown: list[bytes] = []
        self._transaction: list[tuple[Record, int]] | None = None

    def copy(self) -> ClusterImage:
        """Another image with the same content, which changes on its own."""
        image = ClusterImage(is_strict=self.is_strict)
        image.brokers = dict(self.brokers)
        image.controllers = dict(self.controllers)
        image.features = dict(self.features)
        image.topics = self.topics.copy()
        image.partitions = self.partitions.copy()
        image.configs = {resource: dict(values) for resource, values in self.configs.items()}
        image.quotas = {entity: dict(values) for entity, values in self.quotas.items()}
        image.next_producer_id = self.next_producer_id
        image.acls = dict(self.acls)
        image.scram = dict(self.scram)
        image.tokens = dict(self.tokens)
        image.unknown = list(self.unknown)
        image._transaction = None if self._transaction is None else list(self._transaction)
        return image

    # Reading

    @property
    def metadata_version(self) -> int:
        """The level that is finalized; the lowest one as long as the log does not say."""
        return self.features.get(METADATA_VERSION, METADATA_VERSION_LOWEST)

    @property
    def is_elr_enabled(self) -> bool:
        return self.features.get(ELR_VERSION, 0) > 0

    @property
    def is_in_transaction(self) -> bool:
        return self._transaction is not None

    def partition(self, topic_id: Uuid, partition_id: int) -> Partition | None:
        topic = self.topics.by_id.get(topic_id)
        return None if topic is None else self.partitions.get(topic.slot, partition_id)

    def partitions_of(self, topic_id: Uuid) -> Iterator[tuple[int, Partition]]:
        topic = self.topics.by_id.get(topic_id)
        return iter(()) if topic is None else self.partitions.of(topic.slot)

    # Applying

    def apply(self, record: Record, offset: int) -> None:
        """One more record of the log. Raises `ImageError` for one that cannot follow the others."""
        if self._transaction is not None and not isinstance(record, _OF_TRANSACTIONS):
            self._transaction.append((record, offset))
            return
        _APPLY[type(record)](self, record, offset)

    def apply_unknown(self, value: bytes, reason: Exception) -> None:
        """A record of a kind, or a version, that we do not know."""
        if self.is_strict:
            raise ImageError(f"a record that this version does not understand: {reason}") from reason
        self.unknown.append(value)

    def _register_broker(self, record: r.RegisterBrokerRecord, offset: int) -> None:
        self.brokers[record.broker_id] = BrokerRegistration.from_record(record, offset)

    def _unregister_broker(self, record: r.UnregisterBrokerRecord, _offset: int) -> None:
        self._check_epoch(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _change_broker(self, record: r.BrokerRegistrationChangeRecord, _offset: int) -> None:
        broker = self._check_epoch(record.broker_id, record.broker_epoch)
        self.brokers[broker.id] = broker.changed_by(record)

    def _fence(self, record: r.FenceBrokerRecord, offset: int) -> None:
        change = r.BrokerRegistrationChangeRecord(broker_id=record.id, broker_epoch=record.epoch, fenced=1)
        self._change_broker(change, offset)

    def _unfence(self, record: r.UnfenceBrokerRecord, offset: int) -> None:
        change = r.BrokerRegistrationChangeRecord(broker_id=record.id, broker_epoch=record.epoch, fenced=-1)
        self._change_broker(change, offset)

    def _check_epoch(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            registered = "is not registered" if broker is None else f"is registered at {broker.epoch}"
            raise ImageError(f"a record about broker {broker_id} at epoch {epoch}, but it {registered}")
        return broker

    def _register_controller(self, record: r.RegisterControllerRecord, _offset: int) -> None:
        self.controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def _add_topic(self, record: r.TopicRecord, _offset: int) -> None:
        self.topics.add(record.name, record.topic_id)

    def _remove_topic(self, record: r.RemoveTopicRecord, _offset: int) -> None:
        topic = self.topics.remove(record.topic_id)
        self.partitions.remove(topic.slot)
        self.configs.pop((TOPIC, topic.name), None)

    def _put_partition(self, record: r.PartitionRecord, _offset: int) -> None:
        topic = self.topics.by_id.get(record.topic_id)
        if topic is None:
            raise ImageError(f"a partition of topic id {record.topic_id}, which does not exist")
        self.partitions.put(topic.slot, record.partition_id, partition_from(record))

    def _change_partition(self, record: r.PartitionChangeRecord, _offset: int) -> None:
        topic = self.topics.by_id.get(record.topic_id)
        before = None if topic is None else self.partitions.get(topic.slot, record.partition_id)
        if topic is None or before is None:
            raise ImageError(f"a change of {record.topic_id}-{record.partition_id}, which does not exist")
        self.partitions.put(topic.slot, record.partition_id, changed_by(before, record))

    def _clear_elr(self, record: r.ClearElrRecord, _offset: int) -> None:
        if not record.topic_name:
            self.partitions.clear_elr(None)
            return
        topic = self.topics.by_name.get(record.topic_name)
        if topic is None:
            raise ImageError(
                f"the eligible leader replicas of topic {record.topic_name}, which does not exist"
            )
        self.partitions.clear_elr(topic.slot)

    def _set_config(self, record: r.ConfigRecord, _offset: int) -> None:
        resource = record.resource_type, record.resource_name
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
            return
        values = self.configs.get(resource, {})
        values.pop(record.name, None)
        if not values:
            self.configs.pop(resource, None)

    def _set_feature(self, record: r.FeatureLevelRecord, _offset: int) -> None:
        if record.name == KRAFT_VERSION:
            return  # it is the quorum's own; some logs hold one
        if record.name == METADATA_VERSION and record.feature_level < METADATA_VERSION_LOWEST:
            raise ImageError(
                f"{METADATA_VERSION} {record.feature_level}: the lowest is {METADATA_VERSION_LOWEST}"
            )
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _set_quota(self, record: r.ClientQuotaRecord, _offset: int) -> None:
        entity = tuple(sorted((one.entity_type, one.entity_name) for one in record.entity))
        if not record.remove:
            self.quotas.setdefault(entity, {})[record.key] = record.value
            return
        values = self.quotas.get(entity, {})
        values.pop(record.key, None)
        if not values:
            self.quotas.pop(entity, None)

    def _set_producer_ids(self, record: r.ProducerIdsRecord, _offset: int) -> None:
        if record.next_producer_id <= self.next_producer_id:
            raise ImageError(
                f"the next producer id would go from {self.next_producer_id} to {record.next_producer_id}"
            )
        self.next_producer_id = record.next_producer_id

    def _add_acl(self, record: r.AccessControlEntryRecord, _offset: int) -> None:
        self.acls[record.id] = record

    def _remove_acl(self, record: r.RemoveAccessControlEntryRecord, _offset: int) -> None:
        if self.acls.pop(record.id, None) is None:
            raise ImageError(f"access control entry {record.id} is removed but was never added")

    def _set_scram(self, record: r.UserScramCredentialRecord, _offset: int) -> None:
        self.scram[record.name, record.mechanism] = record

    def _remove_scram(self, record: r.RemoveUserScramCredentialRecord, _offset: int) -> None:
        if self.scram.pop((record.name, record.mechanism), None) is None:
            raise ImageError(f"credentials of user {record.name} are removed but were never added")

    def _set_token(self, record: r.DelegationTokenRecord, _offset: int) -> None:
        self.tokens[record.token_id] = record

    def _remove_token(self, record: r.RemoveDelegationTokenRecord, _offset: int) -> None:
        self.tokens.pop(record.token_id, None)

    def _begin(self, _record: r.BeginTransactionRecord, _offset: int) -> None:
        if self._transaction is not None:
            raise ImageError("a metadata transaction begins inside another")
        self._transaction = []

    def _end(self, _record: r.EndTransactionRecord, _offset: int) -> None:
        if self._transaction is None:
            raise ImageError("a metadata transaction ends that did not begin")
        kept, self._transaction = self._transaction, None
        for record, offset in kept:
            self.apply(record, offset)

    def _abort(self, _record: r.AbortTransactionRecord, _offset: int) -> None:
        if self._transaction is None:
            raise ImageError("a metadata transaction is aborted that did not begin")
        self._transaction = None

    def _ignore(self, _record: Record, _offset: int) -> None:
        """Nothing follows from it."""


_OF_TRANSACTIONS: Final = (r.BeginTransactionRecord, r.EndTransactionRecord, r.AbortTransactionRecord)

_APPLY: Final[dict[type[Record], Callable[..., None]]] = {
    r.RegisterBrokerRecord: ClusterImage._register_broker,
    r.UnregisterBrokerRecord: ClusterImage._unregister_broker,
    r.TopicRecord: ClusterImage._add_topic,
    r.PartitionRecord: ClusterImage._put_partition,
    r.ConfigRecord: ClusterImage._set_config,
    r.PartitionChangeRecord: ClusterImage._change_partition,
    r.FenceBrokerRecord: ClusterImage._fence,
    r.UnfenceBrokerRecord: ClusterImage._unfence,
    r.RemoveTopicRecord: ClusterImage._remove_topic,
    r.DelegationTokenRecord: ClusterImage._set_token,
    r.UserScramCredentialRecord: ClusterImage._set_scram,
    r.FeatureLevelRecord: ClusterImage._set_feature,
    r.ClientQuotaRecord: ClusterImage._set_quota,
    r.ProducerIdsRecord: ClusterImage._set_producer_ids,
    r.BrokerRegistrationChangeRecord: ClusterImage._change_broker,
    r.AccessControlEntryRecord: ClusterImage._add_acl,
    r.RemoveAccessControlEntryRecord: ClusterImage._remove_acl,
    r.NoOpRecord: ClusterImage._ignore,
    r.ZkMigrationStateRecord: ClusterImage._ignore,
    r.RemoveUserScramCredentialRecord: ClusterImage._remove_scram,
    r.BeginTransactionRecord: ClusterImage._begin,
    r.EndTransactionRecord: ClusterImage._end,
    r.AbortTransactionRecord: ClusterImage._abort,
    r.RemoveDelegationTokenRecord: ClusterImage._remove_token,
    r.RegisterControllerRecord: ClusterImage._register_controller,
    r.ClearElrRecord: ClusterImage._clear_elr,
}


def partition_from(record: r.PartitionRecord) -> Partition:
    """A partition as its record describes it. Without directories, it is from before there were any."""
    return Partition(
        replicas=tuple(record.replicas),
        directories=tuple(record.directories) or (MIGRATING,) * len(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        removing=tuple(record.removing_replicas),
        adding=tuple(record.adding_replicas),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_leader=_last_known(record.last_known_elr),
        is_recovering=record.leader_recovery_state == 1,
    )


def changed_by(before: Partition, record: r.PartitionChangeRecord) -> Partition:
    """A partition after a change: what the record leaves out stays; a leader that it names, even if it is the
    same one or none, begins a new leader epoch."""
    replicas = before.replicas if record.replicas is None else tuple(record.replicas)
    directories = before.directories if record.directories is None else tuple(record.directories)
    if len(directories) != len(replicas):
        # from before there were directories
        directories = (MIGRATING,) * len(replicas)
    removing, adding = record.removing_replicas, record.adding_replicas
    elr, recovering = record.eligible_leader_replicas, record.leader_recovery_state
    return Partition(
        replicas=replicas,
        directories=directories,
        isr=before.isr if record.isr is None else tuple(record.isr),
        leader=before.leader if record.leader == -2 else record.leader,
        leader_epoch=before.leader_epoch + (record.leader != -2),
        partition_epoch=before.partition_epoch + 1,
        removing=before.removing if removing is None else tuple(removing),
        adding=before.adding if adding is None else tuple(adding),
        elr=before.elr if elr is None else tuple(elr),
        last_known_leader=(
            before.last_known_leader if record.last_known_elr is None else _last_known(record.last_known_elr)
        ),
        is_recovering=before.is_recovering if recovering == -1 else recovering == 1,
    )


def _last_known(members: list[int] | None) -> int:
    if not members:
        return NO_LEADER
    if len(members) > 1:
        raise ImageError(f"more than one last known leader: {members}")
    return members[0]
