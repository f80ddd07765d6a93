"""Whether batches continue a log: checks only."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.protocol.batch import BatchHeader, batches
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer
from quorate.storage.errors import AppendError
from quorate.storage.limits import BATCH_SPAN_MAX, SEGMENT_BYTES_MAX

__all__ = ["check_contiguous", "check_order", "headers_of"]


def headers_of(buffers: Sequence[Buffer]) -> list[BatchHeader]:
    """The headers of all batches; refuses what is not made of whole batches."""
    headers: list[BatchHeader] = []
    for buffer in buffers:
        end = 0
        try:
            for header in batches(buffer):
                headers.append(header)
                end = header.end
        except ApiError as error:
            raise AppendError(error.message) from None
        if end != len(buffer):
            raise AppendError(f"{len(buffer) - end} bytes at the end are no whole batch")
    return headers


def check_order(headers: Sequence[BatchHeader], end_offset: int, latest_epoch: int | None) -> None:
    """Refuses batches that do not come after each other and after the log, or do not fit into one segment."""
    expected_offset, epoch = end_offset, -1 if latest_epoch is None else latest_epoch
    for header in headers:
        if header.base_offset < expected_offset:
            raise AppendError(f"a batch at offset {header.base_offset}, before {expected_offset}")
        if 0 <= header.partition_leader_epoch < epoch:
            raise AppendError(f"a batch of epoch {header.partition_leader_epoch} after epoch {epoch}")
        expected_offset, epoch = header.next_offset, max(epoch, header.partition_leader_epoch)
    if headers and headers[-1].last_offset - headers[0].base_offset > BATCH_SPAN_MAX:
        raise AppendError("offsets that are too far apart for one segment")
    size_bytes = sum(header.size_bytes for header in headers)
    if size_bytes > SEGMENT_BYTES_MAX:
        raise AppendError(f"{size_bytes} bytes are too many for one segment")


def check_contiguous(headers: Sequence[BatchHeader], end_offset: int) -> None:
    """Refuses batches that leave out an offset."""
    expected_offset = end_offset
    for header in headers:
        if header.base_offset != expected_offset:
            raise AppendError(f"a batch at offset {header.base_offset}, not {expected_offset}")
        expected_offset = header.next_offset
