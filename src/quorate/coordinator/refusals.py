"""How each request to the group coordinator is refused: where in its answer the error stands.

`refuse` answers a request that nobody looked at, because its coordinator is loading or elsewhere. `refused`
turns round an answer that had been given, because what it rests on could not be stored. What an error of the
log means to a client is told by `storage_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quorate.coordinator.classic_answers import join_refused, sync_refused
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Message

__all__ = ["refuse", "refused", "storage_error"]


def refuse(request: Message, version: int, code: ErrorCode) -> Any:
    """The answer to a request as a whole.

    >>> refuse(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, ErrorCode.NOT_COORDINATOR)
    HeartbeatResponse(throttle_time_ms=0, error_code=<ErrorCode.NOT_COORDINATOR: 16>)
    """
    return _REFUSE[type(request)](request, version, code)


def refused(response: Any, code: ErrorCode) -> Any:
    """The answer that takes the place of one that must not leave. What was refused anyway stays refused.

    Fetching offsets never says COORDINATOR_NOT_AVAILABLE, which old consumers take for the end.
    """
    match response:
        case OffsetCommitResponse():  # may be that of a `KnownCommit`, which is given many times
            answered = OffsetCommitResponse.Topic
            response = OffsetCommitResponse(
                topics=[
                    answered(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            answered.Partition(
                                partition_index=one.partition_index, error_code=one.error_code or code
                            )
                            for one in topic.partitions
                        ],
                    )
                    for topic in response.topics
                ]
            )
        case TxnOffsetCommitResponse():
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.error_code = partition.error_code or code
        case OffsetFetchResponse():
            code = _fetch_error(code)
            response.topics = []
            response.error_code = code if not response.groups else ErrorCode.NONE
            for group in response.groups:
                group.topics, group.error_code = [], code
        case DeleteGroupsResponse():
            for result in response.results:
                result.error_code = result.error_code or code
        case JoinGroupResponse() if response.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            may_be_null = response.protocol_name is None
            response = join_refused(0, code)
            response.protocol_name = None if may_be_null else ""
        case SyncGroupResponse() if response.error_code == ErrorCode.NONE:
            response = sync_refused(code)
        case ConsumerGroupHeartbeatResponse() if response.error_code == ErrorCode.NONE:
            response = _refuse_consumer_heartbeat(None, 0, code)
        case LeaveGroupResponse() | OffsetDeleteResponse() | HeartbeatResponse():
            response.error_code = response.error_code or code
        case _:
            pass
    return response


def storage_error(code: ErrorCode) -> ErrorCode:
    """What an error of the log means to a member: try again, look elsewhere, or something is wrong here.

    >>> storage_error(ErrorCode.NOT_ENOUGH_REPLICAS).name
    'COORDINATOR_NOT_AVAILABLE'
    """
    return _STORAGE_ERRORS.get(code, code)


_STORAGE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def _fetch_error(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_COORDINATOR if code is ErrorCode.COORDINATOR_NOT_AVAILABLE else code


# One for each request


def _refuse_join(request: JoinGroupRequest, version: int, code: ErrorCode) -> JoinGroupResponse:
    return join_refused(version, code, request.member_id)


def _refuse_sync(_request: SyncGroupRequest, _version: int, code: ErrorCode) -> SyncGroupResponse:
    return sync_refused(code)


def _refuse_heartbeat(_request: HeartbeatRequest, _version: int, code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def _refuse_leave(_request: LeaveGroupRequest, _version: int, code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


def _refuse_consumer_heartbeat(
    _request: ConsumerGroupHeartbeatRequest | None, _version: int, code: ErrorCode
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0
    )


def _refuse_consumer_describe(
    request: ConsumerGroupDescribeRequest, _version: int, code: ErrorCode
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[
            ConsumerGroupDescribeResponse.DescribedGroup(
                error_code=code,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group_id in request.group_ids
        ],
    )


def _refuse_describe(
    request: DescribeGroupsRequest, _version: int, code: ErrorCode
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribeGroupsResponse.DescribedGroup(
                error_code=code,
                group_id=group_id,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=[],
            )
            for group_id in request.groups
        ]
    )


def _refuse_list(_request: ListGroupsRequest, _version: int, code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])


def _refuse_delete(request: DeleteGroupsRequest, _version: int, code: ErrorCode) -> DeleteGroupsResponse:
    result = DeleteGroupsResponse.DeletableGroupResult
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[result(group_id=group_id, error_code=code) for group_id in request.groups_names],
    )


def _refuse_commit(request: OffsetCommitRequest, _version: int, code: ErrorCode) -> OffsetCommitResponse:
    answered = OffsetCommitResponse.Topic
    return OffsetCommitResponse(
        topics=[
            answered(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    answered.Partition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refuse_txn_commit(
    request: TxnOffsetCommitRequest, version: int, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """Producers did not know that a coordinator may be loading before v2."""
    if version < 2 and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answered = TxnOffsetCommitResponse.Topic
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            answered(
                name=topic.name,
                partitions=[
                    answered.Partition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _refuse_fetch(request: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
    """For many groups, for one, and before v2 for each partition, because there was no other place."""
    code = _fetch_error(code)
    if version >= 8:
        groups = [
            OffsetFetchResponse.Group(group_id=group.group_id, topics=[], error_code=code)
            for group in request.groups
        ]
        return OffsetFetchResponse(groups=groups)
    if version >= 2:
        return OffsetFetchResponse(error_code=code)
    answered = OffsetFetchResponse.Topic
    return OffsetFetchResponse(
        topics=[
            answered(
                name=topic.name,
                partitions=[
                    answered.Partition(
                        partition_index=partition, committed_offset=-1, metadata="", error_code=code
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _refuse_offset_delete(
    _request: OffsetDeleteRequest, _version: int, code: ErrorCode
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[])


_REFUSE: Final[Mapping[type, Callable[[Any, int, ErrorCode], Message]]] = {
    JoinGroupRequest: _refuse_join,
    SyncGroupRequest: _refuse_sync,
    HeartbeatRequest: _refuse_heartbeat,
    LeaveGroupRequest: _refuse_leave,
    ConsumerGroupHeartbeatRequest: _refuse_consumer_heartbeat,
    ConsumerGroupDescribeRequest: _refuse_consumer_describe,
    DescribeGroupsRequest: _refuse_describe,
    ListGroupsRequest: _refuse_list,
    DeleteGroupsRequest: _refuse_delete,
    OffsetCommitRequest: _refuse_commit,
    TxnOffsetCommitRequest: _refuse_txn_commit,
    OffsetFetchRequest: _refuse_fetch,
    OffsetDeleteRequest: _refuse_offset_delete,
}
