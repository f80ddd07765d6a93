"""Small batches that stand for much: what is inflated is counted, and bounded, before it costs anything."""

from __future__ import annotations

import tracemalloc

import pytest

from quorate.protocol.batch import Record, build, build_encoded, validate
from quorate.protocol.columns import PART_RECORDS
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.inflated import BATCH_BYTES, ITEM_BYTES, Inflated
from quorate.protocol.record import encode_record
from quorate.protocol.record_scan import scan_records

MIB = 1 << 20
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def batch_of(records: list[Record], codec: Codec) -> bytearray:
    return build(records, codec=codec)


def refusal(batch: bytearray, **about: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        scan_records(batch, validate(batch), **about)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_records_and_headers_are_counted(codec: Codec) -> None:
    headers = [("a", b"1"), ("b", None)]
    for count, has_long_headers in ((3, False), (3, True), (100, False)):
        more = [("c" * 90, None)] * 70 if has_long_headers else []  # too many for a walk
        records = [Record(i, 0, None, b"v" * (i % 7), [*headers, *more]) for i in range(count)]
        plain = build(records)
        batch, inflated = build(records, codec=codec), Inflated()
        scan_records(batch, validate(batch), inflated=inflated)
        items = count * (1 + len(headers) + len(more))
        assert inflated.bytes == BATCH_BYTES + len(plain) - 61 + items * ITEM_BYTES


def test_what_is_not_compressed_is_not_counted() -> None:
    batch, inflated = build([Record(0, 0, None, bytes(1000), [("a", None)])]), Inflated()
    scan_records(batch, validate(batch), inflated=inflated)
    assert inflated.bytes == 0


@pytest.mark.parametrize("codec", COMPRESSED)
def test_once_a_request_has_inflated_enough_the_rest_is_for_another(codec: Codec) -> None:
    batch, inflated = build([Record(0, 0, None, bytes(MIB))], codec=codec), Inflated(3 * MIB)
    for _ in range(3):
        scan_records(batch, validate(batch), inflated=inflated)
    assert refusal(batch, inflated=inflated).code is ErrorCode.REQUEST_TIMED_OUT
    plain = build([Record(0, 0, None, bytes(MIB))])
    scan_records(plain, validate(plain), inflated=inflated)


def test_a_batch_with_more_records_than_what_is_left_is_for_another_request_unless_it_is_the_first() -> None:
    batch = build([Record(i, 0, None, b"v") for i in range(100)], codec=Codec.ZSTD)
    inflated = Inflated(BATCH_BYTES + 150 * ITEM_BYTES)
    scan_records(batch, validate(batch), inflated=inflated)
    assert refusal(batch, inflated=inflated).code is ErrorCode.REQUEST_TIMED_OUT
    assert refusal(batch, inflated=Inflated(50 * ITEM_BYTES)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_is_refused_counts_as_what_it_might_have_come_to(codec: Codec) -> None:
    batch, inflated = build([Record(0, 0, None, bytes(MIB))], codec=codec), Inflated(MIB)
    error = refusal(batch, limit_bytes=MIB // 2, inflated=inflated)
    assert error.code is ErrorCode.INVALID_RECORD
    assert inflated.bytes >= MIB // 2


def test_too_many_records_are_refused_before_they_are_inflated() -> None:
    count = 2 * MIB + 1
    batch = build_encoded(
        bytes(7 * count), count, base_offset=0, leader_epoch=0, timestamp=0, codec=Codec.ZSTD
    )
    inflated = Inflated()
    tracemalloc.start()
    try:
        assert refusal(batch, inflated=inflated).code is ErrorCode.INVALID_RECORD
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_walked", [True, False])
def test_too_many_headers_are_refused_before_they_are_looked_at(is_walked: bool) -> None:
    headers = [("", None)] * (60 if is_walked else 2000)
    batch = build([Record(i, 0, None, b"v", headers) for i in range(10)], codec=Codec.ZSTD)
    error = refusal(batch, inflated=Inflated(60_000))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "header" in error.message


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_record_of_a_compressed_batch_may_be_so_long(codec: Codec) -> None:
    batch = build([Record(i, 0, None, bytes(1000 if i == 7 else 10)) for i in range(20)], codec=codec)
    longest = len(encode_record(Record(7, 0, None, bytes(1000)), 0, 0)) - 2  # without its length
    header = validate(batch)
    assert scan_records(batch, header, record_bytes_max=longest).max_timestamp == 0
    error = refusal(batch, record_bytes_max=longest - 1)
    assert error.code is ErrorCode.INVALID_RECORD
    assert "max.decompressed.message.bytes" in error.message
    plain = build([Record(0, 0, None, bytes(1000))])
    assert scan_records(plain, validate(plain), record_bytes_max=10).max_timestamp == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_many_records_are_looked_at_in_parts(codec: Codec) -> None:
    count = 3 * PART_RECORDS + 5
    values, times = (b"", b"a", None), (5, 70, 1 << 40)
    section = b"".join(
        [
            encode_record(Record(i, times[i % 3], b"k" if i % 5 else None, values[i % 2]), 0, 0)
            for i in range(count)
        ]
    )
    batch = build_encoded(section, count, base_offset=0, leader_epoch=0, timestamp=0, codec=codec)
    scan = scan_records(batch, validate(batch), record_bytes_max=len(section) if codec is Codec.NONE else 20)
    assert scan.max_timestamp == 1 << 40
    assert list(scan.without_key) == list(range(0, count, 5))
    assert list(scan.timestamps()) == [times[i % 3] for i in range(count)]


@pytest.mark.parametrize("place", ["in the first part", "where parts meet", "at the end", "behind the end"])
def test_what_is_wrong_in_a_part_is_found(place: str) -> None:
    count = 2 * PART_RECORDS + 9
    offsets = list(range(count))
    match place:
        case "in the first part":
            offsets[17] = 16
        case "where parts meet":
            offsets[PART_RECORDS] = PART_RECORDS - 1
        case "at the end":
            offsets[-1] = count
    values = (b"", b"a")
    section = b"".join(
        [encode_record(Record(at, 0, None, values[i % 2]), 0, 0) for i, at in enumerate(offsets)]
    )
    section += b"\0" if place == "behind the end" else b""
    batch = build_encoded(section, count, base_offset=0, leader_epoch=0, timestamp=0, codec=Codec.ZSTD)
    assert refusal(batch).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("is_right", [True, False])
def test_the_memory_that_a_scan_takes_does_not_grow_with_the_records(is_right: bool) -> None:
    values = (b"", b"a")
    peaks = []
    for count in (4 * PART_RECORDS, 16 * PART_RECORDS):
        section = b"".join([encode_record(Record(i, 0, None, values[i % 2]), 0, 0) for i in range(count)])
        if not is_right:
            section += b"\0"
        batch = build_encoded(section, count, base_offset=0, leader_epoch=0, timestamp=0, codec=Codec.ZSTD)
        tracemalloc.start()
        try:
            if is_right:
                scan_records(batch, validate(batch))
            else:
                refusal(batch)
            peaks.append(tracemalloc.get_traced_memory()[1] - len(section))
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 16 * 4 * PART_RECORDS, "beyond the inflated bytes: 4 for each without a key"
