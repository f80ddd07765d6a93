"""Rows become record batches: from Arrow columns to the bytes that a broker stores, all records at once.

The parts of a record that are numbers (its length, its place in the batch, the lengths of its fields) are
written for all records as a table of bytes of which only some count. Arrow then joins, record by record and
in C++, those parts with the keys, values and headers as they are. What comes out is one buffer in which the
records stand one after the other; a batch is a slice of it behind a header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.client.metadata import TopicPartition
from quorate.protocol.batch import build_encoded
from quorate.protocol.compression import Codec

__all__ = ["Encoded", "Encoder", "UnknownTopicError", "murmur2_of_all"]

# How much is collected before it is cut into batches: with many partitions, little of it is for each.
_GATHER_BYTES: Final = 8 << 20
_GATHER_ROWS: Final = 200_000
# What a record has besides its fields, at most.
_RECORD_OVERHEAD_BYTES: Final = 30
_VARINT_BYTES_MAX: Final = 5

_Ints = NDArray[np.int64]


class UnknownTopicError(LookupError):
    """Topics that rows are for, and whose partitions are not known."""

    def __init__(self, topics: list[str]) -> None:
        super().__init__(f"nothing is known of {', '.join(topics)}")


def _refuse(topics: list[str]) -> NoReturn:
    raise UnknownTopicError(topics)


class Encoded(NamedTuple):
    """A batch that has no producer yet."""

    at: TopicPartition
    rows: int
    data: bytearray


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns the rows of one task into batches; `partitions` says how many each topic has, and `learn` adds
    those of topics that come up.

    Rows with a partition go there, rows with a key where Kafka's own clients would send them, and the others
    are dealt out in runs, beginning at another partition in each task. Rows for one partition keep their
    order.
    """

    partitions: Mapping[str, int]
    topic: str | None  # where all rows go, or None if they say it themselves
    codec: Codec
    batch_bytes_max: int
    turn: int
    learn: Callable[[list[str]], None] = _refuse

    def encode(self, rows: Iterator[pa.RecordBatch], now_ms: int) -> Iterator[Encoded]:
        for number, table in enumerate(_gathered(rows)):
            yield from self._encode(table, self.turn + number, now_ms)

    def _encode(self, rows: pa.RecordBatch, turn: int, now_ms: int) -> Iterator[Encoded]:
        columns = _Columns.of(rows)
        topics, codes = self._topics(rows, columns.count)
        partitions = self._partitions(rows, columns, topics, codes, turn)
        target = codes.astype(np.int64) << 32 | partitions
        if (target[1:] < target[:-1]).any():
            order = np.argsort(target, kind="stable")
            columns, target = columns.take(order), target[order]
        begins = _cut(target, columns.sizes() + _RECORD_OVERHEAD_BYTES, self.batch_bytes_max)
        ends = np.append(begins[1:], columns.count)
        deltas = np.arange(columns.count) - np.repeat(begins, ends - begins)
        offsets, data = columns.joined(deltas)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            at = TopicPartition(topics[target[begin] >> 32], int(target[begin] & 0xFFFFFFFF))
            section = data[int(offsets[begin]) : int(offsets[end])]
            batch = build_encoded(
                section, end - begin, base_offset=0, leader_epoch=-1, timestamp=now_ms, codec=self.codec
            )
            yield Encoded(at, end - begin, batch)

    def _topics(self, rows: pa.RecordBatch, count: int) -> tuple[list[str], NDArray[np.int32]]:
        if self.topic is not None:
            return [self.topic], np.zeros(count, np.int32)
        column = rows.column("topic")
        if column.null_count:
            raise ValueError("a row has no topic: its column topic is null, and there is no option topic")
        coded = column.dictionary_encode()
        topics = coded.dictionary.to_pylist()
        unknown = sorted(set(topics) - set(self.partitions))
        if unknown:
            self.learn(unknown)
        return topics, coded.indices.to_numpy()

    def _partitions(
        self, rows: pa.RecordBatch, columns: _Columns, topics: list[str], codes: NDArray[np.int32], turn: int
    ) -> _Ints:
        count = np.array([self.partitions[topic] for topic in topics], np.int64)[codes]
        chosen = (np.arange(columns.count) * count // max(1, columns.count) + turn) % count
        if columns.key is not None:
            has_key = ~np.asarray(columns.key.is_null())
            starts, ends = _bounds(columns.key)
            raw = _bytes_of(columns.key)
            hashes = murmur2_of_all(raw, starts[has_key], ends[has_key])
            chosen[has_key] = (hashes & 0x7FFFFFFF).astype(np.int64) % count[has_key]
        if "partition" in rows.schema.names:
            column = rows.column("partition")
            given = column.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            says = np.asarray(column.is_valid())
            wrong = says & ((given < 0) | (given >= count))
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                topic = topics[codes[row]]
                there_are = f"{topic!r} has {count[row]} partitions"
                raise ValueError(f"a row is for partition {given[row]}, but {there_are}")
            chosen = np.where(says, given, chosen)
        return chosen


@dataclass(frozen=True, slots=True)
class _Columns:
    """What goes into a record. Without keys or headers there is no column for them."""

    count: int
    key: Any
    value: Any
    headers: Any  # the bytes of each record's headers, their number before them

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> _Columns:
        names = rows.schema.names
        key = _binary(rows.column("key")) if "key" in names else None
        headers = rows.column("headers") if "headers" in names else None
        return cls(
            rows.num_rows,
            None if key is None or key.null_count == len(key) else key,
            _binary(rows.column("value")),
            None if headers is None or headers.null_count == len(headers) else encoded_headers(headers),
        )

    def take(self, order: _Ints) -> _Columns:
        index = pa.array(order)
        key, headers = (None if one is None else one.take(index) for one in (self.key, self.headers))
        return _Columns(self.count, key, self.value.take(index), headers)

    def sizes(self) -> _Ints:
        total = np.zeros(self.count, np.int64)
        for column in (self.key, self.value, self.headers):
            if column is not None:
                starts, ends = _bounds(column)
                total += ends - starts
        return total

    def joined(self, offset_delta: _Ints) -> tuple[NDArray[np.int32], memoryview]:
        """All records one after the other, and where each begins."""
        key_length = _lengths(self.key, self.count)
        value_length = _lengths(self.value, self.count)
        place, place_width = _varints(offset_delta)
        key_bytes, key_width = _varints(key_length)
        value_bytes, value_width = _varints(value_length)
        headers_length = 1 if self.headers is None else _lengths(self.headers, self.count)
        body = (
            2  # attributes, and that all records have the time of their batch
            + place_width
            + key_width
            + np.maximum(key_length, 0)
            + value_width
            + np.maximum(value_length, 0)
            + headers_length
        )
        length_bytes, length_width = _varints(body)
        zeros = np.zeros((self.count, 2), np.uint8)
        before_key = _ragged(
            (length_bytes, length_width), (zeros, 2), (place, place_width), (key_bytes, key_width)
        )
        before_value = _ragged((value_bytes, value_width))
        parts = [
            before_key,
            *([] if self.key is None else [self.key]),
            before_value,
            self.value,
            pa.scalar(b"\x00", pa.binary()) if self.headers is None else self.headers,
        ]
        joined = pc.binary_join_element_wise(
            *parts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
        )
        offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + self.count + 1]
        return offsets, memoryview(joined.buffers()[2] or b"")


