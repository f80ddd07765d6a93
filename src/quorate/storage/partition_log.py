"""The log of a partition: batches, what is remembered of their producers, and what transactions came to.

The three are cut, recovered, rolled and retained together. What is beside the batches can be told from them,
so it never has to be synced before they are; it only spares reading them. When a log is opened, the newest
usable producer snapshot is loaded and the batches after it are read. Where recovery found indexes that it did
not trust, transactions are found again as well, from the snapshot before that place.

Appends check a client's batch against its producer, give it its place and write it, from the buffer in which
it was received. Reads give bytes, or a range of a file that a transport can send as it is.

Errors: `ApiError` for what a client must be told, `AppendError` for what does not continue the log,
`StorageError` for a disk that fails, and its subclass `DamagedBatchError` for a disk that has failed: where a
batch should be, none is, and another replica has to be asked for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from quorate.protocol.batch import HEADER_BYTES, BatchHeader, read_header, validate
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer, Uuid
from quorate.storage.continuation import check_order
from quorate.storage.epochs import EpochEnd, LeaderEpochs
from quorate.storage.errors import AppendError, StorageError, storage_errors
from quorate.storage.file_ranges import FileRange
from quorate.storage.files import Files
from quorate.storage.indexes import AbortedTransaction
from quorate.storage.limits import SEGMENT_BYTES_MAX, LogConfig
from quorate.storage.log import Log
from quorate.storage.partition_producers import PartitionProducers
from quorate.storage.places import DamagedBatchError, noted
from quorate.storage.produced import (
    Appended,
    Gathered,
    Produced,
    already_appended,
    bytes_of,
    stamped_header,
)
from quorate.storage.producer_room import ProducerRoom
from quorate.storage.producer_state import read_marker
from quorate.storage.producer_states import ProducerStates
from quorate.storage.recovery import RecoveryReport
from quorate.storage.retention import retained_from
from quorate.storage.segment import SegmentSummary
from quorate.storage.time_lookup import TimedOffset, first_since, newest

__all__ = ["Appended", "DamagedBatchError", "PartitionLog", "Produced", "TimedOffset"]


class PartitionLog:
    """One replica's log, owned by whoever opened it. `PartitionLog.open` makes it."""

    def __init__(self, log: Log, producers: PartitionProducers) -> None:
        self._log = log
        self._producers = producers

    @classmethod
    async def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        topic_id: Uuid,
        now_ms: int,
        recovery_point: int | None,
        start_offset: int = 0,
        room: ProducerRoom | None = None,
    ) -> PartitionLog:
        """Opens a log, or begins one, and recovers it.

        `recovery_point` is the offset up to which it is known to be synced (0 if nothing is), or None if it
        was closed in order; `start_offset` is where it begins, if that was remembered elsewhere. Its
        producers share the `room` with those of other logs.
        """
        log = await Log.open(
            files,
            directory,
            config,
            now_ms=now_ms,
            topic_id=topic_id,
            recovery_point=recovery_point,
            start_offset=start_offset,
        )
        producers = PartitionProducers(files, log, ProducerRoom() if room is None else room)
        try:
            with storage_errors(directory):
                await producers.load()
        except StorageError:
            log.abandon()
            producers.close()
            raise
        log.companion = producers
        return cls(log, producers)

    @property
    def directory(self) -> str:
        return self._log.directory

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below this survives a power failure: the recovery point."""
        return self._log.flushed_offset

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def epochs(self) -> LeaderEpochs:
        return self._log.epochs

    @property
    def config(self) -> LogConfig:
        return self._log.config

    def configure(self, config: LogConfig) -> None:
        """Other settings from now on; segments that exist stay as they are."""
        self._log.config = config

    def call_when_cut(self, forget: Callable[[], Awaitable[None]]) -> None:
        """For who remembers on disk where the log begins and up to where it is synced: is awaited after a cut
        and before the next append. A power failure must not find more remembered than there is."""
        self._log.when_cut = forget

    @property
    def recovery(self) -> RecoveryReport:
        """What was found when the log was opened."""
        return self._log.recovery

    @property
    def segments(self) -> list[SegmentSummary]:
        return self._log.segments

    @property
    def active_base_offset(self) -> int:
        return self._log.active_base_offset

    @property
    def segment_count(self) -> int:
        return self._log.segment_count

    @property
    def cuts(self) -> int:
        """How often something was cut off the end."""
        return self._log.cuts

    @property
    def producers(self) -> ProducerStates:
        """What is known of producers; another object after the log was cut."""
        return self._producers.states

    @property
    def first_unstable_offset(self) -> int | None:
        """The last stable offset is the smaller of this and the high watermark."""
        offset = self.producers.first_unstable_offset
        return offset if offset is None else max(offset, self._log.start_offset)

    # Writing

    def append_produced(
        self, buffer: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> Appended:
        """Appends one validated batch of a client, or finds it in the log already. Its base offset and leader
        epoch are written into the buffer.

        `ApiError`, and nothing has happened, if it is too large, or not what its producer has to send next.
        """
        has_producer = header.producer_id >= 0
        if has_producer:
            duplicate = self._producers.states.check(header)
            if duplicate is not None:
                return already_appended(duplicate)
        self._check_size(header.size_bytes)
        self._check_epoch(leader_epoch)
        stamped = stamped_header(buffer, header, self._log.end_offset, leader_epoch)
        self._log.append_stamped((bytes_of(buffer, header),), (noted(stamped),), now_ms)
        if has_producer:
            self._producers.states.update(stamped)
        return Appended(stamped.base_offset, stamped.last_offset, False, stamped.max_timestamp)

    def append_made(self, batch: bytearray, offset: int, count: int, now_ms: int, leader_epoch: int) -> None:
        """Appends a batch that this broker has made now for the end of the log, which is at that offset: so
        many records of this time, and of no producer. Its place is in it already."""
        log, size_bytes = self._log, len(batch)
        assert offset == log.end_offset
        if size_bytes > log.config.segment_bytes:
            self._check_size(size_bytes)
        if leader_epoch != log.epochs.latest_epoch:
            self._check_epoch(leader_epoch)
        made = offset, offset + count - 1, now_ms, size_bytes, leader_epoch
        log.append_stamped((batch,), (made,), now_ms)

    def append_many(
        self, produced: Sequence[Produced], leader_epoch: int, now_ms: int
    ) -> list[Appended | ApiError | StorageError]:
        """What `append_produced` does, for several batches in one write, or more if they do not fit into one
        segment. An answer for each, in order. If a write fails, what was not written has failed with it."""
        self._check_epoch(leader_epoch)
        segment_bytes = self._log.config.segment_bytes
        gather = Gathered(self._producers.states, self._log.end_offset, leader_epoch)
        written = 0  # so many have an answer that will not change
        try:
            for buffer, header in produced:
                if header.size_bytes + gather.size_bytes > segment_bytes:
                    self._write(gather, now_ms)
                    written = len(gather.answers)
                try:
                    self._check_size(header.size_bytes)
                    gather.add(buffer, header)
                except ApiError as refusal:
                    gather.answers.append(refusal)
            self._write(gather, now_ms)
        except StorageError as error:
            return [*gather.answers[:written], *[error] * (len(produced) - written)]
        return gather.answers

    def append_control(self, buffer: bytearray | memoryview, leader_epoch: int, now_ms: int) -> Appended:
        """Appends a control batch, which a transaction coordinator writes: the end of a transaction.

        `ApiError` if it comes from a coordinator that was replaced, or speaks for a producer that was."""
        header = read_header(buffer)
        assert header.is_control, "clients' batches are appended by append_produced"
        marker = read_marker(buffer, header)
        if marker is not None:
            self.producers.check_marker(header, marker)
        self._check_epoch(leader_epoch)
        stamped = stamped_header(buffer, header, self._log.end_offset, leader_epoch)
        self._log.append_stamped((bytes_of(buffer, header),), (noted(stamped),), now_ms)
        if marker is not None:
            self._record(self.producers.finish(stamped, marker))
        return Appended(stamped.base_offset, stamped.last_offset, False, stamped.max_timestamp)

    def append_replicated(self, data: Buffer, now_ms: int, *, epoch_max: int | None = None) -> int:
        """Appends what a leader has: the whole batches of a fetch, which may end within one. Where the log
        then ends.

        Batches of an epoch above `epoch_max`, and those after them, are left out: the leader that was asked
        cannot have written them. Checksums are checked (`ApiError`, CORRUPT_MESSAGE). `AppendError` if they
        do not come after what the log has; nothing is written then either.
        """
        headers = []
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = read_header(data, position)
            if header.end > len(data) or (
                epoch_max is not None and header.partition_leader_epoch > epoch_max
            ):
                break
            headers.append(validate(data, position))
            position = header.end
        if headers:
            markers = [read_marker(data, one) if _ends_transaction(one) else None for one in headers]
            check_order(headers, self._log.end_offset, self._log.epochs.latest_epoch)
            self._log.append_stamped((memoryview(data)[:position],), [noted(one) for one in headers], now_ms)
            for header, marker in zip(headers, markers, strict=True):
                if marker is not None:
                    self._record(self.producers.finish(header, marker))
                elif not header.is_control:
                    self.producers.update(header)
        return self._log.end_offset

    def assign_epoch(self, epoch: int) -> None:
        """This replica leads, from the end of the log on."""
        self._log.assign_epoch(epoch)

    def replicated_to(self, high_watermark: int) -> None:
        """Has to be told whenever the high watermark moves: a transaction is stable once its end is below."""
        states = self._producers.states
        if states.unreplicated:
            states.replicated_to(high_watermark)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers whose last batch is that old. How many they were."""
        return self.producers.expire(now_ms, expiration_ms)

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, before_offset: int | None = None, at_least_one: bool = True
    ) -> memoryview:
        """Whole batches from the one that holds `offset` on, which may begin before it: as many as fit into
        `max_bytes`, from one segment, all of them before `before_offset`. The first may be larger if there
        must be at least one. `ApiError`, OFFSET_OUT_OF_RANGE, for what is not in the log."""
        found = self.range(offset, max_bytes, before_offset=before_offset, at_least_one=at_least_one)
        if found is None:
            return memoryview(b"")
        path = found.file.path
        with storage_errors(path):
            data = found.read()
        found.release()
        if len(data) < found.size_bytes:
            raise DamagedBatchError(path, f"{len(data)} bytes where {found.size_bytes} should be")
        return memoryview(data)

    def range(
        self, offset: int, max_bytes: int, *, before_offset: int | None = None, at_least_one: bool = True
    ) -> FileRange | None:
        """What `read` gives, still in its file; None if it gives nothing."""
        first_batch_bytes_max = SEGMENT_BYTES_MAX if at_least_one else max_bytes
        return self._log.range(offset, max_bytes, first_batch_bytes_max, before_offset=before_offset)

    async def load(self, part: FileRange) -> None:
        """Reads a range that is not cached, aside: whoever sends it then need not wait for the disk."""
        await self._log.load(part)

    def offset_for_time(self, timestamp_ms: int, *, before_offset: int | None = None) -> TimedOffset | None:
        """The first record that is not older than a time; None if that is not before `before_offset`."""
        segments = self._log.segments_from(self._log.start_offset)
        with storage_errors(self.directory):
            return _before(first_since(segments, timestamp_ms, self._log.start_offset), before_offset)

    def max_timestamp(self, *, before_offset: int | None = None) -> TimedOffset | None:
        """The newest record, the first if there are several; None if that is not before `before_offset`."""
        segments = self._log.segments_from(self._log.start_offset)
        with storage_errors(self.directory):
            return _before(newest(segments, self._log.start_offset), before_offset)

    def end_offset_of(self, epoch: int) -> EpochEnd:
        """The greatest epoch up to this one that the log knows, and where that ended; (-1, -1) if it knows
        none, or has not heard of this one yet."""
        return self._log.epochs.end_offset_for(epoch, self._log.end_offset)

    def aborted_between(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions of which a reader of these offsets, without the end, may see something."""
        found: list[AbortedTransaction] = []
        with storage_errors(self.directory):
            for segment in self._log.segments_from(first_offset):
                some, is_all = segment.transaction_index.collect(first_offset, end_offset)
                found += some
                if is_all:
                    break
        return found

    # Waiting for the disk

    async def flush(self) -> int:
        """Makes what was appended survive a power failure. The offset up to which it now does."""
        return await self._log.flush()

    async def truncate_to(self, offset: int) -> int:
        """Drops the batch that holds `offset` and all after it, and what is known of producers only from
        them. Where the log now ends. Nothing can be appended until this is done."""
        return await self._log.truncate_to(offset)

    async def restart_at(self, offset: int, now_ms: int) -> None:
        """Drops everything: the log is empty, and begins at `offset`."""
        await self._log.restart_at(offset, now_ms)

    async def delete_until(self, offset: int, now_ms: int) -> None:
        """The log now begins at `offset`, at most its end, and segments before it are deleted."""
        await self._log.delete_until(offset, now_ms)

    async def apply_retention(
        self, high_watermark: int, retention_bytes: int, retention_ms: int, now_ms: int
    ) -> int:
        """Deletes what is too much or too old (-1 is no limit) and replicated. How many segments that was."""
        before = self._log.segments
        offset = retained_from(
            before,
            log_start_offset=self._log.start_offset,
            high_watermark=high_watermark,
            retention_bytes=retention_bytes,
            retention_ms=retention_ms,
            now_ms=now_ms,
        )
        gone = sum(1 for one in before if one.next_offset <= offset and one.size_bytes)
        if gone or offset > self._log.start_offset:
            await self._log.delete_until(offset, now_ms)
        return gone

    async def replace_segments(
        self, old: Sequence[int], new: Sequence[int], *, cuts: int, largest_timestamp_ms: int
    ) -> None:
        """Puts compacted segments in the place of others: see `Log.replace_segments`."""
        await self._log.replace_segments(old, new, cuts=cuts, largest_timestamp_ms=largest_timestamp_ms)

    async def close(self) -> None:
        """Syncs everything and closes. Such a log need not be recovered, nor its producers be found again."""
        try:
            await self._log.close()
        finally:
            self._producers.close()

    def abandon(self) -> None:
        """Closes the files as they are. Nothing may be being awaited."""
        self._log.abandon()
        self._producers.close()

    async def retire(self) -> None:
        """Closes the files as they are, once nothing is being awaited any more."""
        await self._log.retire()
        self._producers.close()

    # Taking the place of another log of the same partition

    def undisturbed(self) -> AbstractAsyncContextManager[None]:
        """Nothing is synced, cut or closed meanwhile, and appends go on."""
        return self._log.undisturbed()

    def adopt_epochs(self, other: PartitionLog) -> None:
        """Takes over where epochs began, from a log with the same batches."""
        self._log.adopt_epochs(other.epochs)

    def adopt_producers(self, other: PartitionLog) -> None:
        """Takes over what is known of producers, from a log with the same batches, which is not written to
        any more."""
        assert self.end_offset == other.end_offset, f"{self.directory} is not {other.directory}"
        with storage_errors(self.directory):
            self._producers.adopt(other.producers)

    def skip_to(self, offset: int, now_ms: int) -> None:
        """The log goes on at a later offset, because the one that this is a copy of does."""
        self._log.skip_to(offset, now_ms)

    def is_now_in(self, directory: str) -> None:
        """The directory has another name now."""
        self._log.is_now_in(directory)

    # How

    def _check_size(self, batch_bytes: int) -> None:
        segment_bytes = self._log.config.segment_bytes
        if batch_bytes > segment_bytes:
            reason = f"a batch of {batch_bytes} bytes, and segments of {segment_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, reason)

    def _check_epoch(self, leader_epoch: int) -> None:
        latest_epoch = self._log.epochs.latest_epoch
        if latest_epoch is not None and leader_epoch < latest_epoch:
            raise AppendError(f"{self.directory}: epoch {leader_epoch} after epoch {latest_epoch}")

    def _write(self, gather: Gathered, now_ms: int) -> None:
        """Appends what was gathered, and begins again."""
        if gather.headers:
            self._log.append_stamped(gather.parts, [noted(one) for one in gather.headers], now_ms)
            gather.commit()

    def _record(self, aborted: AbortedTransaction | None) -> None:
        if aborted is not None:
            self._log.record_aborted(aborted)


def _ends_transaction(header: BatchHeader) -> bool:
    return header.is_control and header.producer_id >= 0


def _before(found: TimedOffset | None, before_offset: int | None) -> TimedOffset | None:
    return found if found is None or before_offset is None or found.offset < before_offset else None
