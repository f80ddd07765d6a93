"""Replicas on their way to another log directory of this broker.

A copy of the log is made in the other directory, piece by piece, while producers and followers go on with the
log itself; what is cut off or deleted there is cut off and deleted in the copy as well. When the copy has
caught up and the controller knows (see `directory_moves_stages`), it takes the place of the log.

For each directory that something moves to there is one worker; its moves take turns, a piece each. All
together take only so many bytes in a second as are set. Between two pieces a move can be given up: because it
was asked for something else, because the replica goes away, or because a disk fails.

What a process leaves behind, the next one goes on with: see `FutureShelf.found`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

from quorate.broker.directory_moves_copying import Copying, SourceDamagedError
from quorate.broker.directory_moves_stages import Event, Stage, after, is_promised
from quorate.broker.partition import Partition, TopicPartition
from quorate.broker.throttled_replication import ReplicationThrottle
from quorate.broker.topic_config import TopicConfig
from quorate.metadata.partitions import UNASSIGNED
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import PartitionLog

__all__ = ["RATE", "Cleaning", "DirectoryMoves", "FutureShelf", "Move", "NoCleaning"]

RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
REST_S: Final = 0.05  # between two looks at whether a copy that has caught up still has
HELD_UP_S_MAX: Final = 1.0  # before a throttle is looked at again


class FutureShelf(Protocol):
    """Where copies are kept: the log directories of the broker, by their paths."""

    def is_known(self, path: str) -> bool: ...
    def is_online(self, path: str) -> bool: ...
    def is_any_offline(self) -> bool: ...
    def path_of(self, log: PartitionLog) -> str: ...
    def id_of(self, path: str) -> Uuid: ...
    def found(self, key: TopicPartition) -> str | None: ...
    async def open(self, key: TopicPartition, config: TopicConfig, path: str) -> PartitionLog: ...
    async def drop(self, key: TopicPartition, path: str, log: PartitionLog | None) -> None: ...
    async def replace(
        self,
        key: TopicPartition,
        log: PartitionLog,
        copy: PartitionLog,
        catch_up: Callable[[], bool],
        use: Callable[[PartitionLog], None],
    ) -> bool: ...
    def fail(self, log: PartitionLog, error: StorageError) -> None: ...


class Cleaning(Protocol):
    """Compaction, which must leave a log alone that is being copied: what it takes away could be a tombstone
    whose key the copy already has."""

    async def pause(self, partition: Partition) -> None:
        """Gives up what is under way in a log, and does not begin again."""

    def resume(self, partition: Partition) -> None: ...

    def moved(self, partition: Partition, path: str, new_path: str) -> None:
        """The log is in another log directory now."""


class NoCleaning:
    async def pause(self, _partition: Partition) -> None:
        pass

    def resume(self, _partition: Partition) -> None:
        pass

    def moved(self, _partition: Partition, _path: str, _new_path: str) -> None:
        pass


class Move:
    """One replica, and the copy that will take its place."""

    def __init__(self, partition: Partition, path: str, target_id: Uuid) -> None:
        self.partition = partition
        self.path = path  # of the log directory that it moves to
        self.target_id = target_id
        self.log: PartitionLog | None = None  # the copy, once it is open
        self.stage = Stage.COPYING
        self.is_begun = False  # before that, nobody works on it
        self.is_alone = False  # the log is not compacted meanwhile
        self.copied_bytes = 0
        self.step: asyncio.Task[bool] | None = None  # which is never interrupted

    @property
    def is_over(self) -> bool:
        return self.stage in (Stage.DONE, Stage.GIVEN_UP)

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind."""
        return self.partition.log.end_offset - (0 if self.log is None else self.log.end_offset)

    def happens(self, event: Event) -> None:
        self.stage = after(self.stage, event)


