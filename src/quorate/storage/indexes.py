"""The three indexes of a segment: where offsets are, where times are, which transactions were aborted.

An index is sparse: it names one batch in about 4096 bytes of log, and who looks something up reads on from
there. What it says can be found out from the log as well, so a bad index is thrown away and built again.

Kafka makes an active index as large as it may ever become, 10 MiB of zeros, because it writes through a
memory map; the zeros are cut off when the segment is closed. Here entries are appended, so the file is
exactly as long as its entries: two files of 10 MiB for each of thousands of partitions are spared, and zeros
at the end always mean damage. Kafka and its tools read such files, and Kafka makes them larger itself when it
goes on writing.

Look-ups read the file, not a copy in memory: an index is up to 10 MiB, and there are many. The last entry is
remembered, because most readers read at the end, and so are a few entries around the last one looked up,
because the others go on from where they were.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from quorate.protocol.batch import NO_TIMESTAMP
from quorate.storage.errors import StorageError
from quorate.storage.files import Files, replace_file
from quorate.storage.log_file import LogFile

__all__ = [
    "AbortedTransaction",
    "OffsetEntry",
    "OffsetIndex",
    "TimeEntry",
    "TimeIndex",
    "TransactionIndex",
]

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_ABORTED_ENTRY: Final = Struct(">hqqqq")
_ABORTED_VERSION: Final = 0
_PAGE_ENTRIES: Final = 256
_UNWRITTEN_BYTES_MAX: Final = 2048

_first: Final = itemgetter(0)
_second: Final = itemgetter(1)
_COLUMNS: Final = (_first, _second)


class OffsetEntry(NamedTuple):
    """The batch that starts at `position` ends with `offset`."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """No record up to `offset` is newer than `timestamp`, which is that of the batch ending with `offset`."""

    timestamp: int
    offset: int


class AbortedTransaction(NamedTuple):
    """A transaction with data from `first_offset` on, whose abort marker is at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # when the marker was written


