"""A disk in memory, with the manners of real ones: what is not flushed is lost or torn when power fails.

A `Disk` belongs to a machine and survives its processes. Killing a process keeps everything it wrote, as a
page cache does, so a test that only kills proves nothing about `fsync`; `power_fails` drops what was not
flushed. A disk can be slow, full or broken, and it can end its process at the n-th operation, so that a
scenario can be interrupted at every single one.

`SimulatedFiles` is `storage.files.Files` over a disk, for one process.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar

from quorate.lab.clockwork import Clockwork
from quorate.lab.inode import Directory, Fate, Inode, NameChange, Node, commit, power_fails_on_names
from quorate.lab.node_loop import NodeLoop
from quorate.protocol.types import Buffer
from quorate.storage.files import File, to_its_end
from quorate.storage.open_files import OpenFiles

__all__ = ["Disk", "SimulatedFiles"]

T = TypeVar("T")

_SYNC_NS_MIN = 100_000
_SYNC_NS_MAX = 4_000_000
_LOG_FILES_MAX = 16  # so few that logs must close some, and open them again, all the time


class Disk:
    """The disk of one machine."""

    def __init__(self, clockwork: Clockwork, machine: str, source: random.Random) -> None:
        self.machine = machine
        self.root = Directory()
        self.operations = 0
        self.slowness = 1.0
        """How many times longer than usual a flush takes."""
        self.room_bytes: int | None = None
        """How much can still be written; None for as much as one likes."""
        self.failing_syncs = 0
        """So many of the next flushes fail with EIO, and what they should have written is gone."""
        self.failing_reads = 0
        """So many of the next reads fail with EIO."""
        self._clockwork = clockwork
        self._source = source
        self._crash_at: int | None = None
        self._on_crash: Callable[[], None] = _nobody_to_crash

    def crash_at_operation(self, count: int, crash: Callable[[], None]) -> None:
        """Calls `crash`, which ends the process, instead of the operation after the next `count`."""
        self._crash_at = self.operations + count
        self._on_crash = crash

    def no_crash(self) -> None:
        self._crash_at = None

    def process_ended(self) -> None:
        """What was written stays, except what a failed flush lost: the next process does not find it. (A real
        kernel may show it a little longer, and then no program could know that it is not there.)"""
        for inode in _inodes(self.root):
            inode.evict()

    def power_fails(self) -> None:
        """Decides what is left; who boots afterwards sees only that."""
        self._crash_at = None
        fate = Fate.draw(self._source)
        power_fails_on_names(_directories(self.root), self._source, fate)
        for inode in _inodes(self.root):
            inode.lock_holder = None
            inode.power_fails(self._source, Fate.draw(self._source) if fate is Fate.TORN else fate)

    def replace(self) -> None:
        """Another disk, with nothing on it."""
        self.root = Directory()
        self.repair()
        self.no_crash()

    def repair(self) -> None:
        """Ends slowness, fullness and errors; what they did stays."""
        self.slowness, self.room_bytes, self.failing_syncs, self.failing_reads = 1.0, None, 0, 0

    # For SimulatedFiles

    def operation(self, loop: NodeLoop, name: str, path: str, data: bytes = b"") -> None:
        """Stands before every operation that changes something or waits for the disk."""
        loop.gate()
        trace = self._clockwork.trace
        trace.note(trace.code(name), zlib.crc32(data, zlib.crc32(path.encode())))
        if trace.with_text:
            trace.line(self._clockwork.now_ns, loop.name, f"{name} {path} {len(data) or ''}")
        self.operations += 1
        if self._crash_at is not None and self.operations > self._crash_at:
            self._crash(loop)

    def write(self, loop: NodeLoop, inode: Inode, path: str, data: bytes) -> None:
        if self._crash_at is not None and self.operations >= self._crash_at:
            inode.append(data[: self._source.randint(0, len(data))])  # a process can die within a write
        self.operation(loop, "append", path, data)
        if self.room_bytes is not None:
            taken = min(self.room_bytes, len(data))
            self.room_bytes -= taken
            if taken:
                inode.append(data[:taken])
            if taken < len(data):
                raise _error(errno.ENOSPC, path)
        elif data:
            inode.append(data)

    def check_read(self, path: str) -> None:
        if self.failing_reads:
            self.failing_reads -= 1
            raise _error(errno.EIO, path)

    async def sync(self, loop: NodeLoop, path: str, done: Callable[[bool], None]) -> None:
        """Waits as long as the disk takes, then calls `done` with whether it worked. The kernel goes on with
        it even if the process dies meanwhile."""
        future: asyncio.Future[None] = loop.create_future()
        delay_ns = int(self._source.randint(_SYNC_NS_MIN, _SYNC_NS_MAX) * self.slowness)
        works = not self.failing_syncs
        if not works:
            self.failing_syncs -= 1
        at_ns = self._clockwork.now_ns + delay_ns
        self._clockwork.at(at_ns, self._clockwork.kernel, _synced, (future, works, done))
        await future
        loop.gate()
        if not works:
            raise _error(errno.EIO, path)

    def _crash(self, loop: NodeLoop) -> NoReturn:
        self._crash_at = None
        self._on_crash()
        loop.gate()
        raise AssertionError("crash_at_operation was given a function that ends no process")


class SimulatedFiles:
    """A disk as one process sees it."""

    def __init__(self, disk: Disk, loop: NodeLoop) -> None:
        self._disk = disk
        self._loop = loop
        self.log_files = OpenFiles(_LOG_FILES_MAX)

    def open(self, path: str, *, create: bool = False) -> File:
        self._loop.gate()
        return _SimulatedFile(self._disk, self._loop, path, self._inode(path, create=create))

    def exists(self, path: str) -> bool:
        self._loop.gate()
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def size_of(self, path: str) -> int:
        self._loop.gate()
        return len(self._inode(path, create=False).content)

    def names(self, directory: str) -> list[str]:
        self._loop.gate()
        return sorted(self._directory(directory).entries)

    def make_directory(self, path: str) -> None:
        self._disk.operation(self._loop, "make_directory", path)
        directory = self._disk.root
        names = _split(path)
        for depth, name in enumerate(names, start=1):
            entry = directory.entries.get(name)
            if entry is None:
                entry = Directory()
                NameChange(((directory, name, entry),)).do()
            elif not isinstance(entry, Directory):
                raise _error(errno.EEXIST if depth == len(names) else errno.ENOTDIR, path)
            directory = entry

    def rename(self, path: str, new_path: str) -> None:
        self._disk.operation(self._loop, "rename", f"{path} {new_path}")
        (parent, name), (new_parent, new_name) = self._parent(path), self._parent(new_path)
        node = self._node(path)
        replaced = new_parent.entries.get(new_name)
        if replaced is node:
            return
        if isinstance(replaced, Directory):
            if not isinstance(node, Directory):
                raise _error(errno.EISDIR, new_path)
            if replaced.entries:
                raise _error(errno.ENOTEMPTY, new_path)
        elif replaced is not None and isinstance(node, Directory):
            raise _error(errno.ENOTDIR, new_path)
        NameChange(((parent, name, None), (new_parent, new_name, node))).do()

    def unlink(self, path: str) -> None:
        self._disk.operation(self._loop, "unlink", path)
        node = self._node(path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        parent, name = self._parent(path)
        if self._disk.room_bytes is not None:
            self._disk.room_bytes += len(node.content)
        NameChange(((parent, name, None),)).do()

    async def fsync_dir(self, path: str) -> None:
        self._disk.operation(self._loop, "fsync_dir", path)
        directory = self._directory(path)
        covered = list(directory.pending)

        def done(works: bool) -> None:
            left = [change for change in covered if change in directory.pending]
            if works and left:
                commit(directory, directory.pending.index(left[-1]) + 1)

        await self._disk.sync(self._loop, path, done)

    async def aside(self, work: Callable[[], T]) -> T:
        return await to_its_end(self._loop.run_in_executor(None, work))

    def lock(self, path: str) -> File | None:
        self._loop.gate()
        inode = self._inode(path, create=True)
        holder = inode.lock_holder
        if isinstance(holder, _SimulatedFile) and not holder.released():
            return None
        file = _SimulatedFile(self._disk, self._loop, path, inode)
        inode.lock_holder = file
        return file

    def _inode(self, path: str, *, create: bool) -> Inode:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            self._disk.operation(self._loop, "create", path)
            node = Inode()
            NameChange(((parent, name, node),)).do()
        return node

    def _node(self, path: str) -> Node:
        node: Node = self._disk.root
        for name in _split(path):
            if not isinstance(node, Directory):
                raise _error(errno.ENOTDIR, path)
            if name not in node.entries:
                raise _error(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        *above, name = _split(path)
        return self._directory("/".join(above)), name


class _SimulatedFile:
    __slots__ = ("_closed", "_disk", "_inode", "_loop", "path")

    def __init__(self, disk: Disk, loop: NodeLoop, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._loop = loop
        self._inode = inode
        self._closed = False

    def released(self) -> bool:
        """Whether a lock that this file held is free: a kernel frees the locks of the dead."""
        return self._closed or self._loop.dead

    def size(self) -> int:
        self._check()
        return len(self._inode.content)

    def read(self, position: int, size: int) -> bytes:
        self._check()
        self._disk.check_read(self.path)
        return bytes(memoryview(self._inode.content)[position : position + size])

    def append(self, parts: Sequence[Buffer]) -> int:
        self._check()
        self._disk.write(self._loop, self._inode, self.path, b"".join(parts))
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.operation(self._loop, "truncate", self.path, size.to_bytes(8, "little"))
        if self._disk.room_bytes is not None:
            self._disk.room_bytes += max(0, len(self._inode.content) - size)
        self._inode.truncate(size)

    async def fsync(self) -> None:
        self._check()
        self._disk.operation(self._loop, "fsync", self.path)
        inode = self._inode
        mark = inode.flush_mark()
        await self._disk.sync(
            self._loop, self.path, lambda works: inode.flush(mark) if works else inode.flush_failed(mark)
        )

    def close(self) -> None:
        self._loop.gate()
        self._closed = True

    def _check(self) -> None:
        self._loop.gate()
        if self._closed:
            raise _error(errno.EBADF, self.path)


def _synced(future: asyncio.Future[None], works: bool, done: Callable[[bool], None]) -> None:
    done(works)  # after a power failure there is nothing left that it would cover
    if not future.done():
        future.set_result(None)


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _directories(root: Directory) -> Iterator[Directory]:
    """All directories that are or were there: the tree as it is, and the tree as it is on the disk."""
    seen: dict[int, Directory] = {}
    waiting: list[Directory] = [root]
    while waiting:
        directory = waiting.pop()
        if id(directory) not in seen:
            seen[id(directory)] = directory
            nodes = [*directory.entries.values(), *directory.durable.values()]
            waiting += [node for node in nodes if isinstance(node, Directory)]
    return iter(seen.values())


def _inodes(directory: Directory) -> Iterator[Inode]:
    for node in directory.entries.values():
        if isinstance(node, Directory):
            yield from _inodes(node)
        else:
            yield node


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _nobody_to_crash() -> None:
    raise AssertionError("no crash was asked for")
