"""One segment of a log: a file of batches from a base offset on, and its indexes.

Only the last segment of a log is written to. `append` is all or nothing: what a failing disk left behind is
cut off again before the error goes on. What a crash left behind is found by `recover`, which reads every
batch up to the first that is torn, damaged or out of order; `cut` removes the rest.

Errors of the disk come out as they are, OSErrors: the log above knows what to do about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from quorate.protocol.batch import NO_TIMESTAMP, BatchHeader, batches
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer
from quorate.storage.errors import StorageError
from quorate.storage.file_ranges import FileRange
from quorate.storage.files import Files
from quorate.storage.indexes import (
    AbortedTransaction,
    OffsetEntry,
    OffsetIndex,
    TimeEntry,
    TimeIndex,
    TransactionIndex,
)
from quorate.storage.limits import BATCH_SPAN_MAX, SEGMENT_BYTES_MAX, LogConfig
from quorate.storage.log_file import LogFile
from quorate.storage.places import DamagedBatchError, NewestBatches, Noted, Place, headers_from, noted
from quorate.storage.scan import DamageError, ScannedBatch, scan, walk
from quorate.values import dataclass

__all__ = [
    "INDEX_SUFFIXES",
    "LOG_SUFFIX",
    "BatchObserver",
    "Recovered",
    "Segment",
    "SegmentSummary",
    "must_roll",
    "segment_path",
]

LOG_SUFFIX: Final = ".log"
# What belongs to a segment besides its batches. The last is the state of producers at its base offset.
INDEX_SUFFIXES: Final = (".index", ".timeindex", ".txnindex", ".snapshot")

_RECOVERY_STEP_BYTES: Final = 4 << 20

# Is shown every batch that recovery keeps, and says which transaction it aborts.
BatchObserver = Callable[[ScannedBatch], AbortedTransaction | None]


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What decisions about a segment are made from."""

    base_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp_ms: int  # of the first batch; -1 without one, or if that has none
    largest_timestamp_ms: int  # of all batches, or when it was last written to if they have none
    created_ms: int
    is_index_full: bool
    index_bytes: int = 0
    time_index_bytes: int = 0


