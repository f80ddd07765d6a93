"""The records of some batches, one after the other: where each begins, and what it seems to be.

Where a record begins is known only from the length of the one before. Records of one shape are equally long,
though, and while the bytes of the length stay the same, the starts are at equal distances: they are found in
strides, and only where lengths change by a loop. Nothing but the lengths is read here; whoever takes a record
out checks the rest of it (`value`, `partition_records`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from quorate.metadata.blocks import Column
from quorate.metadata.errors import ImageError
from quorate.protocol.batch import BatchHeader, record_bytes
from quorate.protocol.record import read_record
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError, read_uvarint
from quorate.values import dataclass

__all__ = ["UNCLEAR", "RecordStream", "read_stream"]

UNCLEAR: Final = 255
_STEPS: Final = 24  # records that are read one by one before strides are tried
_STRIDE_MIN: Final = 64
_STRIDE_GROWTH: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class RecordStream:
    """Records in `data`: row i of every column is record i."""

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    deltas: NDArray[np.int64]  # what its offset delta must be
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def value(self, at: int) -> bytes:
        """The value of a record, which is checked."""
        offset = int(self.offsets[at])
        try:
            record, end = read_record(self.data, int(self.starts[at]), offset - int(self.deltas[at]), 0)
        except (MalformedError, IndexError) as error:
            raise ImageError(f"record at offset {offset}: {error}") from None
        if end != self.ends[at] or record.offset != offset or record.value is None:
            raise ImageError(f"record at offset {offset}: it has another offset, or no value")
        return record.value

    def kinds(self) -> Column:
        """The kind of metadata record that each is; `UNCLEAR` for records that are not plain ones, with their
        batch's time and without a key."""
        return self._frames()[0]

    def plain_values(self) -> tuple[Column, Column, Column]:
        """The kinds, and where the value of each record starts and ends; a record whose value does not end
        where it should is not a plain one."""
        raw = np.frombuffer(self.data, np.uint8)
        kinds, delta, value, frame = self._frames()
        length = _read_varints(raw, value, frame - value)
        end = frame + (length >> 1)
        is_whole = (end + 1 == self.ends) & (raw.take(end, mode="clip") == 0) & (length & 1 == 0)
        is_whole &= _read_varints(raw, delta, value - 1 - delta) == self.deltas << 1
        kinds[~is_whole] = UNCLEAR
        return kinds, frame, end

    def _frames(self) -> tuple[Column, Column, Column, Column]:
        """The kinds, and where the offset delta, the length of the value and the value of each stand."""
        raw = np.frombuffer(self.data, np.uint8)

        def byte(at: Column) -> Column:
            return raw.take(at, mode="clip")

        delta = self.starts + _length_bytes(raw, self.starts) + 2
        delta_bytes = 1 + (self.deltas >= 64) + (self.deltas >= 8192)
        key = delta + delta_bytes
        value = key + 1
        frame = value + _length_bytes(raw, value)
        is_plain = byte(delta - 1) == 0
        is_plain &= (_length_bytes(raw, delta) == delta_bytes) & (byte(key) == 1) & (byte(frame) == 1)
        kinds = byte(frame + 1)
        kinds[~is_plain | (kinds > 127)] = UNCLEAR
        return kinds, delta, value, frame


def read_stream(buffers: Sequence[Buffer], headers: Sequence[BatchHeader]) -> RecordStream | None:
    """The records of batches, each in its buffer; None if they are not plainly one after the other."""
    sections = [record_bytes(buffer, header) for buffer, header in zip(buffers, headers, strict=True)]
    counts = [header.record_count for header in headers]
    if any(header.record_count != header.last_offset_delta + 1 for header in headers):
        return None
    data = b"".join(sections)
    starts = _find_starts(data, sum(counts))
    if starts is None:
        return None
    bounds = np.concatenate([starts, [len(data)]])
    firsts = np.concatenate([[0], np.cumsum(counts)])
    if (bounds[firsts[1:]] != np.cumsum([len(section) for section in sections])).any():
        return None
    deltas = np.arange(len(starts)) - np.repeat(firsts[:-1], counts)
    offsets = np.repeat([header.base_offset for header in headers], counts) + deltas
    return RecordStream(data, starts, bounds[1:], deltas, offsets)


def _find_starts(data: bytes, count: int) -> NDArray[np.int64] | None:
    """Where each of `count` records starts, the last of which ends with the data; None if that is not so."""
    raw = np.frombuffer(data, np.uint8)
    found: list[NDArray[np.int64]] = []
    position, left = 0, count
    try:
        while left:
            starts, position = _step(data, position, min(left, _STEPS))
            found.append(np.array(starts, np.int64))
            left -= len(starts)
            size = position - starts[-1]
            if left and size * (len(starts) - 1) == starts[-1] - starts[0]:
                more = _stride(raw, starts[-1], size, left)
                found.append(position + size * np.arange(more))
                position += size * more
                left -= more
    except (IndexError, MalformedError):
        return None
    return np.concatenate(found) if position == len(data) and found else None


def _step(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """The starts of `count` records, and where the last of them ends."""
    starts: list[int] = []
    append = starts.append
    for _ in range(count):
        append(position)
        low = data[position]
        if low < 128:
            position += 1 + (low >> 1)
            continue
        high = data[position + 1]
        if high < 128:
            position += (high << 6) + (low >> 1) - 62  # 2, and half of what both say without their flag
        else:
            doubled, position = read_uvarint(data, position)
            position += doubled >> 1
    return starts, position


def _stride(raw: Column, start: int, size: int, left: int) -> int:
    """How many records follow that begin with the same length as the one at `start`, at its distance."""
    length = raw[start : start + int(_length_bytes(raw, np.array([start]))[0])]
    total, stride = 0, _STRIDE_MIN
    while True:
        first = start + size * (total + 1)
        count = min(stride, left - total, (len(raw) - first) // size)
        if count <= 0:
            return total
        is_same = np.ones(count, np.bool_)
        for at, byte in enumerate(length):
            is_same &= raw[first + at : first + at + size * (count - 1) + 1 : size] == byte
        if not is_same.all():
            return total + int(is_same.argmin())
        total += count
        stride *= _STRIDE_GROWTH


def _length_bytes(raw: Column, positions: Column) -> Column:
    """How many bytes the varints at these positions take, as far as it can be three."""
    first = raw.take(positions, mode="clip") > 127
    second = raw.take(positions + 1, mode="clip") > 127
    return 1 + first + (first & second)


def _read_varints(raw: Column, positions: Column, sizes: Column) -> Column:
    """The varints at these positions, which take so many bytes: up to three."""
    value = raw.take(positions, mode="clip").astype(np.int64) & 127
    for at in (1, 2):
        value |= ((raw.take(positions + at, mode="clip").astype(np.int64) & 127) << 7 * at) * (sizes > at)
    return value
