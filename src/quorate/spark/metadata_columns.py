"""Batches of the metadata log as rows of the table `records`, without Spark: bytes in, Arrow out.

What there is much of is never an object: partition records and their changes are read as rectangles of bytes
(`quorate.metadata.partition_records`), and become columns and JSON by operations on whole columns; so do the
changes of registrations (`broker_columns`). The others
are decoded one by one, but each distinct value only once: a log is full of `NoOpRecord`, and brokers that
come and go say the same again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.metadata.errors import ImageError
from quorate.metadata.partition_records import read_rectangles
from quorate.metadata.record_stream import UNCLEAR, RecordStream, read_stream
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from quorate.protocol.batch import BatchHeader, ControlType, batches, control_type, records, validate
from quorate.protocol.codec import decode
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer
from quorate.raft.records import SnapshotHeaderRecord
from quorate.spark.broker_columns import registration_changes
from quorate.spark.metadata_rows import (
    MALFORMED,
    UNKNOWN,
    Row,
    malformed,
    row_of_control,
    row_of_value,
    type_name,
)
from quorate.spark.partition_columns import rectangle_columns
from quorate.spark.schemas import RECORDS, arrow_schema

__all__ = [
    "LOG",
    "LOSS",
    "RETENTION",
    "SNAPSHOT",
    "Place",
    "decode_batches",
    "record_batch",
    "snapshot_time_ms",
]

LOG: Final = "log"
SNAPSHOT: Final = "snapshot"
LOSS: Final = "loss"
RETENTION: Final = "retention"

ARROW_RECORDS: Final = arrow_schema(RECORDS)
_SAID: Final = pa.schema([ARROW_RECORDS.field(name) for name in Row._fields])
_HOT: Final = {one.__key__: one.__name__ for one in (PartitionRecord, PartitionChangeRecord)}
_KEY_BITS: Final = 32

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where batches come from, what is to be said of all their rows, and which rows are wanted.

    A snapshot stands for everything up to `snapshot_offset`.
    """

    cluster_id: str
    is_confirmed: bool = True
    snapshot_offset: int | None = None
    snapshot_ts_ms: int = -1  # of the last record that it stands for, if it is known
    expected_offset: int | None = None  # of the first record, if no offsets are missing before it
    gap: str = LOSS  # what to say if it has another one, or of a snapshot
    first_offset: int = 0
    end_offset: int | None = None
    types: frozenset[str] | None = None  # None for all


def record_batch(
    cluster_id: str,
    data: Buffer,
    *,
    is_confirmed: bool = True,
    snapshot_offset: int | None = None,
    types: Iterable[str] | None = None,
) -> pa.RecordBatch:
    """The rows of one or more batches that follow each other in a buffer, checksums checked.

    >>> from quorate.metadata.log_format import encode_record
    >>> from quorate.metadata.records import TopicRecord
    >>> from quorate.protocol.batch import Record, build
    >>> from quorate.protocol.types import Uuid
    >>> value = encode_record(TopicRecord(name="orders", topic_id=Uuid(bytes(16))), 0)
    >>> batch = build([Record(7, 1_000, None, value)], base_offset=7, leader_epoch=2)
    >>> row = record_batch("c1", batch).to_pylist()[0]
    >>> row["offset"], row["epoch"], row["type"], row["topic"]
    (7, 2, 'TopicRecord', 'orders')
    """
    headers = [validate(data, header.position) for header in batches(data)]
    is_snapshot = snapshot_offset is not None
    place = Place(
        cluster_id=cluster_id,
        is_confirmed=is_confirmed,
        snapshot_offset=snapshot_offset,
        snapshot_ts_ms=snapshot_time_ms(data, headers[0]) if is_snapshot and headers else -1,
        gap=RETENTION if is_snapshot else LOSS,
        types=None if types is None else frozenset(types),
    )
    return decode_batches([data] * len(headers), headers, place)


def decode_batches(buffers: Sequence[Buffer], headers: Sequence[BatchHeader], place: Place) -> pa.RecordBatch:
    """The rows of these batches, each in its buffer, whose checksums are known to be right."""
    parts = [part for part in _parts(buffers, headers, place) if len(part.keys)]
    if not parts:
        return pa.RecordBatch.from_pylist([], ARROW_RECORDS)
    keys = np.concatenate([part.keys for part in parts])
    offsets = np.concatenate([part.offsets for part in parts])
    said = pa.Table.from_batches([part.said for part in parts], _SAID).combine_chunks()
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        keys, offsets, said = keys[order], offsets[order], said.take(pa.array(order))
    return _with_envelope(keys, offsets, said, headers, place)


