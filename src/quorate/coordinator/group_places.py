"""Which partition of `__consumer_offsets` a group's state is in: whoever leads that coordinates the group."""

from __future__ import annotations

__all__ = ["java_hash", "place_hash"]


def java_hash(text: str) -> int:
    """What Java makes of a string: 31 times what came before, plus the next UTF-16 code unit, in 32 bits.

    >>> java_hash("test"), java_hash("polygenelubricants")
    (3556498, -2147483648)
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def place_hash(group_id: str) -> int:
    """The number of which a group's partition is what is left when it is divided by how many there are.

    >>> place_hash("billing") % 50, place_hash("polygenelubricants")
    (9, 0)
    """
    hashed = java_hash(group_id)
    return 0 if hashed == -1 << 31 else abs(hashed)  # that one has no positive in Java
