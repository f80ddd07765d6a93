"""One replica of a partition on this broker: its log, and whether it leads or follows.

A leader appends what producers send, answers fetches, and keeps count of its followers (`leadership`). A
follower appends what its leader has, after cutting off what the leader does not have. Both go by the leader
epoch of the metadata: an older one is never returned to.

Everything here happens on one loop. Appends and reads are synchronous; what takes away from a log is awaited,
is done to its end even if nobody waits for it any more, and one thing at a time. `settled` is for whoever
gives the replica another role, or takes it away: until then it may be half cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Final, Protocol

from quorate.broker import standing
from quorate.broker.admission import Admit, admit
from quorate.broker.fetch_sessions import Wanted
from quorate.broker.leadership import Leadership, Proposal
from quorate.broker.resting import Resting
from quorate.broker.standing import Standing, Standings
from quorate.broker.topic_config import TopicConfig
from quorate.broker.waiting import CommitQueue, CommitWait, DataWait
from quorate.controller.proposals import TopicPartition
from quorate.metadata.partitions import Partition as PartitionState
from quorate.protocol.batch import HEADER_BYTES, read_header
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.inflated import Inflated
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import Appended, PartitionLog, Produced
from quorate.values import dataclass

__all__ = ["Appended", "Asker", "Isolation", "Partition", "Surroundings", "TopicPartition", "Watcher"]

NO_LEADER: Final = -1


class Isolation:
    """How far a reader may read."""

    END: Final = 0  # followers: everything
    COMMITTED: Final = 1  # consumers: below the high watermark
    STABLE: Final = 2  # read_committed: no open transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all replicas of a broker go by."""

    broker_id: int
    lag_ms_max: float  # how long a follower may be behind and still be in sync
    now_ms: Callable[[], float]
    wall_ms: Callable[[], int]
    is_eligible: Callable[[int, int], bool]
    """Whether a broker with an epoch (-1 if it did not say) may be in sync: as the metadata says, active."""
    admit: Admit = admit  # what is demanded of produced batches
    producer_expiration_ms: Callable[[], int] = lambda: 86_400_000
    """After how long without a batch a producer is forgotten, as it is set now."""
    standings: Standings = field(default_factory=Standings)  # of all of them


class Watcher(Protocol):
    """Who follows the fate of what it has appended to a partition that this broker leads."""

    def advanced(self, high_watermark: int) -> None: ...
    def resigned(self) -> None: ...


class Asker(Protocol):
    """Who fetches for a follower, and tells its leader where its log begins and ends."""

    def moved(self, partition: Partition) -> None: ...


