"""Arrays of many equal rows, as numpy columns instead of objects.

Reading. Rows whose fields all have a fixed size are a rectangle of bytes, and a `Table` is a view of it:
a thousand partitions of a fetch request cost as much as one. Rows may carry tagged fields; then they are a
rectangle too as long as all of them carry the same ones, which is verified. Otherwise they are read one by
one, and the columns are made from the objects.

Writing. Rows whose fields have a fixed size, or are arrays of such, are a rectangle with bytes left out: it
is filled column by column as if every array were as long as the longest, and the bytes of the items that
are not there are then dropped, all at once. `encode_rows` gives the bytes; the compiled encoders take them
in place of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.decoder import compile_decoder
from quorate.protocol.encoder import PreEncoded
from quorate.protocol.layout import ArrayOf, FieldLayout, Layout, struct_layout
from quorate.protocol.message import Message, Struct
from quorate.protocol.types import UUID, Buffer, Primitive
from quorate.protocol.varint import MalformedError, read_uvarint, uvarint
from quorate.values import dataclass

__all__ = ["Ragged", "Table", "encode_rows", "table_reader"]

Column = NDArray[Any]

_DTYPES = {"?": "?", "b": "i1", "h": ">i2", "H": ">u2", "i": ">i4", "I": ">u4", "q": ">i8", "d": ">f8"}
_DTYPES["16s"] = "V16"


class Table:
    """The rows of an array of structs as columns. A column of a field that no row carries is its default.

    Columns are views of the buffer that was decoded, big-endian, and read-only if the buffer is.
    """

    __slots__ = ("_data", "_layout", "_rows")

    def __init__(self, part: Layout, data: Column, rows: Callable[[], list[Struct]]) -> None:
        self._layout = part
        self._data = data
        self._rows = rows

    def __len__(self) -> int:
        return len(self._data)

    def column(self, name: str) -> Column:
        if name in (self._data.dtype.names or ()):
            return self._data[name]
        absent = {absent_name: default for absent_name, default, _ in self._layout.absent}
        for each in self._layout.tagged:
            absent[each.name] = each.default
        default = absent[name]
        value = np.void(bytes(default)) if isinstance(default, bytes) else np.asarray(default)
        return np.broadcast_to(value, len(self._data))

    def rows(self) -> list[Struct]:
        """The same as objects."""
        return self._rows()

    def __iter__(self) -> Iterator[Struct]:
        return iter(self._rows())

    def __eq__(self, other: object) -> bool:
        return self._rows() == (other.rows() if isinstance(other, Table) else other)

    __hash__ = None  # type: ignore[assignment]


def table_reader(part: Layout) -> Callable[[Buffer, int, int, int], tuple[Table, int]]:
    """A function of buffer, position, end and count: the table of that many rows, and where it ends."""
    plain = _row_type(part, ())

    def read_objects(buffer: Buffer, position: int, end: int, count: int) -> tuple[list[Struct], int]:
        decode = compile_row_decoder(part, buffer.__class__ is memoryview)
        rows = []
        for _ in range(count):
            row, position = decode(buffer, position, end)
            rows.append(row)
        return rows, position

    def read(buffer: Buffer, position: int, end: int, count: int) -> tuple[Table, int]:
        row_type, constants = plain, _NO_TAGS
        stride = plain.itemsize
        if count and part.flexible:
            if position + stride > end:
                raise MalformedError
            if buffer[position + stride - 1]:
                row_type, constants = _shape_of_first_row(part, buffer, position, end)
                stride = row_type.itemsize
        after = position + stride * count
        if after <= end:
            data = np.frombuffer(buffer, row_type, count, position)
            if not part.flexible or all((data[name] == value).all() for name, value in constants):
                return Table(part, data, lambda: read_objects(buffer, position, after, count)[0]), after
        rows, after = read_objects(buffer, position, end, count)
        return Table(part, _columns_of(part, rows), lambda: rows), after

    return read


def compile_row_decoder(part: Layout, view: bool) -> Any:
    return _row_decoder(part.struct, part.version, part.flexible, view)


@cache
def _row_decoder(struct: type[Struct], version: int, flexible: bool, view: bool) -> Any:
    return compile_decoder([struct_layout(struct, version, flexible)], view=view, to_end=False)


_NO_TAGS: Final[tuple[tuple[str, int], ...]] = (("(tags)", 0),)


def _row_type(part: Layout, tagged: tuple[FieldLayout, ...]) -> np.dtype[Any]:
    """The row as a dtype: its fields, the number of tags, and for each tag its number, size and value."""
    names, formats = [], []
    for each in part.fields:
        names.append(each.name)
        formats.append(_dtype(each))
    if part.flexible:
        names.append("(tags)")
        formats.append("u1")
    for each in tagged:
        names += [f"(tag of {each.name})", f"(size of {each.name})", each.name]
        formats += ["u1", "u1", _dtype(each)]
    return np.dtype(list(zip(names, formats, strict=True)))


def _dtype(each: FieldLayout) -> str:
    assert isinstance(each.kind, Primitive)
    return _DTYPES[each.kind.code]


def _shape_of_first_row(
    part: Layout, buffer: Buffer, position: int, end: int
) -> tuple[np.dtype[Any], tuple[tuple[str, int], ...]]:
    """The dtype of a row with tagged fields, and what must stand in every row for it to be of this shape."""
    size = part.fixed_size_bytes
    assert size is not None
    at = position + size - 1
    tags, at = read_uvarint(buffer, at)
    known = {each.tag: each for each in part.tagged}
    carried: list[FieldLayout] = []
    for _ in range(tags):
        tag, at = read_uvarint(buffer, at)
        length, at = read_uvarint(buffer, at)
        each = known.get(tag)
        if each is None or not isinstance(each.kind, Primitive) or each.kind.code not in _DTYPES:
            return _row_type(part, ()), _NO_TAGS  # an unknown or variable one: row by row
        if (
            np.dtype(_dtype(each)).itemsize != length
            or tag > 127
            or (carried and tag <= (carried[-1].tag or 0))
        ):
            return _row_type(part, ()), _NO_TAGS
        carried.append(each)
        at += length
    if at > end:
        raise MalformedError
    constants: list[tuple[str, int]] = [("(tags)", tags)]
    for each in carried:
        constants.append((f"(tag of {each.name})", each.tag or 0))
        constants.append((f"(size of {each.name})", np.dtype(_dtype(each)).itemsize))
    return _row_type(part, tuple(carried)), tuple(constants)


def _columns_of(part: Layout, rows: list[Struct]) -> Column:
    fixed = [each for each in part.fields + part.tagged if isinstance(each.kind, Primitive)]
    fixed = [each for each in fixed if each.kind.code in _DTYPES]  # type: ignore[union-attr]
    data = np.zeros(len(rows), np.dtype([(each.name, _dtype(each)) for each in fixed]))
    for each in fixed:
        values: list[Any] = [getattr(row, each.name) for row in rows]
        data[each.name] = np.frombuffer(b"".join(values), "V16") if each.kind is UUID else values
    return data


@dataclass(frozen=True, slots=True)
class Ragged:
    """A column of arrays of different lengths: of every row of `values`, those that `chosen` marks.

    Both are matrices with a row per row; in-sync replicas, say, are replicas and whether they are in sync.
    """

    values: Column
    chosen: NDArray[np.bool_]


def encode_rows(
    struct: type[Struct], message: type[Message], version: int, columns: Mapping[str, Column | Ragged | int]
) -> PreEncoded:
    """The rows of an array of `struct` in `message`. A column is an array, `Ragged`, or one value for all.

    Every column that the version carries must be given; tagged fields stay at their defaults.
    """
    part = struct_layout(struct, version, version in message.__flexible__)
    given = {each.name: columns[each.name] for each in part.fields}
    count = next(
        len(column.values if isinstance(column, Ragged) else column)
        for column in given.values()
        if not isinstance(column, int)
    )
    if count == 0:
        return PreEncoded(0, b"")
    prefixes = {
        name: _length_prefixes(part, column) for name, column in given.items() if isinstance(column, Ragged)
    }
    row_type = _widest_row(part, given, prefixes)
    rows = np.zeros(count, row_type)
    keep = np.ones((count, row_type.itemsize), np.bool_)
    for name, column in given.items():
        if isinstance(column, Ragged):
            prefix, prefix_sizes = prefixes[name]
            rows[f"(length of {name})"] = prefix
            _drop(keep, row_type, f"(length of {name})", np.arange(prefix.shape[1]) < prefix_sizes[:, None])
            rows[name] = column.values
            _drop(keep, row_type, name, column.chosen)
        else:
            rows[name] = column
    data = rows.view(np.uint8).reshape(count, row_type.itemsize)
    return PreEncoded(count, data[keep].tobytes())


def _length_prefixes(part: Layout, column: Ragged) -> tuple[Column, Column]:
    """The bytes of the length before every array, and how many of them count."""
    lengths = column.chosen.sum(axis=1)
    if not part.flexible:
        return lengths.astype(">i4")[:, None].view(np.uint8), np.full(len(lengths), 4)
    lengths += 1
    if column.chosen.shape[1] < 127:
        return lengths.astype(np.uint8)[:, None], np.ones(len(lengths), np.int64)
    by_length = {int(length): uvarint(int(length)) for length in np.unique(lengths)}
    width = max(map(len, by_length.values()))
    prefixes = b"".join(by_length[int(length)].ljust(width, b"\0") for length in lengths)
    sizes = np.array([len(by_length[int(length)]) for length in lengths])
    return np.frombuffer(prefixes, np.uint8).reshape(len(lengths), width), sizes


def _widest_row(
    part: Layout, given: Mapping[str, Column | Ragged | int], prefixes: Mapping[str, tuple[Column, Column]]
) -> np.dtype[Any]:
    """The dtype of a row in which every array is as long as it can be."""
    fields: list[tuple[Any, ...]] = []
    for each in part.fields:
        column = given[each.name]
        if isinstance(each.kind, ArrayOf):
            assert isinstance(each.kind.item, Primitive)
            assert isinstance(column, Ragged), f"{each.name} is an array"
            fields.append((f"(length of {each.name})", "u1", (prefixes[each.name][0].shape[1],)))
            fields.append((each.name, _DTYPES[each.kind.item.code], (column.values.shape[1],)))
        else:
            fields.append((each.name, _dtype(each)))
    if part.flexible:
        fields.append(("(tags)", "u1"))
    return np.dtype(fields)


def _drop(keep: NDArray[np.bool_], row_type: np.dtype[Any], name: str, chosen: NDArray[np.bool_]) -> None:
    """Marks the bytes of the items that are not chosen as not to be written."""
    assert row_type.fields is not None
    field_type, start = row_type.fields[name][:2]
    if chosen.all():
        return
    item_bytes = field_type.base.itemsize
    field = keep[:, start : start + field_type.itemsize].reshape(len(keep), -1, item_bytes)
    field[...] = chosen[:, :, None]
