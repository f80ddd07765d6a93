"""Reads partitions, from where they are told to, ahead of who asks.

    async with Cluster("127.0.0.1:9092") as cluster, Fetcher(cluster) as fetcher:
        fetcher.assign({("orders", 0): EARLIEST, ("orders", 1): 4711})
        while True:
            for part in await fetcher.fetch():
                for record in part.records():      # or part.columns(), or part.data
                    print(part.topic, part.partition, record.offset, record.value)

One request is under way to every leader of a partition that has nothing buffered, so the next records come
while these are looked at. A partition is asked for again only when its records have been taken, which bounds
the memory.

A position is an offset and the leader epoch of the record before it. When a partition has a new leader, that
one is asked where the epoch ended (KIP-320): if before the position, the log was cut short after an unclean
election, and other records may stand there by now. Then, and when a position is out of range, `reset` says
what happens: go to the beginning or end of what there is, or tell the caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import field
from enum import Enum, IntEnum
from types import TracebackType
from typing import Any, Final, cast

from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable, code_of
from quorate.client.fetch_session import FetchSession, Row
from quorate.client.fetched import Fetched, fetched
from quorate.client.metadata import Broker, TopicPartition
from quorate.client.offsets import EARLIEST, LATEST, EpochEnd, epoch_ends, listed_offsets
from quorate.net.connections import Backoff
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer
from quorate.values import dataclass

__all__ = ["EARLIEST", "LATEST", "Fetcher", "FetcherSettings", "Isolation", "Reset"]

# The last version that names topics; later ones know them by id only.
_LAST_VERSION_BY_NAME: Final = 12
# Timers may ring a moment early, and what they rang for must then be due.
_TIMER_SLACK: Final = 1e-6
_PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


class Isolation(IntEnum):
    """Whether the records of transactions are seen before those are committed."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Reset(Enum):
    """Where to go when a position is not there, or not there any more."""

    EARLIEST = EARLIEST
    LATEST = LATEST
    ERROR = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """How much is fetched at once, and for whom."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    reset: Reset = Reset.EARLIEST
    # A broker answers when there are so many bytes, or after so long.
    min_bytes: int = 1
    max_wait_ms: int = 500
    # One response, and what it holds for one partition; a single larger batch comes whole.
    response_bytes_max: int = 16 * 1024 * 1024
    partition_bytes_max: int = 1024 * 1024
    # No request is sent while more than this is waiting to be taken; responses under way come on top.
    buffer_bytes_max: int = 64 * 1024 * 1024
    # Where the client is: brokers may then send it to a replica nearby.
    rack: str = ""
    backoff: Backoff = field(default_factory=lambda: Backoff(first_ms=100, max_ms=1000))


class Fetcher:
    """Reads the partitions that are assigned to it. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        cluster: Cluster,
        settings: FetcherSettings | None = None,
        *,
        logger: logging.Logger | None = None,
    ) -> None:
        self.settings = FetcherSettings() if settings is None else settings
        self._cluster = cluster
        self._logger = logging.getLogger("quorate.client") if logger is None else logger
        # Brokers keep a fetch waiting, and whatever was asked after it on the same connection.
        self._connections = cluster.open_connections()
        self._parts: dict[TopicPartition, _Part] = {}
        self._buffered: dict[TopicPartition, Fetched] = {}
        self._buffered_bytes = 0
        self._sessions: dict[int, FetchSession] = {}
        self._asked: set[int] = set()  # the brokers that owe us an answer
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # For everybody

    def assign(self, partitions: Mapping[tuple[str, int], int | None] | Iterable[tuple[str, int]]) -> None:
        """Reads these partitions from now on, and no others.

        An offset, `EARLIEST` or `LATEST` says from where; without, a partition that was read already goes on,
        and another one begins where `reset` says.
        """
        wanted = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        parts: dict[TopicPartition, _Part] = {}
        for key, offset in wanted.items():
            at = TopicPartition(*key)
            known = self._parts.get(at)
            parts[at] = self._placed(at, offset) if known is None or offset is not None else known
        for at, known in self._parts.items():
            if parts.get(at) is not known:
                self._drop_buffered(at)
        self._parts = parts
        self._start()

    def seek(self, at: tuple[str, int], offset: int) -> None:
        """Goes on at an offset, `EARLIEST` or `LATEST`. This also forgives a partition its error."""
        old = self._part(at)
        part = self._placed(old.at, offset)
        part.is_paused = old.is_paused
        self._drop_buffered(old.at)
        self._parts[old.at] = part
        self._start()

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Gives out no records of these partitions until they are resumed."""
        for at in partitions:
            self._part(at).is_paused = True

    def resume(self, *partitions: tuple[str, int]) -> None:
        for at in partitions:
            self._part(at).is_paused = False
        self._arrived.set()
        self._start()

    def position(self, at: tuple[str, int]) -> int | None:
        """The offset of the next record that `fetch` gives out; None while it is not known."""
        return self._part(at).offset

    def high_watermark(self, at: tuple[str, int]) -> int | None:
        """The end of what can be read, as of the last answer: minus the position, that is the lag."""
        return self._part(at).high_watermark

    async def fetch(self, *, timeout_ms: float | None = None) -> list[Fetched]:
        """What has arrived, at least one batch of one partition; nothing if nothing comes in time.

        Raises the error of a partition that cannot be read, each time until it is assigned or sought anew.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while True:
            self._arrived.clear()
            for part in self._parts.values():
                if part.error is not None:
                    raise part.error
            taken = self._take()
            if taken:
                return taken
            if self._is_closed:
                raise Unavailable("the fetcher is closed")
            if self._reader is not None and self._reader.done():
                await self._reader  # raises what went wrong
            try:
                async with asyncio.timeout_at(deadline):
                    await self._arrived.wait()
            except TimeoutError:
                return []

    async def close(self) -> None:
        """Ends. Whoever waits in `fetch` gets `Unavailable`."""
        self._is_closed = True
        tasks = [one for one in (self._reader, *self._tasks) if one is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        self._arrived.set()
        await self._cluster.close_connections(self._connections)

    # Positions

    def _part(self, at: tuple[str, int]) -> _Part:
        part = self._parts.get(TopicPartition(*at))
        if part is None:
            raise ValueError(f"{TopicPartition(*at)} is not assigned to this fetcher")
        return part

    def _placed(self, at: TopicPartition, offset: int | None) -> _Part:
        part = _Part(at)
        if offset is None:
            self._reset(part, f"{at} has no position, and `reset` is ERROR: assign it with an offset")
        elif offset in (EARLIEST, LATEST):
            part.look_up = offset
        elif offset >= 0:
            part.offset = offset
        else:
            raise ValueError(f"offset {offset} of {at}: expected 0 or more, EARLIEST or LATEST")
        return part

    def _reset(self, part: _Part, reason: str) -> None:
        """Sends a partition where the settings say, or fails it."""
        if self.settings.reset is Reset.ERROR:
            part.fail(ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, reason))
            self._arrived.set()
            return
        part.offset = None
        part.epoch = -1
        part.look_up = self.settings.reset.value

    def _take(self) -> list[Fetched]:
        """Hands over everything of partitions that are not paused."""
        taken = [one for at, one in self._buffered.items() if not self._parts[at].is_paused]
        for one in taken:
            self._drop_buffered(one.at)
            self._parts[one.at].advance(one)
        if taken:
            self._wake.set()
        return taken

    def _drop_buffered(self, at: TopicPartition) -> None:
        dropped = self._buffered.pop(at, None)
        if dropped is not None:
            self._buffered_bytes -= len(dropped.data)

    # The reader: one task that decides, and a task for every request

    def _start(self) -> None:
        self._wake.set()
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._read_for_ever())

    async def _read_for_ever(self) -> None:
        try:
            while True:
                self._wake.clear()
                self._step()
                await self._wake.wait()
        finally:
            self._arrived.set()  # whoever waits looks at what became of us

    def _step(self) -> None:
        """Begins whatever can be done now for every partition."""
        now = asyncio.get_running_loop().time() + _TIMER_SLACK
        unknown: dict[str, list[_Part]] = {}
        to_look_up: list[_Part] = []
        to_validate: list[_Part] = []
        to_fetch: dict[int, list[_Part]] = {}
        metadata = self._cluster.metadata
        for at, part in self._parts.items():
            if part.is_idle(now) and at not in self._buffered:
                known, leader = metadata.partition(at), metadata.leader(at)
                if known is None:
                    unknown.setdefault(at.topic, []).append(part)
                elif leader is None:
                    self._back_off(part, now)
                    self._cluster.refresh_soon()
                elif part.offset is None:
                    to_look_up.append(part)
                elif part.epoch >= 0 and part.validated_epoch < known.leader_epoch:
                    to_validate.append(part)
                else:
                    part.validated_epoch = known.leader_epoch
                    to_fetch.setdefault(part.source(leader.id, metadata.brokers, now), []).append(part)
        for topic, parts in unknown.items():
            self._begin(parts, self._learn_topic(topic, parts))
        if to_look_up:
            self._begin(to_look_up, self._look_up(to_look_up))
        if to_validate:
            self._begin(to_validate, self._validate(to_validate))
        for node, parts in to_fetch.items():
            if node not in self._asked and self._buffered_bytes < self.settings.buffer_bytes_max:
                self._asked.add(node)
                self._begin(parts, self._fetch_from(node, parts))
        self._set_timer(now)

    def _begin(self, parts: Iterable[_Part], work: Coroutine[Any, Any, None]) -> None:
        for part in parts:
            part.is_busy = True
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended(task, parts))

    def _ended(self, task: asyncio.Task[None], parts: Iterable[_Part]) -> None:
        self._tasks.discard(task)
        for part in parts:
            part.is_busy = False
            if not task.cancelled() and task.exception() is not None:
                part.fail(cast("Exception", task.exception()))
                self._arrived.set()
        self._wake.set()

    def _back_off(self, part: _Part, now: float) -> None:
        part.failures += 1
        part.retry_at = now + self.settings.backoff.delay_ms(part.failures, self._cluster.random) / 1000

    def _set_timer(self, now: float) -> None:
        times = [part.retry_at for part in self._parts.values() if part.retry_at > now]
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(min(times), self._wake.set) if times else None

    # What can be done

    async def _learn_topic(self, topic: str, parts: list[_Part]) -> None:
        now = asyncio.get_running_loop().time()
        try:
            known = await self._cluster.topic(topic)
        except Unavailable:
            for part in parts:
                self._back_off(part, now)
            return
        for part in parts:  # whatever `topic` raises is their error
            if part.at.partition not in known.partitions:
                there_are = f"{topic!r} has {len(known.partitions)} partitions, and no {part.at.partition}"
                part.fail(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, there_are))
                self._arrived.set()

    async def _look_up(self, parts: list[_Part]) -> None:
        wanted = {part.at: cast("int", part.look_up) for part in parts}
        answers = await listed_offsets(self._cluster, wanted, self.settings.isolation)
        for part in parts:
            code, listed = answers[part.at]
            if code is ErrorCode.NONE:
                part.offset, part.look_up = listed.offset, None
                part.failures = 0
            else:
                self._refused(part, code, "where to begin")

    async def _validate(self, parts: list[_Part]) -> None:
        epochs = {part.at: self._leader_epoch(part.at) for part in parts}
        answers = await epoch_ends(self._cluster, {part.at: part.epoch for part in parts})
        for part in parts:
            code, end = answers[part.at]
            if code is ErrorCode.UNSUPPORTED_VERSION:
                part.validated_epoch = epochs[part.at]  # an old broker: there is nobody to ask
            elif code is not ErrorCode.NONE:
                self._refused(part, code, "where an epoch ended")
            elif 0 <= cast("int", part.offset) <= end.end_offset:
                part.validated_epoch = epochs[part.at]
                part.failures = 0
            else:
                self._truncated(part, end, epochs[part.at])

    def _truncated(self, part: _Part, end: EpochEnd, leader_epoch: int) -> None:
        """The log was cut short below what was read."""
        where = f"at {end.end_offset}" if end.end_offset >= 0 else "somewhere before"
        reason = f"{part.at} was read up to {part.offset} in epoch {part.epoch}, but that epoch ended {where}"
        if self.settings.reset is Reset.ERROR or end.end_offset < 0:
            self._reset(part, f"{reason}: records were lost")
        else:
            part.offset, part.epoch, part.validated_epoch = end.end_offset, end.epoch, leader_epoch
        self._logger.warning("%s: records were lost, reading goes on", reason)

    async def _fetch_from(self, node: int, parts: list[_Part]) -> None:
        """One fetch of one broker."""
        session = self._sessions.setdefault(node, FetchSession())
        asked = {part.at: part for part in parts}
        offsets = {part.at: cast("int", part.offset) for part in parts}
        try:
            broker = self._cluster.metadata.brokers.get(node)
            if broker is None or any(at.topic not in self._cluster.metadata.topics for at in asked):
                raise Unavailable(f"broker {node} is not there, or a topic of its partitions is not")
            request, version_cap = self._request(session, asked)
            response = cast(
                "FetchResponse",
                await self._connections.request(
                    broker.address,
                    request,
                    version_cap,
                    timeout_ms=self.settings.max_wait_ms + self._cluster.settings.request_timeout_ms,
                ),
            )
        except ApiError:
            session.lost()
            raise
        except ConnectionError:
            session.lost()
            now = asyncio.get_running_loop().time()
            for part in parts:
                part.preferred = None
                self._back_off(part, now)
            self._cluster.refresh_soon()
        else:
            session.answered(response)
            if response.error_code != ErrorCode.NONE:
                for part in parts:
                    self._refused(part, code_of(response.error_code), "records")
            self._answered(response, asked, offsets)
        finally:
            self._asked.discard(node)

    def _request(
        self, session: FetchSession, asked: Mapping[TopicPartition, _Part]
    ) -> tuple[FetchRequest, int | None]:
        settings, metadata = self.settings, self._cluster.metadata
        rows = {
            at: Row(
                metadata.topics[at.topic].id,
                part.validated_epoch,
                cast("int", part.offset),
                settings.partition_bytes_max,
            )
            for at, part in asked.items()
        }
        plan = session.next(rows)
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes_max,
            isolation_level=settings.isolation,
            session_id=plan.session_id,
            session_epoch=plan.session_epoch,
            topics=plan.topics,
            forgotten_topics_data=plan.forgotten,
            rack_id=settings.rack,
        )
        return request, None if plan.knows_ids else _LAST_VERSION_BY_NAME

    def _answered(
        self,
        response: FetchResponse,
        asked: Mapping[TopicPartition, _Part],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        metadata = self._cluster.metadata
        endpoints = [Broker(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints]
        for topic in response.responses:
            name = topic.topic or metadata.name_of(topic.topic_id)
            for data in topic.partitions:
                at = TopicPartition(name or "", data.partition_index)
                part = asked.get(at)
                if part is None or self._parts.get(at) is not part or part.offset != offsets[at]:
                    continue  # it was taken from us, or sent elsewhere, in the meantime
                leader = data.current_leader
                if leader is not None:
                    metadata.learn_leader(at, leader.leader_id, leader.leader_epoch, endpoints)
                code = code_of(data.error_code)
                if code is ErrorCode.NONE:
                    self._received(part, data)
                elif code is ErrorCode.OFFSET_OUT_OF_RANGE and part.preferred is not None:
                    part.preferred = None  # a follower may not have come so far: the leader knows
                elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._reset(part, f"{at} has no offset {part.offset}: deleted, or not yet written")
                else:
                    self._refused(part, code, "records")

    def _received(self, part: _Part, data: _PartitionData) -> None:
        part.failures = 0
        part.high_watermark = data.high_watermark
        if data.preferred_read_replica >= 0:
            now = asyncio.get_running_loop().time()
            part.preferred = data.preferred_read_replica
            part.preferred_until = now + self._cluster.settings.metadata_age_max_ms / 1000
        content = cast("Buffer | None", data.records)
        if not content:
            return
        aborted = data.aborted_transactions if self.settings.isolation is Isolation.READ_COMMITTED else ()
        try:
            found = fetched(
                part.at,
                cast("int", part.offset),
                content,
                aborted=[(one.producer_id, one.first_offset) for one in aborted or ()],
                high_watermark=data.high_watermark,
                last_stable_offset=data.last_stable_offset,
                log_start_offset=data.log_start_offset,
            )
        except ApiError as error:
            part.fail(ApiError(error.code, f"{part.at} from offset {part.offset}: {error.message}"))
            self._arrived.set()
            return
        if found.batches:
            self._buffered[part.at] = found
            self._buffered_bytes += len(content)
            self._arrived.set()
        else:
            part.advance(found)  # nothing in it is for us

    def _refused(self, part: _Part, code: ErrorCode, what: str) -> None:
        """An error that may pass makes a partition wait; another one is its caller's to see."""
        if code.retriable:
            part.preferred = None
            self._back_off(part, asyncio.get_running_loop().time())
            self._cluster.refresh_soon()
        else:
            part.fail(ApiError(code, f"{part.at}: its leader was asked {what}, from offset {part.offset}"))
            self._arrived.set()

    def _leader_epoch(self, at: TopicPartition) -> int:
        known = self._cluster.metadata.partition(at)
        return -1 if known is None else known.leader_epoch


@dataclass(slots=True, eq=False)
class _Part:
    """A partition that is read: where, and what stands in the way. Sought anew, it is another object."""

    at: TopicPartition
    is_paused: bool = False
    offset: int | None = None
    epoch: int = -1  # of the record before the offset
    validated_epoch: int = -1  # the leader epoch for which the offset is known to be right
    look_up: int | None = None  # what to ask for, instead of an offset
    high_watermark: int | None = None
    preferred: int | None = None  # the follower that the leader sends us to, for a while
    preferred_until: float = 0.0
    is_busy: bool = False
    failures: int = 0
    retry_at: float = 0.0
    error: Exception | None = None

    def is_idle(self, now: float) -> bool:
        return not (self.is_busy or self.is_paused or self.error is not None or self.retry_at > now)

    def source(self, leader: int, alive: Mapping[int, Broker], now: float) -> int:
        """The broker to read from."""
        if self.preferred is not None and self.preferred in alive and now < self.preferred_until:
            return self.preferred
        self.preferred = None
        return leader

    def advance(self, past: Fetched) -> None:
        self.offset = past.next_offset
        if past.leader_epoch >= 0:
            self.epoch = past.leader_epoch

    def fail(self, error: Exception) -> None:
        self.error = error
