"""All replicas on this broker: opened, led, followed and removed as the cluster says.

Changes of the cluster come one after the other, and each is carried out before the next: a log that must be
opened first is opened, a role is taken, a fetcher begins. A disk that fails takes its replicas offline and
leaves the others alone. Logs are opened, which may mean that they are recovered, and closed a few at a time
in every directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Final, Protocol

from quorate.broker.control_plane import Assignment, Changes
from quorate.broker.fetcher import Fetchers
from quorate.broker.isr_proposals import IsrProposals
from quorate.broker.lanes import in_lanes
from quorate.broker.partition import Partition, Surroundings, TopicPartition
from quorate.broker.settings import BrokerSettings
from quorate.broker.standing import Standings
from quorate.broker.topic_config import TopicConfig, topic_config
from quorate.garbage import looked_through_later
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import MIGRATING, UNASSIGNED
from quorate.metadata.partitions import Partition as PartitionState
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import PartitionLog

__all__ = ["LogShelf", "Replicas"]

_TURN: Final = 200  # replicas that are looked at before others on the loop have their turn
_FEW_MAX: Final = 1000  # changes at once, for which nobody holds back the garbage collector
_PROGRESS_MS: Final = 5_000.0  # how often it is said how far opening or closing many logs has come


_Saved = tuple[PartitionLog, int, int, int]  # a log, its high watermark, what is synced of it, its start


class LogShelf(Protocol):
    """Where the logs of a broker are kept: its log directories."""

    async def open_log(
        self, key: TopicPartition, config: TopicConfig, directory_id: Uuid
    ) -> PartitionLog: ...
    async def delete_log(self, key: TopicPartition, log: PartitionLog) -> None: ...
    def high_watermark_of(self, key: TopicPartition) -> int: ...
    def path_holding(self, key: TopicPartition) -> str:
        """The directory that has a log; empty if none has."""

    async def save(self, partitions: Sequence[Partition]) -> None: ...
    def fail(self, log: PartitionLog, error: StorageError) -> None: ...


class Replicas:
    """What this broker has, by topic id and partition."""

    def __init__(
        self,
        settings: BrokerSettings,
        around: Surroundings,
        shelf: LogShelf,
        fetchers: Fetchers,
        proposals: IsrProposals,
        when_assigned: Callable[[Partition, PartitionState], None] = lambda _partition, _state: None,
    ) -> None:
        """`when_assigned` is told what the cluster says of a replica that is open."""
        self._settings = settings
        self._around = around
        self._shelf = shelf
        self._fetchers = fetchers
        self._proposals = proposals
        self._when_assigned = when_assigned
        self.when_led: Callable[[Partition], None] = lambda _: None  # told when an epoch of ours begins
        self.before_removal: list[Callable[[Partition], Awaitable[None]]] = []  # who must let go of its log
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._saved: dict[Partition, _Saved] = {}
        self._logger = logging.getLogger(f"quorate.broker.{settings.broker_id}")

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def standings(self) -> Standings:
        return self._around.standings

    def of_topic(self, topic_id: Uuid, partition_id: int) -> Partition | None:
        return self._by_id.get((topic_id, partition_id))

    def named(self, topic: str, partition_id: int) -> Partition | None:
        return self._by_name.get((topic, partition_id))

    # Changes

    async def apply(self, changes: Changes) -> None:
        """Carries out what the cluster has decided about us."""
        for topic_id, partition_id in changes.removed:
            await self._remove(topic_id, partition_id)
        assigned = changes.assigned
        missing = [one for one in assigned if (one.key.topic_id, one.key.partition_id) not in self._by_id]
        opened = _Progress("opening", len(missing), self._around.now_ms, self._logger)

        async def assign(assignment: Assignment) -> None:
            try:
                await self._assign(assignment, changes.image)
            except StorageError as error:
                self._logger.error("replica offline partition=%s reason=%s", assignment.key, error)

        async def open_and_assign(assignment: Assignment) -> None:
            await assign(assignment)
            opened.one_more()

        if len(missing) < len(assigned):
            with looked_through_later() if len(assigned) > _FEW_MAX else nullcontext():
                for number, assignment in enumerate(assigned):
                    if (assignment.key.topic_id, assignment.key.partition_id) in self._by_id:
                        await assign(assignment)
                    await _take_turns(number)
        await in_lanes(
            missing,
            lambda one: self._shelf.path_holding(one.key),
            self._settings.recovery_threads,
            open_and_assign,
        )
        self._configure(changes)

    async def _assign(self, assignment: Assignment, image: ClusterImage) -> None:
        key, state = assignment
        partition = self._by_id.get((key.topic_id, key.partition_id))
        if partition is None:
            config = self._config_of(image, key.topic)
            directory_id = state.directory_of(self._settings.broker_id)
            if directory_id == UNASSIGNED and state.partition_epoch > 0:
                directory_id = MIGRATING  # nobody knows where, but it may have been somewhere for long
            log = await self._shelf.open_log(key, config, directory_id)
            partition = Partition(key, self._around, log, config, self._shelf.high_watermark_of(key))
            self._by_id[key.topic_id, key.partition_id] = partition
            self._by_name[key.topic, key.partition_id] = partition
        if partition.failure is not None:
            return  # until the broker is started again
        self._when_assigned(partition, state)
        if state.leader_epoch > partition.leader_epoch:
            # Whoever was followed is not any more, and what that came to is done before the role changes.
            self._fetchers.forget(partition)
            await partition.settled()
        if state.leader == self._settings.broker_id:
            if partition.lead(state):
                self.when_led(partition)
                self._logger.info("lead partition=%s epoch=%d isr=%s", key, state.leader_epoch, state.isr)
        elif partition.follow(state):
            self._fetchers.follow(partition)

    def halt(self, partition: Partition) -> None:
        """A replica follows nobody any more, until it is assigned again; its log stays."""
        self._fetchers.forget(partition)

    async def _remove(self, topic_id: Uuid, partition_id: int) -> None:
        partition = self._by_id.pop((topic_id, partition_id), None)
        if partition is None:
            return
        self._by_name.pop((partition.key.topic, partition_id), None)
        self._saved.pop(partition, None)
        self._fetchers.forget(partition)
        partition.remove()
        self._logger.info("remove partition=%s", partition.key)
        await partition.settled()
        for let_go in self.before_removal:
            await let_go(partition)
        await self._shelf.delete_log(partition.key, partition.log)

    def _configure(self, changes: Changes) -> None:
        names = set(changes.configured)
        if not names and not changes.is_configured_all:
            return
        configs: dict[str, TopicConfig] = {}
        for partition in self:
            topic = partition.key.topic
            if changes.is_configured_all or topic in names:
                if topic not in configs:
                    configs[topic] = self._config_of(changes.image, topic)
                partition.configure(configs[topic])

    def _config_of(self, image: ClusterImage, topic: str) -> TopicConfig:
        return topic_config(image, topic, self._settings.broker_id, self._settings.topic_defaults)

    def offline(self, partition: Partition, error: StorageError) -> None:
        """The disk under a replica has failed, and with it everything in the same directory."""
        if not self.has(partition):
            return  # it was removed while somebody worked on it
        if error.is_of_handles:
            self._logger.error("not written partition=%s reason=%s", partition.key, error)
            return  # it goes on when fewer files are open
        self._shelf.fail(partition.log, error)
        self.directory_failed(_directory_of(partition), str(error))

    def directory_failed(self, path: str, reason: str) -> None:
        """A log directory cannot be used any more."""
        for partition in self:
            if _directory_of(partition) == path and partition.failure is None:
                self._logger.error("replica offline partition=%s reason=%s", partition.key, reason)
                partition.stop(ErrorCode.KAFKA_STORAGE_ERROR, reason)
                self._fetchers.forget(partition)

    def has(self, partition: Partition) -> bool:
        """Whether it is what we have of that partition now."""
        return self._by_id.get((partition.key.topic_id, partition.key.partition_id)) is partition

    # Duties

    async def watch_followers(self) -> None:
        """Proposes an ISR without those who have fallen behind, again and again."""
        while True:
            await asyncio.sleep(self._settings.replica_lag_time_max_ms / 2000)
            for number, partition in enumerate(list(self)):
                await _take_turns(number)
                proposal = partition.laggards_gone()
                if proposal is not None:
                    self._logger.info("shrink partition=%s isr=%s", partition.key, proposal.isr)
                    self._proposals.add(partition, proposal)

    async def save_high_watermarks(self) -> None:
        """Remembers high watermarks and log starts on disk, again and again; and syncs full segments, so that
        they need not be recovered."""
        while True:
            await asyncio.sleep(self._settings.high_watermark_checkpoint_ms / 1000)
            moved: dict[Partition, _Saved] = {}
            for number, partition in enumerate(list(self)):
                await _take_turns(number)
                log = partition.log
                if log.active_base_offset > log.flushed_offset:
                    await self._try(partition, log.flush)
                now = _what_is_saved(partition)
                if partition.failure is None and self._saved.get(partition) != now:
                    moved[partition] = now
            await self._shelf.save([one for one in moved if self.has(one)])
            for partition, was in moved.items():
                if self.has(partition) and _what_is_saved(partition) == was:
                    self._saved[partition] = was

    async def enforce_retention(self) -> None:
        """Deletes what is too old or too much, again and again."""
        while True:
            await asyncio.sleep(self._settings.retention_check_ms / 1000)
            for partition in list(self):
                await self._try(partition, partition.retain)

    async def forget_producers(self) -> None:
        """Forgets producers that are gone, again and again."""
        while True:
            await asyncio.sleep(self._settings.producer_expiration_check_ms / 1000)
            for number, partition in enumerate(list(self)):
                await _take_turns(number)
                partition.log.expire_producers(self._around.wall_ms(), self._around.producer_expiration_ms())

    async def _try(self, partition: Partition, work: Callable[[], Awaitable[object]]) -> None:
        """Works on the log of a replica that is in use, and may be removed meanwhile."""
        if partition.failure is not None or not self.has(partition):
            return
        log = partition.log
        try:
            await work()
        except StorageError as error:
            if partition.log is log:  # and not in another directory by now
                self.offline(partition, error)

    async def close(self) -> None:
        """Ends in order: everything is synced, and need not be recovered."""
        for partition in list(self):
            partition.stop()
            self._fetchers.forget(partition)
        await self._shelf.save([one for one in self if one.failure is None])
        partitions = list(self)
        closed = _Progress("closing", len(partitions), self._around.now_ms, self._logger)

        async def close(partition: Partition) -> None:
            await partition.settled()
            if partition.failure is not None:
                await partition.log.retire()
                return
            try:
                await partition.log.close()
            except StorageError as error:
                self._logger.error("not closed in order partition=%s reason=%s", partition.key, error)
                self._shelf.fail(partition.log, error)
            closed.one_more()

        await in_lanes(partitions, _directory_of, self._settings.recovery_threads, close)


async def _take_turns(number: int) -> None:
    """Lets others have their turn now and then, while something is done to thousands of replicas."""
    if number % _TURN == _TURN - 1:
        await asyncio.sleep(0)


class _Progress:
    """Says now and then how far something has come that may take minutes."""

    def __init__(self, what: str, count: int, now_ms: Callable[[], float], logger: logging.Logger) -> None:
        self._what = what
        self._count = count
        self._done = 0
        self._now_ms = now_ms
        self._logger = logger
        self._said_ms = now_ms()

    def one_more(self) -> None:
        self._done += 1
        now_ms = self._now_ms()
        if now_ms - self._said_ms >= _PROGRESS_MS:
            self._said_ms = now_ms
            self._logger.info("%s logs done=%d of=%d", self._what, self._done, self._count)


def _what_is_saved(partition: Partition) -> _Saved:
    log = partition.log
    return log, partition.high_watermark, log.flushed_offset, log.start_offset


def _directory_of(partition: Partition) -> str:
    return partition.log.directory.rpartition("/")[0]
