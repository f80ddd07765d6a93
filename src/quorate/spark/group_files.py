"""`__consumer_offsets` out of files: partitions that somebody copied from brokers, and how they are read.

Of several copies of a partition the furthest is read. How much of it is committed says the checkpoint of the
high watermarks in the log directory, if it was copied too. Records of transactions are there once these are
committed, and never if they were aborted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.protocol.batch import BatchHeader
from quorate.protocol.columns import RecordColumns, read_validated
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer
from quorate.spark.found_problems import Problem
from quorate.spark.gaps import GapLabels
from quorate.spark.group_columns import GroupPlace, group_record_batch
from quorate.spark.log_copies import LogCopy, read_copy
from quorate.spark.log_files import CHUNK_BYTES, windows_of
from quorate.spark.log_places import GROUPS, LogPlace
from quorate.spark.log_scan import ScanCache
from quorate.spark.metadata_rows import MALFORMED
from quorate.spark.transactions import Aborted, transactions_of
from quorate.storage.checkpoints import START_OFFSETS_NAME, PartitionName, load_checkpoint
from quorate.storage.errors import StorageError
from quorate.storage.files import ReadOnlyFiles

__all__ = ["GroupChunk", "PartitionLog", "read_group_chunk", "read_partition_logs"]

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
TOPIC: Final = "__consumer_offsets"
_CONTEXT_MAX: Final = 16  # batches before a piece that are looked at to know what is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChunk:
    """Batches that follow each other in a file, to be read by one task."""

    cluster_id: str
    partition: int
    path: str
    position: int
    size_bytes: int
    expected_offset: int
    first_offset: int
    end_offset: int
    log_start_offset: int
    is_confirmed: bool
    aborted: tuple[Aborted, ...] = ()
    damaged_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PartitionLog:
    cluster_id: str
    partition: int
    copy: LogCopy
    end_offset: int  # where what can be read ends: at an open transaction, or at the end
    confirmed_end: int
    log_start_offset: int  # what is before was deleted, though its bytes may still be there
    aborted: tuple[Aborted, ...]
    problems: tuple[Problem, ...]

    @property
    def name(self) -> str:
        return f"{self.cluster_id}/{self.partition}"

    def epoch_at(self, offset: int) -> int | None:
        """In which epoch a record was written; None if compaction took it, or it was never there."""
        found = self.copy.batches
        at = int(np.searchsorted(found["next_offset"], offset, side="right"))
        return int(found["epoch"][at]) if at < len(found) and found["base_offset"][at] <= offset else None

    def chunks(self, start_offset: int, end_offset: int) -> list[GroupChunk]:
        start_offset = max(start_offset, self.log_start_offset)
        found = self.copy.batches
        inside = np.flatnonzero((found["next_offset"] > start_offset) & (found["base_offset"] < end_offset))
        if not len(inside):
            return []
        some = found[inside]
        is_confirmed = some["next_offset"] <= self.confirmed_end
        piece = np.cumsum(some["size_bytes"]) // CHUNK_BYTES
        begins = np.ones(len(some), np.bool_)
        begins[1:] = (some["file"][1:] != some["file"][:-1]) | (is_confirmed[1:] != is_confirmed[:-1])
        begins[1:] |= some["position"][1:] != (some["position"] + some["size_bytes"])[:-1]
        begins[1:] |= piece[1:] != piece[:-1]
        starts = np.flatnonzero(begins).tolist()
        ends = [*starts[1:], len(some)]
        return [
            self._chunk(inside[start:end], bool(is_confirmed[start]), start_offset, end_offset)
            for start, end in zip(starts, ends, strict=True)
        ]

    def _chunk(self, at: NDArray[Any], is_confirmed: bool, start_offset: int, end_offset: int) -> GroupChunk:
        found = self.copy.batches
        first, last = found[at[0]], found[at[-1]]
        context = int(at[0])
        for _ in range(_CONTEXT_MAX):
            before = found[context - 1] if context else None
            if before is None or before["file"] != first["file"]:
                break
            if before["position"] + before["size_bytes"] != found[context]["position"]:
                break
            context -= 1
            if not before["is_control"]:
                break
        expected = int(found["next_offset"][context - 1]) if context else 0
        if expected <= self.log_start_offset:
            expected = 0  # what was before is gone
        damaged = tuple(
            one.offset for one in self.copy.problems if one.offset is not None and one.kind != "truncated"
        )
        first_offset = max(start_offset, int(first["base_offset"]))
        return GroupChunk(
            cluster_id=self.cluster_id,
            partition=self.partition,
            path=self.copy.files[int(first["file"])],
            position=int(found[context]["position"]),
            size_bytes=int(last["position"] + last["size_bytes"] - found[context]["position"]),
            expected_offset=expected,
            first_offset=first_offset,
            end_offset=end_offset,
            log_start_offset=self.log_start_offset,
            is_confirmed=is_confirmed,
            aborted=tuple(
                one
                for one in self.aborted
                if one.last_offset >= first_offset and one.first_offset < end_offset
            ),
            damaged_offsets=damaged,
        )


def read_partition_logs(places: Sequence[LogPlace], cache: ScanCache) -> list[PartitionLog]:
    """The partitions of all clusters that have a copy in one of these places."""
    by_partition: dict[tuple[str, int], list[LogPlace]] = {}
    for place in places:
        match = GROUPS.fullmatch(place.name)
        if match:
            by_partition.setdefault((place.cluster_id, int(match[1])), []).append(place)
    return [
        _furthest(cluster_id, partition, [read_copy(place, cache) for place in some])
        for (cluster_id, partition), some in sorted(by_partition.items())
    ]


def _furthest(cluster_id: str, partition: int, copies: Sequence[LogCopy]) -> PartitionLog:
    copy = max(copies, key=lambda one: one.progress)
    problems = [problem for one in copies for problem in one.problems]
    high_watermark = 0
    for one in copies:
        high_watermark = max(high_watermark, _checkpointed(one, partition, HIGH_WATERMARKS, problems))

    def read_batch(at: int) -> bytes:
        batch = copy.batches[at]
        with Path(copy.files[int(batch["file"])]).open("rb") as file:
            file.seek(int(batch["position"]))
            return file.read(int(batch["size_bytes"]))

    aborted, stable_end = transactions_of(copy.batches, read_batch)
    end_offset = copy.end_offset if stable_end is None else min(copy.end_offset, stable_end)
    confirmed_end = min(high_watermark, end_offset)
    log_start_offset = _log_start(copy, partition, problems)
    return PartitionLog(
        cluster_id, partition, copy, end_offset, confirmed_end, log_start_offset, aborted, tuple(problems)
    )


def _checkpointed(copy: LogCopy, partition: int, name: str, problems: list[Problem]) -> int:
    """What a checkpoint of a broker says of a partition; 0 if nothing."""
    directory = str(Path(copy.place.directory).parent)
    try:
        known: Mapping[PartitionName, int] = load_checkpoint(ReadOnlyFiles(), directory, name)
    except StorageError as error:
        problems.append(Problem("foreign", f"{directory}/{name}", str(error), copy.place.cluster_id))
        return 0
    return known.get(PartitionName(TOPIC, partition), 0)


def _log_start(copy: LogCopy, partition: int, problems: list[Problem]) -> int:
    """Where the first segment begins, or later if records were deleted."""
    begin = int(Path(copy.files[0]).stem) if copy.files else 0
    return max(begin, _checkpointed(copy, partition, START_OFFSETS_NAME, problems))


# Reading pieces


def read_group_chunk(chunk: GroupChunk, types: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, some megabytes at a time."""
    place = GroupPlace(
        cluster_id=chunk.cluster_id, partition=chunk.partition, is_confirmed=chunk.is_confirmed, types=types
    )
    gaps = GapLabels(chunk.expected_offset, chunk.log_start_offset, chunk.damaged_offsets)
    for buffer, headers in windows_of(chunk.path, chunk.position, chunk.size_bytes):
        for controls, found in _decoded(buffer, headers):
            gaps.hide(controls)
            if isinstance(found, BatchHeader):
                rows = _malformed(buffer, found, gaps, place)
                is_wanted = chunk.first_offset <= found.base_offset < chunk.end_offset
                if is_wanted and (types is None or MALFORMED in types):
                    yield rows
                continue
            is_aborted = _aborted(found, chunk.aborted)
            gaps.hide(found.offset[is_aborted])
            kept = np.flatnonzero(~is_aborted & (found.offset >= chunk.log_start_offset))
            offsets = found.offset[kept]
            labels = gaps.labels(offsets)
            wanted = np.flatnonzero((offsets >= chunk.first_offset) & (offsets < chunk.end_offset))
            if len(wanted):
                yield _rows(found, kept[wanted], labels.take(pa.array(wanted)), place)


