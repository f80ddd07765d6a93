"""Topics: their names and ids, and the slots by which the partition table knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.metadata.errors import ImageError
from quorate.protocol.types import Uuid

__all__ = ["Topic", "Topics"]

_UUID = np.dtype("V16")


class Topic(NamedTuple):
    name: str
    id: Uuid
    slot: int


class Topics:
    """All topics. A slot is a small number that is used again once its topic is gone."""

    __slots__ = ("_free", "_ids", "_slots", "by_id", "by_name", "removal")

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[Uuid, Topic] = {}
        self._slots: list[Topic | None] = []
        self._free: list[int] = []
        self._ids: NDArray[np.void] = np.zeros(16, _UUID)  # by slot
        self.removal = object()
        """Another one after each. As long as it is the same, the topics that were here still are."""

    def copy(self) -> Topics:
        topics = Topics()
        topics.by_name = dict(self.by_name)
        topics.by_id = dict(self.by_id)
        topics._slots = list(self._slots)
        topics._free = list(self._free)
        topics._ids = self._ids.copy()
        return topics

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def at(self, slot: int) -> Topic:
        topic = self._slots[slot]
        assert topic is not None
        return topic

    @property
    def ids(self) -> NDArray[np.void]:
        """The ids of the topics by slot, 16 bytes each."""
        return self._ids

    def add(self, name: str, topic_id: Uuid) -> Topic:
        if name in self.by_name or topic_id in self.by_id:
            raise ImageError(f"topic {name} with id {topic_id} exists already")
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._slots)
            self._slots.append(None)
            if slot == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros(slot, _UUID)])
        topic = Topic(name, topic_id, slot)
        self._slots[slot] = self.by_name[name] = self.by_id[topic_id] = topic
        self._ids[slot] = np.void(bytes(topic_id))  # of a subclass of bytes, numpy takes one byte
        return topic

    def remove(self, topic_id: Uuid) -> Topic:
        topic = self.by_id.pop(topic_id, None)
        if topic is None:
            raise ImageError(f"topic id {topic_id} is removed but was never added")
        del self.by_name[topic.name]
        self._slots[topic.slot] = None
        self._free.append(topic.slot)
        self.removal = object()
        return topic
