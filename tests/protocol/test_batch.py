"""Record batches: what is written is read, what is wrong is refused, Apache's bytes are understood."""

from collections.abc import Callable
from struct import pack_into

import pytest
from drawn_batches import (
    BAD_RECORDS,
    batch_of_bytes,
    built_batches,
    damaged_inside,
    damages,
    outcome,
    record_lists,
    sealed,
)
from hypothesis import given
from hypothesis import strategies as st

from quorate.protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    ControlType,
    Record,
    TimestampType,
    batches,
    build,
    build_control,
    control_type,
    read_header,
    records,
    set_append_time,
    set_create_time,
    stamp,
    validate,
    validate_produced,
)
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode

TWO = [Record(0, 1000, b"k", b"v"), Record(1, 1001, None, None, [("h", None), ("\u00fc", b"1")])]

# Written by Apache Kafka 4.3.1 (MemoryRecords.withIdempotentRecords).
APACHE = {
    Codec.NONE: bytes.fromhex(
        "0000000000000000000000e8ffffffff026003a5230000000000020000018bcfe568000000018bcfe568060000000000"
        "001267000300000011000000035c00000001506666666163646866666563686163676661666861666167666566646563"
        "6564656765626663676766008401000602046b3150616864636565616865616661646767676467646468686166656862"
        "66656865616761616865636863060a7472616365047431066e696c0104c3bc008401000c04046b325063636864646167"
        "626368636563626563646862646668676761636368666363676368666467676261060a7472616365047432066e696c01"
        "04c3bc00"
    ),
    Codec.GZIP: bytes.fromhex(
        "0000000000000000000000c3ffffffff0206e52bbb0001000000020000018bcfe568000000018bcfe568060000000000"
        "001267000300000011000000031f8b08000000000000ff3d8eb10dc25010437fd0570ac432c9241980e6fe9ded434114"
        "8811188b8ec5389a147663fbc9d7d6dab491348f24e1692e1ad36822187004844197d8de539b4f7d5f36cb70c012d50b"
        "49a188ac11729460b2ca3c7d3ebf9ee6e8af657edcee53ff7efe8c4beffbbab9678469540d3e5007463025ab80ee2a2f"
        "f4b083b11e8c1f9c92c09eb7000000"
    ),
    Codec.SNAPPY: bytes.fromhex(
        "000000000000000000000100ffffffff022469c1790002000000020000018bcfe568000000018bcfe568060000000000"
        "0012670003000000110000000382534e41505059000000000100000001000000bbb701f0b65c00000001506666666163"
        "6468666665636861636766616668616661676665666465636564656765626663676766008401000602046b3150616864"
        "63656561686561666164676767646764646868616665686266656865616761616865636863060a747261636504743106"
        "6e696c0104c3bc008401000c04046b325063636864646167626368636563626563646862646668676761636368666363"
        "676368666467676261060a7472616365047432066e696c0104c3bc00"
    ),
    Codec.LZ4: bytes.fromhex(
        "0000000000000000000000f3ffffffff0271853eeb0003000000020000018bcfe568000000018bcfe568060000000000"
        "0012670003000000110000000304224d18604082b3000000f0635c000000015066666661636468666665636861636766"
        "616668616661676665666465636564656765626663676766008401000602046b31506168646365656168656166616467"
        "6767646764646868616665686266656865616761616865636863060a7472616365047431066e696c0104c3bc4400f51f"
        "0c04046b3250636368646461676263686365636265636468626466686767616363686663636763686664676762614400"
        "a032066e696c0104c3bc0000000000"
    ),
    Codec.ZSTD: bytes.fromhex(
        "0000000000000000000000baffffffff027134eb450004000000020000018bcfe568000000018bcfe568060000000000"
        "0012670003000000110000000328b52ffd0058ec0300528a1c1ca027e9735555bf789306f6b149a62453efab7e0ff06f"
        "f621dbffde01c64e15f92cd2275775d339b187e5796a44270fa3608c0029078290604a01810151184cb9034300c1b3df"
        "6a7d7d5eef272aaa2a9ad7af257d47513000042907e22afab44a65c975cdbbe7e2ceda27cef6510821030102005004e9"
        "288214010000"
    ),
}

