"""How far groups have consumed, as the log says: a fold over its offset records and the markers between them.

What a transaction commits is *pending* until its marker: then it counts, or is forgotten. A plain commit that
came after a transactional one stands, although the marker comes last: the newer record wins, by its offset in
the log. A tombstone takes what is pending for its partition as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

from quorate.coordinator.group_records import OffsetCommitKey, OffsetCommitValue
from quorate.values import dataclass

__all__ = ["Committed", "CommittedOffsets"]


class Committed(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int  # -1 unless the client has said when
    record_offset: int


_Partitions = dict[int, Committed]
_Topics = dict[str, _Partitions]


@dataclass(slots=True)
class CommittedOffsets:
    _groups: dict[str, _Topics] = field(default_factory=dict)
    _pending: dict[int, dict[str, _Topics]] = field(default_factory=dict)
    """By producer id, then like the others."""
    _open: dict[str, set[int]] = field(default_factory=dict)
    """The producers that have a transaction open, by group."""

    # Writing: only what the log says

    def apply(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, offset: int, producer_id: int
    ) -> None:
        if value is None:
            self._forget(key)
            return
        committed = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            offset,
        )
        if producer_id < 0:
            self.put(key.group, key.topic, key.partition, committed)
        else:
            pending = self._pending.setdefault(producer_id, {})
            pending.setdefault(key.group, {}).setdefault(key.topic, {})[key.partition] = committed
            self._open.setdefault(key.group, set()).add(producer_id)

    def put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        """The log says, outside of a transaction, that this is committed."""
        try:
            self._groups[group_id][topic][partition] = committed
        except KeyError:
            self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def commit(self, producer_id: int) -> None:
        """What this producer has pending counts from now on."""
        for group_id, topics in self._end(producer_id).items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    standing = self.get(group_id, topic, partition)
                    if standing is None or standing.record_offset < committed.record_offset:
                        self.put(group_id, topic, partition, committed)

    def abort(self, producer_id: int) -> None:
        """What this producer has pending is forgotten."""
        self._end(producer_id)

    def _end(self, producer_id: int) -> dict[str, _Topics]:
        pending = self._pending.pop(producer_id, {})
        for group_id in [group_id for group_id, producers in self._open.items() if producer_id in producers]:
            self._open[group_id].discard(producer_id)
            if not self._open[group_id]:
                del self._open[group_id]
        return pending

    def _forget(self, key: OffsetCommitKey) -> None:
        _drop(self._groups, key.group, key.topic, key.partition)
        for producer_id in self._open.get(key.group, ()):
            _drop(self._pending.get(producer_id, {}), key.group, key.topic, key.partition)

    # Reading

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    @property
    def open_transactions(self) -> int:
        return len(self._pending)

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        topics = self._groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def of(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        """By topic and partition, in the order in which they were first committed."""
        return self._groups.get(group_id, {})

    def group_ids(self) -> Iterable[str]:
        """Of groups that have offsets, or may have some once a transaction is over."""
        return dict.fromkeys([*self._groups, *self._open])

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction is open that has committed for this partition."""
        return any(
            partition in self._pending.get(producer_id, {}).get(group_id, {}).get(topic, {})
            for producer_id in self._open.get(group_id, ())
        )

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def partitions_of(self, group_id: str) -> Iterator[tuple[str, int]]:
        """All that the group has committed or has pending, each once."""
        seen: dict[tuple[str, int], None] = {}
        pending = (self._pending.get(producer_id, {}) for producer_id in sorted(self._open.get(group_id, ())))
        for groups in (self._groups, *pending):
            for topic, partitions in groups.get(group_id, {}).items():
                seen.update(dict.fromkeys((topic, partition) for partition in partitions))
        return iter(seen)


def _drop(groups: dict[str, _Topics], group_id: str, topic: str, partition: int) -> None:
    topics = groups.get(group_id)
    partitions = None if topics is None else topics.get(topic)
    if topics is None or partitions is None or partitions.pop(partition, None) is None:
        return
    if not partitions:
        del topics[topic]
    if not topics:
        del groups[group_id]
