"""The group coordinators of this broker: which partition a group belongs to, and who answers for it here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from quorate.broker.coordinators import Coordinators, Hosted
from quorate.broker.group_topics import GroupTopics
from quorate.broker.partition import Partition
from quorate.broker.serving import Broker
from quorate.coordinator.effects import Moment
from quorate.coordinator.shard import GroupShard
from quorate.metadata.event import Event

__all__ = ["OFFSETS_TOPIC", "Groups", "java_hash"]

OFFSETS_TOPIC: Final = "__consumer_offsets"
_HASHES_MAX: Final = 100_000


def java_hash(text: str) -> int:
    """What Java makes of a string: 31 times what came before, plus the next UTF-16 code unit, in 32 bits.

    >>> java_hash("test"), java_hash("polygenelubricants")
    (3556498, -2147483648)
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


class Groups:
    """Where groups are coordinated."""

    def __init__(self, broker: Broker, saw: Callable[[Sequence[Event]], None]) -> None:
        """`saw` is told what has happened to groups, and why."""
        settings = broker.settings
        self._broker = broker
        self.topics = GroupTopics(broker.image)
        self.shards: Coordinators[GroupShard] = Coordinators(
            self._make_shard,
            lambda: Moment(broker.now_ms(), broker.wall_ms()),
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
            offline=broker.replicas.offline,
            saw=saw,
            logger=logging.getLogger(f"quorate.groups.{settings.broker_id}"),
        )
        self._known: dict[str, int] = {}  # hashes of groups, which are asked for again and again

    def _make_shard(self) -> GroupShard:
        random = self._broker.random
        return GroupShard(
            self._broker.settings.groups, lambda: str(UUID(bytes=random.randbytes(16), version=4))
        )

    def led(self, partition: Partition) -> None:
        """This broker leads a partition, in a new epoch."""
        if partition.key.topic == OFFSETS_TOPIC:
            self.shards.elected(partition)

    def topics_gone(self, names: Sequence[str]) -> None:
        """Topics were deleted, and with them what groups have committed for them."""
        if names:
            for hosted in self.shards.all_active():
                hosted.perform(lambda moment, shard=hosted.shard: shard.topics_deleted(names, moment))  # type: ignore[misc]

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group's state is in."""
        hashed = self._known.get(group_id)
        if hashed is None:
            if len(self._known) >= _HASHES_MAX:
                self._known.clear()
            hashed = java_hash(group_id)
            hashed = self._known[group_id] = 0 if hashed == -1 << 31 else abs(hashed)
        return hashed % self._partition_count()

    def of(self, group_id: str) -> Hosted[GroupShard]:
        """The coordinator of a group. `ApiError` if that is not here, or not yet."""
        return self.shards.active(self.partition_of(group_id))

    def leader_of(self, group_id: str) -> int | None:
        """The broker that coordinates a group; -1 while nobody does; None if the topic does not exist."""
        image = self._broker.image
        topic = image.topics.by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        state = image.partitions.get(topic.slot, self.partition_of(group_id))
        return -1 if state is None else state.leader

    def _partition_count(self) -> int:
        image = self._broker.image
        topic = image.topics.by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return self._broker.settings.offsets_topic_partitions
        return image.partitions.count_of(topic.slot)
