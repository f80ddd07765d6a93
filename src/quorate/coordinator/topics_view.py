"""What the group coordinator knows of the cluster's topics: which there are, and their partitions.

The host keeps one view and renews a `Topic` only when something of that topic changes, so that what was once
computed from it (its hash) stays with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final, Protocol

from quorate.coordinator.xxh3 import xxh3_64
from quorate.protocol.types import Uuid

__all__ = ["Topic", "Topics", "TopicsView", "metadata_hash"]

_HASHES_MAX: Final = 1_000  # that are remembered


class Topic:
    """One topic. `racks` has, for each partition, the racks of its replicas, as far as they have one."""

    __slots__ = ("_hash", "id", "name", "partition_count", "racks")

    def __init__(
        self, topic_id: Uuid, name: str, partition_count: int, racks: Sequence[Sequence[str]] = ()
    ) -> None:
        self.id = topic_id
        self.name = name
        self.partition_count = partition_count
        self.racks = racks
        self._hash: int | None = None

    @property
    def hash(self) -> int:
        """A number that changes when the topic does: the one that Kafka computes."""
        if self._hash is None:
            self._hash = xxh3_64(self._hashed_bytes())
        return self._hash

    def _hashed_bytes(self) -> bytes:
        # The layout is Kafka's: a version byte, the halves of the id, the name, then the partitions.
        parts = [b"\0", self.id[7::-1], self.id[:7:-1], _string(self.name), _int(self.partition_count)]
        for partition in range(self.partition_count):
            parts.append(_int(partition))
            for rack in sorted(self.racks[partition]) if partition < len(self.racks) else ():
                parts += (_int(_utf16_length(rack)), _string(rack))
        return b"".join(parts)

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {self.id}, {self.partition_count} partitions)"


class TopicsView(Protocol):
    """The topics of the cluster as they are now."""

    @property
    def version(self) -> int:
        """Grows whenever a topic is created: what a regular expression matched before may be too little."""
        ...

    def by_name(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: Uuid) -> Topic | None: ...

    def names(self) -> Collection[str]:
        """All of them, in no particular order."""
        ...


class Topics:
    """A view that is a plain collection."""

    __slots__ = ("_by_id", "_by_name", "version")

    def __init__(self, topics: Iterable[Topic] = (), version: int = 0) -> None:
        self._by_name = {topic.name: topic for topic in topics}
        self._by_id = {topic.id: topic for topic in self._by_name.values()}
        self.version = version

    def by_name(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: Uuid) -> Topic | None:
        return self._by_id.get(topic_id)

    def names(self) -> Collection[str]:
        return self._by_name.keys()


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """A number that changes when any of the named topics does, appears or is deleted."""
    found = (topic for name in sorted(names) if (topic := topics.by_name(name)) is not None)
    hashed = b"".join((topic.hash & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little") for topic in found)
    return _hash_of_hashes(hashed) if hashed else 0


@lru_cache(maxsize=_HASHES_MAX)
def _hash_of_hashes(hashed: bytes) -> int:
    """While members come and go, the topics of their group stay what they are."""
    return xxh3_64(hashed)


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _string(text: str) -> bytes:
    return text.encode("utf-16-le") + _int(_utf16_length(text))


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
