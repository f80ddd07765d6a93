"""Record batches, format 2: the unit in which records travel, are stored and are checked.

A batch is a header of 61 bytes and its records, compressed as one stream or not at all. Two fields lie
before the checksum, base offset and leader epoch, so that a leader can `stamp` a batch without touching
the rest. Everything a broker does with a batch on its way to disk reads the header alone (`read_header`,
`batches`, `validate`); only who needs the records themselves pays for them: `records` here, one object
each, or `columns` for thousands at once.

Which error says what: CORRUPT_MESSAGE, which a client may retry, when bytes were lost or altered on the
way (length, magic, checksum, compressed stream); INVALID_RECORD, which it may not, when the sender meant
what it sent and it is wrong (counts, offsets, lengths of fields). Formats 0 and 1 are the latter: they are
what they claim to be, but nobody may send them any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from operator import itemgetter
from struct import Struct
from struct import error as StructError  # noqa: N812, it is a class
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from quorate.protocol.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.record import RECORD_BYTES_MIN, Record, encode_record, read_record
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError
from quorate.values import plain_members

__all__ = [
    "HEADER_BYTES",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "BatchHeader",
    "ControlType",
    "Record",
    "TimelessBatch",
    "TimestampType",
    "batches",
    "build",
    "build_control",
    "build_encoded",
    "control_type",
    "read_header",
    "recompressed",
    "record_bytes",
    "records",
    "set_append_time",
    "set_create_time",
    "set_producer",
    "stamp",
    "validate",
    "validate_produced",
]

HEADER_BYTES: Final = 61
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_LEADER_EPOCH: Final = -1

_MAGIC: Final = 2
_OVERHEAD_BYTES: Final = 12  # base offset and length, which the length does not count
_LENGTH_MIN: Final = HEADER_BYTES - _OVERHEAD_BYTES
_BASE_OFFSET_MAX: Final = (1 << 63) - (1 << 31) - 1  # so that no record of the batch passes an int64
_CHECKED_FROM: Final = 21  # the checksum covers everything after itself

_CODEC_MASK: Final = 0x07
_CODEC_MAX: Final = int(Codec.ZSTD)  # an enum is several times as slow to compare with
_CODECS: Final = tuple(Codec)  # and to look up
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_CODEC_AND_CONTROL: Final = _CODEC_MASK | _CONTROL
_DELETE_HORIZON: Final = 0x40

_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH_AND_MAGIC: Final = Struct(">8xi4xb")
_BASE_OFFSET: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_LEADER_EPOCH: Final = Struct(">i")
_PLACE: Final = Struct(">qiibI")  # all that stands before what the checksum is of
_CRC_AND_ATTRIBUTES: Final = Struct(">Ih")
_TIMES: Final = Struct(">qq")
_MAX_TIMESTAMP: Final = Struct(">q")
_PRODUCER: Final = Struct(">qhi")
_CONTROL_KEY: Final = Struct(">hh")


@plain_members
class TimestampType(IntEnum):
    """Whose clock the timestamps of a batch come from: the producer's, or the leader's at the append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlType(IntEnum):
    """What a control record says: the second field of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class BatchHeader(NamedTuple):
    """The 61 bytes in front of the records, as they were when they were read."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int  # where in its buffer the batch begins

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + self.length

    @property
    def end(self) -> int:
        """Where in its buffer the batch ends."""
        return self.position + _OVERHEAD_BYTES + self.length

    @property
    def codec(self) -> Codec:
        """Raises INVALID_RECORD for 5, 6 and 7.

        Apache trips over these (IllegalArgumentException, so UNKNOWN_SERVER_ERROR for the whole request).
        UNSUPPORTED_COMPRESSION_TYPE would tell a client that a newer protocol version would do, and
        CORRUPT_MESSAGE that sending it again would.
        """
        number = self.attributes & _CODEC_MASK
        if number > _CODEC_MAX:
            raise _no_codec(self)
        return _CODECS[number]

    @property
    def timestamp_type(self) -> TimestampType:
        return (
            TimestampType.LOG_APPEND_TIME if self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones in this batch. It takes the place of the base timestamp."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def last_offset(self) -> int:
        """What the batch covers, not what is left in it: compaction takes records and keeps this."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence numbers go on at 0 after 2^31 - 1. -1 if the batch has none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


# Headers, without looking at the records


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; checks that it is one, not that the batch is whole or right."""
    try:
        fields = _HEADER.unpack_from(buffer, position)
    except StructError:
        raise _no_batch(buffer, position) from None
    if fields[3] != _MAGIC or fields[1] < _LENGTH_MIN:
        raise _no_batch(buffer, position)
    return _new_header(BatchHeader, fields + (position,))  # noqa: RUF005


def batches(buffer: Buffer) -> Iterator[BatchHeader]:
    """The headers of all whole batches, in order.

    A fetch may end in the middle of a batch: that ends the iteration. `end` of the last header says how much
    of the buffer was used.
    """
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.end > len(buffer):
            return
        yield header
        position = header.end
    if len(buffer) - position >= _LENGTH_AND_MAGIC.size:
        length, magic = _LENGTH_AND_MAGIC.unpack_from(buffer, position)
        if magic != _MAGIC or length < _LENGTH_MIN:
            raise _no_batch(buffer, position)


def validate(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of a whole and undamaged batch, such as one from a log, which compaction may have thinned.

    It costs the checksum and half a microsecond, which is why the fields are taken apart by hand here. What
    is inside the records, `records` and `record_scan.scan_records` find out.
    """
    try:
        fields = _HEADER.unpack_from(buffer, position)
    except StructError:
        raise _no_batch(buffer, position) from None
    base_offset, length, _, magic, crc, _, last_offset_delta, _, _, _, _, _, record_count = fields
    end = position + _OVERHEAD_BYTES + length
    if magic != _MAGIC or length < _LENGTH_MIN or end > len(buffer):
        raise _no_batch(buffer, position)
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    if crc32c(view[position + _CHECKED_FROM : end]) != crc:
        raise _corrupt(f"batch at offset {base_offset}: its checksum does not match its bytes")
    header = _new_header(BatchHeader, fields + (position,))  # noqa: RUF005
    if not (0 <= record_count - 1 <= last_offset_delta and 0 <= base_offset <= _BASE_OFFSET_MAX):
        _check_range(header)
    return header


def validate_produced(buffer: Buffer, position: int = 0) -> BatchHeader:
    """`validate`, and what a leader demands of a batch that a client sends: every offset from 0 is there,
    it is no control batch, its codec exists, and it has a sequence number if it has a producer id."""
    header = validate(buffer, position)
    base_offset, attributes, last_offset_delta, producer_id, base_sequence, record_count = _produced(header)
    if (
        record_count - 1 != last_offset_delta
        or base_offset
        or attributes & _CODEC_AND_CONTROL > _CODEC_MAX
        or base_sequence < 0 <= producer_id
    ):
        raise _not_producible(header)
    return header


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Gives a batch its place in the log. Its checksum stays right."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def set_producer(
    buffer: bytearray | memoryview, position: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Numbers a batch that was built without a producer, so that it is not stored twice.

    >>> batch = build([Record(0, 7, None, b"value")])
    >>> set_producer(batch, 0, 4711, 0, 17)
    >>> header = validate_produced(batch)
    >>> header.producer_id, header.producer_epoch, header.base_sequence
    (4711, 0, 17)
    """
    header = read_header(buffer, position)
    _PRODUCER.pack_into(buffer, position + 43, producer_id, producer_epoch, base_sequence)
    crc = crc32c(memoryview(buffer)[position + _CHECKED_FROM : header.end])
    _CRC_AND_ATTRIBUTES.pack_into(buffer, position + 17, crc, header.attributes)


def set_append_time(buffer: bytearray | memoryview, position: int, append_time_ms: int) -> None:
    """Makes the leader's time that of every record, for topics with LogAppendTime.

    The records keep their own timestamps; readers of the batch must report this one.
    """
    _set_timestamp(buffer, position, append_time_ms, _LOG_APPEND_TIME)


def set_create_time(buffer: bytearray | memoryview, position: int, max_timestamp: int) -> None:
    """Makes the records' own timestamps count, the largest being `max_timestamp`: clients may be wrong."""
    _set_timestamp(buffer, position, max_timestamp, 0)


# Records


def records(buffer: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """All records of a batch, or an error: nobody sees the first half of a batch that ends badly.

    They are as many as the header says, their offsets increase and lie in what the header covers, and they
    fill the batch exactly.
    """
    data = bytes(record_bytes(buffer, header, limit_bytes))
    found: list[Record] = []
    position = 0
    offset = header.base_offset - 1
    try:
        for _ in range(header.record_count):
            record, position = read_record(data, position, header.base_offset, header.base_timestamp)
            if not offset < record.offset <= header.last_offset:
                raise MalformedError(
                    f"offset {record.offset} after {offset}, in a batch up to {header.last_offset}"
                )
            offset = record.offset
            found.append(record)
    except (MalformedError, IndexError) as error:
        reason = "it goes on after the end of the batch" if isinstance(error, IndexError) else error
        raise _invalid(f"batch at offset {header.base_offset}, record {len(found)}: {reason}") from None
    if position != len(data):
        left_bytes = len(data) - position
        raise _invalid(f"batch at offset {header.base_offset}: {left_bytes} bytes after {len(found)} records")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [record._replace(timestamp=header.max_timestamp) for record in found]
    return found


def record_bytes(buffer: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The records of a batch as they were before compression; there is room in them for as many as the
    header says. A batch without records may do without a stream."""
    _check_range(header)
    codec = header.codec  # refuses one that does not exist, whether there are records or not
    data: Buffer = memoryview(buffer)[header.position + HEADER_BYTES : header.end]
    if data and (codec is not Codec.NONE or len(data) > limit_bytes):
        try:
            data = decompress(codec, data, limit_bytes)
        except ApiError as error:
            raise ApiError(error.code, f"batch at offset {header.base_offset}: {error.message}") from None
    if header.record_count * RECORD_BYTES_MIN > len(data):
        raise _invalid(
            f"batch at offset {header.base_offset}: {header.record_count} records in {len(data)} bytes"
        )
    return data


def recompressed(
    buffer: Buffer, header: BatchHeader, codec: Codec, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytearray:
    """A batch in another compression; its records stay the bytes that they are.

    >>> batch = build([Record(0, 7, None, b"value")], codec=Codec.GZIP)
    >>> recompressed(batch, read_header(batch), Codec.NONE) == build([Record(0, 7, None, b"value")])
    True
    """
    body = compress(codec, record_bytes(buffer, header, limit_bytes))
    out = bytearray(memoryview(buffer)[header.position : header.position + HEADER_BYTES])
    _LENGTH.pack_into(out, 8, _LENGTH_MIN + len(body))
    out += body
    attributes = header.attributes & ~_CODEC_MASK | codec
    _CRC_AND_ATTRIBUTES.pack_into(out, 17, 0, attributes)
    _CRC_AND_ATTRIBUTES.pack_into(out, 17, crc32c(memoryview(out)[_CHECKED_FROM:]), attributes)
    return out


def build(
    batch: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """A batch of records whose offsets increase from `base_offset` or above.

    `last_offset` and `max_timestamp` are for compaction: what the batch covers, even where the last records
    are gone, and the time of a batch of which nothing is left.

    >>> batch = build([Record(0, 1000, b"key", b"value", [("trace", b"17")]), Record(1, 1001, None, b"")])
    >>> header = validate_produced(batch)
    >>> header.record_count, header.max_timestamp
    (2, 1001)
    >>> records(batch, header)[1]
    Record(offset=1, timestamp=1001, key=None, value=b'', headers=())
    """
    kept = list(batch)
    base_timestamp = delete_horizon_ms
    if base_timestamp is None:
        base_timestamp = kept[0].timestamp if kept else NO_TIMESTAMP
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in kept), default=NO_TIMESTAMP)
    if last_offset is None:
        last_offset = kept[-1].offset if kept else base_offset
    assert all(a.offset < b.offset for a, b in pairwise(kept)), "offsets must increase"
    assert not kept or base_offset <= kept[0].offset <= kept[-1].offset <= last_offset, "offsets out of range"

    body: Buffer = b"".join([encode_record(record, base_offset, base_timestamp) for record in kept])
    if body:
        body = compress(codec, body)
    attributes = (
        codec
        | (_TRANSACTIONAL if is_transactional else 0)
        | (_CONTROL if is_control else 0)
        | (_DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    out = bytearray(
        _HEADER.pack(
            base_offset,
            _LENGTH_MIN + len(body),
            leader_epoch,
            _MAGIC,
            0,
            attributes,
            last_offset - base_offset,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(kept),
        )
    )
    out += body
    _CRC_AND_ATTRIBUTES.pack_into(out, 17, crc32c(memoryview(out)[_CHECKED_FROM:]), attributes)
    return out


def build_encoded(
    section: Buffer,
    count: int,
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp: int,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of records that are encoded already, all of the same time, their offsets 0, 1, 2, ... from its
    base: however many there are, it costs a header, a checksum and their compression.

    >>> section = b"".join(encode_record(Record(i, 7, None, b"value"), 0, 7) for i in range(3))
    >>> batch = build_encoded(section, 3, base_offset=40, leader_epoch=2, timestamp=7)
    >>> batch == build([Record(40 + i, 7, None, b"value") for i in range(3)], base_offset=40, leader_epoch=2)
    True
    """
    assert count > 0, "a batch has records"
    section = compress(codec, section)
    length = _LENGTH_MIN + len(section)
    attributes = codec | (_TRANSACTIONAL if is_transactional else 0)
    producer = producer_id, producer_epoch, -1
    places = base_offset, length, leader_epoch, _MAGIC, 0, attributes, count - 1
    out = bytearray(_HEADER.size + len(section))
    _HEADER.pack_into(out, 0, *places, timestamp, timestamp, *producer, count)
    out[HEADER_BYTES:] = section
    _CRC_AND_ATTRIBUTES.pack_into(out, 17, crc32c(memoryview(out)[_CHECKED_FROM:]), attributes)
    return out


class TimelessBatch:
    """A batch that is built once and appended again and again, of records that are encoded already, all of
    them of one time. Whoever changes something in it gives it a time afterwards, and its place in the log.

    >>> batch = TimelessBatch(encode_record(Record(0, 7, None, b"value"), 0, 7), 1)
    >>> batch.place(40, 2, 8)
    >>> batch.data == build([Record(40, 8, None, b"value")], base_offset=40, leader_epoch=2)
    True
    """

    __slots__ = ("_checked", "_length", "data")

    def __init__(self, section: Buffer, count: int) -> None:
        self.data = build_encoded(section, count, base_offset=0, leader_epoch=NO_LEADER_EPOCH, timestamp=0)
        self._checked = memoryview(self.data)[_CHECKED_FROM:]
        self._length = _LENGTH_MIN + len(section)

    def place(self, base_offset: int, leader_epoch: int, timestamp: int) -> None:
        _TIMES.pack_into(self.data, 27, timestamp, timestamp)
        _PLACE.pack_into(self.data, 0, base_offset, self._length, leader_epoch, _MAGIC, crc32c(self._checked))


def build_control(
    controls: Sequence[tuple[ControlType, bytes]],
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """A batch that speaks to brokers and consumers instead of applications, of types and encoded values.

    >>> marker = build_control([(ControlType.COMMIT, bytes(6))], timestamp=0, producer_id=7, producer_epoch=0)
    >>> control_type(records(marker, read_header(marker))[0])
    <ControlType.COMMIT: 1>
    """
    return build(
        [
            Record(base_offset + index, timestamp, _CONTROL_KEY.pack(0, kind), value)
            for index, (kind, value) in enumerate(controls)
        ],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=True,
    )


def control_type(record: Record) -> ControlType | None:
    """What a record of a control batch says; None for a type that came after this was written, which readers
    must pass over."""
    if record.key is None or len(record.key) < 4:
        raise _invalid(f"control record at offset {record.offset}: its key is too short")
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise _invalid(f"control record at offset {record.offset}: its key has version {version}")
    return ControlType(kind) if kind in ControlType._value2member_map_ else None


# What BatchHeader._make does, without the call in between. Adding tuples is faster than unpacking, too.
_new_header: Final = tuple.__new__
_produced: Final = itemgetter(0, 5, 6, 9, 11, 12)


def _no_batch(buffer: Buffer, position: int) -> ApiError:
    """Why the bytes at `position` are not a whole batch of format 2."""
    left_bytes = len(buffer) - position
    if left_bytes < _LENGTH_AND_MAGIC.size:
        return _corrupt(f"{left_bytes} bytes are no record batch")
    length, magic = _LENGTH_AND_MAGIC.unpack_from(buffer, position)
    if magic in (0, 1) and length > 0:
        return _invalid(f"message format {magic} is no longer taken, only record batches of format 2")
    if magic != _MAGIC:
        return _corrupt(f"no record batch has magic {magic}")
    if length < _LENGTH_MIN:
        return _corrupt(f"no record batch has a length of {length}")
    return _corrupt(f"a record batch of {_OVERHEAD_BYTES + length} bytes where {left_bytes} are left")


def _not_producible(header: BatchHeader) -> ApiError:
    if header.base_offset != 0:
        return _invalid(f"a produced batch begins at offset 0, not {header.base_offset}")
    if header.record_count != header.last_offset_delta + 1:
        return _invalid(
            f"{header.record_count} records with a last offset delta of {header.last_offset_delta}"
        )
    if header.is_control:
        return _invalid("a client may not send control batches")
    if header.attributes & _CODEC_MASK > _CODEC_MAX:
        return _no_codec(header)
    return _invalid(f"producer {header.producer_id} sent a batch without a sequence number")


def _no_codec(header: BatchHeader) -> ApiError:
    return _invalid(f"batch at offset {header.base_offset}: no codec {header.attributes & _CODEC_MASK}")


def _check_range(header: BatchHeader) -> None:
    """Raises unless the offsets that the batch covers exist, and its records can each have one of them."""
    if not 0 <= header.base_offset <= _BASE_OFFSET_MAX:
        raise _invalid(f"a batch at offset {header.base_offset}")
    if not (0 <= header.record_count <= header.last_offset_delta + 1 and header.last_offset_delta >= 0):
        raise _invalid(
            f"batch at offset {header.base_offset}: {header.record_count} records with a last offset delta of"
            f" {header.last_offset_delta}"
        )


def _set_timestamp(buffer: bytearray | memoryview, position: int, max_timestamp: int, kind: int) -> None:
    header = read_header(buffer, position)
    if header.max_timestamp == max_timestamp and header.attributes & _LOG_APPEND_TIME == kind:
        return
    attributes = header.attributes & ~_LOG_APPEND_TIME | kind
    _CRC_AND_ATTRIBUTES.pack_into(buffer, position + 17, 0, attributes)
    _MAX_TIMESTAMP.pack_into(buffer, position + 35, max_timestamp)
    crc = crc32c(memoryview(buffer)[position + _CHECKED_FROM : header.end])
    _CRC_AND_ATTRIBUTES.pack_into(buffer, position + 17, crc, attributes)


def _corrupt(reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, reason)


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, reason)
