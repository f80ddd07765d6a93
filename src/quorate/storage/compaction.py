"""Compaction of a log: of every key, the last record stays.

It goes through the log twice. First through what was written since the last time, the dirty part: which key
has its last record where (`OffsetMap`). Then through everything from the beginning of the log on: records
that have a later one of the same key are left out (`compaction_batches.Filter`). Offsets stay what they are.
When the map is full, the round ends with what was read so far, and the next one goes on from there.

Small neighbours become one segment. What is written is called `.cleaned` and is no part of the log: whoever
owns the log puts it in the place of the old segments (`cleaning`), group by group.

`compact` is a generator, so that whoever runs it can pause, slow down or end it at any step: in a process of
its own, or in pieces in this one. Closing it removes what is not finished. Memory: the map, a buffer or one
batch that is larger, and what that is without its compression.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, Final, Self

from quorate.protocol.batch import HEADER_BYTES, BatchHeader, read_header, validate
from quorate.protocol.errors import ApiError
from quorate.storage.cleaning import CLEANED, DELETED, remove_leftovers, remove_segment
from quorate.storage.compaction_batches import Filter, Kept, LastOfProducer, decoded
from quorate.storage.compaction_keys import KeyHash
from quorate.storage.compaction_map import OffsetMap
from quorate.storage.compaction_transactions import PassedTransactions
from quorate.storage.files import File, Files
from quorate.storage.indexes import AbortedTransaction, OffsetIndex, TransactionIndex
from quorate.storage.limits import BATCH_SPAN_MAX, SEGMENT_BYTES_MAX, LogConfig
from quorate.storage.log_file import LogFile
from quorate.storage.places import DamagedBatchError, noted
from quorate.storage.segment import LOG_SUFFIX, Segment, segment_path
from quorate.values import dataclass

__all__ = [
    "CleanedGroup",
    "Compacted",
    "CompactionTask",
    "Moved",
    "SourceSegment",
    "compact",
    "group_segments",
]

_IO_BYTES_MIN: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A segment that may be replaced."""

    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    largest_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """All that whoever compacts a log has to know: it can be sent to another process."""

    directory: str
    segments: Sequence[SourceSegment]  # from the first of the log to where the dirty part ends
    later_base_offsets: Sequence[int]  # of the segments behind them: aborted transactions may end there
    dirty_offset: int  # where the dirty part begins
    upper_offset: int  # and ends
    producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    map_load_factor: float
    io_bytes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        segments = [SourceSegment(**one) for one in found["segments"]]
        producers = {int(one): LastOfProducer(*last) for one, last in found["producers"].items()}
        return cls(**{**found, "segments": segments, "producers": producers})


@dataclass(frozen=True, slots=True)
class Moved:
    """So much was read and written since the last step."""

    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """Old segments, by their base offsets, and what is to replace them. Whoever compacts waits until it is
    done, or was refused."""

    old: Sequence[int]
    new: Sequence[int]
    largest_timestamp_ms: int


@dataclass(slots=True)
class Compacted:
    """A round that came to its end. What is before `end_offset` is clean."""

    end_offset: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    read_bytes: int = 0  # of both times
    written_bytes: int = 0
    map_keys: int = 0
    map_share: float = 0.0  # how much of the map was used
    groups: int = field(default=0)


Step = Moved | CleanedGroup
Run = Generator[Step, None, Compacted]


def compact(files: Files, task: CompactionTask, secret: bytes) -> Run:
    """One round. `secret` is drawn anew for each: see `compaction_keys`.

    Raises `DamagedBatchError` for what no log should have, and OSError.
    """
    remove_leftovers(files, task.directory)
    done = Compacted()
    keys = KeyHash(secret)
    offsets = OffsetMap(task.map_bytes, task.map_load_factor, task.upper_offset - task.dirty_offset)
    aborted = _aborted(files, task)
    yield from _fill(files, task, offsets, keys, aborted, done)
    done.end_offset = offsets.latest_offset + 1
    done.map_keys, done.map_share = offsets.count, offsets.count / offsets.count_max
    passing = Filter(
        offsets,
        keys,
        transactions := PassedTransactions(aborted),
        task.producers,
        upper_offset=task.upper_offset,
        now_ms=task.now_ms,
        delete_retention_ms=task.delete_retention_ms,
    )
    reached = [one for one in task.segments if one.base_offset < done.end_offset]
    for group in group_segments(reached, task.segment_bytes, task.index_bytes, task.upper_offset):
        written = yield from _rewrite(files, task, group, passing, transactions, done)
        old = [one.base_offset for one in group]
        yield CleanedGroup(old, written, max(one.largest_timestamp_ms for one in group))
        done.groups += 1
        for base_offset in old:
            remove_segment(files, task.directory, base_offset, DELETED)
    return done


