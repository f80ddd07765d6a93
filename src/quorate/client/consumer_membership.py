"""Membership in a consumer group (KIP-848): one heartbeat does everything, and the coordinator divides.

A heartbeat tells what we have, and is answered with what we should have. What is not ours any more is given
up first, and the next heartbeat says so; only then may others have it, and only when others have given up
what is to be ours are we told of it. So nobody ever stops for the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Final, cast
from uuid import UUID

from quorate.client.cluster import Cluster, CoordinatorOf
from quorate.client.errors import Unavailable
from quorate.client.group_offsets import Member
from quorate.client.membership import MembershipSettings
from quorate.client.metadata import TopicPartition
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

__all__ = ["ConsumerMembership"]

JOINING: Final = 0
LEAVING: Final = -1
BACK_SOON: Final = -2  # a static member that is expected back

_LOST: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
)
_LEAVING_MS: Final = 5_000


class ConsumerMembership:
    """A `Membership`."""

    def __init__(
        self, cluster: Cluster, group: str, topics: Sequence[str], settings: MembershipSettings
    ) -> None:
        self.news = asyncio.Event()
        self.news.set()
        self._cluster = cluster
        self._group = group
        self._topics = sorted(set(topics))
        self._settings = settings
        self._id = str(UUID(bytes=cluster.random.randbytes(16), version=4))
        self._epoch = JOINING
        self._owned: frozenset[TopicPartition] = frozenset()
        self._target: frozenset[TopicPartition] = frozenset()
        self._has_lost = False
        self._error: Exception | None = None
        self._beating: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # what we have has changed, and others wait to hear of it

    @property
    def member(self) -> Member:
        return Member(self._id, self._epoch, self._settings.instance_id)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return self._owned & self._target

    @property
    def to_revoke(self) -> frozenset[TopicPartition]:
        return self._owned - self._target

    def lose_all(self) -> bool:
        had_lost, self._has_lost = self._has_lost, False
        return had_lost

    async def settle(self) -> None:
        self.news.clear()
        if self._error is not None:
            raise self._error
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat())
        if self._owned != self._target:
            self._owned = self._target
            self._hurry.set()

    async def close(self) -> None:
        task, self._beating = self._beating, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._epoch > JOINING:
                epoch = LEAVING if self._settings.instance_id is None else BACK_SOON
                request = ConsumerGroupHeartbeatRequest(
                    group_id=self._group,
                    member_id=self._id,
                    member_epoch=epoch,
                    instance_id=self._settings.instance_id,
                )
                with contextlib.suppress(ApiError, Unavailable):  # the session will end anyway
                    await self._ask(request, timeout_ms=_LEAVING_MS)

    # Heartbeats

    async def _beat(self) -> None:
        sent: ConsumerGroupHeartbeatRequest | None = None
        while True:
            request = self._request(sent)
            try:
                try:
                    answer = await self._ask(request, retries=None if _says_all(request) else 0)
                except (ApiError, Unavailable) as error:
                    if _says_all(request) or (isinstance(error, ApiError) and not error.code.retriable):
                        raise
                    # It may have been heard, and what we were given told to nobody. Whoever says everything
                    # is told everything.
                    request = self._request(None)
                    answer = await self._ask(request)
                await self._take(answer)
                sent = request
                interval_ms = answer.heartbeat_interval_ms
            except ApiError as error:
                if error.code in _LOST:
                    self._lose()
                    sent = None
                    continue
                if error.code is not ErrorCode.UNRELEASED_INSTANCE_ID:
                    self._fail(error)
                    return
                interval_ms = self._settings.heartbeat_interval_ms  # whoever had our name is still there
            except Unavailable:
                sent = None
                interval_ms = 0  # it was tried for a whole session
            if self._has_told(request):
                self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_ms / 1000):
                    await self._hurry.wait()

    def _request(self, sent: ConsumerGroupHeartbeatRequest | None) -> ConsumerGroupHeartbeatRequest:
        """All that there is to say the first time, and after an error; then only what we have."""
        settings = self._settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=self._epoch,
            instance_id=settings.instance_id,
            topic_partitions=self._by_id(() if self._epoch == JOINING else self._owned),
        )
        if sent is None or self._epoch == JOINING:
            request.rack_id = settings.rack
            request.rebalance_timeout_ms = settings.rebalance_timeout_ms
            request.subscribed_topic_names = list(self._topics)
        return request

    def _has_told(self, request: ConsumerGroupHeartbeatRequest) -> bool:
        return request.topic_partitions == self._by_id(self._owned)

    async def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.member_id:
            self._id = answer.member_id
        self._epoch = answer.member_epoch
        if answer.assignment is None:
            return
        target: set[TopicPartition] = set()
        for topic in answer.assignment.topic_partitions:
            name = self._cluster.metadata.name_of(topic.topic_id)
            if name is None:
                await self._cluster.refresh(*self._topics)
                name = self._cluster.metadata.name_of(topic.topic_id)
            if name is not None:
                target.update(TopicPartition(name, partition) for partition in topic.partitions)
        if target != self._target:
            self._target = frozenset(target)
        if self._target != self._owned:
            self.news.set()

    def _lose(self) -> None:
        self._epoch = JOINING
        self._has_lost = self._has_lost or bool(self._owned)
        self._owned = self._target = frozenset()
        self.news.set()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self.news.set()

    async def _ask(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        timeout_ms: float | None = None,
        retries: int | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """For as long as a session lasts, unless it is to be shorter."""
        timeout_ms = self._settings.session_timeout_ms if timeout_ms is None else timeout_ms
        to = CoordinatorOf(self._group)
        answer = await self._cluster.request(to, request, timeout_ms=timeout_ms, retries=retries)
        return cast("ConsumerGroupHeartbeatResponse", answer)

    def _by_id(
        self, partitions: Iterable[TopicPartition]
    ) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        ids: dict[Uuid, list[int]] = {}
        for topic, partition in sorted(partitions):
            known = self._cluster.metadata.topics.get(topic)
            if known is not None:
                ids.setdefault(known.id, []).append(partition)
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=one, partitions=some)
            for one, some in ids.items()
        ]


def _says_all(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.subscribed_topic_names is not None
