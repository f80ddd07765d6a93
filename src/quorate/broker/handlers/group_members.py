"""What members of groups ask of their coordinator: to join, to be given their part, to stay, to leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast

from quorate.broker.coordinators import Hosted, State
from quorate.broker.groups import Groups
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.coordinator import refusals
from quorate.coordinator.consumer_admission import check_request
from quorate.coordinator.effects import Caller, Effects, Moment, Ticket
from quorate.coordinator.known_members import KnownMember
from quorate.coordinator.shard import GroupShard
from quorate.net.routes import Again, Answer, RequestContext, Route
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response

__all__ = ["GroupMembers", "caller_of", "refuse"]

R = TypeVar("R", bound=Request)
Step = Callable[[GroupShard, Ticket, R, Caller, Moment], Effects]


def caller_of(context: RequestContext, version: int) -> Caller:
    """Who asks, as a coordinator sees it; an address looks as Java writes one."""
    return Caller(version, context.client_id, "/" + context.client_host, context)


def refuse(request: Request, version: int, code: ErrorCode) -> Response:
    """The answer of whoever does not coordinate the group, or must not."""
    response: Response = refusals.refuse(request, version, code)
    return response


class GroupMembers:
    """Answers JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat."""

    def __init__(self, broker: Broker, groups: Groups) -> None:
        self._broker = broker
        self._groups = groups

    def routes(self) -> list[Route]:
        return [
            Route(JoinGroupRequest, partial(self._ask, GroupShard.join)),
            Route(SyncGroupRequest, partial(self._ask, GroupShard.sync)),
            Route(HeartbeatRequest, self._heartbeat, again=self._heartbeat_again),
            Route(LeaveGroupRequest, partial(self._ask, GroupShard.leave)),
            Route(
                ConsumerGroupHeartbeatRequest, self._consumer_heartbeat, again=self._consumer_heartbeat_again
            ),
        ]

    def _heartbeat(
        self, context: RequestContext, header: RequestHeader, request: HeartbeatRequest
    ) -> Answer | Awaitable[Answer]:
        answer = self._ask(GroupShard.heartbeat, context, header, request)
        if isinstance(answer, HeartbeatResponse) and (
            answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ):
            # Whether it is a member will be known soon; it is not to give up its partitions for that.
            answer.error_code = ErrorCode.NONE
        return answer

    def _consumer_heartbeat(
        self, context: RequestContext, header: RequestHeader, request: ConsumerGroupHeartbeatRequest
    ) -> Answer | Awaitable[Answer]:
        group_id, version = request.group_id, header.request_api_version
        if not self._groups.has_consumer_protocol:
            return refuse(request, version, ErrorCode.UNSUPPORTED_VERSION)
        authorize = self._broker.authorize
        if not authorize(context, Operation.READ, ResourceKind.GROUP, group_id):
            return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        # Those that name topics are not known again, so this is asked each time.
        for topic in request.subscribed_topic_names or ():
            if not authorize(context, Operation.DESCRIBE, ResourceKind.TOPIC, topic):
                return refuse(request, version, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not request.member_epoch:
            hosted = self._groups.active(group_id)
            if hosted is not None and group_id:
                caller = caller_of(context, version)
                announce = partial(hosted.shard.announce, request, caller)
                return _ask(hosted, caller, request, GroupShard.consumer_group_heartbeat, announce)
        return self._ask_coordinator(GroupShard.consumer_group_heartbeat, context, header, request)

    # Heartbeats that come again

    def _heartbeat_again(
        self, context: RequestContext, _header: RequestHeader, request: HeartbeatRequest, answer: Response
    ) -> Again | None:
        hosted = self._groups.active(request.group_id)
        if hosted is None:
            return None
        return self._again(context, hosted, hosted.shard.known_heartbeat(request), answer)

    def _consumer_heartbeat_again(
        self,
        context: RequestContext,
        header: RequestHeader,
        request: ConsumerGroupHeartbeatRequest,
        answer: Response,
    ) -> Again | None:
        hosted = self._groups.active(request.group_id)
        if hosted is None:
            return None
        caller = caller_of(context, header.request_api_version)
        return self._again(context, hosted, hosted.shard.known_consumer_heartbeat(request, caller), answer)

    def _again(
        self,
        context: RequestContext,
        hosted: Hosted[GroupShard],
        known: KnownMember | None,
        answer: Response,
    ) -> Again | None:
        """Whether the same coordinator takes it as before; where there is a quota of the broker's time, by
        which answers may say how long to be quiet, each has one of its own."""
        if known is None or answer != known.answer:
            return None
        broker, groups, group_id, is_taken = self._broker, self._groups, known.group_id, known.is_taken
        is_classic = isinstance(answer, HeartbeatResponse)
        found_in = None  # `hosted`, among those who coordinate groups

        def is_taken_again() -> bool:
            nonlocal found_in
            if found_in is not groups.recent:
                is_served = is_classic or groups.has_consumer_protocol
                if not is_served or groups.active(group_id) is not hosted:
                    return False
                found_in = groups.recent
            return (
                hosted.state is State.ACTIVE
                and not broker.quotas.request.is_set
                and broker.authorize(context, Operation.READ, ResourceKind.GROUP, group_id)
                and is_taken(broker.now_ms())
            )

        return is_taken_again

    def _ask(
        self, step: Step[Any], context: RequestContext, header: RequestHeader, request: Any
    ) -> Answer | Awaitable[Answer]:
        version, group_id = header.request_api_version, request.group_id
        if not self._broker.authorize(context, Operation.READ, ResourceKind.GROUP, group_id):
            return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return self._ask_coordinator(step, context, header, request)

    def _ask_coordinator(
        self, step: Step[Any], context: RequestContext, header: RequestHeader, request: Any
    ) -> Answer | Awaitable[Answer]:
        """The same for whoever may."""
        version, group_id = header.request_api_version, request.group_id
        if not group_id:
            return _refuse_nameless(request, version)
        try:
            hosted = self._groups.active(group_id) or self._groups.of(group_id)
        except ApiError as error:
            return refuse(request, version, error.code)
        return _ask(hosted, caller_of(context, version), request, step)


def _refuse_nameless(request: Request, version: int) -> Response:
    """A group that has no name is nowhere; heartbeats of consumer groups are told in words."""
    if not isinstance(request, ConsumerGroupHeartbeatRequest):
        return refuse(request, version, ErrorCode.INVALID_GROUP_ID)
    refused: Any = refuse(request, version, ErrorCode.INVALID_REQUEST)
    try:
        check_request(request, version, ())
    except ApiError as error:
        refused.error_message = error.message
    return cast("Response", refused)


def _ask(
    hosted: Hosted[GroupShard],
    caller: Caller,
    request: Any,
    step: Step[Any],
    announce: Callable[[Moment], Effects] | None = None,
) -> Answer | Awaitable[Answer]:
    shard = hosted.shard
    return hosted.ask(
        lambda ticket, moment: step(shard, ticket, request, caller, moment),
        lambda code: refuse(request, caller.version, code),
        announce,
    )
