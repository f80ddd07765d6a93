"""The few file operations that everything uses, and their real implementation.

This is the whole seam between Quorate and a disk. Reads and writes are synchronous: they meet the page cache.
What waits for the disk itself is awaited: `fsync` of a file, `fsync_dir` of the names in a directory. The
simulator (`lab.disk`) has the same operations, and loses, on a power failure, what was not awaited.

Rules that hold for both:

- `append` writes everything or raises; what a failed append left behind, the caller truncates.
- A file is durable up to what was written before `fsync` was *called*. Its name, and the absence of an old
  name after `rename` or `unlink`, are durable after `fsync_dir`.
- An `OSError` from `fsync` means that the data may be gone although it can still be read: never try again,
  stop using the directory.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from struct import Struct
from typing import Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from quorate.protocol.types import Buffer
from quorate.storage.open_files import OpenFiles

__all__ = [
    "File",
    "Files",
    "MeasuresSpace",
    "ReadOnlyFiles",
    "RealFile",
    "RealFiles",
    "RemovesDirectories",
    "Space",
    "descriptor_of",
    "replace_file",
    "to_its_end",
]

T = TypeVar("T")

# The system's `struct flock`: type, from where, start, length, process.
_RECORD_LOCK: Final = Struct("hhqqi0q")


class File(Protocol):
    """An open file."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def append(self, parts: Sequence[Buffer]) -> int:
        """Writes the parts one after the other at the end. How long the file is then."""

    def truncate(self, size: int) -> None: ...

    async def fsync(self) -> None: ...

    def close(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are strings with `/` between names."""

    @property
    def log_files(self) -> OpenFiles:
        """The files of logs that are open in it."""

    def open(self, path: str, *, create: bool = False) -> File:
        """An existing file, for reading and appending; `create` makes an empty one if there is none."""

    def exists(self, path: str) -> bool: ...

    def size_of(self, path: str) -> int:
        """How long a file is."""

    def names(self, directory: str) -> list[str]:
        """What is in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Makes a directory and those above it; it may exist already."""

    def rename(self, path: str, new_path: str) -> None:
        """Gives a file or directory another name, replacing a file of that name."""

    def unlink(self, path: str) -> None: ...

    async def fsync_dir(self, path: str) -> None: ...

    async def aside(self, work: Callable[[], T]) -> T:
        """Does something that reads so much that others should not wait for it. It is done to its end even
        if the caller is cancelled: only then may its files be closed."""

    def lock(self, path: str) -> File | None:
        """Creates and locks a file until it is closed or the process ends; None if another process has it."""


async def to_its_end(work: asyncio.Future[T]) -> T:
    """The result of work that goes on even if nobody waits for it, and is waited for even then."""
    is_cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        work.exception()  # nobody will ask
        raise asyncio.CancelledError
    return work.result()


@runtime_checkable
class RemovesDirectories(Protocol):
    """A file system that can delete directories. Where it cannot, empty ones stay behind."""

    def remove_directory(self, path: str) -> None:
        """Deletes an empty directory."""


class Space(NamedTuple):
    """How large a file system is, and how much of it we may still use."""

    total_bytes: int
    usable_bytes: int


@runtime_checkable
class MeasuresSpace(Protocol):
    """A file system that knows how large it is."""

    def space(self, path: str) -> Space: ...


async def replace_file(files: Files, path: str, data: bytes) -> None:
    """Makes `data` the content of a file, durably: after a crash it is the old content or the new one."""
    temporary = path + ".tmp"
    if files.exists(temporary):
        files.unlink(temporary)
    file = files.open(temporary, create=True)
    try:
        file.append([data])
        await file.fsync()
    finally:
        file.close()
    files.rename(temporary, path)
    await files.fsync_dir(path.rpartition("/")[0])


def descriptor_of(file: File) -> int | None:
    """What the operating system calls an open file, for `sendfile`; None if it knows nothing of it."""
    return file.descriptor if isinstance(file, RealFile) else None


class RealFiles:
    """The file system of this machine. Waiting for the disk happens in the executor. Files of logs are opened
    only while no more than `files_max` are open altogether."""

    def __init__(self, executor: Executor | None = None, files_max: int | None = None) -> None:
        self._executor = executor
        self._open_files: set[int] = set()  # descriptors
        self.log_files = OpenFiles(files_max, self._open_files)

    @property
    def open_files(self) -> int:
        return len(self._open_files)

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644), self._executor, self._open_files)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size_of(self, path: str) -> int:
        return os.stat(path).st_size

    def names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, path: str, new_path: str) -> None:
        os.replace(path, new_path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    async def fsync_dir(self, path: str) -> None:
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, os.fsync, descriptor)
        finally:
            os.close(descriptor)

    async def aside(self, work: Callable[[], T]) -> T:
        return await to_its_end(asyncio.get_running_loop().run_in_executor(self._executor, work))

    def lock(self, path: str) -> File | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        file = RealFile(path, descriptor, self._executor, self._open_files)
        try:
            _lock(file.descriptor)
        except (BlockingIOError, PermissionError):
            file.close()
            return None
        return file


class ReadOnlyFiles(RealFiles):
    """The same, for who only looks: at a copy that must not change, or at files of a node that runs."""

    def open(self, path: str, *, create: bool = False) -> File:
        assert not create, "who only looks makes no files"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return RealFile(path, descriptor, self._executor, self._open_files)


def _lock(descriptor: int) -> None:
    """Takes a record lock of a whole file, or raises: the kind that Java takes, so that Apache's programs and
    ours do not use a directory at the same time. (`flock` takes another kind, and neither sees the other.)

    Where the system has it, it is the variant that belongs to the open file and not to the process.
    """
    if not hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    everything = 0, 0, 0  # from the beginning, at 0, up to the end
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _RECORD_LOCK.pack(fcntl.F_WRLCK, *everything, 0))


class RealFile:
    """An open file of this machine."""

    __slots__ = ("_executor", "_open_files", "_size", "descriptor", "path")

    def __init__(self, path: str, descriptor: int, executor: Executor | None, open_files: set[int]) -> None:
        self.path = path
        self.descriptor = descriptor
        self._executor = executor
        self._open_files = open_files
        open_files.add(descriptor)
        self._size = os.fstat(descriptor).st_size

    def size(self) -> int:
        return self._size

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self.descriptor, size, position)

    def append(self, parts: Sequence[Buffer]) -> int:
        try:
            if len(parts) == 1:  # which is nearly always all there is to it
                written = os.write(self.descriptor, parts[0])
                self._size += written
                if written == len(parts[0]):
                    return self._size
            elif len(parts) <= _WRITE_PARTS_MAX:
                written = os.writev(self.descriptor, parts) if parts else 0
                self._size += written
                if written == sum(map(len, parts)):
                    return self._size
            else:
                written = 0
            self._append_rest([memoryview(part).cast("B") for part in parts if len(part)], written)
        except OSError:
            self._size = os.fstat(self.descriptor).st_size
            raise
        return self._size

    def _append_rest(self, rest: list[memoryview], written: int) -> None:
        """Writes all but the first bytes, which are there already."""
        while True:
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if not rest:
                return
            if written:
                rest[0] = rest[0][written:]
            written = os.writev(self.descriptor, rest[:_WRITE_PARTS_MAX])
            self._size += written
            if not written:
                raise OSError(errno.EIO, "the disk took no bytes", self.path)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor, size)
        self._size = size

    async def fsync(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, os.fdatasync, self.descriptor)

    def close(self) -> None:
        if self.descriptor >= 0:
            self._open_files.discard(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1


_WRITE_PARTS_MAX = 512
