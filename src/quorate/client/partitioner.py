"""Which partition a record goes to.

By its key: the same function as in Kafka's Java client, so that producers in both languages put the same key
in the same partition. Without a key: one partition until a batch's worth of bytes has gone there, then
another one at random. Spreading record by record would make many small batches.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import field
from random import Random
from typing import Final

from quorate.client.metadata import Partition, Topic
from quorate.values import dataclass

__all__ = ["StickyPartitioner", "murmur2", "partition_for_key"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's Java client, as an unsigned number.

    >>> murmur2(b"21"), murmur2(b"foobar")
    (3321034988, 3504634814)
    """
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for (k,) in struct.iter_unpack("<I", memoryview(data)[:whole]):
        k = k * _M & _MASK  # noqa: PLW2901
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """
    >>> partition_for_key(b"customer-17", 12)
    4
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


@dataclass(slots=True)
class _Turn:
    topic: Topic
    partition: int
    used_bytes: int


@dataclass(slots=True)
class StickyPartitioner:
    """For records without a key: remembers, for each topic, where it is and how much has gone there."""

    random: Random
    bytes_per_turn: int
    _turns: dict[str, _Turn] = field(default_factory=dict)

    def partition(self, topic: Topic, size_bytes: int) -> int:
        turn = self._turns.get(topic.name)
        if turn is None or turn.topic is not topic or turn.used_bytes >= self.bytes_per_turn:
            turn = self._turns[topic.name] = self._next_turn(topic, turn)
        turn.used_bytes += size_bytes
        return turn.partition

    def _next_turn(self, topic: Topic, last: _Turn | None) -> _Turn:
        available = _available(topic.partitions)
        if last is not None and last.used_bytes < self.bytes_per_turn and last.partition in available:
            return _Turn(topic, last.partition, last.used_bytes)  # only the metadata is new
        others = [one for one in available if last is None or one != last.partition]
        return _Turn(topic, self.random.choice(others or available), 0)


def _available(partitions: Mapping[int, Partition]) -> list[int]:
    """Those with a leader; if none has one, all: the records wait for it there."""
    return [one.index for one in partitions.values() if one.leader >= 0] or list(partitions)
