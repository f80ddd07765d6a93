"""Which segments may go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quorate.storage.retention import UNLIMITED, retained_from
from quorate.storage.segment import SegmentSummary


def segments(*sizes: int) -> list[SegmentSummary]:
    """Segments of ten offsets each, whose newest records are from 1000, 2000, ..."""
    return [
        SegmentSummary(
            base_offset=10 * index,
            next_offset=10 * index + (10 if size else 0),
            size_bytes=size,
            first_timestamp_ms=1000 * index,
            largest_timestamp_ms=1000 * (index + 1),
            created_ms=0,
            is_index_full=False,
        )
        for index, size in enumerate(sizes)
    ]


FOUR = segments(100, 100, 100, 100)
YOUNG_FIRST = [replace(FOUR[0], largest_timestamp_ms=9000), *FOUR[1:]]


@pytest.mark.parametrize(
    ("case", "log", "start", "high_watermark", "size_bytes", "age_ms", "now_ms", "kept_from"),
    [
        ("without limits all stays", FOUR, 0, 40, UNLIMITED, UNLIMITED, 10**9, 0),
        ("what is over the size goes", FOUR, 0, 40, 250, UNLIMITED, 0, 10),
        ("the rest may be exactly the size", FOUR, 0, 40, 200, UNLIMITED, 0, 20),
        ("a size of 0 takes all", FOUR, 0, 40, 0, UNLIMITED, 0, 40),
        ("what is too old goes", FOUR, 0, 40, UNLIMITED, 500, 2501, 20),
        ("not what is just old enough to stay", FOUR, 0, 40, UNLIMITED, 500, 2500, 10),
        ("all of it may be too old", FOUR, 0, 40, UNLIMITED, 500, 10**6, 40),
        ("an empty last segment stays", segments(100, 0), 0, 10, 0, 0, 10**6, 10),
        ("what is not replicated stays", FOUR, 0, 19, 0, 0, 10**6, 10),
        ("nothing is replicated", FOUR, 0, 9, 0, 0, 10**6, 0),
        ("half of the last is replicated", FOUR, 0, 39, 0, 0, 10**6, 30),
        ("what is before the start goes in any case", FOUR, 25, 40, UNLIMITED, UNLIMITED, 0, 25),
        ("size counts what is left after that", FOUR, 20, 40, 200, UNLIMITED, 0, 20),
        ("age after size", FOUR, 0, 40, 300, 500, 2501, 20),
        ("an old one behind a young one stays", YOUNG_FIRST, 0, 40, UNLIMITED, 500, 3400, 0),
    ],
)
def test_retention(
    case: str,
    log: list[SegmentSummary],
    start: int,
    high_watermark: int,
    size_bytes: int,
    age_ms: int,
    now_ms: int,
    kept_from: int,
) -> None:
    found = retained_from(
        log,
        log_start_offset=start,
        high_watermark=high_watermark,
        retention_bytes=size_bytes,
        retention_ms=age_ms,
        now_ms=now_ms,
    )
    assert found == kept_from, case
