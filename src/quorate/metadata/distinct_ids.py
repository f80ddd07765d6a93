"""Which of many ids are the same: numbers for ids of 16 bytes, without sorting them and without a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.types import Uuid

__all__ = ["are_distinct", "as_words", "distinct", "distinct_values", "numbers_of"]

Column = NDArray[Any]

_BUCKET_BITS: Final = 16
_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_CELLS_PER_PAIR_MAX: Final = 32  # more would take more memory than sorting takes time
_RUN_MIN: Final = 4


def as_words(ids: Column) -> Column:
    """Ids as pairs of integers, which are faster to compare than bytes."""
    words: Column = np.ascontiguousarray(ids).view(np.uint64).reshape(-1, 2)
    return words


def distinct_values(values: Column) -> Column:
    """The values of a column, each once and in order. `np.unique` of these would first import masked arrays,
    which takes as long as half of numpy and a megabyte, and happened in the middle of serving.

    >>> distinct_values(np.array([3, 1, 3])).tolist(), distinct_values(np.array([])).tolist()
    ([1, 3], [])
    """
    found: Column = np.sort(values, axis=None)
    is_first = np.ones(len(found), np.bool_)
    np.not_equal(found[1:], found[:-1], out=is_first[1:])
    return found[is_first]


def are_distinct(rows: Column, columns: Column) -> bool:
    """Whether no pair of a row and a column stands twice."""
    if not len(rows):
        return True
    width = int(columns.max()) + 1
    cells = rows.astype(np.int64) * width + columns
    first, last = int(cells.min()), int(cells.max())
    if last - first > len(cells) * _CELLS_PER_PAIR_MAX:
        cells.sort()
        return not (cells[1:] == cells[:-1]).any()
    is_marked = np.zeros(last - first + 1, np.bool_)
    is_marked[cells - first] = True
    return int(np.count_nonzero(is_marked)) == len(cells)


def distinct(ids: Column) -> tuple[Column, Column]:
    """Where each distinct id stands for the first of its number, and the number of every id.

    Every id goes into a bucket by a hash, and the bucket remembers one of its ids. Those that are the same as
    the remembered one are done; the few others, which met in a bucket by chance, are sorted.

    >>> first, numbers = distinct(np.frombuffer(b"a" * 16 + b"b" * 16 + b"a" * 16, "V16"))
    >>> len(first), bool(numbers[0] == numbers[2] != numbers[1])
    (2, True)
    """
    words = as_words(ids)
    high: Column = words[:, 0].copy()
    low: Column = words[:, 1].copy()
    mixed: Column = high * _MIX[0] + low * _MIX[1]
    buckets = mixed >> np.uint64(64 - _BUCKET_BITS)
    places = np.arange(len(words), dtype=np.int32)
    remembered = np.empty(1 << _BUCKET_BITS, np.int32)
    remembered[buckets] = places
    like = remembered[buckets]
    differs = np.flatnonzero((high[like] != high) | (low[like] != low))
    if len(differs):
        _, first, inverse = np.unique(words[differs], axis=0, return_index=True, return_inverse=True)
        like[differs] = differs[first[inverse.reshape(-1)]]
    first = np.flatnonzero(like == places)
    numbers = np.empty(len(words), np.int32)
    numbers[first] = np.arange(len(first))
    return first, numbers[like]


def numbers_of(ids: Column, number_of: Callable[[Uuid], int]) -> NDArray[np.int32]:
    """A number for every id; each distinct one is asked for once."""
    words = as_words(ids)
    begins = np.ones(len(words), np.bool_)  # where the id is another than the one before
    begins[1:] = (words[1:, 0] != words[:-1, 0]) | (words[1:, 1] != words[:-1, 1])
    starts = np.flatnonzero(begins)
    if len(starts) * _RUN_MIN > len(words):
        return _numbers_of(ids.reshape(-1), number_of)
    lengths = np.diff(np.append(starts, len(words)))
    return np.repeat(_numbers_of(ids.reshape(-1)[starts], number_of), lengths)


def _numbers_of(ids: Column, number_of: Callable[[Uuid], int]) -> NDArray[np.int32]:
    first, numbers = distinct(ids)
    data = ids[first].tobytes()
    asked = [number_of(Uuid(data[at : at + 16])) for at in range(0, len(data), 16)]
    return np.array(asked, np.int32)[numbers]
