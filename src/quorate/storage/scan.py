"""Batches in a file, one after the other, each checked: for recovery and for snapshots.

A file is read in windows, so that a scan of a gigabyte takes a few megabytes of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from quorate.protocol.batch import HEADER_BYTES, BatchHeader, read_header, validate
from quorate.protocol.errors import ApiError
from quorate.storage.errors import StorageError
from quorate.storage.files import File
from quorate.storage.limits import SCAN_WINDOW_BYTES

__all__ = ["DamageError", "ScannedBatch", "scan", "walk"]


class DamageError(Exception):
    """From `position` on, a file holds no whole and undamaged batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"position {self.position}: {self.reason}"


class ScannedBatch(NamedTuple):
    """A batch, the bytes it was read with (`header.position` is its place in them), its place in the file."""

    header: BatchHeader
    buffer: bytes
    position: int


def scan(file: File) -> Iterator[ScannedBatch]:
    """Every batch of a file, its checksum verified. `DamageError` says where they end, if that is too
    early."""
    size_bytes = file.size()
    start = 0
    while start < size_bytes:
        window = _read_window(file, start, size_bytes)
        position = 0
        while position == 0 or _has_next(window, position, start, size_bytes):
            try:
                header = validate(window, position)
            except ApiError as error:
                raise DamageError(start + position, error.message) from None
            yield ScannedBatch(header, window, start + position)
            position = header.end
        start += position


def walk(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """The headers from `position` on, without their records and unchecked."""
    while position < end:
        try:
            header = read_header(file.read(position, HEADER_BYTES))
        except ApiError as error:
            raise StorageError(file.path, f"position {position}: {error.message}") from None
        if position + header.size_bytes > end:
            reason = f"a batch of {header.size_bytes} bytes where {end - position} are left"
            raise StorageError(file.path, f"position {position}: {reason}")
        yield position, header
        position += header.size_bytes


_OLD_PREFIX: Final = Struct(">qiIb")  # offset, size, CRC-32 of what follows it, magic
_OLD_CHECKED_FROM: Final = 16


def _read_window(file: File, start: int, size_bytes: int) -> bytes:
    """The bytes from `start` on, with at least the batch that begins there, if it is whole."""
    window = file.read(start, SCAN_WINDOW_BYTES)
    try:
        first_bytes = read_header(window).size_bytes
    except ApiError as error:
        if _is_old_message(file, window, start):
            raise StorageError(file.path, f"position {start}: {error.message}") from None
        return window
    if len(window) < first_bytes <= size_bytes - start:
        window = file.read(start, first_bytes)
    return window


def _has_next(window: bytes, position: int, start: int, size_bytes: int) -> bool:
    """Whether to go on in this window: the next batch is in it to its end, or to the end of the file."""
    if start + len(window) >= size_bytes:
        return position < len(window)
    try:
        return read_header(window, position).end <= len(window)
    except ApiError:
        return False


def _is_old_message(file: File, window: bytes, start: int) -> bool:
    """Whether this is a message of the formats before batches: its own checksum tells it from damage.

    A log that has them must be refused. To cut it off, as if a crash had torn it, would lose all of it.
    """
    if len(window) < _OLD_PREFIX.size:
        return False
    _, size_bytes, crc, magic = _OLD_PREFIX.unpack_from(window)
    if magic not in (0, 1) or not 0 < size_bytes <= file.size() - start:
        return False
    found_crc: int = crc
    return crc32(file.read(start + _OLD_CHECKED_FROM, size_bytes - 4)) == found_crc
