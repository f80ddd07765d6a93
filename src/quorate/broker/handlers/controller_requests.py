"""What an elected controller tells a broker: LeaderAndIsr, UpdateMetadata and StopReplica.

One request after the other, of whatever kind and from whomever: a controller that was replaced may still be
sending, and nothing of it may be carried out after anything of its successor. Each is carried out to its end,
even if whoever sent it has hung up meanwhile, and answered then. Configurations that change are applied in
the same order (`alone`).

Only versions with ids of topics are served, so the controller must be of Kafka 2.8 or later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from quorate.broker.control_plane import Assignment, Changes
from quorate.broker.handlers.metadata import CLUSTER_NAME
from quorate.broker.partition import Partition, TopicPartition
from quorate.broker.pushed_metadata import AT_ONCE, PushedMetadata
from quorate.broker.pushed_replicas import Fences, Held, judge_state, judge_stop, state_of
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.net.routes import RequestContext, Route
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.zookeeper_era import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Record
from quorate.protocol.types import Uuid

__all__ = ["BrokerSide", "ControllerRequests"]

T = TypeVar("T")
_PartitionError = StopReplicaResponse.PartitionError


class BrokerSide(Protocol):
    """What these requests need of the broker besides its replicas."""

    def apply_pushed(self, records: Sequence[Record]) -> None:
        """Records for the image; everyone who goes by it looks at it again when `pushed` says so."""

    async def pushed(self) -> None:
        """A request has changed the image."""

    async def read_configs(self, topics: Sequence[str]) -> None:
        """Topics have come that may have configurations, which nobody sends."""

    async def remove_leftover(self, topic: str, partition_id: int) -> None:
        """A replica is to be deleted that is not open: what is left of it on a disk goes."""


class ControllerRequests:
    """`routes` serves them. `fences` has what was heard of epochs; `controller_id` who has spoken last."""

    def __init__(self, broker: Broker, side: BrokerSide, fences: Fences | None = None) -> None:
        self._broker = broker
        self._side = side
        self._metadata = PushedMetadata()
        self._one_at_a_time = asyncio.Lock()
        self._working: set[asyncio.Task[Any]] = set()
        self._configured: set[str] = set()  # topics whose configurations were asked for
        self.fences = Fences() if fences is None else fences
        self.controller_id = -1
        self.has_metadata = asyncio.Event()  # there was an UpdateMetadata
        self._logger = logging.getLogger(f"quorate.broker.{broker.settings.broker_id}")

    def routes(self) -> list[Route]:
        return [
            Route(LeaderAndIsrRequest, self.leader_and_isr, range(5, 8)),
            Route(StopReplicaRequest, self.stop_replica, range(3, 5)),
            Route(UpdateMetadataRequest, self.update_metadata, range(7, 9)),
        ]

    async def alone(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does something in the order of all that changes this broker, and to its end."""

        async def guarded() -> T:
            async with self._one_at_a_time:
                return await work()

        task = asyncio.ensure_future(guarded())
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return await asyncio.shield(task)

    # UpdateMetadata

    async def update_metadata(
        self, context: RequestContext, _header: RequestHeader, request: UpdateMetadataRequest
    ) -> UpdateMetadataResponse:
        code = await self._if_admitted(context, request, lambda: self._update(request))
        return UpdateMetadataResponse(error_code=code)

    async def _update(self, request: UpdateMetadataRequest) -> None:
        image = self._broker.image
        unknown = [one.topic_name for one in request.topic_states if not self._is_configured(one.topic_name)]
        await self._read_configs(unknown)
        applied = 0
        for records in self._metadata.records(image, request):
            self._side.apply_pushed(records)
            applied += len(records)
            if applied >= AT_ONCE:
                await asyncio.sleep(0)
                applied = 0
        self._configured &= image.topics.by_name.keys()
        await self._side.pushed()
        self.has_metadata.set()

    def _is_configured(self, topic: str) -> bool:
        return topic in self._configured or topic in self._broker.image.topics.by_name

    async def _read_configs(self, topics: Sequence[str]) -> None:
        if topics:
            await self._side.read_configs(topics)
            self._configured.update(topics)

    # LeaderAndIsr

    async def leader_and_isr(
        self, context: RequestContext, _header: RequestHeader, request: LeaderAndIsrRequest
    ) -> LeaderAndIsrResponse:
        found: dict[Uuid, list[LeaderAndIsrPartitionError]] = {}
        code = await self._if_admitted(context, request, lambda: self._take(request, found))
        topics = [
            LeaderAndIsrResponse.TopicError(topic_id=topic_id, partition_errors=errors)
            for topic_id, errors in found.items()
        ]
        return LeaderAndIsrResponse(error_code=code, topics=topics)

    async def _take(
        self, request: LeaderAndIsrRequest, found: dict[Uuid, list[LeaderAndIsrPartitionError]]
    ) -> None:
        replicas, me = self._broker.replicas, self._broker.settings.broker_id
        assigned: list[tuple[Assignment, LeaderAndIsrPartitionError]] = []
        for topic in request.topic_states:
            errors = found.setdefault(topic.topic_id, [])
            for state in topic.partition_states:
                held = _held(replicas.named(topic.topic_name, state.partition_index))
                code = judge_state(
                    me, topic.topic_id, state, held, is_equal_allowed=request.is_kraft_controller
                )
                answer = LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code)
                errors.append(answer)
                if code is ErrorCode.NONE:
                    key = TopicPartition(topic.topic_name, topic.topic_id, state.partition_index)
                    assigned.append((Assignment(key, state_of(state)), answer))
        if not assigned:
            return
        names = {one.key.topic for one, _ in assigned}
        await self._read_configs(sorted(name for name in names if not self._is_configured(name)))
        await replicas.apply(Changes(self._broker.image, [one for one, _ in assigned]))
        for one, answer in assigned:
            partition = replicas.of_topic(one.key.topic_id, one.key.partition_id)
            if partition is None or partition.failure is not None:
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR

    # StopReplica

    async def stop_replica(
        self, context: RequestContext, _header: RequestHeader, request: StopReplicaRequest
    ) -> StopReplicaResponse:
        found: list[_PartitionError] = []
        code = await self._if_admitted(context, request, lambda: self._stop(request, found))
        return StopReplicaResponse(error_code=code, partition_errors=found)

    async def _stop(self, request: StopReplicaRequest, found: list[_PartitionError]) -> None:
        replicas = self._broker.replicas
        removed: list[tuple[Uuid, int]] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = replicas.named(topic.topic_name, state.partition_index)
                code = judge_stop(state, _held(partition))
                found.append(
                    _PartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
                if code is not ErrorCode.NONE:
                    continue
                if partition is None:
                    if state.delete_partition:
                        await self._side.remove_leftover(topic.topic_name, state.partition_index)
                elif state.delete_partition:
                    removed.append((partition.key.topic_id, partition.key.partition_id))
                else:
                    replicas.halt(partition)
        if removed:
            await replicas.apply(Changes(self._broker.image, removed=removed))

    # Who may

    async def _if_admitted(
        self,
        context: RequestContext,
        request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest,
        work: Callable[[], Coroutine[Any, Any, None]],
    ) -> ErrorCode:
        """Does the work of a request, unless it is for an earlier life of ours, or from a controller that has
        been replaced."""
        may = self._broker.authorize
        if not may(context, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED

        async def admitted() -> ErrorCode:
            code = self.fences.admit(request.broker_epoch, request.controller_epoch)
            if code is not ErrorCode.NONE:
                self._logger.warning(
                    "refused request=%s controller=%d controller_epoch=%d broker_epoch=%d reason=%s"
                    " known_controller_epoch=%d own_epoch=%d",
                    type(request).__name__.removesuffix("Request"),
                    request.controller_id,
                    request.controller_epoch,
                    request.broker_epoch,
                    code.name,
                    self.fences.controller_epoch,
                    self.fences.broker_epoch,
                )
                return code
            self.controller_id = request.controller_id
            await work()
            return ErrorCode.NONE

        return await self.alone(admitted)


def _held(partition: Partition | None) -> Held | None:
    if partition is None:
        return None
    return Held(partition.key.topic_id, partition.leader_epoch, has_failed=partition.failure is not None)
