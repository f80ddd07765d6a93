"""Blocks of the partition table: a row per partition, a column per fact, for all topics of one width."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quorate.metadata.partition import NO_LEADER, Partition, chosen, mask_of
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["COLUMNS", "FREE_ROW", "Block", "Column", "Rows", "Run", "bits_of", "mask_type", "width_for"]

Column = NDArray[Any]

_WIDTHS: Final = (1, 2, 3, 4, 8, 16, 32, 64)
_SPARE: Final = 1.25  # how much a block grows when it is full
_ROWS_MIN: Final = 64

COLUMNS: Final = (
    "topic",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "is_recovering",
    "last_known_leader",
    "replicas",
    "directories",
    "isr",
    "elr",
    "adding",
    "removing",
)
FREE_ROW: Final[dict[str, int]] = dict.fromkeys(COLUMNS, 0) | {
    "topic": -1,
    "replicas": -1,
    "leader": -2,  # so that no scan for the leaderless finds it
    "last_known_leader": -1,
}


@dataclass(frozen=True, slots=True)
class Run:
    """The rows of a topic: `[start, start + count)` of a block, with room for `capacity`."""

    width: int
    start: int
    count: int
    capacity: int


class Block:
    """The partitions of all topics of one width, a row each."""

    __slots__ = ("_gaps", "end", "width", *COLUMNS)

    def __init__(self, width: int) -> None:
        mask = mask_type(width)
        self.width = width
        self.end = 0  # rows from here on are free
        self._gaps = _Gaps()
        self.topic: Column = np.zeros(0, np.int32)
        self.leader: Column = np.zeros(0, np.int32)
        self.leader_epoch: Column = np.zeros(0, np.int32)
        self.partition_epoch: Column = np.zeros(0, np.int32)
        self.is_recovering: Column = np.zeros(0, np.bool_)
        self.last_known_leader: Column = np.zeros(0, np.int32)
        self.replicas: Column = np.zeros((0, width), np.int32)
        self.directories: Column = np.zeros((0, width), np.uint16)
        self.isr: Column = np.zeros(0, mask)
        self.elr: Column = np.zeros(0, mask)
        self.adding: Column = np.zeros(0, mask)
        self.removing: Column = np.zeros(0, mask)

    @property
    def size_bytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in COLUMNS)

    def copy(self) -> Block:
        block = Block(self.width)
        block.end = self.end
        block._gaps = self._gaps.copy()
        for name in COLUMNS:
            setattr(block, name, getattr(self, name)[: self.end].copy())
        return block

    def make_room(self, rows: int) -> None:
        """Grows to hold so many more rows than it does, and no more than that."""
        if self.end + rows > len(self.topic):
            self._grow(self.end + rows)

    def allocate(self, capacity: int) -> int:
        """Where a run of so many free rows starts."""
        start = self._gaps.take(capacity)
        if start is not None:
            return start
        start, self.end = self.end, self.end + capacity
        if self.end > len(self.topic):
            self._grow(max(_ROWS_MIN, self.end, int(len(self.topic) * _SPARE)))
        return start

    def release(self, run: Run) -> None:
        """Gives up a run; its rows must look free to every scan."""
        rows = slice(run.start, run.start + run.capacity)
        for name, value in FREE_ROW.items():
            getattr(self, name)[rows] = value
        self.end = self._gaps.give(run.start, run.capacity, self.end)

    def _grow(self, rows: int) -> None:
        for name in COLUMNS:
            old = getattr(self, name)
            new = np.empty((rows, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            new[len(old) :] = FREE_ROW[name]
            setattr(self, name, new)

    # One row

    def get(self, row: int, directory_ids: Sequence[Uuid]) -> Partition | None:
        if self.topic[row] < 0:
            return None
        replicas = tuple(one for one in self.replicas[row].tolist() if one >= 0)
        directories = self.directories[row, : len(replicas)].tolist()
        return Partition(
            replicas=replicas,
            directories=tuple(directory_ids[index] for index in directories),
            isr=chosen(replicas, int(self.isr[row])),
            leader=int(self.leader[row]),
            leader_epoch=int(self.leader_epoch[row]),
            partition_epoch=int(self.partition_epoch[row]),
            removing=chosen(replicas, int(self.removing[row])),
            adding=chosen(replicas, int(self.adding[row])),
            elr=chosen(replicas, int(self.elr[row])),
            last_known_leader=int(self.last_known_leader[row]),
            is_recovering=bool(self.is_recovering[row]),
        )

    def put(self, row: int, topic: int, partition: Partition, directories: Sequence[int]) -> None:
        replicas = partition.replicas
        masks = [
            mask_of(replicas, some)
            for some in (partition.isr, partition.elr, partition.adding, partition.removing)
        ]
        self.topic[row] = topic
        self.replicas[row] = NO_LEADER
        self.replicas[row, : len(replicas)] = replicas
        self.directories[row] = 0
        self.directories[row, : len(replicas)] = directories
        self.leader[row] = partition.leader
        self.leader_epoch[row] = partition.leader_epoch
        self.partition_epoch[row] = partition.partition_epoch
        self.is_recovering[row] = partition.is_recovering
        self.last_known_leader[row] = partition.last_known_leader
        self.isr[row], self.elr[row], self.adding[row], self.removing[row] = masks


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some partitions: rows of one block."""

    block: Block
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)


