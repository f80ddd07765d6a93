"""What operators ask about groups: which there are, what they are like, and to delete them.

A request may name groups of many coordinators; each of those here is asked about its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from quorate.broker.groups import Groups
from quorate.broker.handlers.group_members import caller_of, refuse
from quorate.broker.handlers.metadata import CLUSTER_NAME, authorized_operations
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.coordinator.group_listing import matching
from quorate.net.many import answers_for_each
from quorate.net.routes import Answer, RequestContext, Route
from quorate.net.slices import Work, in_slices
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["GroupAdministration"]

_DELETED_BYTES: Final = 8  # what is said of a group that is deleted, without its name

D = TypeVar("D", DescribeGroupsResponse.DescribedGroup, ConsumerGroupDescribeResponse.DescribedGroup)


class GroupAdministration:
    """Answers ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups."""

    def __init__(self, broker: Broker, groups: Groups) -> None:
        self._broker = broker
        self._groups = groups

    def routes(self) -> list[Route]:
        return [
            Route(ListGroupsRequest, self._list),
            Route(DescribeGroupsRequest, self._describe),
            Route(ConsumerGroupDescribeRequest, self._consumer_describe),
            Route(DeleteGroupsRequest, self._delete),
        ]

    def _list(
        self, context: RequestContext, header: RequestHeader, request: ListGroupsRequest
    ) -> ListGroupsResponse:
        shards = self._groups.shards
        if shards.is_loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])
        authorize = self._broker.authorize
        sees_all = authorize(context, Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME)
        caller = caller_of(context, header.request_api_version)
        # A filter may be long, and there may be many coordinators: it is applied once.
        all_groups = ListGroupsRequest()
        found = [group for one in shards.all_active() for group in one.shard.list_groups(all_groups, caller)]
        return ListGroupsResponse(
            error_code=ErrorCode.NONE,
            groups=[
                group
                for group in matching(request, found)
                if sees_all or authorize(context, Operation.DESCRIBE, ResourceKind.GROUP, group.group_id)
            ],
        )

    def _describe(
        self, context: RequestContext, header: RequestHeader, request: DescribeGroupsRequest
    ) -> Answer | Awaitable[Answer]:
        version = header.request_api_version
        caller = caller_of(context, version)

        def ask(group_id: str) -> DescribeGroupsResponse.DescribedGroup:
            # It may have no name: consumers of old, which committed offsets, need not have said one.
            shard = self._groups.of(group_id).shard
            return shard.describe(DescribeGroupsRequest(groups=[group_id]), caller)[0]

        def refused(group_id: str, code: ErrorCode) -> DescribeGroupsResponse.DescribedGroup:
            response = refuse(DescribeGroupsRequest(groups=[group_id]), version, code)
            assert isinstance(response, DescribeGroupsResponse)
            return response.groups[0]

        def described(group_id: str) -> DescribeGroupsResponse.DescribedGroup:
            group = self._described(context, group_id, ask, refused)
            self._add_operations(context, group, is_wanted=request.include_authorized_operations)
            return group

        def work() -> Work[DescribeGroupsResponse]:
            kind = DescribeGroupsResponse.DescribedGroup, DescribeGroupsResponse, version
            groups = yield from answers_for_each(context, request.groups, described, kind, str)
            return DescribeGroupsResponse(groups=groups)

        return in_slices(work())

    def _consumer_describe(
        self, context: RequestContext, header: RequestHeader, request: ConsumerGroupDescribeRequest
    ) -> Answer | Awaitable[Answer]:
        version = header.request_api_version
        if not self._groups.has_consumer_protocol:
            return refuse(request, version, ErrorCode.UNSUPPORTED_VERSION)
        caller = caller_of(context, version)

        def of_one(group_id: str) -> ConsumerGroupDescribeRequest:
            return ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)

        def ask(group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
            if not group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID)
            shard = self._groups.of(group_id).shard
            described = shard.consumer_group_describe(of_one(group_id), caller)[0]
            if self._may_see_topics_of(context, described):
                return described
            hidden = refused(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            hidden.error_message = "Members have partitions of topics that the asker may not describe."
            return hidden

        def refused(group_id: str, code: ErrorCode) -> ConsumerGroupDescribeResponse.DescribedGroup:
            response = refuse(of_one(group_id), version, code)
            assert isinstance(response, ConsumerGroupDescribeResponse)
            return response.groups[0]

        def described(group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
            group = self._described(context, group_id, ask, refused)
            self._add_operations(context, group, is_wanted=request.include_authorized_operations)
            return group

        def work() -> Work[ConsumerGroupDescribeResponse]:
            kind = ConsumerGroupDescribeResponse.DescribedGroup, ConsumerGroupDescribeResponse, version
            groups = yield from answers_for_each(context, request.group_ids, described, kind, str)
            return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)

        return in_slices(work())

    def _may_see_topics_of(
        self, context: RequestContext, described: ConsumerGroupDescribeResponse.DescribedGroup
    ) -> bool:
        """Whether the asker may know of all topics that members have or shall have; as with Apache,
        topics that they only subscribe to do not count."""
        topics = {
            one.topic_name
            for member in described.members
            for assignment in (member.assignment, member.target_assignment)
            for one in assignment.topic_partitions
        }
        authorize = self._broker.authorize
        return all(authorize(context, Operation.DESCRIBE, ResourceKind.TOPIC, one) for one in topics)

    def _described(
        self,
        context: RequestContext,
        group_id: str,
        ask: Callable[[str], D],
        refuse: Callable[[str, ErrorCode], D],
    ) -> D:
        if not self._broker.authorize(context, Operation.DESCRIBE, ResourceKind.GROUP, group_id):
            return refuse(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            return ask(group_id)
        except ApiError as error:
            return refuse(group_id, error.code)

    def _add_operations(self, context: RequestContext, group: D, *, is_wanted: bool) -> None:
        if is_wanted and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized_operations(
                self._broker, context, ResourceKind.GROUP, group.group_id
            )

    def _delete(
        self, context: RequestContext, header: RequestHeader, request: DeleteGroupsRequest
    ) -> Answer | Awaitable[Answer]:
        names = dict.fromkeys(request.groups_names)
        context.expect(sum(map(len, names)) + _DELETED_BYTES * len(names))

        def work() -> Work[DeleteGroupsResponse]:
            results: list[DeleteGroupsResponse.DeletableGroupResult] = []
            for group_id in names:
                answer = self._delete_one(context, header.request_api_version, group_id)
                response = (yield answer) if isinstance(answer, Awaitable) else answer
                assert isinstance(response, DeleteGroupsResponse)
                results += response.results
                yield None
            return DeleteGroupsResponse(throttle_time_ms=0, results=results)

        return in_slices(work())

    def _delete_one(self, context: RequestContext, version: int, group_id: str) -> Answer | Awaitable[Answer]:
        request = DeleteGroupsRequest(groups_names=[group_id])
        if not self._broker.authorize(context, Operation.DELETE, ResourceKind.GROUP, group_id):
            return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            hosted = self._groups.of(group_id)
        except ApiError as error:
            return refuse(request, version, error.code)
        shard, caller = hosted.shard, caller_of(context, version)
        return hosted.ask(
            lambda ticket, moment: shard.delete_groups(ticket, request, caller, moment),
            lambda code: refuse(request, version, code),
        )
