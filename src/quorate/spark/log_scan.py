"""Which batches a file of a log holds, and what in it is not one: checksums are verified, nothing is decoded.

Nothing is locked or written, and the log may be in use: then its last batch may not be whole yet. Where a
file is damaged, the next batch that is whole is looked for, so that one bad byte costs one batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.batch import HEADER_BYTES, BatchHeader, read_header, validate
from quorate.protocol.errors import ApiError

__all__ = ["BATCH", "Damage", "FileScan", "ScanCache", "scan_file"]

CORRUPT: Final = "corrupt"
TRUNCATED: Final = "truncated"
FOREIGN: Final = "foreign"

BATCH: Final = np.dtype(
    [
        ("position", np.int64),
        ("size_bytes", np.int64),
        ("base_offset", np.int64),
        ("next_offset", np.int64),
        ("epoch", np.int32),
        ("crc", np.uint32),
        ("is_control", np.bool_),
        ("max_timestamp", np.int64),
        ("is_transactional", np.bool_),
        ("producer_id", np.int64),
    ]
)
_WINDOW_BYTES: Final = 4 << 20
_BATCH_BYTES_MAX: Final = 128 << 20  # what claims to be larger is damage
_MAGIC: Final = 2
_MAGIC_AT: Final = 16
_ROWS_MAX: Final = 1 << 16
_CACHED_MAX: Final = 4096


class Damage(NamedTuple):
    """Bytes of a file that are no whole batch."""

    kind: str
    position: int
    end: int
    offset: int | None  # that comes next there, if anything before it is known
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class FileScan:
    """What is in a file: its batches as rows of type `BATCH`, and its damages."""

    path: str
    size_bytes: int
    batches: NDArray[Any]
    damages: tuple[Damage, ...] = ()


def scan_file(path: str, known: FileScan | None = None) -> FileScan:
    """The batches of a file. What is `known` of it from before is not read again, if it was whole then."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size_bytes = os.fstat(descriptor).st_size
        if known is not None and not known.damages and known.size_bytes <= size_bytes:
            return _Scanner(path, descriptor, size_bytes).scan(known.size_bytes, known.batches)
        return _Scanner(path, descriptor, size_bytes).scan(0, np.zeros(0, BATCH))
    finally:
        os.close(descriptor)


class ScanCache:
    """Scans of files that only grow, and verdicts on files that do not change, for who looks repeatedly."""

    def __init__(self) -> None:
        self._scans: dict[str, tuple[tuple[int, int], FileScan]] = {}
        self._verdicts: dict[str, tuple[tuple[int, int], str | None]] = {}

    def verdict(self, path: str, judge: Callable[[], str | None]) -> str | None:
        """What somebody said of a file when it was what it is now."""
        status = Path(path).stat()
        identity = status.st_size, status.st_mtime_ns
        before, said = self._verdicts.pop(path, (None, None))
        if before != identity:
            said = judge()
        if len(self._verdicts) >= _CACHED_MAX:
            self._verdicts.pop(next(iter(self._verdicts)))
        self._verdicts[path] = identity, said
        return said

    def scan(self, path: str) -> FileScan:
        status = Path(path).stat()
        identity = status.st_dev, status.st_ino
        before, known = self._scans.pop(path, (None, None))
        found = scan_file(path, known if before == identity and _is_unchanged(path, known) else None)
        if len(self._scans) >= _CACHED_MAX:
            self._scans.pop(next(iter(self._scans)))
        self._scans[path] = identity, found
        return found


def _is_unchanged(path: str, known: FileScan | None) -> bool:
    """Whether the last batch that is known is still there: a log that was truncated has another one."""
    if known is None or not len(known.batches):
        return False
    last = known.batches[-1]
    with Path(path).open("rb") as file:
        file.seek(int(last["position"]))
        try:
            header = read_header(file.read(HEADER_BYTES))
        except ApiError:
            return False
    return _row(header, int(last["position"])) == tuple(last.tolist())


