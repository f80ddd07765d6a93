"""Records by the million: a buffer of batches becomes a few numpy columns instead of an object each.

How it is fast without native code. Where a record begins is known only from the length of the one before,
so a tight Python loop finds the starts and does nothing else. Every other field is then read for all records
at once: `_varints` takes the byte at every record's cursor, moves the cursors on, and goes round again only
while some record's varint has another byte.

How it is safe. Nothing is checked along the way, and gathers are clipped, so a bad length leads to nonsense
but never out of the buffer. As lengths are never negative, cursors only move forward, and so one comparison
at the end settles it: the cursor of every record stands exactly at its record's end, or the batch is bad.
What precisely is wrong then is the plain decoder's to say (`batch.records`), which is asked only in that
case. Both must come to the same verdict on any bytes; a property test holds them to it.

This module imports numpy. Nodes listen before they have done that, which is why it is not part of `batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    batches,
    record_bytes,
    records,
    validate,
)
from quorate.protocol.compression import DECOMPRESSED_BYTES_MAX, Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.record import read_headers, skip_headers
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError, read_uvarint
from quorate.values import dataclass

__all__ = [
    "ArrowSlots",
    "CountHeaders",
    "RecordColumns",
    "decode_bodies",
    "decode_in_parts",
    "read_columns",
    "read_validated",
    "why_malformed",
]

Int64s: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]
_Bytes: TypeAlias = NDArray[np.uint8]
_Cursors: TypeAlias = NDArray[np.intp]

# Positions are int32, as Arrow's offsets are.
DATA_BYTES_MAX: Final = (1 << 31) - 1

# Columns take up to 150 bytes for a record, which itself may have seven: for so many, a few megabytes.
PART_RECORDS: Final = 32 << 10

# What is wrong is looked for with an object for each record and header: only in batches that are no larger.
_EXPLAINED_BYTES_MAX: Final = 256 << 10

# Is told how many headers are to be looked at, one after the other; it may raise.
CountHeaders: TypeAlias = Callable[[int], None]


class ArrowSlots(NamedTuple):
    """Keys and values as Arrow arrays, without a loop and without Arrow.

    `offsets` make of the untouched data a binary array of many slots: key, nothing, value, nothing, key, ...
    where each nothing is what lies between two fields. Taking the slots named by `keys` copies out the keys,
    in C++, and the same goes for values. The masks say which are null, or are None if none is.

        slots = pa.Array.from_buffers(
            pa.binary(), len(s.offsets) - 1, [None, pa.py_buffer(s.offsets), pa.py_buffer(columns.data)])
        keys = slots.take(pa.array(s.keys, mask=s.null_keys))
    """

    offsets: Int32s
    keys: Int64s
    null_keys: Bools | None
    values: Int64s
    null_values: Bools | None


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """The records of some batches: row i of every array is record i.

    Starts and ends are positions in `data`: the buffer that was read if none of its batches is compressed,
    or else the records of all batches one after the other. A null key or value starts and ends at the same
    position, like an empty one; `key_is_null` and `value_is_null` tell them apart, and `key_length` and
    `value_length` are -1 for null as on the wire. Headers lie between `value_end` and `record_end`.
    """

    data: Buffer
    batches: Sequence[BatchHeader]
    batch_index: Int64s  # which of the batches a record is in
    offset: Int64s
    timestamp: Int64s  # of the append, where the batch says so
    bounds: Int32s  # a row of four for each record: where its key and its value start and end
    record_end: Int64s
    key_is_null: Bools
    value_is_null: Bools

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def key_start(self) -> Int32s:
        return self.bounds[:, 0]

    @property
    def key_end(self) -> Int32s:
        return self.bounds[:, 1]

    @property
    def value_start(self) -> Int32s:
        return self.bounds[:, 2]

    @property
    def value_end(self) -> Int32s:
        return self.bounds[:, 3]

    @property
    def key_length(self) -> Int32s:
        return self.key_end - self.key_start - self.key_is_null

    @property
    def value_length(self) -> Int32s:
        return self.value_end - self.value_start - self.value_is_null

    @property
    def is_control(self) -> Bools:
        return np.array([header.is_control for header in self.batches], bool)[self.batch_index]

    @property
    def is_transactional(self) -> Bools:
        return np.array([header.is_transactional for header in self.batches], bool)[self.batch_index]

    @property
    def producer_id(self) -> Int64s:
        return np.array([header.producer_id for header in self.batches], np.int64)[self.batch_index]

    def key(self, row: int) -> bytes | None:
        start, end, _, _ = self.bounds[row]
        return None if self.key_is_null[row] else bytes(self.data[start:end])

    def value(self, row: int) -> bytes | None:
        _, _, start, end = self.bounds[row]
        return None if self.value_is_null[row] else bytes(self.data[start:end])

    def headers(self, row: int) -> Sequence[tuple[str, bytes | None]]:
        return read_headers(self.data, int(self.bounds[row, 3]), int(self.record_end[row]))

    def arrow_slots(self) -> ArrowSlots:
        count = len(self)
        return ArrowSlots(
            self.bounds.reshape(-1) if count else np.zeros(1, np.int32),
            np.arange(0, 4 * count, 4),
            self.key_is_null if self.key_is_null.any() else None,
            np.arange(2, 4 * count, 4),
            self.value_is_null if self.value_is_null.any() else None,
        )


def read_columns(buffer: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> RecordColumns:
    """All records of all whole batches in a buffer such as a fetch brings, checksums checked.

    >>> from quorate.protocol.batch import Record, build
    >>> columns = read_columns(build([Record(0, 1000, b"a", b"1"), Record(1, 1001, None, b"")]))
    >>> columns.offset.tolist(), columns.timestamp.tolist(), columns.value(0)
    ([0, 1], [1000, 1001], b'1')
    >>> columns.key_length.tolist(), columns.value_length.tolist()
    ([1, -1], [1, 0])
    """
    headers = [validate(buffer, header.position) for header in batches(buffer)]
    return read_validated(buffer, headers, limit_bytes)


def read_validated(
    buffer: Buffer, headers: Sequence[BatchHeader], limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> RecordColumns:
    """The records of these batches of the buffer, whose checksums are known to be right.

    Each batch may take up `limit_bytes` without its compression, and all of them 2 GiB.
    """
    data, bodies = _lay_out(buffer, headers, limit_bytes)
    columns = decode_bodies(data, bodies, headers)
    if columns is None:
        raise why_malformed(buffer, headers, limit_bytes, [end - start for start, end in bodies])
    return columns


# Where the records of each batch start and end in the data
_Bodies: TypeAlias = list[tuple[int, int]]


def _lay_out(buffer: Buffer, headers: Sequence[BatchHeader], limit_bytes: int) -> tuple[Buffer, _Bodies]:
    """One buffer that holds the uncompressed records of all batches, and where in it they are."""
    bodies: _Bodies = []
    parts: list[Buffer] = []
    total_bytes = 0
    for header in headers:
        part = record_bytes(buffer, header, min(limit_bytes, DATA_BYTES_MAX - total_bytes))
        parts.append(part)
        bodies.append((total_bytes, total_bytes + len(part)))
        total_bytes += len(part)
    if all(header.codec is Codec.NONE for header in headers) and len(buffer) <= DATA_BYTES_MAX:
        return buffer, [(header.position + HEADER_BYTES, header.end) for header in headers]
    return parts[0] if len(parts) == 1 else b"".join(parts), bodies


def decode_bodies(
    data: Buffer,
    bodies: _Bodies,
    headers: Sequence[BatchHeader],
    count_headers: CountHeaders = lambda _: None,
) -> RecordColumns | None:
    """The columns, or None if anything at all is wrong."""
    found: list[int] = []
    try:
        for (start, end), header in zip(bodies, headers, strict=True):
            if _find_starts(data, start, header.record_count, found) != end:
                return None
    except (MalformedError, IndexError):
        return None
    return _decode(data, found, [end for _, end in bodies], headers, count_headers)


def decode_in_parts(
    data: Buffer, header: BatchHeader, count_headers: CountHeaders = lambda _: None
) -> Iterator[RecordColumns]:
    """The records of one batch, so many at a time that their columns take little memory, however many there
    are. Raises `MalformedError` where `decode_bodies` returns None."""
    position, left, last_offset = 0, header.record_count, header.base_offset - 1
    while left:
        count = min(left, PART_RECORDS)
        found: list[int] = []
        try:
            position = _find_starts(data, position, count, found)
        except IndexError:
            raise MalformedError from None
        part = _decode(data, found, [position], [header._replace(record_count=count)], count_headers)
        if part is None or position > len(data) or part.offset[0] <= last_offset:
            raise MalformedError
        last_offset = int(part.offset[-1])
        left -= count
        yield part
    if position != len(data):
        raise MalformedError


def _decode(
    data: Buffer,
    found: list[int],
    body_ends: list[int],
    headers: Sequence[BatchHeader],
    count_headers: CountHeaders,
) -> RecordColumns | None:
    """The columns of records that begin where it was found, those of each batch up to its end."""
    counts = np.array([header.record_count for header in headers], np.int64)
    filled = np.flatnonzero(counts)
    lasts = counts.cumsum()[filled] - 1
    starts = np.array(found, np.intp)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[lasts] = np.array(body_ends, np.intp)[filled]
    try:
        fields = _read_fields(np.frombuffer(data, np.uint8), starts)
    except (MalformedError, IndexError):
        return None
    batch_index = np.repeat(np.arange(len(headers)), counts)
    offset = _offsets(fields.offset_delta, headers, batch_index, lasts)
    timestamp = _timestamps(fields.timestamp_delta, headers, batch_index)
    if offset is None or timestamp is None or not _headers_fit(data, fields, ends, count_headers):
        return None
    is_null = fields.key_is_null, fields.value_is_null
    return RecordColumns(data, headers, batch_index, offset, timestamp, fields.bounds, ends, *is_null)


def _find_starts(data: Buffer, position: int, count: int, found: list[int]) -> int:
    """Appends where each of `count` records starts; returns where the last of them ends.

    The lengths are read as if they were positive: doubled, and in one or two bytes unless the record is
    large. `_read_fields` sees to it that they are.
    """
    append = found.append
    for _ in range(count):
        append(position)
        low = data[position]
        if low < 128:
            position += 1 + (low >> 1)
            continue
        high = data[position + 1]
        if high < 128:
            position += (
                (high << 6) + (low >> 1) - 62
            )  # 2, and half of what the two bytes say without their flag
        else:
            doubled, position = read_uvarint(data, position)
            position += doubled >> 1
    return position


class _Fields(NamedTuple):
    timestamp_delta: Int64s
    offset_delta: Int64s
    bounds: Int32s
    key_is_null: Bools
    value_is_null: Bools
    header_count: Int64s
    headers: _Cursors  # where the headers of each record begin, after their count


def _read_fields(raw: _Bytes, starts: _Cursors) -> _Fields:
    """Every field of every record; raises `MalformedError` if one of them is not what it should be.

    Whether each record ends where it should is not yet known: see `_headers_fit`.
    """
    length, cursor = _varints(raw, starts, bits=32)
    if (length & 1).any():
        raise MalformedError
    cursor += 1  # past the attributes, which mean nothing yet
    timestamp_delta, cursor = _varints(raw, cursor, bits=64)
    timestamp_delta = (timestamp_delta.view(np.uint64) >> 1).view(np.int64) ^ -(timestamp_delta & 1)
    offset_delta, cursor = _varints(raw, cursor, bits=32)
    bounds = np.empty((len(starts), 4), np.int32)
    key_is_null, cursor = _skip_nullable(raw, cursor, bounds[:, :2])
    value_is_null, cursor = _skip_nullable(raw, cursor, bounds[:, 2:])
    header_count, cursor = _varints(raw, cursor, bits=32)
    if ((offset_delta | header_count) & 1).any():
        raise MalformedError
    return _Fields(
        timestamp_delta, offset_delta >> 1, bounds, key_is_null, value_is_null, header_count >> 1, cursor
    )


def _skip_nullable(raw: _Bytes, cursor: _Cursors, bounds: Int32s) -> tuple[Bools, _Cursors]:
    """Which of the fields are null, and the position after each; puts their starts and ends in `bounds`."""
    doubled, start = _varints(raw, cursor, bits=32)
    is_null = doubled == 1
    if ((doubled & 1) != is_null).any():
        raise MalformedError
    end = start + (doubled >> 1)
    # Positions that an int32 cannot hold are past the end of the data, which the last check notices.
    bounds[:, 0] = start
    bounds[:, 1] = end
    return is_null, end


def _varints(raw: _Bytes, cursor: _Cursors, *, bits: int) -> tuple[Int64s, _Cursors]:
    """The varint at each cursor, not yet undoubled, and the position after it."""
    byte = raw.take(cursor, mode="clip")
    value = (byte & 0x7F).astype(np.int64)
    more = byte > 0x7F
    cursor = cursor + 1
    last_shift = (bits - 1) // 7 * 7
    shift = 7
    while more.any():
        byte = raw.take(cursor, mode="clip") * more
        if shift == last_shift and (byte >> (bits - shift)).any():
            raise MalformedError
        value |= (byte & 0x7F).astype(np.int64) << shift
        cursor += more
        more = byte > 0x7F
        shift += 7
    return value, cursor


def _headers_fit(data: Buffer, fields: _Fields, ends: _Cursors, count_headers: CountHeaders) -> bool:
    """Whether each record ends where its headers do."""
    if not fields.header_count.any():
        return np.array_equal(fields.headers, ends)
    if (fields.header_count > ends - fields.headers).any():
        return False  # not even a byte for each
    count_headers(int(fields.header_count.sum()))
    return all(
        skip_headers(data, position, end, count)
        for position, end, count in zip(
            fields.headers.tolist(), ends.tolist(), fields.header_count.tolist(), strict=True
        )
    )


def _offsets(
    delta: Int64s, headers: Sequence[BatchHeader], batch_index: Int64s, lasts: Int64s
) -> Int64s | None:
    """None unless the offsets increase in each batch, up to at most the last that its header names."""
    increases = delta[1:] > delta[:-1]
    increases[lasts[:-1]] = True  # from the end of a batch to the beginning of the next
    last_delta = np.array([header.last_offset_delta for header in headers], np.int64)
    if not increases.all() or (delta[lasts] > last_delta[batch_index[lasts]]).any():
        return None
    return np.array([header.base_offset for header in headers], np.int64)[batch_index] + delta


def _timestamps(delta: Int64s, headers: Sequence[BatchHeader], batch_index: Int64s) -> Int64s | None:
    """None if one of them is too large for its 64 bits."""
    bases = np.array([header.base_timestamp for header in headers], np.int64)[batch_index]
    timestamp = bases + delta
    # A sum has overflowed if its sign is neither that of the one nor that of the other.
    if ((timestamp ^ bases) & (timestamp ^ delta) < 0).any():
        return None
    by_append = np.array([h.timestamp_type is TimestampType.LOG_APPEND_TIME for h in headers], bool)
    if by_append.any():
        append_times = np.array([header.max_timestamp for header in headers], np.int64)[batch_index]
        timestamp = np.where(by_append[batch_index], append_times, timestamp)
    return timestamp


def why_malformed(
    buffer: Buffer, headers: Sequence[BatchHeader], limit_bytes: int, sizes: Sequence[int]
) -> ApiError:
    """What is wrong, in the words of the plain decoder, with batches whose records take up so much each. It
    is not asked about large ones."""
    try:
        for header, size_bytes in zip(headers, sizes, strict=True):
            if size_bytes <= _EXPLAINED_BYTES_MAX:
                records(buffer, header, limit_bytes)
    except ApiError as error:
        return error
    return ApiError(ErrorCode.INVALID_RECORD, "records that do not fill their batch exactly, in order")