def snapshot_time_ms(buffer: Buffer, header: BatchHeader) -> int:
    """Of the last record that a snapshot stands for, from its first batch; -1 if it does not say."""
    try:
        for record in records(buffer, header) if header.is_control else ():
            if control_type(record) is ControlType.SNAPSHOT_HEADER:
                return decode(SnapshotHeaderRecord, 0, record.value or b"").last_contained_log_timestamp
    except ApiError:
        pass  # the row of that record says what is wrong with it
    return -1


# What the records say


class _Part(NamedTuple):
    """Some rows. A key is the number of the batch, and in its lower half the place in the batch."""

    keys: Int64s
    offsets: Int64s
    said: pa.RecordBatch


def _parts(buffers: Sequence[Buffer], headers: Sequence[BatchHeader], place: Place) -> Iterator[_Part]:
    dense = [at for at, header in enumerate(headers) if _is_dense(header)]
    yield from _stream_parts(buffers, headers, dense, place)
    for at in sorted(set(range(len(headers))) - set(dense)):
        yield _part_one_by_one(buffers[at], headers[at], at, place)


def _is_dense(header: BatchHeader) -> bool:
    return not header.is_control and header.record_count == header.last_offset_delta + 1


def _stream_parts(
    buffers: Sequence[Buffer], headers: Sequence[BatchHeader], numbers: Sequence[int], place: Place
) -> Iterator[_Part]:
    """The batches of these numbers, in bulk if they can be read so, or else each by itself."""
    if not numbers:
        return
    try:
        stream = read_stream([buffers[at] for at in numbers], [headers[at] for at in numbers])
    except ApiError:
        stream = None
    if stream is not None:
        counts = [headers[at].record_count for at in numbers]
        keys = (np.repeat(np.array(numbers, np.int64), counts) << _KEY_BITS) | stream.deltas
        yield from _parts_of_stream(stream, keys, place)
    elif len(numbers) > 1:
        for at in numbers:
            yield from _stream_parts(buffers, headers, [at], place)
    else:
        yield _part_one_by_one(buffers[numbers[0]], headers[numbers[0]], numbers[0], place)


def _parts_of_stream(stream: RecordStream, keys: Int64s, place: Place) -> Iterator[_Part]:
    kinds, starts, ends = stream.plain_values()
    is_left = _is_wanted(stream.offsets, place)
    for key, name in _HOT.items():
        at = np.flatnonzero(is_left & (kinds == key))
        is_left[at] = False
        if len(at) and _may_be_wanted(name, place):
            rectangles, others = read_rectangles(stream, at)
            is_left[others] = True
            for found in rectangles if place.types is None or name in place.types else ():
                said = pa.RecordBatch.from_pydict(rectangle_columns(found), _SAID)
                yield _Part(keys[found.at], stream.offsets[found.at], said)
    at = np.flatnonzero(is_left & (kinds == BrokerRegistrationChangeRecord.__key__))
    if len(at) and (place.types is None or BrokerRegistrationChangeRecord.__name__ in place.types):
        for alike in registration_changes(stream.data, at, starts[at], ends[at]):
            is_left[alike.at] = False
            said = pa.RecordBatch.from_pydict(alike.columns, _SAID)
            yield _Part(keys[alike.at], stream.offsets[alike.at], said)
    if place.types is not None:
        for kind in np.unique(kinds[is_left]).tolist():
            if not _may_be_wanted(type_name(kind), place):
                is_left &= kinds != kind
    at = np.flatnonzero(is_left)
    if len(at):
        values = _values(stream, at, kinds, starts, ends)
        yield _part_of_distinct(values, keys[at], stream.offsets[at], place)


def _may_be_wanted(name: str | None, place: Place) -> bool:
    """Whether a record that seems to be of this type, or of one that is not known, may be wanted: it may turn
    out to be of a version that is not known, or not to be one at all."""
    return place.types is None or name is None or bool(place.types & {name, UNKNOWN, MALFORMED})


def _values(
    stream: RecordStream, at: Int64s, kinds: Int64s, starts: Int64s, ends: Int64s
) -> list[bytes | Row]:
    """The values of some records; of one that cannot be read, what there is to say of it."""
    data = stream.data
    found: list[bytes | Row] = [
        data[start:end] for start, end in zip(starts[at].tolist(), ends[at].tolist(), strict=True)
    ]
    for place in np.flatnonzero(kinds[at] == UNCLEAR).tolist():
        one = int(at[place])
        try:
            found[place] = stream.value(one)
        except ImageError as error:
            found[place] = malformed(str(error), data[int(stream.starts[one]) : int(stream.ends[one])])
    return found


