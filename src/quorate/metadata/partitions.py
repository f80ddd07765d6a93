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
values (`get`, `put`); what touches many partitions works on the columns (`blocks`, `Rows`): changes of many
are `PartitionChanges` (`change`), many new ones `NewPartitions` (`put_many`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from quorate.metadata.blocks import (
    COLUMNS,
    FREE_ROW,
    Block,
    Column,
    Rows,
    Run,
    bits_of,
    hits,
    mask_type,
    width_for,
)
from quorate.metadata.directory_ids import DirectoryIds
from quorate.metadata.distinct_ids import distinct_values
from quorate.metadata.errors import ImageError
from quorate.metadata.partition import LOST, MIGRATING, NO_LEADER, UNASSIGNED, Partition, chosen, mask_of
from quorate.protocol.types import Uuid
from quorate.values import dataclass

if TYPE_CHECKING:
    from quorate.metadata.partition_changes import PartitionChanges

__all__ = [
    "LOST",
    "MIGRATING",
    "NO_LEADER",
    "PARTITION_ID_MAX",
    "REPLICAS_MAX",
    "UNASSIGNED",
    "Block",
    "DirectoryIds",
    "NewPartitions",
    "Partition",
    "PartitionTable",
    "Rows",
    "Run",
    "bits_of",
    "chosen",
    "mask_of",
    "mask_type",
    "width_for",
]

REPLICAS_MAX: Final = 64
PARTITION_ID_MAX: Final = (1 << 20) - 1  # a damaged id must not ask for all the memory there is
_NO_CHANGE: Final = -2


@dataclass(frozen=True, slots=True, eq=False)
class NewPartitions:
    """Partitions with one number of replicas, as columns of the same length; `topics` are slots.

    The subsets of the replicas are bits over the columns of `replicas`, whatever unsigned integers hold them.
    """

    topics: Column
    partition_ids: Column
    replicas: Column
    directories: Column  # numbers of `DirectoryIds`, as many columns as `replicas` has
    isr: Column
    elr: Column
    adding: Column
    removing: Column
    leader: Column
    leader_epoch: Column
    partition_epoch: Column
    is_recovering: Column
    last_known_leader: Column

    def __len__(self) -> int:
        return len(self.topics)

    def part(self, some: Column) -> NewPartitions:
        """Some of them."""
        return NewPartitions(*(getattr(self, one.name)[some] for one in fields(self)))


class PartitionTable:
    """All partitions of a cluster. Topics are known by their slots, see `topics.Topics`."""

    __slots__ = ("_counts", "_starts", "_widths", "blocks", "directory_ids", "runs")

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.runs: dict[int, Run] = {}  # by topic slot
        self.directory_ids = DirectoryIds()
        # The same as `runs`, as columns by slot; a topic without a run has a count of 0.
        self._starts: Column = np.zeros(16, np.int64)
        self._counts: Column = np.zeros(16, np.int64)
        self._widths: Column = np.zeros(16, np.uint8)

    def copy(self) -> PartitionTable:
        table = PartitionTable()
        table.blocks = {width: block.copy() for width, block in self.blocks.items()}
        table.runs = dict(self.runs)
        table.directory_ids = self.directory_ids.copy()
        table._starts = self._starts.copy()
        table._counts = self._counts.copy()
        table._widths = self._widths.copy()
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
        check(partition_id, partition)
        count, run = partition_id + 1, self.runs.get(topic)
        # Twice the room, for those who add one partition after the other.
        capacity = count if run is None or count <= run.capacity else max(count, 2 * run.capacity)
        run = self._reserve(topic, count, len(partition.replicas), capacity)
        self.make_room_for_directories(partition.directories)
        numbers = [self.directory_ids.number(one) for one in partition.directories]
        self.blocks[run.width].put(run.start + partition_id, topic, partition, numbers)

    def reserve(self, topic: int, count: int, replicas: int) -> Run:
        """Sees to it that a topic has rows for so many partitions with so many replicas, and no more."""
        return self._reserve(topic, count, replicas, count)

    def _reserve(self, topic: int, count: int, replicas: int, capacity: int) -> Run:
        width = width_for(replicas)
        run = self.runs.get(topic)
        if run is None:
            run = Run(width, self._block(width).allocate(capacity), count, capacity)
        elif width > run.width or count > run.capacity:
            run = self._move(run, max(width, run.width), max(count, run.count), max(capacity, run.capacity))
        elif count > run.count:
            run = replace(run, count=count)
        self._keep(topic, run)
        return run

    def remove(self, topic: int) -> None:
        """Forgets all partitions of a topic."""
        run = self.runs.pop(topic, None)
        if run is not None:
            self._counts[topic] = 0
            self.blocks[run.width].release(run)

    def make_room_for_directories(self, directories: Sequence[Uuid]) -> None:
        """Sees to it that these can be numbered without giving out a number that is still in use."""
        if not self.directory_ids.has_room_for(directories):
            used = [distinct_values(block.directories[: block.end]) for block in self.blocks.values()]
            kept = [self.directory_ids.known(one) for one in directories]
            numbers = {number for column in used for number in column.tolist()}
            self.directory_ids.reclaim(sorted(numbers | {one for one in kept if one is not None}))

    def _keep(self, topic: int, run: Run) -> None:
        self.runs[topic] = run
        if topic >= len(self._starts):
            more = max(topic + 1, 2 * len(self._starts)) - len(self._starts)
            self._starts, self._counts, self._widths = (
                np.concatenate([column, np.zeros(more, column.dtype)])
                for column in (self._starts, self._counts, self._widths)
            )
        self._starts[topic], self._counts[topic], self._widths[topic] = run.start, run.count, run.width

    def _block(self, width: int) -> Block:
        if width not in self.blocks:
            self.blocks[width] = Block(width)
        return self.blocks[width]

    def _move(self, run: Run, width: int, count: int, capacity: int) -> Run:
        old, new = self.blocks[run.width], self._block(width)
        moved = Run(width, new.allocate(capacity), count, capacity)
        source = slice(run.start, run.start + run.count)
        target = slice(moved.start, moved.start + run.count)
        for name in COLUMNS:
            column = getattr(new, name)
            if column.ndim == 1:
                column[target] = getattr(old, name)[source]
            else:
                column[target] = FREE_ROW[name]
                column[target, : run.width] = getattr(old, name)[source]
        old.release(run)
        return moved

    # Finding many partitions

    def of(self, topic: int) -> Iterator[tuple[int, Partition]]:
        """The partitions of a topic with their ids, in their order."""
        run = self.runs.get(topic)
        for partition_id in range(run.count if run is not None else 0):
            partition = self.get(topic, partition_id)
            if partition is not None:
                yield partition_id, partition

    def replicas_of(self, topic: int) -> list[list[int]]:
        """The replicas of a topic's partitions, in their order; -1 where there are fewer than elsewhere."""
        run = self.runs.get(topic)
        if run is None:
            return []
        block, rows = self.blocks[run.width], slice(run.start, run.start + run.count)
        found: list[list[int]] = block.replicas[rows][block.topic[rows] >= 0].tolist()
        return found

    def count_of(self, topic: int) -> int:
        run = self.runs.get(topic)
        return 0 if run is None else run.count

    def hosted_by(self, broker_id: int) -> list[Rows]:
        """The partitions with a replica on a broker."""
        return self._where(lambda block: hits(block, broker_id)[0])

    def led_by(self, broker_id: int) -> list[Rows]:
        """The partitions that a broker leads; -1 gives those without a leader."""
        return self._where(lambda block: np.flatnonzero(block.leader[: block.end] == broker_id))

    def is_leading(self, broker_id: int) -> bool:
        return any(bool((block.leader[: block.end] == broker_id).any()) for block in self.blocks.values())

    def in_sync_on(self, broker_id: int) -> list[Rows]:
        """The partitions with a broker among their in-sync replicas."""
        return self._where(lambda block: _rows_with(block, block.isr, broker_id))

    def eligible_on(self, broker_id: int) -> list[Rows]:
        """The partitions with a broker among their eligible leader replicas."""
        return self._where(lambda block: _rows_with(block, block.elr, broker_id))

    def _where(self, condition: Any) -> list[Rows]:
        found = []
        for width in sorted(self.blocks):
            block = self.blocks[width]
            index = condition(block)
            if len(index):
                found.append(Rows(block, index))
        return found

    def partition_ids(self, rows: Rows) -> NDArray[np.int32]:
        """The ids of partitions within their topics."""
        ids: NDArray[np.int32] = (rows.index - self.starts_of(rows.block.topic[rows.index])).astype(np.int32)
        return ids

    def starts_of(self, topics: Column) -> Column:
        """Where the runs of topics start."""
        starts: Column = self._starts[topics]
        return starts

    def locate(self, topics: Column, partition_ids: Column) -> tuple[Column, Column]:
        """Where partitions are, given the slots of their topics: widths and rows; 0 for those that do not
        exist, for which a slot may be -1."""
        slots = np.minimum(topics, len(self._starts) - 1)
        is_there = (topics == slots) & (topics >= 0)
        is_there &= (partition_ids >= 0) & (partition_ids < self._counts[slots])
        widths = np.where(is_there, self._widths[slots], 0)
        rows = np.where(is_there, self._starts[slots] + partition_ids, 0)
        for width, block in self.blocks.items():
            at = np.flatnonzero(widths == width)
            absent = block.topic[rows[at]] != topics[at]  # never added, between others that were
            widths[at[absent]] = 0
        return widths, rows

    # Changing many partitions

    def change(self, changes: PartitionChanges) -> None:
        """Applies changes of rows of this table."""
        block, index = changes.rows.block, changes.rows.index
        assert self.blocks.get(block.width) is block, "changes of another table"
        _assign(block.isr, index, changes.isr, changes.has_isr)
        _assign(block.elr, index, changes.elr, changes.has_elr)
        names_leader = changes.leader != _NO_CHANGE
        _assign(block.leader, index, changes.leader, names_leader)
        block.leader_epoch[index] += names_leader
        block.partition_epoch[index] += 1
        last_known = changes.last_known_leader
        _assign(block.last_known_leader, index, last_known, last_known != _NO_CHANGE)
        _assign(block.is_recovering, index, changes.recovery_state == 1, changes.recovery_state != -1)

    def put_many(self, groups: Sequence[NewPartitions]) -> None:
        """Adds partitions, or replaces what is known of them; each may appear once.

        Every topic gets the rows that it needs, all at once and no more, so the order does not matter.
        """
        counts, replicas = self._needs(groups)
        fresh: dict[int, int] = {}  # rows that blocks will need, by width
        for topic, count in counts.items():
            run = self.runs.get(topic)
            if run is None or count > run.capacity or width_for(replicas[topic]) > run.width:
                width = width_for(replicas[topic])
                fresh[width] = fresh.get(width, 0) + count
        for width, more in fresh.items():
            self._block(width).make_room(more)
        for topic, count in counts.items():
            self.reserve(topic, count, replicas[topic])
        for group in groups:
            widths = self._widths[group.topics]
            rows = self._starts[group.topics] + group.partition_ids
            for width in self.blocks:
                some = np.flatnonzero(widths == width)
                if not len(some):
                    continue
                _fill(self.blocks[width], group, rows, None if len(some) == len(rows) else some)

    def _needs(self, groups: Sequence[NewPartitions]) -> tuple[dict[int, int], dict[int, int]]:
        """How many rows each topic must have, and for how many replicas."""
        slots = 1 + max(int(group.topics.max()) for group in groups)
        counts, replicas = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
        for group in groups:
            np.maximum.at(counts, group.topics, group.partition_ids.astype(np.int64) + 1)
            replicas[group.topics] = np.maximum(replicas[group.topics], group.replicas.shape[1])
        topics = np.flatnonzero(counts).tolist()
        return dict(zip(topics, counts[topics].tolist(), strict=True)), dict(
            zip(topics, replicas[topics].tolist(), strict=True)
        )

    def clear_elr(self, topic: int | None) -> list[Rows]:
        """Forgets eligible leader replicas and last known leaders, of one topic or of all. Returns where."""

        def clear(block: Block) -> Column:
            some = (block.elr[: block.end] != 0) | (block.last_known_leader[: block.end] != NO_LEADER)
            if topic is not None:
                some &= block.topic[: block.end] == topic
            index = np.flatnonzero(some)
            block.elr[index] = 0
            block.last_known_leader[index] = NO_LEADER
            block.partition_epoch[index] += 1
            return index

        return self._where(clear)


def check(partition_id: int, partition: Partition) -> None:
    """Raises `ImageError` for a partition that the table cannot hold."""
    replicas = partition.replicas
    if not 0 <= partition_id <= PARTITION_ID_MAX:
        raise ImageError(f"a partition with id {partition_id}")
    if len(replicas) > REPLICAS_MAX:
        raise ImageError(f"a partition with {len(replicas)} replicas; at most {REPLICAS_MAX} are possible")
    if replicas and min(replicas) < 0:
        raise ImageError(f"a partition with replicas {list(replicas)}")
    if len(partition.directories) != len(replicas):
        raise ImageError(f"{len(partition.directories)} directories for {len(replicas)} replicas")
    for some in (partition.isr, partition.elr, partition.adding, partition.removing):
        if not set(some).issubset(replicas):
            raise ImageError(f"{list(some)} are not all among the replicas {list(replicas)}")


def _rows_with(block: Block, masks: Column, broker_id: int) -> NDArray[np.int64]:
    """The rows in which a broker's position is among the bits of a column."""
    rows, positions = hits(block, broker_id)
    has_bit: NDArray[np.bool_] = (masks[rows] >> positions.astype(masks.dtype)) & 1 != 0
    return rows[has_bit]


def _assign(column: Column, index: Column, values: Column, counts: Column) -> None:
    """Sets the rows of a column to those of the values that count."""
    if counts.all():
        column[index] = values
    elif counts.any():
        column[index[counts]] = values[counts]


def _fill(block: Block, group: NewPartitions, rows: Column, some: Column | None) -> None:
    """Writes some of a group, or all, to their rows of a block."""

    def of(column: Column) -> Column:
        return column if some is None else column[some]

    rows = of(rows)
    first, last = int(rows[0]), int(rows[-1])
    is_straight = last - first + 1 == len(rows) and bool((rows[1:] == rows[:-1] + 1).all())
    at: Any = slice(first, last + 1) if is_straight else rows  # several times as fast
    count = group.replicas.shape[1]
    block.topic[at] = of(group.topics)
    for name in ("leader", "leader_epoch", "partition_epoch", "is_recovering", "last_known_leader"):
        getattr(block, name)[at] = of(getattr(group, name))
    for name in ("isr", "elr", "adding", "removing"):
        getattr(block, name)[at] = of(getattr(group, name))
    for name in ("replicas", "directories"):
        column = getattr(block, name)
        for position in range(count):
            column[at, position] = of(getattr(group, name))[:, position]
        column[at, count:] = FREE_ROW[name]
