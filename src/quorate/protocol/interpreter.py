"""Reads and writes layouts field by field, slowly, and knows at every moment where it is.

The compiled codecs only know that something went wrong. This plain reader and writer then does the same
work again and says what: the path to the field, the position, the reason. It is written from the layout
alone, with nothing generated, so it also serves the tests as a second opinion on the compiled codecs.
"""

from __future__ import annotations

import struct
from typing import Any, NoReturn

from quorate.protocol.bounds import (
    ITEMS_MAX,
    TAGS_MAX,
    allowed_bytes,
    item_bytes,
    smallest_bytes,
    value_bytes,
)
from quorate.protocol.encoder import PreEncoded
from quorate.protocol.errors import ProtocolError
from quorate.protocol.layout import ArrayOf, FieldLayout, Kind, Layout, StructOf
from quorate.protocol.message import Struct
from quorate.protocol.types import BYTES, RECORDS, STRING, UUID, Buffer, Primitive, Uuid
from quorate.protocol.varint import STRING_BYTES_MAX, MalformedError, read_uvarint, uvarint

__all__ = ["Reader", "Writer"]

# Of a request, which somebody may have made large and wrong at its very end.
_VALUES_READ_MAX = 20_000


class Reader:
    """Reads messages from `buffer[position:end]`. `times` makes it bounded, as the compiled decoders of
    requests are: their objects may take so many times the bytes."""

    def __init__(self, buffer: Buffer, position: int, end: int, *, times: int = 0) -> None:
        self.view = memoryview(buffer)[:end]
        self.position = position
        self.end = end
        self._is_bounded = times > 0
        self._allowed_bytes = allowed_bytes(end - position, times)
        self._taken_bytes = 0
        self._values_read = 0
        self.path: list[str] = []
        self.message = ""
        self.version = -1

    def read(self, part: Layout) -> Struct:
        self.message, self.version = part.struct.__name__, part.version
        return self._struct(part)

    def finish(self) -> None:
        if self.position != self.end:
            self._fail(f"{self.end - self.position} bytes left over after the message")

    def _fail(self, reason: str) -> NoReturn:
        path = "".join(self.path).lstrip(".")
        raise ProtocolError(self.message, self.version, path, self.position, reason)

    def _take(self, size: int) -> memoryview:
        if size > self.end - self.position:
            self._fail(f"needs {size} bytes, but only {max(0, self.end - self.position)} are left")
        taken = self.view[self.position : self.position + size]
        self.position += size
        return taken

    def _uvarint(self) -> int:
        try:
            value, self.position = read_uvarint(self.view, self.position)
        except IndexError:
            self._fail("ends inside a varint")
        except MalformedError as error:
            self._fail(str(error))
        return value

    def _fixed(self, code: str) -> object:
        return struct.unpack(">" + code, self._take(struct.calcsize(">" + code)))[0]

    def _struct(self, part: Layout) -> Struct:
        values: dict[str, object] = {name: _new(default) for name, default, _ in part.absent}
        for each in part.fields:
            self.path.append("." + each.name)
            values[each.name] = self._value(each.kind, each)
            self.path.pop()
        unknown: dict[int, bytes] = {}
        if part.flexible:
            values.update({each.name: _new(each.default) for each in part.tagged})
            self._tagged(part, values, unknown)
        result = part.struct(**values)
        result.__unknown_tags__ = unknown or None
        return result

    def _tagged(self, part: Layout, values: dict[str, object], unknown: dict[int, bytes]) -> None:
        known = {each.tag: each for each in part.tagged}
        last = -1
        self.path.append(".(tagged fields)")
        count = self._uvarint()
        if self._is_bounded and count > TAGS_MAX:
            self._fail(f"{count} tagged fields; at most {TAGS_MAX} are allowed")
        for _ in range(count):
            tag = self._uvarint()
            if tag <= last:
                self._fail(f"tag {tag} after tag {last}: tags must ascend")
            if tag in part.foreign_tags:
                self._fail(f"tag {tag} belongs to another version of this message")
            last = tag
            size = self._uvarint()
            if size > self.end - self.position:
                self._fail(f"tag {tag} has {size} bytes, but only {self.end - self.position} are left")
            field_end = self.position + size
            each = known.get(tag)
            if each is None:
                taken = self._take(size)
                if not self._is_bounded:
                    unknown[tag] = bytes(taken)
                continue
            self.path.append("." + each.name)
            self._claim(value_bytes(each.kind))
            values[each.name] = self._tagged_value(each)
            if self.position != field_end:
                self._fail(f"tag {tag} was said to end at {field_end}")
            self.path.pop()
        self.path.pop()

    def _tagged_value(self, each: FieldLayout) -> object:
        if isinstance(each.kind, StructOf):
            if each.nullable and self._uvarint() == 0:
                return None
            return self._struct(each.kind.layout)
        return self._value(each.kind, each)

    def _value(self, kind: Kind, each: FieldLayout) -> object:
        self._values_read += 1
        if self._is_bounded and self._values_read > _VALUES_READ_MAX:
            self._fail(f"is malformed, somewhere behind its first {_VALUES_READ_MAX} values")
        if isinstance(kind, StructOf):
            if each.nullable and self._take(1)[0] > 127:
                return None
            return self._struct(kind.layout)
        if kind is UUID:
            return Uuid(self._take(16))
        if isinstance(kind, Primitive) and kind.is_fixed:
            return self._fixed(kind.code)
        length = self._length(kind, each)
        if length is None:
            return None
        if isinstance(kind, ArrayOf):
            return self._items(kind.item, each, length)
        if kind is STRING:
            raw = self._take(length)
            try:
                return str(raw, "utf-8")
            except UnicodeDecodeError as error:
                self.position += error.start - length
                self._fail(f"not UTF-8: {error.reason}")
        return self._take(length)

    def _length(self, kind: Kind, each: FieldLayout) -> int | None:
        length: Any = self._uvarint() - 1 if each.compact else self._fixed("h" if kind is STRING else "i")
        if length < -1:
            self._fail(f"length {length} is negative")
        if length == -1:
            if not each.nullable:
                self._fail("is null, but this version does not allow null")
            return None
        if kind is STRING and length > STRING_BYTES_MAX:
            self._fail(f"string of {length} bytes; at most {STRING_BYTES_MAX} are allowed")
        return int(length)

    def _items(self, item: Primitive | StructOf, each: FieldLayout, count: int) -> list[object]:
        element = FieldLayout("", item, False, each.compact, None)
        left = max(0, self.end - self.position)
        if count * max(1, smallest_bytes(element)) > left:
            self._fail(f"there are only {left} bytes left for {count} items")
        if self._is_bounded and count > ITEMS_MAX:
            self._fail(f"{count} items; at most {ITEMS_MAX} are allowed")
        self._claim(count * item_bytes(item))
        items = []
        for index in range(count):
            self.path.append(f"[{index}]")
            items.append(self._value(item, element))
            self.path.pop()
        return items

    def _claim(self, size: int) -> None:
        self._taken_bytes += size
        if self._is_bounded and self._taken_bytes > self._allowed_bytes:
            self._fail(
                f"what is in it would take {self._taken_bytes} bytes of memory or more;"
                f" {self._allowed_bytes} are allowed"
            )


