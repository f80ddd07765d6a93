"""The cleaner: compacts the logs of this broker, the dirtiest first, again and again.

The work itself, reading and writing, is done elsewhere (`Compactor`): in a process of its own. Here it is
chosen what is compacted, what comes back is put in place, and it is remembered how far each log is clean.

A log that must be left alone for a while, because it is moved or goes away, is paused: what is under way in
it is given up, and nothing is begun. A log that is cut meanwhile need not be: the log itself refuses what was
made of something that it no longer is. A log that cannot be compacted, because the disk has damaged it, is
set aside, with one line that says why, until the broker starts again; the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from quorate.broker.cleaner_choice import CleanableLog, DirtyPart, dirty_part
from quorate.broker.cleaner_parts import (
    CleanedOffsets,
    CleanerSettings,
    CleanerStats,
    CompactionFailedError,
    Compactor,
)
from quorate.broker.cleaner_tasks import compaction_task
from quorate.broker.partition import Partition, TopicPartition
from quorate.storage.cleaning import ReplacementRefusedError
from quorate.storage.compaction import CleanedGroup, Compacted
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import PartitionLog
from quorate.values import dataclass

__all__ = ["Cleaner"]

ATTEMPTS_MAX: Final = 3  # in a row, before a log is set aside though it may not be its fault
IDLE_MS_MAX: Final = 60_000.0  # after which whoever has nothing to do is let go


@dataclass(frozen=True, slots=True)
class _Chosen:
    partition: Partition
    log: PartitionLog
    part: DirtyPart


class Cleaner:
    """Compacts what `partitions` has. `run` lasts as long as the broker runs."""

    def __init__(
        self,
        broker_id: int,
        partitions: Iterable[Partition],
        settings: Callable[[], CleanerSettings],
        make_compactor: Callable[[], Compactor],
        offsets: CleanedOffsets,
        *,
        now_ms: Callable[[], float],
        wall_ms: Callable[[], int],
        when_disk_fails: Callable[[Partition, StorageError], None],
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._make_compactor = make_compactor
        self._offsets = offsets
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._when_disk_fails = when_disk_fails
        self._under_way: dict[TopicPartition, asyncio.Task[None]] = {}
        self._paused: Counter[TopicPartition] = Counter()
        self._attempts: Counter[TopicPartition] = Counter()
        self._clean_when_paused: dict[TopicPartition, tuple[PartitionLog, int, int | None]] = {}
        self._changed = asyncio.Event()
        self._working = 0
        self.uncleanable: dict[TopicPartition, str] = {}  # and why
        self.stats = CleanerStats()
        self._logger = logging.getLogger(f"quorate.broker.{broker_id}")

    # What others ask for

    async def pause(self, partition: Partition) -> None:
        """Gives up what is under way in a log, and does not begin again until `resume`, once for each."""
        self._paused[partition.key] += 1
        task = self._under_way.get(partition.key)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        log = partition.log
        self._clean_when_paused[partition.key] = log, log.cuts, self._offsets.of(log)

    def resume(self, partition: Partition) -> None:
        self._paused[partition.key] -= 1
        if self._paused[partition.key] <= 0:
            del self._paused[partition.key]

    def moved(self, partition: Partition, _path: str, _new_path: str) -> None:
        """The log is in another log directory now, and as clean as it was when it was paused, unless it was
        cut since then."""
        known = self._clean_when_paused.pop(partition.key, None)
        if known is not None:
            log, cuts, offset = known
            if offset is not None and log.cuts == cuts:
                self._offsets.carry_over(partition.log, offset)
        self.uncleanable.pop(partition.key, None)

    async def forget(self, partition: Partition) -> None:
        """A replica goes away for good."""
        await self.pause(partition)
        try:
            await self._offsets.forget(partition.log)
        except StorageError as error:
            self._when_disk_fails(partition, error)
        for books in (self._paused, self._attempts, self.uncleanable, self._clean_when_paused):
            books.pop(partition.key, None)

    def settings_changed(self) -> None:
        """There may be more or fewer who work, and they need not rest that long."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # Working

    async def run(self) -> None:
        """Has as many at work as there should be."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                changed = self._changed
                while self._working < self._settings().threads:
                    self._working += 1
                    tasks.create_task(self._work())
                await changed.wait()

    async def _work(self) -> None:
        """Cleans one log after the other, until there are too many who do."""
        compactor: Compactor | None = None
        idle_since_ms = self._now_ms()
        try:
            while self._working <= self._settings().threads:
                chosen = self._choose()
                if chosen is not None:
                    compactor = compactor or self._make_compactor()
                    goes_on = await self._clean(chosen, compactor)
                    idle_since_ms = self._now_ms()
                    if goes_on:
                        continue
                if compactor is not None and self._now_ms() - idle_since_ms >= IDLE_MS_MAX:
                    await compactor.close()
                    compactor = None
                await self._rest()
        finally:
            self._working -= 1
            if compactor is not None:
                await compactor.close()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._settings().backoff_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _choose(self) -> _Chosen | None:
        """The dirtiest of the logs that are worth it."""
        now_ms = self._wall_ms()
        self.stats.last_look_ms = now_ms
        self.stats.dirty_ratio_max = 0.0
        best: _Chosen | None = None
        for partition in self._partitions:
            config, log, key = partition.config, partition.log, partition.key
            if (
                not config.is_compacted
                or partition.failure is not None
                or log.segment_count < 2
                or key in self._under_way
                or key in self._paused
                or key in self.uncleanable
            ):
                continue
            view = CleanableLog(
                log.segments,
                log.start_offset,
                log.end_offset,
                partition.last_stable_offset,
                self._offsets.of(log),
            )
            part = dirty_part(
                view,
                min_lag_ms=config.min_compaction_lag_ms,
                max_lag_ms=config.max_compaction_lag_ms,
                now_ms=now_ms,
            )
            self.stats.dirty_ratio_max = max(self.stats.dirty_ratio_max, part.ratio)
            if part.is_worth_it(config.min_cleanable_dirty_ratio) and (
                best is None or part.ratio > best.part.ratio
            ):
                best = _Chosen(partition, log, part)
        return best

    async def _clean(self, chosen: _Chosen, compactor: Compactor) -> bool:
        """Cleans one log, unless that is given up meanwhile. Whether it is worth looking for another at
        once."""
        key = chosen.partition.key
        task = asyncio.ensure_future(self._compact(chosen, compactor))
        self._under_way[key] = task
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            del self._under_way[key]
        if task.cancelled():
            self.stats.given_up += 1
            self._logger.info("compaction given up partition=%s", key)
            return True
        error = task.exception()
        if error is None:
            self._attempts.pop(key, None)
            return True
        self._failed(chosen, error)
        return False

    def _failed(self, chosen: _Chosen, error: BaseException) -> None:
        partition, key = chosen.partition, chosen.partition.key
        if isinstance(error, ReplacementRefusedError) or not self._is_current(chosen):
            self.stats.given_up += 1
            self._logger.info("compaction given up partition=%s reason=%s", key, error)
            return
        self.stats.failures += 1
        if isinstance(error, StorageError):
            self._when_disk_fails(partition, error)
            return
        self._attempts[key] += 1
        is_damaged = isinstance(error, CompactionFailedError) and error.is_damaged
        if is_damaged or self._attempts[key] >= ATTEMPTS_MAX:
            self.uncleanable[key] = str(error)
            self._logger.error("uncleanable partition=%s reason=%s", key, error)
        else:
            self._logger.warning("compaction failed partition=%s reason=%s", key, error)

    def _is_current(self, chosen: _Chosen) -> bool:
        """Whether the log is still that of the replica, and in use."""
        partition = chosen.partition
        return partition.log is chosen.log and partition.failure is None and partition.config.is_compacted

    async def _compact(self, chosen: _Chosen, compactor: Compactor) -> None:
        log, part, settings = chosen.log, chosen.part, self._settings()
        began_ms = self._now_ms()
        if log.flushed_offset < part.upper_offset:
            # Else a power failure could lose the record for which an older one had to go.
            await log.flush()
        cuts = log.cuts
        task = compaction_task(log, part, chosen.partition.config, settings, self._wall_ms())
        swapping: asyncio.Task[None] | None = None

        async def swap(group: CleanedGroup) -> None:
            nonlocal swapping
            if not self._is_current(chosen):
                raise ReplacementRefusedError("the replica is not compacted any more")
            swapping = asyncio.ensure_future(
                log.replace_segments(
                    group.old, group.new, cuts=cuts, largest_timestamp_ms=group.largest_timestamp_ms
                )
            )
            await asyncio.shield(swapping)

        try:
            done = await compactor.run(
                task, swap, settings.io_max_bytes_per_second / max(1, settings.threads)
            )
        finally:
            if swapping is not None and not swapping.done():
                await asyncio.wait([swapping])
        if log.cuts != cuts or not self._is_current(chosen):
            raise ReplacementRefusedError("the log was cut")
        await self._offsets.store(log, done.end_offset)
        self._note(chosen, done, self._now_ms() - began_ms)

    def _note(self, chosen: _Chosen, done: Compacted, duration_ms: float) -> None:
        stats = self.stats
        stats.runs += 1
        stats.read_bytes += done.read_bytes
        stats.written_bytes += done.written_bytes
        stats.records_read += done.records_read
        stats.records_kept += done.records_kept
        stats.last_run_ms = self._wall_ms()
        stats.last_run_duration_ms = duration_ms
        stats.last_map_share = done.map_share
        self._logger.info(
            "compacted partition=%s dirty_from=%d clean_to=%d records=%d kept=%d read_bytes=%d"
            " written_bytes=%d keys=%d ms=%d",
            chosen.partition.key,
            chosen.part.dirty_offset,
            done.end_offset,
            done.records_read,
            done.records_kept,
            done.read_bytes,
            done.written_bytes,
            done.map_keys,
            duration_ms,
        )
        if done.records_without_key:
            self._logger.warning(
                "compaction dropped records without keys partition=%s count=%d",
                chosen.partition.key,
                done.records_without_key,
            )