class _Entries:
    """Entries of one size in a file, as a sequence.

    The last of them are written together, once there are some, because a write would often cost more than
    the batch that led to an entry. Whoever asks for the `file` finds all in it. If they are lost with the
    process, the index is built again, as it is after every end that was not in order.
    """

    __slots__ = ("_file", "_layout", "_page", "_page_first", "_unwritten", "_written", "count")

    def __init__(self, file: LogFile, layout: Struct) -> None:
        self._file = file
        self._layout = layout
        self.count = self._written = file.size() // layout.size
        self._unwritten = bytearray()
        self._page = b""  # some entries as they are in the file, from `_page_first` on
        self._page_first = 0

    def __len__(self) -> int:
        return self.count

    @property
    def file(self) -> LogFile:
        self.write()
        return self._file

    @property
    def path(self) -> str:
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    @property
    def size_bytes(self) -> int:
        return self.count * self._layout.size

    def __getitem__(self, index: int) -> tuple[int, ...]:
        entry_bytes = self._layout.size
        if index >= self._written:
            return self._layout.unpack_from(self._unwritten, (index - self._written) * entry_bytes)
        at = (index - self._page_first) * entry_bytes
        if not 0 <= at <= len(self._page) - entry_bytes:
            self._page_first = index - index % _PAGE_ENTRIES
            self._page = self._file.read(self._page_first * entry_bytes, _PAGE_ENTRIES * entry_bytes)
            at = (index - self._page_first) * entry_bytes
        return self._layout.unpack_from(self._page, at)

    def count_up_to(self, value: int, column: int) -> int:
        """How many entries have at most this value in a column, in which values never decrease. Whoever reads
        on finds them on the page at hand, or on the next one."""
        key = _COLUMNS[column]
        for _ in range(2):
            first = self._page_first
            end = min(first + len(self._page) // self._layout.size, self.count)
            if first >= end or value < self[first][column]:
                break
            if value < self[end - 1][column]:
                return bisect_right(self, value, first, end - 1, key=key)
            if end == self.count:
                return end
            self[end]  # which turns the page
        return bisect_right(self, value, key=key)

    def append(self, *fields: int) -> None:
        """After an OSError nothing has changed."""
        self.extend(self._layout.pack(*fields))

    def extend(self, data: bytes) -> None:
        """Appends entries that are packed already. After an OSError nothing has changed."""
        unwritten, size_bytes = self._unwritten, len(self._unwritten)
        unwritten += data
        if len(unwritten) > _UNWRITTEN_BYTES_MAX:
            try:
                self.write()
            except OSError:
                del unwritten[size_bytes:]
                raise
        self.count += len(data) // self._layout.size

    def write(self) -> None:
        """Puts into the file what is not there yet. After an OSError nothing has changed."""
        if not self._unwritten:
            return
        try:
            self._file.append([self._unwritten])
        except OSError:
            try:
                self._file.truncate(self._written * self._layout.size)
            except OSError as error:
                raise StorageError(self.path, f"a torn entry cannot be cut off: {error}") from error
            raise
        self._written += len(self._unwritten) // self._layout.size
        self._unwritten = bytearray()

    def truncate(self, count: int) -> None:
        entry_bytes = self._layout.size
        if count < self._written or self._file.size() != self._written * entry_bytes:
            self._page = b""
            self._written = min(count, self._written)
            self._file.truncate(self._written * entry_bytes)
        del self._unwritten[(count - self._written) * entry_bytes :]
        self.count = count

    def close(self) -> None:
        """As the file is now."""
        self._file.close()

    def is_cut_off(self) -> bool:
        return self._file.size() % self._layout.size != 0

    def columns(self, *formats: str) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """All entries, a column for each field."""
        dtype = np.dtype([(f"f{index}", code) for index, code in enumerate(formats)])
        table = np.frombuffer(self.file.read(0, self.count * self._layout.size), dtype)
        return [table[name].astype(np.int64) for name in dtype.names or ()]


class OffsetIndex:
    """From offsets to positions in the log file."""

    __slots__ = ("_base_offset", "_entries", "last_entry")

    def __init__(self, file: LogFile, base_offset: int) -> None:
        self._entries = _Entries(file, _OFFSET_ENTRY)
        self._base_offset = base_offset
        self.last_entry: OffsetEntry | None = self._read_last()

    @property
    def file(self) -> LogFile:
        return self._entries.file

    @property
    def path(self) -> str:
        return self._entries.path

    @path.setter
    def path(self, path: str) -> None:
        self._entries.path = path

    @property
    def size_bytes(self) -> int:
        return self._entries.size_bytes

    def close(self) -> None:
        self._entries.close()

    @property
    def entry_count(self) -> int:
        return len(self._entries)

    def is_full(self, index_bytes: int) -> bool:
        return (len(self._entries) + 1) * _OFFSET_ENTRY.size > index_bytes

    def append(self, offset: int, position: int) -> None:
        self.extend([OffsetEntry(offset, position)])

    def extend(self, entries: Sequence[OffsetEntry]) -> None:
        """Appends entries."""
        last, base_offset, pack = self.last_entry, self._base_offset, _OFFSET_ENTRY.pack
        assert last is None or entries[0].offset > last.offset, f"{self.path}: {entries[0]} after {last}"
        packed = [pack(offset - base_offset, position) for offset, position in entries]
        self._entries.extend(packed[0] if len(packed) == 1 else b"".join(packed))
        self.last_entry = entries[-1]

    def look_up(self, offset: int) -> OffsetEntry:
        """The greatest entry at or below an offset; without one, the beginning of the segment."""
        last = self.last_entry
        if last is not None and offset < last.offset:
            index = self._entries.count_up_to(offset - self._base_offset, 0)
            last = self._entry(index - 1) if index else None
        return last or OffsetEntry(self._base_offset, 0)

    def look_up_position(self, position: int) -> OffsetEntry:
        """The greatest entry of a batch that starts at or before a position; without one, the beginning."""
        last = self.last_entry
        if last is not None and position < last.position:
            index = self._entries.count_up_to(position, 1)
            last = self._entry(index - 1) if index else None
        return last or OffsetEntry(self._base_offset, 0)

    def truncate(self, offset: int) -> None:
        """Forgets entries at or above an offset."""
        self._entries.truncate(bisect_left(self._entries, offset - self._base_offset, key=_first))
        self.last_entry = self._read_last()

    def clear(self) -> None:
        self._entries.truncate(0)
        self.last_entry = None

    def problem(self, log_bytes: int) -> str | None:
        """Why this cannot be the index of a log file of that size; None if it can."""
        if self._entries.is_cut_off():
            return f"{self.file.size()} bytes are no whole entries of {_OFFSET_ENTRY.size}"
        if self.last_entry is None:
            return None
        offsets, positions = self._entries.columns(">i4", ">i4")
        if (
            offsets[0] < 0
            or positions[0] < 0
            or (np.diff(offsets) <= 0).any()
            or (np.diff(positions) <= 0).any()
        ):
            return "its entries do not increase"
        if positions[-1] >= log_bytes:
            return f"it points to position {positions[-1]} of a log file of {log_bytes} bytes"
        return None

    def _entry(self, index: int) -> OffsetEntry:
        offset, position = self._entries[index]
        return OffsetEntry(self._base_offset + offset, position)

    def _read_last(self) -> OffsetEntry | None:
        return self._entry(len(self._entries) - 1) if len(self._entries) else None


class TimeIndex:
    """From timestamps to offsets."""

    __slots__ = ("_base_offset", "_entries", "last_entry")

    def __init__(self, file: LogFile, base_offset: int) -> None:
        self._entries = _Entries(file, _TIME_ENTRY)
        self._base_offset = base_offset
        self.last_entry = self._read_last()

    @property
    def file(self) -> LogFile:
        return self._entries.file

    @property
    def path(self) -> str:
        return self._entries.path

    @path.setter
    def path(self, path: str) -> None:
        self._entries.path = path

    @property
    def size_bytes(self) -> int:
        return self._entries.size_bytes

    def close(self) -> None:
        self._entries.close()

    @property
    def entry_count(self) -> int:
        return len(self._entries)

    def is_full(self, index_bytes: int) -> bool:
        """One place is kept for the entry that is written when the segment is closed."""
        return (len(self._entries) + 2) * _TIME_ENTRY.size > index_bytes

    def append_if_newer(self, timestamp: int, offset: int) -> None:
        if timestamp > self.last_entry.timestamp:
            assert offset >= self.last_entry.offset, f"{self.path}: {offset} after {self.last_entry}"
            self._entries.append(timestamp, offset - self._base_offset)
            self.last_entry = TimeEntry(timestamp, offset)

    def look_up(self, timestamp: int) -> TimeEntry:
        """The greatest entry at or before a time; without one, the beginning of the segment."""
        if timestamp >= self.last_entry.timestamp:
            return self.last_entry
        index = self._entries.count_up_to(timestamp, 0)
        return self._entry(index - 1) if index else self._before_all()

    def truncate(self, offset: int) -> None:
        """Forgets entries at or above an offset."""
        self._entries.truncate(bisect_left(self._entries, offset - self._base_offset, key=_second))
        self.last_entry = self._read_last()

    def clear(self) -> None:
        self._entries.truncate(0)
        self.last_entry = self._before_all()

    def problem(self, next_offset: int) -> str | None:
        """Why this cannot be the time index of a segment that ends before `next_offset`; None if it can."""
        if self._entries.is_cut_off():
            return f"{self.file.size()} bytes are no whole entries of {_TIME_ENTRY.size}"
        if not len(self._entries):
            return None
        timestamps, offsets = self._entries.columns(">i8", ">i4")
        if (
            timestamps[0] < 0
            or offsets[0] < 0
            or (np.diff(timestamps) <= 0).any()
            or (np.diff(offsets) < 0).any()
        ):
            return "its entries do not increase"
        if self.last_entry.offset >= next_offset:
            return f"it points to offset {self.last_entry.offset} of a segment that ends before {next_offset}"
        return None

    def _entry(self, index: int) -> TimeEntry:
        timestamp, offset = self._entries[index]
        return TimeEntry(timestamp, self._base_offset + offset)

    def _read_last(self) -> TimeEntry:
        return self._entry(len(self._entries) - 1) if len(self._entries) else self._before_all()

    def _before_all(self) -> TimeEntry:
        return TimeEntry(NO_TIMESTAMP, self._base_offset)


class TransactionIndex:
    """Which transactions were aborted, in the order of their markers. Most segments have none: then there is
    no file."""

    __slots__ = ("_entries", "_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._path = path
        self._files = files
        self._entries = _Entries(LogFile.found(files, path), _ABORTED_ENTRY) if files.exists(path) else None

    @property
    def path(self) -> str:
        return self._path

    @path.setter
    def path(self, path: str) -> None:
        self._path = path
        if self._entries is not None:
            self._entries.path = path

    @property
    def file(self) -> LogFile | None:
        return self._entries.file if self._entries is not None else None

    def close(self) -> None:
        if self._entries is not None:
            self._entries.close()

    def append(self, aborted: AbortedTransaction) -> None:
        if self._entries is None:
            self._entries = _Entries(LogFile.made(self._files, self.path), _ABORTED_ENTRY)
        if len(self._entries):
            last_offset = self._entries[len(self._entries) - 1][3]
            assert aborted.last_offset > last_offset, f"{self.path}: {aborted} after {last_offset}"
        self._entries.append(_ABORTED_VERSION, *aborted)
        self._entries.write()

    def all(self) -> list[AbortedTransaction]:
        if self._entries is None:
            return []
        data = self._entries.file.read(0, len(self._entries) * _ABORTED_ENTRY.size)
        return [AbortedTransaction(*fields[1:]) for fields in _ABORTED_ENTRY.iter_unpack(data)]

    def collect(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """What a reader of these offsets must leave out; and whether later segments need not be asked.

        They need not once a transaction ended at a time when everything read here was stable already.
        """
        found = []
        for aborted in self.all():
            if aborted.last_offset >= start_offset and aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate(self, offset: int) -> None:
        """Forgets transactions whose marker is at or above an offset, and what is left of a torn entry."""
        if self._entries is not None:
            self._entries.truncate(bisect_left(self._entries, offset, key=itemgetter(3)))

    async def replace(self, aborted: Sequence[AbortedTransaction], base_offset: int) -> None:
        """Makes these the entries, durably, and whatever happens all of them or none: where entries are
        missing nobody would look for them again."""
        if self.problem(base_offset) is None and self.all() == list(aborted):
            return
        if self._entries is not None:
            self._entries.close()
        packed = [_ABORTED_ENTRY.pack(_ABORTED_VERSION, *one) for one in aborted]
        await replace_file(self._files, self.path, b"".join(packed))
        self._entries = _Entries(LogFile.found(self._files, self.path), _ABORTED_ENTRY)

    def clear(self) -> None:
        if self._entries is not None:
            self._entries.truncate(0)

    def problem(self, base_offset: int) -> str | None:
        """Why this cannot be the transaction index of a segment; None if it can."""
        if self._entries is None:
            return None
        if self._entries.is_cut_off():
            return f"{self._entries.file.size()} bytes are no whole entries of {_ABORTED_ENTRY.size}"
        versions, _, first_offsets, last_offsets, _ = self._entries.columns(">i2", ">i8", ">i8", ">i8", ">i8")
        if (versions != _ABORTED_VERSION).any():
            return "an entry has an unknown version"
        if (last_offsets < base_offset).any() or (np.diff(last_offsets) <= 0).any():
            return "its entries do not increase"
        if (first_offsets > last_offsets).any():
            return "a transaction ends before it begins"
        return None