class DirectoryMoves:
    """All moves of a broker. `run` copies for as long as the broker runs.

    `note` tells the controller where a replica is (`DirectoryAssignments.note`); `is_assigned` says whether
    this cluster keeps such things at all, `is_ours` whether we still have a replica.
    """

    def __init__(
        self,
        broker_id: int,
        shelf: FutureShelf,
        note: Callable[..., None],
        is_assigned: Callable[[], bool],
        is_ours: Callable[[Partition], bool],
        copying: Copying,
        throttle: ReplicationThrottle,
        cleaning: Cleaning | None = None,
    ) -> None:
        self._shelf = shelf
        self._note = note
        self._is_assigned = is_assigned
        self._is_ours = is_ours
        self._copying = copying
        self.throttle = throttle
        self._cleaning = cleaning or NoCleaning()
        self._moves: dict[TopicPartition, Move] = {}
        self._known: dict[TopicPartition, Uuid] = {}  # where the metadata have a replica that moves
        self._changing = asyncio.Lock()
        self._wake = asyncio.Event()
        self.failed = 0
        self._logger = logging.getLogger(f"quorate.broker.{broker_id}")

    def __iter__(self) -> Iterator[Move]:
        return iter(list(self._moves.values()))

    def __len__(self) -> int:
        return len(self._moves)

    def of(self, partition: Partition) -> Move | None:
        return self._moves.get(partition.key)

    # What is asked for

    async def move(self, partition: Partition, path: str) -> None:
        """Begins to move a replica to another log directory. If it is there already, or on its way there,
        nothing happens; a move to elsewhere is given up. `ApiError` if it cannot be."""
        async with self._changing:
            if not self._is_ours(partition):
                raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition.key} is not here any more")
            now = self._moves.get(partition.key)
            if now is not None and not now.is_over:
                if now.path == path:
                    return
                await self._give_up(now, f"it shall be in {path}")
            if self._shelf.path_of(partition.log) == path:
                return
            if self._shelf.is_any_offline():
                # Kafka's rule: there may be a copy on the disk that is gone.
                reason = f"{partition.key} is not moved while a log directory is offline"
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
            move = Move(partition, path, self._shelf.id_of(path))
            self._moves[partition.key] = move
            try:
                await self._open(move)
            except StorageError as error:
                self._fail(move, str(error))
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            if partition.failure is not None:
                await self._give_up(move, partition.failure)
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.key} is offline")
            self._begins(move)

    def _begins(self, move: Move) -> None:
        self._logger.info(
            "move begins partition=%s from=%s to=%s end_offset=%d copied_to=%d",
            move.partition.key,
            self._shelf.path_of(move.partition.log),
            move.path,
            move.partition.log.end_offset,
            0 if move.log is None else move.log.end_offset,
        )
        move.is_begun = True
        self._wake.set()

    async def _open(self, move: Move) -> None:
        await self._cleaning.pause(move.partition)
        move.is_alone = True
        move.log = await self._shelf.open(move.partition.key, move.partition.config, move.path)

    # What the cluster says

    def assigned(self, partition: Partition, known: Uuid) -> None:
        """The metadata have a replica of ours in a directory: tells the controller if that is wrong, goes on
        with what another process has begun, and with what waited for this."""
        move = self._moves.get(partition.key)
        if move is None and (path := self._shelf.found(partition.key)) is not None:
            move = self._moves[partition.key] = Move(partition, path, self._shelf.id_of(path))
            self._begins(move)
        self._note(partition.key, actual=self._directory_of(partition), known=known)
        if move is not None:
            self._known[partition.key] = known
            self._hear(move)

    def _hear(self, move: Move) -> None:
        """The controller has agreed, if the metadata say so."""
        if move.stage is Stage.ASSIGNING and self._known.get(move.partition.key) == move.target_id:
            move.happens(Event.ACCEPTED)
            self._wake.set()

    def _directory_of(self, partition: Partition) -> Uuid:
        """What the controller shall know."""
        move = self._moves.get(partition.key)
        if move is not None and is_promised(move.stage):
            return move.target_id
        return self._shelf.id_of(self._shelf.path_of(partition.log))

    async def forget(self, partition: Partition) -> None:
        """A replica goes away, and what is made of it with it."""
        async with self._changing:
            move = self._moves.get(partition.key)
            if move is not None and not move.is_over:
                await self._give_up(move, "the replica goes away")
            elif (path := self._shelf.found(partition.key)) is not None:
                await self._shelf.drop(partition.key, path, None)

    def directory_failed(self, path: str) -> None:
        """A log directory cannot be used any more: neither as a source nor as a target."""
        for move in self:
            if not move.is_over and path in (move.path, self._shelf.path_of(move.partition.log)):
                self._fail(move, f"{path} is offline")

    # Ending

    async def _give_up(self, move: Move, reason: str) -> None:
        """Ends a move, and takes the copy away."""
        was = move.stage
        move.stage = after(move.stage, Event.GIVEN_UP)
        await self._settled(move)
        self._logger.info("move given up partition=%s to=%s reason=%s", move.partition.key, move.path, reason)
        self._take_back(move, was)
        self._drop_from_books(move)
        await self._shelf.drop(move.partition.key, move.path, move.log)

    def _fail(self, move: Move, reason: str) -> None:
        """Ends a move because of a disk. What there is of the copy stays, for the next start."""
        if move.is_over:
            return
        was = move.stage
        move.stage = after(move.stage, Event.GIVEN_UP)
        self.failed += 1
        self._logger.error("move failed partition=%s to=%s reason=%s", move.partition.key, move.path, reason)
        self._take_back(move, was)
        self._drop_from_books(move)

    def _take_back(self, move: Move, was: Stage) -> None:
        """The controller may have been told, or be about to be, that the replica is somewhere else."""
        if is_promised(was):
            actual = self._shelf.id_of(self._shelf.path_of(move.partition.log))
            self._note(move.partition.key, actual=actual, known=UNASSIGNED)

    def _drop_from_books(self, move: Move) -> None:
        key = move.partition.key
        if self._moves.get(key) is move:
            del self._moves[key]
            self._known.pop(key, None)
        if move.is_alone:
            move.is_alone = False
            self._cleaning.resume(move.partition)

    async def _settled(self, move: Move) -> None:
        if move.step is not None and not move.step.done():
            await asyncio.wait([move.step])

    async def close(self) -> None:
        """Ends in order, after `run` has: what there is of copies need not be recovered."""
        async with self._changing:
            for move in self:
                await self._settled(move)
                if move.log is not None and not move.is_over:
                    try:
                        await move.log.close()
                    except StorageError as error:
                        self._shelf.fail(move.log, error)

    # Working

    async def run(self) -> None:
        """Runs a worker for every directory that something moves to."""
        workers: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                for path in {move.path for move in self if move.is_begun}:
                    if path not in workers or workers[path].done():
                        workers[path] = tasks.create_task(self._work(path))
                self._wake.clear()
                await self._wake.wait()

    async def _work(self, path: str) -> None:
        """Copies what moves to a directory, until nothing does."""
        while moves := [move for move in self if move.path == path and move.is_begun and not move.is_over]:
            has_done_something = False
            for move in moves:
                await self._hold_up()
                if not move.is_over:
                    has_done_something |= await self._do(move, self._step)
            if not has_done_something:
                await asyncio.sleep(REST_S)

    async def _hold_up(self) -> None:
        """Until the throttle lets something through."""
        while (delay_ms := self.throttle.delay_ms(self._copying.now_ms())) > 0:
            self.throttle.held_up += 1
            await asyncio.sleep(min(delay_ms / 1000, HELD_UP_S_MAX))

    async def _do(self, move: Move, work: Callable[[Move], Awaitable[bool]]) -> bool:
        """Takes a step to its end, even if this broker stops meanwhile. Whether there was something to do."""

        async def guarded() -> bool:
            has_done_something = False
            try:
                has_done_something = await work(move)
            except StorageError as error:
                self._fail(move, str(error))
            except SourceDamagedError as error:
                self._fail(move, str(error))
                await self._shelf.drop(move.partition.key, move.path, move.log)
            if move.stage is Stage.GIVEN_UP and move.log is not None:
                await move.log.retire()
            return has_done_something

        move.step = asyncio.ensure_future(guarded())
        return await asyncio.shield(move.step)

    async def _step(self, move: Move) -> bool:
        partition = move.partition
        if move.log is None:
            await self._open(move)
        assert move.log is not None
        if move.log.config != partition.config.log:
            move.log.configure(partition.config.log)
        async with partition.undisturbed():
            if move.is_over or partition.failure is not None:
                return False
            if await self._copying.follow_cuts(partition.log, move.log, self._shelf):
                return True
            copied = await self._copying.piece(partition.log, move.log, self._shelf)
        move.copied_bytes += copied.size_bytes
        self.throttle.record(copied.size_bytes, self._copying.now_ms())
        if move.is_over or not copied.is_all:
            return copied.size_bytes > 0
        if move.stage is Stage.COPYING:
            self._tell(move)
        elif move.stage is Stage.ASSIGNED:
            return await self._replace(move)
        return copied.size_bytes > 0

    def _tell(self, move: Move) -> None:
        """The copy has caught up: the controller is told."""
        move.happens(Event.CAUGHT_UP)
        if not self._is_assigned() or move.target_id == UNASSIGNED:
            move.happens(Event.ACCEPTED)
            return
        key = move.partition.key
        self._hear(move)
        if move.stage is Stage.ASSIGNING:
            self._note(key, actual=move.target_id, known=self._known.get(key, UNASSIGNED))

    async def _replace(self, move: Move) -> bool:
        """The copy takes the place of the log, unless too much has come meanwhile."""
        partition, copy = move.partition, move.log
        assert copy is not None
        was_in = self._shelf.path_of(partition.log)
        await self._copying.flush(copy, self._shelf)  # most of it, while nobody has to wait
        async with partition.undisturbed():
            if move.is_over or partition.failure is not None:
                return False
            log = partition.log

            def catch_up() -> bool:
                return not move.is_over and self._copying.rest(log, copy, self._shelf)

            def use(replacement: PartitionLog) -> None:
                partition.replace_log(replacement)
                move.happens(Event.REPLACED)

            try:
                if not await self._shelf.replace(partition.key, log, copy, catch_up, use):
                    return True
            finally:
                if move.stage is Stage.DONE:
                    self._cleaning.moved(partition, was_in, move.path)
                    self._drop_from_books(move)
        self._logger.info(
            "move done partition=%s from=%s to=%s end_offset=%d copied_bytes=%d",
            partition.key,
            was_in,
            move.path,
            partition.log.end_offset,
            move.copied_bytes,
        )
        return True
