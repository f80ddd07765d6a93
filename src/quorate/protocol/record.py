"""One record inside a batch: a length, then six fields, most of them varints relative to the batch.

This is the plain decoder: one record, one object. It is what metadata and group logs are read with, and the
one that says what is wrong where; `columns` reads millions and must come to the same verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError, read_uvarint, uvarint

__all__ = [
    "NO_HEADERS",
    "RECORD_BYTES_MIN",
    "Record",
    "encode_plain_record",
    "encode_record",
    "place_record",
    "plain_content",
    "read_headers",
    "read_record",
    "skip_headers",
]

# Length, attributes, timestamp, offset, key, value and headers: a byte each.
RECORD_BYTES_MIN: Final = 7
NO_HEADERS: Final = b"\x00"
"""What a record without headers ends with."""

_INT64_MIN: Final = -0x8000000000000000
_INT64_MAX: Final = 0x7FFFFFFFFFFFFFFF


class Record(NamedTuple):
    """A record with its own offset, because compaction leaves gaps.

    Key and value are bytes rather than views: a short copy is cheaper than a view, keeps no large buffer
    alive and can be the key of a dict. A header key that is not UTF-8 survives reading and building again
    (surrogateescape).
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """The bytes of a record in a batch with these bases."""
    timestamp_delta = record.timestamp - base_timestamp << 1
    if not _INT64_MIN <= timestamp_delta >> 1 <= _INT64_MAX:
        reason = f"timestamp {record.timestamp} is too far from {base_timestamp}, the first of the batch"
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, f"record at offset {record.offset}: {reason}")
    fields = [
        b"\x00",
        uvarint(timestamp_delta if timestamp_delta >= 0 else ~timestamp_delta),
        uvarint(record.offset - base_offset << 1),
        _nullable(record.key),
        _nullable(record.value),
        uvarint(len(record.headers) << 1),
    ]
    for key, value in record.headers:
        fields.append(_nullable(key.encode("utf-8", "surrogateescape")))
        fields.append(_nullable(value))
    body = b"".join(fields)
    return uvarint(len(body) << 1) + body


def encode_plain_record(offset_delta: int, key: Buffer, value: Buffer | None) -> bytes:
    """The bytes of a record without headers that has the time of its batch: what coordinators write.

    >>> encode_plain_record(3, b"key", b"value") == encode_record(Record(3, 7, b"key", b"value"), 0, 7)
    True
    """
    return place_record(offset_delta, plain_content(key, value))


def plain_content(key: Buffer, value: Buffer | None) -> bytes:
    """What of such a record does not depend on its place in the batch."""
    if value is None:
        return b"".join((uvarint(len(key) << 1), key, b"\x01\x00"))
    return b"".join((uvarint(len(key) << 1), key, uvarint(len(value) << 1), value, NO_HEADERS))


def place_record(offset_delta: int, content: Buffer) -> bytes:
    """The record of that content at a place in its batch."""
    place = uvarint(offset_delta << 1)
    return b"".join((uvarint(len(content) + len(place) + 2 << 1), b"\x00\x00", place, content))


def read_record(data: bytes, position: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    """The record at `position`, and the position after it.

    Raises `MalformedError` with a reason, or IndexError where the data end too early.
    """
    length, start = _read_varint(data, position)
    end = start + length
    if length < 0 or end > len(data):
        raise MalformedError(f"a length of {length} where {len(data) - start} bytes are left")
    timestamp_delta, position = _read_varlong(data, start + 1)  # past attributes, which mean nothing yet
    timestamp = base_timestamp + timestamp_delta
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise MalformedError(f"a timestamp of {timestamp}")
    offset_delta, position = _read_varint(data, position)
    key, position = _read_nullable(data, position, end)
    value, position = _read_nullable(data, position, end)
    headers = () if position + 1 == end and data[position] == 0 else read_headers(data, position, end)
    return Record(base_offset + offset_delta, timestamp, key, value, headers), end


def read_headers(data: Buffer, start: int, end: int) -> Sequence[tuple[str, bytes | None]]:
    """The headers of one record, which lie between `start` and `end` with their count in front.

    Raises `MalformedError` or IndexError if they do not fill that space exactly.
    """
    count, position = _read_varint(data, start)
    if not 0 <= count <= end - position:
        raise MalformedError(f"{count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _read_nullable(data, position, end)
        if key is None:
            raise MalformedError("a header without a key")
        value, position = _read_nullable(data, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    if position != end:
        raise MalformedError(f"{end - position} bytes are left after its headers")
    return headers


def skip_headers(data: Buffer, position: int, end: int, count: int) -> bool:
    """Whether `count` headers fill the bytes from `position` to `end` exactly, without taking them out.

    Lengths of headers nearly always fit in a byte, where they stand doubled: 0, 2, ... 126. Looking at that
    byte here, instead of calling `read_uvarint`, makes this four times as fast.
    """
    try:
        for _ in range(count):
            if position >= end:
                return False
            doubled = data[position]
            position += 1
            if doubled & 0x81:
                doubled, position = read_uvarint(data, position - 1)
                if doubled & 1:
                    return False
            position += doubled >> 1
            doubled = data[position]
            position += 1
            if doubled & 0x81:
                doubled, position = read_uvarint(data, position - 1)
                if doubled & 1 and doubled != 1:
                    return False
            position += doubled >> 1
    except (MalformedError, IndexError):
        return False
    return position == end


def _read_varint(data: Buffer, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, position = read_uvarint(data, position)
    return (value >> 1) ^ -(value & 1), position


def _read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 127
    for shift in range(7, 70, 7):
        position += 1
        byte = data[position]
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                raise MalformedError("varlong of more than 64 bits")
            return (value >> 1) ^ -(value & 1), position + 1
    raise MalformedError("varlong of more than ten bytes")


def _read_nullable(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    doubled, position = read_uvarint(data, position)
    if doubled == 1:
        return None, position
    length = (doubled >> 1) ^ -(doubled & 1)
    if length < 0 or position + length > end:
        raise MalformedError(f"a field of {length} bytes where {end - position} are left")
    return bytes(data[position : position + length]), position + length


def _nullable(value: bytes | None) -> bytes:
    return b"\x01" if value is None else uvarint(len(value) << 1) + value