class _Gaps:
    """The free rows between the runs of a block. Neighbours become one; the tightest fit is used first."""

    __slots__ = ("_by_size", "_ends", "_sizes")

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}  # by start
        self._ends: dict[int, int] = {}  # the start, by the end
        self._by_size: list[tuple[int, int]] = []  # size and start, sorted

    def copy(self) -> _Gaps:
        gaps = _Gaps()
        gaps._sizes, gaps._ends = dict(self._sizes), dict(self._ends)
        gaps._by_size = list(self._by_size)
        return gaps

    def take(self, size: int) -> int | None:
        """The start of so many rows, or None if there is no gap for them."""
        at = bisect_left(self._by_size, (size, -1))
        if at == len(self._by_size):
            return None
        found, start = self._by_size[at]
        self._remove(start)
        if found > size:
            self._add(start + size, found - size)
        return start

    def give(self, start: int, size: int, end: int) -> int:
        """Makes rows free of a block whose rows end at `end`; returns where they end then."""
        if start + size in self._sizes:
            size += self._remove(start + size)
        if start in self._ends:
            before = self._ends[start]
            start, size = before, size + self._remove(before)
        if start + size == end:
            return start
        self._add(start, size)
        return end

    def _add(self, start: int, size: int) -> None:
        self._sizes[start] = size
        self._ends[start + size] = start
        insort(self._by_size, (size, start))

    def _remove(self, start: int) -> int:
        size = self._sizes.pop(start)
        del self._ends[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]
        return size


def width_for(replicas: int) -> int:
    """The narrowest width for so many replicas.

    >>> [width_for(count) for count in (0, 1, 3, 5, 64)]
    [1, 1, 3, 8, 64]
    """
    return next(width for width in _WIDTHS if width >= replicas)


def mask_type(width: int) -> Any:
    """The integer with a bit for each position.

    >>> mask_type(3), mask_type(16)
    (<class 'numpy.uint8'>, <class 'numpy.uint16'>)
    """
    return np.uint8 if width <= 8 else np.uint16 if width <= 16 else np.uint32 if width <= 32 else np.uint64


def hits(block: Block, broker_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where a broker stands among the replicas: the rows, and its position in each.

    One comparison of the whole matrix; everything after it works on the few that it finds.
    """
    found = np.flatnonzero(block.replicas[: block.end].reshape(-1) == broker_id)
    rows = found // block.width
    positions = found - rows * block.width
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = rows[1:] != rows[:-1]
    return (rows, positions) if is_first.all() else (rows[is_first], positions[is_first])


def bits_of(block: Block, broker_id: int) -> Column:
    """For every row the bit of a broker's position among the replicas, 0 where it has no replica."""
    bits = np.zeros(block.end, mask_type(block.width))
    rows, positions = hits(block, broker_id)
    bits[rows] = np.left_shift(1, positions.astype(bits.dtype), dtype=bits.dtype)
    return bits
