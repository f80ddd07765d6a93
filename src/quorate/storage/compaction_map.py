"""The last offset of every key, in as much memory as it was given.

A table of slots, each the 128 bits of a key (`compaction_keys`) and an offset: 24 bytes for a key. All
records of a buffer are looked up or entered at once, round by round: those that do not find their place in
one slot try their next one. The number of slots is a prime, so that every step leads through all of them.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["SLOT_BYTES", "OffsetMap"]

Words: TypeAlias = NDArray[np.uint64]
Int64s: TypeAlias = NDArray[np.int64]

SLOT_BYTES: Final = 24
_SLOTS_MIN: Final = 13
_LOAD_FACTOR_MAX: Final = 0.95  # beyond that, looking for a place takes long


class OffsetMap:
    """From keys, by their hash, to offsets.

    `latest_offset` is up to where the log is known: what comes behind it may not be judged by this map.
    """

    __slots__ = ("_table", "count", "count_max", "latest_offset")

    def __init__(self, size_bytes: int, load_factor: float, entries_max: int) -> None:
        """A map of at most `size_bytes`, for `entries_max` keys at most if that needs less."""
        share = min(max(load_factor, 0.01), _LOAD_FACTOR_MAX)
        slots = min(size_bytes // SLOT_BYTES, int(entries_max / share) + 2)
        slots = _prime_up_to(max(slots, _SLOTS_MIN))
        self._table = np.zeros((slots, 3), np.uint64)  # of an offset one more, so that zeros are empty
        self.count = 0
        self.count_max = max(1, int(slots * share))
        self.latest_offset = -1

    @property
    def slots(self) -> int:
        return len(self._table)

    @property
    def is_full(self) -> bool:
        return self.count >= self.count_max

    def put(self, first: Words, second: Words, offsets: Int64s) -> int:
        """Enters keys, whose offsets increase, until it is full. How many of them were entered."""
        done = 0
        while done < len(offsets) and not self.is_full:
            end = done + self.count_max - self.count  # they may all be new
            self._put(first[done:end], second[done:end], offsets[done:end])
            done = min(end, len(offsets))
        return done

    def get(self, first: Words, second: Words) -> Int64s:
        """The last offset of each key, -1 if it is not known."""
        found = np.full(len(first), -1, np.int64)
        if not self.count:
            return found
        slot, step = self._probes(first, second)
        left = np.arange(len(first))
        while len(left):
            rows = self._table[slot]
            is_empty = rows[:, 2] == 0
            is_match = (rows[:, 0] == first[left]) & (rows[:, 1] == second[left]) & ~is_empty
            found[left[is_match]] = rows[is_match, 2].astype(np.int64) - 1
            goes_on = ~(is_match | is_empty)
            left, slot, step = left[goes_on], slot[goes_on], step[goes_on]
            slot = (slot + step) % self.slots
        return found

    def _put(self, first: Words, second: Words, offsets: Int64s) -> None:
        slot, step = self._probes(first, second)
        entries = np.stack([first, second, (offsets + 1).astype(np.uint64)], axis=1)
        table = self._table
        while len(entries):
            rows = table[slot]
            is_empty = rows[:, 2] == 0
            is_older = _same_key(rows, entries) & (rows[:, 2] < entries[:, 2])
            may_write = is_empty | is_older
            table[slot[may_write]] = entries[may_write]
            rows = table[slot]  # where several wanted the same slot, one has it now
            is_mine = _same_key(rows, entries) & (rows[:, 2] != 0)
            self.count += int((is_empty & is_mine & (rows[:, 2] == entries[:, 2])).sum())
            is_done = is_mine & (rows[:, 2] >= entries[:, 2])
            moves_on = ~is_mine
            slot = np.where(moves_on, (slot + step) % self.slots, slot)[~is_done]
            step, entries = step[~is_done], entries[~is_done]

    def _probes(self, first: Words, second: Words) -> tuple[Int64s, Int64s]:
        """The first slot of each key, and how far it is to the next one."""
        slot = (first % np.uint64(self.slots)).astype(np.int64)
        step = (second % np.uint64(self.slots - 1)).astype(np.int64) + 1
        return slot, step


def _same_key(rows: Words, entries: Words) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (rows[:, 0] == entries[:, 0]) & (rows[:, 1] == entries[:, 1])
    return found


def _prime_up_to(number: int) -> int:
    while not _is_prime(number):
        number -= 1
    return number


def _is_prime(number: int) -> bool:
    if number % 2 == 0:
        return number == 2
    divisors = np.arange(3, int(number**0.5) + 1, 2)
    return number > 1 and bool((number % divisors).all())
