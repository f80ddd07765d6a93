"""Fetch: records out of our logs, for consumers and for followers.

Partitions are read in the order of the request or of its session, each up to its own limit and all together
up to that of the request; the first batch that is found is given whole, however large, or its reader would
never get past it. Records stay where they are: an answer names ranges of files.

What is not in the page cache is read into it first, away from the loop: old records wait for the disk alone.

Who finds too little waits at all its partitions, and everything is read again when there is enough or time is
up. What a follower asks for tells us how far it is; that counts when it asks, not when it is answered.

What is at rest in a session is not read (see `fetch_sessions`): so a fetch costs something for what has
changed, not for what is followed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

from quorate.broker.fetch_sessions import FetchRound, FetchSession, FetchSessions, Wanted
from quorate.broker.handlers.fetch_answers import PARTITION_BYTES, Found, fetch_answer, refused
from quorate.broker.handlers.fetch_following import Following
from quorate.broker.handlers.fetch_waiting import ParkedFetch
from quorate.broker.handlers.whereabouts import replica_by_id, replica_named
from quorate.broker.partition import Isolation, Partition
from quorate.broker.replica_selection import NO_PREFERENCE, RACK_AWARE, closest_replica
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.broker.throttling import charge_fetch
from quorate.net.routes import Answer, RequestContext
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.epochs import EpochEnd
from quorate.storage.errors import StorageError
from quorate.storage.limits import SEGMENT_BYTES_MAX
from quorate.storage.partition_log import DamagedBatchError

__all__ = ["FetchHandler"]

_CONSUMER: Final = -1
_READ_COMMITTED: Final = 1
_ANY_REPLICA_SINCE: Final = 11
_REPLICA_STATE_SINCE: Final = 15
_LOADS_MAX: Final = 2  # fetches that wait for disks at a time: syncs need the same threads

# What is wrong before anything is read. It does not keep the rest of a request from waiting for data.
_BEFORE_READING: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class FetchHandler:
    """Answers Fetch, and keeps the sessions of those who ask."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.sessions = FetchSessions(broker.settings.fetch_sessions_max, broker.random, broker.now_ms)
        self._loads = asyncio.Semaphore(_LOADS_MAX)

    def __call__(
        self, context: RequestContext, header: RequestHeader, request: FetchRequest
    ) -> Answer | Awaitable[Answer]:
        version = header.request_api_version
        replica_id, broker_epoch = _asker(request, version)
        try:
            wanted = self.sessions.begin(request, version, is_of_follower=replica_id >= 0)
        except ApiError as error:
            return refused(error)
        request.topics = []  # they are noted, and may take much memory
        fetch = _Fetch(self._broker, context, version, request, replica_id, broker_epoch, wanted)
        begun_ms = self._broker.now_ms() if self._broker.quotas.request.is_set else 0.0
        fetch.arrive()
        if fetch.is_answerable:
            return self._answer_or_load(fetch, context, begun_ms)
        return self._when_there_is_enough(fetch, context)

    def _when_there_is_enough(self, fetch: _Fetch, context: RequestContext) -> Awaitable[Answer]:
        def read_again() -> FetchResponse | Awaitable[FetchResponse]:
            begun_ms = self._broker.now_ms() if self._broker.quotas.request.is_set else 0.0
            fetch.read()
            return self._answer_or_load(fetch, context, begun_ms)

        return fetch.park(read_again).answer

    def _answer_or_load(
        self, fetch: _Fetch, context: RequestContext, begun_ms: float
    ) -> FetchResponse | Awaitable[FetchResponse]:
        fetch.describe()
        if fetch.has_cold_records:
            return self._when_loaded(fetch, context, begun_ms)
        return self._answer(fetch, context, begun_ms)

    async def _when_loaded(self, fetch: _Fetch, context: RequestContext, begun_ms: float) -> FetchResponse:
        waits_from_ms = self._broker.now_ms()
        async with self._loads:
            await fetch.load()
        waited_ms = self._broker.now_ms() - waits_from_ms
        return self._answer(fetch, context, begun_ms + waited_ms if begun_ms else 0.0)

    def _answer(self, fetch: _Fetch, context: RequestContext, begun_ms: float) -> FetchResponse:
        """`begun_ms` is when the work on it began, if that counts for a quota; waiting does not."""
        quotas = self._broker.quotas
        throttle_ms, is_withheld = 0, False
        if fetch.is_follower:
            fetch.note_replicated()
        elif quotas.fetch.is_set or quotas.request.is_set:
            now_ms = self._broker.now_ms()
            local_ms = now_ms - begun_ms if begun_ms else 0.0
            throttle_ms, is_withheld = charge_fetch(quotas, context, fetch.size_bytes, local_ms, now_ms)
        try:
            if is_withheld and not fetch.wanted.is_incremental:
                session_id = 0  # none is opened for it
            else:
                session_id = self.sessions.end(fetch.wanted)
        except ApiError as error:
            return refused(error)
        if is_withheld:
            return FetchResponse(session_id=session_id, responses=[], throttle_time_ms=throttle_ms)
        answer = fetch.answer(session_id)
        fetch.rest(self.sessions.get(session_id))
        answer.throttle_time_ms = throttle_ms
        return answer


