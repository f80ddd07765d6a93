"""Partition records that look alike: their bytes in a batch as a rectangle.

How long a PartitionRecord or a PartitionChangeRecord is, and where in it each field stands, depends only on
how many replicas it lists where and which tagged fields it has: its shape. All records of one shape, if their
offset deltas take equally many bytes, are rows of one rectangle, in which some bytes are the same in every
row and the others are fields of a fixed size. A `Template` says which are which. Filling one with columns
encodes many records at once; comparing bytes with one, and then looking at its fields, decodes many.

What has no shape here is written and read one by one: changes of replicas and directories, and records with
tags that we do not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.metadata.blocks import Column
from quorate.metadata.log_format import FRAME_VERSION
from quorate.metadata.records import PartitionChangeRecord, PartitionRecord
from quorate.protocol.varint import uvarint

__all__ = ["ChangeShape", "PartitionShape", "Shape", "Template", "delta_size_bytes", "grouped", "shape_of"]

ABSENT: Final = -1  # in place of the length of an array
_SHAPES_BY_SCAN_MAX: Final = 32

# A field: its name, its type, and, for an array, its length.
_Field = tuple[str, str] | tuple[str, str, tuple[int]]
_Piece = bytes | _Field


class ChangeShape(NamedTuple):
    """How a PartitionChangeRecord looks: lengths of its arrays, and which tagged fields it has."""

    version: int
    isr: int
    has_leader: bool
    has_recovery_state: bool
    elr: int
    last_known_leader: int  # 0 says that it is forgotten

    def template(self, delta_bytes: int) -> Template:
        """The rectangle of such records whose offset deltas take so many bytes."""
        return _change_template(self, delta_bytes)


class PartitionShape(NamedTuple):
    """How a PartitionRecord looks."""

    version: int
    replicas: int
    isr: int
    removing: int
    adding: int
    directories: int
    has_recovery_state: bool
    elr: int
    last_known_leader: int

    def template(self, delta_bytes: int) -> Template:
        """The rectangle of such records whose offset deltas take so many bytes."""
        return _partition_template(self, delta_bytes)


Shape = ChangeShape | PartitionShape


def shape_of(record: PartitionChangeRecord | PartitionRecord, version: int) -> Shape | None:
    """The shape of a record, or None if it has none."""
    if record.__unknown_tags__:
        return None
    last_known = _length(record.last_known_elr)
    if last_known > 1:
        return None
    elr = _length(record.eligible_leader_replicas)
    if isinstance(record, PartitionRecord):
        return PartitionShape(
            version=version,
            replicas=len(record.replicas),
            isr=len(record.isr),
            removing=len(record.removing_replicas),
            adding=len(record.adding_replicas),
            directories=len(record.directories),
            has_recovery_state=record.leader_recovery_state != 0,
            elr=elr,
            last_known_leader=last_known,
        )
    others = record.replicas, record.removing_replicas, record.adding_replicas, record.directories
    if any(other is not None for other in others):
        return None
    return ChangeShape(
        version=version,
        isr=_length(record.isr),
        has_leader=record.leader != -2,
        has_recovery_state=record.leader_recovery_state != -1,
        elr=elr,
        last_known_leader=last_known,
    )


class Template:
    """A rectangle of records: one dtype for a row, in which constants are fields too."""

    __slots__ = ("_constants", "_delta_bytes", "row_type")

    def __init__(self, pieces: Sequence[_Piece], delta_bytes: int) -> None:
        names, formats, offsets, constants, position = [], [], [], [], 0
        for piece in _joined(pieces):
            if isinstance(piece, bytes):
                # As few integers as possible, in the order of the machine: they are only compared and copied.
                for start, size in _powers_of_two(len(piece)):
                    name = f"(constant at {position})"
                    constants.append((name, np.frombuffer(piece, f"u{size}", 1, start)[0]))
                    names.append(name)
                    formats.append(np.dtype(f"u{size}"))
                    offsets.append(position)
                    position += size
            else:
                names.append(piece[0])
                formats.append(np.dtype(piece[1:] if len(piece) == 3 else piece[1]))
                offsets.append(position)
                position += formats[-1].itemsize
        shape = {"names": names, "formats": formats, "offsets": offsets, "itemsize": position}
        self.row_type: np.dtype[Any] = np.dtype(shape)  # type: ignore[call-overload]
        self._constants = tuple(constants)
        self._delta_bytes = delta_bytes

    @property
    def row_bytes(self) -> int:
        return self.row_type.itemsize

    def encode(
        self, columns: Mapping[str, Column], first_delta: int, count: int, out: bytearray, position: int
    ) -> None:
        """Writes rows with these fields, their offset deltas counted from `first_delta`."""
        rows = np.frombuffer(out, self.row_type, count, position)
        for name, value in self._constants:
            rows[name] = value
        deltas = np.arange(first_delta, first_delta + count, dtype=np.int64)
        for name, column in self._delta_columns(deltas):
            rows[name] = column
        for name, column in columns.items():
            rows[name] = column

    def matching(self, rows: Column, deltas: Column) -> NDArray[np.bool_]:
        """Which rows are of this shape and have these offset deltas."""
        is_match = np.ones(len(rows), np.bool_)
        for name, value in self._constants:
            is_match &= rows[name] == value
        for name, column in self._delta_columns(deltas):
            is_match &= rows[name] == column
        return is_match

    def _delta_columns(self, deltas: Column) -> Iterator[tuple[str, Column]]:
        doubled = deltas << 1
        for at in range(self._delta_bytes):
            more = 128 if at + 1 < self._delta_bytes else 0
            yield f"(delta {at})", (doubled >> 7 * at & 127 | more).astype(np.uint8)


def delta_size_bytes(delta: int) -> int:
    """How many bytes an offset delta takes.

    >>> [delta_size_bytes(delta) for delta in (0, 63, 64, 8191, 8192)]
    [1, 1, 2, 2, 3]
    """
    return len(uvarint(delta << 1))


def grouped(keys: Column) -> Iterator[tuple[int, Column]]:
    """The distinct keys, and where each stands.

    >>> [(key, where.tolist()) for key, where in grouped(np.array([5, 3, 5]))]
    [(3, [1]), (5, [0, 2])]
    """
    if (keys == keys[0]).all():
        yield int(keys[0]), np.arange(len(keys))
        return
    ordered = np.sort(keys)
    kinds = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    if len(kinds) <= _SHAPES_BY_SCAN_MAX:
        for kind in kinds:
            yield int(kind), np.flatnonzero(keys == kind)
        return
    order = np.argsort(keys, kind="stable")
    bounds = np.searchsorted(ordered, kinds).tolist()
    for kind, start, end in zip(kinds, bounds, [*bounds[1:], len(keys)], strict=True):
        yield int(kind), order[start:end]


def _length(array: list[int] | None) -> int:
    return ABSENT if array is None else len(array)


# The layouts


@lru_cache(1024)
def _change_template(shape: ChangeShape, delta_bytes: int) -> Template:
    tags: list[list[_Piece]] = []
    if shape.isr != ABSENT:
        tags.append([b"\0", *_sized(_ids("isr", shape.isr))])
    if shape.has_leader:
        tags.append([b"\1", *_sized([("leader", ">i4")])])
    if shape.has_recovery_state:
        tags.append([b"\5", *_sized([("recovery_state", "i1")])])
    tags += _eligible_tags(shape, 6)
    value: list[_Piece] = [
        uvarint(FRAME_VERSION) + uvarint(PartitionChangeRecord.__key__) + uvarint(shape.version),
        ("partition_id", ">i4"),
        ("topic_id", "V16"),
        uvarint(len(tags)),
        *(piece for tag in tags for piece in tag),
    ]
    return Template(_in_batch(value, delta_bytes), delta_bytes)


@lru_cache(1024)
def _partition_template(shape: PartitionShape, delta_bytes: int) -> Template:
    tags: list[list[_Piece]] = []
    if shape.has_recovery_state:
        tags.append([b"\0", *_sized([("recovery_state", "i1")])])
    tags += _eligible_tags(shape, 1)
    value: list[_Piece] = [
        uvarint(FRAME_VERSION) + uvarint(PartitionRecord.__key__) + uvarint(shape.version),
        ("partition_id", ">i4"),
        ("topic_id", "V16"),
        *_ids("replicas", shape.replicas),
        *_ids("isr", shape.isr),
        *_ids("removing", shape.removing),
        *_ids("adding", shape.adding),
        ("leader", ">i4"),
        ("leader_epoch", ">i4"),
        ("partition_epoch", ">i4"),
        *(_ids("directories", shape.directories, "V16") if shape.version >= 1 else ()),
        uvarint(len(tags)),
        *(piece for tag in tags for piece in tag),
    ]
    return Template(_in_batch(value, delta_bytes), delta_bytes)


def _eligible_tags(shape: Shape, first_tag: int) -> list[list[_Piece]]:
    tags: list[list[_Piece]] = []
    if shape.elr != ABSENT:
        tags.append([uvarint(first_tag), *_sized(_ids("elr", shape.elr))])
    if shape.last_known_leader != ABSENT:
        tags.append([uvarint(first_tag + 1), *_sized(_ids("last_known_leader", shape.last_known_leader))])
    return tags


def _ids(name: str, count: int, kind: str = ">i4") -> list[_Piece]:
    return [uvarint(count + 1), (name, kind, (count,))] if count else [uvarint(1)]


def _sized(pieces: Sequence[_Piece]) -> list[_Piece]:
    return [uvarint(_size_bytes(pieces)), *pieces]


def _in_batch(value: Sequence[_Piece], delta_bytes: int) -> list[_Piece]:
    """A value as a record of a batch: at the time of the batch, without key and headers."""
    body: list[_Piece] = [b"\0\0"]
    body += [(f"(delta {at})", "u1") for at in range(delta_bytes)]
    body += [b"\1", uvarint(_size_bytes(value) << 1), *value, b"\0"]
    return [uvarint(_size_bytes(body) << 1), *body]


def _size_bytes(pieces: Sequence[_Piece]) -> int:
    return sum(len(one) if isinstance(one, bytes) else _field_bytes(one) for one in pieces)


def _field_bytes(field: _Field) -> int:
    return np.dtype(field[1]).itemsize * (field[2][0] if len(field) == 3 else 1)


def _joined(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """The same with constants that follow each other made one."""
    constant = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            constant += piece
            continue
        if constant:
            yield constant
            constant = b""
        yield piece
    if constant:
        yield constant


def _powers_of_two(size: int) -> Iterator[tuple[int, int]]:
    """A length cut into as few pieces of 8, 4, 2 and 1 as possible: where each starts, and its size."""
    start = 0
    for piece in (8, 4, 2, 1):
        while size - start >= piece:
            yield start, piece
            start += piece
