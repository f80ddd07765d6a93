"""What of a log can be compacted, and whether it is worth it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quorate.broker.cleaner_choice import CleanableLog, DirtyPart, dirty_part
from quorate.storage.segment import SegmentSummary

FOREVER_MS = (1 << 63) - 1
NOW_MS = 10_000


def a_segment(base_offset: int, first_ms: int = 100, largest_ms: int = 200) -> SegmentSummary:
    return SegmentSummary(base_offset, base_offset + 10, 100, first_ms, largest_ms, 0, False)


# Three segments that are finished, and the one that is written to.
LOG = CleanableLog([a_segment(one) for one in (0, 10, 20, 30)], 0, 35, 35, None)


def part_of(log: CleanableLog, *, min_lag_ms: int = 0, max_lag_ms: int = FOREVER_MS) -> DirtyPart:
    return dirty_part(log, min_lag_ms=min_lag_ms, max_lag_ms=max_lag_ms, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("about", "changes", "dirty_offset", "upper_offset", "clean_bytes", "cleanable_bytes"),
    [
        ("never compacted", {}, 0, 30, 0, 300),
        ("compacted up to the second", {"cleaned_offset": 10}, 10, 30, 100, 200),
        ("compacted up to the middle of a segment", {"cleaned_offset": 15}, 15, 30, 200, 200),
        ("all of it is clean", {"cleaned_offset": 30}, 30, 30, 300, 0),
        ("not stable beyond the second", {"last_stable_offset": 25}, 0, 20, 0, 200),
        ("nothing is stable", {"last_stable_offset": 3}, 0, 0, 0, 0),
        ("the log begins later", {"start_offset": 12, "cleaned_offset": 5}, 12, 30, 200, 200),
        ("the log ends earlier", {"cleaned_offset": 36}, 0, 30, 0, 300),
        ("only the one that is written to", {"segments": LOG.segments[3:]}, 30, 30, 0, 0),
    ],
)
def test_the_dirty_part(
    about: str,
    changes: dict[str, object],
    dirty_offset: int,
    upper_offset: int,
    clean_bytes: int,
    cleanable_bytes: int,
) -> None:
    log = replace(LOG, **changes)  # type: ignore[arg-type]
    if len(log.segments) == 1:
        log = replace(log, start_offset=30)
    found = part_of(log)
    assert (found.dirty_offset, found.upper_offset) == (dirty_offset, upper_offset), about
    assert (found.clean_bytes, found.cleanable_bytes) == (clean_bytes, cleanable_bytes), about


def test_young_segments_are_left_alone() -> None:
    segments = [a_segment(0), a_segment(10), a_segment(20, largest_ms=NOW_MS - 50), a_segment(30)]
    log = replace(LOG, segments=segments)
    assert part_of(log, min_lag_ms=100).upper_offset == 20
    assert part_of(log, min_lag_ms=50).upper_offset == 30
    assert part_of(log, min_lag_ms=49).upper_offset == 30
    # what is clean already may be as young as it likes
    assert part_of(replace(log, cleaned_offset=30), min_lag_ms=100).upper_offset == 30


def test_an_old_segment_is_overdue() -> None:
    assert not part_of(LOG, max_lag_ms=NOW_MS - 100).is_overdue
    assert part_of(LOG, max_lag_ms=NOW_MS - 101).is_overdue
    without_times = replace(LOG, segments=[a_segment(one, first_ms=-1) for one in (0, 10, 20, 30)])
    assert not part_of(without_times, max_lag_ms=1).is_overdue
    clean = replace(LOG, cleaned_offset=30)
    assert not part_of(clean, max_lag_ms=1).is_overdue


@pytest.mark.parametrize(
    ("clean_bytes", "cleanable_bytes", "is_overdue", "is_worth_it"),
    [
        (100, 101, False, True),
        (100, 100, False, False),  # half is not more than half
        (100, 1, True, True),
        (100, 0, True, False),
        (0, 0, False, False),
    ],
)
def test_what_is_worth_it(
    clean_bytes: int, cleanable_bytes: int, is_overdue: bool, is_worth_it: bool
) -> None:
    part = DirtyPart(0, 10, clean_bytes, cleanable_bytes, is_overdue)
    assert part.is_worth_it(0.5) == is_worth_it
