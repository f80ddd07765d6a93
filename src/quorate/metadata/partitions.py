"""The partition table: millions of partitions as columns of numbers instead of objects.

A topic owns a contiguous run of rows, its partition ids being positions in the run, in the block of the
narrowest width that all its partitions fit in. A block has a row per partition and a column per fact:

    topic           the slot of the topic, -1 in a row that is free
    leader          -1 for none
    leader_epoch, partition_epoch, is_recovering, last_known_leader (-1 for none)
    replicas        int32[n, width], -1 where a partition has fewer
    directories     uint16[n, width], indexes into `DirectoryIds`
    isr, elr, adding, removing      bits over the positions of `replicas`

The in-sync replicas are therefore kept in the order of the replicas, not in the order in which they joined.
A run that must grow or widen moves; the rows it leaves are used again. Scalars go in and out as `Partition`
values (`get`, `put`); what touches many partitions works on the columns (`blocks`, `Rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quorate.metadata.errors import ImageError
from quorate.protocol.types import Uuid

__all__ = [
    "LOST",
    "MIGRATING",
    "NO_LEADER",
    "REPLICAS_MAX",
    "UNASSIGNED",
    "Block",
    "DirectoryIds",
    "Partition",
    "PartitionTable",
    "Rows",
    "Run",
]

Column = NDArray[Any]

NO_LEADER: Final = -1
REPLICAS_MAX: Final = 64
_WIDTHS: Final = (1, 2, 3, 4, 8, 16, 32, 64)
_SPARE: Final = 1.25  # how much a block grows when it is full
_ROWS_MIN: Final = 64

MIGRATING: Final = Uuid(bytes(16))
UNASSIGNED: Final = Uuid(bytes(15) + b"\1")
LOST: Final = Uuid(bytes(15) + b"\2")
DIRECTORIES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, as a value. The subsets of the replicas are in the order of the replicas."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    is_recovering: bool = False

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing or self.adding)

    def directory_of(self, broker_id: int) -> Uuid:
        return self.directories[self.replicas.index(broker_id)]


class DirectoryIds:
    """The ids of all directories that hold replicas, numbered; the three reserved ones come first."""

    __slots__ = ("_index", "ids")

    def __init__(self, ids: Sequence[Uuid] = (MIGRATING, UNASSIGNED, LOST)) -> None:
        self.ids: list[Uuid] = list(ids)
        self._index = {directory: index for index, directory in enumerate(self.ids)}

    def copy(self) -> DirectoryIds:
        return DirectoryIds(self.ids)

    def number(self, directory: Uuid) -> int:
        """The number of a directory, which gets one if it has none yet."""
        index = self._index.get(directory)
        if index is None:
            if len(self.ids) == DIRECTORIES_MAX:
                raise ImageError(f"there are more than {DIRECTORIES_MAX} log directories")
            index = self._index[directory] = len(self.ids)
            self.ids.append(directory)
        return index

    def known(self, directory: Uuid) -> int | None:
        return self._index.get(directory)


@dataclass(frozen=True, slots=True)
class Run:
    """The rows of a topic: `[start, start + count)` of a block, with room for `capacity`."""

    width: int
    start: int
    count: int
    capacity: int


class Block:
    """The partitions of all topics of one width, a row each."""

    __slots__ = (
        "_free",
        "adding",
        "directories",
        "elr",
        "end",
        "is_recovering",
        "isr",
        "last_known_leader",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "removing",
        "replicas",
        "topic",
        "width",
    )

    def __init__(self, width: int) -> None:
        mask = mask_type(width)
        self.width = width
        self.end = 0  # rows from here on were never used
        self._free: dict[int, list[int]] = {}  # runs that were given up: their starts, by their capacities
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
        block._free = {capacity: list(starts) for capacity, starts in self._free.items()}
        for name in COLUMNS:
            setattr(block, name, getattr(self, name)[: self.end].copy())
        return block

    def allocate(self, capacity: int) -> int:
        """Where a run of so many free rows starts."""
        starts = self._free.get(capacity)
        if starts:
            return starts.pop()
        start, self.end = self.end, self.end + capacity
        if self.end > len(self.topic):
            self._grow(max(_ROWS_MIN, self.end, int(len(self.topic) * _SPARE)))
        return start

    def release(self, run: Run) -> None:
        """Gives up a run; its rows must look free to every scan."""
        rows = slice(run.start, run.start + run.capacity)
        for name, value in _FREE_ROW.items():
            getattr(self, name)[rows] = value
        self._free.setdefault(run.capacity, []).append(run.start)

    def _grow(self, rows: int) -> None:
        for name in COLUMNS:
            old = getattr(self, name)
            new = np.full((rows, *old.shape[1:]), _FREE_ROW[name], old.dtype)
            new[: len(old)] = old
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
        self.isr[row] = mask_of(replicas, partition.isr)
        self.elr[row] = mask_of(replicas, partition.elr)
        self.adding[row] = mask_of(replicas, partition.adding)
        self.removing[row] = mask_of(replicas, partition.removing)


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
_FREE_ROW: Final[dict[str, int]] = dict.fromkeys(COLUMNS, 0) | {
    "topic": -1,
    "replicas": -1,
    "leader": -2,  # so that no scan for the leaderless finds it
    "last_known_leader": -1,
}


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some partitions: rows of one block."""

    block: Block
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)


