"""What a leader takes, what it changes, and what it refuses."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from serving import START_MS, a_batch

from quorate.broker.admission import RefusedRecordsError, admit, admit_by_header, check_form
from quorate.broker.topic_config import TopicConfig, topic_config
from quorate.metadata.image import ClusterImage
from quorate.protocol import batch as batches
from quorate.protocol.batch import ControlType, TimestampType
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.inflated import Inflated

CONFIG = topic_config(ClusterImage(), "t", 1, {})
NOW = START_MS


def config(**changes: Any) -> TopicConfig:
    return replace(CONFIG, **changes)


def refusal(data: bytearray, topic: TopicConfig = CONFIG) -> ApiError:
    with pytest.raises(ApiError) as caught:
        admit(memoryview(data), topic, NOW, Inflated())
    return caught.value


def damaged(position: int, value: int) -> bytearray:
    data = a_batch()
    data[position] = value
    return data


def sealed(data: bytearray) -> bytearray:
    """With the checksum that its bytes have."""
    batches.set_append_time(data, 0, 1)
    batches.set_create_time(data, 0, 1)
    return data


def with_header(position: int, value: bytes) -> bytearray:
    """A batch whose header was changed by somebody who meant it."""
    data = a_batch()
    data[position : position + len(value)] = value
    return sealed(data)


# Form


def test_a_batch_is_one_batch_and_transactional_or_not():
    assert check_form(memoryview(a_batch()), 3) is False
    about = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    assert check_form(memoryview(a_batch(**about, is_transactional=True)), 3) is True


@pytest.mark.parametrize(
    ("data", "version", "code"),
    [
        (b"", 9, ErrorCode.INVALID_RECORD),
        (bytes(a_batch())[:-1], 9, ErrorCode.INVALID_RECORD),
        (bytes(a_batch() + a_batch()), 9, ErrorCode.INVALID_RECORD),
        (bytes(damaged(16, 0)), 9, ErrorCode.INVALID_RECORD),
        (bytes(damaged(16, 1)), 9, ErrorCode.INVALID_RECORD),
        (bytes(damaged(16, 9)), 9, ErrorCode.CORRUPT_MESSAGE),
        (bytes(a_batch(codec=Codec.ZSTD)), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_what_is_not_exactly_one_batch_is_refused(data: bytes, version: int, code: ErrorCode):
    with pytest.raises(ApiError) as caught:
        check_form(memoryview(data), version)
    assert caught.value.code is code


def test_zstd_is_taken_by_versions_that_know_it():
    check_form(memoryview(a_batch(codec=Codec.ZSTD)), 7)


# Batches


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 100])
def test_a_good_batch_stays_what_it_is(codec: Codec, count: int):
    data = a_batch(count, codec=codec)
    before = bytes(data)
    buffer, header = admit(memoryview(data), CONFIG, NOW + 1000, Inflated())
    assert bytes(buffer) == before
    assert header == batches.read_header(data)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (damaged(70, 1), ErrorCode.CORRUPT_MESSAGE),
        (with_header(0, (5).to_bytes(8, "big")), ErrorCode.INVALID_RECORD),
        (with_header(57, (2).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),
        (with_header(43, (7).to_bytes(8, "big")), ErrorCode.INVALID_RECORD),
        (with_header(22, bytes([5])), ErrorCode.INVALID_RECORD),
        (batches.build_control([(ControlType.COMMIT, bytes(6))], timestamp=0), ErrorCode.INVALID_RECORD),
    ],
)
def test_headers_that_no_client_may_send(data: bytearray, code: ErrorCode):
    assert refusal(data).code is code


def test_records_that_do_not_match_their_header():
    data = a_batch(3)
    data[batches.HEADER_BYTES] ^= 2  # the length of the first record
    assert refusal(sealed(data)).code is ErrorCode.INVALID_RECORD


def test_a_batch_that_is_too_large():
    data = a_batch(10)
    size = len(data)
    admit(memoryview(data), config(max_message_bytes=size), NOW, Inflated())
    error = refusal(a_batch(10), config(max_message_bytes=size - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(size) in error.message


# Keys and times


@pytest.mark.parametrize("count", [3, 50])
def test_a_compacted_topic_wants_keys(count: int):
    error = refusal(a_batch(count, key=None), config(is_compacted=True))
    assert isinstance(error, RefusedRecordsError)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.records] == list(range(count))
    admit(memoryview(a_batch(count)), config(is_compacted=True), NOW, Inflated())


@pytest.mark.parametrize(
    ("timestamps", "wrong"),
    [
        ([NOW - 1000, NOW + 500], []),
        ([NOW - 1001, NOW, NOW + 501], [0, 2]),
        ([-1, NOW - 1001], [1]),
        ([-1, -1], []),
        ([NOW + 501] * 40, list(range(40))),
    ],
)
def test_times_must_be_near(timestamps: list[int], wrong: list[int]):
    near = config(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    data = a_batch(timestamps=timestamps)
    if not wrong:
        admit(memoryview(data), near, NOW, Inflated())
        return
    error = refusal(data, near)
    assert isinstance(error, RefusedRecordsError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.records] == wrong


def test_by_default_the_future_is_an_hour_and_the_past_has_no_end():
    hour_ms = 3_600_000
    admit(memoryview(a_batch(timestamps=[1, NOW + hour_ms])), CONFIG, NOW, Inflated())
    assert refusal(a_batch(timestamps=[NOW + hour_ms + 1])).code is ErrorCode.INVALID_TIMESTAMP


def test_wrong_times_count_more_than_missing_keys():
    strict = config(is_compacted=True, timestamp_after_max_ms=0)
    assert refusal(a_batch(timestamp=NOW + 9, key=None), strict).code is ErrorCode.INVALID_TIMESTAMP


def test_many_wrong_records_are_not_all_listed():
    error = refusal(a_batch(500, key=None), config(is_compacted=True))
    assert isinstance(error, RefusedRecordsError)
    assert len(error.records) == 100


def test_the_largest_time_is_that_of_the_records():
    data = a_batch(timestamps=[NOW, NOW + 5, NOW + 2])
    batches.set_create_time(data, 0, NOW + 77)
    buffer, header = admit(memoryview(data), CONFIG, NOW, Inflated())
    assert header.max_timestamp == NOW + 5
    assert batches.validate(buffer) == header


def test_the_time_of_the_append():
    data = a_batch(3)
    buffer, header = admit(memoryview(data), config(has_append_time=True), NOW + 123, Inflated())
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == NOW + 123
    assert batches.validate(buffer) == header


def test_a_client_may_not_claim_the_time_of_the_append():
    data = a_batch(timestamps=[NOW - 9, NOW - 3])
    batches.set_append_time(data, 0, NOW + 1)
    assert refusal(bytearray(data), config(has_append_time=True)).code is ErrorCode.INVALID_TIMESTAMP
    # where the time is the producer's, the claim counts for nothing
    buffer, header = admit(memoryview(bytearray(data)), CONFIG, NOW, Inflated())
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.max_timestamp == NOW - 3
    assert batches.validate(buffer) == header
    batches.set_append_time(data, 0, -1)
    assert refusal(data).code is ErrorCode.INVALID_TIMESTAMP


# Compression


@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_may_want_another_compression(name: str):
    about = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 5, "is_transactional": True}
    codec = Codec.GZIP if name != "gzip" else Codec.LZ4
    data = a_batch(20, codec=codec, **about)
    expected = batches.records(data, batches.read_header(data))
    buffer, header = admit(memoryview(data), config(compression_type=name), NOW, Inflated())
    assert batches.validate_produced(buffer) == header
    assert batches.records(buffer, header) == expected
    assert header.codec is {"uncompressed": Codec.NONE}.get(name) or header.codec.name.lower() == name
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
    assert header.is_transactional


def test_the_same_compression_is_kept():
    data = a_batch(20, codec=Codec.LZ4)
    before = bytes(data)
    buffer, _ = admit(memoryview(data), config(compression_type="lz4"), NOW, Inflated())
    assert bytes(buffer) == before


def test_what_is_too_large_in_the_topics_compression():
    data = a_batch(100, codec=Codec.GZIP)
    small = config(compression_type="uncompressed", max_message_bytes=len(data))
    assert refusal(data, small).code is ErrorCode.MESSAGE_TOO_LARGE


# Without a look at the records


def test_headers_alone_are_enough_where_nothing_else_was_promised():
    data = a_batch(3)
    data[batches.HEADER_BYTES] ^= 2
    data = sealed(data)
    before = bytes(data)
    buffer, header = admit_by_header(memoryview(data), CONFIG, NOW, Inflated())
    assert bytes(buffer) == before
    assert header.record_count == 3
    _, header = admit_by_header(memoryview(a_batch()), config(has_append_time=True), NOW + 4, Inflated())
    assert header.max_timestamp == NOW + 4


@pytest.mark.parametrize(
    ("data", "topic", "code"),
    [
        (damaged(70, 1), CONFIG, ErrorCode.CORRUPT_MESSAGE),
        (a_batch(key=None), config(is_compacted=True), ErrorCode.INVALID_RECORD),
        (a_batch(timestamp=NOW + 9), config(timestamp_after_max_ms=0), ErrorCode.INVALID_TIMESTAMP),
        (a_batch(), config(max_message_bytes=10), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_headers_and_promises_refuse(data: bytearray, topic: TopicConfig, code: ErrorCode):
    with pytest.raises(ApiError) as caught:
        admit_by_header(memoryview(data), topic, NOW, Inflated())
    assert caught.value.code is code


MIB = 1 << 20


def of_zeros(size_bytes: int, codec: Codec, count: int = 1) -> bytearray:
    records = [batches.Record(at, NOW, b"k", bytes(size_bytes)) for at in range(count)]
    return batches.build(records, codec=codec)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_batch_may_take_up_so_much(codec: Codec):
    admit(memoryview(of_zeros(7 * MIB, codec)), CONFIG, NOW, Inflated())
    admit(memoryview(of_zeros(MIB, codec, 7)), CONFIG, NOW, Inflated())
    too_much = of_zeros(3 * MIB, codec, 3)
    assert refusal(too_much).code is ErrorCode.INVALID_RECORD
    admit(memoryview(too_much), config(max_decompressed_message_bytes=10 * MIB), NOW, Inflated())


def test_what_shrinks_less_may_take_up_more():
    random = np.random.default_rng(1).integers(0, 256, 200 << 10, np.uint8).tobytes()
    records = [batches.Record(at, NOW, b"k", random) for at in range(60)]
    data = batches.build(records, codec=Codec.ZSTD)
    assert 12 * MIB / 64 < len(data) < 12 * MIB / 16
    admit(memoryview(data), CONFIG, NOW, Inflated())


def test_a_long_record_is_refused_where_it_is_compressed():
    short = config(max_decompressed_message_bytes=512)
    assert refusal(of_zeros(4096, Codec.GZIP), short).code is ErrorCode.INVALID_RECORD
    admit(memoryview(of_zeros(64, Codec.GZIP, 100)), short, NOW, Inflated())
    admit(memoryview(of_zeros(4096, Codec.NONE)), short, NOW, Inflated())


def test_what_was_inflated_is_not_kept_with_what_is_wrong_about_it():
    wrong = [of_zeros(9 * MIB, Codec.GZIP), of_zeros(MIB, Codec.ZSTD, 6)]
    wrong[1][23:27], wrong[1][57:61] = (6).to_bytes(4, "big"), (7).to_bytes(4, "big")  # one that is not there
    sealed(wrong[1])
    kept = []
    tracemalloc.start()
    try:
        for data in wrong:
            for _ in range(4):
                try:
                    admit(memoryview(data), CONFIG, NOW, Inflated())
                except ApiError as error:
                    kept.append(error)
        assert len(kept) == 8
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()


def test_another_compression_counts_as_well():
    data, inflated = of_zeros(MIB, Codec.ZSTD), Inflated(MIB)
    with pytest.raises(ApiError) as caught:
        admit(memoryview(data), config(compression_type="gzip"), NOW, inflated)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    inflated = Inflated(4 * MIB)
    admit(memoryview(data), config(compression_type="gzip"), NOW, inflated)
    admit(
        memoryview(of_zeros(MIB, Codec.NONE)),
        config(compression_type="gzip", max_message_bytes=2 * MIB),
        NOW,
        inflated,
    )
