"""Files and directories of a simulated disk: what they hold now, and what would be left after a power
failure.

Each keeps what is durable apart from what was done since. A flush moves changes from there to here. A power
failure decides the fate of what was not flushed:

- A file's bytes, sector by sector, are old or new; its length is anywhere between; holes read as zeros.
- Of the changes to the names in a directory a prefix survives, a different one for each directory. A rename
  from one directory to another survives in both or in neither.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from enum import Enum, auto

from quorate.values import dataclass

__all__ = ["Directory", "Fate", "Inode", "NameChange", "Node", "commit", "power_fails_on_names"]

SECTOR_BYTES = 512


class Fate(Enum):
    """What a power failure does to changes that were not flushed."""

    ALL_SURVIVED = auto()
    NOTHING_SURVIVED = auto()
    TORN = auto()

    @staticmethod
    def draw(source: random.Random) -> Fate:
        return source.choice((Fate.ALL_SURVIVED, Fate.NOTHING_SURVIVED, Fate.TORN, Fate.TORN, Fate.TORN))


class Inode:
    """A file."""

    __slots__ = ("_changes", "_durable", "_flushed", "content", "lock_holder", "lost_something")

    def __init__(self) -> None:
        self.content = bytearray()
        self.lock_holder: object | None = None
        self.lost_something = False  # it shows bytes that are not on the disk and never will be
        self._durable = bytearray()
        self._changes: list[
            tuple[int, bytes | None]
        ] = []  # (position, bytes), or (size, None) for truncation
        self._flushed = 0  # changes that are no longer in the list

    def append(self, data: bytes) -> None:
        self._changes.append((len(self.content), data))
        self.content += data

    def truncate(self, size: int) -> None:
        self._changes.append((size, None))
        _apply(self.content, size, None)

    def flush_mark(self) -> int:
        """What a flush that is asked for now will cover."""
        return self._flushed + len(self._changes)

    def flush(self, mark: int) -> None:
        """Changes up to a mark are on the disk."""
        for position, data in self._take(mark):
            _apply(self._durable, position, data)

    def flush_failed(self, mark: int) -> None:
        """The disk refused; the kernel forgets that those pages were dirty. They can still be read, and no
        later flush will write them."""
        self.lost_something = bool(self._take(mark)) or self.lost_something

    def evict(self) -> None:
        """The kernel drops its pages, and reads the disk again: what was lost shows."""
        if self.lost_something:
            self.lost_something = False
            self.content = bytearray(self._durable)
            for position, data in self._changes:
                _apply(self.content, position, data)

    def power_fails(self, source: random.Random, fate: Fate) -> None:
        if self._changes:
            written = bytearray(self._durable)
            lengths = [len(written)]
            for position, data in self._changes:
                _apply(written, position, data)
                lengths.append(len(written))
            if fate is Fate.ALL_SURVIVED:
                self._durable = written
            elif fate is Fate.TORN:
                first = min(position for position, _ in self._changes)
                self._durable = _torn(self._durable, written, first, lengths, source)
            self._flushed += len(self._changes)
            self._changes.clear()
        self.content = bytearray(self._durable)
        self.lost_something = False

    def _take(self, mark: int) -> list[tuple[int, bytes | None]]:
        count = max(0, mark - self._flushed)  # another flush may have been faster
        taken, self._changes = self._changes[:count], self._changes[count:]
        self._flushed += count
        return taken


class Directory:
    """Names, and what they stand for."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[NameChange] = []


Node = Inode | Directory


@dataclass(frozen=True, slots=True, eq=False)
class NameChange:
    """What one operation does to names: each of its parts (directory, name, what it stands for) or none."""

    parts: tuple[tuple[Directory, str, Node | None], ...]

    def directories(self) -> list[Directory]:
        """One, or two if something is moved."""
        first, last = self.parts[0][0], self.parts[-1][0]
        return [first] if first is last else [first, last]

    def do(self) -> None:
        """Does it, not yet durably."""
        for directory, name, node in self.parts:
            _set(directory.entries, name, node)
        for directory in self.directories():
            directory.pending.append(self)


def commit(directory: Directory, count: int) -> None:
    """Makes the first changes of a directory durable, and what must have come before them elsewhere."""
    for change in directory.pending[:count]:
        if change not in directory.pending:
            continue  # done on behalf of the other directory
        for other in change.directories():
            if other is not directory:
                commit(other, other.pending.index(change))
        for each, name, node in change.parts:
            _set(each.durable, name, node)
        for each in change.directories():
            each.pending.remove(change)


def power_fails_on_names(directories: Iterable[Directory], source: random.Random, fate: Fate) -> None:
    """Keeps a prefix of the changes of each directory; `entries` is then what is on the disk."""
    directories = list(directories)
    for directory in directories:
        if fate is Fate.ALL_SURVIVED:
            commit(directory, len(directory.pending))
        elif fate is Fate.TORN:
            commit(directory, source.randint(0, len(directory.pending)))
    for directory in directories:
        directory.pending.clear()
        directory.entries = dict(directory.durable)


def _set(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        end = position
        del content[end:]
    else:
        end = position
    if len(content) < end:  # a hole, or a truncation that made the file longer
        content.extend(bytes(end - len(content)))
    if data is not None:
        content[position : position + len(data)] = data


def _torn(old: bytearray, new: bytearray, first: int, lengths: list[int], source: random.Random) -> bytearray:
    """A mixture of an old and a new content, which are the same before `first`."""
    shortest, longest = min(lengths), max(lengths)
    length = source.choice((source.choice(lengths), source.randint(shortest, longest)))
    result = bytearray(length)
    kept = min(first, len(old), length)
    result[:kept] = old[:kept]
    sector = kept - kept % SECTOR_BYTES
    while sector < length:
        content = source.choice((old, new))
        start, end = max(sector, kept), min(sector + SECTOR_BYTES, length)
        piece = content[start:end]
        result[start : start + len(piece)] = piece
        sector += SECTOR_BYTES
    return result
