"""The targets of a group's members, and what assignors ask of them all at once.

A group of hundreds is assigned anew for each member that comes, and then hardly any target is another. How
many partitions each member shall have, and whether any is meant for two, is kept up with each change, so that
nobody has to go through all targets to find out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from quorate.coordinator.consumer_members import NO_PARTITIONS, Partitions
from quorate.protocol.types import Uuid

__all__ = ["Targets"]


class Targets:
    """By member id."""

    __slots__ = ("_claims", "_disputed", "_extremes", "_sizes", "by_member", "by_size")

    def __init__(self) -> None:
        self.by_member: dict[str, Partitions] = {}
        self.by_size: dict[int, list[str]] = {}
        """The members by how many partitions they shall have; those that have a target, ordered."""
        self._sizes: dict[str, int] = {}  # the same, by member
        self._claims: dict[Uuid, dict[int, int]] = {}  # for how many members a partition is meant
        self._disputed = 0  # partitions that are meant for more than one
        self._extremes: dict[Uuid, tuple[int, int]] = {}  # the lowest and the highest that ever were

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Targets) and self.by_member == other.by_member

    __hash__ = None  # type: ignore[assignment]

    def get(self, member_id: str) -> Partitions | None:
        return self.by_member.get(member_id)

    @property
    def is_disputed(self) -> bool:
        """Whether a partition is meant for two: between two records of a step, or if the log was damaged."""
        return self._disputed > 0

    @property
    def claimed(self) -> Mapping[Uuid, Mapping[int, int]]:
        """The partitions that are meant for somebody, by topic."""
        return self._claims

    def are_below(self, topic_id: Uuid, partition_count: int) -> bool:
        """Whether all partitions of a topic that are meant for somebody exist. False may mean: not always."""
        lowest, highest = self._extremes.get(topic_id, (0, -1))
        return lowest >= 0 and highest < partition_count

    def put(self, member_id: str, target: Partitions) -> None:
        before = self.by_member.get(member_id, NO_PARTITIONS)
        self.by_member[member_id] = target
        self._resize(member_id, sum(map(len, target.values())))
        for topic_id, partitions in target.items():
            old = before.get(topic_id)
            self._claim(topic_id, partitions if old is None else partitions - old)
        for topic_id, partitions in before.items():
            new = target.get(topic_id)
            self._release(topic_id, partitions if new is None else partitions - new)

    def drop(self, member_id: str) -> None:
        before = self.by_member.pop(member_id, NO_PARTITIONS)
        self._resize(member_id, None)
        for topic_id, partitions in before.items():
            self._release(topic_id, partitions)

    def _resize(self, member_id: str, size: int | None) -> None:
        """None if the member has no target any more."""
        before = self._sizes.get(member_id)
        if size == before:
            return
        if before is not None:
            equals = self.by_size[before]
            del equals[bisect_left(equals, member_id)]
            if not equals:
                del self.by_size[before]
        if size is None:
            del self._sizes[member_id]
        else:
            self._sizes[member_id] = size
            insort(self.by_size.setdefault(size, []), member_id)

    def _claim(self, topic_id: Uuid, partitions: frozenset[int]) -> None:
        if not partitions:
            return
        claims = self._claims.setdefault(topic_id, {})
        lowest, highest = self._extremes.get(topic_id, (0, -1))
        self._extremes[topic_id] = min(lowest, *partitions), max(highest, *partitions)
        for partition in partitions:
            number = claims[partition] = claims.get(partition, 0) + 1
            self._disputed += number == 2

    def _release(self, topic_id: Uuid, partitions: frozenset[int]) -> None:
        if not partitions:
            return
        claims = self._claims[topic_id]
        for partition in partitions:
            number = claims[partition] - 1
            if number:
                claims[partition] = number
                self._disputed -= number == 1
            else:
                del claims[partition]
        if not claims:
            del self._claims[topic_id], self._extremes[topic_id]
