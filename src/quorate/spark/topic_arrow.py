"""Records as Arrow: whole columns at once, from the bytes that a broker sent.

Keys, values and headers are copied out of the broker's bytes by Arrow itself, in one pass for all records:
their positions are the offsets of a binary array over those bytes, of which every other slot is wanted (see
`ArrowSlots`). What is the same for all records of a part is repeated by Arrow as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.protocol.batch import BatchHeader, TimestampType
from quorate.protocol.columns import RecordColumns
from quorate.spark.topic_range import Part, RangeReader

__all__ = ["ARROW_TYPES", "record_batches"]

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
ARROW_TYPES: Final[dict[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
    "gap": pa.string(),
    "leaderEpoch": pa.int32(),
}
# A batch that Spark is handed: large enough to be cheap, small enough to be many in memory.
_ROWS_MAX: Final = 50_000
_BYTES_MAX: Final = 16 << 20

_Ints = NDArray[np.int64]


def record_batches(
    reader: RangeReader, start_offset: int, end_offset: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The records with these offsets, with these columns."""
    schema = pa.schema([pa.field(name, ARROW_TYPES[name]) for name in names])
    gaps = _Gaps(reader, start_offset) if "gap" in names else None
    for part in reader.parts():
        columns = part.fetched.columns()
        first, last = columns.offset.searchsorted((start_offset, end_offset)).tolist()
        labels = None if gaps is None else gaps.labels(part, columns.offset[first:last])
        for begin, end in _portions(columns, first, last):
            rows = _Rows(columns, begin, end, part)
            arrays = [
                labels.slice(begin - first, end - begin)
                if name == "gap" and labels is not None
                else rows.column(name)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _portions(columns: RecordColumns, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Rows that go together, by number and by bytes; a part of a compressed topic can be much larger than
    what was fetched."""
    while first < last:
        end = min(first + _ROWS_MAX, last)
        limit_bytes = int(columns.bounds[first, 0]) + _BYTES_MAX
        if columns.bounds[end - 1, 3] > limit_bytes:
            end = first + max(1, int(columns.bounds[first:end, 3].searchsorted(limit_bytes)))
        yield first, end
        first = end


class _Rows:
    """Some rows of the columns, and how each of them becomes an Arrow array."""

    def __init__(self, columns: RecordColumns, begin: int, end: int, part: Part) -> None:
        self._columns = columns
        self._rows = slice(begin, end)
        self._count = end - begin
        self._part = part

    def column(self, name: str) -> pa.Array:
        columns, rows, count = self._columns, self._rows, self._count
        match name:
            case "key":
                return self._slots(0, columns.key_is_null[rows])
            case "value":
                return self._slots(2, columns.value_is_null[rows])
            case "topic":
                return pa.repeat(pa.scalar(self._part.fetched.topic, pa.string()), count)
            case "partition":
                return pa.repeat(pa.scalar(self._part.fetched.partition, pa.int32()), count)
            case "offset":
                return pa.array(columns.offset[rows])
            case "timestamp":
                return pa.Array.from_buffers(
                    ARROW_TYPES["timestamp"], count, [None, pa.py_buffer(columns.timestamp[rows] * 1000)]
                )
            case "timestampType":
                return self._timestamp_types()
            case "leaderEpoch":
                epochs = np.array([one.partition_leader_epoch for one in columns.batches], np.int32)
                return pa.array(epochs[columns.batch_index[rows]])
            case _:
                assert name == "headers", name
                return self._headers()

    def _slots(self, which: int, is_null: NDArray[np.bool_]) -> pa.Array:
        """The keys (0) or the values (2)."""
        if is_null.all():
            return pa.nulls(self._count, pa.binary())
        offsets = np.ascontiguousarray(self._columns.bounds[self._rows]).reshape(-1)
        slots = _binary(offsets, self._columns.data)
        wanted = pa.array(np.arange(which, 4 * self._count, 4), mask=is_null if is_null.any() else None)
        return slots.take(wanted)

    def _timestamp_types(self) -> pa.Array:
        headers = self._columns.batches
        by_append = {one.timestamp_type is TimestampType.LOG_APPEND_TIME for one in headers}
        if len(by_append) == 1:
            return pa.repeat(pa.scalar(int(by_append.pop()), pa.int32()), self._count)
        types = np.array([int(one.timestamp_type) for one in headers], np.int32)
        return pa.array(types[self._columns.batch_index[self._rows]])

    def _headers(self) -> pa.Array:
        columns = self._columns
        begins = columns.bounds[self._rows, 3].astype(np.int64)
        ends = columns.record_end[self._rows]
        return header_lists(np.frombuffer(columns.data, np.uint8), columns.data, begins, ends)


def header_lists(raw: NDArray[np.uint8], data: Any, begins: _Ints, ends: _Ints) -> pa.Array:
    """The headers of all records, whose bytes are known to be right; null where a record has none.

    All first headers are read at once, then all second ones, and so on.
    """
    counts, cursor = _uvarints(raw, begins)
    counts >>= 1
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    total = int(offsets[-1])
    assert (cursor[counts == 0] == ends[counts == 0]).all()
    bounds = np.empty((total, 4), np.int32)
    value_is_null = np.zeros(total, bool)
    rows = np.flatnonzero(counts)
    for position in range(int(counts.max(initial=0))):
        rows = rows[counts[rows] > position]
        at = offsets[rows] + position
        doubled, start = _uvarints(raw, cursor[rows])
        bounds[at, 0] = start
        end = start + (doubled >> 1)
        bounds[at, 1] = end
        doubled, start = _uvarints(raw, end)
        value_is_null[at] = doubled == 1
        bounds[at, 2] = start
        cursor[rows] = start + np.where(doubled == 1, 0, doubled >> 1)
        bounds[at, 3] = cursor[rows]
    slots = _binary(bounds.reshape(-1) if total else np.zeros(1, np.int32), data)
    keys = slots.take(pa.array(np.arange(0, 4 * total, 4))).cast(pa.string())
    values = slots.take(
        pa.array(np.arange(2, 4 * total, 4), mask=value_is_null if value_is_null.any() else None)
    )
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))
    has_none = counts == 0
    return pa.ListArray.from_arrays(
        pa.array(offsets),
        pairs,
        type=ARROW_TYPES["headers"],
        mask=pa.array(has_none) if has_none.any() else None,
    )


def _binary(offsets: NDArray[np.int32], data: Any) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _uvarints(raw: NDArray[np.uint8], cursor: _Ints) -> tuple[_Ints, _Ints]:
    """The varint at each cursor, not yet undoubled, and the position after it."""
    byte = raw.take(cursor, mode="clip")
    value = (byte & 0x7F).astype(np.int64)
    more = byte > 0x7F
    cursor = cursor + 1
    shift = 7
    while more.any():
        byte = raw.take(cursor, mode="clip") * more
        value |= (byte & 0x7F).astype(np.int64) << shift
        cursor = cursor + more
        more = byte > 0x7F
        shift += 7
    return value, cursor


class _Gaps:
    """Why offsets before a record are missing.

    | label        | why                                                                  |
    |--------------|----------------------------------------------------------------------|
    | `compaction` | a thinned batch stands there, or nothing, and the topic is compacted |
    | `marker`     | the end of a transaction stands there, or one that was aborted       |
    | `retention`  | the log begins later: its beginning was deleted                      |
    | `loss`       | nothing stands there, and nothing explains it                        |
    """

    def __init__(self, reader: RangeReader, start_offset: int) -> None:
        self._reader = reader
        self._expected = start_offset
        self._stored: list[BatchHeader] = []  # since the last record

    def labels(self, part: Part, offsets: _Ints) -> pa.Array:
        """A label for each of these records, null where none is missing before it."""
        self._stored += part.stored
        count = len(offsets)
        if not count:
            return pa.nulls(0, pa.string())
        expected = np.empty_like(offsets)
        expected[0] = self._expected
        expected[1:] = offsets[:-1] + 1
        rows = np.flatnonzero(expected < offsets)
        labels = np.full(count, None, object)
        if len(rows):
            labels[rows] = self._why(expected[rows], offsets[rows])
        self._expected = int(offsets[-1]) + 1
        self._stored = [one for one in part.stored if one.next_offset > self._expected]
        return pa.array(labels, pa.string())

    def _why(self, starts: _Ints, ends: _Ints) -> NDArray[np.object_]:
        stored = self._stored
        bases = np.array([one.base_offset for one in stored], np.int64)
        nexts = np.array([one.next_offset for one in stored], np.int64)
        markers = np.array([one.is_control for one in stored], np.int64)
        hidden = (
            np.array([one.is_transactional for one in stored], np.int64)
            if self._reader.hides_aborted
            else markers
        )
        before = np.concatenate(([0], np.cumsum(nexts - bases)))
        sooner = np.concatenate(([0], np.cumsum(markers | hidden)))

        def covered(until: _Ints) -> _Ints:
            """How many offsets below these have a batch."""
            index = bases.searchsorted(until, side="right")
            last = np.maximum(index - 1, 0)
            over = np.where(index > 0, np.maximum(nexts[last] - until, 0), 0)
            found: _Ints = before[index] - over
            return found

        is_covered = covered(ends) - covered(starts) == ends - starts
        among = sooner[bases.searchsorted(ends)] - sooner[nexts.searchsorted(starts, side="right")] > 0
        uncovered = "compaction" if self._reader.is_compacted() else "loss"
        labels = np.where(is_covered, np.where(among, "marker", "compaction"), uncovered).astype(object)
        labels[starts < self._reader.log_start_offset] = "retention"
        return labels
