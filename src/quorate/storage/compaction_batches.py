"""Batches with fewer records: what compaction makes of a buffer of them.

A batch keeps its base offset, what it covers, its producer and its sequence number, whatever records go: so
offsets stay what they are, and a producer that goes on is not told that it left something out. A batch of
which every record stays is copied as it is. One of which none stays goes too, unless it is the last that is
known of its producer, or the last of all: then it stays empty.

Records that say "deleted", and markers of which nothing depends any more, get a delete horizon: until then
they stay, so that readers who were slow can still see them. It stands in the header, in the place of the
first timestamp, and the times of the records are then relative to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from fastcrc.crc32 import iscsi as crc32c
from numpy.typing import NDArray

from quorate.protocol.batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, TimestampType, read_header
from quorate.protocol.columns import RecordColumns, read_validated
from quorate.protocol.compression import Codec, compress
from quorate.protocol.types import Buffer
from quorate.protocol.varint import uvarint
from quorate.storage.compaction_keys import KeyHash
from quorate.storage.compaction_map import OffsetMap
from quorate.storage.compaction_transactions import PassedTransactions
from quorate.values import dataclass

__all__ = ["Filter", "Kept", "LastOfProducer", "decoded"]

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC: Final = Struct(">I")
_OVERHEAD_BYTES: Final = 12
_CRC_AT: Final = 17
_CHECKED_FROM: Final = 21
_MAGIC: Final = 2
_CODEC_MASK: Final = 0x07
_DELETE_HORIZON: Final = 0x40
_FAR_MS: Final = (1 << 63) - 1  # what is further from the base timestamp cannot be written

Bools: TypeAlias = NDArray[np.bool_]
Int64s: TypeAlias = NDArray[np.int64]


class LastOfProducer(NamedTuple):
    """What must stay of a producer that may go on: the batch that ends at an offset; or, if it has written
    none since its epoch began, the marker of that epoch."""

    last_offset: int | None
    epoch: int


@dataclass(slots=True)
class Kept:
    """What a filter has let through, and how much it has seen."""

    parts: list[Buffer] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0

    def add(self, part: Buffer, header: BatchHeader) -> None:
        self.parts.append(part)
        self.headers.append(header)
        self.records_kept += header.record_count


class _Verdict(NamedTuple):
    """What becomes of a batch, before its records are looked at."""

    header: BatchHeader
    drops_records: bool
    stays_empty: bool
    needs_horizon: bool  # because it is a marker that may go


def decoded(buffer: Buffer, headers: Sequence[BatchHeader]) -> list[RecordColumns]:
    """The records of batches, in order. Those that are compressed one by one: nobody knows how large they
    become."""
    found: list[RecordColumns] = []
    plain: list[BatchHeader] = []
    for header in headers:
        if header.codec is Codec.NONE:
            plain.append(header)
            continue
        if plain:
            found.append(read_validated(buffer, plain))
            plain = []
        found.append(read_validated(buffer, [header]))
    if plain:
        found.append(read_validated(buffer, plain))
    return found


class Filter:
    """Takes away from batches what compaction takes."""

    def __init__(
        self,
        offsets: OffsetMap,
        keys: KeyHash,
        transactions: PassedTransactions,
        producers: Mapping[int, LastOfProducer],
        *,
        upper_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """`upper_offset` is where this round of cleaning ends at the latest. The batch that ends there is
        kept, so that the offset is not forgotten."""
        self._offsets = offsets
        self._keys = keys
        self._transactions = transactions
        self._producers = producers
        self._upper_offset = upper_offset
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms

    def passed(self, buffer: Buffer, headers: Sequence[BatchHeader]) -> Kept:
        """What stays of these batches of the buffer, whose checksums are right."""
        kept = Kept()
        kept.records_read = sum(header.record_count for header in headers)
        verdicts = [self._judge(buffer, header) for header in headers]
        looked_at = [one.header for one in verdicts if not (one.drops_records or one.header.is_control)]
        thinned = self._thin(buffer, looked_at, kept)
        for verdict in verdicts:
            header = verdict.header
            if header.is_control and not verdict.drops_records and header.record_count:
                self._keep_control(buffer, verdict, kept)
                continue
            part = None if verdict.drops_records or header.is_control else thinned[header.position]
            if part is not None:
                kept.add(*part)
            elif verdict.stays_empty:
                empty = _emptied(header)
                kept.add(empty, read_header(empty))
        return kept

    def _judge(self, buffer: Buffer, header: BatchHeader) -> _Verdict:
        if header.is_control:
            is_unneeded = self._transactions.is_unneeded_marker(buffer, header)
            horizon_ms = header.delete_horizon_ms
            drops_records = is_unneeded and horizon_ms is not None and horizon_ms <= self._now_ms
            needs_horizon = is_unneeded and horizon_ms is None
        else:
            drops_records = self._transactions.is_aborted(header)
            needs_horizon = False
        stays_empty = self._is_last_of_producer(header) or header.next_offset == self._upper_offset
        return _Verdict(header, drops_records, stays_empty, needs_horizon)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset is not None:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _keep_control(self, buffer: Buffer, verdict: _Verdict, kept: Kept) -> None:
        header = verdict.header
        if not verdict.needs_horizon:
            kept.add(memoryview(buffer)[header.position : header.end], header)
            return
        columns = read_validated(buffer, [header])
        part = _rebuilt(columns, header, np.arange(len(columns)), self._horizon_ms, _starts(columns))
        kept.add(part, read_header(part))

    def _thin(
        self, buffer: Buffer, headers: Sequence[BatchHeader], kept: Kept
    ) -> dict[int, tuple[Buffer, BatchHeader] | None]:
        """What is left of each batch, by its place in the buffer; None if nothing is."""
        found: dict[int, tuple[Buffer, BatchHeader] | None] = {}
        for columns in decoded(buffer, headers):
            stays = self._stays(columns)
            kept.records_without_key += int(columns.key_is_null.sum())
            batch_count = len(columns.batches)
            is_kept = np.bincount(columns.batch_index[stays], minlength=batch_count)
            tombstones = stays & columns.value_is_null
            deletes = np.bincount(columns.batch_index[tombstones], minlength=batch_count)
            ends = np.cumsum([header.record_count for header in columns.batches])
            starts: Int64s | None = None
            for index, header in enumerate(columns.batches):
                count = int(is_kept[index])
                needs_horizon = bool(deletes[index]) and header.delete_horizon_ms is None
                if not count:
                    found[header.position] = None
                elif count == header.record_count and not needs_horizon:
                    whole = memoryview(buffer)[header.position : header.end]
                    found[header.position] = whole, header
                else:
                    if starts is None:
                        starts = _starts(columns)
                    first = int(ends[index]) - header.record_count
                    rows = first + np.flatnonzero(stays[first : int(ends[index])])
                    horizon_ms = self._horizon_ms if needs_horizon else header.delete_horizon_ms
                    part = _rebuilt(columns, header, rows, horizon_ms, starts)
                    found[header.position] = part, read_header(part)
        return found

    def _stays(self, columns: RecordColumns) -> Bools:
        """Which records stay: the last of each key, unless it says that the key is deleted and everybody had
        time to see that; and what the map does not reach to."""
        halves = self._keys.of(columns.data, columns.key_start, columns.key_end)
        latest = self._offsets.get(*halves)
        horizons = [header.delete_horizon_ms for header in columns.batches]
        is_over = np.array([one is not None and one <= self._now_ms for one in horizons], bool)
        stays = (columns.offset >= latest) & ~columns.key_is_null
        if is_over.any():
            stays &= ~(columns.value_is_null & is_over[columns.batch_index])
        stays |= columns.offset > self._offsets.latest_offset
        return stays


# Building


def _starts(columns: RecordColumns) -> Int64s:
    """Where each record begins in the data."""
    starts = np.empty(len(columns), np.int64)
    starts[1:] = columns.record_end[:-1]
    at = 0
    for header in columns.batches:
        if header.record_count:
            starts[at] = 0 if header.codec is not Codec.NONE else header.position + HEADER_BYTES
            at += header.record_count
    return starts


def _rebuilt(
    columns: RecordColumns, header: BatchHeader, rows: Int64s, horizon_ms: int | None, starts: Int64s
) -> bytearray:
    """A batch of some of its records."""
    timestamps = columns.timestamp[rows]
    has_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    base_timestamp = int(timestamps[0]) if horizon_ms is None else horizon_ms
    newest, oldest = int(timestamps.max()), int(timestamps.min())
    if max(newest - base_timestamp, base_timestamp - oldest) > _FAR_MS:
        # no producer means such times, but one that sends them must not make a batch that nobody can read
        base_timestamp, horizon_ms = header.base_timestamp, header.delete_horizon_ms
    max_timestamp = header.max_timestamp if has_append_time else newest
    if base_timestamp == header.base_timestamp and not has_append_time:
        body: Buffer = _copied(columns.data, starts[rows], columns.record_end[rows])
    else:
        body = _with_times(columns, rows, timestamps - base_timestamp, starts[rows])
    attributes = header.attributes & ~_DELETE_HORIZON | (0 if horizon_ms is None else _DELETE_HORIZON)
    return _batch(header, compress(header.codec, body), attributes, base_timestamp, max_timestamp, len(rows))


def _copied(data: Buffer, starts: Int64s, ends: Int64s) -> bytes:
    """Records one after the other; neighbours are copied together."""
    begins = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    run_starts = starts[np.concatenate([[0], begins])].tolist()
    run_ends = ends[np.concatenate([begins - 1, [len(ends) - 1]])].tolist()
    view = memoryview(data)
    return b"".join([view[start:end] for start, end in zip(run_starts, run_ends, strict=True)])


def _with_times(columns: RecordColumns, rows: Int64s, deltas: Int64s, starts: Int64s) -> bytes:
    """Records with other times, and therefore other lengths; what follows the time is copied."""
    raw = np.frombuffer(columns.data, np.uint8)
    at_attributes = _after_varint(raw, starts)
    after_time = _after_varint(raw, at_attributes + 1)
    view = memoryview(columns.data)
    parts: list[Buffer] = []
    for attributes, tail, end, delta in zip(
        raw[at_attributes].tolist(),
        after_time.tolist(),
        columns.record_end[rows].tolist(),
        deltas.tolist(),
        strict=True,
    ):
        doubled = delta << 1
        time = uvarint(doubled if delta >= 0 else ~doubled)
        parts.append(uvarint((1 + len(time) + end - tail) << 1))
        parts.append(_BYTES[attributes] + time)
        parts.append(view[tail:end])
    return b"".join(parts)


_BYTES: Final = [bytes([value]) for value in range(256)]


def _after_varint(raw: NDArray[np.uint8], at: Int64s) -> Int64s:
    goes_on = raw[at] > 0x7F
    at = at + 1
    while goes_on.any():
        following = raw[np.minimum(at, len(raw) - 1)] > 0x7F
        at = at + goes_on
        goes_on = goes_on & following
    return at


def _emptied(header: BatchHeader) -> bytearray:
    """A batch without its records, and so without a compression and a first time."""
    attributes = header.attributes & ~_CODEC_MASK & ~_DELETE_HORIZON
    return _batch(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)


def _batch(
    header: BatchHeader,
    body: Buffer,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> bytearray:
    """A batch like another one, with another body."""
    out = bytearray(HEADER_BYTES + len(body))
    _HEADER.pack_into(
        out,
        0,
        header.base_offset,
        len(out) - _OVERHEAD_BYTES,
        header.partition_leader_epoch,
        _MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    out[HEADER_BYTES:] = body
    _CRC.pack_into(out, _CRC_AT, crc32c(memoryview(out)[_CHECKED_FROM:]))
    return out
