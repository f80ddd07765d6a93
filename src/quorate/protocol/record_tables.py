"""Records of one size under each other, like the lines of a table.

The records of many programs are all of one size. A field is then a column of bytes, and one comparison says
of all lines whether it is as expected. The size changes where a number in front of the value gets a byte
longer; there, a new table begins. Where all of that stands is remembered of the last shapes of batches, if
they are small: one that has the same bytes in the same places has the same tables.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.batch import BatchHeader
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError, read_uvarint

__all__ = ["RecordScan", "look_at_tables", "read_length"]

_Int64s: TypeAlias = NDArray[np.int64]
_Deltas: TypeAlias = NDArray[np.signedinteger[Any]]

# Shorter tables are not worth it, nor are many; and of few lines, arrays are not.
_TABLE_LINES_MIN: Final = 16
_TABLES_MAX: Final = 16
_FEW_LINES_MAX: Final = 160
_COPIED_BYTES_MAX: Final = 64 << 10
_BEGINNING_BYTES: Final = 16
_BEGINNING: Final = np.dtype(f"V{_BEGINNING_BYTES}")
_OFFSET_BYTES_CHANGE_AT: Final = (64, 8192, 1 << 20, 1 << 27)
_TIME_DELTA_BYTES_MAX: Final = 4


class RecordScan(NamedTuple):
    """What a leader must know of the records before it appends them."""

    max_timestamp: int
    without_key: Sequence[int] | _Int64s | NDArray[np.int32]  # the places of the records that have none
    timestamps: Callable[[], Sequence[int] | _Int64s]  # of all, which few topics have to know


def read_length(data: Buffer, position: int) -> tuple[int, int]:
    """A length, still doubled, that is not negative, and the position after it."""
    doubled, position = read_uvarint(data, position)
    if doubled & 1:
        raise MalformedError
    return doubled, position


class _Line(NamedTuple):
    """Where the fields of a record are, counted from its beginning."""

    timestamp: range
    offset: range
    lengths: tuple[int, ...]  # the bytes that say how long it and its fields are, and that it has no headers
    has_key: bool
    size_bytes: int
    said: bytes  # what stands in those bytes


# Programs send records of the same shape again and again: by the first bytes of one, and those of its offset.
_lines: dict[tuple[bytes, int], _Line] = {}
_LINES_MAX: Final = 256
_LINE_KEY_BYTES: Final = 3


class _Table(NamedTuple):
    """Records of one size in a batch, one behind the other."""

    begin: int
    end: int
    line: _Line

    @property
    def lines(self) -> int:
        return (self.end - self.begin) // self.line.size_bytes

    def places(self) -> Iterator[_Int64s]:
        """Of the bytes that say how long what is, and which offset each record has."""
        for at in (*self.line.lengths, *self.line.offset):
            yield np.arange(self.begin + at, self.end, self.line.size_bytes)


class _Shape:
    """A batch that was looked at. Another one of its size that has in all `places` what this one `said` there
    consists of the same tables, if its times have as many bytes."""

    __slots__ = ("_places", "_said", "_tables", "_without_key")

    def __init__(self, data: Buffer, tables: Sequence[_Table], without_key: Sequence[int]) -> None:
        self._tables = tables
        self._without_key = without_key
        self._places = np.concatenate([places for table in tables for places in table.places()])
        self._said = np.frombuffer(data, np.uint8)[self._places].tobytes()

    def scan(self, data: Buffer, base_timestamp: int) -> RecordScan | None:
        if np.frombuffer(data, np.uint8)[self._places].tobytes() != self._said:
            return None
        times = [
            [bytes(data[begin + at : end : line.size_bytes]) for at in line.timestamp]
            for begin, end, line in self._tables
        ]
        return _found(base_timestamp, times, self._without_key)


# By the number of records, their size together, and the first bytes.
_shapes: dict[tuple[int, int, bytes], _Shape] = {}
_SHAPES_MAX: Final = 128
_SHAPED_RECORDS_MAX: Final = 256


def look_at_tables(data: Buffer, header: BatchHeader) -> RecordScan | None:
    """What is to be known of records that are tables; None if they are none. It may raise IndexError or
    `MalformedError`, which says no more."""
    count, base_timestamp = header.record_count, header.base_timestamp
    if count > _SHAPED_RECORDS_MAX:
        found = _read_tables(data, count)
        return None if found is None else _found(base_timestamp, found[1], _without_key(found[0]))
    key = count, len(data), bytes(data[:_LINE_KEY_BYTES])
    shape = _shapes.get(key)
    scan = None if shape is None else shape.scan(data, base_timestamp)
    if scan is None:
        found = _read_tables(data, count)
        if found is None:
            return None
        tables, times = found
        without_key = _without_key(tables)
        scan = _found(base_timestamp, times, without_key)
        if scan is not None:
            if len(_shapes) >= _SHAPES_MAX:
                _shapes.clear()
            _shapes[key] = _Shape(data, tables, without_key)
    return scan


def _read_tables(data: Buffer, count: int) -> tuple[list[_Table], list[list[bytes]]] | None:
    """The tables that so many records are, and the columns of times of each; None if they are none."""
    number, position = 0, 0
    tables: list[_Table] = []
    times: list[list[bytes]] = []
    while number < count:
        size = bisect_right(_OFFSET_BYTES_CHANGE_AT, number)
        line = _line_at(data, position, size + 1)
        if line is None or len(tables) == _TABLES_MAX:
            return None
        size_bytes = line.size_bytes
        lines_max = _OFFSET_BYTES_CHANGE_AT[size] - number
        lines = min(count - number, lines_max, (len(data) - position) // size_bytes)
        column_of = _columns_of(data, position, lines, size_bytes)
        for at in line.lengths:
            found = column_of(at, lines)
            if found != found[:1] * lines:
                lines -= len(found.lstrip(found[:1]))
        end = position + lines * size_bytes
        if lines < _TABLE_LINES_MIN and number + lines < min(count, number + lines_max):
            return None
        offsets = [column_of(at, lines) for at in line.offset]
        if offsets != _offset_columns(number, number + lines):
            return None
        times.append([column_of(at, lines) for at in line.timestamp])
        tables.append(_Table(position, end, line))
        number += lines
        position = end
    return (tables, times) if position == len(data) else None


def _without_key(tables: Sequence[_Table]) -> Sequence[int]:
    """The places of the records that have none: all or nothing, nearly always."""
    if not any(table.line.has_key for table in tables):
        return range(sum(table.lines for table in tables))
    found: list[int] = []
    number = 0
    for table in tables:
        if not table.line.has_key:
            found += range(number, number + table.lines)
        number += table.lines
    return found


def _found(
    base_timestamp: int, times: Sequence[list[bytes]], without_key: Sequence[int]
) -> RecordScan | None:
    """What is known, if all times of a table have as many bytes as there are columns."""
    if not all(map(_are_varints, times)):
        return None
    return RecordScan(
        base_timestamp + max(map(_newest_delta, times)),
        without_key,
        lambda: np.concatenate([_time_deltas(columns) for columns in times]) + np.int64(base_timestamp),
    )


def _columns_of(data: Buffer, begin: int, lines: int, size_bytes: int) -> Callable[[int, int], bytes]:
    """A function from a place in a line to what stands there in the first so many lines.

    Python itself takes every so many bytes out of a few faster than arrays do. Of more, it is given only the
    beginnings of the lines, where nearly all is that is asked for, in one piece; unless the last line is
    shorter than a beginning.
    """
    end = begin + lines * size_bytes
    if end - begin <= _COPIED_BYTES_MAX or end - size_bytes + _BEGINNING_BYTES > len(data):
        table = bytes(data[begin:end])
        return lambda at, lines: table[at : lines * size_bytes : size_bytes]
    raw = np.frombuffer(data, np.uint8)
    beginnings = np.ndarray((lines,), _BEGINNING, raw, begin, (size_bytes,)).tobytes()

    def column(at: int, lines: int) -> bytes:
        if at < _BEGINNING_BYTES:
            return beginnings[at : lines * _BEGINNING_BYTES : _BEGINNING_BYTES]
        return raw[begin + at : begin + lines * size_bytes : size_bytes].tobytes()

    return column


def _line_at(data: Buffer, begin: int, offset_bytes: int) -> _Line | None:
    """The record at a position; None if it has headers, or an offset of another size. If what says its
    lengths stands where it stood in one before, and is the same, then so is all else: what is between are
    a time and an offset, and the size of the latter is known."""
    key = bytes(data[begin : begin + _LINE_KEY_BYTES]), offset_bytes
    line = _lines.get(key)
    if (
        line is not None
        and begin + line.size_bytes <= len(data)
        and bytes([data[begin + at] for at in line.lengths]) == line.said
    ):
        return line
    line = _new_line_at(data, begin)
    if line is None or len(line.offset) != offset_bytes:
        return None
    if len(_lines) >= _LINES_MAX:
        _lines.clear()
    _lines[key] = line
    return line


def _new_line_at(data: Buffer, begin: int) -> _Line | None:
    doubled, start = read_length(data, begin)
    size_bytes = start - begin + (doubled >> 1)
    _, offset_at = read_uvarint(data, start + 1)
    _, key_at = read_uvarint(data, offset_at)
    has_key = data[key_at] != 1
    doubled, key_start = read_length(data, key_at) if has_key else (0, key_at + 1)
    value_at = key_start + (doubled >> 1)
    doubled, value_start = read_length(data, value_at) if data[value_at] != 1 else (0, value_at + 1)
    headers_at = value_start + (doubled >> 1)
    if data[headers_at] or headers_at + 1 != begin + size_bytes:
        return None
    lengths = (*range(begin, start), *range(key_at, key_start), *range(value_at, value_start), headers_at)
    return _Line(
        range(start + 1 - begin, offset_at - begin),
        range(offset_at - begin, key_at - begin),
        tuple([position - begin for position in lengths]),
        has_key,
        size_bytes,
        bytes([data[position] for position in lengths]),
    )


def _offset_columns(start: int, end: int) -> list[bytes]:
    """The bytes of these offsets, a column for each byte. All of them have as many."""
    if end <= _TWO_BYTES_END:
        return [column[start:end] for column in (_ONE_BYTE if end <= _ONE_BYTE_END else _TWO_BYTES)]
    count = 1 + next(index for index, limit in enumerate(_OFFSET_BYTES_CHANGE_AT) if end <= limit)
    return _varint_columns(np.arange(2 * start, 2 * end, 2), count)


def _varint_columns(values: _Int64s, count: int) -> list[bytes]:
    more = [0x80] * (count - 1) + [0]
    return [((values >> 7 * at & 0x7F) | more[at]).astype(np.uint8).tobytes() for at in range(count)]


_ONE_BYTE_END, _TWO_BYTES_END = _OFFSET_BYTES_CHANGE_AT[:2]
_ONE_BYTE: Final = _varint_columns(np.arange(0, 2 * _ONE_BYTE_END, 2), 1)
_TWO_BYTES: Final = _varint_columns(np.arange(0, 2 * _TWO_BYTES_END, 2), 2)
_WITH_MORE: Final = bytes(range(0x80, 0x100))
# One byte of a time, in the order of the times.
_ONE_BYTE_ORDER: Final = bytes((doubled >> 1 ^ -(doubled & 1)) + 64 for doubled in range(0x80)) + bytes(0x80)


def _are_varints(columns: list[bytes]) -> bool:
    """Whether the numbers of all lines have as many bytes each as there are columns."""
    if len(columns) == 1:
        return columns[0].isascii()
    *firsts, last = columns
    return (
        len(firsts) < _TIME_DELTA_BYTES_MAX
        and last.isascii()
        and not any(column.translate(None, _WITH_MORE) for column in firsts)
    )


def _newest_delta(columns: list[bytes]) -> int:
    if len(columns) == 1 and len(columns[0]) <= _FEW_LINES_MAX:
        return max(columns[0].translate(_ONE_BYTE_ORDER)) - 64
    return int(_time_deltas(columns).max())


def _time_deltas(columns: list[bytes]) -> _Deltas:
    *firsts, last = columns
    doubled: _Deltas = np.frombuffer(last, np.int8)
    if firsts:
        doubled = doubled.astype(np.int64)
    for column in reversed(firsts):
        doubled = doubled << 7 | (np.frombuffer(column, np.uint8) & 0x7F)
    return (doubled >> 1) ^ -(doubled & 1)
