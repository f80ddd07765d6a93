"""Batches of the log, and of snapshots, into the image: partition records in bulk, all others one by one.

Bulk is all or nothing. A run of partition records is decoded, looked up and checked before anything is
written; what is unusual in it (a replica that nobody knows, a field that the bulk decoder does not) goes the
ordinary way, one record after the other, which gives the right result or the right error. Where each
partition stands once in a run, the order among them does not matter. A partition that is changed twice makes
the whole run go in order; of one that is described twice, the last description counts.

New partitions usually stand between the records of their topics and of the topics' configurations. These do
not depend on partitions, so they are applied at once, and the partitions of many topics are still one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from quorate.metadata import records as r
from quorate.metadata.blocks import Column
from quorate.metadata.bulk_changes import look_up
from quorate.metadata.creations import Creations
from quorate.metadata.errors import ImageError
from quorate.metadata.log_format import decode_record
from quorate.metadata.partition_records import read_rectangles
from quorate.metadata.record_stream import RecordStream, read_stream
from quorate.protocol.batch import BatchHeader, read_header, records
from quorate.protocol.errors import ErrorCode, ProtocolError
from quorate.protocol.message import Record
from quorate.protocol.types import Buffer

if TYPE_CHECKING:
    from quorate.metadata.image import ClusterImage

__all__ = ["apply_batch", "apply_snapshot"]

_BULK_MIN: Final = 16  # records, below which it is not worth it
_TOGETHER_BYTES: Final = 1 << 20  # batches of a snapshot up to this size are one run: what a cache holds
_OTHERS, _CHANGES, _CREATIONS = range(3)

# What a snapshot may hold: what is, not what happened.
_OF_SNAPSHOTS: Final[tuple[type[Record], ...]] = (
    r.RegisterBrokerRecord,
    r.RegisterControllerRecord,
    r.TopicRecord,
    r.PartitionRecord,
    r.ConfigRecord,
    r.ClientQuotaRecord,
    r.ProducerIdsRecord,
    r.FeatureLevelRecord,
    r.AccessControlEntryRecord,
    r.UserScramCredentialRecord,
    r.DelegationTokenRecord,
    r.ZkMigrationStateRecord,
    r.NoOpRecord,
)


def apply_batch(image: ClusterImage, batch: Buffer) -> None:
    """One more batch of the log."""
    header = read_header(batch)
    if header.is_control:
        return
    stream = read_stream([batch], [header]) if header.record_count >= _BULK_MIN else None
    if stream is None:
        for record in records(batch, header):
            _apply_value(image, record.value or b"", record.offset)
        return
    kinds = stream.kinds()
    for group, at in _runs(kinds):
        if group == _OTHERS or len(at) < _BULK_MIN or image.is_in_transaction:
            _apply_each(image, stream, at)
        elif group == _CHANGES:
            _apply_changes(image, stream, at)
        else:
            _apply_creations(image, stream, at, kinds[at] == r.PartitionRecord.__key__)


def apply_snapshot(image: ClusterImage, batches: Iterable[Buffer], last_contained_offset: int) -> None:
    """The records of a snapshot. Their own offsets mean nothing."""
    creations = Creations(image.topics, image.partitions)
    place = 0  # of the first record among all
    for some, headers in _together(batches):
        stream = read_stream(some, headers)
        if stream is None:
            for batch, header in zip(some, headers, strict=True):
                records(batch, header)  # says what is wrong
            raise ImageError(f"a snapshot up to {last_contained_offset} with offsets missing in a batch")
        is_partition = stream.kinds() == r.PartitionRecord.__key__
        for at in np.flatnonzero(~is_partition).tolist():
            record = _decoded(stream.value(at))
            if not isinstance(record, (*_OF_SNAPSHOTS, _Unknown)):
                name = type(record).__name__
                raise ImageError(f"a snapshot with a {name}, which says what happened and not what is")
            _apply_between(image, creations, record, last_contained_offset, place + at)
        _gather(creations, stream, np.flatnonzero(is_partition), place)
        place += len(stream)
    _put(image, creations)


def _runs(kinds: Column) -> Iterator[tuple[int, Column]]:
    """The records in groups that can be applied together, in their order."""
    groups = np.full(len(kinds), _OTHERS, np.uint8)
    groups[kinds == r.PartitionChangeRecord.__key__] = _CHANGES
    for kind in (r.PartitionRecord, r.TopicRecord, r.ConfigRecord):
        groups[kinds == kind.__key__] = _CREATIONS
    bounds = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    for start, end in zip([0, *bounds.tolist()], [*bounds.tolist(), len(kinds)], strict=True):
        yield int(groups[start]), np.arange(start, end)


def _together(batches: Iterable[Buffer]) -> Iterator[tuple[list[Buffer], list[BatchHeader]]]:
    """Batches with records, as many at a time as are worth it: some writers put only a thousand in each."""
    some: list[Buffer] = []
    headers: list[BatchHeader] = []
    size_bytes = 0
    for batch in batches:
        header = read_header(batch)
        if header.is_control or not header.record_count:
            continue
        some.append(batch)
        headers.append(header)
        size_bytes += header.size_bytes
        if size_bytes >= _TOGETHER_BYTES:
            yield some, headers
            some, headers, size_bytes = [], [], 0
    if some:
        yield some, headers


# One by one


def _apply_each(image: ClusterImage, stream: RecordStream, at: Column) -> None:
    for one in at.tolist():
        _apply_value(image, stream.value(one), int(stream.offsets[one]))


def _apply_value(image: ClusterImage, value: bytes, offset: int) -> None:
    record = _decoded(value)
    if isinstance(record, _Unknown):
        image.apply_unknown(*record)
    else:
        image.apply(record, offset)


class _Unknown(NamedTuple):
    """A record of a kind, or a version, that we do not know."""

    value: bytes
    reason: ProtocolError


def _decoded(value: bytes) -> Record | _Unknown:
    try:
        return decode_record(value)[0]
    except ProtocolError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise ImageError(f"a record that is not one: {error}") from error
        return _Unknown(value, error)


# In bulk


def _apply_changes(image: ClusterImage, stream: RecordStream, at: Column) -> None:
    rectangles, rest = read_rectangles(stream, at)
    others = [record for one in rest.tolist() if (record := _change_at(stream, one)) is not None]
    changes = look_up(image.topics, image.partitions, rectangles, others)
    if changes is None:
        _apply_each(image, stream, at)
        return
    for one in changes:
        image.change_partitions(one)
    _apply_each(image, stream, rest)


def _change_at(stream: RecordStream, at: int) -> r.PartitionChangeRecord | None:
    try:
        record = decode_record(stream.value(at))[0]
    except ProtocolError:
        return None  # of a version that we do not know, or damaged: it shows when it is applied
    return record if isinstance(record, r.PartitionChangeRecord) else None


def _apply_creations(image: ClusterImage, stream: RecordStream, at: Column, is_partition: Column) -> None:
    creations = Creations(image.topics, image.partitions)
    for one in at[~is_partition].tolist():
        _apply_between(image, creations, _decoded(stream.value(one)), int(stream.offsets[one]), one)
    _gather(creations, stream, at[is_partition], 0)
    _put(image, creations)


def _apply_between(
    image: ClusterImage, creations: Creations, record: Record | _Unknown, offset: int, place: int
) -> None:
    """Applies a record that stands between those of new partitions."""
    if isinstance(record, _Unknown):
        creations.unknown.append((place, *record))
    elif isinstance(record, r.PartitionRecord):
        creations.add(record, place)
    else:
        image.apply(record, offset)
        if isinstance(record, r.TopicRecord):
            creations.note_topic(image.topics.by_id[record.topic_id].slot, place)


def _gather(creations: Creations, stream: RecordStream, at: Column, first_place: int) -> None:
    rectangles, rest = read_rectangles(stream, at)
    unusual = [one.at for one in rectangles if not creations.add_rectangle(one, one.at + first_place)]
    for one in np.sort(np.concatenate([rest, *unusual])).tolist():
        record = _decoded(stream.value(one))
        if isinstance(record, _Unknown):
            creations.unknown.append((one + first_place, *record))
        else:
            assert isinstance(record, r.PartitionRecord)
            creations.add(record, one + first_place)


def _put(image: ClusterImage, creations: Creations) -> None:
    for _, value, reason in sorted(creations.unknown, key=itemgetter(0)):
        image.apply_unknown(value, reason)
    slots, partition_ids = creations.put()
    if image.touched is not None and len(slots):
        image.touched.note_partitions(image.topics.ids[slots], partition_ids)
