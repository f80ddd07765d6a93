"""What a leader looks at: every way through a scan comes to what the plain decoder says."""

import random
from typing import Any
from unittest.mock import patch

import pytest
from drawn_batches import damaged_inside, outcome, sealed
from hypothesis import given
from hypothesis import strategies as st

from quorate.protocol import record_scan, record_tables
from quorate.protocol.batch import Record, build, read_header, records, validate
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError
from quorate.protocol.record_scan import RecordScan, scan_records

WAYS = {"walked": 10**9, "as tables or columns": -1}


@pytest.fixture(params=WAYS)
def any_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of records."""
    monkeypatch.setattr(record_scan, "_WALKED_RECORDS_MAX", WAYS[request.param])


def is_table(batch: bytearray) -> bool:
    """Whether a batch is one that need not be read as columns."""
    return record_tables.look_at_tables(batch[61:], read_header(batch)) is not None


def assert_same(scan: RecordScan, plain: list[Record]) -> None:
    assert list(scan.timestamps()) == [record.timestamp for record in plain]
    assert list(scan.without_key) == [at for at, record in enumerate(plain) if record.key is None]
    if plain:
        assert scan.max_timestamp == max(record.timestamp for record in plain)


@pytest.mark.usefixtures("any_way")
@pytest.mark.parametrize("codec", Codec)
def test_a_scan_says_what_a_leader_must_know(codec: Codec) -> None:
    batch = build(
        [Record(i, 1000 + i % 7, None if i % 10 == 3 else b"k", b"v") for i in range(50)], codec=codec
    )
    scan = scan_records(batch, validate(batch))
    assert scan.max_timestamp == 1006
    assert list(scan.timestamps()) == [1000 + i % 7 for i in range(50)]
    assert list(scan.without_key) == [3, 13, 23, 33, 43]


@pytest.mark.usefixtures("any_way")
def test_a_scan_of_a_batch_without_records() -> None:
    batch = build([], base_offset=3, last_offset=9, max_timestamp=77)
    scan = scan_records(batch, validate(batch))
    assert (scan.max_timestamp, len(scan.timestamps()), len(scan.without_key)) == (77, 0, 0)


@pytest.mark.usefixtures("any_way")
@given(batch=damaged_inside())
def test_a_scan_refuses_what_records_refuse(batch: bytearray) -> None:
    header = read_header(batch)
    plain = outcome(lambda: records(batch, header))
    scan = outcome(lambda: scan_records(batch, header))
    if isinstance(plain, ApiError):
        assert str(scan) == str(plain)
    else:
        assert not isinstance(scan, ApiError)
        assert_same(scan, plain)


def uniform(count: int, key: bytes | None, value_bytes: int, step_ms: float) -> bytearray:
    return build([Record(i, 5000 + int(i * step_ms), key, bytes(value_bytes)) for i in range(count)])


@pytest.mark.parametrize("count", [65, 1000, 9000])
@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("step_ms", [0, 0.1, -2, 700])
@pytest.mark.parametrize("value_bytes", [0, 70, 9000])
def test_records_of_one_size_are_tables(
    count: int, key: bytes | None, step_ms: float, value_bytes: int
) -> None:
    batch = uniform(min(count, 1000) if value_bytes > 100 else count, key, value_bytes, step_ms)
    assert_same(scan_records(batch, validate(batch)), records(batch, read_header(batch)))
    assert is_table(batch) or step_ms == 700  # whose times change their size too often


@given(
    count=st.integers(13, 300),
    key=st.sampled_from([None, b"ky"]),
    step_ms=st.sampled_from([0, 0.3]),
    where=st.integers(0, 10**6),
    bit=st.integers(0, 7),
    goes_on=st.booleans(),
    value_bytes=st.sampled_from([5, 20]),
    copied_bytes_max=st.sampled_from([0, 1 << 16]),
    is_shape_known=st.booleans(),
)
def test_a_bit_in_a_table_is_noticed_as_by_records(
    count: int,
    key: bytes | None,
    step_ms: float,
    where: int,
    bit: int,
    goes_on: bool,
    value_bytes: int,
    copied_bytes_max: int,
    is_shape_known: bool,
) -> None:
    batch = uniform(count, key, value_bytes, step_ms)
    record_tables._shapes.clear()
    if is_shape_known:
        assert_same(scan_records(batch, read_header(batch)), records(batch, read_header(batch)))
    if not goes_on:  # among the first, where every byte has its turn
        where %= 40
    batch[61 + where % (len(batch) - 61)] ^= 1 << bit
    batch = sealed(batch)
    header = read_header(batch)
    plain = outcome(lambda: records(batch, header))
    with patch.object(record_tables, "_COPIED_BYTES_MAX", copied_bytes_max):
        scan = outcome(lambda: scan_records(batch, header))
    if isinstance(plain, ApiError):
        assert str(scan) == str(plain)
    else:
        assert not isinstance(scan, ApiError)
        assert_same(scan, plain)


@pytest.mark.parametrize("count", [16, 64, 65, 256, 257])
@pytest.mark.parametrize("keys", [(None, None), (b"k", b"k"), (None, b"k")])
def test_batches_of_a_shape_that_was_seen_are_told_apart(count: int, keys: tuple[Any, Any]) -> None:
    """Other values and times in the same places; another key or time of another size is another shape."""
    record_tables._shapes.clear()
    for value, step_ms in ((b"first", 1), (b"other", 2), (b"third", 0), (b"times", 70), (b"again", 1)):
        made = [Record(i, 5000 + i * step_ms, keys[i % 97 > 50], value) for i in range(count)]
        batch = build(made)
        assert_same(scan_records(batch, validate(batch)), made)
    assert len(record_tables._shapes) <= 4
    assert bool(record_tables._shapes) == (count <= 256)


def test_only_so_many_shapes_are_remembered() -> None:
    for value_bytes in range(2 * record_tables._SHAPES_MAX):
        batch = uniform(13, None, value_bytes, 0)
        assert_same(scan_records(batch, validate(batch)), records(batch, read_header(batch)))
    assert 0 < len(record_tables._shapes) <= record_tables._SHAPES_MAX


def test_sizes_that_vary_are_read_as_columns() -> None:
    drawn = random.Random(1)
    batch = build([Record(i, i, None, bytes(drawn.randrange(200))) for i in range(500)])
    assert not is_table(batch)
    assert_same(scan_records(batch, validate(batch)), records(batch, read_header(batch)))


def test_a_table_that_ends_early_and_one_that_begins_late() -> None:
    """Offsets of two bytes make the lines longer; so does a value."""
    values = [b"a"] * 100 + [b"bb"] * 100
    batch = build([Record(i, 0, None, value) for i, value in enumerate(values)])
    assert is_table(batch)
    assert_same(scan_records(batch, validate(batch)), records(batch, read_header(batch)))


def test_many_short_tables_are_read_as_columns() -> None:
    """Each of them would be looked for in all that is left."""
    batch = build([Record(i, 0, None, bytes(i // 20)) for i in range(500)])
    assert not is_table(batch)
    assert_same(scan_records(batch, validate(batch)), records(batch, read_header(batch)))


def test_keys_in_some_tables_only() -> None:
    batch = build([Record(i, 0, None if i < 100 else b"k", b"v") for i in range(200)])
    assert is_table(batch)
    assert_same(scan_records(batch, validate(batch)), records(batch, read_header(batch)))


def test_numbers_with_more_bytes_than_they_need_are_read_as_columns() -> None:
    """Which nobody writes, but the plain decoder accepts."""
    body = b"".join(bytes([16, 0, 0, 0x80 | number * 2, 0, 1, 2, 7, 0]) for number in range(64))
    body += b"".join(bytes([16, 0, 0, number * 2 & 0x7F | 0x80, 1, 1, 2, 7, 0]) for number in range(64, 70))
    batch = build([Record(i, 0, None, b"v") for i in range(70)])
    batch = sealed(batch[:61] + body)
    header = read_header(batch)
    assert not is_table(batch)
    assert_same(scan_records(batch, header), records(batch, header))
