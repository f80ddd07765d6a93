"""A log: batches at consecutive offsets, in a directory of segments.

Writing and reading are synchronous, and meet the page cache. What has to wait for the disk is awaited:
`flush`, and everything that takes away from the log. Appends may go on during a flush; it covers what was
there when it was called. Two of the awaited operations never run at the same time. A caller that is cancelled
leaves them running: nobody knows how far a sync has come, so none is ever abandoned.

After a power failure, what is below `flushed_offset` is there, and what comes behind it was once there in
this order. So a cut is synced before anything is appended in its place: otherwise a disk could bring back the
end of what was cut, behind the beginning of what replaced it. And who remembers on disk up to where the log
is synced is asked to forget it before that (`when_cut`): otherwise what replaced it would be believed synced.

When the disk fails: an append that did not fit is cut off and raises `StorageError`; the log goes on after
the next `flush` has succeeded. A sync that failed, or a cut that was left half done, ends the use of the log:
every call raises from then on.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from operator import attrgetter
from typing import Final

from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer, Uuid
from quorate.storage.cleaning import (
    CLEANED,
    ReplacementRefusedError,
    check_cleaned,
    open_sealed,
    put_in_place,
    remove_segment,
)
from quorate.storage.companion import LogCompanion
from quorate.storage.continuation import check_contiguous, check_order, headers_of
from quorate.storage.epochs import LeaderEpochs, load_epochs, store_epochs
from quorate.storage.errors import StorageError
from quorate.storage.file_ranges import FileRange
from quorate.storage.files import Files
from quorate.storage.indexes import AbortedTransaction
from quorate.storage.limits import SEGMENT_BYTES_MAX, LogConfig
from quorate.storage.partition_metadata import claim_directory
from quorate.storage.places import Noted, noted
from quorate.storage.recovery import RecoveryReport, open_segments, remove_segment_files
from quorate.storage.segment import BatchObserver, Segment, SegmentSummary

__all__ = ["Log"]

_base_offset: Final = attrgetter("base_offset")


class Log:
    """One log, owned by whoever opened it. `Log.open` makes it."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        recovery: RecoveryReport,
    ) -> None:
        self.directory = directory
        self.config = config
        self.epochs = epochs
        self.recovery = recovery
        self._files = files
        self._segments = segments
        # Asked for all the time, so plain: nobody else changes them.
        self.start_offset = segments[0].base_offset
        """Where the log begins. Batches before it may still be there, but are not read."""
        self.end_offset = segments[-1].next_offset
        """The offset that the next record gets."""
        self._flushed_offset = self.start_offset
        self._are_names_unsynced = True
        self._is_own_name_unsynced = False
        self._are_epochs_unsynced = True
        self._cuts = self._synced_cuts = 0  # how often something was cut off, and how often that was synced
        self._failure: StorageError | None = None
        self._awaited = asyncio.Lock()
        self.companion: LogCompanion | None = None
        self.when_cut: Callable[[], Awaitable[None]] | None = None
        """Is awaited when something was cut off, before anything can be appended."""

    @classmethod
    async def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        topic_id: Uuid | None = None,
        recovery_point: int | None = 0,
        start_offset: int = 0,
        observe: BatchObserver | None = None,
    ) -> Log:
        """Opens a log, or begins one, and recovers it: see `recovery`. All of it is then on disk, except that
        one without a batch may be gone after a power failure: whoever begins it again has the same. Its names
        are synced with its first batch: a cluster may have very many logs in which there is nothing to lose.

        `recovery_point` is the offset up to which it was known to be synced, or None if it was closed in
        order; `start_offset` is where it begins, if that was remembered elsewhere.
        """
        try:
            files.make_directory(directory)
            if topic_id is not None:
                await claim_directory(files, directory, topic_id)
            epochs = load_epochs(files, directory)
            saved_epochs = list(epochs)
            segments, report = await open_segments(
                files,
                directory,
                config,
                recovery_point=recovery_point,
                epochs=epochs,
                observe=observe,
                now_ms=now_ms,
            )
            is_new = not segments
            segments = segments or [Segment(files, directory, start_offset, config, now_ms, create=True)]
        except OSError as error:
            raise StorageError.of(directory, error) from error
        log = cls(files, directory, config, segments, epochs, report)
        # whoever made the directory may have died before its name was synced, or had no batch to sync it for
        log._is_own_name_unsynced = recovery_point is not None or log._is_without_batches()
        try:
            if log.end_offset < start_offset:
                await log.restart_at(start_offset, now_ms)
            log.start_offset = max(log.start_offset, start_offset)
            epochs.truncate_from_start(log.start_offset)
            epochs.truncate_from_end(log.end_offset)
            log._are_epochs_unsynced = list(epochs) != saved_epochs
            if not log._is_without_batches():
                await log.flush()
            elif not is_new:
                await log._exclusively(log._sync_files)  # that it is empty: something may have been cut off
                segments[0].rest()
        except StorageError:
            log.abandon()
            raise
        return log

    @property
    def flushed_offset(self) -> int:
        """Everything below this survives a power failure."""
        return self._flushed_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments(self) -> list[SegmentSummary]:
        """What there is, for `retention` and for people."""
        return [segment.summary for segment in self._segments]

    @property
    def active_base_offset(self) -> int:
        """Where the segment begins that is written to."""
        return self._segments[-1].base_offset

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def cuts(self) -> int:
        """How often something was cut off the end. If this changes, what was thought of the log is not true
        any more."""
        return self._cuts

    # Writing

    def append(self, buffers: Sequence[Buffer], now_ms: int) -> None:
        """Appends whole batches, stamped and known to be undamaged, that go on exactly where the log ends.

        They go into one segment. Raises `AppendError`, having written nothing, if they do not fit on.
        """
        headers = headers_of(buffers)
        check_order(headers, self.end_offset, self.epochs.latest_epoch)
        check_contiguous(headers, self.end_offset)
        self.append_stamped(buffers, [noted(header) for header in headers], now_ms)

    def append_replicated(self, buffers: Sequence[Buffer], now_ms: int) -> None:
        """Appends what a leader has, which may lack offsets that compaction took away."""
        headers = headers_of(buffers)
        check_order(headers, self.end_offset, self.epochs.latest_epoch)
        self.append_stamped(buffers, [noted(header) for header in headers], now_ms)

    def append_stamped(self, buffers: Sequence[Buffer], batches: Sequence[Noted], now_ms: int) -> None:
        """Appends batches of which it is known that they are right, as `check_order` sees it, without looking
        at them again."""
        if self._failure is not None or self._synced_cuts < self._cuts:
            self._check_writable()
        if not batches or (len(batches) == 1 and self.append_plain(buffers, batches[0], now_ms)):
            return
        base_offset, last_offset, newest_ms, size_bytes, _ = batches[0]
        if len(batches) > 1:
            last_offset = batches[-1][1]
            newest_ms = max([batch[2] for batch in batches])
            size_bytes = sum([batch[3] for batch in batches])
        assert base_offset >= self.end_offset
        segment = self._segments[-1]
        is_rolled = False  # or need not be: until then nothing was written
        try:
            if segment.must_roll(size_bytes, last_offset, newest_ms, now_ms):
                self._roll(base_offset, now_ms)
                segment = self._segments[-1]
            is_rolled = True
            segment.append(buffers, batches, now_ms)
        except OSError as error:
            self._cuts += is_rolled
            raise StorageError.of(segment.path, error) from error
        except StorageError as error:
            self._failure = error
            raise
        epoch = self.epochs.latest_epoch
        for first, _, _, _, leader_epoch in batches:
            if epoch != leader_epoch >= 0:
                epoch = leader_epoch
                self._are_epochs_unsynced |= self.epochs.assign(epoch, first)
        self.end_offset = last_offset + 1

    def append_plain(self, buffers: Sequence[Buffer], batch: Noted, now_ms: int) -> bool:
        """What `append_stamped` does, for one batch to which nothing else has to be written, as to most of
        them. False, and nothing has happened, if it is another."""
        if self._failure is not None or self._synced_cuts < self._cuts:
            self._check_writable()
        if batch[4] != self.epochs.latest_epoch:
            return False
        assert batch[0] >= self.end_offset
        segment = self._segments[-1]
        try:
            if not segment.append_plain(buffers, batch, now_ms):
                return False
        except OSError as error:
            self._cuts += 1
            raise StorageError.of(segment.path, error) from error
        except StorageError as error:
            self._failure = error
            raise
        self.end_offset = batch[1] + 1
        return True

    def record_aborted(self, aborted: AbortedTransaction) -> None:
        """Remembers that a transaction was aborted whose marker has just been appended. If that fails,
        recovery has to find it again: the log cannot be used any more."""
        self._check_usable()
        segment = self._segments[-1]
        try:
            segment.record_aborted(aborted)
        except OSError as error:
            self._failure = StorageError.of(segment.path, error)
            raise self._failure from error
        except StorageError as error:
            self._failure = error
            raise

    def assign_epoch(self, epoch: int) -> None:
        """A leader's epoch begins at the end of the log, so that older ones have an end before its first
        record is there. Saved with the next flush; if that is too late, it was never used."""
        self._check_usable()
        self._are_epochs_unsynced |= self.epochs.assign(epoch, self.end_offset)

    def adopt_epochs(self, epochs: LeaderEpochs) -> None:
        """Another log of the same batches knows better where epochs began, such as one without a record yet.
        Saved with the next flush."""
        self._check_usable()
        if list(epochs) != list(self.epochs):
            self.epochs = LeaderEpochs(epochs)
            self._are_epochs_unsynced = True

    def roll(self, now_ms: int) -> None:
        """Begins a new segment, unless the last one is still empty."""
        self._check_writable()
        try:
            if self._segments[-1].size_bytes:
                self._roll(self.end_offset, now_ms)
        except OSError as error:
            raise StorageError.of(self.directory, error) from error

    def skip_to(self, offset: int, now_ms: int) -> None:
        """The log goes on at a later offset: in the one that this is a copy of, compaction has taken away
        everything that was in between."""
        self._check_writable()
        assert offset >= self.end_offset, f"{self.directory}: {offset} is before {self.end_offset}"
        if offset > self.end_offset:
            try:
                self._roll(offset, now_ms)
            except OSError as error:
                raise StorageError.of(self.directory, error) from error
            self.end_offset = offset

    # Reading

    def read(self, offset: int, max_bytes: int, *, before_offset: int | None = None) -> memoryview:
        """Whole batches from the one that holds `offset` on: as many as fit into `max_bytes`, at least one.

        Empty only at the end, or if the first batch reaches to `before_offset` or beyond. One call reads from
        one segment. The first batch may begin before `offset`.
        """
        return self._read(offset, max_bytes, SEGMENT_BYTES_MAX, before_offset)

    def read_within(self, offset: int, max_bytes: int, *, before_offset: int | None = None) -> memoryview:
        """Like `read`, but nothing if the first batch is larger than `max_bytes`."""
        return self._read(offset, max_bytes, max_bytes, before_offset)

    def range(
        self, offset: int, max_bytes: int, first_batch_bytes_max: int, *, before_offset: int | None = None
    ) -> FileRange | None:
        """What `read` gives, still in its file; None instead of nothing. The first batch may be larger than
        `max_bytes`, up to `first_batch_bytes_max`."""
        end_offset = self._check_range(offset, before_offset)
        if offset >= end_offset:
            return None
        segment = self._segments[-1]
        if offset < segment.base_offset:
            later = (
                one for one in self.segments_from(offset) if one.next_offset > max(offset, one.base_offset)
            )
            found = next(later, None)
            if found is None:
                return None  # compaction took everything behind it
            segment = found
        try:
            return segment.range(offset, max_bytes, first_batch_bytes_max, end_offset)
        except OSError as error:
            raise StorageError.of(segment.path, error) from error

    async def load(self, part: FileRange) -> None:
        """Reads what will be sent, aside, so that sending it need not wait for the disk."""
        try:
            await self._files.aside(part.load)
        except OSError as error:
            raise StorageError.of(self.directory, error) from error

    def segments_from(self, offset: int) -> Sequence[Segment]:
        """The segment that holds an offset, and all after it."""
        self._check_usable()
        return self._segments[max(0, bisect_right(self._segments, offset, key=_base_offset) - 1) :]

    # Waiting for the disk

    async def flush(self) -> int:
        """Makes what was appended survive a power failure. The offset up to which it now does."""
        self._check_usable()
        if self._is_flush_needed():
            await self._exclusively(self._flush)
        return self._flushed_offset

    async def truncate_to(self, offset: int) -> int:
        """Drops the batch that holds `offset` and all after it. Returns where the log now ends: at `offset`,
        or before it if that was in the middle of a batch. Nothing can be appended until this is done."""
        self._check_usable()
        await self._exclusively(lambda: self._truncate_to(offset))
        return self.end_offset

    async def restart_at(self, offset: int, now_ms: int) -> None:
        """Drops everything: the log is empty, and begins at `offset`, where a snapshot ends."""
        self._check_usable()
        await self._exclusively(lambda: self._restart_at(offset, now_ms))

    async def delete_until(self, offset: int, now_ms: int) -> None:
        """The log now begins at `offset`, and segments that end before it are deleted. If it is the end of
        the log that is the last one, too; a new one takes its place."""
        self._check_usable()
        assert offset <= self.end_offset, (
            f"{self.directory}: cannot begin at {offset}, it ends at {self.end_offset}"
        )
        await self._exclusively(lambda: self._delete_until(offset, now_ms))

    async def replace_segments(
        self, old: Sequence[int], new: Sequence[int], *, cuts: int, largest_timestamp_ms: int
    ) -> None:
        """Puts compacted segments in the place of others, by their base offsets. Their files are there as
        `.cleaned`. Those of the old ones are then called `.deleted`, and somebody has to delete them; whoever
        has a range of them can go on reading.

        `ReplacementRefusedError`, and nothing has happened, if the log has changed since it had so many
        `cuts`.
        """
        self._check_usable()
        await self._exclusively(lambda: self._replace_segments(old, new, cuts, largest_timestamp_ms))

    async def close(self) -> None:
        """Syncs everything, indexes included, and closes. Such a log need not be recovered."""
        self._check_usable()
        if not self._is_without_batches() or self._synced_cuts < self._cuts:
            await self._exclusively(self._seal_and_flush)
        self._failure = StorageError(self.directory, "the log is closed")
        self._close_files()

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[None]:
        """Nothing is synced, cut or closed meanwhile, and appends go on: for whoever gives the directory
        another name."""
        async with self._awaited:
            self._check_usable()
            yield

    def is_now_in(self, directory: str) -> None:
        """The directory has another name now."""
        self.directory = directory
        for segment in self._segments:
            segment.is_now_in(directory)

    async def retire(self) -> None:
        """Closes the files as they are, once nothing is being awaited any more: the log is not needed."""
        async with self._awaited:
            self._failure = self._failure or StorageError(self.directory, "the log is closed")
        self._close_files()

    def abandon(self) -> None:
        """Closes the files as they are, whatever state the log is in. Nothing may be being awaited."""
        assert not self._awaited.locked(), f"{self.directory}: something is still being synced"
        self._failure = self._failure or StorageError(self.directory, "the log is closed")
        self._close_files()

    # How

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise StorageError(self._failure.path, self._failure.reason) from self._failure

    def _check_writable(self) -> None:
        self._check_usable()
        if self._synced_cuts < self._cuts:
            raise StorageError(self.directory, "something was cut off, and must be flushed before an append")

    def _roll(self, base_offset: int, now_ms: int) -> None:
        if self.companion is not None:
            self.companion.ends_at(base_offset)
        new = Segment(self._files, self.directory, base_offset, self.config, now_ms, create=True)
        self._are_names_unsynced = True
        try:
            self._segments[-1].seal()
        except OSError:
            new.close()
            raise
        self._segments.append(new)

    def _read(
        self, offset: int, max_bytes: int, first_batch_bytes_max: int, before_offset: int | None
    ) -> memoryview:
        end_offset = self._check_range(offset, before_offset)
        if offset < end_offset:
            for segment in self.segments_from(offset):
                try:
                    found = segment.read(offset, max_bytes, first_batch_bytes_max, end_offset)
                except OSError as error:
                    raise StorageError.of(segment.path, error) from error
                if found is not None:
                    return found
        return memoryview(b"")

    def _check_range(self, offset: int, before_offset: int | None) -> int:
        """Refuses offsets that are not in the log. Where reading ends."""
        self._check_usable()
        end_offset = self.end_offset
        if not self.start_offset <= offset <= end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.directory}: offset {offset} is not from {self.start_offset} to {end_offset}",
            )
        return end_offset if before_offset is None or before_offset > end_offset else before_offset

    async def _exclusively(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does something alone and to its end, even if the caller is cancelled; then says what went wrong."""
        await asyncio.shield(asyncio.get_running_loop().create_task(self._guarded(work)))
        self._check_usable()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        async with self._awaited:
            if self._failure is None:
                try:
                    await work()
                except OSError as error:
                    self._failure = StorageError.of(self.directory, error)
                    self._failure.__cause__ = error
                except StorageError as error:
                    self._failure = error

    def _is_without_batches(self) -> bool:
        return len(self._segments) == 1 and not self._segments[0].size_bytes

    def _is_flush_needed(self) -> bool:
        return (
            self._flushed_offset < self.end_offset
            or self._are_names_unsynced
            or self._is_own_name_unsynced
            or self._are_epochs_unsynced
            or self._synced_cuts < self._cuts
            or self._awaited.locked()
        )

    async def _flush(self) -> None:
        end_offset, cuts = self.end_offset, self._cuts
        if self.companion is not None:
            await self.companion.sync()
        await self._sync_files()
        await self._sync_names()
        await self._sync_epochs()
        self._flushed_offset, self._synced_cuts = end_offset, cuts

    async def _sync_files(self) -> None:
        for file in [file for segment in self._segments for file in segment.take_unsynced()]:
            await file.fsync()

    async def _seal_and_flush(self) -> None:
        if self.companion is not None:
            self.companion.ends_at(self.end_offset)
            self._are_names_unsynced = True
        self._segments[-1].seal()
        await self._flush()

    async def _sync_names(self) -> None:
        if self._are_names_unsynced:
            self._are_names_unsynced = False
            await self._files.fsync_dir(self.directory)
        if self._is_own_name_unsynced:
            self._is_own_name_unsynced = False
            await self._files.fsync_dir(_parent(self.directory))

    async def _sync_epochs(self) -> None:
        if self._are_epochs_unsynced:
            self._are_epochs_unsynced = False
            await store_epochs(self._files, self.directory, self.epochs)

    async def _truncate_to(self, offset: int) -> None:
        if offset < self._segments[0].base_offset:
            await self._restart_at(offset, self._segments[0].summary.created_ms)
            return
        self._cuts += 1
        is_cut = offset < self.end_offset
        self.end_offset = min(self.end_offset, offset)
        self._flushed_offset = min(self._flushed_offset, offset)
        while len(self._segments) > 1 and self._segments[-1].base_offset >= offset:
            await self._remove(len(self._segments) - 1)
        self._segments[-1].truncate(offset)
        self.end_offset = self._segments[-1].next_offset
        self._flushed_offset = min(self._flushed_offset, self.end_offset)
        self.start_offset = min(self.start_offset, self.end_offset)
        self._are_epochs_unsynced |= self.epochs.truncate_from_end(self.end_offset)
        if is_cut and self.companion is not None:
            self._are_names_unsynced = True
            await self.companion.is_cut()
        await self._flush_cut()

    async def _restart_at(self, offset: int, now_ms: int) -> None:
        self._cuts += 1
        self.start_offset = self.end_offset = self._flushed_offset = offset
        if self.companion is not None:
            self.companion.is_cleared()
        while self._segments:
            await self._remove(len(self._segments) - 1)
        self._segments.append(Segment(self._files, self.directory, offset, self.config, now_ms, create=True))
        self._are_names_unsynced = True
        self._are_epochs_unsynced |= self.epochs.clear()
        await self._flush_cut()

    async def _flush_cut(self) -> None:
        if self.when_cut is not None:
            await self.when_cut()
        await self._flush()

    async def _delete_until(self, offset: int, now_ms: int) -> None:
        self.start_offset = max(self.start_offset, offset)
        self._are_epochs_unsynced |= self.epochs.truncate_from_start(self.start_offset)
        if offset == self.end_offset and self._segments[-1].size_bytes:
            self._roll(offset, now_ms)
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            await self._remove(0)

    async def _replace_segments(
        self, old: Sequence[int], new: Sequence[int], cuts: int, largest_timestamp_ms: int
    ) -> None:
        at = bisect_right(self._segments, old[0], key=_base_offset) - 1
        replaced = self._segments[at : at + len(old)] if at >= 0 else []
        try:
            if self._cuts != cuts or [one.base_offset for one in replaced] != list(old):
                raise ReplacementRefusedError(f"{self.directory}: the segments from {old[0]} on have changed")
            if replaced[-1] is self._segments[-1]:
                raise ReplacementRefusedError(f"{self.directory}: the segment at {old[-1]} is written to")
            check_cleaned(self._files, self.directory, self.config, new, replaced[-1].next_offset)
        except ReplacementRefusedError:
            for base_offset in new:
                remove_segment(self._files, self.directory, base_offset, CLEANED)
            raise
        with ExitStack() as held:
            for segment in replaced:
                held.enter_context(segment.held())  # they are read meanwhile, and their names are another's
            await put_in_place(self._files, self.directory, old, new)
            made = [
                open_sealed(self._files, self.directory, self.config, base_offset, largest_timestamp_ms)
                for base_offset in new
            ]
            at = bisect_right(self._segments, old[0], key=_base_offset) - 1  # one may have come meanwhile
            self._segments[at : at + len(old)] = made
            for segment in replaced:
                segment.close()

    async def _remove(self, index: int) -> None:
        """Deletes the first or the last segment, durably: a crash never leaves a hole between two others."""
        segment = self._segments.pop(index)
        segment.close()
        remove_segment_files(self._files, self.directory, segment.base_offset)
        self._are_names_unsynced = True
        await self._sync_names()

    def _close_files(self) -> None:
        for segment in self._segments:
            segment.close()


def _parent(directory: str) -> str:
    above = directory.rpartition("/")[0]
    return "/" if not above and directory.startswith("/") else above