class Writer:
    """Writes messages to a new bytearray."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.path: list[str] = []
        self.message = ""
        self.version = -1

    def write(self, part: Layout, value: object) -> None:
        self.message, self.version = part.struct.__name__, part.version
        self._struct(part, value)

    def _fail(self, reason: str) -> NoReturn:
        raise ProtocolError(self.message, self.version, "".join(self.path).lstrip("."), None, reason)

    def _struct(self, part: Layout, value: object) -> None:
        if not isinstance(value, part.struct):
            self._fail(f"is {_shown(value)}, not a {part.struct.__qualname__}")
        for name, default, ignorable in part.absent:
            if not ignorable and not _is_default(getattr(value, name), default):
                self.path.append("." + name)
                self._fail(f"is {_shown(getattr(value, name))}, but this version does not carry it")
        for each in part.fields:
            self.path.append("." + each.name)
            self._value(each.kind, each, getattr(value, each.name))
            self.path.pop()
        if part.flexible:
            self._tagged(part, value)
        elif value.__unknown_tags__:
            self._fail("has unknown tagged fields, but this version does not carry any")

    def _tagged(self, part: Layout, value: Struct) -> None:
        tags: dict[int, Buffer] = {}
        whole = self.out
        for each in part.tagged:
            given = getattr(value, each.name)
            if _is_default(given, each.default) or _is_default_struct(given, each.kind):
                continue
            assert each.tag is not None
            self.out = bytearray()
            self.path.append("." + each.name)
            if isinstance(each.kind, StructOf):
                if each.nullable:
                    self.out += b"\0" if given is None else b"\1"
                if given is not None or not each.nullable:
                    self._struct(each.kind.layout, given)
            else:
                self._value(each.kind, each, given)
            self.path.pop()
            tags[each.tag] = self.out
        self.out = whole
        reserved = part.foreign_tags.union(each.tag for each in part.tagged if each.tag is not None)
        for tag, raw in (value.__unknown_tags__ or {}).items():
            if tag in reserved or tag < 0:
                self._fail(f"tag {tag} is not an unknown one")
            tags[tag] = raw
        self.out += uvarint(len(tags))
        for tag in sorted(tags):
            self.out += uvarint(tag) + uvarint(len(tags[tag])) + tags[tag]

    def _value(self, kind: Kind, each: FieldLayout, value: object) -> None:
        if isinstance(kind, StructOf):
            if each.nullable:
                self.out += b"\xff" if value is None else b"\1"
            if value is not None or not each.nullable:
                self._struct(kind.layout, value)
        elif isinstance(kind, Primitive) and kind.is_fixed:
            self._fixed(kind, value)
        elif value is None:
            if not each.nullable:
                self._fail("is None, but this version does not allow null")
            self.out += b"\0" if each.compact else b"\xff\xff" if kind is STRING else b"\xff\xff\xff\xff"
        elif isinstance(kind, ArrayOf):
            self._items(kind.item, each, value)
        else:
            self._sized(kind, each, value)

    def _fixed(self, kind: Primitive, value: object) -> None:
        if kind is UUID and (not isinstance(value, bytes) or len(value) != 16):
            self._fail(f"is {_shown(value)}, not a uuid of 16 bytes")
        try:
            self.out += struct.pack(">" + kind.code, value)
        except struct.error as error:
            self._fail(f"is {_shown(value)}, which is no {kind.name}: {error}")

    def _sized(self, kind: Primitive, each: FieldLayout, value: object) -> None:
        if kind is STRING:
            if not isinstance(value, str):
                self._fail(f"is {_shown(value)}, not a string")
            try:
                raw: Buffer = value.encode()
            except UnicodeEncodeError as error:
                self._fail(f"cannot be written as UTF-8: {error.reason}")
            if len(raw) > STRING_BYTES_MAX:
                self._fail(f"string of {len(raw)} bytes; at most {STRING_BYTES_MAX} are allowed")
        else:
            assert kind in (BYTES, RECORDS)
            try:
                raw = memoryview(value).cast("B")  # type: ignore[arg-type]
            except TypeError:
                self._fail(f"is {_shown(value)}, not bytes")
        self._length(kind, each, len(raw))
        self.out += raw

    def _length(self, kind: Kind, each: FieldLayout, length: int) -> None:
        if each.compact:
            self.out += uvarint(length + 1)
        else:
            self.out += struct.pack(">h" if kind is STRING else ">i", length)

    def _items(self, item: Primitive | StructOf, each: FieldLayout, value: object) -> None:
        if isinstance(value, PreEncoded) and isinstance(item, StructOf):
            self._length(each.kind, each, value.count)
            self.out += value.data
            return
        try:
            items = list(value)  # type: ignore[call-overload]
        except TypeError:
            self._fail(f"is {_shown(value)}, not an array")
        self._length(each.kind, each, len(items))
        element = FieldLayout("", item, False, each.compact, None)
        for index, one in enumerate(items):
            self.path.append(f"[{index}]")
            self._value(item, element, one)
            self.path.pop()


def _new(default: object) -> object:
    if isinstance(default, type):
        return default()
    return [] if default == () else default


def _is_default(value: object, default: object) -> bool:
    if default == ():
        return value is not None and hasattr(value, "__len__") and len(value) == 0
    if isinstance(default, type):
        return bool(value == default())
    return value is None if default is None else bool(value == default)


def _is_default_struct(value: object, kind: Kind) -> bool:
    if not isinstance(kind, StructOf) or not isinstance(value, Struct):
        return False
    part = kind.layout
    known = [(one.name, one.default) for one in part.fields + part.tagged]
    known += [(name, default) for name, default, _ in part.absent]
    return not value.__unknown_tags__ and all(_is_default(getattr(value, n), d) for n, d in known)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