APACHE_COMMIT_MARKER = bytes.fromhex(
    "000000000000002a000000420000000602f5f27e9a0030000000000000018bcfe568000000018bcfe568000000000000"
    "0012670003ffffffff000000012000000008000000010c00000000000c00"
)
APACHE_EMPTY_BATCH = bytes.fromhex(
    "0000000000000064000000310000000502e85a6291001000000009ffffffffffffffff0000018bcfe568000000000000"
    "00000700010000000300000000"
)


# Round trips


@given(record_lists(), st.sampled_from(Codec), st.integers(0, 5), st.integers(0, 5))
def test_what_was_built_is_read(made: list[Record], codec: Codec, before: int, after: int) -> None:
    first, last = (made[0].offset, made[-1].offset) if made else (7, 7)
    base_offset = max(0, first - before)
    batch = build(made, base_offset=base_offset, codec=codec, last_offset=last + after, leader_epoch=3)
    header = validate(batch)
    assert [record._replace(headers=tuple(record.headers)) for record in records(batch, header)] == made
    assert header.size_bytes == header.end == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (
        base_offset,
        last + after,
        last + after + 1,
    )
    assert header.record_count == len(made)
    assert header.max_timestamp == max((record.timestamp for record in made), default=-1)
    assert (header.codec, header.partition_leader_epoch) == (codec, 3)


def test_every_field_of_the_header_comes_back() -> None:
    batch = build(
        TWO,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=2**31 - 1,
        is_transactional=True,
        codec=Codec.ZSTD,
    )
    header = validate_produced(batch)
    assert header == BatchHeader(
        base_offset=0,
        length=len(batch) - 12,
        partition_leader_epoch=-1,
        magic=2,
        crc=int.from_bytes(batch[17:21], "big"),
        attributes=0x14,
        last_offset_delta=1,
        base_timestamp=1000,
        max_timestamp=1001,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=2**31 - 1,
        record_count=2,
        position=0,
    )
    assert header.is_transactional
    assert not header.is_control
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.delete_horizon_ms is None
    assert header.last_sequence == 0, "sequence numbers start again after the largest int32"


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "expected"),
    [(-1, 5, -1), (0, 0, 0), (10, 5, 15), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 5, 3)],
)
def test_last_sequence(base_sequence: int, last_offset_delta: int, expected: int) -> None:
    header = read_header(build(TWO))._replace(
        base_sequence=base_sequence, last_offset_delta=last_offset_delta
    )
    assert header.last_sequence == expected


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    batch = build(TWO, delete_horizon_ms=5000)
    header = validate(batch)
    assert header.delete_horizon_ms == header.base_timestamp == 5000
    assert [record.timestamp for record in records(batch, header)] == [1000, 1001]


def test_a_header_key_that_is_not_utf8_survives() -> None:
    batch = build([Record(0, 0, None, None, [("xx", b"")])])
    batch = sealed(batch.replace(b"xx", b"\xff\xfe"))
    found = records(batch, validate(batch))
    assert build(found) == batch


def test_a_batch_can_stand_anywhere_in_a_buffer() -> None:
    buffer = b"before" + bytes(build(TWO, codec=Codec.LZ4)) + b"after"
    header = validate(memoryview(buffer), 6)
    assert header.position == 6
    assert [record.key for record in records(buffer, header)] == [b"k", None]


# Control batches


def test_control_records() -> None:
    controls = [
        (ControlType.SNAPSHOT_HEADER, b"1"),
        (ControlType.KRAFT_VERSION, b"2"),
        (ControlType.KRAFT_VOTERS, b""),
    ]
    batch = build_control(controls, timestamp=5, base_offset=100, leader_epoch=4)
    header = validate(batch)
    assert header.is_control
    assert not header.is_transactional
    found = records(batch, header)
    assert [(control_type(record), record.value) for record in found] == controls
    assert [record.offset for record in found] == [100, 101, 102]


