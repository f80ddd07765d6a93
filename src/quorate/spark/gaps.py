"""Why offsets are missing before a record of a compacted partition that is read from files.

| label        | why                                                               |
|--------------|-------------------------------------------------------------------|
| `loss`       | a file is damaged there, or a segment is not there                |
| `retention`  | the log begins later: its beginning was deleted                   |
| `marker`     | the end of a transaction stands there, or one that was aborted    |
| `compaction` | nothing else explains it, and the topic is compacted              |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["COMPACTION", "LOSS", "MARKER", "RETENTION", "GapLabels"]

COMPACTION: Final = "compaction"
LOSS: Final = "loss"
MARKER: Final = "marker"
RETENTION: Final = "retention"

Int64s = NDArray[np.int64]


class GapLabels:
    """Labels records that come in order, some at a time."""

    def __init__(self, expected_offset: int, log_start_offset: int, damaged_offsets: Sequence[int]) -> None:
        self._expected = expected_offset
        self._log_start = log_start_offset
        self._damaged = np.sort(np.array(damaged_offsets, np.int64))
        self._hidden: Int64s = np.zeros(0, np.int64)  # since the last record

    def hide(self, offsets: Int64s) -> None:
        """These are there, and are not shown."""
        self._hidden = np.union1d(self._hidden, offsets.astype(np.int64))

    def labels(self, offsets: Int64s) -> pa.Array:
        """A label for each of these records, null where none is missing before it.

        >>> gaps = GapLabels(0, 0, [7])
        >>> gaps.hide(np.array([2]))
        >>> gaps.labels(np.array([0, 1, 3, 5, 9])).to_pylist()
        [None, None, 'marker', 'compaction', 'loss']
        """
        if not len(offsets):
            return pa.nulls(0, pa.string())
        expected = np.concatenate([[self._expected], offsets[:-1] + 1])
        found = np.full(len(offsets), None, object)
        rows = np.flatnonzero(offsets > expected)
        if len(rows):
            found[rows] = COMPACTION
            for label, at in ((MARKER, self._hidden), (LOSS, self._damaged)):
                has_some = np.searchsorted(at, offsets[rows]) > np.searchsorted(at, expected[rows])
                found[rows[has_some]] = label
            found[rows[(expected[rows] < self._log_start) & (offsets[rows] >= self._log_start)]] = RETENTION
        self._expected = int(offsets[-1]) + 1
        self._hidden = self._hidden[self._hidden >= self._expected]
        return pa.array(found, pa.string())