def group_segments(
    segments: Sequence[SourceSegment], segment_bytes: int, index_bytes: int, upper_offset: int
) -> list[list[SourceSegment]]:
    """Neighbours that fit into one segment together, whatever is left of them."""
    groups: list[list[SourceSegment]] = []
    size = index = time_index = 0
    for number, segment in enumerate(segments):
        following = number + 1 < len(segments)
        last_offset = (segments[number + 1].base_offset if following else upper_offset) - 1
        if (
            groups
            and size + segment.size_bytes <= segment_bytes
            and index + segment.index_bytes <= index_bytes
            and time_index + segment.time_index_bytes <= index_bytes
            and (not segment.size_bytes or last_offset - groups[-1][0].base_offset <= BATCH_SPAN_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = index = time_index = 0
        size += segment.size_bytes
        index += segment.index_bytes
        time_index += segment.time_index_bytes
    return groups


# The first time


def _fill(
    files: Files,
    task: CompactionTask,
    offsets: OffsetMap,
    keys: KeyHash,
    aborted: Sequence[AbortedTransaction],
    done: Compacted,
) -> Generator[Step, None, None]:
    """Enters the keys of the dirty part."""
    transactions = PassedTransactions(aborted)
    offsets.latest_offset = task.dirty_offset - 1
    dirty = [one for one in task.segments if one.next_offset > task.dirty_offset]
    for number, segment in enumerate(dirty):
        file = files.open(segment_path(task.directory, segment.base_offset, LOG_SUFFIX))
        try:
            start = _position(files, task, segment)
            for buffer, headers, read_bytes in _windows(file, start, segment, task.io_bytes):
                is_full = _enter(buffer, headers, task, offsets, keys, transactions)
                done.read_bytes += read_bytes
                yield Moved(read_bytes, 0)
                if is_full:
                    return
        finally:
            file.close()
        following = dirty[number + 1].base_offset if number + 1 < len(dirty) else task.upper_offset
        offsets.latest_offset = max(offsets.latest_offset, following - 1)


def _enter(
    buffer: bytes,
    headers: Sequence[BatchHeader],
    task: CompactionTask,
    offsets: OffsetMap,
    keys: KeyHash,
    transactions: PassedTransactions,
) -> bool:
    """Enters the keys of some batches. Whether not all of them had room."""
    useful = []
    for header in headers:
        if header.is_control:
            transactions.is_unneeded_marker(buffer, header)
        elif not transactions.is_aborted(header) and header.last_offset >= task.dirty_offset:
            useful.append(header)
    for columns in decoded(buffer, useful):
        counts = (columns.offset >= task.dirty_offset) & ~columns.key_is_null
        first, second = keys.of(columns.data, columns.key_start[counts], columns.key_end[counts])
        entered = columns.offset[counts]
        room_for = offsets.put(first, second, entered)
        if room_for < len(entered):
            if room_for:
                offsets.latest_offset = max(offsets.latest_offset, int(entered[room_for]) - 1)
            return True
        offsets.latest_offset = max(offsets.latest_offset, columns.batches[-1].last_offset)
    if headers:
        offsets.latest_offset = max(offsets.latest_offset, headers[-1].last_offset)
    return False


def _position(files: Files, task: CompactionTask, segment: SourceSegment) -> int:
    """Where to begin to read for the dirty part: at the beginning, except in the segment it begins in."""
    if segment.base_offset >= task.dirty_offset:
        return 0
    path = segment_path(task.directory, segment.base_offset, ".index")
    if not files.exists(path):
        return 0
    file = LogFile.found(files, path)
    try:
        return OffsetIndex(file, segment.base_offset).look_up(task.dirty_offset).position
    finally:
        file.close()


def _aborted(files: Files, task: CompactionTask) -> list[AbortedTransaction]:
    """The aborted transactions of which something lies before the end of the dirty part."""
    found: list[AbortedTransaction] = []
    for base_offset in [*(one.base_offset for one in task.segments), *task.later_base_offsets]:
        index = TransactionIndex(files, segment_path(task.directory, base_offset, ".txnindex"))
        if index.file is not None:
            found += [one for one in index.all() if one.first_offset < task.upper_offset]
            index.file.close()
    return found


# The second time


def _rewrite(
    files: Files,
    task: CompactionTask,
    group: Sequence[SourceSegment],
    passing: Filter,
    transactions: PassedTransactions,
    done: Compacted,
) -> Generator[Step, None, list[int]]:
    """Writes what stays of a group. The base offsets of what was written: one, unless that became too
    large."""
    out = _Output(files, task, group[0].base_offset)
    try:
        for segment in group:
            file = files.open(segment_path(task.directory, segment.base_offset, LOG_SUFFIX))
            try:
                for buffer, headers, read_bytes in _windows(file, 0, segment, task.io_bytes):
                    kept = passing.passed(buffer, headers)
                    written_bytes = out.write(kept, transactions)
                    done.records_read += kept.records_read
                    done.records_kept += kept.records_kept
                    done.records_without_key += kept.records_without_key
                    done.read_bytes += read_bytes
                    done.written_bytes += written_bytes
                    yield Moved(read_bytes, written_bytes)
            finally:
                file.close()
        return out.finish()
    except BaseException:
        out.discard()
        raise


class _Output:
    """What stays of a group, as segments that are not yet part of the log."""

    def __init__(self, files: Files, task: CompactionTask, base_offset: int) -> None:
        self._files = files
        self._task = task
        self._config = LogConfig(
            segment_bytes=task.segment_bytes,
            index_interval_bytes=task.index_interval_bytes,
            index_bytes=task.index_bytes,
            is_compacted=True,
        )
        self._written = [base_offset]
        self._segment = self._create(base_offset)

    def write(self, kept: Kept, transactions: PassedTransactions) -> int:
        """Appends what stays of a buffer. How many bytes that is."""
        size_bytes = sum(header.size_bytes for header in kept.headers)
        if kept.headers:
            full = self._segment.size_bytes + size_bytes > SEGMENT_BYTES_MAX
            if self._segment.size_bytes and (full or self._segment.summary.is_index_full):
                self._segment.seal()
                self._segment.close()
                self._written.append(kept.headers[0].base_offset)
                self._segment = self._create(kept.headers[0].base_offset)
            self._segment.append(kept.parts, [noted(header) for header in kept.headers], self._task.now_ms)
        for aborted in transactions.still_needed:
            self._segment.record_aborted(aborted)
        transactions.still_needed.clear()
        return size_bytes

    def finish(self) -> list[int]:
        self._segment.seal()
        self._segment.close()
        return self._written

    def discard(self) -> None:
        self._segment.close()
        for base_offset in self._written:
            remove_segment(self._files, self._task.directory, base_offset, CLEANED)

    def _create(self, base_offset: int) -> Segment:
        task = self._task
        return Segment(
            self._files,
            task.directory,
            base_offset,
            self._config,
            task.now_ms,
            create=True,
            name_suffix=CLEANED,
        )


def _windows(
    file: File, position: int, segment: SourceSegment, io_bytes: int
) -> Iterator[tuple[bytes, list[BatchHeader], int]]:
    """The batches from a position on, some at a time, all checked: the bytes read, the headers, and how many
    of the bytes those are."""
    size_bytes, end = max(io_bytes, _IO_BYTES_MIN), segment.size_bytes
    expected_offset = segment.base_offset
    while position < end:
        buffer = file.read(position, min(size_bytes, end - position))
        headers: list[BatchHeader] = []
        at = 0
        try:
            first_bytes = read_header(buffer).size_bytes
            if len(buffer) < first_bytes <= end - position:
                buffer = file.read(position, first_bytes)
            while not headers or _has_next(buffer, at):
                header = validate(buffer, at)
                if not expected_offset <= header.base_offset <= header.last_offset < segment.next_offset:
                    reason = f"offsets {header.base_offset} to {header.last_offset} after {expected_offset}"
                    raise DamagedBatchError(file.path, f"position {position + at}: {reason}")
                expected_offset, at = header.next_offset, header.end
                headers.append(header)
        except ApiError as error:
            raise DamagedBatchError(file.path, f"position {position + at}: {error.message}") from None
        yield buffer, headers, at
        position += at


def _has_next(buffer: bytes, at: int) -> bool:
    return at + HEADER_BYTES <= len(buffer) and read_header(buffer, at).end <= len(buffer)