def test_a_control_type_of_the_future_is_passed_over() -> None:
    assert control_type(Record(0, 0, b"\0\0\x01\0", b"")) is None


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_control_record_needs_a_key(key: bytes | None) -> None:
    with pytest.raises(ApiError) as caught:
        control_type(Record(0, 0, key, b""))
    assert caught.value.code is ErrorCode.INVALID_RECORD


# Apache's bytes


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_apache_are_read(codec: Codec) -> None:
    batch = APACHE[codec]
    header = validate_produced(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.codec) == (
        4711,
        3,
        17,
        codec,
    )
    first, second, third = records(batch, header)
    assert first == (0, 1_700_000_000_000, None, b"fffacdhffechacgfafhafagfefdecedegebfcggf", ())
    assert (second.offset, second.timestamp, second.key) == (1, 1_700_000_000_003, b"k1")
    assert third.headers == [("trace", b"t2"), ("nil", None), ("\u00fc", b"")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_the_same_records_make_the_same_bytes_as_apache(codec: Codec) -> None:
    found = records(APACHE[codec], read_header(APACHE[codec]))
    assert build(found, codec=codec, producer_id=4711, producer_epoch=3, base_sequence=17) == APACHE[codec]


def test_a_transaction_marker_makes_the_same_bytes_as_apache() -> None:
    marker = build_control(
        [(ControlType.COMMIT, bytes.fromhex("0000 0000000c"))],
        timestamp=1_700_000_000_000,
        base_offset=42,
        leader_epoch=6,
        producer_id=4711,
        producer_epoch=3,
        is_transactional=True,
    )
    assert marker == APACHE_COMMIT_MARKER


def test_a_batch_that_compaction_has_emptied() -> None:
    header = validate(APACHE_EMPTY_BATCH)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 109, 0)
    assert records(APACHE_EMPTY_BATCH, header) == []
    ours = build(
        [],
        base_offset=100,
        last_offset=109,
        leader_epoch=5,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        max_timestamp=1_700_000_000_000,
        is_transactional=True,
    )
    assert ours == APACHE_EMPTY_BATCH


# Many batches


@given(st.lists(built_batches(size_max=3), max_size=4), st.data())
def test_a_partial_last_batch_ends_the_iteration(made: list[bytearray], data: st.DataObject) -> None:
    buffer = b"".join(made)
    kept = data.draw(st.integers(0, len(buffer)))
    ends = [sum(map(len, made[: index + 1])) for index in range(len(made))]
    assert [header.end for header in batches(buffer[:kept])] == [end for end in ends if end <= kept]


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        (b"\0" * 16, None),
        (b"\0" * 17, ErrorCode.CORRUPT_MESSAGE),
        (b"\0" * 11 + b"\x30\0\0\0\0\x02", ErrorCode.CORRUPT_MESSAGE),
        (b"\0" * 11 + b"\x31\0\0\0\0\x02", None),
        (b"\0" * 11 + b"\x31\0\0\0\0\x03", ErrorCode.CORRUPT_MESSAGE),
        (b"\0" * 11 + b"\x16\0\0\0\0\x01", ErrorCode.INVALID_RECORD),
        (b"\0" * 100, ErrorCode.CORRUPT_MESSAGE),
        (b"\xff" * 100, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_may_follow_the_last_whole_batch(tail: bytes, code: ErrorCode | None) -> None:
    buffer = bytes(build(TWO)) + tail
    if code is None:
        assert len(list(batches(buffer))) == 1
    else:
        with pytest.raises(ApiError) as caught:
            list(batches(buffer))
        assert caught.value.code is code


# Rewriting in place


def test_stamp_leaves_the_checksum_right() -> None:
    buffer = bytearray(b"xyz") + build(TWO)
    stamp(buffer, 3, 2**40, 17)
    header = validate(buffer, 3)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 17)
    assert [record.offset for record in records(buffer, header)] == [2**40, 2**40 + 1]