def _part_of_distinct(values: Sequence[bytes | Row], keys: Int64s, offsets: Int64s, place: Place) -> _Part:
    numbers: dict[bytes | Row, int] = {}
    number_of = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
    rows = [value if isinstance(value, tuple) else row_of_value(value) for value in numbers]
    if place.types is not None:
        is_wanted = np.array([row.type in place.types for row in rows], np.bool_)[number_of]
        number_of, keys, offsets = number_of[is_wanted], keys[is_wanted], offsets[is_wanted]
    return _Part(keys, offsets, _said(rows).take(pa.array(number_of)))


def _part_one_by_one(buffer: Buffer, header: BatchHeader, number: int, place: Place) -> _Part:
    """Control records, and whatever is not as batches of the metadata log are."""
    try:
        stored = records(buffer, header)
    except ApiError as error:
        raw = memoryview(buffer)[header.position : header.end]
        found = [(header.base_offset, malformed(error.message, raw))]
    else:
        row_of = row_of_control if header.is_control else lambda one: row_of_value(one.value or b"")
        found = [(one.offset, row_of(one)) for one in stored]
    offsets = np.array([offset for offset, _ in found], np.int64)
    is_wanted = _is_wanted(offsets, place)
    if place.types is not None:
        is_wanted &= np.array([row.type in place.types for _, row in found], np.bool_)
    at = np.flatnonzero(is_wanted)
    keys = (np.int64(number) << _KEY_BITS) | at.astype(np.int64)
    return _Part(keys, offsets[at], _said([found[one][1] for one in at.tolist()]))


def _is_wanted(offsets: Int64s, place: Place) -> NDArray[np.bool_]:
    is_wanted = np.ones(len(offsets), np.bool_)
    if place.snapshot_offset is None:
        is_wanted &= offsets >= place.first_offset
        if place.end_offset is not None:
            is_wanted &= offsets < place.end_offset
    return is_wanted


def _said(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(_SAID)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, _SAID, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SAID)


# What is to be said of them


def _with_envelope(
    keys: Int64s, offsets: Int64s, said: pa.Table, headers: Sequence[BatchHeader], place: Place
) -> pa.RecordBatch:
    count = len(keys)
    number = keys >> _KEY_BITS
    times_ms = np.array([header.max_timestamp for header in headers], np.int64)[number]
    epochs = np.array([header.partition_leader_epoch for header in headers], np.int32)[number]
    positions = np.zeros(count, np.int32)
    if place.snapshot_offset is not None:
        positions = offsets.astype(np.int32)
        offsets = np.full(count, place.snapshot_offset, np.int64)
        if place.snapshot_ts_ms >= 0:
            times_ms = np.full(count, place.snapshot_ts_ms, np.int64)
        gaps = _snapshot_gaps(positions, place)
    else:
        gaps = _gaps(keys, headers, place)
    columns = {
        "cluster_id": pa.repeat(pa.scalar(place.cluster_id), count),
        "origin": pa.repeat(pa.scalar(LOG if place.snapshot_offset is None else SNAPSHOT), count),
        "offset": pa.array(offsets),
        "position": pa.array(positions),
        "epoch": pa.array(epochs),
        "ts": pa.array(times_ms * 1000, pa.int64(), mask=times_ms < 0).cast(ARROW_RECORDS.field("ts").type),
        "is_confirmed": pa.repeat(pa.scalar(place.is_confirmed), count),
        "gap": gaps,
    }
    for name in Row._fields:
        columns[name] = said.column(name).combine_chunks()
    return pa.RecordBatch.from_arrays([columns[one.name] for one in ARROW_RECORDS], schema=ARROW_RECORDS)


def _snapshot_gaps(positions: NDArray[np.int32], place: Place) -> pa.Array:
    """What a snapshot stands for is not there itself; its first row says so."""
    assert place.snapshot_offset is not None
    is_first = (positions == 0) & (place.snapshot_offset >= 0)
    return pa.array([place.gap] * len(positions), pa.string(), mask=~is_first)


def _gaps(keys: Int64s, headers: Sequence[BatchHeader], place: Place) -> pa.Array:
    """Of the first record after offsets that are missing, why they are."""
    labels: dict[int, str] = {}
    expected_offset = place.expected_offset
    for number, header in enumerate(headers):
        if expected_offset is not None and header.base_offset > expected_offset:
            labels[number << _KEY_BITS] = LOSS if number else place.gap
        expected_offset = header.next_offset
    gaps = pa.nulls(len(keys), pa.string())
    if not labels:
        return gaps
    texts = [labels.get(key) for key in keys.tolist()]
    return pa.array(texts, pa.string())
