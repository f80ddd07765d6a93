"""When offsets are forgotten that nobody asked to delete: by age, and with their topics.

| the group                                     | an offset is as old as             | of topics        |
|-----------------------------------------------|------------------------------------|------------------|
| is a classic one, and empty                   | the group has been empty           | all              |
| is a classic one of consumers, and stable     | its commit                         | not subscribed   |
| was never joined: it only has offsets         | its commit                         | all              |
| is a consumer group                           | its commit                         | not subscribed   |
| anything else: it rebalances, or is Connect's | nothing expires                    |                  |

Whoever committed with a time of its own (v2 to v4) is taken at its word. What a transaction may still change
is kept. A group that is empty and has no offsets left is deleted.

All of it is done in small steps: there may be millions, and the partition has other work as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from quorate.coordinator.classic import ClassicGroup, State
from quorate.coordinator.committed_offsets import Committed, CommittedOffsets
from quorate.coordinator.events import OffsetsExpired
from quorate.coordinator.offsets import forget
from quorate.coordinator.step import Step

__all__ = ["RECORDS_MAX", "Deletions", "OffsetHolder", "age_in_classic_group", "expire", "since_commit"]

RECORDS_MAX: Final = 1000
"""How many offsets one step forgets."""


class OffsetHolder(Protocol):
    """A group, as far as its offsets depend on it."""

    @property
    def group_id(self) -> str: ...

    def is_subscribed(self, topic: str) -> bool: ...


def age_in_classic_group(group: ClassicGroup) -> Callable[[Committed], int] | None:
    """Since when an offset of the group ages, in milliseconds since 1970; None if it does not."""
    if not group.protocol_type:
        return since_commit
    if group.state is State.EMPTY:
        if group.state_since_ms < 0:
            return since_commit  # an old record, which does not say since when it was empty
        return lambda _committed: group.state_since_ms
    if group.state is State.STABLE and group.topics is not None:
        return since_commit
    return None


def since_commit(committed: Committed) -> int:
    """An offset ages since it was committed."""
    return committed.commit_ms


def expire(
    group: OffsetHolder, since: Callable[[Committed], int], offsets: CommittedOffsets, step: Step
) -> bool:
    """Forgets what is too old, as much as fits into this step. Whether nothing is left of the group."""
    retention_ms = step.settings.offsets_retention_ms
    before = len(step.records)
    is_left = False
    for topic, partitions in offsets.of(group.group_id).items():
        if group.is_subscribed(topic):
            is_left = True
            continue
        for partition, committed in partitions.items():
            is_old = _is_old(committed, since, step.wall_ms, retention_ms)
            if (
                is_old
                and len(step.records) < RECORDS_MAX
                and not offsets.is_pending(group.group_id, topic, partition)
            ):
                forget(group.group_id, topic, partition, step)
            else:
                is_left = True
    expired = len(step.records) - before
    if expired:
        step.tell(OffsetsExpired(group.group_id, expired, retention_ms))
    return not is_left and not offsets.has_open_transaction(group.group_id)


def _is_old(committed: Committed, since: Callable[[Committed], int], wall_ms: int, retention_ms: int) -> bool:
    if committed.expire_ms >= 0:
        return wall_ms >= committed.expire_ms
    return wall_ms - since(committed) >= retention_ms


class _Doomed(NamedTuple):
    group_id: str
    topic: str
    partition: int
    record_offset: int  # of the commit; -1 if it is in an open transaction


class Deletions:
    """Offsets of topics that were deleted, to be forgotten step by step."""

    def __init__(self) -> None:
        self._doomed: deque[_Doomed] = deque()
        self._last: list[_Doomed] = []  # of the last step, until it is known to be in the log

    def __len__(self) -> int:
        return len(self._doomed)

    def add(self, topics: Iterable[str], offsets: CommittedOffsets) -> None:
        names = frozenset(topics)
        for group_id in offsets.group_ids():
            for topic, partition in offsets.partitions_of(group_id):
                if topic in names:
                    committed = offsets.get(group_id, topic, partition)
                    record_offset = -1 if committed is None else committed.record_offset
                    self._doomed.append(_Doomed(group_id, topic, partition, record_offset))

    def take(self, offsets: CommittedOffsets, step: Step) -> None:
        """Forgets some of them. What was committed since is for a new topic of the same name, and stays."""
        self._last = []
        while self._doomed and len(step.records) < RECORDS_MAX:
            doomed = self._doomed.popleft()
            group_id, topic, partition, record_offset = doomed
            committed = offsets.get(group_id, topic, partition)
            is_same = (-1 if committed is None else committed.record_offset) == record_offset
            if is_same and (committed is not None or offsets.is_pending(group_id, topic, partition)):
                forget(group_id, topic, partition, step)
                self._last.append(doomed)

    def settle(self) -> None:
        """The last step is in the log."""
        self._last = []

    def put_back(self) -> bool:
        """The log has refused the last step: it is to be taken again. Whether it was one of these at all."""
        was_one = bool(self._last)
        self._doomed.extendleft(reversed(self._last))
        self._last = []
        return was_one
