"""Compiles layouts into one straight function that encodes them.

The mirror image of `decoder`: structs are inlined, a run of fixed-size fields together with the old-style
length prefix after it is one `struct` call. The function appends to a bytearray. Given a list of parts as
well, it hands large record sets over as parts of their own, so that they are never copied.

It does not check what `struct` and `str.encode` check anyway. Whoever calls it turns the exceptions in
`FAILURES` into a `ProtocolError` that names the field (see `interpreter`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from quorate.protocol.layout import ArrayOf, FieldLayout, Kind, Layout, StructOf
from quorate.protocol.message import Struct
from quorate.protocol.source import SourceText
from quorate.protocol.types import RECORDS, STRING, UUID, Buffer, Primitive
from quorate.protocol.varint import STRING_BYTES_MAX, MalformedError, uvarint

__all__ = ["FAILURES", "Encoder", "PreEncoded", "compile_encoder"]

# Takes the messages and the bytearray; with parts, the list as well, and returns the last bytearray.
Encoder = Callable[..., Any]

FAILURES: Final = (MalformedError, struct.error, UnicodeEncodeError, TypeError, AttributeError)

# A record set smaller than this is copied: a part of its own would cost more.
PART_BYTES_MIN: Final = 4096


class PreEncoded:
    """The items of an array of structs, already encoded for the version at hand: see `rows.encode_rows`."""

    __slots__ = ("count", "data")

    def __init__(self, count: int, data: Buffer) -> None:
        self.count = count
        self.data = data

    def __len__(self) -> int:
        return self.count


def compile_encoder(layouts: list[Layout], *, parts: bool) -> Encoder:
    """A function of the messages and a bytearray (and a list of parts, if `parts`)."""
    return _Source(parts=parts).function(layouts)


class _Source:
    """The source text of one encoder, written line by line."""

    def __init__(self, *, parts: bool) -> None:
        self.out = SourceText(
            {
                "MalformedError": MalformedError,
                "PreEncoded": PreEncoded,
                "flat": _flat,
                "is_buffer": _is_buffer,
                "pack": struct.pack,
                "put_tags": _put_tags,
                "string_length": _string_length,
                "uvarint": uvarint,
            }
        )
        self.line, self.fresh, self.constant = self.out.line, self.out.fresh, self.out.constant
        self.parts = parts
        self.run: list[tuple[str, str]] = []  # fixed-size values not written yet: expression, format

    def function(self, layouts: list[Layout]) -> Encoder:
        arguments = []
        for part in layouts:
            variable = self.fresh("m")
            arguments.append(variable)
            self.struct(part, variable)
        self.flush()
        arguments.append("out")
        if self.parts:
            arguments.append("parts")
            self.line("return out")
        header = [f"def encode({', '.join(arguments)}):"]
        if any("add(" in line for line in self.out.lines):
            header.append("    add = out.append")
        name = "+".join(f"{part.struct.__name__} v{part.version}" for part in layouts)
        encoder: Encoder = self.out.compile("encode", header, f"encoder of {name}")
        return encoder

    def literal(self, value: object) -> str:
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        return self.constant("D", value, (type(value), repr(value)))

    def flush(self) -> None:
        """Writes the fixed-size values that have gathered, in one call."""
        if self.run == [("0", "B")]:
            self.line("add(0)")
        elif self.run:
            code = ">" + "".join(code for _, code in self.run)
            writer = self.constant("pack", struct.Struct(code).pack, ("pack", code))
            self.line(f"out += {writer}({', '.join(expression for expression, _ in self.run)})")
        self.run = []

    # Structs

    def struct(self, part: Layout, variable: str) -> None:
        # An assertion of the type: a dict or a wrong struct must not be encoded by accident.
        cls = self.constant("C", part.struct, part.struct)
        self.line(f"if {variable}.__class__ is not {cls}: raise MalformedError")
        for name, default, ignorable in part.absent:
            if not ignorable:
                different = self.differs(f"{variable}.{name}", default)
                self.line(f"if {different}: raise MalformedError")
        for each in part.fields:
            self.value(each.kind, each, f"{variable}.{each.name}")
        if part.flexible:
            self.tagged(part, variable)
        else:
            self.line(f"if {variable}.__unknown_tags__: raise MalformedError")

    def differs(self, expression: str, default: object) -> str:
        if default is None:
            return f"{expression} is not None"
        if default == ():
            return f"{expression} is None or len({expression})"
        return f"{expression} != {self.literal(default)}"

    def tagged(self, part: Layout, variable: str) -> None:
        run, self.run = self.run, []
        reserved = part.foreign_tags.union(each.tag or 0 for each in part.tagged)
        reserved_name = self.constant("R", reserved, ("reserved", reserved))
        unknown, tags, whole = f"{variable}.__unknown_tags__", self.fresh("t"), self.fresh("o")
        conditions = {each.name: self.tag_is_set(each, f"{variable}.{each.name}") for each in part.tagged}
        self.line(f"if {' or '.join([unknown, *(f'({one})' for one in conditions.values())])}:")
        self.out.indent += 1
        self.run = list(run)
        self.flush()
        self.line(f"{tags} = {{}}; {whole} = out")
        for each in part.tagged:
            self.line(f"if {conditions[each.name]}:")
            self.out.indent += 1
            self.line("out = bytearray(); add = out.append")
            self.tagged_value(each, f"{variable}.{each.name}")
            self.flush()
            self.line(f"{tags}[{each.tag}] = out")
            self.out.indent -= 1
        self.line(f"out = {whole}; add = out.append")
        self.line(f"put_tags(out, {tags}, {unknown}, {reserved_name})")
        self.out.indent -= 1
        self.line("else:")
        self.out.indent += 1
        self.run = [*run, ("0", "B")]  # no tags, which is nearly always so: one more byte of the run
        self.flush()
        self.out.indent -= 1

    def tag_is_set(self, each: FieldLayout, expression: str) -> str:
        """A tagged field travels only when it differs from its default."""
        if isinstance(each.kind, StructOf):
            default = self.constant("D", _all_defaults(each.kind.layout), ("struct", each.kind.layout.struct))
            if each.default is None:
                return f"{expression} is not None and {expression} != {default}"
            return f"{expression} != {default}"
        return self.differs(expression, each.default)

    def tagged_value(self, each: FieldLayout, expression: str) -> None:
        if isinstance(each.kind, StructOf):
            if each.nullable:
                self.line(f"if {expression} is None: add(0)")
                self.line("else:")
                self.out.indent += 1
                self.line("add(1)")
            self.struct_value(each.kind, expression)
            self.flush()
            self.out.indent -= each.nullable
        else:
            self.value(each.kind, each, expression)

    # Values

    def value(self, kind: Kind, each: FieldLayout, expression: str) -> None:
        if isinstance(kind, ArrayOf):
            self.array(kind, each, expression)
        elif isinstance(kind, StructOf):
            if each.nullable:
                self.flush()
                self.line(f"if {expression} is None: add(255)")
                self.line("else:")
                self.out.indent += 1
                self.line("add(1)")
                self.struct_value(kind, expression)
                self.flush()
                self.out.indent -= 1
            else:
                self.struct_value(kind, expression)
        elif kind is UUID:
            raw = self.fresh("r")
            self.line(f"{raw} = {expression}")
            self.line(f"if len({raw}) != 16: raise MalformedError")
            self.run.append((raw, "16s"))
        elif kind.is_fixed:
            self.run.append((expression, kind.code))
        elif kind is STRING:
            self.string(each, expression)
        else:
            self.byte_string(kind, each, expression)

    def struct_value(self, kind: StructOf, expression: str) -> None:
        variable = self.fresh("m")
        self.line(f"{variable} = {expression}")
        self.struct(kind.layout, variable)

    def string(self, each: FieldLayout, expression: str) -> None:
        raw, null = self.fresh("s"), "0" if each.compact else "-1"
        if each.nullable:
            self.line(f"{raw} = {expression}")
            self.line(f"if {raw} is None: {raw} = b''; n = {null}")
            self.line(f"else: {raw} = {raw}.encode(); n = len({raw}){' + 1' if each.compact else ''}")
        else:
            self.line(f"{raw} = {expression}.encode(); n = len({raw}){' + 1' if each.compact else ''}")
        if each.compact:
            self.flush()
            self.line("if n < 128: add(n)")
            self.line("else: out += string_length(n)")
        else:
            self.run.append(("n", "h"))
            self.flush()
        self.line(f"out += {raw}")

    def byte_string(self, kind: Primitive, each: FieldLayout, expression: str) -> None:
        value = self.fresh("b")
        self.flush()
        self.line(f"{value} = {expression}")
        self.open_nullable(each, value)
        if kind is not RECORDS or not self.parts:
            self.line(f"if {value}.__class__ is not bytes: {value} = flat({value})")
        self.put_length(each, f"len({value})")
        self.flush()
        if kind is RECORDS and self.parts:
            self.line(f"if len({value}) < {PART_BYTES_MIN} and is_buffer({value}): out += {value}")
            self.line(f"else: parts.append(out); parts.append({value}); out = bytearray(); add = out.append")
        else:
            self.line(f"out += {value}")
        self.close_nullable(each)

    def array(self, kind: ArrayOf, each: FieldLayout, expression: str) -> None:
        items, item = self.fresh("a"), kind.item
        self.line(f"{items} = {expression}")
        if each.nullable:
            self.flush()
        self.open_nullable(each, items)
        if isinstance(item, Primitive) and item.is_fixed and item is not UUID:
            self.put_length(each, f"len({items})")
            self.flush()
            self.line(f"out += pack('>%d{item.code}' % len({items}), *{items})")
        else:
            self.put_length(each, f"len({items})")
            self.flush()
            loop_else = isinstance(item, StructOf)
            if loop_else:
                self.line(f"if {items}.__class__ is PreEncoded: out += {items}.data")
                self.line("else:")
                self.out.indent += 1
            variable = self.fresh("v")
            self.line(f"for {variable} in {items}:")
            self.out.indent += 1
            if isinstance(item, StructOf):
                self.struct(item.layout, variable)
            else:
                self.value(item, FieldLayout("", item, False, each.compact, None), variable)
            self.flush()
            self.out.indent -= 1 + loop_else
        self.close_nullable(each)

    def open_nullable(self, each: FieldLayout, variable: str) -> None:
        if each.nullable:
            null = "add(0)" if each.compact else r"out += b'\xff\xff\xff\xff'"
            self.line(f"if {variable} is None: {null}")
            self.line("else:")
            self.out.indent += 1

    def put_length(self, each: FieldLayout, expression: str) -> None:
        if each.compact:
            self.flush()
            self.line(f"n = {expression} + 1")
            self.line("if n < 128: add(n)")
            self.line("else: out += uvarint(n)")
        else:
            self.run.append((expression, "i"))

    def close_nullable(self, each: FieldLayout) -> None:
        self.flush()
        if each.nullable:
            self.out.indent -= 1


def _all_defaults(part: Layout) -> Struct:
    """The value of a tagged struct that is not there."""
    values = {each.name: [] if each.default == () else each.default for each in part.fields + part.tagged}
    values.update({name: [] if default == () else default for name, default, _ in part.absent})
    return part.struct(**values)


def _put_tags(
    out: bytearray, tags: dict[int, Buffer], unknown: dict[int, bytes] | None, reserved: frozenset[int]
) -> None:
    if unknown:
        if not reserved.isdisjoint(unknown) or min(unknown) < 0:
            raise MalformedError
        tags = tags | unknown
    out += uvarint(len(tags))
    for tag in sorted(tags):
        out += uvarint(tag)
        out += uvarint(len(tags[tag]))
        out += tags[tag]


def _string_length(length_plus_one: int) -> bytes:
    if length_plus_one > STRING_BYTES_MAX + 1:
        raise MalformedError
    return uvarint(length_plus_one)


def _is_buffer(value: object) -> bool:
    return isinstance(value, (bytes, bytearray, memoryview))


def _flat(value: Buffer) -> memoryview:
    """A view whose length is its number of bytes, whatever was given."""
    return memoryview(value).cast("B")