def _asker(request: FetchRequest, version: int) -> tuple[int, int]:
    """Which replica asks, if any, and the epoch of its broker, if it says so."""
    if version < _REPLICA_STATE_SINCE:
        return request.replica_id, -1
    if request.replica_state is None:
        return _CONSUMER, -1
    return request.replica_state.replica_id, request.replica_state.replica_epoch


class _Fetch:
    """One request on its way."""

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        version: int,
        request: FetchRequest,
        replica_id: int,
        broker_epoch: int,
        wanted: FetchRound,
    ) -> None:
        self.wanted = wanted
        self._broker = broker
        self._context = context
        self._version = version
        self.is_follower = replica_id >= 0
        self._following = Following(broker, replica_id, broker_epoch) if self.is_follower else None
        is_consumer = replica_id == _CONSUMER
        self._needs_leader = self.is_follower or (is_consumer and version < _ANY_REPLICA_SINCE)
        if not is_consumer:
            self._isolation = Isolation.END
        elif request.isolation_level == _READ_COMMITTED:
            self._isolation = Isolation.STABLE
        else:
            self._isolation = Isolation.COMMITTED
        self._max_wait_ms = request.max_wait_ms
        self._max_bytes = max(0, min(request.max_bytes, broker.settings.fetch_max_bytes))
        if broker.quotas.fetch.is_set and not self.is_follower:
            most = broker.quotas.fetch.most_at_once(context.principal, context.client_id, broker.now_ms())
            self._max_bytes = self._max_bytes if most is None else min(self._max_bytes, int(most))
        selects = is_consumer and broker.settings.replica_selector_class == RACK_AWARE
        self._rack = request.rack_id if selects else ""
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._manner = (replica_id, broker_epoch, self._isolation, self._needs_leader, self._rack)
        self._has_arrived = False  # and is not heard a second time
        self._readable: dict[str, bool] = {}
        self._found: list[Found] = []
        self._bytes = 0

    # Reading

    def arrive(self) -> None:
        """Reads what there is; followers are heard."""
        session = self.wanted.session
        if session is not None:
            if session.manner != self._manner or not self._may_go_on_resting(session):
                session.stir_all()
            session.manner = self._manner
            session.heard.at_ms = session.used_ms
        self._has_arrived = True
        self.read()
        self._has_arrived = False

    def _may_go_on_resting(self, session: FetchSession) -> bool:
        """Whether nothing is to be said of partitions that have not changed themselves."""
        if self._following is not None and self._following.is_replaced:
            return False
        return all(map(self._may_read, session.resting_topics))

    def read(self) -> None:
        """Reads everything that has to be looked at."""
        self._found = all_found = []
        left_bytes, has_none = self._max_bytes, True
        self._bytes = 0
        for wanted in self.wanted.in_turn():
            found = Found(wanted)
            try:
                self._read_one(found, left_bytes, has_none)
            except ApiError as error:
                found.error = error.code
            all_found.append(found)
            if found.records is not None:
                has_none = False
                size_bytes = found.records.size_bytes
                left_bytes = max(0, left_bytes - size_bytes)
                self._bytes += size_bytes

    def describe(self) -> None:
        """Notes where each partition is, besides its records: this will be answered."""
        for found in self._found:
            partition = found.partition
            if partition is not None and found.error is None:
                found.high_watermark = partition.high_watermark
                found.last_stable_offset = partition.last_stable_offset
                found.log_start_offset = partition.log.start_offset

    @property
    def has_cold_records(self) -> bool:
        """Whether sending the answer would wait for the disk."""
        return any(one.records is not None and not one.records.is_cached() for one in self._found)

    async def load(self) -> None:
        """Waits for the disk, for what is not in the page cache."""
        for found in self._found:
            partition, records = found.partition, found.records
            if partition is not None and records is not None and not records.is_cached():
                try:
                    await partition.log.load(records)
                except StorageError as error:
                    self._broker.replicas.offline(partition, error)
                    found.records, found.error = None, ErrorCode.KAFKA_STORAGE_ERROR

    def _read_one(self, found: Found, left_bytes: int, at_least_one: bool) -> None:
        wanted = found.wanted
        found.partition = partition = self._partition(wanted)
        partition.check_epoch(wanted.leader_epoch)
        if self._needs_leader:
            leading = partition.leadership()
            if self._following is not None:
                self._following.check(leading, partition, wanted)
        found.leader_epoch = partition.leader_epoch
        log, offset = partition.log, wanted.offset
        if self._rack and partition.leading is not None:
            found.preferred = closest_replica(
                partition.leading, self._broker.image, self._context.listener, self._rack, offset
            )
            if found.preferred != NO_PREFERENCE:
                return
        if wanted.last_fetched_epoch >= 0:
            found.diverging = self._divergence(partition, wanted)
            if found.diverging is not None:
                return
        if not log.start_offset <= offset <= log.end_offset:
            reason = f"{partition.key} has offsets {log.start_offset} to {log.end_offset}, not {offset}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        if self._following is not None and self._has_arrived:
            self._following.hear(partition, wanted)
        self._find_records(found, partition, left_bytes, at_least_one)

    def _partition(self, wanted: Wanted) -> Partition:
        broker = self._broker
        if not self._may_read(wanted.key[0]):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self.wanted.uses_topic_ids:
            found = broker.replicas.of_topic(wanted.topic_id, wanted.partition_id)
            return found or replica_by_id(broker, wanted.topic_id, wanted.partition_id)
        return replica_named(broker, wanted.topic, wanted.partition_id)

    def _may_read(self, topic: str | Uuid) -> bool:
        """A topic is called by its id or by its name."""
        name = "" if self.is_follower else self._topic_name(topic)
        may_read = self._readable.get(name)
        if may_read is None:
            authorize, context = self._broker.authorize, self._context
            if self.is_follower:
                may_read = authorize(context, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, "kafka-cluster")
            else:
                may_read = not name or authorize(context, Operation.READ, ResourceKind.TOPIC, name)
            self._readable[name] = may_read
        return may_read

    def _topic_name(self, topic: str | Uuid) -> str:
        """Empty if there is no topic of that id."""
        if isinstance(topic, str):
            return topic
        found = self._broker.image.topics.by_id.get(topic)
        return "" if found is None else found.name

    def _divergence(self, partition: Partition, wanted: Wanted) -> EpochEnd | None:
        """Where our log and that of an asker part who says of which epoch its end is, if they do."""
        log = partition.log
        if wanted.last_fetched_epoch == log.epochs.latest_epoch and wanted.offset <= log.end_offset:
            return None  # as nearly always
        ours = log.end_offset_of(wanted.last_fetched_epoch)
        if ours.epoch < 0:
            reason = f"{partition.key} knows nothing of epoch {wanted.last_fetched_epoch}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        if ours.epoch < wanted.last_fetched_epoch or ours.end_offset < wanted.offset:
            return ours
        return None

    def _find_records(self, found: Found, partition: Partition, left_bytes: int, at_least_one: bool) -> None:
        if (
            self._following is not None
            and partition.config.throttled_as_leader
            and self._following.is_throttled(partition)
        ):
            self._broker.leader_throttle.held_up += 1
            return
        wanted, limit = found.wanted, partition.limit(self._isolation)
        try:
            if wanted.offset < limit:
                max_bytes = max(0, min(wanted.max_bytes, left_bytes))
                if max_bytes or at_least_one:
                    found.records = partition.log.range(
                        wanted.offset, max_bytes, before_offset=limit, at_least_one=at_least_one
                    )
            if self._isolation == Isolation.STABLE:
                records = found.records
                found.aborted = (
                    []
                    if records is None
                    else partition.log.aborted_between(wanted.offset, records.next_offset)
                )
        except DamagedBatchError as error:
            logger = logging.getLogger(f"quorate.broker.{partition.broker_id}")
            logger.error("damaged partition=%s offset=%d reason=%s", partition.key, wanted.offset, error)
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except StorageError as error:
            self._broker.replicas.offline(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    # Waiting

    @property
    def is_answerable(self) -> bool:
        """Whether there is something to say now, or nothing to wait for."""
        if self._max_wait_ms <= 0 or self._bytes >= self._min_bytes:
            return True
        is_anything_read = self.wanted.has_resting
        following = self._following
        tells_at_once = following is not None and following.tells_at_once
        for one in self._found:
            if one.error is None:
                if one.is_said_anyway or (tells_at_once and self._is_awaited(one.partition)):
                    return True
                is_anything_read = True
            elif one.error not in _BEFORE_READING:
                return True
        return not is_anything_read

    def _is_awaited(self, partition: Partition | None) -> bool:
        """Whether a follower is to be told something of a partition now, whether or not there are records."""
        return partition is not None and self._following is not None and self._following.has_news(partition)

    def park(self, read_again: Callable[[], FetchResponse | Awaitable[FetchResponse]]) -> ParkedFetch:
        """Waits until there may be enough, or something has changed, or time is up. Nothing that was read
        counts any more, then."""
        looked_at, self._found = [one for one in self._found if one.error is None], []
        with_records = [number for number, one in enumerate(looked_at) if one.records is not None]
        for number in with_records:
            looked_at[number].records = None
        return ParkedFetch(
            looked_at,
            with_records,
            self.wanted.session,
            self._max_wait_ms,
            self._min_bytes,
            self._available,
            read_again,
        )

    def _available(self, found: Found) -> float:
        """How many bytes could be read now; more than anybody wants if reading has something else to tell."""
        wanted, partition = found.wanted, found.partition
        assert partition is not None
        if (
            partition.leader_epoch != found.leader_epoch
            or partition.failure is not None
            or (self._needs_leader and partition.leading is None)
        ):
            return math.inf
        following = self._following
        if following is not None:
            if following.tells_at_once and following.has_news(partition):
                return math.inf
            if partition.config.throttled_as_leader and following.is_throttled(partition):
                return 0
        log, limit = partition.log, partition.limit(self._isolation)
        if wanted.offset >= limit:
            return 0 if wanted.offset <= log.end_offset else math.inf
        if self._min_bytes <= 1 and limit == log.end_offset:
            return math.inf  # whatever there is, it is enough
        try:
            records = log.range(wanted.offset, SEGMENT_BYTES_MAX, before_offset=limit)
        except (ApiError, StorageError):
            return math.inf
        if records is None:
            return 0
        size_bytes, next_offset = records.size_bytes, records.next_offset
        records.release()
        # A segment that ends before the limit is not read across: nothing is gained by waiting.
        return min(size_bytes, wanted.max_bytes) if next_offset >= limit else math.inf

    # Answering

    @property
    def size_bytes(self) -> int:
        """About how large the answer will be."""
        return self._bytes + PARTITION_BYTES * len(self._found)

    def note_replicated(self) -> None:
        """A follower will be answered."""
        if self._following is not None:
            self._following.note(self._found)

    def answer(self, session_id: int) -> FetchResponse:
        listener = self._context.listener
        return fetch_answer(
            self._found, self.wanted, session_id, self._version, self._broker, listener, self._topic_name
        )

    def rest(self, session: FetchSession | None) -> None:
        """What is answered goes to rest in the session, if there will be nothing else to say of it."""
        if session is None or self._rack:
            return  # which replica is the closest is a matter of more than the partition
        session.manner = self._manner
        for found in self._found:
            partition = found.partition
            if partition is None or found.error is not None or found.records is not None:
                continue
            if found.is_said_anyway or not self._is_all_said(found.wanted, partition, found.leader_epoch):
                continue
            follower = None
            if self._following is not None:
                follower = self._following.at_rest(partition, found.wanted)
                if follower is None:
                    continue
            session.rest(found.wanted, partition, follower)

    def _is_all_said(self, wanted: Wanted, partition: Partition, leader_epoch: int) -> bool:
        """Whether a partition is as it was told, and has nothing to read. It may have changed since it was
        looked at."""
        return (
            partition.leader_epoch == leader_epoch
            and partition.failure is None
            and not (self._needs_leader and partition.leading is None)
            and wanted.told_high_watermark == partition.high_watermark
            and wanted.told_log_start_offset == partition.log.start_offset
            and partition.limit(self._isolation) <= wanted.offset <= partition.log.end_offset
            and self._broker.replicas.has(partition)
        )
