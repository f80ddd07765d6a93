"""Decoded changes of many partitions, looked up in the table: as `PartitionChanges`, ready to be applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from quorate.metadata.blocks import Column, Rows, mask_type
from quorate.metadata.distinct_ids import are_distinct, numbers_of
from quorate.metadata.partition_changes import UNCHANGED_STATE, PartitionChanges
from quorate.metadata.partition_records import Rectangle, positions_among
from quorate.metadata.partitions import PartitionTable
from quorate.metadata.records import PartitionChangeRecord
from quorate.metadata.shapes import ABSENT, ChangeShape, grouped
from quorate.metadata.topics import Topics
from quorate.protocol.types import Uuid

__all__ = ["NO_SLOT", "look_up", "slots_of"]

NO_SLOT: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1


def slots_of(topics: Topics, topic_ids: Column) -> Column:
    """The slot of each topic, `NO_SLOT` for one that does not exist."""

    def slot_of(topic_id: Uuid) -> int:
        topic = topics.by_id.get(topic_id)
        return NO_SLOT if topic is None else topic.slot

    return numbers_of(topic_ids, slot_of)


def look_up(
    topics: Topics,
    table: PartitionTable,
    rectangles: Sequence[Rectangle],
    others: Sequence[PartitionChangeRecord] = (),
) -> list[PartitionChanges] | None:
    """The changes of all rectangles; None if one of them is of a partition or a replica that does not exist,
    or if a partition stands twice in them and the others together."""
    found: list[PartitionChanges] = []
    keys: list[tuple[Column, Column]] = []
    for rectangle in rectangles:
        if not isinstance(rectangle.shape, ChangeShape):
            return None
        slots = slots_of(topics, rectangle.topic_ids)
        partition_ids = rectangle.numbers("partition_id", -1)
        widths, rows = table.locate(slots, partition_ids)
        if not widths.all():
            return None
        keys.append((slots, partition_ids))
        for width, some in grouped(widths):
            part = rectangle if len(some) == len(rows) else rectangle.part(some)
            changes = _changes(part, rectangle.shape, Rows(table.blocks[width], rows[some]))
            if changes is None:
                return None
            found.append(changes)
    for other in others:
        topic = topics.by_id.get(other.topic_id)
        if topic is not None:
            keys.append((np.array([topic.slot]), np.array([other.partition_id])))
    if not keys:
        return found
    topic_slots, partition_ids = (np.concatenate(columns) for columns in zip(*keys, strict=True))
    return found if are_distinct(topic_slots, partition_ids) else None


def _changes(rectangle: Rectangle, shape: ChangeShape, rows: Rows) -> PartitionChanges | None:
    block, index, count = rows.block, rows.index, len(rows)
    replicas = block.replicas[index]
    isr, isr_is_known = positions_among(replicas, rectangle.ids("isr"))
    elr, elr_is_known = positions_among(replicas, rectangle.ids("elr"))
    if not isr_is_known or not elr_is_known or block.partition_epoch[index].max() == _EPOCH_MAX:
        return None
    mask = mask_type(block.width)
    return PartitionChanges(
        rows=rows,
        topic_ids=rectangle.topic_ids,
        partition_ids=rectangle.numbers("partition_id", -1),
        replicas=replicas,
        has_isr=np.full(count, shape.isr != ABSENT),
        isr=isr.astype(mask),
        leader=rectangle.numbers("leader", -2),
        has_elr=np.full(count, shape.elr != ABSENT),
        elr=elr.astype(mask),
        last_known_leader=rectangle.last_known_leader,
        recovery_state=rectangle.numbers("recovery_state", UNCHANGED_STATE),
    )
