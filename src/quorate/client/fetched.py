"""What one fetch brought for one partition: bytes, which become records or columns when they are asked to.

Not everything that a log holds is for applications. Markers of transactions never are. Who reads only what is
committed must not see the records of transactions that were aborted: the broker names those transactions, and
their batches are left out from the first offset of the transaction up to its marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from quorate.client.metadata import TopicPartition
from quorate.protocol.batch import BatchHeader, ControlType, Record, batches, control_type, validate
from quorate.protocol.batch import records as records_of
from quorate.protocol.types import Buffer
from quorate.values import dataclass

if TYPE_CHECKING:
    from quorate.protocol.columns import RecordColumns

__all__ = ["Fetched", "fetched"]


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """Some records of a partition, at least one batch: those from `start_offset` to before `next_offset`.

    `data` are the batches as the broker stores them, their checksums checked; `batches` are the headers of
    those that are for us, with their positions in the data. The first one may begin before `start_offset`.
    """

    at: TopicPartition
    start_offset: int
    next_offset: int
    data: Buffer
    batches: Sequence[BatchHeader]
    leader_epoch: int  # of the last batch
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int

    @property
    def topic(self) -> str:
        return self.at.topic

    @property
    def partition(self) -> int:
        return self.at.partition

    def records(self) -> Iterator[Record]:
        """The records, one object each."""
        for header in self.batches:
            for record in records_of(self.data, header):
                if record.offset >= self.start_offset:
                    yield record

    def columns(self) -> RecordColumns:
        """The records, an array for each field: for thousands at once. Loads numpy."""
        from quorate.protocol.columns import read_validated

        columns = read_validated(self.data, self.batches)
        skipped = int(columns.offset.searchsorted(self.start_offset))
        if not skipped:
            return columns
        return replace(
            columns,
            batch_index=columns.batch_index[skipped:],
            offset=columns.offset[skipped:],
            timestamp=columns.timestamp[skipped:],
            bounds=columns.bounds[skipped:],
            record_end=columns.record_end[skipped:],
            key_is_null=columns.key_is_null[skipped:],
            value_is_null=columns.value_is_null[skipped:],
        )


def fetched(
    at: TopicPartition,
    start_offset: int,
    data: Buffer,
    *,
    aborted: Iterable[tuple[int, int]] = (),
    high_watermark: int = -1,
    last_stable_offset: int = -1,
    log_start_offset: int = -1,
) -> Fetched:
    """What is for us in the data of a response. `aborted` are producer ids and first offsets.

    Raises CORRUPT_MESSAGE for a damaged batch. One that was cut off at the end is left for the next fetch.
    """
    found = [validate(data, header.position) for header in batches(data)]
    visible = [
        header
        for header in _without_aborted(data, found, aborted)
        if header.last_offset >= start_offset and header.record_count
    ]
    last = found[-1] if found else None
    return Fetched(
        at,
        start_offset,
        start_offset if last is None else max(start_offset, last.next_offset),
        data,
        visible,
        -1 if last is None else last.partition_leader_epoch,
        high_watermark,
        last_stable_offset,
        log_start_offset,
    )


def _without_aborted(
    data: Buffer, found: Iterable[BatchHeader], aborted: Iterable[tuple[int, int]]
) -> Iterator[BatchHeader]:
    to_come = sorted(aborted, key=lambda one: one[1], reverse=True)
    being_aborted: set[int] = set()
    for header in found:
        while to_come and to_come[-1][1] <= header.last_offset:
            being_aborted.add(to_come.pop()[0])
        if header.is_control:
            if header.producer_id in being_aborted and _is_abort(data, header):
                being_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in being_aborted):
            yield header


def _is_abort(data: Buffer, header: BatchHeader) -> bool:
    return any(control_type(record) is ControlType.ABORT for record in records_of(data, header))
