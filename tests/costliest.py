"""The requests of a size that cost most to decode, for every array that a request has: as many items as fit,
each as small as it can be, in an array that stands alone or in many that have one item each.

They are written from the layout alone, and need no message: most say nothing that makes sense, unless they
are given `Words`.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from quorate.protocol.frame import request_header_version
from quorate.protocol.layout import ArrayOf, FieldLayout, Kind, Layout, StructOf, layout
from quorate.protocol.message import Request
from quorate.protocol.types import STRING, Primitive
from quorate.protocol.varint import uvarint

Path = tuple[str, ...]


class Words:
    """What is said, by the names of fields: nothing that makes sense."""

    are_distinct = False
    """Whether the items of the array that has many are to differ: by `number`, which counts them."""
    number = 0

    def text(self, _name: str) -> bytes | None:
        """Of two letters: shorter ones are no objects of their own. None is said where it may be."""
        return b"ab"

    def fixed(self, _name: str, code: str) -> bytes:
        return _FIXED.get(code) or b"\x7f" * struct.calcsize(">" + code)


NONSENSE = Words()


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


def costliest(cls: type[Request], version: int, way: Way, size_bytes: int, words: Words = NONSENSE) -> bytes:
    """A frame without its size."""
    whole = layout(cls, version)
    counts = {way.array[:at]: 1 for at in range(1, len(way.array) + 1)}
    words.number = _OFTEN
    empty, one = (len(_struct(whole, (), counts | {way.many: count}, words)) for count in (0, 1))
    count = max(1, (size_bytes - empty) // (one - empty))
    return header(cls, version) + _struct(whole, (), counts | {way.many: count}, words)


def header(cls: type[Request], version: int) -> bytes:
    """The smallest header of a request."""
    head = struct.pack(">hhi", cls.__key__, version, 1)
    return head + {0: b"", 1: b"\xff\xff", 2: b"\xff\xff\x00"}[request_header_version(cls.__key__, version)]


def with_tags(cls: type[Request], version: int, count: int) -> bytes:
    """A request with so many tags that nobody knows."""
    tags = b"".join(uvarint(1000 + number) + b"\0" for number in range(count))
    return header(cls, version) + _struct(layout(cls, version), (), {}, NONSENSE)[:-1] + uvarint(count) + tags


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


def _struct(part: Layout, path: Path, counts: Mapping[Path, int], words: Words) -> bytes:
    out = b"".join(_value(each.kind, each, (*path, each.name), counts, words) for each in part.fields)
    if not part.flexible:
        return out
    wanted = [one for one in part.tagged if any(at[: len(path) + 1] == (*path, one.name) for at in counts)]
    out += uvarint(len(wanted))
    for each in wanted:
        value = _value(each.kind, each, (*path, each.name), counts, words)
        if isinstance(each.kind, StructOf) and each.nullable:
            value = b"\x01" + value[1:]
        out += uvarint(each.tag or 0) + uvarint(len(value)) + value
    return out


def _value(kind: Kind, each: FieldLayout, path: Path, counts: Mapping[Path, int], words: Words) -> bytes:
    if isinstance(kind, StructOf):
        is_there = any(at[: len(path)] == path for at in counts)
        if each.nullable and not is_there:
            return b"\xff"
        return (b"\x01" if each.nullable else b"") + _struct(kind.layout, path, counts, words)
    if isinstance(kind, ArrayOf):
        if each.nullable and path not in counts:
            return _length(kind, each, -1)
        count = counts.get(path, 0)
        return _length(kind, each, count) + _items(kind.item, each, path, counts, words)
    if kind.is_fixed:
        return words.fixed(path[-1], kind.code)
    text = words.text(path[-1]) if kind is STRING else b""
    if text is None:
        return _length(kind, each, -1 if each.nullable else 0)
    return _length(kind, each, len(text)) + text


def _items(
    kind: Primitive | StructOf, each: FieldLayout, path: Path, counts: Mapping[Path, int], words: Words
) -> bytes:
    item, count = FieldLayout("", kind, False, each.compact, None), counts.get(path, 0)
    if count <= 1 or not words.are_distinct:
        return _value(kind, item, path, counts, words) * count if count else b""
    out = bytearray()
    for number in range(count):
        words.number = number
        out += _value(kind, item, path, counts, words)
    return bytes(out)


_FIXED = {"?": b"\x01", "d": struct.pack(">d", 0.5)}
_OFTEN = 0xFFFF  # an ordinary number of an item


def _length(kind: Kind, each: FieldLayout, length: int) -> bytes:
    if each.compact:
        return uvarint(length + 1)
    return struct.pack(">h" if kind is STRING else ">i", length)
