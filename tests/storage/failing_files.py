"""Real files whose disk fails when it is told to, and which write down what was done to them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

from quorate.protocol.types import Buffer
from quorate.storage.files import File, RealFiles


class FailingFiles(RealFiles):
    """`broken` are operations that fail, as (operation, end of the path). An append writes half of it first.

    `operations` are those that worked. While `held` is not set, syncs wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[tuple[str, str]] = set()
        self.operations: list[tuple[str, str]] = []
        self.held = asyncio.Event()
        self.held.set()

    def note(self, operation: str, path: str) -> None:
        name = path.rpartition("/")[2]
        if any(operation == broken and name.endswith(end) for broken, end in self.broken):
            raise OSError(errno.EIO, "the disk is broken")
        self.operations.append((operation, name))

    def open(self, path: str, *, create: bool = False) -> File:
        if create and not self.exists(path):
            self.note("create", path)
        return _FailingFile(super().open(path, create=create), self)

    def unlink(self, path: str) -> None:
        self.note("unlink", path)
        super().unlink(path)

    def rename(self, path: str, new_path: str) -> None:
        self.note("rename", new_path)
        super().rename(path, new_path)

    async def fsync_dir(self, path: str) -> None:
        await self.held.wait()
        self.note("fsync_dir", path)
        await super().fsync_dir(path)


class _FailingFile:
    def __init__(self, file: File, files: FailingFiles) -> None:
        self._file = file
        self._files = files
        self.path = file.path

    def size(self) -> int:
        return self._file.size()

    def read(self, position: int, size: int) -> bytes:
        self._files.note("read", self.path)
        return self._file.read(position, size)

    def append(self, parts: Sequence[Buffer]) -> int:
        data = b"".join(parts)
        try:
            self._files.note("append", self.path)
        except OSError:
            self._file.append([data[: len(data) // 2]])
            raise
        return self._file.append([data])

    def truncate(self, size: int) -> None:
        self._files.note("truncate", self.path)
        self._file.truncate(size)

    async def fsync(self) -> None:
        await self._files.held.wait()
        self._files.note("fsync", self.path)
        await self._file.fsync()

    def close(self) -> None:
        self._file.close()
