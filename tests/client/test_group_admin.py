"""What brokers say of groups reaches who asked."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.client.cluster import Cluster
from quorate.client.group_admin import Groups
from quorate.protocol.api.groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from quorate.protocol.errors import ApiError, ErrorCode


class Saying:
    """A cluster whose coordinators say that of every group."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        described = ConsumerGroupDescribeResponse.DescribedGroup
        self._said = described(
            error_code=code,
            error_message=message,
            group_id="g",
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )

    async def request(self, _to: Any, request: Any, *, error_of: Any) -> ConsumerGroupDescribeResponse:
        assert isinstance(request, ConsumerGroupDescribeRequest), "it is no matter of the kind of the group"
        response = ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[self._said])
        code = error_of(response)
        if code is not ErrorCode.NONE:
            raise ApiError(code)
        return response

    async def coordinator(self, _group: str) -> Any:
        return SimpleNamespace(id=1)


def described(code: ErrorCode, message: str | None) -> Any:
    return asyncio.run(Groups(cast("Cluster", Saying(code, message))).describe("g"))


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "You may not see all of its topics.", "may not see all of"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, None, "^GROUP_AUTHORIZATION_FAILED$"),
        # Where the group is now must be looked for, which is done by who gets the code.
        (ErrorCode.NOT_COORDINATOR, "It is elsewhere.", "^NOT_COORDINATOR$"),
    ],
)
def test_what_is_said_of_a_group_is_said_to_who_asked(
    code: ErrorCode, message: str | None, said: str
) -> None:
    with pytest.raises(ApiError, match=said) as raised:
        described(code, message)
    assert raised.value.code is code


def test_words_without_an_error_are_none() -> None:
    assert described(ErrorCode.NONE, "fine").members == ()
