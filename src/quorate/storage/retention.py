"""How much of a log may go: decisions only.

Segments go from the oldest on, and the first that stays ends it. What is not replicated yet always stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate.storage.segment import SegmentSummary

__all__ = ["UNLIMITED", "count_before", "count_over_age", "count_over_size", "retained_from"]

UNLIMITED = -1


def retained_from(
    segments: Sequence[SegmentSummary],
    *,
    log_start_offset: int,
    high_watermark: int,
    retention_bytes: int,
    retention_ms: int,
    now_ms: int,
) -> int:
    """The offset before which segments may be deleted: first those that were given up already, then those
    that are too much, then those that are too old. It may be the end of the log: then the last one goes
    too."""
    replicated = 0
    while replicated < len(segments) and _may_go(segments, replicated, high_watermark):
        replicated += 1
    gone = min(replicated, count_before(segments, log_start_offset))
    gone += min(replicated - gone, count_over_size(segments[gone:], retention_bytes))
    gone += min(replicated - gone, count_over_age(segments[gone:], retention_ms, now_ms))
    if gone == 0:
        return log_start_offset
    return max(
        log_start_offset,
        segments[gone - 1].next_offset if gone == len(segments) else segments[gone].base_offset,
    )


def count_before(segments: Sequence[SegmentSummary], log_start_offset: int) -> int:
    """How many segments end before the log starts. The last one stays: there must be one to write to."""
    return sum(1 for segment in segments[1:] if segment.base_offset <= log_start_offset)


def count_over_size(segments: Sequence[SegmentSummary], retention_bytes: int) -> int:
    """How many of the oldest segments can go while what is left is still `retention_bytes` at least."""
    if retention_bytes == UNLIMITED:
        return 0
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments:
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            break
        count += 1
    return count


def count_over_age(segments: Sequence[SegmentSummary], retention_ms: int, now_ms: int) -> int:
    """How many of the oldest segments hold nothing younger than `retention_ms`."""
    if retention_ms == UNLIMITED:
        return 0
    count = 0
    for segment in segments:
        if now_ms - segment.largest_timestamp_ms <= retention_ms:
            break
        count += 1
    return count


def _may_go(segments: Sequence[SegmentSummary], index: int, high_watermark: int) -> bool:
    """Whether all of a segment is replicated. An empty one at the end is no gain."""
    if index + 1 < len(segments):
        return segments[index + 1].base_offset <= high_watermark
    return segments[index].next_offset <= high_watermark and segments[index].size_bytes > 0
