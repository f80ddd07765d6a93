"""The ids of log directories as small numbers, so that the partition table keeps two bytes for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from quorate.metadata.errors import ImageError
from quorate.metadata.partition import LOST, MIGRATING, UNASSIGNED
from quorate.protocol.types import Uuid

__all__ = ["DIRECTORIES_MAX", "DirectoryIds"]

DIRECTORIES_MAX: Final = 1 << 16
_RESERVED: Final = (MIGRATING, UNASSIGNED, LOST)


class DirectoryIds:
    """The ids of all directories that hold replicas, numbered; the three reserved ones come first.

    Brokers come and go, and so do their directories. Nobody counts who uses a number: when all are given out,
    the table looks which it still holds, and the others are given out again (`reclaim`). Until then an id
    that nobody uses any more stays in `ids`, which does no harm.
    """

    __slots__ = ("_free", "_index", "_numbers_max", "ids")

    def __init__(self, numbers_max: int = DIRECTORIES_MAX) -> None:
        self.ids: list[Uuid] = list(_RESERVED)
        self._index = {directory: number for number, directory in enumerate(self.ids)}
        self._free: list[int] = []
        self._numbers_max = numbers_max

    def copy(self) -> DirectoryIds:
        copied = DirectoryIds(self._numbers_max)
        copied.ids = list(self.ids)
        copied._index = dict(self._index)
        copied._free = list(self._free)
        return copied

    def known(self, directory: Uuid) -> int | None:
        return self._index.get(directory)

    def has_room_for(self, directories: Iterable[Uuid]) -> bool:
        """Whether there are numbers left for those of the directories that have none."""
        left = self._numbers_max - len(self.ids) + len(self._free)
        return len({one for one in directories if one not in self._index}) <= left

    def number(self, directory: Uuid) -> int:
        """The number of a directory, which gets one if it has none yet."""
        number = self._index.get(directory)
        if number is None:
            if self._free:
                number = self._free.pop()
                self.ids[number] = directory
            elif len(self.ids) < self._numbers_max:
                number = len(self.ids)
                self.ids.append(directory)
            else:
                raise ImageError(f"there are more than {self._numbers_max} log directories")
            self._index[directory] = number
        return number

    def reclaim(self, used: Sequence[int]) -> None:
        """Makes all numbers free but those that are used and the reserved ones."""
        kept = {*used, *range(len(_RESERVED))}
        self._free = [number for number in range(len(self.ids) - 1, -1, -1) if number not in kept]
        self._index = {self.ids[number]: number for number in sorted(kept)}
