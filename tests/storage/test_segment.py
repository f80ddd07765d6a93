"""When a segment is full or old enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quorate.storage.limits import BATCH_SPAN_MAX, LogConfig
from quorate.storage.segment import SegmentSummary, must_roll

CONFIG = LogConfig(segment_bytes=1000, segment_ms=500)
SEGMENT = SegmentSummary(
    base_offset=100,
    next_offset=150,
    size_bytes=800,
    first_timestamp_ms=10_000,
    largest_timestamp_ms=10_400,
    created_ms=1,
    is_index_full=False,
)
EMPTY = replace(SEGMENT, next_offset=100, size_bytes=0, first_timestamp_ms=-1)
UNTIMED = replace(SEGMENT, first_timestamp_ms=-1)


@pytest.mark.parametrize(
    ("case", "segment", "size_bytes", "last_offset", "timestamp_ms", "now_ms", "rolls"),
    [
        ("it fits exactly", SEGMENT, 200, 160, 10_100, 0, False),
        ("a byte too much", SEGMENT, 201, 160, 10_100, 0, True),
        ("too much for any segment, but this one is empty", EMPTY, 5000, 160, 10_100, 0, False),
        ("just young enough", SEGMENT, 1, 160, 10_500, 0, False),
        ("too old by the batches' own time", SEGMENT, 1, 160, 10_501, 0, True),
        ("our clock does not count", SEGMENT, 1, 160, 10_500, 10**9, False),
        ("our clock counts without timestamps", UNTIMED, 1, 160, -1, 502, True),
        ("and not before it is time", UNTIMED, 1, 160, -1, 501, False),
        ("an empty segment is never old", EMPTY, 1, 160, 10**9, 10**9, False),
        ("an index is full", replace(SEGMENT, is_index_full=True), 1, 160, 10_100, 0, True),
        ("the last offset that can be written", SEGMENT, 1, 100 + BATCH_SPAN_MAX, 10_100, 0, False),
        ("the offset is too far from the base", SEGMENT, 1, 101 + BATCH_SPAN_MAX, 10_100, 0, True),
        ("even if it is empty", EMPTY, 1, 101 + BATCH_SPAN_MAX, 10_100, 0, True),
    ],
)
def test_a_segment_rolls(
    case: str,
    segment: SegmentSummary,
    size_bytes: int,
    last_offset: int,
    timestamp_ms: int,
    now_ms: int,
    rolls: bool,
) -> None:
    assert must_roll(segment, size_bytes, last_offset, timestamp_ms, now_ms, CONFIG) is rolls, case