def encoded_headers(lists: Any) -> Any:
    """For each record the bytes of its headers; a null list is an empty one."""
    flat = lists.flatten()
    counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    keys, values = flat.field("key"), flat.field("value")
    if keys.null_count:
        raise ValueError("a header has no key: null is not allowed there")
    keys, values = _binary(keys), _binary(values)
    before_key = _ragged(_varints(_lengths(keys, len(keys))))
    before_value = _ragged(_varints(_lengths(values, len(values))))
    one_by_one = pc.binary_join_element_wise(
        before_key,
        keys,
        before_value,
        values,
        pa.scalar(b"", pa.binary()),
        null_handling="replace",
        null_replacement=b"",
    )
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    offsets = np.frombuffer(one_by_one.buffers()[1], np.int32)[: len(keys) + 1]
    together = pa.Array.from_buffers(
        pa.binary(),
        len(counts),
        [None, pa.py_buffer(np.ascontiguousarray(offsets[ends])), one_by_one.buffers()[2]],
    )
    return pc.binary_join_element_wise(_ragged(_varints(counts)), together, pa.scalar(b"", pa.binary()))


def murmur2_of_all(raw: NDArray[np.uint8], starts: _Ints, ends: _Ints) -> NDArray[np.uint32]:
    """`client.partitioner.murmur2` of many keys: all first words at once, then all second ones, and so on."""
    m = np.uint32(0x5BD1E995)
    lengths = ends - starts
    hashes = np.uint32(0x9747B28C) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for position in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > position)
        at = starts[rows] + 4 * position
        word = np.zeros(len(rows), np.uint32)
        for byte in range(4):
            word |= raw[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        word *= m
        word ^= word >> np.uint32(24)
        word *= m
        hashes[rows] = hashes[rows] * m ^ word
    tails = starts + (words << 2)
    left = lengths & 3
    for byte in (2, 1, 0):
        rows = np.flatnonzero(left > byte)
        hashes[rows] ^= raw[tails[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(left)
    hashes[rows] *= m
    hashes ^= hashes >> np.uint32(13)
    hashes *= m
    return hashes ^ hashes >> np.uint32(15)


def _gathered(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer and larger pieces."""
    held: list[pa.RecordBatch] = []
    held_bytes = held_rows = 0
    for batch in rows:
        if not batch.num_rows:
            continue
        held.append(batch)
        held_bytes += batch.nbytes
        held_rows += batch.num_rows
        if held_bytes >= _GATHER_BYTES or held_rows >= _GATHER_ROWS:
            yield _one(held)
            held, held_bytes, held_rows = [], 0, 0
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _cut(target: _Ints, sizes: _Ints, bytes_max: int) -> _Ints:
    """Where each batch begins: with every other partition, and when there would be too many bytes."""
    begins = []
    runs = np.flatnonzero(np.concatenate(([True], target[1:] != target[:-1])))
    filled = np.concatenate(([0], np.cumsum(sizes)))
    for begin, end in zip(runs.tolist(), [*runs[1:].tolist(), len(target)], strict=True):
        at = begin
        while at < end:
            begins.append(at)
            at = max(at + 1, int(filled.searchsorted(filled[at] + bytes_max, side="right")) - 1)
    return np.array(begins, np.int64)


def _binary(column: Any) -> Any:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _bounds(column: Any) -> tuple[_Ints, _Ints]:
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    wide = offsets.astype(np.int64)
    return wide[:-1], wide[1:]


def _bytes_of(column: Any) -> NDArray[np.uint8]:
    return np.frombuffer(column.buffers()[2] or b"", np.uint8)


def _lengths(column: Any, count: int) -> _Ints:
    """-1 for null, as on the wire; also where there is no column."""
    if column is None:
        return np.full(count, -1, np.int64)
    starts, ends = _bounds(column)
    lengths: _Ints = ends - starts
    if column.null_count:
        lengths[np.asarray(column.is_null())] = -1
    return lengths


def _varints(numbers: _Ints) -> tuple[NDArray[np.uint8], _Ints]:
    """Each number as a row of bytes, and how many of them count."""
    doubled = (numbers << 1 ^ numbers >> 63).astype(np.uint64)
    shifts = np.arange(0, 7 * _VARINT_BYTES_MAX, 7, dtype=np.uint64)
    groups = doubled[:, None] >> shifts
    width = np.maximum(1, (groups > 0).sum(axis=1))
    table = (groups & np.uint64(0x7F)).astype(np.uint8)
    table |= np.where(np.arange(_VARINT_BYTES_MAX) < width[:, None] - 1, 0x80, 0).astype(np.uint8)
    return table, width


def _ragged(*tables: tuple[NDArray[np.uint8], _Ints | int]) -> Any:
    """Of each table's rows the bytes that count, side by side, as a binary array."""
    masks = [
        np.arange(table.shape[1]) < (width if isinstance(width, int) else width[:, None])
        for table, width in tables
    ]
    count = len(tables[0][0])
    mask = np.concatenate([np.broadcast_to(one, (count, one.shape[-1])) for one in masks], axis=1)
    data = np.concatenate([table for table, _ in tables], axis=1)[mask]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(mask.sum(axis=1), out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
