"""The metadata log as somebody found it: perhaps a snapshot, and the batches after it; and the image of it
at any offset.

*At* an offset means: with the record at that offset, and nothing after it. Batches are applied in bulk up to
the one that the offset is in, of which only the records up to it are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from quorate.metadata.errors import ImageError
from quorate.metadata.image import ClusterImage
from quorate.metadata.log_format import decode_record
from quorate.protocol.batch import BatchHeader, read_header, records
from quorate.protocol.errors import ProtocolError
from quorate.protocol.types import Buffer
from quorate.values import dataclass

__all__ = ["History", "Moment", "moment_at"]


@dataclass(frozen=True, slots=True)
class History:
    """Each buffer is one batch, whose checksum is known to be right. `snapshot_end_offset` is what the
    snapshot stands for: everything below it."""

    log: Iterable[Buffer] = ()
    snapshot: Iterable[Buffer] = ()
    snapshot_end_offset: int = 0
    snapshot_epoch: int = 0


@dataclass(slots=True)
class Moment:
    """The cluster at an offset: -1 if nothing has happened yet."""

    image: ClusterImage = field(default_factory=ClusterImage)
    offset: int = -1
    epoch: int = 0
    timestamp_ms: int = -1


def moment_at(history: History, offset: int | None = None) -> Moment:
    """The cluster at an offset, or at the end. Raises `ImageError` if the offset is not in this history."""
    start_offset = history.snapshot_end_offset
    if offset is not None and 0 <= offset < start_offset - 1:
        raise ImageError(
            f"offset {offset}: this begins with a snapshot of everything up to {start_offset - 1}"
        )
    moment = Moment()
    if start_offset or history.snapshot:
        image = ClusterImage.load(history.snapshot, start_offset - 1)
        moment = Moment(image, start_offset - 1, history.snapshot_epoch)
    expected_offset = start_offset
    for batch in history.log:
        header = read_header(batch)
        if header.next_offset <= start_offset:
            continue
        if header.base_offset > expected_offset:
            missing = f"{expected_offset} to {header.base_offset - 1}"
            raise ImageError(f"offsets {missing} are missing, and there is no snapshot of them")
        if offset is not None and header.base_offset > offset:
            break
        _apply(moment, batch, header, offset)
        expected_offset = header.next_offset
    if offset is not None and moment.offset < offset:
        raise ImageError(f"offset {offset}: the log ends at {moment.offset}")
    return moment


def _apply(moment: Moment, batch: Buffer, header: BatchHeader, offset: int | None) -> None:
    moment.epoch, moment.timestamp_ms = header.partition_leader_epoch, header.max_timestamp
    if offset is None or header.last_offset <= offset:
        moment.image.apply_batch(batch)
        moment.offset = header.last_offset
        return
    moment.offset = offset
    if header.is_control:
        return
    for record in records(batch, header):
        if record.offset > offset:
            break
        value = record.value or b""
        try:
            decoded, _ = decode_record(value)
        except ProtocolError as error:
            moment.image.apply_unknown(value, error)
        else:
            moment.image.apply(decoded, record.offset)
