"""Where batches begin in a file.

An index names one batch in about 4096 bytes of log; from there headers are read, a few kilobytes of the file
at a time: one call of the operating system finds all the small batches between two entries.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from quorate.protocol.batch import HEADER_BYTES, BatchHeader, read_header
from quorate.protocol.errors import ApiError
from quorate.storage.errors import StorageError
from quorate.storage.files import File

__all__ = ["DamagedBatchError", "NewestBatches", "Noted", "Place", "headers_from", "noted"]

_WINDOW_BYTES: Final = 4096 + HEADER_BYTES
_NEWEST_MAX: Final = 512


# What a log takes notice of when a batch is appended: its first and its last offset, its newest time, how
# many bytes it has, and its leader epoch.
Noted = tuple[int, int, int, int, int]


def noted(header: BatchHeader) -> Noted:
    """Of a batch that has its place in the log already."""
    base_offset = header.base_offset
    last_offset = base_offset + header.last_offset_delta
    return base_offset, last_offset, header.max_timestamp, header.size_bytes, header.partition_leader_epoch


class DamagedBatchError(StorageError):
    """Where a batch should be, none is: the disk damaged it. Another replica may still have it."""


class Place(NamedTuple):
    """Between two batches: those before it have lower offsets than `offset`, those after it have none
    lower."""

    position: int
    offset: int


def headers_from(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """The headers from `position` on, and where they are; the records are not looked at."""
    window, window_position = b"", position
    while position < end:
        at = position - window_position
        if at + HEADER_BYTES > len(window):
            window, window_position, at = file.read(position, min(_WINDOW_BYTES, end - position)), position, 0
        try:
            header = read_header(window, at)
        except ApiError as error:
            raise DamagedBatchError(file.path, f"position {position}: {error.message}") from None
        size_bytes = header.size_bytes
        if position + size_bytes > end:
            reason = f"a batch of {size_bytes} bytes where {end - position} are left"
            raise DamagedBatchError(file.path, f"position {position}: {reason}")
        yield position, header
        position += size_bytes


class NewestBatches:
    """Where the last few batches of a segment are: most readers want these, and need not ask the disk.

    They are arrays and not lists: numbers that are objects, in every log that is written to, do not stay in
    the caches."""

    __slots__ = ("_last_offsets", "_positions")

    def __init__(self) -> None:
        self._last_offsets = array("q")
        self._positions = array("q")

    def add(self, position: int, last_offset: int) -> None:
        self._positions.append(position)
        self._last_offsets.append(last_offset)
        if len(self._positions) > _NEWEST_MAX:
            del self._positions[: _NEWEST_MAX // 2]
            del self._last_offsets[: _NEWEST_MAX // 2]

    def clear(self) -> None:
        del self._last_offsets[:]
        del self._positions[:]

    def place_of(self, offset: int) -> Place | None:
        """Before the first batch that ends at or after an offset; None if it may be an older one."""
        index = bisect_left(self._last_offsets, offset)
        return self._place(index)

    def place_before(self, position: int) -> Place | None:
        """The last place at or before a position; None if it may be before these."""
        return self._place(bisect_right(self._positions, position) - 1)

    def _place(self, index: int) -> Place | None:
        if 0 < index < len(self._positions):
            return Place(self._positions[index], self._last_offsets[index - 1] + 1)
        return None
