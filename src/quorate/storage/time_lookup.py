"""Which record is the first, or the newest, by time.

Timestamps come from producers and need not be in order. "The first at or after a time" means the one with the
lowest offset. Segments and batches whose newest record is too old are passed over by what their headers and
indexes say; only the records of the batch that must hold the answer are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from quorate.protocol.batch import BatchHeader, record_bytes, records, validate
from quorate.protocol.columns import Int64s, decode_in_parts
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError
from quorate.storage.places import DamagedBatchError
from quorate.storage.segment import Segment

__all__ = ["TimedOffset", "first_since", "newest"]

_FEW_RECORDS: Final = 256


class TimedOffset(NamedTuple):
    """A record: its time, its offset, the epoch of the leader that appended it (-1 if that is unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def first_since(segments: Iterable[Segment], timestamp_ms: int, start_offset: int) -> TimedOffset | None:
    """The first record from `start_offset` on that is not older than `timestamp_ms`."""
    for segment in segments:
        if segment.newest.timestamp < timestamp_ms:
            continue
        for position, header in segment.headers_of_time(timestamp_ms):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
                found = _first_in(segment, position, header, timestamp_ms, start_offset)
                if found is not None:
                    return found
    return None


def newest(segments: Sequence[Segment], start_offset: int) -> TimedOffset | None:
    """The first of the records with the largest timestamp of all."""
    latest = max(segments, key=lambda segment: segment.newest.timestamp)  # the first of several
    timestamp_ms, offset = latest.newest
    if timestamp_ms < 0:
        return None
    for position, header in latest.headers_at(offset):
        if header.max_timestamp == timestamp_ms:
            return _first_in(latest, position, header, timestamp_ms, start_offset)
    return None


def _first_in(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> TimedOffset | None:
    data = segment.batch(position, header)
    try:
        for timestamps, offsets in _columns(data, validate(data)):
            found = np.flatnonzero((timestamps >= timestamp_ms) & (offsets >= start_offset))
            if len(found):
                at = int(found[0])
                return TimedOffset(int(timestamps[at]), int(offsets[at]), header.partition_leader_epoch)
    except ApiError as error:
        raise DamagedBatchError(segment.path, f"position {position}: {error.message}") from None
    except MalformedError:
        raise DamagedBatchError(segment.path, f"position {position}: its records do not fit") from None
    return None


def _columns(data: Buffer, header: BatchHeader) -> Iterator[tuple[Int64s, Int64s]]:
    """Times and offsets. A small batch can stand for millions of records: of many, some at a time."""
    if header.record_count <= _FEW_RECORDS:
        found = records(data, header)
        yield np.array([one.timestamp for one in found], np.int64), np.array([one.offset for one in found])
        return
    for part in decode_in_parts(record_bytes(data, header), header):
        yield part.timestamp, part.offset
