"""What a leader demands of a batch before it appends it.

One look at the header and one scan of all records at once; the batch itself stays the bytes that came. It is
changed in place where its timestamps are the leader's business, and rebuilt only if the topic wants another
compression than the producer chose.
"""

from __future__ import annotations

from typing import Final

from quorate.broker.topic_config import TopicConfig
from quorate.protocol import batch as batches
from quorate.protocol.batch import BatchHeader, TimestampType
from quorate.protocol.columns import scan_records
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["admit"]

ZSTD_SINCE: Final = 7  # of Produce
_NO_TIMESTAMP: Final = -1
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def admit(
    data: memoryview, config: TopicConfig, api_version: int, wall_ms: int
) -> tuple[memoryview | bytearray, BatchHeader]:
    """The batch as it is to be appended, and its header; an `ApiError` if it is not to be appended."""
    header = batches.validate_produced(data)
    if header.end != len(data):
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request has exactly one batch for a partition")
    if header.size_bytes > config.max_message_bytes:
        reason = f"a batch of {header.size_bytes} bytes; max.message.bytes is {config.max_message_bytes}"
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, reason)
    if header.codec is Codec.ZSTD and api_version < ZSTD_SINCE:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs a newer produce request")
    scan = scan_records(data, header)
    if config.is_compacted and len(scan.without_key):
        reason = f"record {scan.without_key[0]} has no key, and the topic is compacted"
        raise ApiError(ErrorCode.INVALID_RECORD, reason)
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    if is_append_time and config.has_append_time:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "only the leader may set the time of an append")
    buffer: memoryview | bytearray = data
    wanted = _CODECS.get(config.compression_type)
    if wanted is not None and wanted is not header.codec:
        buffer = _recompressed(data, header, wanted)
        header = batches.read_header(buffer)
        if header.size_bytes > config.max_message_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{header.size_bytes} bytes after compression")
    if config.has_append_time:
        batches.set_append_time(buffer, 0, wall_ms)
    else:
        _check_times(scan.timestamps.min(), scan.max_timestamp, config, wall_ms)
        if is_append_time or header.max_timestamp != scan.max_timestamp:
            batches.set_create_time(buffer, 0, scan.max_timestamp)
        else:
            return buffer, header
    return buffer, batches.read_header(buffer)


def _check_times(earliest: int, latest: int, config: TopicConfig, wall_ms: int) -> None:
    too_new = latest - wall_ms > config.timestamp_after_max_ms
    too_old = earliest != _NO_TIMESTAMP and wall_ms - earliest > config.timestamp_before_max_ms
    if too_new or too_old:
        wrong = latest if too_new else earliest
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP, f"a timestamp of {wrong}, which is too far from {wall_ms}"
        )


def _recompressed(data: memoryview, header: BatchHeader, codec: Codec) -> bytearray:
    """The same records in another compression; what identifies the producer stays."""
    return bytearray(
        batches.build(
            batches.records(data, header),
            codec=codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
        )
    )
