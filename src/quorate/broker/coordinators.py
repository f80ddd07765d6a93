"""Hosts coordinators: one for each partition of their log that this broker leads.

A coordinator is a pure state (`Shard`), and a fold over its partition. This is where it lives: elected, it is
loaded by reading the partition from beginning to end; asked, its records are appended and applied, and its
answers held until they are committed; and when the leadership goes, so does the state, and whoever waits is
told to look elsewhere.

    LOADING -> ACTIVE -> gone
            -> FAILED -> gone

The records of a step are applied at once and written with those of other steps, all that came in one turn of
the loop in one batch. Some are only announced at first, and taken a moment later (`coordinators_gathering`),
where there is less to decide for all who came than for each. What could refuse records is asked before:
whether we lead at this epoch, whether enough are in sync, whether they fit. Then only the disk can fail, and
that ends the leadership, and the state too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import count
from math import inf
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from quorate.broker.coordinators_batches import Held, OpenBatch, PlainStep, PlainWritten, encoded_from
from quorate.broker.coordinators_delivery import Delivery
from quorate.broker.coordinators_gathering import Gathering
from quorate.broker.coordinators_loading import Foldable, mark, replay
from quorate.broker.leadership import Leadership
from quorate.broker.partition import Partition
from quorate.coordinator.effects import Answer, Effects, Moment, Producer, Ticket, Written
from quorate.metadata.event import Event
from quorate.net.eventual import Eventual
from quorate.protocol.batch import HEADER_BYTES, NO_PRODUCER_ID, ControlType
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Message, Response
from quorate.storage.errors import AppendError, StorageError
from quorate.values import dataclass, plain_members

__all__ = ["DUE_MAX", "STEPS_MAX", "Coordinators", "Hosted", "LoadCounts", "Shard", "State"]

STEPS_MAX: Final = 32
"""So many are taken before what they have decided is written, even if more is waiting to be heard. It costs a
write for so many, and their askers can go on while others are served."""
DUE_MAX: Final = 32
"""So much of what is due is done in one turn of the loop, and the rest in the next. Thousands of sessions may
end at once; and if there were no end to what a coordinator finds to do, the node would still serve others."""


class Shard(Foldable, Protocol):
    """The state of a coordinator, as far as its host must know; see `coordinator.shard`."""

    def loaded(self, moment: Moment) -> Effects: ...
    def append_refused(self, effects: Written, code: ErrorCode, moment: Moment) -> Effects: ...
    def unload(self) -> Effects: ...
    @property
    def next_deadline_ms(self) -> float: ...
    def tick(self, moment: Moment) -> Effects: ...


S = TypeVar("S", bound=Shard)
R = TypeVar("R", bound=Response)


@plain_members
class State(Enum):
    """Where one of them is."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()


@dataclass(slots=True)
class LoadCounts:
    """What has come and gone."""

    loaded: int = 0
    unloaded: int = 0
    took_ms: float = 0.0  # all of them together
    took_ms_max: float = 0.0


