"""Every number of the storage layer: limits, and the settings of a log with their defaults."""

from __future__ import annotations

from typing import Final

from quorate.values import dataclass

__all__ = [
    "BATCH_SPAN_MAX",
    "INDEX_BYTES_MAX",
    "INDEX_INTERVAL_BYTES",
    "SCAN_WINDOW_BYTES",
    "SEGMENT_BYTES_MAX",
    "SNAPSHOT_BATCH_BYTES_MAX",
    "SNAPSHOT_BATCH_RECORDS_MAX",
    "WHOLE_FILE_BYTES_MAX",
    "LogConfig",
]

_INT32_MAX: Final = (1 << 31) - 1
_DAY_MS: Final = 24 * 60 * 60 * 1000

# Positions and relative offsets in indexes are int32, so neither a segment nor what it covers can be larger.
SEGMENT_BYTES_MAX: Final = _INT32_MAX
BATCH_SPAN_MAX: Final = _INT32_MAX

INDEX_INTERVAL_BYTES: Final = 4096
INDEX_BYTES_MAX: Final = 10 << 20

# How much of a file a scan reads at a time. A larger batch is read whole.
SCAN_WINDOW_BYTES: Final = 1 << 20

# What one data batch of a snapshot holds at most; a record that is larger stands alone.
SNAPSHOT_BATCH_RECORDS_MAX: Final = 1024
SNAPSHOT_BATCH_BYTES_MAX: Final = 8 << 20

# Files that are read as a whole: checkpoints, properties, the election state. None is ever near this.
WHOLE_FILE_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How a log is cut into segments. The defaults are those of the metadata log and of a topic alike.

    `is_compacted` says that offsets may be missing between batches. In a log that is not, a missing offset is
    a hole that a crash left: what follows was never synced, and is dropped.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    index_bytes: int = INDEX_BYTES_MAX
    is_compacted: bool = False

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes <= SEGMENT_BYTES_MAX
        assert self.segment_ms > 0
        assert self.index_interval_bytes >= 0
        assert 24 <= self.index_bytes <= _INT32_MAX, "less than two entries"
