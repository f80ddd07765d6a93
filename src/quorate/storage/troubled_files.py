"""Disks that are full or slow on purpose: real files, with trouble that can be turned on and off.

Only nodes with `quorate.lab.enabled=true` use them. A full disk takes nothing, as the system says it: ENOSPC;
a slow one makes everybody wait who waits for the disk itself.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from concurrent.futures import Executor

from quorate.protocol.types import Buffer
from quorate.storage.files import File, RealFile, RealFiles
from quorate.values import dataclass

__all__ = ["DiskTrouble", "TroubledFiles"]


@dataclass(slots=True)
class DiskTrouble:
    """What is wrong with a disk now."""

    is_full: bool = False
    sync_delay_ms: float = 0


class TroubledFiles(RealFiles):
    """The file system of this machine, and its trouble."""

    def __init__(self, executor: Executor | None = None, files_max: int | None = None) -> None:
        super().__init__(executor, files_max)
        self.trouble = DiskTrouble()

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        assert isinstance(file, RealFile)
        return _TroubledFile(path, file.descriptor, self._executor, self._open_files, self.trouble)

    async def fsync_dir(self, path: str) -> None:
        await asyncio.sleep(self.trouble.sync_delay_ms / 1000)
        await super().fsync_dir(path)


class _TroubledFile(RealFile):
    __slots__ = ("_trouble",)

    def __init__(
        self,
        path: str,
        descriptor: int,
        executor: Executor | None,
        open_files: set[int],
        trouble: DiskTrouble,
    ) -> None:
        super().__init__(path, descriptor, executor, open_files)
        self._trouble = trouble

    def append(self, parts: Sequence[Buffer]) -> int:
        if self._trouble.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        return super().append(parts)

    async def fsync(self) -> None:
        await asyncio.sleep(self._trouble.sync_delay_ms / 1000)
        await super().fsync()
