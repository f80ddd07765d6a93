"""How a follower keeps up: one fetcher for each leader, with all partitions that are followed from it.

A fetcher has one request under way, which the leader answers as soon as there is something. Each partition is
asked for at the end of its log, with the epoch of the last record there; a leader whose log went another way
says where the two part, and the follower cuts its own. Whatever is answered for an epoch that is over is
thrown away. In a fetch session both say only what has changed (see `followed`).

A partition may be given up whenever something is awaited: it is looked at again after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from quorate.broker.followed import Followed, FollowedPartitions
from quorate.broker.partition import Partition
from quorate.broker.throttled_replication import ReplicationThrottle
from quorate.client.errors import code_of
from quorate.client.fetch_session import FetchSession
from quorate.net.client import ConnectionLost
from quorate.net.connections import Address, Connections
from quorate.protocol.api.produce_fetch import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer
from quorate.storage.errors import AppendError, StorageError
from quorate.values import dataclass

__all__ = ["FetcherSettings", "Fetchers"]

_LATEST: Final = -1
_EARLIEST: Final = -2
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
        self._followed = FollowedPartitions(all_fetchers.settings.partition_max_bytes)
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
        self._followed.add(partition)
        partition.asker = self._followed
        self._wake.set()

    def remove(self, partition: Partition) -> None:
        self._followed.remove(partition)
        if partition.asker is self._followed:
            partition.asker = None

    @property
    def is_idle(self) -> bool:
        return not len(self._followed)

    async def _run(self) -> None:
        while True:
            now_ms = asyncio.get_running_loop().time() * 1000
            self._followed.resume(now_ms)
            self._hold_throttled(now_ms)
            if not self._followed.has_any:
                await self._rest(now_ms)
                continue
            try:
                await self._fetch()
            except (ConnectionLost, ApiError) as error:
                self._logger.debug("fetch from leader=%d failed: %s", self._leader_id, error)
                self._wake.clear()
                await self._rest_ms(self._all.settings.backoff_ms)

    def _hold_throttled(self, now_ms: float) -> None:
        """Those that must not take more for now are looked at again when they may."""
        throttle = self._all.throttle
        delay_ms = throttle.delay_ms(now_ms)
        if delay_ms > 0:
            for one in self._followed.behind():
                if one.is_throttled:
                    throttle.held_up += 1
                    self._followed.hold(one, now_ms + min(delay_ms, self._all.settings.backoff_ms))

    async def _rest(self, now_ms: float) -> None:
        """Until the next partition may be asked for again, or there is a new one."""
        resume_at_ms = self._followed.resume_at_ms
        self._wake.clear()
        await self._rest_ms(None if resume_at_ms is None else resume_at_ms - now_ms)

    async def _rest_ms(self, delay_ms: float | None) -> None:
        try:
            async with asyncio.timeout(None if delay_ms is None else max(1.0, delay_ms) / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    # One request

    async def _fetch(self) -> None:
        """Asks once, and takes in what is answered."""
        settings = self._all.settings
        address = self._all.address_of(self._leader_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"where broker {self._leader_id} is, is not known")
        try:
            connections = self._all.connections
            if not connections.is_connected(address):
                await connections.reach(address, timeout_ms=settings.timeout_ms)
            response = await connections.request(
                address, self._request(), timeout_ms=settings.wait_max_ms + settings.timeout_ms
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
            return  # the next request lists everything
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.asked(topic.topic_id, data.partition_index)
                if followed is None:
                    self._session.lost()  # it was not asked for: the two mean different things
                elif not await self._take(followed, data):
                    self._followed.tell_anew(followed)

    def _request(self) -> FetchRequest:
        settings = self._all.settings
        part = self._followed.next(self._session)
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._all.broker_id, replica_epoch=self._all.broker_epoch()
            ),
            max_wait_ms=0 if self._followed.has_more_to_say else settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            topics=part.topics,
            forgotten_topics_data=part.forgotten,
        )

    async def _take(self, followed: Followed, data: PartitionData) -> bool:
        """Whether everything that was answered is taken in."""
        partition = followed.partition
        try:
            return followed in self._followed and await self._take_or_raise(followed, data)
        except StorageError as error:
            if error.is_of_handles:
                self._back_off(followed)
            else:
                self._followed.hold(followed, None)
            self._all.offline(partition, error)
        except (ApiError, AppendError) as error:
            code = error.code if isinstance(error, ApiError) else ErrorCode.CORRUPT_MESSAGE
            if code in _NO_CHANGE_OF_MIND and partition.leader_epoch == followed.epoch:
                self._followed.hold(followed, None)  # until the metadata says what the leader knows already
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

    async def _take_or_raise(self, followed: Followed, data: PartitionData) -> bool:
        partition = followed.partition
        if data.error_code:
            code = code_of(data.error_code)
            if code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise ApiError(code, "the leader says so")
            await self._start_over(followed)
        elif data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
            await partition.cut_off(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        else:
            records = data.records
            view = memoryview(cast("Buffer", records)) if records is not None else memoryview(b"")
            assert followed.row is not None
            offset, log = followed.row.offset, partition.log
            if log.start_offset == log.end_offset:
                offset = await partition.begin_with(offset, view)
            if followed in self._followed:
                partition.append_fetched(followed.epoch, offset, view, data.high_watermark)
                log = partition.log
                self._followed.take_in(followed, is_in_sync=log.end_offset >= data.high_watermark)
                if len(view) and followed.is_throttled:
                    self._all.throttle.record(len(view), asyncio.get_running_loop().time() * 1000)
                if data.log_start_offset > log.start_offset:
                    await partition.start_at(data.log_start_offset)
                return True
        return False

    def _back_off(self, followed: Followed) -> None:
        now_ms = asyncio.get_running_loop().time() * 1000
        self._followed.hold(followed, now_ms + self._all.settings.backoff_ms)

    async def _start_over(self, followed: Followed) -> None:
        """Our end is outside of the leader's log: after an unclean election, or after long absence."""
        partition = followed.partition
        latest = await self._ask_offset(followed, _LATEST)
        if followed not in self._followed:
            return
        if latest < partition.log.end_offset:
            self._logger.warning("partition=%s is cut to its leader's end at %d", partition.key, latest)
            await partition.truncate_to(latest)
            return
        earliest = await self._ask_offset(followed, _EARLIEST)
        if followed not in self._followed:
            return
        if earliest > partition.log.end_offset:
            self._logger.warning("partition=%s begins anew at its leader's start %d", partition.key, earliest)
            await partition.restart_at(earliest)
        else:
            self._back_off(followed)  # it is in the leader's log after all; something else is wrong

    async def _ask_offset(self, followed: Followed, timestamp: int) -> int:
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
