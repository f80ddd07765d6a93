"""Record batches: what checking one costs beyond its checksum, and what columns gain over a record at a time.

Both sides of every ratio run in turns in this process, on the same bytes, and the best of several rounds
counts for each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from struct import Struct

import pyarrow as pa
from fastcrc.crc32 import iscsi as crc32c
from kafka.record import MemoryRecords

from bench.timing import Row
from quorate.protocol.batch import Record, build, validate, validate_produced
from quorate.protocol.columns import read_columns

__all__ = ["arrow_from_columns", "arrow_from_loop", "section"]

BATCH_BYTES = 1 << 20
PIECE_BYTES = 16 << 20
STREAM_BYTES = 64 << 20  # more than any cache holds, as batches from the network come
ROUNDS = 7


def section() -> list[Row]:
    rows: list[Row] = []
    for size_bytes, label in ((16 << 10, "16 KB"), (64 << 10, "64 KB"), (1 << 20, "1 MB")):
        rows += _validation(size_bytes, label)
    for value_bytes, label, target in ((100, "100 B", 5), (1000, "1 KB", 3)):
        rows += _arrow(value_bytes, label, target)
    return rows


def best_seconds(*sides: Callable[[], object]) -> list[float]:
    """The fastest of several rounds for each side, taken in turns so that neighbours disturb all alike."""
    best = [float("inf")] * len(sides)
    for _ in range(ROUNDS):
        for index, side in enumerate(sides):
            began = time.perf_counter()
            side()
            best[index] = min(best[index], time.perf_counter() - began)
    return best


def _validation(size_bytes: int, label: str) -> list[Row]:
    value = bytes(size_bytes - 75)
    one = build([Record(0, 0, None, value)])
    stream = memoryview(bytes(one) * (STREAM_BYTES // len(one)))
    positions = range(0, len(stream), len(one))

    def bare() -> None:
        for position in positions:
            crc32c(stream[position + 21 : position + len(one)])

    def stored() -> None:
        for position in positions:
            validate(stream, position)

    def produced() -> None:
        for position in positions:
            validate_produced(stream, position)

    bare_seconds, stored_seconds, produced_seconds = best_seconds(bare, stored, produced)
    return [
        Row(
            f"validate a stored batch of {label}: time / bare CRC", stored_seconds / bare_seconds, at_most=1.3
        ),
        Row(
            f"validate a produced batch of {label}: time / bare CRC",
            produced_seconds / bare_seconds,
            at_most=1.3,
        ),
    ]


def _arrow(value_bytes: int, label: str, target: int) -> list[Row]:
    piece = sample_piece(value_bytes)
    ours, loop = arrow_from_columns(piece), arrow_from_loop(piece)
    assert ours.equals(loop)
    del ours, loop
    columns_seconds, loop_seconds, kafka_seconds = best_seconds(
        lambda: arrow_from_columns(piece),
        lambda: arrow_from_loop(piece),
        lambda: arrow_from_kafka_python(piece),
    )
    return [
        Row(
            f"records of {label} to Arrow: columns / a Python loop",
            loop_seconds / columns_seconds,
            at_least=target,
        ),
        Row(
            f"records of {label} to Arrow: columns / kafka-python",
            kafka_seconds / columns_seconds,
            at_least=5,
        ),
    ]


def sample_piece(value_bytes: int) -> bytes:
    """16 MB of batches of about 1 MB: keys of ten bytes, values that differ by a tenth in length."""
    draw = random.Random(value_bytes)
    piece = bytearray()
    offset = 0
    while len(piece) < PIECE_BYTES:
        batch = []
        left_bytes = BATCH_BYTES
        while left_bytes > 0:
            size = draw.randint(value_bytes * 9 // 10, value_bytes * 11 // 10)
            timestamp = 1_700_000_000_000 + offset // 10
            batch.append(Record(offset, timestamp, b"key%07d" % draw.randrange(10**7), draw.randbytes(size)))
            offset += 1
            left_bytes -= size + 20
        piece += build(batch, base_offset=batch[0].offset)
    return bytes(piece)


def arrow_from_columns(piece: bytes) -> pa.Table:
    columns = read_columns(piece)
    slots = columns.arrow_slots()
    fields = pa.Array.from_buffers(
        pa.binary(), len(slots.offsets) - 1, [None, pa.py_buffer(slots.offsets), pa.py_buffer(columns.data)]
    )
    return pa.table(
        {
            "offset": pa.array(columns.offset),
            "timestamp": pa.array(columns.timestamp),
            "key": fields.take(pa.array(slots.keys, mask=slots.null_keys)),
            "value": fields.take(pa.array(slots.values, mask=slots.null_values)),
        }
    )


_HEADER = Struct(">qiibIhiqqqhii")


def arrow_from_loop(piece: bytes) -> pa.Table:
    """What one writes without thinking of columns, but with some care: local names, short varints inline."""
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    view = memoryview(piece)
    batch_start = 0
    while batch_start < len(piece):
        base_offset, length, _, _, crc, _, _, base_timestamp, _, _, _, _, count = _HEADER.unpack_from(
            piece, batch_start
        )
        if crc32c(view[batch_start + 21 : batch_start + 12 + length]) != crc:
            raise ValueError("checksum")
        position = batch_start + 61
        for _ in range(count):
            number = piece[position]
            position += 1
            if number > 127:
                number, position = _long_varint(piece, position - 1)
            end = position + (number >> 1)
            position += 1
            number = piece[position]
            position += 1
            if number > 127:
                number, position = _long_varint(piece, position - 1)
            timestamps.append(base_timestamp + ((number >> 1) ^ -(number & 1)))
            number = piece[position]
            position += 1
            if number > 127:
                number, position = _long_varint(piece, position - 1)
            offsets.append(base_offset + (number >> 1))
            number = piece[position]
            position += 1
            if number > 127:
                number, position = _long_varint(piece, position - 1)
            if number == 1:
                keys.append(None)
            else:
                start = position
                position += number >> 1
                keys.append(piece[start:position])
            number = piece[position]
            position += 1
            if number > 127:
                number, position = _long_varint(piece, position - 1)
            if number == 1:
                values.append(None)
            else:
                start = position
                position += number >> 1
                values.append(piece[start:position])
            position = end
        batch_start += 12 + length
    return _table(offsets, timestamps, keys, values)


def _long_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7


def arrow_from_kafka_python(piece: bytes) -> pa.Table:
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    read = MemoryRecords(piece)
    while (batch := read.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("checksum")
        for record in batch:
            offsets.append(record.offset)
            timestamps.append(record.timestamp)
            keys.append(record.key)
            values.append(record.value)
    return _table(offsets, timestamps, keys, values)


def _table(
    offsets: list[int], timestamps: list[int], keys: list[bytes | None], values: list[bytes | None]
) -> pa.Table:
    return pa.table(
        {
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(timestamps, pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
