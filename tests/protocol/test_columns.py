"""Columns: the same records as one at a time, the same verdict on any bytes, and Arrow arrays from them."""

import numpy as np
import pyarrow as pa
import pytest
from drawn_batches import BAD_RECORDS, CODECS, FIELDS, built_batches, damaged_inside, outcome, sealed
from hypothesis import example, given
from hypothesis import strategies as st

from quorate.protocol import columns
from quorate.protocol.batch import (
    BatchHeader,
    ControlType,
    Record,
    batches,
    build,
    build_control,
    read_header,
    records,
    set_append_time,
)
from quorate.protocol.columns import RecordColumns, read_columns, read_validated
from quorate.protocol.compression import Codec, compress
from quorate.protocol.errors import ApiError, ErrorCode


def rows(found: RecordColumns) -> list[Record]:
    return [
        Record(
            int(found.offset[row]),
            int(found.timestamp[row]),
            found.key(row),
            found.value(row),
            tuple(found.headers(row)),
        )
        for row in range(len(found))
    ]


def expected(buffer: bytes | bytearray, headers: list[BatchHeader]) -> list[Record]:
    return [
        record._replace(headers=tuple(record.headers))
        for header in headers
        for record in records(buffer, header)
    ]


@given(st.lists(built_batches(), max_size=5), st.integers(0, 3))
def test_columns_hold_the_same_records_as_records(made: list[bytearray], append_times: int) -> None:
    for batch in made[:append_times]:
        set_append_time(batch, 0, 1_700_000_000_000)
    buffer = b"".join(made)
    found = read_columns(buffer + b"\0\0\0")
    headers = list(batches(buffer))
    assert list(found.batches) == headers
    assert rows(found) == expected(buffer, headers)
    assert [headers[index].position for index in found.batch_index] == [
        header.position for header in headers for _ in range(header.record_count)
    ]
    for row, record in enumerate(rows(found)):
        assert found.key_length[row] == (-1 if record.key is None else len(record.key))
        assert found.value_length[row] == (-1 if record.value is None else len(record.value))


@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=60), CODECS)
def test_arrow_takes_keys_and_values_out_of_the_slots(pairs: list[tuple[bytes, bytes]], codec: Codec) -> None:
    batch = build([Record(i, i, key, value) for i, (key, value) in enumerate(pairs)], codec=codec)
    found = read_columns(bytes(batch) * 2)
    slots = found.arrow_slots()
    fields = pa.Array.from_buffers(
        pa.binary(), len(slots.offsets) - 1, [None, pa.py_buffer(slots.offsets), pa.py_buffer(found.data)]
    )
    fields.validate(full=True)
    keys = fields.take(pa.array(slots.keys, mask=slots.null_keys))
    values = fields.take(pa.array(slots.values, mask=slots.null_values))
    assert keys.to_pylist() == [key for key, _ in pairs] * 2
    assert values.to_pylist() == [value for _, value in pairs] * 2


def test_uncompressed_batches_are_not_copied() -> None:
    buffer = bytes(build([Record(0, 0, b"k", b"v")])) * 3
    assert read_columns(buffer).data is buffer
    view = memoryview(buffer)
    assert read_columns(view).data is view


