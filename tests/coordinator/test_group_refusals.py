"""Every request can be refused, in every version, before or after it was looked at."""

from __future__ import annotations

from typing import Any

import pytest
from group_story import GROUP

from quorate.coordinator.refusals import refuse, refused, storage_error
from quorate.protocol import codec
from quorate.protocol.api import groups as api
from quorate.protocol.api.transactions import TxnOffsetCommitRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request

COMMITTED = api.OffsetCommitRequest.Topic
TXN = TxnOffsetCommitRequest.Topic
REQUESTS: list[Request] = [
    api.JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]
    ),
    api.SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m", assignments=[]),
    api.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"),
    api.LeaveGroupRequest(group_id=GROUP, member_id="m"),
    api.ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=0),
    api.ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False),
    api.DescribeGroupsRequest(groups=[GROUP]),
    api.ListGroupsRequest(),
    api.DeleteGroupsRequest(groups_names=[GROUP]),
    api.OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            COMMITTED(
                name="t",
                partitions=[
                    COMMITTED.Partition(partition_index=0, committed_offset=1, committed_metadata=None)
                ],
            )
        ],
    ),
    TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        topics=[
            TXN(
                name="t",
                partitions=[TXN.Partition(partition_index=0, committed_offset=1, committed_metadata=None)],
            )
        ],
    ),
    api.OffsetDeleteRequest(group_id=GROUP, topics=[]),
]
FETCHES: list[tuple[int, api.OffsetFetchRequest]] = [
    *(
        (
            version,
            api.OffsetFetchRequest(
                group_id=GROUP, topics=[api.OffsetFetchRequest.Topic(name="t", partition_indexes=[0])]
            ),
        )
        for version in range(1, 8)
    ),
    *(
        (version, api.OffsetFetchRequest(groups=[api.OffsetFetchRequest.Group(group_id=GROUP, topics=None)]))
        for version in range(8, 11)
    ),
]
CASES = [(version, request) for request in REQUESTS for version in type(request).__versions__] + FETCHES


def codes_in(response: Any) -> set[int]:
    """Every error code that stands anywhere in an answer."""
    found = set()
    for field in response.__fields__:
        value = getattr(response, field.name)
        if field.name == "error_code":
            found.add(value)
        elif isinstance(value, list):
            found |= {code for each in value if hasattr(each, "__fields__") for code in codes_in(each)}
    return found


def named(case: object) -> str:
    return f"v{case}" if isinstance(case, int) else type(case).__name__


@pytest.mark.parametrize(("version", "request_"), CASES, ids=named)
def test_every_request_in_every_version(version: int, request_: Request) -> None:
    for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR):
        response = refuse(request_, version, code)
        assert codec.encode(response, version)
        assert code in codes_in(response)


@pytest.mark.parametrize(("version", "request_"), CASES, ids=named)
def test_an_answer_that_must_not_leave(version: int, request_: Request) -> None:
    granted = refuse(request_, version, ErrorCode.NONE)
    if isinstance(
        request_, api.ListGroupsRequest | api.DescribeGroupsRequest | api.ConsumerGroupDescribeRequest
    ):
        return  # nobody writes anything to answer these
    response = refused(granted, ErrorCode.NOT_COORDINATOR)
    assert codec.encode(response, version)
    assert ErrorCode.NOT_COORDINATOR in codes_in(response)


def test_what_was_refused_anyway_stays_refused() -> None:
    request = api.DeleteGroupsRequest(groups_names=["a", "b"])
    response = refuse(request, 2, ErrorCode.NONE)
    response.results[0].error_code = ErrorCode.NON_EMPTY_GROUP
    codes = [one.error_code for one in refused(response, ErrorCode.NOT_COORDINATOR).results]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.NOT_COORDINATOR]
    fenced = api.JoinGroupResponse(
        error_code=ErrorCode.FENCED_INSTANCE_ID, protocol_name=None, leader="", member_id="m", members=[]
    )
    assert refused(fenced, ErrorCode.NOT_COORDINATOR).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_join_without_an_answer_has_no_name_in_it() -> None:
    request = REQUESTS[0]
    assert refuse(request, 6, ErrorCode.NOT_COORDINATOR).protocol_name == ""
    assert refuse(request, 7, ErrorCode.NOT_COORDINATOR).protocol_name is None


def test_old_consumers_do_not_know_that_a_coordinator_may_not_be_available() -> None:
    for version, request in FETCHES:
        response = refuse(request, version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert ErrorCode.NOT_COORDINATOR in codes_in(response)


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_old_producers_do_not_know_that_a_coordinator_may_be_loading(version: int, code: ErrorCode) -> None:
    request = next(one for one in REQUESTS if isinstance(one, TxnOffsetCommitRequest))
    assert codes_in(refuse(request, version, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) == {code}


def test_an_error_that_says_enough_stays_what_it_is() -> None:
    assert storage_error(ErrorCode.INVALID_GROUP_ID) is ErrorCode.INVALID_GROUP_ID