class Partition:
    """A replica."""

    def __init__(
        self,
        key: TopicPartition,
        around: Surroundings,
        log: PartitionLog,
        config: TopicConfig,
        high_watermark: int,
    ) -> None:
        self.key = key
        self.broker_id = around.broker_id
        self.log = log
        self._around = around
        self.config = config
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.min_isr = 0
        """How many must be in sync: of all replicas, if there are fewer than the topic asks for."""
        self.leading: Leadership | None = None
        self.failure: str | None = None  # why it is offline
        self.watcher: Watcher | None = None
        self.data_waits: dict[DataWait, int] = {}
        self.resting: Resting[Wanted] = Resting()  # fetch sessions that have said everything of it
        self.asker: Asker | None = None
        self._commits = CommitQueue()
        self._starts = CommitQueue()  # who waits until every replica begins later
        self._cutting = asyncio.Lock()
        self._cuts: set[asyncio.Task[None]] = set()  # under way, or about to be
        self._high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        log.replicated_to(self._high_watermark)
        self._standing: Standing | None = None  # as it is counted
        self._count()

    # Roles

    def lead(self, state: PartitionState) -> bool:
        """Leads from now on, or hears of a change while it does. Whether this began a new epoch."""
        is_new = self.leading is None or state.leader_epoch > self.leader_epoch
        if state.leader_epoch < self.leader_epoch or state.partition_epoch < self.partition_epoch:
            return False
        self._take(state)
        if not is_new:
            assert self.leading is not None
            self.leading.update(state)
            self._count()
            self.resting.stir()
            self._advance(self.leading)
            self._tell_starts()
            return False
        assert self.leading is not None or not self._cuts, f"{self.key} is not settled"
        high_watermark = self.high_watermark
        self.log.assign_epoch(state.leader_epoch)
        self.leading = Leadership.begin(
            self.broker_id, state, self.log.end_offset, high_watermark, self._around.now_ms()
        )
        self._count()
        # Producers go on waiting if it led before: nothing was cut, so what they wait for is still there.
        self._end_data_waits()
        self._advance(self.leading)
        return True

    def follow(self, state: PartitionState) -> bool:
        """Follows from now on. Whether fetching must begin anew: with every leader epoch."""
        if state.leader_epoch < self.leader_epoch or state.partition_epoch < self.partition_epoch:
            return False
        is_new = state.leader_epoch > self.leader_epoch or self.leading is not None
        self._take(state)
        self._resign()
        self._count()
        if is_new:
            self._commits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._starts.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._end_data_waits()
        return is_new

    def stop(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER, reason: str | None = None) -> None:
        """Takes part in nothing any more: it moves away, is deleted, or its disk has failed."""
        self._resign()
        self.failure = reason or self.failure
        self._count()
        self._commits.fail(error)
        self._starts.fail(error)
        self._end_data_waits()

    def remove(self) -> None:
        """Takes part in nothing any more, and is no replica of this broker."""
        self.stop()
        self._stand(None)

    def _take(self, state: PartitionState) -> None:
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.min_isr = min(self.config.min_isr, len(self.replicas))

    def _resign(self) -> None:
        if self.leading is not None:
            self._high_watermark = self.leading.high_watermark
            self.leading = None
            if self.watcher is not None:
                self.watcher.resigned()

    def _count(self) -> None:
        """Has to be called whenever something changes that is counted."""
        if self.leading is not None:
            in_sync, replicas = len(self.leading.isr), len(self.leading.replicas)
            self._stand(standing.leading(in_sync, replicas, self.min_isr))
        else:
            self._stand(standing.FOLLOWING if self.failure is None else standing.FAILED)

    def _stand(self, now: Standing | None) -> None:
        if now is not self._standing:
            self._around.standings.change(self._standing, now)
            self._standing = now

    def _end_data_waits(self) -> None:
        self.resting.stir()
        for wait in list(self.data_waits):
            wait.finish()

    # Where it is

    @property
    def high_watermark(self) -> int:
        return self._high_watermark if self.leading is None else self.leading.high_watermark

    @property
    def last_stable_offset(self) -> int:
        unstable = self.log.first_unstable_offset
        committed = self.high_watermark
        return committed if unstable is None else min(unstable, committed)

    def limit(self, isolation: int) -> int:
        """The offset that a reader may not reach."""
        if isolation == Isolation.END:
            return self.log.end_offset
        return self.high_watermark if isolation == Isolation.COMMITTED else self.last_stable_offset

    def check_epoch(self, epoch: int) -> None:
        """What a client believes to be the leader epoch; -1 if it does not care."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.key} is offline: {self.failure}")
        if 0 <= epoch < self.leader_epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{self.key} is at leader epoch {self.leader_epoch}"
            )
        if epoch > self.leader_epoch:
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.key} is at leader epoch {self.leader_epoch}"
            )

    def leadership(self) -> Leadership:
        """Who leads here, if it is us."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.key} is offline: {self.failure}")
        if self.leading is None:
            reason = f"{self.key} is led by broker {self.leader_id}"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        return self.leading

    # As the leader

    def check_append(self, acks: int) -> None:
        """Refuses batches of producers if we do not lead; and with acks=-1 if they could not be committed
        safely."""
        leading = self.leadership()
        if acks == -1 and len(leading.isr) < self.min_isr:
            reason = f"{self.key} has {len(leading.isr)} replicas in sync and needs {self.min_isr}"
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, reason)

    def append(self, data: memoryview, inflated: Inflated | None = None) -> Appended:
        """Appends the one batch that a producer sent (see `admission.check_form`, and `check_append`).
        `inflated` counts for all batches of its request."""
        leading, wall_ms = self.leadership(), self._around.wall_ms()
        admit = self._around.admit
        buffer, header = admit(data, self.config, wall_ms, inflated or Inflated())
        found = self.log.append_produced(buffer, header, leading.leader_epoch, wall_ms)
        if not found.is_duplicate and not self._advance(leading):
            self._wake()  # followers want it before it is committed
        return found

    def append_many(
        self, sent: Sequence[memoryview], inflated: Inflated
    ) -> list[Appended | ApiError | StorageError]:
        """What `append` does for several batches, in one write. What became of each, in order."""
        leading, wall_ms = self.leadership(), self._around.wall_ms()
        admit, config = self._around.admit, self.config
        outcomes: list[Appended | ApiError | StorageError | None] = []
        admitted = []
        for data in sent:
            try:
                admitted.append(Produced(*admit(data, config, wall_ms, inflated)))
                outcomes.append(None)
            except ApiError as refusal:
                outcomes.append(refusal)
        end_offset = self.log.end_offset
        found = iter(self.log.append_many(admitted, leading.leader_epoch, wall_ms))
        if self.log.end_offset > end_offset and not self._advance(leading):
            self._wake()
        return [next(found) if one is None else one for one in outcomes]

    def append_made(
        self, batch: bytearray, offset: int, count: int, timestamp_ms: int, leader_epoch: int
    ) -> None:
        """Appends what this broker itself has to say, if it leads at that epoch: so many records of one time,
        and of no producer. The batch was made for this place."""
        leading = self.leading
        if leading is None or self.failure is not None or leading.leader_epoch != leader_epoch:
            leading = self._leadership_at(leader_epoch)  # which says why not
        self.log.append_made(batch, offset, count, timestamp_ms, leader_epoch)
        if not self._advance(leading):
            self._wake()

    def append_own(self, batch: bytearray, leader_epoch: int) -> Appended:
        """Appends what this broker itself has to say for a producer, if it leads at that epoch."""
        leading = self._leadership_at(leader_epoch)
        wall_ms = self._around.wall_ms()
        found = self.log.append_produced(batch, read_header(batch), leader_epoch, wall_ms)
        if not self._advance(leading):
            self._wake()
        return found

    def _leadership_at(self, leader_epoch: int) -> Leadership:
        leading = self.leadership()
        if leading.leader_epoch != leader_epoch:
            reason = f"{self.key} is at leader epoch {leading.leader_epoch}, not {leader_epoch}"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        return leading

    def committed(self, last_offset: int) -> ErrorCode | None:
        """How it went with the commit of an offset that was appended here; None if it is still to come."""
        if self.leading is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if self.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
        return self._commit_error(self.leading) if last_offset < self.leading.high_watermark else None

    def when_committed(self, last_offset: int, wait: CommitWait, number: int) -> None:
        """Tells the wait, under its number, once an offset is committed, or when that can no longer be."""
        outcome = self.committed(last_offset)
        if outcome is None:
            self._commits.add(last_offset, wait, number)
        else:
            wait.finished(number, outcome)

    def fetched_by(
        self, follower_id: int, offset: int, log_start_offset: int, broker_epoch: int
    ) -> Proposal | None:
        """A follower fetches: notes how far it is, commits what can be, and proposes it for the ISR."""
        leading = self.leadership()
        if follower_id not in leading.followers:
            reason = f"broker {follower_id} has no replica of {self.key}"
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, reason)
        now_ms, end_offset = self._around.now_ms(), self.log.end_offset
        leading.fetched(follower_id, offset, log_start_offset, broker_epoch, end_offset, now_ms)
        if leading.high_watermark < end_offset:
            self._advance(leading, now_ms)
        if len(self._starts):
            self._tell_starts()
        if follower_id in leading.isr:
            return None
        return leading.newcomer(follower_id, self._may_join)

    def laggards_gone(self) -> Proposal | None:
        """The ISR without those who have fallen behind for too long, if there are any."""
        if self.leading is None or self.failure is not None:
            return None
        around = self._around
        return self.leading.without_laggards(self.log.end_offset, around.now_ms(), around.lag_ms_max)

    def isr_answered(self, isr: tuple[int, ...], partition_epoch: int, *, is_recovering: bool) -> None:
        """The controller has agreed to a proposal; more may be committed now."""
        if self.leading is not None:
            self.leading.accepted(isr, partition_epoch, is_recovering=is_recovering)
            self._count()
            self.partition_epoch = max(self.partition_epoch, partition_epoch)
            self.resting.stir()
            self._advance(self.leading)

    async def delete_before(self, offset: int | None) -> int:
        """Somebody wants the log to begin at an offset; None is the high watermark. The one that it is."""
        self.leadership()
        if not self.config.is_deleted:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"nothing of {self.key} is deleted by age or size")
        target = self.high_watermark if offset is None else offset
        if not 0 <= target <= self.high_watermark:
            reason = f"{self.key} has no offset {target} below its high watermark of {self.high_watermark}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)

        async def delete() -> None:
            # It may have ceased to lead meanwhile, and its log may have been cut: whoever leads now decides.
            if self.log.start_offset < target <= self.log.end_offset and self.leading is not None:
                await self.log.delete_until(target, self._around.wall_ms())

        await self._alone(delete)
        return target

    @property
    def low_watermark(self) -> int:
        """Where the log begins on every replica whose broker is alive, as far as its fetches have told."""
        leading, around = self.leadership(), self._around
        starts = [
            follower.log_start_offset
            for one, follower in leading.followers.items()
            if around.is_eligible(one, -1)
        ]
        return min([self.log.start_offset, *starts])

    def when_begun(self, offset: int, wait: CommitWait, number: int) -> None:
        """Tells the wait once every replica begins at an offset or later, or when we cannot know any more."""
        if self.leading is None:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if self.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
            wait.finished(number, code)
        elif self.low_watermark >= offset:
            wait.finished(number)
        else:
            self._starts.add(offset - 1, wait, number)
            self.resting.stir()  # also who is eligible decides it, which is looked at with every fetch

    @property
    def is_settled(self) -> bool:
        """Whether everything is committed, so that no fetch can change anything."""
        return self.log.end_offset == self.high_watermark and not len(self._starts)

    def _tell_starts(self) -> None:
        if len(self._starts):
            self._starts.committed(self.low_watermark, ErrorCode.NONE)

    def configure(self, config: TopicConfig) -> None:
        """The topic has other settings now."""
        self.config = config
        self.min_isr = min(config.min_isr, len(self.replicas))
        self.log.configure(config.log)
        self._count()
        if self.leading is not None:
            self._advance(self.leading)

    def _may_join(self, broker_id: int) -> bool:
        assert self.leading is not None
        return self._around.is_eligible(broker_id, self.leading.followers[broker_id].broker_epoch)

    def _advance(self, leading: Leadership, now_ms: float | None = None) -> bool:
        """Commits what can be. Whether that was something. `now_ms` is for who has looked at the clock."""
        around = self._around
        if now_ms is None:
            now_ms = around.now_ms() if leading.followers else 0.0  # by which others may be late
        has_moved = leading.advance(
            self.log.end_offset, self.config.min_isr, around.lag_ms_max, now_ms, self._may_join
        )
        if has_moved:
            self.log.replicated_to(leading.high_watermark)
            if self._commits.offsets:
                self._commits.committed(leading.high_watermark, self._commit_error(leading))
            if self.watcher is not None:
                self.watcher.advanced(leading.high_watermark)
            if self.data_waits or self.resting.onlookers:
                self._wake()
        return has_moved

    def _wake(self) -> None:
        if self.resting.onlookers:
            self.resting.stir()  # who waits there is among the waits, then
        if self.data_waits:
            for wait, number in list(self.data_waits.items()):
                wait.look(number)

    def _commit_error(self, leading: Leadership) -> ErrorCode:
        if len(leading.maximal_isr) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # As a follower

    def append_fetched(self, epoch: int, offset: int, data: memoryview, high_watermark: int) -> None:
        """Appends what the leader of an epoch answered to a fetch at an offset, if that is still us."""
        if epoch != self.leader_epoch or self.leading is not None or self.failure is not None:
            return
        if offset != self.log.end_offset:
            return
        if len(data):
            self.log.append_replicated(data, self._around.wall_ms(), epoch_max=epoch)
        if not self._set_high_watermark(high_watermark) and len(data):
            self._wake()

    async def cut_off(self, epoch: int, end_offset: int) -> None:
        """The leader's log of an epoch ended at an offset: what we have beyond that was never committed."""
        ours_epoch, ours_end = self.log.end_offset_of(epoch)
        if ours_epoch < 0:
            target = end_offset
        elif ours_epoch == epoch:
            target = min(ours_end, end_offset)
        else:
            target = ours_end
        await self.truncate_to(min(target, self.log.end_offset))

    async def truncate_to(self, offset: int) -> None:
        async def truncate() -> None:
            await self.log.truncate_to(offset)
            self._high_watermark = max(self.log.start_offset, min(self._high_watermark, self.log.end_offset))

        await self._alone(truncate)

    async def restart_at(self, offset: int) -> None:
        """Forgets everything, and begins where the leader begins."""

        async def restart() -> None:
            await self.log.restart_at(offset, self._around.wall_ms())
            self._high_watermark = offset

        await self._alone(restart)

    async def begin_with(self, offset: int, data: memoryview) -> int:
        """Where to append what was answered to a fetch at an offset: there; or, if an empty log begins in the
        middle of the leader's first batch, where that batch begins, and the log then does as well."""
        log = self.log
        if log.start_offset == log.end_offset == offset and len(data) >= HEADER_BYTES:
            base_offset = read_header(data).base_offset
            if base_offset < offset:
                await self.restart_at(base_offset)
                return base_offset
        return offset

    async def start_at(self, offset: int) -> None:
        """The leader's log begins later than ours."""

        async def delete() -> None:
            if offset <= self.log.end_offset:
                await self.log.delete_until(offset, self._around.wall_ms())
                self._high_watermark = max(self._high_watermark, offset)

        await self._alone(delete)

    def _set_high_watermark(self, high_watermark: int) -> bool:
        """Whether it has moved."""
        moved = max(self._high_watermark, min(high_watermark, self.log.end_offset))
        if moved == self._high_watermark:
            return False
        self._high_watermark = moved
        self.log.replicated_to(moved)
        self._wake()
        return True

    # As either

    async def retain(self) -> None:
        """Deletes what is too old or too much, as far as it is committed."""
        config = self.config

        async def delete() -> None:
            await self.log.apply_retention(
                min(self.high_watermark, self.log.end_offset),
                config.retention_bytes if config.is_deleted else -1,
                config.retention_ms if config.is_deleted else -1,
                self._around.wall_ms(),
            )

        await self._alone(delete)

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[None]:
        """Nothing is taken away from the log meanwhile; appends go on. Whoever is about to has to wait, so
        this is for short whiles."""
        async with self._cutting:
            yield

    def replace_log(self, log: PartitionLog) -> None:
        """Goes on with another log, which has the same batches, in another place."""
        assert (log.start_offset, log.end_offset) == (self.log.start_offset, self.log.end_offset)
        self.log = log

    async def settled(self) -> None:
        """Until nothing is being taken away from the log any more."""
        while self._cuts:
            await asyncio.wait(self._cuts)

    @property
    def _extent(self) -> tuple[int, int, int]:
        return self.log.start_offset, self.log.end_offset, self.high_watermark

    async def _alone(self, work: Callable[[], Awaitable[None]]) -> None:
        async def guarded() -> None:
            async with self._cutting:
                before = self._extent
                try:
                    await work()
                finally:
                    if self._extent != before:
                        self.resting.stir()
                        if self.asker is not None:
                            self.asker.moved(self)

        task = asyncio.ensure_future(guarded())
        self._cuts.add(task)
        task.add_done_callback(self._cuts.discard)
        await asyncio.shield(task)
