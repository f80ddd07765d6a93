"""How much a request may make of its bytes: how many items and tags, and how much memory.

A decoder of requests adds up what the items of each array will take, as their declaration tells, before it
makes the first of them. Up to `FREE_BYTES` nobody is asked. Beyond that it asks whoever called it, who may
refuse, or charge somebody for it. More than `allowed_bytes` is never granted: an empty string is one byte on
the wire and an object in memory, so a request of a few megabytes could otherwise take hundreds.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import calcsize
from typing import Final

from quorate.protocol.layout import ArrayOf, FieldLayout, Kind, Layout, StructOf
from quorate.protocol.types import BYTES, RECORDS, STRING, UUID, Primitive
from quorate.protocol.varint import MalformedError

__all__ = [
    "ANYWAY_BYTES",
    "FREE_BYTES",
    "ITEMS_MAX",
    "TAGS_MAX",
    "TIMES",
    "TIMES_OF_NODES",
    "Claim",
    "allow",
    "allowed_bytes",
    "item_bytes",
    "smallest_bytes",
    "value_bytes",
]

# As Apache Kafka 4.4: of one array, and of one struct.
ITEMS_MAX: Final = 1_000_000
TAGS_MAX: Final = 10_000

FREE_BYTES: Final = 64 * 1024
# What a request may take of memory: so many times its own bytes, and this much. What nodes say to each other
# is about many partitions at once, whose objects are small ones.
ANYWAY_BYTES: Final = 16 << 20
TIMES: Final = 8
TIMES_OF_NODES: Final = 32

# Of CPython, on 64 bits: a list without its items, the place of one item in it, and what garbage collection
# keeps of a struct beside its slots.
_LIST_BYTES: Final = 72
_PLACE_BYTES: Final = 8
_COLLECTED_BYTES: Final = 16
_OF_PRIMITIVES: Final = {STRING: 56, BYTES: 184, RECORDS: 184, UUID: 72}
_NUMBER_BYTES: Final = 32
_SMALL_NUMBERS: Final = "?b"  # which are there already, but for negative ones

# Asked for so many bytes in all, and told how many are allowed, it returns how many are granted, at least as
# many as were asked for; or it raises.
Claim = Callable[[int, int], int]


def allowed_bytes(size_bytes: int, times: int) -> int:
    """What a request of so many bytes may take."""
    return times * size_bytes + ANYWAY_BYTES


def allow(asked_bytes: int, allowed: int) -> int:
    """The claim of whoever has no memory to look after: all that is allowed."""
    if asked_bytes > allowed:
        raise MalformedError
    return allowed


def item_bytes(item: Primitive | StructOf) -> int:
    """What an item of an array takes, without what is in its strings and arrays."""
    is_number = isinstance(item, Primitive) and item.is_fixed and item is not UUID
    places = 2 if is_number else 1  # numbers are read into a tuple first
    return places * _PLACE_BYTES + value_bytes(item)


def value_bytes(kind: Kind) -> int:
    """What a value takes, without what is in its strings and arrays."""
    if isinstance(kind, ArrayOf):
        return _LIST_BYTES
    if isinstance(kind, StructOf):
        return _struct_bytes(kind.layout)
    if kind in _OF_PRIMITIVES:
        return _OF_PRIMITIVES[kind]
    return 0 if kind.code in _SMALL_NUMBERS else _NUMBER_BYTES


def _struct_bytes(part: Layout) -> int:
    """Of fields that this version does not carry, and of tagged ones, those count that are made anyway."""
    carried = sum(value_bytes(each.kind) for each in part.fields)
    defaults = [each.default for each in part.tagged] + [default for _, default, _ in part.absent]
    made = sum(_LIST_BYTES for default in defaults if default == () or isinstance(default, type))
    return part.struct.__basicsize__ + _COLLECTED_BYTES + carried + made


def smallest_bytes(each: FieldLayout) -> int:
    """The least that a value takes on the wire: its length alone, where it has one.

    >>> from quorate.protocol.types import STRING
    >>> smallest_bytes(FieldLayout("name", STRING, False, True, "")), STRING.is_fixed
    (1, False)
    """
    kind = each.kind
    if isinstance(kind, StructOf):
        fields = kind.layout.fields
        return 1 if each.nullable else sum(map(smallest_bytes, fields)) + kind.layout.flexible
    if isinstance(kind, Primitive) and kind.is_fixed:
        return calcsize(">" + kind.code)
    if each.compact:
        return 1
    return 2 if kind is STRING else 4