class Coordinators(Generic[S]):
    """All of one kind on this broker, by the partition of their log."""

    def __init__(
        self,
        make: Callable[[int], S],
        moment: Callable[[], Moment],
        *,
        commit_timeout_ms: float,
        codec: Codec = Codec.NONE,
        offline: Callable[[Partition, StorageError], None],
        saw: Callable[[Sequence[Event]], None],
        logger: logging.Logger,
        when_loaded: Callable[[Hosted[S]], None] = lambda _: None,
    ) -> None:
        """`make` is given the number of a partition. `offline` is told of one whose disk has failed."""
        self._make = make
        self.moment = moment
        self.commit_timeout_ms = commit_timeout_ms
        self.codec = codec
        self.offline = offline
        self.saw = saw
        self.logger = logger
        self.when_loaded = when_loaded
        self.loads = LoadCounts()
        self.delivery = Delivery()
        self.gathering = Gathering()
        self.unwritten_steps = 0
        self.unwritten_since: Moment | None = None  # which is that of all steps of a turn
        self._unwritten: deque[Hosted[S]] = deque()  # those who have taken them
        self._will_write = False
        self._hosted: dict[int, Hosted[S]] = {}

    def __iter__(self) -> Iterator[Hosted[S]]:
        return iter(list(self._hosted.values()))

    def elected(self, partition: Partition) -> None:
        """This broker leads a partition of the log, in a new epoch."""
        partition_id = partition.key.partition_id
        hosted = self._hosted.get(partition_id)
        if hosted is not None and hosted.partition is partition and hosted.state is not State.FAILED:
            hosted.epoch = partition.leader_epoch  # it never stopped leading, so nothing is unknown to it
            return
        if hosted is not None:
            hosted.drop()
        hosted = Hosted(self, partition, self._make(partition_id), self._forget)
        self._hosted[partition_id] = hosted
        hosted.load()

    def active(self, partition_id: int) -> Hosted[S]:
        """The coordinator of a partition. `ApiError` if it is not here, or not yet."""
        hosted = self._hosted.get(partition_id)
        if hosted is None or hosted.state is State.FAILED:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if hosted.state is State.LOADING:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted

    def find(self, partition_id: int) -> Hosted[S] | None:
        """The coordinator of a partition, if it is here and active."""
        hosted = self._hosted.get(partition_id)
        return hosted if hosted is not None and hosted.state is State.ACTIVE else None

    def all_active(self) -> list[Hosted[S]]:
        return [one for one in self._hosted.values() if one.state is State.ACTIVE]

    def write_soon(self, hosted: Hosted[S], moment: Moment) -> None:
        """One of them has decided something: it is written when this turn of the loop ends, at the latest."""
        if not self._unwritten:
            self.unwritten_since = moment
        self._unwritten.append(hosted)
        self._write_soon()

    def _write_soon(self) -> None:
        if not self._will_write:
            self._will_write = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._will_write = False
        self.write()

    def write(self) -> None:
        """Writes what has been decided and not been written. What is committed with that is answered at once,
        so this must not be called within a step."""
        self.delivery.is_awaited = True
        try:
            while self._unwritten:
                self._unwritten.popleft().write()
        finally:
            self.unwritten_steps, self.unwritten_since = 0, None
            if self._unwritten:  # one of them has a bug, and the others do not suffer from it
                self._write_soon()
            self.delivery.now()

    @property
    def is_loading(self) -> bool:
        return any(one.state is State.LOADING for one in self._hosted.values())

    def close(self) -> None:
        for hosted in self:
            hosted.drop()

    def _forget(self, hosted: Hosted[S]) -> None:
        partition_id = hosted.partition.key.partition_id
        if self._hosted.get(partition_id) is hosted:
            del self._hosted[partition_id]


