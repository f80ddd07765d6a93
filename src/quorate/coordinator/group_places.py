"""Which partition of `__consumer_offsets` a group's state is in: whoever leads that coordinates the group."""

from __future__ import annotations

from typing import Final

import numpy as np

__all__ = ["java_hash", "place_hash"]

_PIECE: Final = 256
"""Units that are hashed at once, of texts that have more: a text is as long as whoever sends it likes."""
_POWERS: Final = np.array([pow(31, _PIECE - 1 - place, 1 << 32) for place in range(_PIECE)], np.uint32)
_NEXT_PIECE: Final = pow(31, _PIECE, 1 << 32)


def java_hash(text: str) -> int:
    """What Java makes of a string: 31 times what came before, plus the next UTF-16 code unit, in 32 bits.

    >>> java_hash("test"), java_hash("polygenelubricants")
    (3556498, -2147483648)
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = _of_few(units) if len(units) <= 2 * _PIECE else _of_many(units)
    return value - (1 << 32) if value >> 31 else value


def _of_few(units: bytes) -> int:
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value


def _of_many(units: bytes) -> int:
    """The same in a fraction of the time. Zeros before the first unit change nothing."""
    missing = -len(units) % (2 * _PIECE)
    pieces = np.frombuffer(bytes(missing) + units, ">u2").astype(np.uint32).reshape(-1, _PIECE)
    value = 0
    for piece in (pieces * _POWERS).sum(axis=1, dtype=np.uint32).tolist():
        value = (_NEXT_PIECE * value + piece) & 0xFFFF_FFFF
    return value


def place_hash(group_id: str) -> int:
    """The number of which a group's partition is what is left when it is divided by how many there are.

    >>> place_hash("billing") % 50, place_hash("polygenelubricants")
    (9, 0)
    """
    hashed = java_hash(group_id)
    return 0 if hashed == -1 << 31 else abs(hashed)  # that one has no positive in Java
