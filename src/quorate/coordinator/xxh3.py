"""XXH3, the 64-bit hash by which Kafka knows whether the topics of a group have changed.

The log keeps such a hash, so another coordinator, ours or Apache's, must come to the same number: this is the
published algorithm with its default secret and without a seed. Long inputs are hashed in columns: what the
stripes of a block add is independent of what came before, so only the step between blocks is a loop.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["xxh3_64"]

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_PRIME32_1: Final = 0x9E3779B1
_PRIME32_2: Final = 0x85EBCA77
_PRIME32_3: Final = 0xC2B2AE3D
_PRIME64_1: Final = 0x9E3779B185EBCA87
_PRIME64_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME64_3: Final = 0x165667B19E3779F9
_PRIME64_4: Final = 0x85EBCA77C2B2AE63
_PRIME64_5: Final = 0x27D4EB2F165667C5
_PRIME_MX1: Final = 0x165667919E3779F9
_PRIME_MX2: Final = 0x9FB21C651E98DF25

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
"""The default secret of XXH3."""
_STRIPE_BYTES: Final = 64
_BLOCK_BYTES: Final = 1024
_MIDDLE_BYTES_MAX: Final = 240

Words = npt.NDArray[np.uint64]


def xxh3_64(data: bytes) -> int:
    """The hash of `data`, as a signed number, the way Java and the log hold it.

    >>> xxh3_64(b"")
    3244421341483603138
    """
    hashed = _hash(data)
    return hashed - (1 << 64) if hashed >> 63 else hashed


def _hash(data: bytes) -> int:
    length = len(data)
    if length <= 16:
        return _hash_short(data)
    if length <= _MIDDLE_BYTES_MAX:
        return _hash_middle(data)
    return _hash_long(data)


def _hash_short(data: bytes) -> int:
    length = len(data)
    if length == 0:
        return _avalanche64(_word(_SECRET, 56) ^ _word(_SECRET, 64))
    if length <= 3:
        combined = (data[0] << 16) | (data[length >> 1] << 24) | data[-1] | (length << 8)
        return _avalanche64(combined ^ _half(_SECRET, 0) ^ _half(_SECRET, 4))
    if length <= 8:
        mixed = _half(data, length - 4) + (_half(data, 0) << 32)
        mixed ^= _word(_SECRET, 8) ^ _word(_SECRET, 16)
        mixed ^= _rotated(mixed, 49) ^ _rotated(mixed, 24)
        mixed = mixed * _PRIME_MX2 & _MASK
        mixed ^= (mixed >> 35) + length
        mixed = mixed * _PRIME_MX2 & _MASK
        return mixed ^ (mixed >> 28)
    low = _word(data, 0) ^ _word(_SECRET, 24) ^ _word(_SECRET, 32)
    high = _word(data, length - 8) ^ _word(_SECRET, 40) ^ _word(_SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche((length + swapped + high + _folded(low, high)) & _MASK)


def _hash_middle(data: bytes) -> int:
    length = len(data)
    total = length * _PRIME64_1
    if length <= 128:
        for step in range((length - 1) // 32 + 1):
            total += _mixed(data, 16 * step, 32 * step)
            total += _mixed(data, length - 16 * (step + 1), 32 * step + 16)
        return _avalanche(total & _MASK)
    for step in range(8):
        total += _mixed(data, 16 * step, 16 * step)
    total = _avalanche(total & _MASK)
    for step in range(8, length // 16):
        total += _mixed(data, 16 * step, 16 * (step - 8) + 3)
    total += _mixed(data, length - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _hash_long(data: bytes) -> int:
    length = len(data)
    sums = np.array(
        [_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1],
        dtype=np.uint64,
    )
    block_count = (length - 1) // _BLOCK_BYTES
    stripe_count = (length - 1 - block_count * _BLOCK_BYTES) // _STRIPE_BYTES
    whole_bytes = block_count * _BLOCK_BYTES
    blocks = np.frombuffer(data, "<u8", whole_bytes // 8).reshape(block_count, 16, 8)
    scramble_key = np.frombuffer(_SECRET, "<u8", 8, 192 - 64)
    for added in _added(blocks, _stripe_keys(16)):
        sums += added
        sums ^= sums >> np.uint64(47)
        sums ^= scramble_key
        sums *= np.uint64(_PRIME32_1)
    rest = np.frombuffer(data, "<u8", stripe_count * 8, whole_bytes).reshape(1, stripe_count, 8)
    sums += _added(rest, _stripe_keys(stripe_count))[0]
    last = np.frombuffer(data, "<u8", 8, length - _STRIPE_BYTES).reshape(1, 1, 8)
    sums += _added(last, np.frombuffer(_SECRET, "<u8", 8, 192 - 64 - 7).reshape(1, 8))[0]
    words = [int(word) for word in sums]
    total = length * _PRIME64_1
    for pair in range(4):
        first = words[2 * pair] ^ _word(_SECRET, 11 + 16 * pair)
        second = words[2 * pair + 1] ^ _word(_SECRET, 19 + 16 * pair)
        total += _folded(first, second)
    return _avalanche(total & _MASK)


def _stripe_keys(count: int) -> Words:
    keys = [np.frombuffer(_SECRET, "<u8", 8, 8 * stripe) for stripe in range(count)]
    return np.stack(keys) if keys else np.empty((0, 8), dtype=np.uint64)


def _added(blocks: Words, keys: Words) -> Words:
    """What the stripes of each block add to the eight sums: a product to their own, the data to the next."""
    keyed = blocks ^ keys
    products = (keyed & np.uint64(0xFFFF_FFFF)) * (keyed >> np.uint64(32))
    swapped = blocks[:, :, [1, 0, 3, 2, 5, 4, 7, 6]]
    added: Words = (products + swapped).sum(axis=1, dtype=np.uint64)
    return added


def _mixed(data: bytes, at: int, secret_at: int) -> int:
    return _folded(
        _word(data, at) ^ _word(_SECRET, secret_at), _word(data, at + 8) ^ _word(_SECRET, secret_at + 8)
    )


def _folded(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ (value >> 32)


def _avalanche64(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME64_2 & _MASK
    value ^= value >> 29
    value = value * _PRIME64_3 & _MASK
    return value ^ (value >> 32)


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _half(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")
