"""Ranges of files, which a response sends without copying them through Python.

A segment may be deleted while its bytes are on their way to a slow reader. Deleting takes away the name; the
bytes stay as long as the file is open. So a segment and its readers share an open file, and the last of them
closes it.

Sending a range that is not in the page cache waits for the disk, and everybody else waits with it. So it can
be found out, by looking at a byte here and there, whether it is (`is_cached`); if not, somebody who may wait
reads it first (`load`). A look costs a microsecond; for a range that is small it reads all of it, and who
sends it has it then.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from quorate.storage.files import File, descriptor_of

__all__ = ["FileRange", "SharedFile"]

_LOOK_EVERY_BYTES: Final = 1 << 20
_SEEN_AT_ONCE_BYTES: Final = 64 << 10  # less than a disk is read ahead by
_SMALL_BYTES_MAX: Final = 16 << 10  # what is kept, once it was read
_LOAD_BYTES: Final = 1 << 20  # what is read at a time
_AHEAD_BYTES: Final = 4 << 20  # what the disk is asked for besides: who reads old records mostly goes on
_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_seen: Final = [bytearray(1)]


class SharedFile:
    """An open file with one owner, who closes it, and readers, who hold it open until they are done."""

    __slots__ = ("_is_closed", "_readers", "file")

    def __init__(self, file: File) -> None:
        self.file = file
        self._readers = 0
        self._is_closed = False

    @property
    def readers(self) -> int:
        return self._readers

    def hold(self) -> None:
        assert not self._is_closed, f"{self.file.path} is closed"
        self._readers += 1

    def let_go(self) -> None:
        self._readers -= 1
        assert self._readers >= 0, f"{self.file.path} was let go too often"
        # what has no descriptor needs no closing, and its process may be dead by now
        if self._is_closed and not self._readers and descriptor_of(self.file) is not None:
            self.file.close()

    def close(self) -> None:
        """Closes the file, or leaves that to the last reader."""
        if not self._is_closed:
            self._is_closed = True
            if not self._readers:
                self.file.close()


class FileRange:
    """`size_bytes` of a file from `position` on: whole batches, up to but not including `next_offset`.

    To be sent with `os.sendfile` from its `descriptor`, or else to be read. It keeps its file open; `release`
    ends that, and so does the end of the last reference to it.
    """

    __slots__ = ("_data", "_shared", "next_offset", "position", "size_bytes")

    def __init__(self, shared: SharedFile, position: int, size_bytes: int, next_offset: int) -> None:
        self.position = position
        self.size_bytes = size_bytes
        self.next_offset = next_offset
        self._data: bytearray | None = None  # all of it, if it is small and was looked at
        self._shared: SharedFile | None = None
        shared.hold()
        self._shared = shared

    def __repr__(self) -> str:
        path = self._shared.file.path if self._shared is not None else "released"
        return f"FileRange({path}, {self.position}, {self.size_bytes})"

    def __len__(self) -> int:
        return self.size_bytes

    @property
    def file(self) -> File:
        assert self._shared is not None, "the range was released"
        return self._shared.file

    @property
    def descriptor(self) -> int | None:
        """For `os.sendfile`, which sends less than it should if the file was cut meanwhile. None where there
        is no real file: then `read`."""
        return descriptor_of(self.file)

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes | bytearray:
        """Some of the bytes, or all; fewer only if the file was cut meanwhile."""
        if self._data is not None:
            end = self.size_bytes if size_bytes is None else start + size_bytes
            return self._data[start:end] if start or end < self.size_bytes else self._data
        left_bytes = self.size_bytes - start
        wanted_bytes = left_bytes if size_bytes is None else min(size_bytes, left_bytes)
        return self.file.read(self.position + start, wanted_bytes)

    def is_cached(self) -> bool:
        """Whether it can be sent without waiting for a disk, as far as a look here and there can tell."""
        descriptor = self.descriptor
        if descriptor is None or _NOWAIT is None:
            return True
        if self.size_bytes <= _SMALL_BYTES_MAX:
            data = bytearray(self.size_bytes)
            if _read_if_cached(descriptor, data, self.position):
                self._data = data
                return True
        last = self.position + self.size_bytes - 1
        if not _is_cached(descriptor, last):
            return False
        if self.size_bytes <= _SEEN_AT_ONCE_BYTES:
            return True
        places = range(self.position, last, _LOOK_EVERY_BYTES)
        return all(_is_cached(descriptor, position) for position in places)

    def load(self) -> None:
        """Reads it into the page cache; waits for the disk."""
        descriptor = self.descriptor
        if descriptor is None:
            return
        if hasattr(os, "posix_fadvise"):
            wanted_bytes = self.size_bytes + _AHEAD_BYTES
            with suppress(OSError):  # it is only advice
                os.posix_fadvise(descriptor, self.position, wanted_bytes, os.POSIX_FADV_WILLNEED)
        for start in range(0, self.size_bytes, _LOAD_BYTES):
            self.read(start, _LOAD_BYTES)

    def release(self) -> None:
        """The bytes were sent, or never will be. A second time changes nothing."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.let_go()

    def __del__(self) -> None:
        self.release()


def _read_if_cached(descriptor: int, into: bytearray, position: int) -> bool:
    """Whether all of it was there."""
    assert _NOWAIT is not None
    try:
        return os.preadv(descriptor, [into], position, _NOWAIT) == len(into)
    except OSError:  # it is not, or the file system cannot tell: others look closer
        return False


def _is_cached(descriptor: int, position: int) -> bool:
    assert _NOWAIT is not None
    try:
        os.preadv(descriptor, _seen, position, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system that cannot tell; and what is wrong with the file, sending it will tell
        return True
    return True