def must_roll(
    segment: SegmentSummary,
    incoming_bytes: int,
    incoming_last_offset: int,
    incoming_timestamp_ms: int,
    now_ms: int,
    config: LogConfig,
) -> bool:
    """Whether batches that are about to be appended belong in a new segment.

    The age of a segment is told by the timestamps of its batches, so that a log which is copied later is cut
    where the first one was. Our own clock counts only where the first batch has no timestamp.
    """
    if incoming_last_offset - segment.base_offset > BATCH_SPAN_MAX or segment.is_index_full:
        return True
    if segment.size_bytes == 0:
        return False
    if segment.size_bytes + incoming_bytes > config.segment_bytes:
        return True
    if segment.first_timestamp_ms >= 0:
        return incoming_timestamp_ms - segment.first_timestamp_ms > config.segment_ms
    return now_ms - segment.created_ms > config.segment_ms


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery of one segment found."""

    whole_bytes: int
    epochs: Sequence[tuple[int, int]]  # and where each began, or went on, in this segment
    damage: str  # what stands after the whole bytes; empty if nothing does
    aborted: Sequence[AbortedTransaction]  # which the transaction index does not have yet


class Segment:
    """An open segment. `next_offset` is where it ends."""

    __slots__ = (
        "_config",
        "_created_ms",
        "_first_timestamp",
        "_is_index_full",
        "_is_index_unsynced",
        "_is_log_unsynced",
        "_last_stop",
        "_log",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_modified_ms",
        "_newest",
        "_offset_index",
        "_time_index",
        "base_offset",
        "is_sealed",
        "next_offset",
        "path",
        "transaction_index",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        create: bool,
        name_suffix: str = "",
    ) -> None:
        """`name_suffix` is what its files are called besides while they are not yet part of the log."""
        self.base_offset = base_offset
        self.next_offset = base_offset
        self._config = config
        self._created_ms = self._modified_ms = now_ms
        suffixes = (LOG_SUFFIX, ".index", ".timeindex", ".txnindex")
        paths = [segment_path(directory, base_offset, suffix + name_suffix) for suffix in suffixes]
        self.path = paths[0]
        opened = [LogFile.made(files, paths[0]) if create else LogFile.found(files, paths[0])]
        opened += [
            LogFile.made(files, one) if create else LogFile.found_or_made(files, one) for one in paths[1:3]
        ]
        try:
            self._log = opened[0]
            self._offset_index = OffsetIndex(opened[1], base_offset)
            self._time_index = TimeIndex(opened[2], base_offset)
            self.transaction_index = TransactionIndex(files, paths[3])
        except OSError:
            for file in opened:
                file.close()
            raise
        self.is_sealed = False
        self._newest = NewestBatches()
        self._last_stop = Place(0, base_offset)  # where the last reader stopped, and probably goes on
        self._is_log_unsynced = self._is_index_unsynced = create
        self._first_timestamp = self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._note_full_indexes()
        if create:
            self._offset_index.clear()  # of files that a segment of the same name left behind
            self._time_index.clear()
            self.transaction_index.clear()
            self._note_full_indexes()

    def is_now_in(self, directory: str) -> None:
        """The directory has another name now."""
        self.path = self._log.path = segment_path(directory, self.base_offset, LOG_SUFFIX)
        self._offset_index.path = segment_path(directory, self.base_offset, ".index")
        self._time_index.path = segment_path(directory, self.base_offset, ".timeindex")
        self.transaction_index.path = segment_path(directory, self.base_offset, ".txnindex")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Its files stay open meanwhile: for whoever works on them in another thread, or gives them other
        names."""
        with ExitStack() as held:
            for file in (self._log, *self._index_files()):
                held.callback(file.hold().let_go)
            yield

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def summary(self) -> SegmentSummary:
        return SegmentSummary(
            base_offset=self.base_offset,
            next_offset=self.next_offset,
            size_bytes=self._log.size_bytes,
            first_timestamp_ms=self._first_timestamp,
            largest_timestamp_ms=self._max_timestamp if self._max_timestamp >= 0 else self._modified_ms,
            created_ms=self._created_ms,
            is_index_full=self._is_index_full,
            index_bytes=self._offset_index.size_bytes,
            time_index_bytes=self._time_index.size_bytes,
        )

    @property
    def newest(self) -> TimeEntry:
        """The largest timestamp of all batches, and the last offset of the first batch that has it."""
        return TimeEntry(self._max_timestamp, self._max_timestamp_offset)

    # Writing

    def must_roll(self, incoming_bytes: int, last_offset: int, timestamp_ms: int, now_ms: int) -> bool:
        """What `must_roll` says of this segment. Mostly it is no, which is found out quickly."""
        if self._has_room(incoming_bytes, last_offset, timestamp_ms):
            return False
        return must_roll(self.summary, incoming_bytes, last_offset, timestamp_ms, now_ms, self._config)

    def _has_room(self, incoming_bytes: int, last_offset: int, timestamp_ms: int) -> bool:
        """Whether batches surely belong here, which does not depend on our clock."""
        config = self._config
        return (
            self._log.size_bytes + incoming_bytes <= config.segment_bytes
            and last_offset - self.base_offset <= BATCH_SPAN_MAX
            and self._first_timestamp >= 0
            and timestamp_ms - self._first_timestamp <= config.segment_ms
            and not self._is_index_full
        )

    def append_plain(self, buffers: Sequence[Buffer], batch: Noted, now_ms: int) -> bool:
        """What `append` does, for one batch to which nothing else has to be written: it is not the first of a
        segment, nor due in an index. False, and nothing has happened, if it might be."""
        _, last_offset, newest_ms, size_bytes, _ = batch
        log, indexed = self._log, self._offset_index.last_entry
        position = log.size_bytes
        indexed_to = 0 if indexed is None else indexed.position
        if (
            not position
            or position - indexed_to > self._config.index_interval_bytes
            or not self._has_room(size_bytes, last_offset, newest_ms)
        ):
            return False
        assert not self.is_sealed, f"{self.path} is sealed"
        try:
            log.append(buffers)
        except OSError:
            self._take_back(position, self.next_offset)
            raise
        assert position + size_bytes == log.size_bytes
        self._newest.add(position, last_offset)
        if newest_ms > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = newest_ms, last_offset
        self.next_offset = last_offset + 1
        self._modified_ms = now_ms
        self._is_log_unsynced = self._is_index_unsynced = True
        return True

    def append(self, buffers: Sequence[Buffer], batches: Sequence[Noted], now_ms: int) -> None:
        """Appends batches, and notes them in order. After an OSError nothing has changed; after a
        StorageError, which says that a torn append could not be cut off, nothing is certain."""
        assert not self.is_sealed, f"{self.path} is sealed"
        log, note_place = self._log, self._newest.add
        position = log_bytes = log.size_bytes
        before = (self.next_offset, self._first_timestamp, self._max_timestamp, self._max_timestamp_offset)
        try:
            log.append(buffers)
            entries: list[OffsetEntry] = []
            for batch in batches:
                self._notice(batch, position, entries)
                note_place(position, batch[1])
                position += batch[3]
            assert position == log.size_bytes <= SEGMENT_BYTES_MAX
            if entries:
                self._index(entries)
        except OSError:
            next_offset, self._first_timestamp, self._max_timestamp, self._max_timestamp_offset = before
            self._take_back(log_bytes, next_offset)
            raise
        self._modified_ms = now_ms
        self._is_log_unsynced = self._is_index_unsynced = True

    def _take_back(self, log_bytes: int, next_offset: int) -> None:
        """Undoes an append that has failed."""
        try:
            self._cut(log_bytes, next_offset)
        except OSError as error:
            raise StorageError(self.path, f"a torn append cannot be cut off: {error}") from error

    def record_aborted(self, aborted: AbortedTransaction) -> None:
        """Remembers a transaction whose marker is in this segment."""
        self._is_index_unsynced = True
        self.transaction_index.append(aborted)

    async def replace_aborted(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Makes these the aborted transactions whose markers are in this segment, durably."""
        await self.transaction_index.replace(aborted, self.base_offset)

    def seal(self) -> None:
        """Nothing more will be appended. The last entry of the time index is the newest time of all."""
        entry_count = self._time_index.entry_count
        self._time_index.append_if_newer(self._max_timestamp, self._max_timestamp_offset)
        self._is_index_unsynced |= self._time_index.entry_count > entry_count
        self._index_files()  # which writes them
        self.is_sealed = True

    def truncate(self, offset: int) -> None:
        """Drops the batch that holds `offset`, and all that follow; more, if a batch before it is damaged."""
        self.is_sealed = False
        if offset < self.next_offset:
            place = self._place_to_cut(offset)
            self._cut(place.position, place.offset)
            self._read_tail()

    def take_unsynced(self) -> list[LogFile]:
        """The files to sync, which then count as synced. The indexes of the last segment are not among them:
        after a crash they are built again, and an append should cost one sync."""
        found: list[LogFile] = []
        if self._is_log_unsynced:
            found.append(self._log)
            self._is_log_unsynced = False
        if self._is_index_unsynced and self.is_sealed:
            found += self._index_files()
            self._is_index_unsynced = False
        return found

    # Reading

    def read(
        self, offset: int, max_bytes: int, first_batch_bytes_max: int, end_offset: int
    ) -> memoryview | None:
        """Whole batches from the one that holds `offset` on: at most `max_bytes`, or else one that is no
        larger than `first_batch_bytes_max`; all of them before `end_offset`. None if no batch here is at or
        after `offset`."""
        found = self._locate(offset)
        if found is None:
            return None
        position, header = found
        size_bytes = self._log.size_bytes
        if header.size_bytes > max(max_bytes, first_batch_bytes_max):
            return memoryview(b"")
        data = self._log.read(position, min(max(max_bytes, header.size_bytes), size_bytes - position))
        used_bytes = 0
        try:
            for header in batches(data):
                if header.next_offset > end_offset:
                    break
                used_bytes = header.end
        except ApiError as error:
            raise StorageError(self.path, f"position {position + used_bytes}: {error.message}") from None
        return memoryview(data)[:used_bytes]

    def range(
        self, offset: int, max_bytes: int, first_batch_bytes_max: int, end_offset: int
    ) -> FileRange | None:
        """Like `read`, but still in the file; None if there is nothing within these limits. There is a batch
        at or after `offset`."""
        start = self.place_of(offset)
        stop = self.place_of(end_offset)
        if stop.position - start.position > max_bytes:
            stop = self._place_before(start.position + max_bytes)
            if stop.position <= start.position:
                position, header = next(self._headers_from(start.position))
                if header.size_bytes > max(max_bytes, first_batch_bytes_max):
                    return None
                stop = Place(position + header.size_bytes, header.next_offset)
        size_bytes = stop.position - start.position
        return (
            FileRange(self._log.shared, start.position, size_bytes, stop.offset) if size_bytes > 0 else None
        )

    def batch(self, position: int, header: BatchHeader) -> bytes:
        """All bytes of a batch, unchecked."""
        data = self._log.read(position, header.size_bytes)
        if len(data) < header.size_bytes:
            raise DamagedBatchError(self.path, f"position {position}: the file ends within a batch")
        return data

    def headers_at(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from the one that holds `offset` on, and where they are."""
        return self._headers_from(self.place_of(offset).position)

    def headers_of_time(self, timestamp: int) -> Iterator[tuple[int, BatchHeader]]:
        """Batches from a place on before which everything is older than `timestamp`."""
        entry = self._time_index.look_up(timestamp - 1)
        return self._headers_from(self._offset_index.look_up(entry.offset).position)

    def place_of(self, offset: int) -> Place:
        """Before the first batch that ends at or after an offset; at the end, if none does."""
        if offset >= self.next_offset:
            return Place(self._log.size_bytes, self.next_offset)
        if offset == self._last_stop.offset:
            return self._last_stop
        found = self._newest.place_of(offset)
        if found is None:
            for position, header in self._headers_from(self._offset_index.look_up(offset).position):
                if header.last_offset >= offset:
                    return Place(position, header.base_offset)
        return found or Place(self._log.size_bytes, self.next_offset)

    def _place_to_cut(self, offset: int) -> Place:
        """Where the batch begins that holds an offset, or a damaged one before it."""
        try:
            return self.place_of(offset)
        except DamagedBatchError:
            place = Place(0, self.base_offset)
            try:
                for position, header in self._headers_from(0):
                    if header.last_offset >= offset:
                        break
                    place = Place(position + header.size_bytes, header.next_offset)
            except DamagedBatchError:
                pass
            return place

    def _place_before(self, end: int) -> Place:
        """The last place at or before a position, which is not behind the end."""
        found = self._newest.place_before(end)
        if found is not None:
            return found
        for position, header in self._headers_from(self._offset_index.look_up_position(end).position):
            if position + header.size_bytes > end:
                return Place(position, header.base_offset)
        return Place(self._log.size_bytes, self.next_offset)

    # Opening

    def check(self) -> str | None:
        """Takes the indexes as they are, and reads on from their last entries. The reason, if one is bad."""
        problem = self._offset_index.problem(self._log.size_bytes) or self.transaction_index.problem(
            self.base_offset
        )
        if problem is not None:
            return problem
        try:
            is_short = self._read_tail()
        except StorageError as error:
            return error.reason
        if is_short:
            return "the offset index ends too early"
        if self._offset_index.entry_count and self._first_timestamp >= 0 and not self._time_index.entry_count:
            return "the time index is empty"
        return self._time_index.problem(self.next_offset)

    def recover(self, observe: BatchObserver | None) -> Iterator[Recovered | None]:
        """Reads every batch before the first bad one, and builds the indexes of these. The log file stays. So
        does the transaction index, if no observer can say what belongs in it.

        A step reads a few megabytes, and may be done in another thread if the files are `held`; the last
        gives what was found."""
        self._offset_index.clear()
        self._time_index.clear()
        if observe is not None:
            self.transaction_index.clear()
        self.next_offset = self._max_timestamp_offset = self.base_offset
        self._first_timestamp = self._max_timestamp = NO_TIMESTAMP
        self._is_log_unsynced = self._is_index_unsynced = True
        epochs: list[tuple[int, int]] = []
        aborted: list[AbortedTransaction] = []
        epoch = -1
        whole_bytes = step_bytes = 0
        try:
            for batch in scan(self._log):
                if batch.position - step_bytes >= _RECOVERY_STEP_BYTES:
                    step_bytes = batch.position
                    yield None
                header = batch.header
                self._check_order(header, batch.position)
                entries: list[OffsetEntry] = []
                self._notice(noted(header), batch.position, entries)
                if entries:
                    self._index(entries)
                if 0 <= header.partition_leader_epoch != epoch:
                    epoch = header.partition_leader_epoch
                    epochs.append((epoch, header.base_offset))
                if observe is not None and (one := observe(batch)) is not None:
                    aborted.append(one)
                whole_bytes = batch.position + header.size_bytes
        except DamageError as damage:
            yield Recovered(whole_bytes, epochs, str(damage), aborted)
        else:
            yield Recovered(whole_bytes, epochs, "", aborted)

    def cut(self, whole_bytes: int) -> None:
        """Drops what `recover` found no batches in."""
        self._cut(whole_bytes, self.next_offset)

    def rest(self) -> None:
        """Nobody is known to need its log file soon: it is closed until then."""
        self._log.rest()

    def close(self) -> None:
        for one in (self._log, self._offset_index, self._time_index, self.transaction_index):
            one.close()

    def _locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or after an offset."""
        place = self._newest.place_of(offset)
        start = self._offset_index.look_up(offset).position if place is None else place.position
        for position, header in headers_from(self._log, start, self._log.size_bytes):
            if header.last_offset >= offset:
                return position, header
        return None

    def _headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Batches that are plausible: the header of one that is not is damaged, or an index is."""
        for found in headers_from(self._log, position, self._log.size_bytes):
            header = found[1]
            if not self.base_offset <= header.base_offset <= header.last_offset < self.next_offset:
                reason = f"a batch of offsets {header.base_offset} to {header.last_offset}"
                raise DamagedBatchError(self.path, f"position {found[0]}: {reason}")
            yield found

    def _index_files(self) -> list[LogFile]:
        transaction_file = self.transaction_index.file
        files = [self._offset_index.file, self._time_index.file]
        return files if transaction_file is None else [*files, transaction_file]

    def _notice(self, batch: Noted, position: int, entries: list[OffsetEntry]) -> None:
        """Takes notice of a batch at `position` in the log file; if it is to be indexed, adds it to the
        entries that will be."""
        _, last_offset, newest_ms, _, _ = batch
        if position == 0:
            self._first_timestamp = newest_ms
        if newest_ms > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = newest_ms, last_offset
        indexed = entries[-1] if entries else self._offset_index.last_entry
        if position - (indexed.position if indexed is not None else 0) > self._config.index_interval_bytes:
            entries.append(OffsetEntry(last_offset, position))
        self.next_offset = last_offset + 1

    def _index(self, entries: Sequence[OffsetEntry]) -> None:
        """One write for all of them. The newest time so far may be that of a batch behind them: it is true
        of everything up to there, too."""
        self._offset_index.extend(entries)
        self._time_index.append_if_newer(self._max_timestamp, self._max_timestamp_offset)
        self._note_full_indexes()

    def _note_full_indexes(self) -> None:
        index_bytes = self._config.index_bytes
        self._is_index_full = self._offset_index.is_full(index_bytes) or self._time_index.is_full(index_bytes)

    def _check_order(self, header: BatchHeader, position: int) -> None:
        """A batch that is whole can still be in the wrong place, if one before it did not reach the disk."""
        offset = header.base_offset
        if offset < self.next_offset or (offset > self.next_offset and not self._config.is_compacted):
            raise DamageError(position, f"a batch at offset {offset} where {self.next_offset} comes next")
        if header.last_offset - self.base_offset > BATCH_SPAN_MAX:
            raise DamageError(
                position, f"a batch up to offset {header.last_offset}, too far for this segment"
            )

    def _cut(self, log_bytes: int, next_offset: int) -> None:
        """Makes the log file end at `log_bytes`, and the indexes with it."""
        self._newest.clear()
        self._last_stop = Place(0, self.base_offset)
        self._log.truncate(log_bytes)
        self._is_log_unsynced = self._is_index_unsynced = True
        self._offset_index.truncate(next_offset)
        self._time_index.truncate(next_offset)
        self.transaction_index.truncate(next_offset)
        self._note_full_indexes()
        self.next_offset = next_offset

    def _read_tail(self) -> bool:
        """Finds out what the indexes do not say, from their last entry on. Whether they should say more."""
        size_bytes = self._log.size_bytes
        self.next_offset = self.base_offset
        first = next(walk(self._log, 0, size_bytes), None)
        self._first_timestamp = first[1].max_timestamp if first is not None else NO_TIMESTAMP
        self._max_timestamp, self._max_timestamp_offset = self._time_index.last_entry
        indexed = self._offset_index.last_entry
        start = last = indexed.position if indexed is not None else 0
        for position, header in walk(self._log, start, size_bytes):
            last = position
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
            self.next_offset = header.next_offset
        return last - start > self._config.index_interval_bytes
