"""What a leader demands of a batch before it appends it.

First its form, before anybody asks whether we lead: one batch, of the format of today, in a compression that
the version of the request knows (`check_form`). Then, in `admit`, its header, its checksum, and one scan of
all records at once; the batch itself stays the bytes that came. It is changed in place where its timestamps
are the leader's business, and rebuilt only if the topic wants another compression than the producer chose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from quorate.broker.topic_config import TopicConfig
from quorate.protocol import batch as batches
from quorate.protocol.batch import NO_TIMESTAMP, BatchHeader, TimestampType
from quorate.protocol.compression import DECOMPRESSED_BYTES_MAX, Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.inflated import Inflated
from quorate.protocol.record_scan import RecordScan, scan_records

__all__ = ["Admit", "RefusedRecordsError", "admit", "admit_by_header", "check_form"]

ZSTD_SINCE: Final = 7  # of Produce
INFLATED_BYTES_MIN: Final = 8 << 20  # that every compressed batch may inflate to...
INFLATED_RATIO_MIN: Final = 64  # ...and by how much
RECORD_ERRORS_MAX: Final = 100  # that an answer lists; the others are as bad

_FORM: Final = Struct(">8xi4xb4xh")  # length, magic, attributes
_OVERHEAD_BYTES: Final = 12  # what the length does not count
_MAGIC: Final = 2
_INT64: Final = np.iinfo(np.int64)
_UNBOUNDED_MS: Final = int(_INT64.max)
_CODEC_MASK: Final = 0x07
_ZSTD: Final = int(Codec.ZSTD)
_TRANSACTIONAL: Final = 0x10
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

Admitted = tuple[memoryview | bytearray, BatchHeader]
Admit = Callable[[memoryview, TopicConfig, int, Inflated], Admitted]


class RefusedRecordsError(ApiError):
    """A batch with records that the topic does not take. One of them fails all."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records  # which ones, by their place in the batch, and why


def check_form(data: memoryview, api_version: int) -> bool:
    """Refuses what is not exactly one batch that this version may carry. Whether it is transactional."""
    if len(data) < batches.HEADER_BYTES:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{len(data)} bytes are no record batch")
    length, magic, attributes = _FORM.unpack_from(data)
    if magic != _MAGIC:
        batches.read_header(data)  # which says what is wrong
    if length + _OVERHEAD_BYTES != len(data):
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request has exactly one batch for a partition")
    if attributes & _CODEC_MASK == _ZSTD and api_version < ZSTD_SINCE:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs a newer produce request")
    return bool(attributes & _TRANSACTIONAL)


def admit(data: memoryview, config: TopicConfig, wall_ms: int, inflated: Inflated) -> Admitted:
    """The batch as it is to be appended, and its header; an `ApiError` if it is not to be appended.
    `inflated` counts what the compressed batches of its request come to."""
    try:
        return _admitted(data, config, wall_ms, inflated)
    except ApiError as refusal:
        # It is kept until all of the request is answered. Its traceback would keep what was inflated.
        refusal.__context__ = None
        raise refusal.with_traceback(None) from None


def _admitted(data: memoryview, config: TopicConfig, wall_ms: int, inflated: Inflated) -> Admitted:
    header = _validated(data, config)
    header = _with_own_times(data, header, config)
    record_bytes_max = config.max_decompressed_message_bytes
    limit_bytes = DECOMPRESSED_BYTES_MAX
    if header.attributes & _CODEC_MASK:
        least_bytes = max(INFLATED_BYTES_MIN, INFLATED_RATIO_MIN * len(data), record_bytes_max)
        limit_bytes = min(least_bytes, DECOMPRESSED_BYTES_MAX)
    scan = scan_records(data, header, limit_bytes, record_bytes_max=record_bytes_max, inflated=inflated)
    _check_records(scan, config, wall_ms)
    buffer, header = _compressed(data, header, config, limit_bytes, inflated)
    max_timestamp = scan.max_timestamp
    if config.has_append_time:
        batches.set_append_time(buffer, 0, wall_ms)
    elif header.max_timestamp != max_timestamp:
        batches.set_create_time(buffer, 0, max_timestamp)
    else:
        return buffer, header
    return buffer, batches.read_header(buffer)