def test_what_a_batch_says_of_all_its_records_can_be_looked_up() -> None:
    data = build([Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v")], producer_id=7, is_transactional=True)
    marker = build_control([(ControlType.ABORT, bytes(6))], timestamp=0, base_offset=2, producer_id=7)
    found = read_columns(bytes(data + marker))
    assert found.is_control.tolist() == [False, False, True]
    assert found.is_transactional.tolist() == [True, True, False]
    assert found.producer_id.tolist() == [7, 7, 7]


def test_no_batches_are_no_records() -> None:
    found = read_columns(b"")
    assert len(found) == 0
    assert rows(found) == []
    assert found.arrow_slots().offsets.tolist() == [0]


def test_a_checksum_that_does_not_match_is_noticed() -> None:
    buffer = build([Record(0, 0, b"k", b"v")])
    buffer[-2] ^= 1
    with pytest.raises(ApiError) as caught:
        read_columns(buffer)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


# The same verdict

PADDED = bytes([22, 0, 0x80, 0, 0x80, 0, 0x81, 0, 0x81, 0, 0x80, 0])
PADDED_HEADER = bytes([28, 0, 0, 0, 1, 1, 2, 0x80, 0x80, 0x80, 0x80, 0, 0x81, 0x80, 0x00])


def batch_of(body: bytes, record_count: int = 1, codec: Codec = Codec.NONE) -> bytearray:
    batch = build([])
    batch[21:23] = codec.to_bytes(2, "big")
    batch[23:27] = (record_count - 1).to_bytes(4, "big")
    batch[57:61] = record_count.to_bytes(4, "big")
    return sealed(batch + compress(codec, body))


@given(damaged_inside())
@example(batch_of(PADDED))
@example(batch_of(PADDED_HEADER))
@example(batch_of(bytes([12, 0, 0, 0, 1, 1, 0, 13, 0, 0, 2, 1, 1, 0]), 2))
@example(batch_of(bytes(1000), 100))
def test_columns_and_records_agree_on_what_is_bad(batch: bytearray) -> None:
    assert_same_outcome(batch, [read_header(batch)])


def assert_same_outcome(buffer: bytes | bytearray, headers: list[BatchHeader]) -> None:
    plain = outcome(lambda: expected(buffer, headers))
    found = outcome(lambda: rows(read_validated(buffer, headers)))
    if isinstance(plain, ApiError):
        assert str(found) == str(plain)
    else:
        assert found == plain


@pytest.mark.parametrize("batch", [batch for _, batch in BAD_RECORDS], ids=[name for name, _ in BAD_RECORDS])
def test_columns_refuse_what_records_refuse(batch: bytearray) -> None:
    assert isinstance(outcome(lambda: records(batch, read_header(batch))), ApiError)
    assert_same_outcome(batch, [read_header(batch)])


@given(st.integers(1, 4), st.data())
def test_columns_and_records_agree_on_any_fields(record_count: int, data: st.DataObject) -> None:
    """Fields that random damage would hardly ever hit: each a varint of any value and any width."""
    varint = st.one_of(
        st.sampled_from([0, 1, 2, 3, 2**32 - 1, 2**32, 2**64 - 1, 2**64 - 2, 2**64]), st.integers(0, 40)
    )

    def encoded(value: int, padding: int) -> bytes:
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
        for _ in range(padding):
            out[-1] |= 128
            out.append(0)
        return bytes(out)

    def field() -> bytes:
        return encoded(data.draw(varint), data.draw(st.sampled_from([0, 0, 0, 0, 1, 3, 8])))

    body = b""
    for _ in range(record_count):
        fields = b"\0" + b"".join(field() for _ in range(5)) + data.draw(st.binary(max_size=3))
        body += encoded(len(fields) * 2, data.draw(st.sampled_from([0, 0, 1, 3]))) + fields
    batch = batch_of(body, record_count)
    assert_same_outcome(batch, [read_header(batch)])


@given(damaged_inside())
def test_one_bad_batch_among_good_ones_is_found(bad: bytearray) -> None:
    good = build([Record(i, i, b"key", b"value") for i in range(3)])
    buffer = bytes(good) + bytes(bad) + bytes(good)
    headers = [read_header(buffer, start) for start in (0, len(good), len(good) + len(bad))]
    assert_same_outcome(buffer, headers)


# Limits


def test_each_batch_has_the_limit_for_itself() -> None:
    batch = bytes(build([Record(0, 0, None, bytes(1000))], codec=Codec.GZIP))
    assert len(read_columns(batch * 3, 1100)) == 3
    with pytest.raises(ApiError, match="limit of 1000 bytes"):
        read_columns(batch * 3, 1000)


def test_all_batches_together_fit_what_arrow_can_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "DATA_BYTES_MAX", 2500)
    batch = bytes(build([Record(0, 0, None, bytes(1000))], codec=Codec.GZIP))
    assert len(read_columns(batch * 2)) == 2
    with pytest.raises(ApiError) as caught:
        read_columns(batch * 3)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_columns_have_the_types_that_arrow_has() -> None:
    found = read_columns(build([Record(0, 0, b"k", b"v")]))
    assert found.offset.dtype == found.timestamp.dtype == np.int64
    assert found.arrow_slots().offsets.dtype == np.int32
