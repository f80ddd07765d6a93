"""How a follower keeps up: one fetcher for each leader, with all partitions that are followed from it.

A fetcher has one request under way, which the leader answers as soon as there is something. Each partition is
asked for at the end of its log, with the epoch of the last record there; a leader whose log went another way
says where the two part, and the follower cuts its own. Whatever is answered for an epoch that is over is
thrown away. In a fetch session both say only what has changed; so after an answer of which something was not
taken in, such as the high watermark, everything is asked for again.

A request costs both sides something for every partition that is followed, even if nothing is said of it. So a
fetcher of thousands that is answered at once, and without a record, makes a pause that grows with them, and
most of the time is left for others: such as when a broker gets thousands of new replicas, a few at a time.

A partition may be given up whenever something is awaited: it is looked at again after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from quorate.broker.partition import Partition
from quorate.broker.throttled_replication import ReplicationThrottle
from quorate.client.errors import code_of
from quorate.client.fetch_session import FetchSession, Row
from quorate.client.metadata import TopicPartition as Place
from quorate.net.client import ConnectionLost
from quorate.net.connections import Address, Connections
from quorate.protocol.api.produce_fetch import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer, Uuid
from quorate.storage.errors import AppendError, StorageError
from quorate.values import dataclass

__all__ = ["FetcherSettings", "Fetchers"]

_LATEST: Final = -1
_EARLIEST: Final = -2
_WITHOUT_PAUSE_MAX: Final = 1000  # partitions
_CYCLE_MS_PER_PARTITION: Final = 0.03
_NO_CHANGE_OF_MIND: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH})
_SESSION_IS_OVER: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Kafka's `replica.fetch.*`."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10 << 20
    partition_max_bytes: int = 1 << 20
    backoff_ms: int = 1000
    timeout_ms: int = 30_000


@dataclass(slots=True)
class _Followed:
    """A partition that is followed, in one epoch of its leader."""

    partition: Partition
    epoch: int
    resume_at_ms: float = 0.0  # nothing is asked for before
    has_failed: bool = False  # until there is new metadata
    is_in_sync: bool = False  # it has everything that was committed when the leader answered last

    @property
    def is_throttled(self) -> bool:
        """Whether the topic lists it among those who may only take so much."""
        return self.partition.key.partition_id in self.partition.config.throttled_as_follower


class Fetchers:
    """The fetchers of a broker. `address_of` says where a broker can be reached, if that is known."""

    def __init__(
        self,
        broker_id: int,
        connections: Connections,
        settings: FetcherSettings,
        address_of: Callable[[int], Address | None],
        broker_epoch: Callable[[], int],
        offline: Callable[[Partition, StorageError], None],
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self.throttle = ReplicationThrottle() if throttle is None else throttle
        self.broker_id = broker_id
        self.connections = connections
        self.settings = settings
        self.address_of = address_of
        self.broker_epoch = broker_epoch
        self.offline = offline
        self._fetchers: dict[int, _Fetcher] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Runs them, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for fetcher in self._fetchers.values():
                fetcher.start(tasks)
            await asyncio.get_running_loop().create_future()

    def follow(self, partition: Partition) -> None:
        """Fetches a partition from its leader of now; from nobody if it has none."""
        self.forget(partition)
        leader_id = partition.leader_id
        if leader_id < 0 or leader_id == self.broker_id:
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = _Fetcher(self, leader_id)
            if self._tasks is not None:
                fetcher.start(self._tasks)
        fetcher.add(partition)

    def forget(self, partition: Partition) -> None:
        for leader_id, fetcher in list(self._fetchers.items()):
            fetcher.remove(partition)
            if fetcher.is_idle:
                fetcher.stop()
                del self._fetchers[leader_id]


class _Fetcher:
    """Follows everything that one broker leads."""

    def __init__(self, all_fetchers: Fetchers, leader_id: int) -> None:
        self._all = all_fetchers
        self._leader_id = leader_id
        self._followed: dict[tuple[Uuid, int], _Followed] = {}
        self._session = FetchSession()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._logger = logging.getLogger(f"quorate.broker.{all_fetchers.broker_id}")

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._task = tasks.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def add(self, partition: Partition) -> None:
        followed = _Followed(partition, partition.leader_epoch)
        self._followed[partition.key.topic_id, partition.key.partition_id] = followed
        self._wake.set()

    def remove(self, partition: Partition) -> None:
        self._followed.pop((partition.key.topic_id, partition.key.partition_id), None)

    @property
    def is_idle(self) -> bool:
        return not self._followed

    async def _run(self) -> None:
        while True:
            now_ms = asyncio.get_running_loop().time() * 1000
            due = [
                one for one in self._followed.values() if not one.has_failed and one.resume_at_ms <= now_ms
            ]
            due = self._within_throttle(due, now_ms)
            if not due:
                await self._rest(now_ms)
                continue
            try:
                has_records = await self._fetch(due)
                if not has_records and len(due) > _WITHOUT_PAUSE_MAX:
                    took_ms = asyncio.get_running_loop().time() * 1000 - now_ms
                    await asyncio.sleep(max(0.0, len(due) * _CYCLE_MS_PER_PARTITION - took_ms) / 1000)
            except (ConnectionLost, ApiError) as error:
                self._logger.debug("fetch from leader=%d failed: %s", self._leader_id, error)
                self._wake.clear()
                await self._rest_ms(self._all.settings.backoff_ms)

    def _within_throttle(self, due: list[_Followed], now_ms: float) -> list[_Followed]:
        """Without those that must not take more for now, who are looked at again when they may."""
        throttle = self._all.throttle
        delay_ms = throttle.delay_ms(now_ms)
        if delay_ms <= 0:
            return due
        allowed = []
        for one in due:
            if one.is_in_sync or not one.is_throttled:
                allowed.append(one)
            else:
                throttle.held_up += 1
                one.resume_at_ms = now_ms + min(delay_ms, self._all.settings.backoff_ms)
        return allowed

    async def _rest(self, now_ms: float) -> None:
        """Until the next partition may be asked for again, or there is a new one."""
        times = [one.resume_at_ms for one in self._followed.values() if not one.has_failed]
        self._wake.clear()
        await self._rest_ms(min(times) - now_ms if times else None)

    async def _rest_ms(self, delay_ms: float | None) -> None:
        try:
            async with asyncio.timeout(None if delay_ms is None else max(1.0, delay_ms) / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    # One request

    async def _fetch(self, due: list[_Followed]) -> bool:
        """Asks once, and takes in what is answered. Whether there was a record."""
        settings = self._all.settings
        address = self._all.address_of(self._leader_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"where broker {self._leader_id} is, is not known")
        asked = {
            (one.partition.key.topic_id, one.partition.key.partition_id): (one, one.partition.log.end_offset)
            for one in due
        }
        try:
            response = await self._all.connections.request(
                address, self._request(due), timeout_ms=settings.wait_max_ms + settings.timeout_ms
            )
        except (ConnectionLost, ApiError):
            self._session.lost()
            raise
        assert isinstance(response, FetchResponse)
        self._session.answered(response)
        if response.error_code:
            code = code_of(response.error_code)
            if code not in _SESSION_IS_OVER:
                raise ApiError(code, "the leader refused the fetch")
            return False  # the next request lists everything
        has_records = False
        for topic in response.responses:
            for data in topic.partitions:
                has_records = has_records or bool(data.records)
                followed, offset = asked.get((topic.topic_id, data.partition_index), (None, 0))
                if followed is None or not await self._take(followed, offset, data):
                    self._session.lost()
        return has_records

    def _is_followed(self, followed: _Followed) -> bool:
        key = followed.partition.key
        return self._followed.get((key.topic_id, key.partition_id)) is followed

    def _request(self, due: list[_Followed]) -> FetchRequest:
        settings = self._all.settings
        rows: dict[Place, Row] = {}
        for one in due:
            key, log = one.partition.key, one.partition.log
            last_epoch = log.epochs.latest_epoch
            rows[Place(key.topic, key.partition_id)] = Row(
                topic_id=key.topic_id,
                leader_epoch=one.epoch,
                offset=log.end_offset,
                bytes_max=settings.partition_max_bytes,
                last_epoch=-1 if last_epoch is None else last_epoch,
                log_start_offset=log.start_offset,
            )
        part = self._session.next(rows)
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._all.broker_id, replica_epoch=self._all.broker_epoch()
            ),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            topics=part.topics,
            forgotten_topics_data=part.forgotten,
        )

    async def _take(self, followed: _Followed, offset: int, data: PartitionData) -> bool:
        """Whether everything that was answered is taken in."""
        partition = followed.partition
        try:
            return self._is_followed(followed) and await self._take_or_raise(followed, offset, data)
        except StorageError as error:
            if error.is_of_handles:
                self._back_off(followed)
            else:
                followed.has_failed = True
            self._all.offline(partition, error)
        except (ApiError, AppendError) as error:
            code = error.code if isinstance(error, ApiError) else ErrorCode.CORRUPT_MESSAGE
            if code in _NO_CHANGE_OF_MIND and partition.leader_epoch == followed.epoch:
                followed.has_failed = True  # until the metadata says what the leader knows already
            else:
                self._back_off(followed)
            self._logger.info(
                "cannot follow partition=%s leader=%d epoch=%d error=%s",
                partition.key,
                self._leader_id,
                followed.epoch,
                error,
            )
        return False

    async def _take_or_raise(self, followed: _Followed, offset: int, data: PartitionData) -> bool:
        partition, code = followed.partition, code_of(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._start_over(followed)
        elif code is not ErrorCode.NONE:
            raise ApiError(code, "the leader says so")
        elif data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
            await partition.cut_off(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        else:
            records = data.records
            view = memoryview(cast("Buffer", records)) if records is not None else memoryview(b"")
            offset = await partition.begin_with(offset, view)
            if self._is_followed(followed):
                partition.append_fetched(followed.epoch, offset, view, data.high_watermark)
                followed.is_in_sync = partition.log.end_offset >= data.high_watermark
                if len(view) and followed.is_throttled:
                    self._all.throttle.record(len(view), asyncio.get_running_loop().time() * 1000)
                if data.log_start_offset > partition.log.start_offset:
                    await partition.start_at(data.log_start_offset)
                return True
        return False

    def _back_off(self, followed: _Followed) -> None:
        now_ms = asyncio.get_running_loop().time() * 1000
        followed.resume_at_ms = now_ms + self._all.settings.backoff_ms

    async def _start_over(self, followed: _Followed) -> None:
        """Our end is outside of the leader's log: after an unclean election, or after long absence."""
        partition = followed.partition
        latest = await self._ask_offset(followed, _LATEST)
        if not self._is_followed(followed):
            return
        if latest < partition.log.end_offset:
            self._logger.warning("partition=%s is cut to its leader's end at %d", partition.key, latest)
            await partition.truncate_to(latest)
            return
        earliest = await self._ask_offset(followed, _EARLIEST)
        if not self._is_followed(followed):
            return
        if earliest > partition.log.end_offset:
            self._logger.warning("partition=%s begins anew at its leader's start %d", partition.key, earliest)
            await partition.restart_at(earliest)
        else:
            self._back_off(followed)  # it is in the leader's log after all; something else is wrong

    async def _ask_offset(self, followed: _Followed, timestamp: int) -> int:
        key = followed.partition.key
        wanted = ListOffsetsRequest.Topic.Partition(
            partition_index=key.partition_id, current_leader_epoch=followed.epoch, timestamp=timestamp
        )
        topic = ListOffsetsRequest.Topic(name=key.topic, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=self._all.broker_id, topics=[topic])
        address = self._all.address_of(self._leader_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"where broker {self._leader_id} is, is not known")
        response = await self._all.connections.request(
            address, request, timeout_ms=self._all.settings.timeout_ms
        )
        assert isinstance(response, ListOffsetsResponse)
        found: Any = response.topics[0].partitions[0]
        if found.error_code:
            raise ApiError(code_of(found.error_code), "the leader does not say where its log begins or ends")
        return int(found.offset)
