"""The cluster as the metadata log describes it: a fold over the records, and nothing else changes it.

`apply` takes one record, `apply_batch` a batch of the log with everything in it that can be done in bulk,
`apply_changes` what a controller decided and need not decode, `load` the batches of a snapshot. All give the
same image for the same records. `freeze` copies it, so that a snapshot can be encoded meanwhile.

What stands between the beginning and the end of a metadata transaction is kept aside until its end, and
forgotten if it is aborted. A record of a kind that we do not know comes from a newer Kafka: a reader keeps
its bytes, so that they survive in a snapshot, and counts it; a controller, which would have to act on it,
refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from quorate.metadata import records as r
from quorate.metadata.brokers import BrokerRegistration, ControllerRegistration
from quorate.metadata.diff import diff
from quorate.metadata.distinct_ids import as_words
from quorate.metadata.errors import ImageError
from quorate.metadata.partition import Partition, changed_by, partition_from
from quorate.metadata.partition_changes import PartitionChanges
from quorate.metadata.partitions import PARTITION_ID_MAX, REPLICAS_MAX, PartitionTable, Rows
from quorate.metadata.replay import apply_batch, apply_snapshot
from quorate.metadata.sections import Section
from quorate.metadata.snapshot_records import snapshot_sections
from quorate.metadata.topics import Topics
from quorate.metadata.touched import Touched
from quorate.metadata.versions import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LOWEST,
)
from quorate.protocol.message import Record
from quorate.protocol.types import Buffer, Uuid

__all__ = [
    "BROKER",
    "CLIENT_METRICS",
    "CLUSTER_DEFAULT",
    "GROUP",
    "TOPIC",
    "ClusterImage",
    "Entity",
    "FrozenImage",
    "Resource",
    "changed_by",
    "partition_from",
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
        self.touched: Touched | None = None  # set it to have noted in it what records are about
        self._transaction: list[tuple[Record | PartitionChanges | _Unknown, int]] | None = None

    @classmethod
    def load(
        cls, batches: Iterable[Buffer], last_contained_offset: int, *, is_strict: bool = False
    ) -> ClusterImage:
        """The image that the batches of a snapshot describe."""
        image = cls(is_strict=is_strict)
        apply_snapshot(image, batches, last_contained_offset)
        return image

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

    def freeze(self) -> FrozenImage:
        """A copy for a snapshot. Making it copies columns; encoding it can be another thread's work."""
        assert self._transaction is None, "a snapshot in the middle of a metadata transaction"
        return FrozenImage(self.copy())

    def equals(self, other: ClusterImage) -> bool:
        """Whether both describe the same cluster. At which offset a broker registered does not count, since
        snapshots do not say it."""
        return (
            not diff(self, other)
            and self.unknown == other.unknown
            and self.is_in_transaction == other.is_in_transaction
        )

    # Reading

    @property
    def metadata_version(self) -> int:
        """The level that is finalized; the lowest one as long as the log does not say."""
        return self.features.get(METADATA_VERSION, METADATA_VERSION_LOWEST)

    @property
    def is_elr_enabled(self) -> bool:
        return self.features.get(ELR_VERSION, 0) > 0

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether groups may be of the consumer protocol. In ZooKeeper mode no feature has a level, and they
        may."""
        return self.features.get(GROUP_VERSION, 0) > 0 or not self.features

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

    def apply_batch(self, batch: Buffer) -> None:
        """One more batch of the log, whose checksum is known to be right. Control batches are passed over."""
        apply_batch(self, batch)

    def apply_changes(self, changes: Sequence[Record | PartitionChanges], base_offset: int) -> None:
        """What was decided on this image, the first record of it at an offset."""
        offset = base_offset
        created = _created(changes)
        for change in changes:
            if isinstance(change, PartitionChanges):
                self._apply_partition_changes(change, offset)
                offset += len(change)
                continue
            if isinstance(change, r.PartitionRecord):
                self._reserve(change.topic_id, created.pop(change.topic_id, ()))
            self.apply(change, offset)
            offset += 1

    def apply_unknown(self, value: bytes, reason: Exception) -> None:
        """A record of a kind, or a version, that we do not know."""
        if self.is_strict:
            raise ImageError(f"a record that this version does not understand: {reason}") from reason
        if self._transaction is not None:
            self._transaction.append((_Unknown(value), -1))
        else:
            self.unknown.append(value)

    def change_partitions(self, changes: PartitionChanges) -> None:
        """Changes of rows of our own table."""
        self.partitions.change(changes)
        if self.touched is not None:
            self.touched.note_partitions(changes.topic_ids, changes.partition_ids)

    def _apply_partition_changes(self, changes: PartitionChanges, offset: int) -> None:
        if self._transaction is not None:
            self._transaction.append((changes, offset))
        elif self._are_ours(changes):
            self.change_partitions(changes)
        else:
            for at, record in enumerate(changes.records()):
                self.apply(record, offset + at)

    def _reserve(self, topic_id: Uuid, partitions: Sequence[r.PartitionRecord]) -> None:
        """Makes room for partitions of a topic all at once, which takes less than one after the other."""
        topic = self.topics.by_id.get(topic_id)
        if topic is not None and self._transaction is None and len(partitions) > 1:
            last = min(PARTITION_ID_MAX, max(one.partition_id for one in partitions))
            replicas = min(REPLICAS_MAX, max(len(one.replicas) for one in partitions))
            self.partitions.reserve(topic.slot, last + 1, replicas)

    def _are_ours(self, changes: PartitionChanges) -> bool:
        """Whether the rows of changes are still those that they were decided for, and in our table."""
        rows = changes.rows
        block = rows.block
        if self.partitions.blocks.get(block.width) is not block:
            return False
        slots = block.topic[rows.index]
        return (
            bool((slots >= 0).all())
            and np.array_equal(as_words(self.topics.ids[slots]), as_words(changes.topic_ids))
            and np.array_equal(self.partitions.partition_ids(rows), changes.partition_ids)
            and np.array_equal(block.replicas[rows.index], changes.replicas)
        )

    def _register_broker(self, record: r.RegisterBrokerRecord, offset: int) -> None:
        self.brokers[record.broker_id] = BrokerRegistration.from_record(record, offset)
        self._note("brokers", record.broker_id)

    def _unregister_broker(self, record: r.UnregisterBrokerRecord, _offset: int) -> None:
        self._check_epoch(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]
        self._note("brokers", record.broker_id)

    def _change_broker(self, record: r.BrokerRegistrationChangeRecord, _offset: int) -> None:
        broker = self._check_epoch(record.broker_id, record.broker_epoch)
        self.brokers[broker.id] = broker.changed_by(record)
        self._note("brokers", broker.id)

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
        self._note("controllers", record.controller_id)

    def _add_topic(self, record: r.TopicRecord, _offset: int) -> None:
        self.topics.add(record.name, record.topic_id)
        if self.touched is not None:
            self.touched.topics_added[record.topic_id] = record.name

    def _remove_topic(self, record: r.RemoveTopicRecord, _offset: int) -> None:
        topic = self.topics.remove(record.topic_id)
        self.partitions.remove(topic.slot)
        if self.configs.pop((TOPIC, topic.name), None) is not None:
            self._note("configs", (TOPIC, topic.name))
        if self.touched is not None:
            self.touched.topics_removed[topic.id] = topic.name

    def _put_partition(self, record: r.PartitionRecord, _offset: int) -> None:
        topic = self.topics.by_id.get(record.topic_id)
        if topic is None:
            raise ImageError(f"a partition of topic id {record.topic_id}, which does not exist")
        self.partitions.put(topic.slot, record.partition_id, partition_from(record))
        self._note_partition(record)

    def _change_partition(self, record: r.PartitionChangeRecord, _offset: int) -> None:
        topic = self.topics.by_id.get(record.topic_id)
        before = None if topic is None else self.partitions.get(topic.slot, record.partition_id)
        if topic is None or before is None:
            raise ImageError(f"a change of {record.topic_id}-{record.partition_id}, which does not exist")
        self.partitions.put(topic.slot, record.partition_id, changed_by(before, record))
        self._note_partition(record)

    def _clear_elr(self, record: r.ClearElrRecord, _offset: int) -> None:
        topic = self.topics.by_name.get(record.topic_name)
        if record.topic_name and topic is None:
            raise ImageError(
                f"the eligible leader replicas of topic {record.topic_name}, which does not exist"
            )
        for rows in self.partitions.clear_elr(None if topic is None else topic.slot):
            self._note_rows(rows)

    def _set_config(self, record: r.ConfigRecord, _offset: int) -> None:
        resource = record.resource_type, record.resource_name
        self._note("configs", resource)
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
        self._note("features", record.name)
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _set_quota(self, record: r.ClientQuotaRecord, _offset: int) -> None:
        entity = tuple(sorted((one.entity_type, one.entity_name) for one in record.entity))
        self._note("quotas", entity)
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
        if self.touched is not None:
            self.touched.producer_ids = True

    def _add_acl(self, record: r.AccessControlEntryRecord, _offset: int) -> None:
        self.acls[record.id] = record
        self._note("acls", record.id)

    def _remove_acl(self, record: r.RemoveAccessControlEntryRecord, _offset: int) -> None:
        if self.acls.pop(record.id, None) is None:
            raise ImageError(f"access control entry {record.id} is removed but was never added")
        self._note("acls", record.id)

    def _set_scram(self, record: r.UserScramCredentialRecord, _offset: int) -> None:
        self.scram[record.name, record.mechanism] = record
        self._note("scram", (record.name, record.mechanism))

    def _remove_scram(self, record: r.RemoveUserScramCredentialRecord, _offset: int) -> None:
        if self.scram.pop((record.name, record.mechanism), None) is None:
            raise ImageError(f"credentials of user {record.name} are removed but were never added")
        self._note("scram", (record.name, record.mechanism))

    def _set_token(self, record: r.DelegationTokenRecord, _offset: int) -> None:
        self.tokens[record.token_id] = record
        self._note("tokens", record.token_id)

    def _remove_token(self, record: r.RemoveDelegationTokenRecord, _offset: int) -> None:
        self.tokens.pop(record.token_id, None)
        self._note("tokens", record.token_id)

    def _begin(self, _record: r.BeginTransactionRecord, _offset: int) -> None:
        if self._transaction is not None:
            raise ImageError("a metadata transaction begins inside another")
        self._transaction = []

    def _end(self, _record: r.EndTransactionRecord, _offset: int) -> None:
        if self._transaction is None:
            raise ImageError("a metadata transaction ends that did not begin")
        kept, self._transaction = self._transaction, None
        for change, offset in kept:
            if isinstance(change, _Unknown):
                self.unknown.append(change.value)
            else:
                self.apply_changes([change], offset)

    def _abort(self, _record: r.AbortTransactionRecord, _offset: int) -> None:
        if self._transaction is None:
            raise ImageError("a metadata transaction is aborted that did not begin")
        self._transaction = None

    def _note(self, kind: str, what: object) -> None:
        if self.touched is not None:
            getattr(self.touched, kind).add(what)

    def _note_partition(self, record: r.PartitionRecord | r.PartitionChangeRecord) -> None:
        if self.touched is not None:
            self.touched.note_partition(record.topic_id, record.partition_id)

    def _note_rows(self, rows: Rows) -> None:
        if self.touched is not None:
            topic_ids = self.topics.ids[rows.block.topic[rows.index]]
            self.touched.note_partitions(topic_ids, self.partitions.partition_ids(rows))

    def _ignore(self, _record: Record, _offset: int) -> None:
        """Nothing follows from it."""


def _created(changes: Sequence[Record | PartitionChanges]) -> dict[Uuid, list[r.PartitionRecord]]:
    """The new partitions among changes, by topic."""
    found: dict[Uuid, list[r.PartitionRecord]] = {}
    for change in changes:
        if isinstance(change, r.PartitionRecord):
            found.setdefault(change.topic_id, []).append(change)
    return found


class FrozenImage:
    """The cluster at one moment, for whoever writes a snapshot of it."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def sections(self) -> list[Section]:
        """The records of a snapshot, as sections of its batches. Nothing that changes is used."""
        return snapshot_sections(self._image)


class _Unknown(NamedTuple):
    """A record that we do not know, inside a transaction."""

    value: bytes


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
