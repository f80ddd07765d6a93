"""FindCoordinator: who coordinates a group or a transactional id.

The coordinator of a group is whoever leads the partition of `__consumer_offsets` that its name belongs to. A
topic that does not exist yet is made, and whoever asks is told to ask again. Nobody coordinates shares and
transactions as yet. Who asks about a transaction is refused for good: after an error that fits better some
clients try again until their own time is up.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, NamedTuple

from quorate.broker.groups import OFFSETS_TOPIC, Groups
from quorate.broker.handlers.producer_ids import NO_TRANSACTIONS
from quorate.broker.handlers.topic_creation import TopicCreation
from quorate.broker.listeners import address_of
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.net.many import answers_for_each
from quorate.net.routes import Answer, RequestContext
from quorate.net.slices import Work, in_slices
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.errors import ErrorCode

__all__ = ["FindCoordinatorHandler"]

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_MANY_SINCE: Final = 4
_SHARES_SINCE: Final = 6


class _Found(NamedTuple):
    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1
    reason: str | None = None

    @property
    def message(self) -> str:
        return self.reason or self.error.name


class FindCoordinatorHandler:
    """Answers FindCoordinator."""

    def __init__(self, broker: Broker, groups: Groups, creation: TopicCreation) -> None:
        self._broker = broker
        self._groups = groups
        self._creation = creation

    def __call__(
        self, context: RequestContext, header: RequestHeader, request: FindCoordinatorRequest
    ) -> Answer | Awaitable[Answer]:
        version = header.request_api_version
        if version < _MANY_SINCE:
            one = self._find(context, version, request.key_type, request.key, {})
            return FindCoordinatorResponse(
                error_code=one.error,
                error_message=one.message,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
            )

        found: dict[int, _Found] = {}

        def coordinator(key: str) -> FindCoordinatorResponse.Coordinator:
            one = self._find(context, version, request.key_type, key, found)
            return FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
                error_code=one.error,
                error_message=None if one.error is ErrorCode.NONE else one.message,
            )

        def work() -> Work[FindCoordinatorResponse]:
            kind = FindCoordinatorResponse.Coordinator, FindCoordinatorResponse, version
            keys = request.coordinator_keys
            return FindCoordinatorResponse(
                coordinators=(yield from answers_for_each(context, keys, coordinator, kind, str))
            )

        return in_slices(work())

    def _find(
        self, context: RequestContext, version: int, kind: int, key: str, found: dict[int, _Found]
    ) -> _Found:
        """`found` are those that this request has asked for before, by their partitions."""
        authorize = self._broker.authorize
        if kind == _TRANSACTION:
            is_allowed = authorize(context, Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, key)
            reason = NO_TRANSACTIONS if is_allowed else None
            return _Found(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason=reason)
        if kind == _GROUP:
            if not authorize(context, Operation.DESCRIBE, ResourceKind.GROUP, key):
                return _Found(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            partition_id = self._groups.partition_of(key)
            one = found.get(partition_id)
            if one is None:
                one = found[partition_id] = self._of_groups_in(partition_id, context)
            return one
        if kind != _SHARE or version < _SHARES_SINCE:
            return _Found(ErrorCode.INVALID_REQUEST)
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _of_groups_in(self, partition_id: int, context: RequestContext) -> _Found:
        leader = self._groups.leader_of(partition_id)
        if leader is None:
            self._creation.begin([OFFSETS_TOPIC], context)
            return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        image = self._broker.image
        address = address_of(image, leader, context.listener)
        if address is None or image.brokers[leader].is_fenced:
            return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return _Found(ErrorCode.NONE, leader, *address)
