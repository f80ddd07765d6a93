"""A file of a log, which is open only while it is needed.

It knows its size without being open, so a log that nobody writes or reads has no file open at all. Whoever
reads, writes or syncs has it opened; and it is closed again when others need that more (`open_files`).

What was written and not synced when it was closed is synced by the next `fsync` all the same: that is about
the file, not about who opened it, and an error of the disk that nobody has been told of yet is told to who
opens it next. Which file that is, its name says; so whoever gives a file or its directory another name either
says so at once (`path`), or holds the file meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from quorate.protocol.types import Buffer
from quorate.storage.file_ranges import SharedFile
from quorate.storage.files import File, Files

__all__ = ["LogFile"]


class LogFile:
    """One file with one owner, who closes it for good, and readers who hold it open. A `File`."""

    __slots__ = ("_file", "_files", "_is_closed", "_shared", "is_used", "path", "size_bytes")

    def __init__(self, files: Files, path: str, size_bytes: int) -> None:
        self.path = path
        self.is_used = False
        self._files = files
        self.size_bytes = size_bytes
        self._file: File | None = None
        self._shared: SharedFile | None = None  # the same, if it is open
        self._is_closed = False

    @classmethod
    def found(cls, files: Files, path: str) -> LogFile:
        """A file that is there."""
        return cls(files, path, files.size_of(path))

    @classmethod
    def made(cls, files: Files, path: str) -> LogFile:
        """A file that is made now; or is there, with whatever is in it."""
        file = files.open(path, create=True)
        try:
            return cls(files, path, file.size())
        finally:
            file.close()

    @classmethod
    def found_or_made(cls, files: Files, path: str) -> LogFile:
        """The same, where it is mostly there."""
        try:
            return cls.found(files, path)
        except FileNotFoundError:
            return cls.made(files, path)

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def is_held(self) -> bool:
        return self._shared is not None and self._shared.readers > 0

    def size(self) -> int:
        return self.size_bytes

    def read(self, position: int, size: int) -> bytes:
        file = self._file
        if file is None:
            file = self._opened().file
        self.is_used = True
        return file.read(position, size)

    def append(self, parts: Sequence[Buffer]) -> int:
        file = self._file
        if file is None:
            file = self._opened().file
        self.is_used = True
        try:
            self.size_bytes = size_bytes = file.append(parts)
        except OSError:
            self.size_bytes = file.size()
            raise
        return size_bytes

    def truncate(self, size: int) -> None:
        file = self._file
        if file is None:
            if size == self.size_bytes:
                return
            self._files.log_files.has_room()  # or beyond the bound: it may be a write that has to be undone
            file = self._open().file
        self.is_used = True
        file.truncate(size)
        self.size_bytes = size

    async def fsync(self) -> None:
        shared = self.hold()
        try:
            await shared.file.fsync()
        finally:
            shared.let_go()

    @property
    def shared(self) -> SharedFile:
        """The open file, to be held by whoever needs it to stay so."""
        self.is_used = True
        return self._shared or self._opened()

    def hold(self) -> SharedFile:
        """The open file, held already: for what must not fail because others hold all that may be open."""
        self.is_used = True
        shared = self._shared
        if shared is None:
            self._files.log_files.has_room()
            shared = self._open()
        shared.hold()
        return shared

    def rest(self) -> None:
        """Closes it, until it is needed again; or leaves that to the last reader."""
        self._files.log_files.remove(self)
        shared, self._shared, self._file = self._shared, None, None
        if shared is not None:
            shared.close()

    def close(self) -> None:
        """Closes it for good, or leaves that to the last reader."""
        self._is_closed = True
        self.rest()

    def _opened(self) -> SharedFile:
        self._files.log_files.make_room(self.path)
        return self._open()

    def _open(self) -> SharedFile:
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._file = self._files.open(self.path)
        self._shared = SharedFile(self._file)
        self._files.log_files.add(self)
        return self._shared