class PartitionTable:
    """All partitions of a cluster. Topics are known by their slots, see `topics.Topics`."""

    __slots__ = ("blocks", "directory_ids", "runs")

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.runs: dict[int, Run] = {}  # by topic slot
        self.directory_ids = DirectoryIds()

    def copy(self) -> PartitionTable:
        table = PartitionTable()
        table.blocks = {width: block.copy() for width, block in self.blocks.items()}
        table.runs = dict(self.runs)
        table.directory_ids = self.directory_ids.copy()
        return table

    @property
    def size_bytes(self) -> int:
        return sum(block.size_bytes for block in self.blocks.values())

    def __len__(self) -> int:
        return sum(int((block.topic[: block.end] >= 0).sum()) for block in self.blocks.values())

    # One partition

    def get(self, topic: int, partition_id: int) -> Partition | None:
        run = self.runs.get(topic)
        if run is None or not 0 <= partition_id < run.count:
            return None
        return self.blocks[run.width].get(run.start + partition_id, self.directory_ids.ids)

    def put(self, topic: int, partition_id: int, partition: Partition) -> None:
        """Adds a partition, or replaces what is known of it."""
        assert len(partition.directories) == len(partition.replicas)
        run = self.reserve(topic, partition_id + 1, len(partition.replicas))
        directories = [self.directory_ids.number(one) for one in partition.directories]
        self.blocks[run.width].put(run.start + partition_id, topic, partition, directories)

    def reserve(self, topic: int, count: int, replicas: int) -> Run:
        """Sees to it that a topic has rows for so many partitions with so many replicas."""
        if replicas > REPLICAS_MAX:
            raise ImageError(f"a partition with {replicas} replicas; at most {REPLICAS_MAX} are possible")
        width = width_for(replicas)
        run = self.runs.get(topic)
        if run is None:
            block = self._block(width)
            run = Run(width, block.allocate(count), count, count)
        elif width > run.width or count > run.capacity:
            run = self._move(run, max(width, run.width), count)
        elif count > run.count:
            run = replace(run, count=count)
        self.runs[topic] = run
        return run

    def remove(self, topic: int) -> None:
        """Forgets all partitions of a topic."""
        run = self.runs.pop(topic, None)
        if run is not None:
            self.blocks[run.width].release(run)

    def _block(self, width: int) -> Block:
        if width not in self.blocks:
            self.blocks[width] = Block(width)
        return self.blocks[width]

    def _move(self, run: Run, width: int, count: int) -> Run:
        # Twice the room, for those who add one partition after the other.
        capacity = run.capacity if count <= run.capacity else max(count, 2 * run.capacity)
        old, new = self.blocks[run.width], self._block(width)
        moved = Run(width, new.allocate(capacity), max(count, run.count), capacity)
        source = slice(run.start, run.start + run.count)
        target = slice(moved.start, moved.start + run.count)
        for name in COLUMNS:
            column = getattr(new, name)
            if column.ndim == 1:
                column[target] = getattr(old, name)[source]
            else:
                column[target] = _FREE_ROW[name]
                column[target, : run.width] = getattr(old, name)[source]
        old.release(run)
        return moved

    # Many partitions

    def of(self, topic: int) -> Iterator[tuple[int, Partition]]:
        """The partitions of a topic with their ids, in their order."""
        run = self.runs.get(topic)
        for partition_id in range(run.count if run is not None else 0):
            partition = self.get(topic, partition_id)
            if partition is not None:
                yield partition_id, partition

    def count_of(self, topic: int) -> int:
        run = self.runs.get(topic)
        return 0 if run is None else run.count

    def hosted_by(self, broker_id: int) -> list[Rows]:
        """The partitions with a replica on a broker."""
        return self._where(lambda block: (block.replicas[: block.end] == broker_id).any(axis=1))

    def led_by(self, broker_id: int) -> list[Rows]:
        """The partitions that a broker leads; -1 gives those without a leader."""
        return self._where(lambda block: block.leader[: block.end] == broker_id)

    def is_leading(self, broker_id: int) -> bool:
        return any(bool((block.leader[: block.end] == broker_id).any()) for block in self.blocks.values())

    def in_sync_on(self, broker_id: int) -> list[Rows]:
        """The partitions with a broker among their in-sync replicas."""
        return self._where(lambda block: (block.isr[: block.end] & bits_of(block, broker_id)) != 0)

    def eligible_on(self, broker_id: int) -> list[Rows]:
        """The partitions with a broker among their eligible leader replicas."""
        return self._where(lambda block: (block.elr[: block.end] & bits_of(block, broker_id)) != 0)

    def _where(self, condition: Any) -> list[Rows]:
        found = []
        for width in sorted(self.blocks):
            block = self.blocks[width]
            index = np.flatnonzero(condition(block))
            if len(index):
                found.append(Rows(block, index))
        return found

    def clear_elr(self, topic: int | None) -> None:
        """Forgets eligible leader replicas and last known leaders, of one topic or of all."""
        for block in self.blocks.values():
            some = (block.elr[: block.end] != 0) | (block.last_known_leader[: block.end] != NO_LEADER)
            if topic is not None:
                some &= block.topic[: block.end] == topic
            index = np.flatnonzero(some)
            block.elr[index] = 0
            block.last_known_leader[index] = NO_LEADER
            block.partition_epoch[index] += 1

    def partition_ids(self, rows: Rows) -> NDArray[np.int32]:
        """The ids of partitions within their topics."""
        topics = rows.block.topic[rows.index]
        slots, inverse = np.unique(topics, return_inverse=True)
        starts = np.array([self.runs[slot].start for slot in slots.tolist()], np.int64)
        return (rows.index - starts[inverse]).astype(np.int32)


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


def mask_of(replicas: Sequence[int], some: Sequence[int]) -> int:
    """The positions of some of the replicas as bits.

    >>> mask_of((7, 5, 9), (9, 7))
    5
    """
    mask = 0
    for one in some:
        if one not in replicas:
            raise ImageError(f"{list(some)} are not all among the replicas {list(replicas)}")
        mask |= 1 << replicas.index(one)
    return mask


def chosen(replicas: Sequence[int], mask: int) -> tuple[int, ...]:
    """The replicas at the positions of the bits.

    >>> chosen((7, 5, 9), 5)
    (7, 9)
    """
    return tuple(one for position, one in enumerate(replicas) if mask >> position & 1)


def bits_of(block: Block, broker_id: int) -> Column:
    """For every row the bit of a broker's position among the replicas, 0 where it has no replica."""
    mask = mask_type(block.width)
    weights = (1 << np.arange(block.width, dtype=np.uint64)).astype(mask)
    replicas = block.replicas[: block.end]
    bits = np.zeros(len(replicas), mask)
    for position in range(block.width):
        bits |= np.where(replicas[:, position] == broker_id, weights[position], mask(0))
    return bits