def admit_by_header(data: memoryview, config: TopicConfig, wall_ms: int, inflated: Inflated) -> Admitted:
    """The same without a look at the records, where nothing that was promised depends on them."""
    if config.is_compacted or config.compression_type != "producer":
        return admit(data, config, wall_ms, inflated)
    header = _validated(data, config)
    header = _with_own_times(data, header, config)
    if config.has_append_time:
        batches.set_append_time(data, 0, wall_ms)
        return data, batches.read_header(data)
    if _are_wrong(np.array([header.max_timestamp], np.int64), config, wall_ms).any():
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, _far_from(header.max_timestamp, wall_ms))
    return data, header


def _validated(data: memoryview, config: TopicConfig) -> BatchHeader:
    if len(data) > config.max_message_bytes:
        reason = f"a batch of {len(data)} bytes; max.message.bytes is {config.max_message_bytes}"
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, reason)
    return batches.validate_produced(data)


def _with_own_times(data: memoryview, header: BatchHeader, config: TopicConfig) -> BatchHeader:
    """A producer that claims its times to be the leader's is refused where that counts; else they are its
    own, whatever it claims."""
    if header.timestamp_type is TimestampType.CREATE_TIME:
        return header
    if config.has_append_time or header.max_timestamp == NO_TIMESTAMP:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "only the leader may set the time of an append")
    batches.set_create_time(data, 0, header.max_timestamp)
    return batches.read_header(data)


def _check_records(scan: RecordScan, config: TopicConfig, wall_ms: int) -> None:
    """Wrong times count more than missing keys, where a batch has both."""
    is_newest_wrong = scan.max_timestamp > wall_ms + config.timestamp_after_max_ms
    if not config.has_append_time and (is_newest_wrong or config.timestamp_before_max_ms < _UNBOUNDED_MS):
        timestamps = np.asarray(scan.timestamps(), np.int64)
        wrong = np.flatnonzero(_are_wrong(timestamps, config, wall_ms))
        if len(wrong):
            some = [int(index) for index in wrong[:RECORD_ERRORS_MAX]]
            told = [(index, _far_from(int(timestamps[index]), wall_ms)) for index in some]
            raise RefusedRecordsError(ErrorCode.INVALID_TIMESTAMP, told[0][1], told)
    if config.is_compacted and len(scan.without_key):
        told = [(int(index), "it has no key") for index in scan.without_key[:RECORD_ERRORS_MAX]]
        reason = f"record {told[0][0]} has no key, and the topic is compacted"
        raise RefusedRecordsError(ErrorCode.INVALID_RECORD, reason, told)


def _are_wrong(timestamps: NDArray[np.int64], config: TopicConfig, wall_ms: int) -> NDArray[np.bool_]:
    """Which of them are too far from now; to have none is always right."""
    oldest = max(wall_ms - config.timestamp_before_max_ms, int(_INT64.min))
    newest = min(wall_ms + config.timestamp_after_max_ms, int(_INT64.max))
    are_wrong: NDArray[np.bool_] = (timestamps < oldest) | (timestamps > newest)
    are_wrong &= timestamps != NO_TIMESTAMP
    return are_wrong


def _far_from(timestamp: int, wall_ms: int) -> str:
    return f"a timestamp of {timestamp}, which is too far from {wall_ms}"


def _compressed(
    data: memoryview, header: BatchHeader, config: TopicConfig, limit_bytes: int, inflated: Inflated
) -> Admitted:
    """The batch in the compression that the topic wants, which is usually the one that it has."""
    wanted = _CODECS.get(config.compression_type)
    if wanted is None or wanted is header.codec:
        return data, header
    inflated.begin(header.record_count)  # to compress takes longer than to inflate
    buffer = batches.recompressed(data, header, wanted, limit_bytes)
    if len(buffer) > config.max_message_bytes:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(buffer)} bytes after compression")
    return buffer, batches.read_header(buffer)