@pytest.mark.parametrize("codec", Codec)
def test_append_time_is_that_of_every_record_and_can_be_taken_back(codec: Codec) -> None:
    buffer = bytearray(b"xyz") + build(TWO, codec=codec)
    original = bytes(buffer)
    set_append_time(buffer, 3, 9999)
    header = validate(buffer, 3)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == 9999
    assert [record.timestamp for record in records(buffer, header)] == [9999, 9999]
    set_create_time(buffer, 3, 1001)
    assert buffer == original


# What is refused


def damaged(position: int, form: str, value: int, *, reseal: bool = True) -> bytearray:
    batch = build(TWO)
    pack_into(form, batch, position, value)
    if not reseal:
        return batch
    length = batch[8:12]
    batch = sealed(batch)
    batch[8:12] = length
    return batch


REFUSED: list[tuple[str, Callable[[bytearray], BatchHeader], bytearray, ErrorCode]] = [
    ("cut in the header", validate, build(TWO)[:60], ErrorCode.CORRUPT_MESSAGE),
    ("cut in the records", validate, build(TWO)[:-1], ErrorCode.CORRUPT_MESSAGE),
    ("nothing", validate, bytearray(), ErrorCode.CORRUPT_MESSAGE),
    ("length of less than a header", validate, damaged(8, ">i", 48), ErrorCode.CORRUPT_MESSAGE),
    ("negative length", validate, damaged(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    ("length past the end", validate, damaged(8, ">i", 2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
    ("message format 0", validate, damaged(16, "b", 0), ErrorCode.INVALID_RECORD),
    ("message format 1", validate, damaged(16, "b", 1), ErrorCode.INVALID_RECORD),
    ("message format 3", validate, damaged(16, "b", 3), ErrorCode.CORRUPT_MESSAGE),
    ("message format -1", validate, damaged(16, "b", -1), ErrorCode.CORRUPT_MESSAGE),
    ("wrong checksum", validate, damaged(17, ">I", 1, reseal=False), ErrorCode.CORRUPT_MESSAGE),
    ("altered record", validate, damaged(70, "b", 1, reseal=False), ErrorCode.CORRUPT_MESSAGE),
    ("more records than offsets", validate, damaged(57, ">i", 3), ErrorCode.INVALID_RECORD),
    ("fewer than no records", validate, damaged(57, ">i", -1), ErrorCode.INVALID_RECORD),
    ("negative offset delta", validate, damaged(23, ">i", -1), ErrorCode.INVALID_RECORD),
    ("negative base offset", validate, damaged(0, ">q", -1), ErrorCode.INVALID_RECORD),
    ("offsets past the largest", validate, damaged(0, ">q", 2**63 - 1), ErrorCode.INVALID_RECORD),
    ("produced elsewhere than 0", validate_produced, damaged(0, ">q", 1), ErrorCode.INVALID_RECORD),
    ("produced with gaps", validate_produced, damaged(23, ">i", 2), ErrorCode.INVALID_RECORD),
    ("produced empty", validate_produced, build([]), ErrorCode.INVALID_RECORD),
    ("produced control", validate_produced, damaged(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    ("codec 5", validate_produced, damaged(21, ">h", 5), ErrorCode.INVALID_RECORD),
    ("codec 7", validate_produced, damaged(21, ">h", 7), ErrorCode.INVALID_RECORD),
    ("producer without sequence", validate_produced, damaged(43, ">q", 0), ErrorCode.INVALID_RECORD),
]


@pytest.mark.parametrize(("check", "batch", "code"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_a_bad_header_is_refused(
    check: Callable[[bytearray], BatchHeader], batch: bytearray, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        check(batch)
    assert caught.value.code is code


def test_a_compacted_batch_is_valid_but_cannot_be_produced() -> None:
    batch = build([Record(1, 0, b"k", b"v"), Record(5, 0, b"k", b"v")], last_offset=9)
    assert validate(batch).record_count == 2
    with pytest.raises(ApiError):
        validate_produced(batch)


@given(st.data(), built_batches(size_max=5))
def test_any_damage_to_a_batch_is_noticed(data: st.DataObject, batch: bytearray) -> None:
    """Except to base offset and leader epoch, which leaders rewrite: these the checksum does not cover."""
    bad = data.draw(damages(batch))
    found = outcome(lambda: validate(bad))
    if isinstance(found, ApiError):
        assert found.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    else:
        assert bad[8:12] == batch[8:12]
        assert bad[16 : found.end] == batch[16:]


@pytest.mark.parametrize("batch", [batch for _, batch in BAD_RECORDS], ids=[name for name, _ in BAD_RECORDS])
def test_a_bad_record_is_refused_by_name(batch: bytearray) -> None:
    with pytest.raises(ApiError, match="batch at offset 0") as caught:
        records(batch, validate(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_the_error_names_batch_and_record() -> None:
    batch = build([Record(7, 0, b"k", b"v"), Record(8, 0, b"kk", b"v")], base_offset=7)
    batch = sealed(batch.replace(b"\x04kk", b"\xc8kk"))
    with pytest.raises(ApiError, match="batch at offset 7, record 1: "):
        records(batch, validate(batch))


def test_lengths_longer_than_they_need_to_be_are_read_as_java_does() -> None:
    batch = batch_of_bytes(22, 0, 0x80, 0, 0x80, 0, 0x81, 0, 0x81, 0, 0x80, 0)
    assert records(batch, validate(batch)) == [Record(0, 0, None, None, [])]


@given(damaged_inside())
def test_records_of_a_sealed_but_damaged_batch_are_whole_or_refused(batch: bytearray) -> None:
    found = outcome(lambda: records(batch, read_header(batch)))
    if isinstance(found, ApiError):
        assert found.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    else:
        assert len(found) == read_header(batch).record_count


@given(st.binary(max_size=300), st.integers(0, 80))
def test_any_bytes_are_a_batch_or_an_api_error(data: bytes, record_count: int) -> None:
    """With a header in front that is right, so that every byte is looked at."""
    batch = bytearray(build([])[:HEADER_BYTES]) + data
    pack_into(">i", batch, 23, max(0, record_count - 1))
    pack_into(">i", batch, 57, record_count)
    batch = sealed(batch)
    found = outcome(lambda: records(batch, validate(batch)))
    assert isinstance(found, list) or found.code is ErrorCode.INVALID_RECORD


def test_a_count_that_cannot_be_is_refused_before_it_is_counted() -> None:
    batch = build(TWO)
    pack_into(">i", batch, 23, 2**31 - 1)
    pack_into(">i", batch, 57, 2**31 - 1)
    batch = sealed(batch)
    with pytest.raises(ApiError, match="2147483647 records in"):
        records(batch, validate(batch))


def test_the_limit_counts_for_the_records_of_a_batch() -> None:
    batch = build([Record(0, 0, None, bytes(10_000))], codec=Codec.ZSTD)
    header = validate(batch)
    assert len(records(batch, header, 10_100)) == 1
    with pytest.raises(ApiError, match="limit of 9999 bytes"):
        records(batch, header, 9999)


def test_timestamps_too_far_apart_for_one_batch_are_refused() -> None:
    apart = [Record(0, -(2**62), None, b""), Record(1, 2**62, None, b"")]
    with pytest.raises(
        ApiError, match="INVALID_TIMESTAMP: record at offset 1: timestamp 4611686018427387904"
    ):
        build(apart)


def test_a_codec_that_does_not_exist_is_refused_in_an_empty_batch_too() -> None:
    batch = build([], last_offset=3)
    batch[22] = 5
    batch = sealed(batch)
    with pytest.raises(ApiError, match="no codec 5"):
        records(batch, validate(batch))
