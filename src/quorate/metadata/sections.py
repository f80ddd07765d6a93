"""Records on their way into the log: the record sections of batches, encoded in bulk where it pays.

A section is what follows the header of a batch: records with offset deltas 0, 1, 2, ... all of one time.
`protocol.batch.build_encoded` makes a batch of one. Changes of many partitions are sorted by their shapes and
written rectangle by rectangle (`shapes`), since among changes of different partitions the order is free. The
bytes are those that the ordinary encoder gives for the same records in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from quorate.metadata.blocks import Column
from quorate.metadata.log_format import encode_record
from quorate.metadata.partition_changes import NO_CHANGE, UNCHANGED_STATE, PartitionChanges
from quorate.metadata.records import PartitionChangeRecord
from quorate.metadata.shapes import ABSENT, ChangeShape, Shape, delta_size_bytes, grouped
from quorate.metadata.versions import ELR, record_version, version_of
from quorate.protocol import record as in_batch
from quorate.protocol.message import Record

__all__ = ["RECORDS_MAX", "SECTION_BYTES_MAX", "Section", "SectionBuilder", "chosen_ids", "encode_sections"]

RECORDS_MAX: Final = 10_000
SECTION_BYTES_MAX: Final = (8 << 20) - 1024  # with its header, a batch stays within what raft appends
_BUFFER_BYTES_MIN: Final = 4096
_DELTA_GROWS_AT: Final = (64, 8192, 1 << 20, 1 << 27)


class Section(NamedTuple):
    """The records of one batch: how many, and their bytes."""

    count: int  # type: ignore[assignment]  # nobody counts the items of this tuple
    data: bytes


def encode_sections(
    changes: Iterable[Record | PartitionChanges],
    metadata_version: int,
    *,
    records_max: int = RECORDS_MAX,
    bytes_max: int = SECTION_BYTES_MAX,
) -> list[Section]:
    """The sections of as many batches as the limits ask for; a record larger than the limit stands alone."""
    builder = SectionBuilder(records_max, bytes_max)
    for change in changes:
        if not isinstance(change, PartitionChanges):
            builder.add(encode_record(change, version_of(change, metadata_version)))
        elif metadata_version < ELR and _says_who_is_eligible(change):
            for one in change.records():  # raises, and names the field
                builder.add(encode_record(one, version_of(one, metadata_version)))
        else:
            for shape, columns in _shaped(change, metadata_version):
                builder.add_rows(shape, columns)
    return builder.finish()


class SectionBuilder:
    """Puts records into sections, one by one or as rows of a shape."""

    __slots__ = ("_bytes_max", "_count", "_data", "_records_max", "_sections", "_size_bytes")

    def __init__(self, records_max: int = RECORDS_MAX, bytes_max: int = SECTION_BYTES_MAX) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._sections: list[Section] = []
        self._data = bytearray(_BUFFER_BYTES_MIN)  # kept from section to section: new memory is slow
        self._count = 0
        self._size_bytes = 0

    def add(self, value: bytes) -> None:
        """One record."""
        data = in_batch.encode_record(in_batch.Record(self._count, 0, None, value), 0, 0)
        if self._count and (
            self._count == self._records_max or self._size_bytes + len(data) > self._bytes_max
        ):
            self.cut()
            data = in_batch.encode_record(in_batch.Record(0, 0, None, value), 0, 0)
        position = self._take(len(data), 1)
        self._data[position : position + len(data)] = data

    def add_rows(self, shape: Shape, columns: Mapping[str, Column]) -> None:
        """A record for each row of the columns, which are the fields that the shape has."""
        total = len(columns["partition_id"])
        start = 0
        while start < total:
            template = shape.template(delta_size_bytes(self._count))
            room = min(
                self._records_max - self._count,
                (self._bytes_max - self._size_bytes) // template.row_bytes,
                next(limit for limit in _DELTA_GROWS_AT if limit > self._count) - self._count,
            )
            if room <= 0 and self._count:
                self.cut()
                continue
            count = min(max(room, 1), total - start)
            some = {name: column[start : start + count] for name, column in columns.items()}
            first_delta, position = self._count, self._take(count * template.row_bytes, count)
            template.encode(some, first_delta, count, self._data, position)
            start += count

    def cut(self) -> None:
        """Ends the section, so that what follows begins another."""
        if self._count:
            with memoryview(self._data) as data:
                self._sections.append(Section(self._count, bytes(data[: self._size_bytes])))
            self._count = self._size_bytes = 0

    def finish(self) -> list[Section]:
        self.cut()
        return self._sections

    def _take(self, size_bytes: int, count: int) -> int:
        """The position of so many more bytes, for so many more records."""
        position = self._size_bytes
        self._size_bytes += size_bytes
        self._count += count
        if self._size_bytes > len(self._data):
            self._data += bytes(max(len(self._data), self._size_bytes - len(self._data)))
        return position


def chosen_ids(replicas: Column, masks: Column, count: int) -> Column:
    """Of every row of replicas those at the positions of the bits, of which there are `count` in each.

    >>> chosen_ids(np.array([[7, 5, 9], [1, 2, 3]]), np.array([5, 3], np.uint8), 2).tolist()
    [[7, 9], [1, 2]]
    """
    width = replicas.shape[1]
    if count == width:
        return replicas
    bits = masks[:, None] >> np.arange(width, dtype=masks.dtype) & 1
    found: Column = replicas[bits != 0].reshape(len(replicas), count)
    return found


def _says_who_is_eligible(changes: PartitionChanges) -> bool:
    return bool(changes.has_elr.any() or (changes.last_known_leader != NO_CHANGE).any())


def _shaped(
    changes: PartitionChanges, metadata_version: int
) -> Iterator[tuple[ChangeShape, dict[str, Column]]]:
    """The changes by shape: the fields of those that have it."""
    version = record_version(PartitionChangeRecord, metadata_version)
    isr = _counts(changes.isr, changes.has_isr)
    elr = _counts(changes.elr, changes.has_elr)
    has_leader = changes.leader != NO_CHANGE
    has_state = changes.recovery_state != UNCHANGED_STATE
    last_known = np.where(
        changes.last_known_leader == NO_CHANGE, ABSENT, changes.last_known_leader >= 0
    ).astype(np.int64)
    keys = (((isr + 1) * 128 + elr + 1) * 4 + last_known + 1) * 4 + has_leader * 2 + has_state
    for _, index in grouped(keys):
        first = index[0]
        shape = ChangeShape(
            version=version,
            isr=int(isr[first]),
            has_leader=bool(has_leader[first]),
            has_recovery_state=bool(has_state[first]),
            elr=int(elr[first]),
            last_known_leader=int(last_known[first]),
        )
        yield shape, _fields(changes, shape, index)


def _counts(masks: Column, counts: Column) -> Column:
    return np.where(counts, np.bitwise_count(masks).astype(np.int64), ABSENT)


def _fields(changes: PartitionChanges, shape: ChangeShape, index: Column) -> dict[str, Column]:
    columns = {"partition_id": changes.partition_ids[index], "topic_id": changes.topic_ids[index]}
    if shape.isr > 0:
        columns["isr"] = chosen_ids(changes.replicas[index], changes.isr[index], shape.isr)
    if shape.has_leader:
        columns["leader"] = changes.leader[index]
    if shape.has_recovery_state:
        columns["recovery_state"] = changes.recovery_state[index]
    if shape.elr > 0:
        columns["elr"] = chosen_ids(changes.replicas[index], changes.elr[index], shape.elr)
    if shape.last_known_leader > 0:
        columns["last_known_leader"] = changes.last_known_leader[index][:, None]
    return columns
