"""Which log is compacted next, and how much of it: decisions only, Kafka's rules.

The part of a log that was written since it was last compacted is dirty. Of that, what is not replicated, what
belongs to an open transaction, the segment that is written to, and segments with records younger than
`min.compaction.lag.ms` cannot be compacted yet. The log with the largest share of what can be is next, if
that is more than `min.cleanable.dirty.ratio`; or if a dirty segment is older than `max.compaction.lag.ms`.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate.storage.segment import SegmentSummary
from quorate.values import dataclass

__all__ = ["CleanableLog", "DirtyPart", "dirty_part"]


@dataclass(frozen=True, slots=True)
class DirtyPart:
    """What can be compacted of a log: from `dirty_offset` up to `upper_offset`, where a segment begins."""

    dirty_offset: int
    upper_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool  # by max.compaction.lag.ms

    @property
    def ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_worth_it(self, ratio_min: float) -> bool:
        return self.cleanable_bytes > 0 and (self.is_overdue or self.ratio > ratio_min)


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """What the decision is made from."""

    segments: Sequence[SegmentSummary]
    start_offset: int
    end_offset: int
    last_stable_offset: int
    cleaned_offset: int | None  # as it was remembered


def dirty_part(log: CleanableLog, *, min_lag_ms: int, max_lag_ms: int, now_ms: int) -> DirtyPart:
    """What of a log can be compacted now."""
    dirty_offset = log.cleaned_offset
    if dirty_offset is None or not log.start_offset <= dirty_offset <= log.end_offset:
        dirty_offset = log.start_offset  # what was remembered is not about this log, as it is now
    *finished, active = log.segments
    dirty = [
        one for number, one in enumerate(finished) if log.segments[number + 1].base_offset > dirty_offset
    ]
    limit = min(log.last_stable_offset, active.base_offset)
    if min_lag_ms > 0:
        young = [one.base_offset for one in dirty if one.largest_timestamp_ms > now_ms - min_lag_ms]
        limit = min([limit, *young[:1]])
    limit = max(limit, dirty_offset)
    # whole segments only: up to the one that the limit is in
    upper_offset = max(one.base_offset for one in log.segments if one.base_offset <= limit)
    times = [one.first_timestamp_ms for one in dirty if one.first_timestamp_ms > 0]
    return DirtyPart(
        dirty_offset=dirty_offset,
        upper_offset=upper_offset,
        clean_bytes=sum(one.size_bytes for one in log.segments if one.base_offset < dirty_offset),
        cleanable_bytes=sum(one.size_bytes for one in dirty if one.base_offset < upper_offset),
        is_overdue=bool(times) and min(times) < now_ms - max_lag_ms,
    )
