"""What is different between two images of one cluster: what to look at after a snapshot was loaded.

Partitions are compared column by column, wherever their rows are: the slots of topics, the places of rows and
the numbers of directories mean nothing outside their own table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from quorate.metadata.blocks import Block, Column, Rows
from quorate.metadata.brokers import BrokerRegistration
from quorate.metadata.distinct_ids import distinct_values
from quorate.metadata.touched import Touched
from quorate.protocol.types import Uuid

if TYPE_CHECKING:
    from quorate.metadata.image import ClusterImage

__all__ = ["diff"]

K = TypeVar("K")


def diff(old: ClusterImage, new: ClusterImage) -> Touched:
    """What differs, named like what records touch.

    At which offset a broker registered is not compared: a snapshot does not say it.
    """
    touched = Touched(
        brokers=_keys(_without_offsets(old.brokers), _without_offsets(new.brokers)),
        controllers=_keys(old.controllers, new.controllers),
        topics_added=_topics_without(new, old),
        topics_removed=_topics_without(old, new),
        configs=_keys(old.configs, new.configs),
        features=_keys(old.features, new.features),
        quotas=_keys(old.quotas, new.quotas),
        acls=_keys(old.acls, new.acls),
        scram=_keys(old.scram, new.scram),
        tokens=_keys(old.tokens, new.tokens),
        producer_ids=old.next_producer_id != new.next_producer_id,
    )
    for rows in _differing(old, new):
        _note(touched, new, rows)
    for rows in _missing(old, new):
        _note(touched, old, rows)
    return touched


def _topics_without(image: ClusterImage, other: ClusterImage) -> dict[Uuid, str]:
    """The topics of an image that another does not have."""
    others = {topic.id: topic.name for topic in other.topics}
    return {topic.id: topic.name for topic in image.topics if others.get(topic.id) != topic.name}


def _keys(old: Mapping[K, object], new: Mapping[K, object]) -> set[K]:
    """The keys whose values differ, or that only one of the two has."""
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def _without_offsets(brokers: Mapping[int, BrokerRegistration]) -> dict[int, BrokerRegistration]:
    return {broker_id: replace(broker, registration_offset=0) for broker_id, broker in brokers.items()}


def _note(touched: Touched, image: ClusterImage, rows: Rows) -> None:
    topic_ids = image.topics.ids[rows.block.topic[rows.index]]
    touched.note_partitions(topic_ids, image.partitions.partition_ids(rows))


def _other_slots(image: ClusterImage, other: ClusterImage) -> Column:
    """For every slot of an image the slot of the same topic in another, -1 if it has none."""
    slots = np.full(len(image.topics.ids), -1, np.int32)
    for topic_id, topic in image.topics.by_id.items():
        found = other.topics.by_id.get(topic_id)
        if found is not None and found.name == topic.name:
            slots[topic.slot] = found.slot
    return slots


def _pairs(image: ClusterImage, other: ClusterImage) -> Iterator[tuple[Rows, Column, Column]]:
    """All partitions of topics that both have: rows of an image, and widths and rows in the other."""
    other_slots = _other_slots(image, other)
    for block in image.partitions.blocks.values():
        slots = block.topic[: block.end]
        index = np.flatnonzero((slots >= 0) & (other_slots[slots] >= 0))
        rows = Rows(block, index)
        partition_ids = image.partitions.partition_ids(rows)
        yield rows, *other.partitions.locate(other_slots[slots[index]], partition_ids)


def _missing(old: ClusterImage, new: ClusterImage) -> Iterator[Rows]:
    """Partitions that are gone although their topic is not."""
    for rows, widths, _ in _pairs(old, new):
        yield Rows(rows.block, rows.index[widths == 0])


def _differing(old: ClusterImage, new: ClusterImage) -> Iterator[Rows]:
    """Partitions that are new or not what they were, those of new topics included."""
    is_added = _other_slots(new, old) < 0
    for block in new.partitions.blocks.values():
        slots = block.topic[: block.end]
        yield Rows(block, np.flatnonzero((slots >= 0) & is_added[slots]))
    numbers = _directory_numbers(old, new)
    for rows, widths, old_rows in _pairs(new, old):
        yield Rows(rows.block, rows.index[widths == 0])
        for width in distinct_values(widths[widths > 0]).tolist():
            some = np.flatnonzero(widths == width)
            before = Rows(old.partitions.blocks[width], old_rows[some])
            after = Rows(rows.block, rows.index[some])
            yield Rows(rows.block, after.index[_are_different(before, after, numbers)])


def _directory_numbers(old: ClusterImage, new: ClusterImage) -> Column:
    """For every number of a directory in the old table its number in the new one, or one that none has."""
    known = new.partitions.directory_ids.known
    numbers = [known(directory) for directory in old.partitions.directory_ids.ids]
    return np.array([-1 if number is None else number for number in numbers], np.int32)


def _are_different(before: Rows, after: Rows, directory_numbers: Column) -> Any:
    """Which of the partitions of some rows are not the same in others."""
    old, new, i, j = before.block, after.block, before.index, after.index
    differs = np.zeros(len(i), np.bool_)
    for name in ("leader", "leader_epoch", "partition_epoch", "is_recovering", "last_known_leader"):
        differs |= getattr(old, name)[i] != getattr(new, name)[j]
    for name in ("isr", "elr", "adding", "removing"):
        differs |= getattr(old, name)[i] != getattr(new, name)[j]
    for position in range(max(old.width, new.width)):
        mine, theirs = _replica(old, i, position), _replica(new, j, position)
        differs |= mine != theirs
        if position < min(old.width, new.width):
            in_old = directory_numbers[old.directories[i, position]]
            differs |= (mine >= 0) & (in_old != new.directories[j, position])
    return differs


def _replica(block: Block, index: Column, position: int) -> Column:
    return block.replicas[index, position] if position < block.width else np.full(len(index), -1, np.int32)
