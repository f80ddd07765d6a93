"""The one look that a leader takes at the records of a produced batch.

It must find what the plain decoder (`batch.records`) would refuse, and needs to know little else: the newest
time, and which records have no key. Nothing is taken out of the batch. There are three ways, each for what
it is fastest at, and each gives up, in favour of the last, where it meets something unusual:

- A few records are walked through, one after the other.
- Records that are all of one size, as those of many programs are, stand under each other like the lines of
  a table (`record_tables`).
- All others are read as `columns`.

So what only one of these ways could accept is never accepted, and what is wrong the plain decoder says.

A few bytes can stand for millions of records. What the compressed batches of a request take up, and how many
records and headers they have, is therefore counted (`inflated`), and columns are made of a part of the
records at a time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.batch import BatchHeader, TimestampType, record_bytes
from quorate.protocol.columns import PART_RECORDS, CountHeaders, decode_bodies, decode_in_parts, why_malformed
from quorate.protocol.compression import DECOMPRESSED_BYTES_MAX
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.inflated import Inflated
from quorate.protocol.record import skip_headers
from quorate.protocol.record_tables import RecordScan, look_at_tables, read_length
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError, read_uvarint

__all__ = ["RecordScan", "scan_records"]

# Up to here walking is faster than anything else; and up to there, than anything but tables.
_ALWAYS_WALKED_MAX: Final = 12
_WALKED_RECORDS_MAX: Final = 64  # an offset in the batch is one byte

# Of a compressed batch with more records nothing is kept for each of them: that could be far more than came.
_SCANNED_RECORDS_MAX: Final = 1 << 16

_CODEC_MASK: Final = 0x07  # an enum is several times as slow to compare with

# Sums of times below these cannot overflow.
_TIME_MAX: Final = 1 << 62


def scan_records(
    buffer: Buffer,
    header: BatchHeader,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
    *,
    record_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    inflated: Inflated | None = None,
) -> RecordScan:
    """Looks at all records. Raises what `batch.records` raises, and INVALID_RECORD if a record of a
    compressed batch is larger than `record_bytes_max`.

    Together with `batch.validate_produced` this says that their offsets are 0, 1, 2, ... without a gap:
    increasing, and as many as fit.
    """
    if not header.attributes & _CODEC_MASK:
        return _scan(record_bytes(buffer, header, limit_bytes), buffer, header, limit_bytes, _not_counted)
    inflated = inflated or Inflated()
    inflated.begin(header.record_count)
    try:
        data = record_bytes(buffer, header, limit_bytes)
    except ApiError:
        inflated.bytes += limit_bytes  # nobody knows how far it came
        raise
    inflated.count_bytes(len(data))
    if header.record_count > _SCANNED_RECORDS_MAX or len(data) > record_bytes_max:
        return _read_in_parts(data, buffer, header, limit_bytes, record_bytes_max, inflated.count_items)
    return _scan(data, buffer, header, limit_bytes, inflated.count_items)


def _not_counted(_: int) -> None:
    """Headers of what is not compressed."""


def _scan(
    data: Buffer, buffer: Buffer, header: BatchHeader, limit_bytes: int, count_headers: CountHeaders
) -> RecordScan:
    found, record_count = None, header.record_count
    if (
        header.timestamp_type is TimestampType.CREATE_TIME
        and -_TIME_MAX < header.base_timestamp < _TIME_MAX
        and record_count == header.last_offset_delta + 1
    ):
        try:
            if record_count > _ALWAYS_WALKED_MAX:
                found = look_at_tables(data, header)
            if found is None and record_count <= _WALKED_RECORDS_MAX:
                found = _walk(data, header, count_headers)
        except (IndexError, MalformedError):
            found = None
    if found is not None:
        return found
    if record_count > PART_RECORDS:
        return _read_in_parts(data, buffer, header, limit_bytes, len(data), count_headers)
    return _read_columns(data, buffer, header, limit_bytes, count_headers)


def _read_columns(
    data: Buffer, buffer: Buffer, header: BatchHeader, limit_bytes: int, count_headers: CountHeaders
) -> RecordScan:
    columns = decode_bodies(data, [(0, len(data))], [header], count_headers)
    if columns is None:
        raise why_malformed(buffer, [header], limit_bytes, [len(data)])
    times = columns.timestamp
    max_timestamp = int(times.max()) if len(times) else header.max_timestamp
    return RecordScan(max_timestamp, np.flatnonzero(columns.key_is_null), lambda: times)


def _read_in_parts(
    data: Buffer,
    buffer: Buffer,
    header: BatchHeader,
    limit_bytes: int,
    record_bytes_max: int,
    count_headers: CountHeaders,
) -> RecordScan:
    """Records as columns, some at a time. Their times are read once more by who wants to know them all."""
    max_timestamp, number, start = header.max_timestamp, 0, 0
    newest: list[int] = []
    without_key: list[NDArray[np.int32]] = []
    try:
        for part in decode_in_parts(data, header, count_headers):
            begins = np.concatenate(([start], part.record_end[:-1]))
            doubled, _ = read_uvarint(data, int(begins[(part.record_end - begins).argmax()]))
            size_bytes = doubled >> 1
            if size_bytes > record_bytes_max:
                reason = (
                    f"a record of {size_bytes} bytes; max.decompressed.message.bytes is {record_bytes_max}"
                )
                raise ApiError(ErrorCode.INVALID_RECORD, reason)
            newest.append(int(part.timestamp.max()))
            without_key.append(np.flatnonzero(part.key_is_null).astype(np.int32) + np.int32(number))
            number, start = number + len(part), int(part.record_end[-1])
    except MalformedError:
        raise why_malformed(buffer, [header], limit_bytes, [len(data)]) from None
    return RecordScan(
        max(newest, default=max_timestamp),
        np.concatenate(without_key) if without_key else (),
        lambda: np.concatenate([part.timestamp for part in decode_in_parts(data, header)]),
    )


# A few records


def _walk(data: Buffer, header: BatchHeader, count_headers: CountHeaders) -> RecordScan | None:
    """Lengths are doubled where they stand. Those of a record and of its value nearly always have one byte or
    two, and are read here: with a call for each, this would take twice as long."""
    base_timestamp = header.base_timestamp
    timestamps: list[int] = []
    without_key: list[int] = []
    position = 0
    for number in range(header.record_count):
        low = data[position]
        if not low & 0x81:
            position += 1
            end = position + (low >> 1)
        elif low & 1 == 0 and (high := data[position + 1]) < 128:
            position += 2
            end = position + (high << 6) + (low >> 1) - 64
        else:
            doubled, position = read_length(data, position)
            end = position + (doubled >> 1)
        delta = data[position + 1]  # after attributes, which mean nothing yet
        position += 2
        if delta > 127:
            delta, position = read_uvarint(data, position - 1)
        timestamps.append(base_timestamp + ((delta >> 1) ^ -(delta & 1)))
        if data[position] != number << 1:
            return None
        low = data[position + 1]
        position += 2
        if low == 1:
            without_key.append(number)
        elif not low & 0x81:
            position += low >> 1
        else:
            doubled, position = read_length(data, position - 1)
            position += doubled >> 1
        low = data[position]
        if low == 1 or not low & 0x81:
            position += 1 + (low >> 1)
        elif low & 1 == 0 and (high := data[position + 1]) < 128:
            position += 2 + (high << 6) + (low >> 1) - 64
        else:
            doubled, position = read_length(data, position)
            position += doubled >> 1
        count = data[position]
        position += 1
        if count or position != end:
            if count & 0x81:
                return None
            count_headers(count >> 1)
            if not skip_headers(data, position, end, count >> 1):
                return None
        position = end
    if position != len(data):
        return None
    return RecordScan(max(timestamps, default=header.max_timestamp), without_key, lambda: timestamps)
