"""The cluster's topics as group coordinators see them: names, partition counts and racks, from the image."""

from __future__ import annotations

from collections.abc import Collection

from quorate.coordinator.topics_view import Topic
from quorate.metadata.distinct_ids import distinct
from quorate.metadata.image import ClusterImage
from quorate.metadata.touched import Touched
from quorate.protocol.types import Uuid

__all__ = ["GroupTopics"]


class GroupTopics:
    """A `TopicsView`. A topic is made when somebody asks for it, and again only after it has changed."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._made: dict[Uuid, Topic] = {}
        self._racks_seen = _racks_of_brokers(image)
        self.version = 0

    def by_name(self, name: str) -> Topic | None:
        known = self._image.topics.by_name.get(name)
        return None if known is None else self.by_id(known.id)

    def by_id(self, topic_id: Uuid) -> Topic | None:
        made = self._made.get(topic_id)
        if made is None:
            known = self._image.topics.by_id.get(topic_id)
            if known is not None:
                racks = self._racks(known.slot)
                made = Topic(known.id, known.name, len(racks), racks if any(racks) else ())
                self._made[topic_id] = made
        return made

    def names(self) -> Collection[str]:
        return self._image.topics.by_name.keys()

    def replace(self, image: ClusterImage) -> list[str]:
        """Another image has taken the place of ours. The topics that may be different."""
        names = {*self._image.topics.by_name, *image.topics.by_name}
        self._image = image
        self._made.clear()
        self._racks_seen = _racks_of_brokers(image)
        self.version += 1
        return sorted(names)

    def update(self, touched: Touched) -> list[str]:
        """The image has changed in these places. The topics that are different, as far as groups see it:
        partitions change leaders all the time, but counts and racks, which groups go by, hardly ever."""
        if touched.topics_added:
            self.version += 1
        names = {*touched.topics_added.values(), *touched.topics_removed.values()}
        for topic_id in touched.topics_removed:
            self._made.pop(topic_id, None)
        names.update(map(self._compare, self._suspects(touched)))
        return sorted(names - {""})

    def _suspects(self, touched: Touched) -> list[Uuid]:
        """Topics that could be different: those with partitions that have changed; or all of them, if brokers
        are in other racks. A broker that is fenced is in the same rack as before."""
        if touched.brokers and (racks := _racks_of_brokers(self._image)) != self._racks_seen:
            self._racks_seen = racks
            return list(self._made)
        if not self._made or not touched.has_partitions:
            return []
        topic_ids, _ = touched.partition_columns()
        first, _ = distinct(topic_ids)
        return [Uuid(one.tobytes()) for one in topic_ids[first]]

    def _compare(self, topic_id: Uuid) -> str:
        """The name of a topic that is not what it was when somebody asked for it, which is forgotten."""
        made, known = self._made.get(topic_id), self._image.topics.by_id.get(topic_id)
        if made is None or known is None:
            return ""
        racks = self._racks(known.slot)
        if len(racks) == made.partition_count and (racks if any(racks) else []) == list(made.racks):
            return ""
        del self._made[topic_id]
        return known.name

    def _racks(self, slot: int) -> list[tuple[str, ...]]:
        """For each partition the racks of its replicas, as far as they have one."""
        brokers = self._image.brokers
        found = []
        for replicas in self._image.partitions.replicas_of(slot):
            racks = {brokers[one].rack for one in replicas if one in brokers}
            found.append(tuple(sorted(rack for rack in racks if rack is not None)))
        return found


def _racks_of_brokers(image: ClusterImage) -> dict[int, str | None]:
    return {broker.id: broker.rack for broker in image.brokers.values()}
