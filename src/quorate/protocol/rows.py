"""Arrays of many equal rows, as numpy columns instead of objects.

Reading. Rows whose fields all have a fixed size are a rectangle of bytes, and a `Table` is a view of it:
a thousand partitions of a fetch request cost as much as one. Rows may carry tagged fields; then they are a
rectangle too as long as all of them carry the same ones, which is verified. Otherwise they are read one by
one, and the columns are made from the objects.

Writing. Rows whose fields have a fixed size, or are arrays of such, differ only in the lengths of those
arrays: rows of one shape are again a rectangle, filled column by column and scattered to where its rows
belong. `encode_rows` gives the bytes; the compiled encoders take them in place of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.decoder import compile_decoder
from quorate.protocol.encoder import PreEncoded
from quorate.protocol.layout import ArrayOf, FieldLayout, Layout, struct_layout
from quorate.protocol.message import Message, Struct
from quorate.protocol.types import UUID, Buffer, Primitive
from quorate.protocol.varint import MalformedError, read_uvarint, uvarint

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
        value = np.void(default) if isinstance(default, bytes) else np.asarray(default)
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
        data[each.name] = [np.void(value) for value in values] if each.kind is UUID else values
    return data


@dataclass(frozen=True, slots=True)
class Ragged:
    """A column of arrays of different lengths: row i is the first `lengths[i]` values of `values[i]`."""

    values: Column
    lengths: Column

    @classmethod
    def select(cls, values: Column, chosen: Column) -> Ragged:
        """Of every row of `values`, those that the boolean matrix `chosen` marks, in their order."""
        order = np.argsort(~chosen, axis=1, kind="stable")
        return cls(np.take_along_axis(values, order, axis=1), chosen.sum(axis=1))


def encode_rows(
    struct: type[Struct], message: type[Message], version: int, columns: Mapping[str, Column | Ragged | int]
) -> PreEncoded:
    """The rows of an array of `struct` in `message`. A column is an array, `Ragged`, or one value for all.

    Every column that the version carries must be given; tagged fields stay at their defaults.
    """
    part = struct_layout(struct, version, version in message.__flexible__)
    given = {each.name: columns[each.name] for each in part.fields}
    count = next(
        len(c.lengths if isinstance(c, Ragged) else c) for c in given.values() if not isinstance(c, int)
    )
    ragged = [each for each in part.fields if isinstance(each.kind, ArrayOf)]
    if count == 0:
        return PreEncoded(0, b"")
    shapes, members = _group_by_shape([cast("Ragged", given[each.name]).lengths for each in ragged], count)
    row_types = [_shape_type(part, shape) for shape in shapes]
    sizes = np.empty(count, np.int64)
    for row_type, rows in zip(row_types, members, strict=True):
        sizes[rows] = row_type.itemsize
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.empty(int(ends[-1]), np.uint8)
    for shape, row_type, rows in zip(shapes, row_types, members, strict=True):
        block = np.zeros(len(rows), row_type)
        _fill(block, part, shape, rows, given)
        flat = block.view(np.uint8).reshape(len(rows), row_type.itemsize)
        if len(shapes) == 1:
            return PreEncoded(count, flat.tobytes())
        out[starts[rows][:, None] + np.arange(row_type.itemsize)] = flat
    return PreEncoded(count, out.tobytes())


def _group_by_shape(lengths: list[Column], count: int) -> tuple[list[tuple[int, ...]], list[Column]]:
    """The different combinations of lengths, and for each the rows that have it."""
    if not lengths:
        return [()], [np.arange(count)]
    key = np.zeros(count, np.int64)
    for column in lengths:
        key = key * (int(column.max()) + 1) + column
    unique, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    bounds = np.cumsum(np.bincount(inverse, minlength=len(unique)))[:-1]
    shapes = [tuple(int(column[row]) for column in lengths) for row in first]
    return shapes, np.split(order, bounds)


def _shape_type(part: Layout, shape: tuple[int, ...]) -> np.dtype[Any]:
    """The dtype of rows whose arrays have these lengths."""
    lengths = iter(shape)
    fields: list[tuple[Any, ...]] = []
    for each in part.fields:
        if isinstance(each.kind, ArrayOf):
            assert isinstance(each.kind.item, Primitive)
            length = next(lengths)
            prefix = len(uvarint(length + 1)) if each.compact else 4
            fields.append((f"(length of {each.name})", f"V{prefix}"))
            if length:
                fields.append((each.name, _DTYPES[each.kind.item.code], (length,)))
        else:
            fields.append((each.name, _dtype(each)))
    if part.flexible:
        fields.append(("(tags)", "u1"))
    return np.dtype(fields)


def _fill(
    block: Column,
    part: Layout,
    shape: tuple[int, ...],
    rows: Column,
    given: Mapping[str, Column | Ragged | int],
) -> None:
    lengths = iter(shape)
    for each in part.fields:
        column = given[each.name]
        if isinstance(column, Ragged):
            length = next(lengths)
            prefix = uvarint(length + 1) if each.compact else length.to_bytes(4, "big")
            block[f"(length of {each.name})"] = np.void(prefix)
            if length:
                block[each.name] = column.values[rows, :length]
        else:
            block[each.name] = column if isinstance(column, int) else column[rows]