def _decoded(
    buffer: Buffer, headers: Sequence[BatchHeader]
) -> Iterator[tuple[NDArray[np.int64], RecordColumns | BatchHeader]]:
    """The records of batches, with the offsets of control records among or before them: all together if all
    can be read, or else batch by batch; of one that cannot, its header."""
    controls = [np.arange(one.base_offset, one.next_offset) for one in headers if one.is_control]
    data = [one for one in headers if not one.is_control]
    try:
        yield np.concatenate([np.zeros(0, np.int64), *controls]), read_validated(buffer, data)
        return
    except ApiError:
        if len(headers) == 1:
            yield np.zeros(0, np.int64), headers[0]
            return
    for one in headers:
        yield from _decoded(buffer, [one])


def _malformed(buffer: Buffer, header: BatchHeader, gaps: GapLabels, place: GroupPlace) -> pa.RecordBatch:
    """One row for a batch whose records are not what they say, with its bytes."""
    offsets = np.array([header.base_offset], np.int64)
    labels = gaps.labels(offsets)
    gaps.hide(np.arange(header.base_offset + 1, header.next_offset))
    raw = bytes(memoryview(buffer)[header.position : header.end])
    times = pa.array([max(0, header.max_timestamp)], pa.timestamp("ms", tz="UTC"))
    epochs = pa.array([header.partition_leader_epoch], pa.int32())
    keys, values = pa.array([None], pa.binary()), pa.array([raw], pa.binary())
    return group_record_batch(keys, values, offsets, times, epochs, labels, place)