class _Scanner:
    def __init__(self, path: str, descriptor: int, size_bytes: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size_bytes = size_bytes
        self._rows: list[tuple[Any, ...]] = []
        self._found: list[NDArray[Any]] = []  # the rows before those, in less memory
        self._damages: list[Damage] = []

    def scan(self, position: int, known: NDArray[Any]) -> FileScan:
        while position < self._size_bytes:
            window = self._window(position)
            taken_bytes = self._take(window, position)
            if not taken_bytes:
                taken_bytes = self._skip(position, window, known)
            position += taken_bytes
            if len(self._rows) > _ROWS_MAX:
                self._found.append(np.array(self._rows[:-1], BATCH))
                del self._rows[:-1]
        found = np.concatenate([known, *self._found, np.array(self._rows, BATCH)])
        return FileScan(self._path, self._size_bytes, found, tuple(self._damages))

    def _window(self, position: int) -> bytes:
        """With the whole of the batch that begins there, if it is one."""
        window = os.pread(self._descriptor, _WINDOW_BYTES, position)
        try:
            size_bytes = read_header(window).size_bytes
        except ApiError:
            return window
        if len(window) < size_bytes <= min(self._size_bytes - position, _BATCH_BYTES_MAX):
            return os.pread(self._descriptor, size_bytes, position)
        return window

    def _take(self, window: bytes, position: int) -> int:
        """Takes the batches at the beginning of a window; how many bytes they are."""
        at = 0
        append = self._rows.append
        try:
            while at < len(window):
                header = validate(window, at)
                append(_row(header, position + at))
                at = header.end
        except ApiError:
            pass  # the window ends within a batch, or there is none: who begins there again will know
        return at

    def _skip(self, position: int, window: bytes, known: NDArray[Any]) -> int:
        """Past what is no whole batch, to the next one that is; how many bytes that is."""
        try:
            validate(window)
            raise AssertionError("a whole batch is no damage")
        except ApiError as error:
            reason = error.message
        end = self._next_whole(position + 1)
        offset = (
            int(self._rows[-1][3]) if self._rows else int(known[-1]["next_offset"]) if len(known) else None
        )
        self._damages.append(Damage(self._kind(position, end, window), position, end, offset, reason))
        return end - position

    def _kind(self, position: int, end: int, window: bytes) -> str:
        if end < self._size_bytes or position == 0:
            is_nothing = position == 0 and end == self._size_bytes
            return FOREIGN if is_nothing and not _seems_batch(window) else CORRUPT
        if end - position < HEADER_BYTES or not window.strip(b"\0"):
            return TRUNCATED
        return TRUNCATED if _seems_batch(window) and self._is_cut_off(position, window) else CORRUPT

    def _is_cut_off(self, position: int, window: bytes) -> bool:
        try:
            return position + read_header(window).size_bytes > self._size_bytes
        except ApiError:
            return False

    def _next_whole(self, position: int) -> int:
        """Where the next whole batch begins, or the end of the file."""
        while position + HEADER_BYTES <= self._size_bytes:
            window = os.pread(self._descriptor, _WINDOW_BYTES, position)
            for at in _candidates(window):
                around = self._window(position + at)
                try:
                    validate(around)
                except ApiError:
                    continue
                return position + at
            position += max(1, len(window) - HEADER_BYTES + 1)
        return self._size_bytes


def _row(header: BatchHeader, position: int) -> tuple[Any, ...]:
    return (
        position,
        header.size_bytes,
        header.base_offset,
        header.next_offset,
        header.partition_leader_epoch,
        header.crc,
        header.is_control,
        header.max_timestamp,
        header.is_transactional,
        header.producer_id,
    )


def _candidates(window: bytes) -> list[int]:
    """Where a batch could begin: the magic is right, and offset and length are not absurd."""
    raw = np.frombuffer(window, np.uint8)
    count = len(raw) - HEADER_BYTES + 1
    if count <= 0:
        return []
    is_candidate = raw[_MAGIC_AT : _MAGIC_AT + count] == _MAGIC
    is_candidate &= (raw[:count] == 0) & (raw[8 : 8 + count] < _BATCH_BYTES_MAX >> 24)
    return np.flatnonzero(is_candidate).tolist()


def _seems_batch(window: bytes) -> bool:
    """Whether bytes begin like a batch."""
    return len(window) > _MAGIC_AT and window[0] == 0 and window[_MAGIC_AT] == _MAGIC
