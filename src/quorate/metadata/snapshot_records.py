"""The records of a snapshot: what is, in an order in which it can be built up again.

Features come first, metadata.version before all others, then who is there, all topics, and all partitions, in
bulk; then everything else, and last, as they are, the records that we do not know. What the metadata version
of the cluster cannot express, after a downgrade, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from quorate.metadata import records as r
from quorate.metadata.blocks import Block, Column
from quorate.metadata.log_format import encode_record
from quorate.metadata.partition import NO_LEADER
from quorate.metadata.sections import Section, SectionBuilder, chosen_ids
from quorate.metadata.shapes import ABSENT, PartitionShape, grouped
from quorate.metadata.versions import (
    CONTROLLER_REGISTRATION,
    ELR,
    METADATA_VERSION,
    SCRAM,
    TOKENS,
    record_version,
)
from quorate.protocol.message import Record

if TYPE_CHECKING:
    from quorate.metadata.image import ClusterImage

__all__ = ["snapshot_sections"]

_RECORDS_MAX: Final = 8192  # where the offset delta gets longer, too


def snapshot_sections(image: ClusterImage) -> list[Section]:
    """All records of a snapshot of this image."""
    level = image.metadata_version
    builder = SectionBuilder(_RECORDS_MAX)
    for record in _before_partitions(image):
        builder.add(_encoded(record, level))
    builder.cut()
    directory_ids = np.frombuffer(b"".join(image.partitions.directory_ids.ids), "V16")
    for width in sorted(image.partitions.blocks):
        block = image.partitions.blocks[width]
        rows = np.flatnonzero(block.topic[: block.end] >= 0)
        for start in range(0, len(rows), _RECORDS_MAX):
            for shape, columns in _shaped(image, block, rows[start : start + _RECORDS_MAX], directory_ids):
                builder.add_rows(shape, columns)
    builder.cut()
    for record in _after_partitions(image):
        builder.add(_encoded(record, level))
    for value in image.unknown:
        builder.add(value)
    return builder.finish()


def _encoded(record: Record, metadata_version: int) -> bytes:
    """A record at a level, without what the level cannot say."""
    version = record_version(type(record), metadata_version)
    for declared in record.__fields__:
        if version not in declared.versions:
            setattr(record, declared.name, [] if declared.default == () else declared.default)
    return encode_record(record, version)


def _before_partitions(image: ClusterImage) -> Iterator[Record]:
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield r.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker_id in sorted(image.brokers):
        yield image.brokers[broker_id].to_record()
    if image.metadata_version >= CONTROLLER_REGISTRATION:
        for controller_id in sorted(image.controllers):
            yield image.controllers[controller_id].to_record()
    for topic in image.topics:
        yield r.TopicRecord(name=topic.name, topic_id=topic.id)


def _after_partitions(image: ClusterImage) -> Iterator[Record]:
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield r.ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    for entity, quotas in image.quotas.items():
        parts = [r.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, limit in sorted(quotas.items()):
            yield r.ClientQuotaRecord(entity=parts, key=key, value=limit, remove=False)
    if image.next_producer_id > 0:
        yield r.ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
    for acl_id in sorted(image.acls):
        yield image.acls[acl_id]
    if image.metadata_version >= SCRAM:
        for user in sorted(image.scram):
            yield image.scram[user]
    if image.metadata_version >= TOKENS:
        for token_id in sorted(image.tokens):
            yield image.tokens[token_id]


# Partitions


def _shaped(
    image: ClusterImage, block: Block, rows: Column, directory_ids: Column
) -> Iterator[tuple[PartitionShape, dict[str, Column]]]:
    """Partitions by shape: the fields of those that have it."""
    version = record_version(r.PartitionRecord, image.metadata_version)
    replicas: Column = np.zeros(len(rows), np.int64)
    for position in range(block.width):
        replicas += block.replicas[rows, position] >= 0
    counts = [np.bitwise_count(mask[rows]) for mask in (block.isr, block.removing, block.adding, block.elr)]
    keys = replicas
    for count in counts:
        keys = keys * 65 + count
    keys = keys * 2 + block.is_recovering[rows]
    keys = keys * 2 + (block.last_known_leader[rows] != NO_LEADER)
    for _, some in grouped(keys):
        first = some[0]
        isr, removing, adding, elr = (int(count[first]) for count in counts)
        has_eligible = image.metadata_version >= ELR
        index = rows[some]
        shape = PartitionShape(
            version=version,
            replicas=int(replicas[first]),
            isr=isr,
            removing=removing,
            adding=adding,
            directories=int(replicas[first]) if version >= 1 else 0,
            has_recovery_state=bool(block.is_recovering[index[0]]),
            elr=elr if elr and has_eligible else ABSENT,
            last_known_leader=(
                1 if has_eligible and block.last_known_leader[index[0]] != NO_LEADER else ABSENT
            ),
        )
        columns = _fields(image, block, shape, index)
        if shape.directories:
            columns["directories"] = directory_ids[block.directories[index, : shape.replicas]]
        yield shape, columns


def _fields(image: ClusterImage, block: Block, shape: PartitionShape, index: Column) -> dict[str, Column]:
    replicas = block.replicas[index]
    columns: dict[str, Column] = {
        "partition_id": index - image.partitions.starts_of(block.topic[index]),
        "topic_id": image.topics.ids[block.topic[index]],
        "leader": block.leader[index],
        "leader_epoch": block.leader_epoch[index],
        "partition_epoch": block.partition_epoch[index],
    }
    if shape.replicas:
        columns["replicas"] = replicas[:, : shape.replicas]
    for name in ("isr", "removing", "adding", "elr"):
        count = getattr(shape, name)
        if count > 0:
            columns[name] = chosen_ids(replicas, getattr(block, name)[index], count)
    if shape.has_recovery_state:
        columns["recovery_state"] = np.ones(len(index), np.int8)
    if shape.last_known_leader > 0:
        columns["last_known_leader"] = block.last_known_leader[index][:, None]
    return columns