def _aborted(columns: RecordColumns, aborted: Sequence[Aborted]) -> NDArray[np.bool_]:
    found = np.zeros(len(columns), np.bool_)
    if aborted:
        producer_ids, in_transaction = columns.producer_id, columns.is_transactional
        for one in aborted:
            is_between = (columns.offset >= one.first_offset) & (columns.offset <= one.last_offset)
            found |= is_between & in_transaction & (producer_ids == one.producer_id)
    return found


def _rows(columns: RecordColumns, at: NDArray[Any], gaps: pa.Array, place: GroupPlace) -> pa.RecordBatch:
    slots = columns.arrow_slots()
    binary = pa.Array.from_buffers(
        pa.binary(),
        len(slots.offsets) - 1,
        [None, pa.py_buffer(np.ascontiguousarray(slots.offsets)), pa.py_buffer(columns.data)],
    )
    keys = binary.take(pa.array(slots.keys[at], mask=columns.key_is_null[at]))
    values = binary.take(pa.array(slots.values[at], mask=columns.value_is_null[at]))
    times = pa.array(columns.timestamp[at], pa.timestamp("ms", tz="UTC"))
    epochs = np.array([one.partition_leader_epoch for one in columns.batches], np.int32)[
        columns.batch_index[at]
    ]
    return group_record_batch(keys, values, columns.offset[at], times, pa.array(epochs), gaps, place)
