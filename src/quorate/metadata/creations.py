"""New partitions on their way into the table: gathered from records, put in all at once.

So every topic gets its rows once, as many as it needs, whatever order its partitions come in and however many
batches they are spread over.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quorate.metadata.blocks import Column, mask_type
from quorate.metadata.bulk_changes import slots_of
from quorate.metadata.distinct_ids import are_distinct, numbers_of
from quorate.metadata.errors import ImageError
from quorate.metadata.partition import MIGRATING, Partition, partition_from
from quorate.metadata.partition_records import Rectangle, positions_among
from quorate.metadata.partitions import (
    PARTITION_ID_MAX,
    REPLICAS_MAX,
    NewPartitions,
    PartitionTable,
    check,
)
from quorate.metadata.records import PartitionRecord
from quorate.metadata.shapes import PartitionShape
from quorate.metadata.topics import Topics
from quorate.protocol.types import Uuid

__all__ = ["Creations"]


class Creations:
    """Partitions to put into a table. Each has a place in the order of the records: the last one counts."""

    def __init__(self, topics: Topics, table: PartitionTable) -> None:
        self._topics = topics
        self._table = table
        # What nobody knows among the records: its place, its value, and the reason.
        self.unknown: list[tuple[int, bytes, Exception]] = []
        self._topic_places: dict[int, int] = {}  # of the topics that were added meanwhile, by slot
        self._groups: list[tuple[Column, NewPartitions]] = []
        self._singles: list[tuple[int, int, int, Partition]] = []  # place, slot, partition id
        self._directory_ids: dict[Uuid, int] = {}

    def note_topic(self, slot: int, place: int) -> None:
        """A topic was added by the record at this place: none of its partitions may stand before it."""
        self._topic_places[slot] = place

    def add(self, record: PartitionRecord, place: int) -> None:
        """One record, which may be unusual."""
        topic = self._topics.by_id.get(record.topic_id)
        if topic is None or self._topic_places.get(topic.slot, -1) > place:
            raise ImageError(f"a partition of topic id {record.topic_id}, which does not exist")
        self._singles.append((place, topic.slot, record.partition_id, partition_from(record)))

    def add_rectangle(self, rectangle: Rectangle, places: Column) -> bool:
        """Many records. Returns False and takes none of them if one of them is unusual."""
        shape = rectangle.shape
        if not isinstance(shape, PartitionShape) or shape.replicas > REPLICAS_MAX:
            return False
        slots = slots_of(self._topics, rectangle.topic_ids)
        partition_ids = rectangle.numbers("partition_id", -1)
        replicas = rectangle.ids("replicas")
        is_usual = slots.min() >= 0 and shape.directories in (0, shape.replicas)
        is_usual = is_usual and 0 <= partition_ids.min() <= partition_ids.max() <= PARTITION_ID_MAX
        if not is_usual or (replicas < 0).any() or self._is_before_topic(slots, places):
            return False
        masks = {}
        for name in ("isr", "elr", "adding", "removing"):
            bits, are_known = positions_among(replicas, rectangle.ids(name))
            if not are_known:
                return False
            masks[name] = bits.astype(mask_type(shape.replicas))
        last_known = rectangle.last_known_leader
        last_known[last_known == -2] = -1
        new = NewPartitions(
            topics=slots,
            partition_ids=partition_ids,
            replicas=replicas,
            directories=self._directories(rectangle, shape),
            isr=masks["isr"],
            elr=masks["elr"],
            adding=masks["adding"],
            removing=masks["removing"],
            leader=rectangle.numbers("leader", -1),
            leader_epoch=rectangle.numbers("leader_epoch", -1),
            partition_epoch=rectangle.numbers("partition_epoch", -1),
            is_recovering=rectangle.numbers("recovery_state", 0) == 1,
            last_known_leader=last_known,
        )
        self._groups.append((places, new))
        return True

    def put(self) -> tuple[Column, Column]:
        """Puts all of them into the table. Returns what they are: slots and partition ids."""
        slots = np.array([slot for _, slot, _, _ in self._singles], np.int32)
        slots = np.concatenate([*(new.topics for _, new in self._groups), slots])
        ids = np.array([partition_id for _, _, partition_id, _ in self._singles], np.int32)
        ids = np.concatenate([*(new.partition_ids for _, new in self._groups), ids])
        if not are_distinct(slots, ids):
            self._keep_last(slots.astype(np.int64) << 32 | ids)
        self._table.make_room_for_directories(list(self._directory_ids))
        number = self._table.directory_ids.number
        numbers = np.array([number(one) for one in self._directory_ids], np.uint16)
        groups = [replace(new, directories=numbers[new.directories]) for _, new in self._groups if len(new)]
        self._groups.clear()
        if groups:
            self._table.put_many(groups)
        for _, slot, partition_id, partition in self._singles:
            self._table.put(slot, partition_id, partition)
        return slots, ids

    def _is_before_topic(self, slots: Column, places: Column) -> bool:
        if not self._topic_places:
            return False
        topic_places = np.full(max(int(slots.max()), *self._topic_places) + 1, -1)
        topic_places[list(self._topic_places)] = list(self._topic_places.values())
        return bool((places < topic_places[slots]).any())

    def _directories(self, rectangle: Rectangle, shape: PartitionShape) -> Column:
        """Numbers of our own for the directories: those of the table wait until all are known, because it may
        take back numbers that it does not see in use."""
        known = self._directory_ids
        count = len(rectangle.rows)
        if shape.directories:
            ids = np.ascontiguousarray(rectangle.rows["directories"])
            numbers = numbers_of(ids, lambda one: known.setdefault(one, len(known)))
            return numbers.reshape(count, shape.directories)
        # from before there were directories
        return np.full((count, shape.replicas), known.setdefault(MIGRATING, len(known)), np.int32)

    def _keep_last(self, keys: Column) -> None:
        """Of a partition that was described more than once, keeps only the last. All must have been right."""
        places = np.concatenate([*(some for some, _ in self._groups), [one[0] for one in self._singles]])
        order = np.lexsort((places, keys))
        is_last = np.append(keys[order][1:] != keys[order][:-1], True)
        is_kept = np.zeros(len(keys), np.bool_)
        is_kept[order[is_last]] = True
        start = 0
        for at, (some, new) in enumerate(self._groups):
            kept = is_kept[start : start + len(new)]
            self._groups[at] = some[kept], new.part(kept)
            start += len(kept)
        for _, _, partition_id, partition in self._singles:
            check(partition_id, partition)
        self._singles = [one for one, kept in zip(self._singles, is_kept[start:], strict=True) if kept]
