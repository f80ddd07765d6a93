"""The last offset of every key, and keys as 128 bits."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quorate.storage.compaction_keys import SECRET_BYTES, KeyHash
from quorate.storage.compaction_map import SLOT_BYTES, OffsetMap

KEYS = KeyHash(random.Random(1).randbytes(SECRET_BYTES))
SOME_KEYS = st.lists(
    st.one_of(st.binary(max_size=9), st.sampled_from([b"\0", b"\0\0", b"a" * 300, b"a" * 301, b"a" * 257])),
    max_size=60,
)


def hashed(keys: list[bytes]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    starts = ends - [len(key) for key in keys]
    first, second = KEYS.of(b"".join(keys), starts, ends)
    return list(zip(first.tolist(), second.tolist(), strict=True))


@given(SOME_KEYS)
def test_keys_are_the_same_exactly_if_their_hashes_are(keys: list[bytes]) -> None:
    found = dict(zip(keys, hashed(keys), strict=True))
    assert len(set(found.values())) == len(found)
    assert hashed(keys) == [found[key] for key in keys]


def test_another_secret_makes_another_hash() -> None:
    other = KeyHash(random.Random(2).randbytes(SECRET_BYTES))
    span = np.array([0]), np.array([3])
    assert other.of(b"abc", *span) != KEYS.of(b"abc", *span)


@given(st.lists(st.lists(st.integers(0, 30), max_size=25), max_size=12), st.integers(1, 60))
def test_it_is_a_dictionary(rounds: list[list[int]], entries_max: int) -> None:
    table = OffsetMap(1 << 20, 0.9, entries_max)
    model: dict[int, int] = {}
    offset = 0
    for keys in rounds:
        first = np.array([key % 3 for key in keys], np.uint64)  # so that many want the same slot
        second = np.array(keys, np.uint64)
        offsets = np.arange(offset, offset + len(keys))
        entered = table.put(first, second, offsets)
        assert entered == len(keys) or table.is_full
        model.update(zip(keys[:entered], offsets[:entered].tolist(), strict=True))
        offset += len(keys)
        assert table.count == len(model) <= table.count_max
    every = list(range(31))
    found = table.get(np.array([key % 3 for key in every], np.uint64), np.array(every, np.uint64))
    assert found.tolist() == [model.get(key, -1) for key in every]


def test_it_takes_no_more_memory_than_it_was_given() -> None:
    table = OffsetMap(240_000, 0.9, 1 << 40)
    assert table.slots * SLOT_BYTES <= 240_000
    assert table.count_max == int(table.slots * 0.9)
    assert OffsetMap(128 << 20, 0.9, 100).slots < 200
