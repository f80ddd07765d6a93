"""The requests of a size that cost most to decode, for every array that a request has: as many items as fit,
each as small as it can be, in an array that stands alone or in many that have one item each.

They are written from the layout alone, and need no message: most say nothing that makes sense.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from quorate.protocol.frame import request_header_version
from quorate.protocol.layout import ArrayOf, FieldLayout, Kind, Layout, StructOf, layout
from quorate.protocol.message import Request
from quorate.protocol.types import STRING, UUID, Primitive
from quorate.protocol.varint import uvarint

Path = tuple[str, ...]


class Way(NamedTuple):
    """One way to be costly: an array, and which of it and those around it has many items."""

    array: Path
    many: Path

    def __str__(self) -> str:
        return f"{'.'.join(self.array)}, many {self.many[-1]}"


def ways(cls: type[Request], version: int) -> list[Way]:
    arrays = list(_arrays(layout(cls, version)))
    return [
        Way(path, many)
        for path in arrays
        for many in dict.fromkeys((path, next(one for one in arrays if path[: len(one)] == one)))
    ]


def costliest(cls: type[Request], version: int, way: Way, size_bytes: int) -> bytes:
    """A frame without its size."""
    whole = layout(cls, version)
    counts = {way.array[:at]: 1 for at in range(1, len(way.array) + 1)}
    empty, one = (len(_struct(whole, (), counts | {way.many: count})) for count in (0, 1))
    count = max(1, (size_bytes - empty) // (one - empty))
    return header(cls, version) + _struct(whole, (), counts | {way.many: count})


def header(cls: type[Request], version: int) -> bytes:
    """The smallest header of a request."""
    head = struct.pack(">hhi", cls.__key__, version, 1)
    return head + {0: b"", 1: b"\xff\xff", 2: b"\xff\xff\x00"}[request_header_version(cls.__key__, version)]


def with_tags(cls: type[Request], version: int, count: int) -> bytes:
    """A request with so many tags that nobody knows."""
    tags = b"".join(uvarint(1000 + number) + b"\0" for number in range(count))
    return header(cls, version) + _struct(layout(cls, version), (), {})[:-1] + uvarint(count) + tags


def _arrays(part: Layout, above: Path = ()) -> Iterator[Path]:
    for each in (*part.fields, *part.tagged):
        yield from _arrays_of(each.kind, (*above, each.name))


def _arrays_of(kind: Kind, path: Path) -> Iterator[Path]:
    if isinstance(kind, ArrayOf):
        yield path
        if isinstance(kind.item, StructOf):
            yield from _arrays(kind.item.layout, path)
    elif isinstance(kind, StructOf):
        yield from _arrays(kind.layout, path)


def _struct(part: Layout, path: Path, counts: Mapping[Path, int]) -> bytes:
    out = b"".join(_value(each.kind, each, (*path, each.name), counts) for each in part.fields)
    if not part.flexible:
        return out
    wanted = [one for one in part.tagged if any(at[: len(path) + 1] == (*path, one.name) for at in counts)]
    out += uvarint(len(wanted))
    for each in wanted:
        value = _value(each.kind, each, (*path, each.name), counts)
        if isinstance(each.kind, StructOf) and each.nullable:
            value = b"\x01" + value[1:]
        out += uvarint(each.tag or 0) + uvarint(len(value)) + value
    return out


def _value(kind: Kind, each: FieldLayout, path: Path, counts: Mapping[Path, int]) -> bytes:
    if isinstance(kind, StructOf):
        is_there = any(at[: len(path)] == path for at in counts)
        if each.nullable and not is_there:
            return b"\xff"
        return (b"\x01" if each.nullable else b"") + _struct(kind.layout, path, counts)
    if isinstance(kind, ArrayOf):
        count = counts.get(path, 0)
        item = _value(kind.item, FieldLayout("", kind.item, False, each.compact, None), path, counts)
        return (uvarint(count + 1) if each.compact else struct.pack(">i", count)) + item * count
    if kind is UUID:
        return b"\x7f" * 16
    if kind.is_fixed:
        return _FIXED.get(kind.code) or b"\x7f" * struct.calcsize(">" + kind.code)
    return _text(kind, each)


_FIXED = {"?": b"\x01", "d": struct.pack(">d", 0.5)}


def _text(kind: Primitive, each: FieldLayout) -> bytes:
    """Of two letters: shorter ones are no objects of their own."""
    text = b"ab" if kind is STRING else b""
    if each.compact:
        return uvarint(len(text) + 1) + text
    return struct.pack(">h" if kind is STRING else ">i", len(text)) + text