class Hosted(Generic[S]):
    """One coordinator, from the election of this broker to its end."""

    def __init__(
        self, host: Coordinators[S], partition: Partition, shard: S, forget: Callable[[Hosted[S]], None]
    ) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.shard = shard
        self.state = State.LOADING
        self._host = host
        self._forget = forget
        self._tickets = count()
        # Who has not been answered, and what they are told if they never are.
        self._waiting: dict[Ticket, tuple[Eventual[Any], Callable[[ErrorCode], Message]]] = {}
        self._delivery = host.delivery
        self._batch: OpenBatch | None = None
        # Who was announced, and is still to be heard.
        self._announced: deque[tuple[Ticket, Callable[[Ticket, Moment], Effects]]] = deque()
        self._held: deque[Held] = deque()  # in the order of their offsets
        self._applied_end_offset = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = inf  # what it is set to
        self._loading: asyncio.Task[None] | None = None

    # Its life

    def load(self) -> None:
        self.partition.watcher = self
        self._loading = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        partition, key = self.partition, self.partition.key
        began_ms = self._host.moment().now_ms
        try:
            replayed = await replay(partition, self.shard)
        except StorageError as error:
            self._host.offline(self.partition, error)
            return
        except Exception as error:
            self.state = State.FAILED
            bug = None if isinstance(error, ApiError) else error
            reason = f"{type(error).__name__}: {error}"
            self._host.logger.error("not loaded partition=%s reason=%s", key, reason, exc_info=bug)
            return
        self.state = State.ACTIVE
        self._applied_end_offset = replayed.end_offset
        took_ms = self._host.moment().now_ms - began_ms
        loads = self._host.loads
        loads.loaded += 1
        loads.took_ms += took_ms
        loads.took_ms_max = max(loads.took_ms_max, took_ms)
        line = "loaded partition=%s epoch=%d records=%d took_ms=%.0f"
        self._host.logger.info(line, key, self.epoch, replayed.records, took_ms)
        self.perform(self.shard.loaded)
        self._host.when_loaded(self)

    def drop(self) -> None:
        """It is over: we lead no more, or the disk has failed. Whoever waits is told."""
        if self._loading is not None:
            self._loading.cancel()
        if self._timer is not None:
            self._timer.cancel()
        was_active, self.state = self.state is State.ACTIVE, State.FAILED
        self.partition.watcher = None
        self._batch = None
        self._announced.clear()
        self._held.clear()
        if was_active:
            self._host.loads.unloaded += 1
            effects = self.shard.unload()
            self._host.saw(effects.events)
            self._answer(effects.answers)
        for asker, refuse in self._waiting.values():
            self._delivery.put(asker, refuse(ErrorCode.NOT_COORDINATOR))
        self._waiting.clear()
        self._delivery.soon()
        self._forget(self)

    # What it is asked

    def ask(
        self,
        step: Callable[[Ticket, Moment], Effects],
        refuse: Callable[[ErrorCode], R],
        announce: Callable[[Moment], Effects] | None = None,
    ) -> R | Awaitable[R]:
        """Takes a step for somebody. The answer, or something to wait for; `refuse` makes the answer of those
        who still wait when it is over. If `announce` has records, they are taken, and the step itself a
        moment later."""
        host = self._host
        gathering = host.gathering
        if host.unwritten_steps >= STEPS_MAX or gathering.is_full:
            self._make_room()
            if self.state is not State.ACTIVE:
                return refuse(ErrorCode.NOT_COORDINATOR)
        ticket = next(self._tickets)
        moment = host.unwritten_since or host.moment()
        if announce is not None and self._is_announced(announce(moment), moment):
            if self.state is not State.ACTIVE:
                return refuse(ErrorCode.NOT_COORDINATOR)
            self._announced.append((ticket, step))
            gathering.add(self)
            return self._wait_for(ticket, refuse)
        return self._outcome(ticket, step(ticket, moment), moment, refuse)

    def ask_plain(self, step: PlainStep[S], numbers: Sequence[int]) -> Response | Awaitable[Response] | None:
        """Takes such a step. The answer, or something to wait for; None if it is to be asked as any other.

        If nobody follows it is written at once and by itself: then it is committed with that, and there is
        nothing to wait for, which is more work than to write it."""
        partition, host = self.partition, self._host
        if host.unwritten_steps >= STEPS_MAX:
            self._make_room()
            if self.state is not State.ACTIVE:
                return None
        leading = partition.leading
        if (
            leading is None
            or leading.leader_epoch != self.epoch
            or len(leading.isr) < partition.min_isr
            or step.batch_bytes > partition.config.max_message_bytes
        ):
            return None  # as `_refusal` would have it, or it is too large
        moment = host.unwritten_since or host.moment()
        if not step.is_taken(self.shard, moment):
            return None
        if (
            self._batch is not None
            or self._held
            or host.codec
            or leading.followers
            or leading.high_watermark < self._applied_end_offset
        ):
            return self._write_plain(step, numbers, moment)
        offset, wall_ms = partition.log.end_offset, moment.wall_ms
        step.apply(self.shard, numbers, wall_ms, offset)
        batch = step.batch(numbers, wall_ms, offset, self.epoch)
        return step.answer if self._append(batch, offset, step.count, moment) else None

    def _write_plain(
        self, step: PlainStep[S], numbers: Sequence[int], moment: Moment
    ) -> Awaitable[Response] | None:
        """Writes it with others."""
        number = 0 if self._batch is None else self._batch.count
        encoded = step.section(number, numbers, moment.wall_ms)
        batch = self._batch_for(None, len(encoded), moment)
        if batch is None:
            return None
        if batch.count != number:
            encoded = step.section(batch.count, numbers, moment.wall_ms)
        offset = self.partition.log.end_offset + batch.count
        ticket = next(self._tickets)
        answers = (Answer(ticket, step.answer),)
        batch.add(PlainWritten(step, numbers, moment.wall_ms, answers), step.count, encoded)
        step.apply(self.shard, numbers, moment.wall_ms, offset)
        self._host.unwritten_steps += 1
        return self._wait_for(ticket, step.refuse)

    def _make_room(self) -> None:
        """Writes what there is, if nobody is just being told of what was written before."""
        if not self._delivery.is_under_way:
            if self._host.gathering.is_full:
                self._host.gathering.end()
            self._host.write()

    def _outcome(
        self, ticket: Ticket, effects: Effects, moment: Moment, refuse: Callable[[ErrorCode], R]
    ) -> R | Awaitable[R]:
        """Carries out a step that was taken for somebody. The answer, or something to wait for."""
        if not effects.records and not (effects.reads_uncommitted and self._is_behind):
            if effects.events:
                self._host.saw(effects.events)
            mine: Message | None = None
            if effects.answers:
                others = []
                for answer in effects.answers:
                    if answer.ticket == ticket:
                        mine = answer.response
                    else:
                        others.append(answer)
                if others:
                    self._answer(others)
            self._arm()
            return self._wait_for(ticket, refuse) if mine is None else cast("R", mine)
        waiting = self._wait_for(ticket, refuse)
        try:
            self._carry_out(effects, moment)
        except Exception:  # a bug; nobody waits for the answer
            self._waiting.pop(ticket, None)
            raise
        if self._batch is None:  # with that, it is armed when it is written, which is soon
            self._arm()
        return waiting

    def _is_announced(self, effects: Effects, moment: Moment) -> bool:
        """Whether there was something to announce, and it could be."""
        if not effects.records or self._write(effects, moment) is not None:
            return False
        self._host.saw(effects.events)
        return True

    def hear(self) -> None:
        """Takes the steps of those who were announced. One that fails is that of one asker alone."""
        moment = self._host.moment()
        while self._announced and self.state is State.ACTIVE:
            ticket, step = self._announced.popleft()
            try:
                effects = step(ticket, moment)
            except Exception as error:
                asker, _ = self._waiting.pop(ticket)
                if not asker.done():
                    asker.set_exception(error)
            else:
                self._carry_out(effects, moment)
        self._arm()

    def perform(self, step: Callable[[Moment], Effects]) -> None:
        """Takes a step that nobody waits for."""
        if self.state is State.ACTIVE:
            moment = self._host.moment()
            self._carry_out(step(moment), moment)
            self._arm()

    def marked(self, producer_id: int, *, is_commit: bool) -> None:
        """A transaction's marker was appended to the partition."""
        if self.state is State.ACTIVE:
            mark(self.shard, ControlType.COMMIT if is_commit else ControlType.ABORT, producer_id)

    def _wait_for(self, ticket: Ticket, refuse: Callable[[ErrorCode], R]) -> Eventual[R]:
        asker: Eventual[R] = Eventual()
        self._waiting[ticket] = asker, refuse
        return asker

    # Answers

    def _answer(self, answers: Iterable[Answer]) -> None:
        for one in answers:
            waiting = self._waiting.pop(one.ticket, None)
            if waiting is not None:
                self._delivery.put(waiting[0], one.response)
        self._delivery.soon()

    # Carrying out

    def _carry_out(self, effects: Effects, moment: Moment) -> None:
        while True:
            if effects.events:
                self._host.saw(effects.events)
            if not effects.records:
                self._answer_or_hold(effects)
                return
            refusal = self._write(effects, moment)
            if refusal is None:
                self._host.unwritten_steps += 1
                if effects.is_answered_at_once:
                    self._answer(effects.answers)
                return
            effects = self.shard.append_refused(effects, refusal, moment)

    def _answer_or_hold(self, effects: Effects) -> None:
        if not effects.reads_uncommitted or not self._is_behind:
            self._answer(effects.answers)
        elif self._batch is not None:
            self._batch.steps.append(effects)
        elif self._held:
            self._held[-1].steps.append(effects)
        else:
            deadline_ms = self._host.moment().now_ms + self._host.commit_timeout_ms
            self._held.append(Held(self._applied_end_offset - 1, deadline_ms, [effects]))

    @property
    def _is_behind(self) -> bool:
        """Whether something was applied and is not committed yet. That may have been found in the log, and
        whoever waited for it may have given up."""
        return (
            self._batch is not None
            or bool(self._held)
            or self.partition.high_watermark < self._applied_end_offset
        )

    def _write(self, effects: Effects, moment: Moment) -> ErrorCode | None:
        """Applies the records of a step, to be written when this turn of the loop ends; or why not."""
        partition = self.partition
        refusal = self._refusal(partition.leading)
        if refusal is not None:
            return refusal
        producer, records = effects.producer, effects.records
        number = 0 if self._batch is None else self._batch.count
        encoded = encoded_from(number, records)
        limit_bytes = partition.config.max_message_bytes - HEADER_BYTES
        if len(encoded) > limit_bytes and len(encoded_from(0, records)) > limit_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        batch = self._batch_for(producer, len(encoded), moment)
        if batch is None:
            return None  # the disk has failed, and everybody was told
        if batch.count != number:
            number, encoded = 0, encoded_from(0, records)
        batch.add(effects, len(records), encoded)
        offset, apply = partition.log.end_offset + number, self.shard.apply
        producer_id = NO_PRODUCER_ID if producer is None else producer.id
        for record in records:
            apply(record, offset, producer_id)
            offset += 1
        return None

    def _batch_for(self, producer: Producer | None, size_bytes: int, moment: Moment) -> OpenBatch | None:
        """A batch that takes so many bytes of a producer more; None if it is over."""
        batch = self._batch
        if batch is not None and not batch.takes(
            producer, size_bytes, self.partition.config.max_message_bytes
        ):
            self._flush()
            batch = None
        if self.state is not State.ACTIVE:
            return None
        if batch is None:
            batch = self._batch = OpenBatch(producer, moment)
            self._host.write_soon(self, moment)
        return batch

    def _refusal(self, leading: Leadership | None) -> ErrorCode | None:
        """Why the log would take nothing now."""
        if leading is None or leading.leader_epoch != self.epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if len(leading.isr) < self.partition.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return None

    def write(self) -> None:
        """Writes what has been decided and not been written."""
        if self._batch is not None:
            self._flush()

    def _flush(self) -> None:
        batch, self._batch = self._batch, None
        assert batch is not None
        deadline_ms = batch.moment.now_ms + self._host.commit_timeout_ms
        offset, has_producer = self.partition.log.end_offset, batch.producer is not None
        built = batch.build(offset, self.epoch, self._host.codec)
        self._held.append(Held(offset + batch.count - 1, deadline_ms, batch.steps))
        if self._append(built, offset, batch.count, batch.moment, has_producer=has_producer):
            self._arm()

    def _append(
        self, batch: bytearray, offset: int, count: int, moment: Moment, *, has_producer: bool = False
    ) -> bool:
        """Whether it could be, at the end of the log, which is at an offset; if not, this is over."""
        partition = self.partition
        self._applied_end_offset = offset + count
        try:
            if has_producer:
                partition.append_own(batch, self.epoch)
            else:
                partition.append_made(batch, offset, count, moment.wall_ms, self.epoch)
        except StorageError as error:
            self._host.offline(partition, error)  # which drops us
            return False
        except (ApiError, AppendError) as error:
            self._host.logger.error("not appended partition=%s reason=%s", partition.key, error)
            self.drop()
            return False
        return True

    # What the partition tells

    def advanced(self, high_watermark: int) -> None:
        """Everything below is committed."""
        held, waiting, put = self._held, self._waiting, self._delivery.put
        if not held:
            return
        while held and held[0].last_offset < high_watermark:
            for step in held.popleft().steps:
                for one in step.answers:
                    found = waiting.pop(one.ticket, None)
                    if found is not None:
                        put(found[0], one.response)
        self._delivery.soon()

    def resigned(self) -> None:
        """We do not lead any more."""
        self.drop()

    # Time

    def _arm(self) -> None:
        """Sets the timer to what is due next, unless it goes off before that anyway."""
        due_ms = self.shard.next_deadline_ms
        if self._held and self._held[0].deadline_ms < due_ms:
            due_ms = self._held[0].deadline_ms
        if due_ms >= self._timer_ms or self.state is not State.ACTIVE:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0.0, due_ms - self._host.moment().now_ms)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._due)
        self._timer_ms = due_ms

    def _due(self) -> None:
        """Does what is due, or so much of it: for the rest the timer is set to go off at once."""
        self._timer, self._timer_ms = None, inf
        moment = self._host.moment()
        for _ in range(DUE_MAX):
            if self.state is not State.ACTIVE:
                return
            if self._held and self._held[0].deadline_ms <= moment.now_ms:
                refused = self.shard.append_refused(self._take_late(), ErrorCode.REQUEST_TIMED_OUT, moment)
                self._carry_out(refused, moment)
            elif self.shard.next_deadline_ms <= moment.now_ms:
                self._carry_out(self.shard.tick(moment), moment)
            else:
                break
        self._arm()

    def _take_late(self) -> Written:
        """The step that was to be committed first."""
        steps = self._held[0].steps
        late = steps.pop(0)
        if not steps:
            self._held.popleft()
        return late
