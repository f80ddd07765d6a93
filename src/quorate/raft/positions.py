"""Where a log is: its ends, its epochs and its snapshots, and what follows for a replica that fetches.

This is a picture of the log on disk, kept by whoever appends to it. It holds no records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from quorate.values import dataclass

__all__ = ["Diverging", "LogPositions", "NeedsSnapshot", "Position", "Valid"]


class Position(NamedTuple):
    """An end: everything below `offset` is included, and the last of it was written in `epoch`.

    It is also what a snapshot is called.
    """

    offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


@dataclass(frozen=True, slots=True)
class Valid:
    """The replica's log is a prefix of ours: it may go on from there."""


@dataclass(frozen=True, slots=True)
class Diverging:
    """The replica's log is not a prefix of ours: this is the end of the largest epoch that may agree."""

    end: Position


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    """What the replica asks for is no longer in our log, but in this snapshot."""

    snapshot: Position


class LogPositions:
    """The picture of one log. `epochs` are (epoch, start offset), both ascending."""

    __slots__ = ("_epochs", "end_offset", "flushed_offset", "generation", "snapshots", "start_offset")

    def __init__(
        self,
        start_offset: int = 0,
        end_offset: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        snapshots: Iterable[Position] = (),
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_offset = end_offset
        self.generation = 0  # raised whenever something is cut off
        self._epochs = list(epochs)
        self.snapshots = sorted(snapshots, key=lambda one: (one.epoch, one.offset))

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot that stands in for it; 0 for an empty log."""
        if self._epochs:
            return self._epochs[-1][0]
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def end(self) -> Position:
        return Position(self.end_offset, self.last_epoch)

    @property
    def is_flushed(self) -> bool:
        return self.flushed_offset >= self.end_offset

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._epochs)

    @property
    def earliest_snapshot(self) -> Position | None:
        return self.snapshots[0] if self.snapshots else None

    @property
    def latest_snapshot(self) -> Position | None:
        return self.snapshots[-1] if self.snapshots else None

    # What changes it

    def begin_epoch(self, epoch: int, start_offset: int) -> None:
        """An epoch begins, with or without a record: older ones then have an end."""
        if self._epochs and epoch <= self._epochs[-1][0]:
            assert epoch == self._epochs[-1][0], f"epoch {epoch} after {self._epochs[-1][0]}"
            return
        # an epoch that got no record starts where this one does, and says nothing any more
        while self._epochs and self._epochs[-1][1] >= start_offset:
            self._epochs.pop()
        self._epochs.append((epoch, start_offset))

    def append(self, epoch: int, base_offset: int, next_offset: int) -> None:
        assert base_offset == self.end_offset, (
            f"append at {base_offset} to a log that ends at {self.end_offset}"
        )
        self.begin_epoch(epoch, base_offset)
        self.end_offset = next_offset

    def truncate(self, end_offset: int) -> None:
        """Cuts the end. Epochs that begin there or later are forgotten even if there was nothing to cut."""
        assert self.start_offset <= end_offset <= self.end_offset
        self.generation += 1
        self.end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        while self._epochs and self._epochs[-1][1] >= end_offset:
            self._epochs.pop()

    def begin_at(self, snapshot: Position) -> None:
        """The log is replaced by a snapshot: empty, and starting at its end."""
        self.generation += 1
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.offset
        self._epochs = []
        self.snapshots = [snapshot]

    def add_snapshot(self, snapshot: Position) -> None:
        if snapshot not in self.snapshots:
            self.snapshots.append(snapshot)
            self.snapshots.sort(key=lambda one: (one.epoch, one.offset))

    def delete_before(self, snapshot: Position) -> None:
        """The log now starts at the end of a snapshot, and older snapshots are gone."""
        self.start_offset = max(self.start_offset, snapshot.offset)
        self.snapshots = [one for one in self.snapshots if one.offset >= snapshot.offset]
        while len(self._epochs) > 1 and self._epochs[1][1] <= self.start_offset:
            self._epochs.pop(0)
        if self._epochs and self._epochs[0][1] < self.start_offset:
            self._epochs[0] = (self._epochs[0][0], self.start_offset)

    # What follows for replicas

    def end_of_epoch(self, epoch: int) -> Position:
        """The end of the largest epoch of ours that is not above `epoch`."""
        if not self._epochs or epoch >= self._epochs[-1][0]:
            return self.end
        index = bisect_right(self._epochs, epoch, key=lambda entry: entry[0])
        if index == 0:
            first_offset = self._epochs[0][1]
            snapshot = self.earliest_snapshot
            # the point where log and snapshot meet belongs to the snapshot's epoch
            if snapshot is not None and snapshot.offset == first_offset:
                return snapshot
            return Position(first_offset, epoch)
        return Position(self._epochs[index][1], self._epochs[index - 1][0])

    def check(self, offset: int, epoch: int) -> Valid | Diverging | NeedsSnapshot:
        """Whether a replica whose log ends at `offset`, last written in `epoch`, can go on from there."""
        latest, earliest = self.latest_snapshot, self.earliest_snapshot
        if offset == 0 and latest is not None and latest != (0, 0):
            return NeedsSnapshot(latest)
        if self.start_offset == 0 and offset == 0:
            return Valid()
        if (
            earliest is not None
            and latest is not None
            and (
                offset < self.start_offset
                or (offset == self.start_offset and epoch != earliest.epoch)
                or epoch < earliest.epoch
            )
        ):
            return NeedsSnapshot(latest)
        end = self.end_of_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Diverging(end)
        return Valid()

    def truncation_for(self, diverging: Position) -> int:
        """Where to cut our log when a leader says that its log of that epoch ends there."""
        if diverging.epoch == 0:
            return min(diverging.offset, self.end_offset)
        ours = self.end_of_epoch(diverging.epoch)
        if ours.epoch == diverging.epoch:
            return min(ours.offset, diverging.offset)
        return ours.offset
