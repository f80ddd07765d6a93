"""Record batches of kafka-python and aiokafka are read by us, and ours by them.

kafka-python takes its codecs from python-snappy, lz4 and zstandard, so it is an independent judge of ours.
aiokafka takes them from cramjam, as we do. That Apache reads and writes the same is
held by the bytes in `tests/protocol/test_batch.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from aiokafka.record.memory_records import MemoryRecords as AiokafkaMemoryRecords
from kafka.record import default_records as kafka_records
from kafka.record.memory_records import MemoryRecords as KafkaMemoryRecords

from quorate.protocol.batch import (
    ControlType,
    Record,
    batches,
    build,
    build_control,
    records,
    set_append_time,
    stamp,
    validate,
    validate_produced,
)
from quorate.protocol.columns import read_columns
from quorate.protocol.compression import Codec

pytestmark = pytest.mark.interop

PAIRS = [
    *(
        pytest.param(kafka_records, KafkaMemoryRecords, codec, id=f"kafka-python-{codec.name}")
        for codec in Codec
    ),
    *(
        pytest.param(aiokafka_records, AiokafkaMemoryRecords, codec, id=f"aiokafka-{codec.name}")
        for codec in Codec
    ),
]

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(1, 1_700_000_000_005, None, b"no key"),
    Record(2, 1_699_999_999_000, b"earlier, and no value", None),
    Record(3, 1_700_000_000_006, b"", b"", [("trace", b"17"), ("nothing", None), ("\u00fc", b"")]),
    *(Record(i, 1_700_000_000_000 + i, b"k%d" % i, b"0123456789" * (i % 50)) for i in range(4, 2000)),
]


def plain(record: Any) -> Record:
    return Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


def read_by_them(memory_records: Any, buffer: bytes) -> list[Any]:
    """Their batches, checksums checked."""
    found = []
    reader = memory_records(buffer)
    while (batch := reader.next_batch()) is not None:
        assert batch.validate_crc()
        found.append(batch)
    return found


def test_enough_is_compared() -> None:
    assert len(PAIRS) >= 7


@pytest.mark.parametrize(("theirs", "memory_records", "codec"), PAIRS)
def test_their_batches_are_read(theirs: Any, memory_records: Any, codec: Codec) -> None:
    builder = theirs.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=2**31 - 10,
        batch_size=1 << 20,
    )
    for record in RECORDS:
        assert builder.append(
            record.offset, record.timestamp, record.key, record.value, headers=list(record.headers)
        )
    buffer = bytes(builder.build())
    header = validate_produced(buffer)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 2**31 - 10)
    assert header.last_sequence == 1989
    assert (header.is_transactional, header.is_control, header.codec) == (True, False, codec)
    assert header.max_timestamp == max(record.timestamp for record in RECORDS)
    assert [plain(record) for record in records(buffer, header)] == [plain(record) for record in RECORDS]
    columns = read_columns(buffer)
    assert [columns.value(row) for row in range(len(columns))] == [record.value for record in RECORDS]
    assert read_by_them(memory_records, buffer)[0].producer_id == 4711


@pytest.mark.parametrize(("_", "memory_records", "codec"), PAIRS)
def test_ours_are_read_by_them(_: Any, memory_records: Any, codec: Codec) -> None:
    one = build(RECORDS, codec=codec, producer_id=4711, producer_epoch=3, base_sequence=17)
    two = build(
        [Record(5000, 7, b"k", b"v"), Record(5009, 8, b"k", b"v")], base_offset=4990, last_offset=5010
    )
    set_append_time(two, 0, 99)
    stamp(one, 0, 100, 6)
    first, second = read_by_them(memory_records, bytes(one + two))
    assert (first.base_offset, first.producer_id, first.producer_epoch, first.base_sequence) == (
        100,
        4711,
        3,
        17,
    )
    assert not first.is_transactional
    assert not first.is_control_batch
    assert first.compression_type == codec
    assert [plain(record) for record in first] == [
        plain(record._replace(offset=record.offset + 100)) for record in RECORDS
    ]
    assert [(record.offset, record.timestamp, record.timestamp_type) for record in second] == [
        (5000, 99, 1),
        (5009, 99, 1),
    ]
    assert second.next_offset == 5011


@pytest.mark.parametrize("memory_records", [KafkaMemoryRecords, AiokafkaMemoryRecords])
@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_our_transaction_markers_are_read_by_them(memory_records: Any, kind: ControlType) -> None:
    marker = build_control(
        [(kind, bytes(6))],
        timestamp=5,
        base_offset=42,
        producer_id=4711,
        producer_epoch=3,
        is_transactional=True,
    )
    (batch,) = read_by_them(memory_records, bytes(marker))
    assert batch.is_control_batch
    assert batch.is_transactional
    (record,) = batch
    assert record.offset == 42
    assert record.key == bytes([0, 0, 0, kind])


@pytest.mark.parametrize("codec", list(Codec))
def test_a_buffer_of_several_of_their_batches(codec: Codec) -> None:
    """As a fetch brings them, the last one cut off."""
    writer = kafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    writer.append(0, 5, b"k", b"v" * 1000, headers=[])
    one = bytes(writer.build())
    buffer = one * 3 + one[:-1]
    assert [validate(buffer, header.position).record_count for header in batches(buffer)] == [1, 1, 1]
    assert len(read_columns(buffer)) == 3
