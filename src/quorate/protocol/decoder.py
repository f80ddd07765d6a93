"""Compiles layouts into one straight function that decodes them.

The function reads one message after the other (a header and its body, say) and returns them as a tuple.
What makes it fast: nested structs are inlined, a run of fixed-size fields together with the length prefix
that follows it is one `struct` call, and nothing looks at a schema while decoding.

What keeps it safe, although it checks little as it goes: a slice past the end is short but harmless, a
fixed-size read past the end raises, every array is checked against the bytes that are left before its
first item is read, and at the end the position must be exactly the end of the message. Whoever calls it
turns any of the exceptions in `FAILURES` into a `ProtocolError` that says where (see `interpreter`).

A decoder of requests, which anybody may send, is bounded too: in how many items and tags there may be, and in
how much memory they take (see `bounds`). It does not keep tags that it does not know.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from quorate.protocol.bounds import (
    ANYWAY_BYTES,
    FREE_BYTES,
    ITEMS_MAX,
    TAGS_MAX,
    allow,
    item_bytes,
    smallest_bytes,
    value_bytes,
)
from quorate.protocol.layout import ArrayOf, FieldLayout, Kind, Layout, StructOf
from quorate.protocol.source import SourceText
from quorate.protocol.types import BYTES, RECORDS, STRING, UUID, Primitive, Uuid
from quorate.protocol.varint import MalformedError, read_string_length, read_uvarint

__all__ = ["FAILURES", "Decoder", "compile_decoder"]

# Of buffer, position and end; one that is bounded takes a `bounds.Claim`, too, if there is somebody to ask.
Decoder = Callable[..., tuple[Any, ...]]

FAILURES: Final = (MalformedError, struct.error, IndexError, UnicodeDecodeError)

# Arrays of up to this many fixed-size items use a ready-made Struct.
_READY_ITEMS: Final = 32


def compile_decoder(
    layouts: list[Layout], *, view: bool, to_end: bool, tables: Any = None, times: int = 0
) -> Decoder:
    """A function of buffer, position and end that returns the decoded messages.

    `view`: the buffer is a memoryview, which has no `decode`. `to_end`: nothing may follow; otherwise the
    position reached is returned last. `tables` makes the reader for arrays of fixed-size structs, if they
    shall be decoded as `rows.Table` rather than lists. `times` makes it bounded: its objects may take so many
    times the message's bytes.
    """
    return _Source(view=view, tables=tables, times=times).function(layouts, to_end=to_end)


class _Source:
    """The source text of one decoder, written line by line."""

    def __init__(self, *, view: bool, tables: Any, times: int) -> None:
        self.out = SourceText(
            {
                "MalformedError": MalformedError,
                "Uuid": Uuid,
                "allow": allow,
                "bytes_new": bytes.__new__,
                "new": object.__new__,
                "read_string_length": read_string_length,
                "read_uvarint": read_uvarint,
                "unpack_from": struct.unpack_from,
            }
        )
        self.line, self.fresh, self.constant = self.out.line, self.out.fresh, self.out.constant
        self.text = "str(buf[p:e], 'utf-8')" if view else "buf[p:e].decode()"
        self.tables = tables
        self.times = times
        self.run: list[tuple[str, str]] = []  # fixed-size fields not read yet: target, format
        self.after_run: list[str] = []

    def function(self, layouts: list[Layout], *, to_end: bool) -> Decoder:
        results = [self.struct(part) for part in layouts]
        self.flush()
        if to_end:
            self.line("if p != end: raise MalformedError")
        else:
            self.line("if p > end: raise MalformedError")
            results.append("p")
        self.line(f"return ({', '.join(results)},)")
        name = "+".join(f"{part.struct.__name__} v{part.version}" for part in layouts)
        header = [f"def decode(buf, p, end{', claim=allow' if self.times else ''}):"]
        if self.times:
            header.append(f"    start = p; room = taken = {FREE_BYTES}")
        if any("view[" in line for line in self.out.lines):
            header.append("    view = memoryview(buf)")
        decoder: Decoder = self.out.compile("decode", header, f"decoder of {name}")
        return decoder

    def flush(self) -> None:
        """Reads the fixed-size fields that have gathered, in one call."""
        if self.run:
            code = ">" + "".join(code for _, code in self.run)
            reader = self.constant("unpack", struct.Struct(code).unpack_from, ("unpack", code))
            targets = "".join(f"{target}, " for target, _ in self.run)
            self.line(f"{targets}= {reader}(buf, p)")
            self.line(f"p += {struct.calcsize(code)}")
            self.out.lines.extend(self.after_run)
            self.run, self.after_run = [], []

    # Structs

    def struct(self, part: Layout) -> str:
        """Lines that read a struct; returns the variable that holds it."""
        variable = self.fresh("m")
        cls = self.constant("C", part.struct)
        self.line(f"{variable} = new({cls})")
        for each in part.fields:
            self.value(each.kind, each, f"{variable}.{each.name}")
        for name, default, _ in part.absent:
            self.default(f"{variable}.{name}", default)
        if part.flexible:
            self.tagged(part, variable)
        else:
            self.line(f"{variable}.__unknown_tags__ = None")
        return variable

    def default(self, target: str, default: object) -> None:
        if default == ():
            self.line(f"{target} = []")
        elif isinstance(default, type):
            self.line(f"{target} = {self.constant('C', default)}()")
        elif default is None or isinstance(default, (bool, int)):
            self.line(f"{target} = {default!r}")
        else:
            self.line(f"{target} = {self.constant('D', default, (type(default), repr(default)))}")

    def tagged(self, part: Layout, variable: str) -> None:
        self.length_byte()
        for each in part.tagged:
            self.default(f"{variable}.{each.name}", each.default)
        unknown, last, tag, end = self.fresh("u"), self.fresh("l"), self.fresh("t"), self.fresh("q")
        self.line(f"{variable}.__unknown_tags__ = None")
        self.line("if n:")
        self.out.indent += 1
        self.line("if n > 127: n, p = read_uvarint(buf, p - 1)")
        if self.times:
            self.line(f"if n > {TAGS_MAX}: raise MalformedError")
            self.line(f"{last} = -1")
        else:
            self.line(f"{unknown} = {{}}; {last} = -1")
        self.line("for _ in range(n):")
        self.out.indent += 1
        self.line(f"{tag}, p = read_uvarint(buf, p)")
        self.line("n, p = read_uvarint(buf, p)")
        self.line(f"{end} = p + n")
        self.line(f"if {tag} <= {last} or {end} > end: raise MalformedError")
        self.line(f"{last} = {tag}")
        branch = "if"
        for each in part.tagged:
            self.line(f"{branch} {tag} == {each.tag}:")
            self.out.indent += 1
            self.claim(str(value_bytes(each.kind)))
            self.tagged_value(each, f"{variable}.{each.name}")
            self.flush()
            self.out.indent -= 1
            branch = "elif"
        for foreign in sorted(part.foreign_tags):
            self.line(f"{branch} {tag} == {foreign}: raise MalformedError")
            branch = "elif"
        keep = f"p = {end}" if self.times else f"{unknown}[{tag}] = bytes(buf[p:{end}]); p = {end}"
        self.line(f"else: {keep}" if branch == "elif" else keep)
        self.line(f"if p != {end}: raise MalformedError")
        self.out.indent -= 1
        if not self.times:
            self.line(f"if {unknown}: {variable}.__unknown_tags__ = {unknown}")
        self.out.indent -= 1

    def tagged_value(self, each: FieldLayout, target: str) -> None:
        if isinstance(each.kind, StructOf) and each.nullable:
            self.line("n, p = read_uvarint(buf, p)")
            self.present_or_null(each.kind, target, "n")
        else:
            self.value(each.kind, each, target)

    # Values

    def value(self, kind: Kind, each: FieldLayout, target: str) -> None:
        if isinstance(kind, ArrayOf):
            self.array(kind, each, target)
        elif isinstance(kind, StructOf):
            if each.nullable:
                self.flush()
                self.line("n = buf[p]; p += 1")
                self.present_or_null(kind, target, "n < 128")
            else:
                self.line(f"{target} = {self.struct(kind.layout)}")
        elif kind is UUID:
            raw = self.fresh("r")
            self.run.append((raw, "16s"))
            self.after_run.append("    " * self.out.indent + f"{target} = bytes_new(Uuid, {raw})")
        elif kind.is_fixed:
            self.run.append((target, kind.code))
        else:
            self.sized(kind, each, target)

    def present_or_null(self, kind: StructOf, target: str, condition: str) -> None:
        self.line(f"if {condition}:")
        self.out.indent += 1
        self.line(f"{target} = {self.struct(kind.layout)}")
        self.flush()
        self.out.indent -= 1
        self.line(f"else: {target} = None")

    def length_byte(self) -> None:
        """Reads the first byte of a varint into `n`, with the run before it if there is one."""
        if self.run:
            self.run.append(("n", "B"))
            self.flush()
        else:
            self.line("n = buf[p]; p += 1")

    def length(self, kind: Kind, each: FieldLayout, target: str) -> None:
        """Reads a length into `n` and opens the branch for a value that is there, closed by `end_length`."""
        if each.compact:
            self.length_byte()
            reader = "read_string_length" if kind is STRING else "read_uvarint"
            self.line(f"if n > 127: n, p = {reader}(buf, p - 1)")
            null, absent = "not n", "raise MalformedError"
        else:
            self.run.append(("n", "h" if kind is STRING else "i"))
            self.flush()
            null, absent = "n < 0", "raise MalformedError"
        if not each.nullable:
            self.line(f"if {null}: {absent}")
        elif each.compact:
            self.line(f"if {null}: {target} = None")
            self.line("else:")
            self.out.indent += 1
        else:
            self.line(f"if {null}:")
            self.line("    if n != -1: raise MalformedError")
            self.line(f"    {target} = None")
            self.line("else:")
            self.out.indent += 1

    def end_length(self, each: FieldLayout) -> None:
        self.flush()
        if each.nullable:
            self.out.indent -= 1

    def sized(self, kind: Primitive, each: FieldLayout, target: str) -> None:
        assert kind in (STRING, BYTES, RECORDS)
        self.length(kind, each, target)
        self.line("e = p + n - 1" if each.compact else "e = p + n")
        self.line(f"{target} = {self.text if kind is STRING else 'view[p:e]'}")
        self.line("p = e")
        self.end_length(each)

    def array(self, kind: ArrayOf, each: FieldLayout, target: str) -> None:
        self.length(kind, each, target)
        if each.compact:
            self.line("n -= 1")
        item = kind.item
        element = FieldLayout("", item, False, each.compact, None)
        size = max(1, smallest_bytes(element))
        self.line(f"if n {f'* {size} ' if size > 1 else ''}> end - p: raise MalformedError")
        if self.times:
            self.line(f"if n > {ITEMS_MAX}: raise MalformedError")
            self.claim(f"n * {item_bytes(item)}")
        if isinstance(item, StructOf) and self.tables is not None and item.layout.fixed_size_bytes:
            reader = self.constant("table", self.tables(item.layout), item.layout.struct)
            self.line(f"{target}, p = {reader}(buf, p, end, n)")
        elif isinstance(item, Primitive) and item.is_fixed and item is not UUID:
            self.fixed_items(item, size, target)
        else:
            items = self.fresh("a")
            self.line(f"{items} = []")
            self.line("for _ in range(n):")
            self.out.indent += 1
            if isinstance(item, StructOf):
                variable = self.struct(item.layout)
            else:
                variable = self.fresh("v")
                self.value(item, element, variable)
            self.flush()
            self.line(f"{items}.append({variable})")
            self.out.indent -= 1
            self.line(f"{target} = {items}")
        self.end_length(each)

    def claim(self, amount: str) -> None:
        """Takes so many bytes of memory, if there is somebody to be asked for them."""
        if self.times:
            self.line(f"room -= {amount}")
            self.line("if room < 0:")
            allowed = f"{self.times} * (end - start) + {ANYWAY_BYTES}"
            self.line(f"    room = taken - room; taken = claim(room, {allowed}); room = taken - room")

    def fixed_items(self, item: Primitive, size: int, target: str) -> None:
        ready = tuple(struct.Struct(f">{count}{item.code}").unpack_from for count in range(_READY_ITEMS))
        ready_name = self.constant("ready", ready, ("ready", item.code))
        self.line(f"if n < {_READY_ITEMS}: {target} = list({ready_name}[n](buf, p))")
        self.line(f"else: {target} = list(unpack_from('>%d{item.code}' % n, buf, p))")
        self.line(f"p += n * {size}" if size > 1 else "p += n")
