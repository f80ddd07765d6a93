"""Keys as 128 bits each, for thousands of records at once.

Compaction keeps no keys in memory, only what they are hashed to; two keys that were hashed to the same would
be taken for one, and a record would be lost. So the hash is one of which that can be proved unlikely for any
two keys whatever: a sum of products of the key's words with secret random numbers, of which the upper half
counts (the multilinear family: Lemire and Kaser, "Strongly universal string hashing is fast"). For each pair
of keys, one draw of the secrets in 2^128 makes them collide, and each run of compaction draws its own. It is
also nothing but multiplications and additions, which numpy does for all records in a few instructions.

Keys that are long are hashed to a few words first, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.types import Buffer

__all__ = ["SECRET_BYTES", "KeyHash"]

Words: TypeAlias = NDArray[np.uint64]

_LANES: Final = 4  # of 32 bits
_WORD_BYTES: Final = 4
_LONG_WORDS: Final = 64  # from here on a key is hashed by itself first
_COEFFICIENTS: Final = _LONG_WORDS + 2  # one for the length, one that is only added
SECRET_BYTES: Final = _LANES * _COEFFICIENTS * 8
_LONG_DIGEST_BYTES: Final = 32
_LONG_MARK: Final = 1 << 31  # in the place of the length, which is shorter than that for all others

_UPPER: Final = np.uint64(0xFFFFFFFF00000000)
_32: Final = np.uint64(32)


class KeyHash:
    """A hash that one draw of secrets makes.

    >>> import random
    >>> keys = KeyHash(random.Random(1).randbytes(SECRET_BYTES))
    >>> first, second = keys.of(b"one.two.one", np.array([0, 4, 8]), np.array([3, 7, 11]))
    >>> bool(first[0] == first[2] and second[0] == second[2]), bool(first[0] == first[1])
    (True, False)
    """

    __slots__ = ("_coefficients",)

    def __init__(self, secret: bytes) -> None:
        assert len(secret) == SECRET_BYTES
        self._coefficients = np.frombuffer(secret, np.uint64).reshape(_LANES, _COEFFICIENTS)

    def of(
        self, data: Buffer, starts: NDArray[np.integer[Any]], ends: NDArray[np.integer[Any]]
    ) -> tuple[Words, Words]:
        """What is hashed from the bytes between each start and its end, in two halves."""
        padded = np.frombuffer(bytes(data) + bytes(_WORD_BYTES), np.uint8)
        words = np.ndarray(len(padded) - _WORD_BYTES + 1, "<u4", padded.data, 0, (1,))  # one at every byte
        begins = starts.astype(np.intp)
        sizes = ends.astype(np.intp) - begins
        counts = -(-sizes // _WORD_BYTES)
        long = np.flatnonzero(counts > _LONG_WORDS)
        if len(long):
            counts[long] = 0
        sums = self._begin(sizes)
        most = int(counts.max(initial=0))
        fewest = int(counts.min(initial=0))
        for index in range(most):
            if index < fewest:
                rows: slice | NDArray[np.intp] = slice(None)
            else:
                rows = np.flatnonzero(counts > index)
            left_bytes = sizes[rows] - index * _WORD_BYTES
            values = words[begins[rows] + index * _WORD_BYTES].astype(np.uint64)
            is_cut = left_bytes < _WORD_BYTES
            if is_cut.any():
                bits = np.minimum(left_bytes, _WORD_BYTES).astype(np.uint64) * np.uint64(8)
                values &= (np.uint64(1) << bits) - np.uint64(1)
            self._add(sums, rows, index, values)
        if len(long):
            self._add_long(sums, data, begins, begins + sizes, long)
        return (sums[0] & _UPPER) | (sums[1] >> _32), (sums[2] & _UPPER) | (sums[3] >> _32)

    def _begin(self, sizes: NDArray[np.intp]) -> list[Words]:
        """The sums with the length of each key, without which zeros at its end would not count."""
        lengths = sizes.astype(np.uint64)
        return [lane[_LONG_WORDS] + lane[_LONG_WORDS + 1] * lengths for lane in self._coefficients]

    def _add(self, sums: Sequence[Words], rows: slice | NDArray[np.intp], index: int, values: Words) -> None:
        for lane, total in zip(self._coefficients, sums, strict=True):
            total[rows] += lane[index] * values

    def _add_long(
        self,
        sums: Sequence[Words],
        data: Buffer,
        starts: NDArray[np.intp],
        ends: NDArray[np.intp],
        long: NDArray[np.intp],
    ) -> None:
        spans = zip(starts[long].tolist(), ends[long].tolist(), strict=True)
        digests = [blake2b(data[start:end], digest_size=_LONG_DIGEST_BYTES).digest() for start, end in spans]
        table = np.frombuffer(b"".join(digests), "<u4").reshape(len(long), -1).astype(np.uint64)
        marked = self._begin(np.full(len(long), _LONG_MARK, np.intp))
        for total, value in zip(sums, marked, strict=True):
            total[long] = value
        for index in range(table.shape[1]):
            self._add(sums, long, index, table[:, index])
