"""What the metadata log means for one broker: which replicas are its own now, which are not any more.

Pure. The image says what is; `Touched` says where to look. A topic that is gone is gone from the image with
all its partitions, so what this broker was told to have is remembered here, and nowhere asked for.

Many partitions at once (a broker is fenced, a snapshot is loaded) are looked up column by column; objects are
made for those that are ours, and for no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from quorate.broker.control_plane import Assignment, Changes
from quorate.broker.partition import TopicPartition
from quorate.garbage import looked_through_later
from quorate.metadata.diff import diff
from quorate.metadata.distinct_ids import distinct_values, numbers_of
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, TOPIC, ClusterImage
from quorate.metadata.partitions import Partition, Rows, chosen
from quorate.metadata.touched import Touched
from quorate.protocol.types import Uuid

__all__ = ["KraftChanges"]


class KraftChanges:
    """Translates for one broker, one image after the other; it must see all of them.

    changes.everything(image)               at first
    changes.since(image, image.touched)     after records; a new `Touched` begins then
    changes.between(old_image, new_image)   after a snapshot has taken the place of the image
    """

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self._held: dict[Uuid, set[int]] = {}

    def everything(self, image: ClusterImage) -> Changes:
        """All replicas that are ours, whether or not they were before."""
        before, self._held = self._held, {}
        assigned = self._assign(image, image.partitions.hosted_by(self.broker_id))
        removed = [
            (topic_id, partition_id)
            for topic_id, partition_ids in before.items()
            for partition_id in sorted(partition_ids - self._held.get(topic_id, set()))
        ]
        return Changes(image, assigned, removed, is_configured_all=bool(before))

    def between(self, old: ClusterImage, new: ClusterImage) -> Changes:
        """What is different in another image of the same cluster.

        The old one may have gone on since it was translated; what it noted of that counts as well.
        """
        touched = diff(old, new)
        if old.touched is not None:
            touched.topics_removed |= old.touched.topics_removed
            touched.configs |= old.touched.configs
            touched.note_partitions(*old.touched.partition_columns())
        return self.since(new, touched)

    def since(self, image: ClusterImage, touched: Touched) -> Changes:
        """What has become of everything that records were about. `image` has them applied already."""
        removed = [
            (topic_id, partition_id)
            for topic_id in touched.topics_removed
            for partition_id in sorted(self._held.pop(topic_id, ()))
        ]
        assigned: list[Assignment] = []
        if touched.has_partitions:
            found = _Touched(image, touched, self.broker_id)
            removed += self._not_any_more(found)
            assigned = self._assign(image, found.ours)
        return Changes(
            image,
            assigned,
            removed,
            configured=self._configured(image, touched),
            is_configured_all=not touched.configs.isdisjoint(
                {CLUSTER_DEFAULT, (BROKER, str(self.broker_id))}
            ),
        )

    @looked_through_later()
    def _assign(self, image: ClusterImage, groups: list[Rows]) -> list[Assignment]:
        """Everything in some rows is ours."""
        assigned = []
        for rows in groups:
            topics = map(image.topics.at, rows.block.topic[rows.index].tolist())
            ids = image.partitions.partition_ids(rows).tolist()
            for topic, partition_id, state in zip(topics, ids, _values(image, rows), strict=True):
                self._held.setdefault(topic.id, set()).add(partition_id)
                assigned.append(Assignment(TopicPartition(topic.name, topic.id, partition_id), state))
        return assigned

    def _not_any_more(self, found: _Touched) -> list[tuple[Uuid, int]]:
        """Partitions that were ours: moved away, or gone although their topic is not."""
        removed = []
        held = [self._held.get(topic_id, set()) for topic_id in found.topic_ids]
        for number, partition_id in found.others():
            if partition_id in held[number]:
                held[number].discard(partition_id)
                removed.append((found.topic_ids[number], partition_id))
        return removed

    def _configured(self, image: ClusterImage, touched: Touched) -> list[str]:
        """Topics of ours with other settings. A new one is opened with its settings anyway."""
        names = sorted(name for kind, name in touched.configs if kind == TOPIC)
        topics = [image.topics.by_name.get(name) for name in names]
        return [topic.name for topic in topics if topic is not None and self._held.get(topic.id)]


class _Touched:
    """Partitions that records were about: those with a replica on a broker, and the others."""

    def __init__(self, image: ClusterImage, touched: Touched, broker_id: int) -> None:
        topic_ids, self._partition_ids = touched.partition_columns()
        self.topic_ids: list[Uuid] = []  # each once
        self._numbers = numbers_of(topic_ids, self._number_of)  # for every partition that of its topic
        topics = map(image.topics.by_id.get, self.topic_ids)
        slots = np.array([-1 if topic is None else topic.slot for topic in topics], np.int32)
        widths, rows = image.partitions.locate(slots[self._numbers], self._partition_ids)
        self._is_ours = np.zeros(len(widths), np.bool_)
        self.ours: list[Rows] = []
        for width in sorted(image.partitions.blocks):
            block = image.partitions.blocks[width]
            at = np.flatnonzero(widths == width)
            at = at[(block.replicas[rows[at]] == broker_id).any(axis=1)]
            self._is_ours[at] = True
            if len(at):
                self.ours.append(Rows(block, distinct_values(rows[at])))

    def _number_of(self, topic_id: Uuid) -> int:
        self.topic_ids.append(topic_id)
        return len(self.topic_ids) - 1

    def others(self) -> Iterator[tuple[int, int]]:
        """The partitions that are not on the broker: the number of the topic, and the id."""
        some = np.flatnonzero(~self._is_ours)
        return zip(self._numbers[some].tolist(), self._partition_ids[some].tolist(), strict=True)


def _values(image: ClusterImage, rows: Rows) -> Iterator[Partition]:
    """Partitions as values: the same as asking for one after the other, without a look at every cell.

    Most have their replicas in common with many others, and share the tuples here: that is quicker.
    """
    block, index, directory_ids = rows.block, rows.index, image.partitions.directory_ids.ids

    @cache
    def present(padded: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(one for one in padded if one >= 0)

    @cache
    def directories_of(numbers: tuple[int, ...], count: int) -> tuple[Uuid, ...]:
        return tuple(directory_ids[number] for number in numbers[:count])

    chosen_of = cache(chosen)
    columns = (
        getattr(block, name)[index].tolist()
        for name in (
            "replicas",
            "directories",
            "isr",
            "leader",
            "leader_epoch",
            "partition_epoch",
            "removing",
            "adding",
            "elr",
            "last_known_leader",
            "is_recovering",
        )
    )
    for padded, numbers, isr, leader, leader_epoch, epoch, removing, adding, elr, last, recovering in zip(
        *columns, strict=True
    ):
        replicas = present(tuple(padded))
        yield Partition(
            replicas=replicas,
            directories=directories_of(tuple(numbers), len(replicas)),
            isr=chosen_of(replicas, isr),
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=epoch,
            removing=chosen_of(replicas, removing) if removing else (),
            adding=chosen_of(replicas, adding) if adding else (),
            elr=chosen_of(replicas, elr) if elr else (),
            last_known_leader=last,
            is_recovering=recovering,
        )
