"""Many partition records at once: out of the bytes of batches, into columns.

The first record says which shape to look for. Of the records that are as long, those whose bytes agree with
its template are a rectangle, and all their fields are read together. Then comes the first of those that are
left, until there are none or too many shapes have been seen; what remains then, and what has no shape, is
left to the ordinary decoder. A template fixes every byte that is not a field, so a record is read here
exactly as the ordinary decoder reads it, or not at all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quorate.metadata.blocks import Column
from quorate.metadata.log_format import decode_record
from quorate.metadata.record_stream import RecordStream
from quorate.metadata.records import PartitionChangeRecord, PartitionRecord
from quorate.metadata.shapes import Shape, Template, delta_size_bytes, shape_of
from quorate.protocol.errors import ProtocolError

__all__ = ["Rectangle", "positions_among", "read_rectangles"]

_SHAPES_MAX: Final = 64


class Rectangle(NamedTuple):
    """Records of one shape: which of the stream they are, and their rows, whose fields are columns."""

    shape: Shape
    at: Column
    rows: Column

    def part(self, some: Column) -> Rectangle:
        """Some of them."""
        return Rectangle(self.shape, self.at[some], self.rows[some])

    def ids(self, name: str) -> Column:
        """An array of broker ids that each record has, as a matrix."""
        if name not in (self.rows.dtype.names or ()):
            return np.zeros((len(self.rows), 0), np.int32)
        return self.rows[name].astype(np.int32)

    def numbers(self, name: str, absent: int) -> Column:
        """A number that each record has, or what stands for its absence."""
        if name not in (self.rows.dtype.names or ()):
            return np.full(len(self.rows), absent, np.int32)
        return self.rows[name].astype(np.int32)

    @property
    def topic_ids(self) -> Column:
        return np.ascontiguousarray(self.rows["topic_id"])

    @property
    def last_known_leader(self) -> Column:
        """-2 where it does not change, -1 where it is forgotten."""
        length = self.shape.last_known_leader
        if length > 0:
            return self.ids("last_known_leader")[:, 0]
        return np.full(len(self.rows), -1 if length == 0 else -2, np.int32)


def read_rectangles(stream: RecordStream, at: Column) -> tuple[list[Rectangle], Column]:
    """Of some records of a stream, which seem to be partition records of one kind, those that are rows of
    rectangles, and the others."""
    sizes = stream.ends - stream.starts
    found: list[Rectangle] = []
    single: list[int] = []
    left = at
    for _ in range(_SHAPES_MAX):
        if not len(left):
            break
        first = int(left[0])
        shape = _shape_at(stream, first)
        is_taken = np.zeros(len(left), np.bool_)
        if shape is not None:
            template = shape.template(delta_size_bytes(int(stream.deltas[first])))
            candidates = np.flatnonzero(sizes[left] == template.row_bytes)
        if shape is not None and len(candidates):  # a damaged record may be longer than what it says
            rows = _rows_at(stream, left[candidates], template)
            is_match = template.matching(rows, stream.deltas[left[candidates]])
            is_taken[candidates[is_match]] = True
            if is_taken[0]:
                found.append(Rectangle(shape, left[is_taken], rows if is_match.all() else rows[is_match]))
        if not is_taken[0]:
            single.append(first)
            is_taken[:] = False
            is_taken[0] = True
        left = left[~is_taken]
    return found, np.concatenate([np.array(single, np.int64), left])


def positions_among(replicas: Column, ids: Column) -> tuple[Column, bool]:
    """Ids as bits over the columns of the replicas; and whether all of them are among the replicas."""
    width = replicas.shape[1]
    if ids.shape == replicas.shape and np.array_equal(ids, replicas) and _are_distinct(replicas):
        return np.full(len(ids), (1 << width) - 1, np.uint64), True
    bits = np.zeros(len(ids), np.uint64)
    are_known = not (ids < 0).any()  # which would be found where there is no replica
    for column in range(ids.shape[1]):
        bit = np.zeros(len(ids), np.uint64)
        for position in range(width - 1, -1, -1):  # backwards: of two that are the same, the first counts
            bit[ids[:, column] == replicas[:, position]] = 1 << position
        are_known = are_known and bool(bit.all())
        bits |= bit
    return bits, are_known


def _are_distinct(replicas: Column) -> bool:
    width = replicas.shape[1]
    return not any(
        (replicas[:, one] == replicas[:, other]).any() for one in range(width) for other in range(one)
    )


def _shape_at(stream: RecordStream, at: int) -> Shape | None:
    try:
        record, version = decode_record(stream.value(at))
    except ProtocolError:
        return None
    if isinstance(record, (PartitionRecord, PartitionChangeRecord)):
        return shape_of(record, version)
    return None


def _rows_at(stream: RecordStream, at: Column, template: Template) -> Column:
    """The bytes of some records that are as long as the rows of a template."""
    size, starts = template.row_bytes, stream.starts[at]
    first, last = int(starts[0]), int(starts[-1])
    if last - first == size * (len(at) - 1) and (starts[1:] - starts[:-1] == size).all():
        return np.frombuffer(stream.data, template.row_type, len(at), first)
    # Rows that begin at every byte; taking those that begin where a record does copies them as they are.
    every = np.ndarray((len(stream.data) - size + 1,), f"V{size}", stream.data, 0, (1,))
    return every[starts].view(template.row_type)
