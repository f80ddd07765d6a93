"""What only the active controller can do: a broker passes it on in the client's name, and passes the answer
back.

A client may only be offered versions that the controller has as well, so ApiVersions answers with what both
serve (`limit_to_controller`). A client that asks in a version that the controller does not have, because
another one became active, is disconnected, and negotiates again.

What was done to topics is told when this broker shows it as well (`own_view`).

Most requests are passed on as they are. What a broker has a say in itself goes through its own handlers:
configurations (`alter_configs`), access rights and tokens (`security`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from quorate.broker.handlers.own_view import OwnView
from quorate.controller.refusals import refusal
from quorate.net.routes import Handler, RequestContext, Route, RouteTable, route_id
from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from quorate.protocol.api.brokers import UnregisterBrokerRequest
from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse, RequestHeader
from quorate.protocol.api.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response

__all__ = ["FORWARDED", "Forwarder", "Forwarding", "limit_to_controller"]

_AS_THEY_ARE: Final[tuple[type[Request], ...]] = (
    AddRaftVoterRequest,
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
FORWARDED: Final[tuple[type[Request], ...]] = (
    *_AS_THEY_ARE,
    AlterConfigsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    ExpireDelegationTokenRequest,
    IncrementalAlterConfigsRequest,
    RenewDelegationTokenRequest,
)

_SHOWN: Final = (CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest)
_KEYS: Final = frozenset(one.__key__ for one in FORWARDED)


class Forwarder(Protocol):
    """The way to the active controller, as far as clients use it."""

    @property
    def controller_versions(self) -> Mapping[int, range] | None:
        """What it serves, by key; None as long as that is not known."""

    async def forward(
        self, request: Request, version: int, principal: str, client_id: str, client_host: str = ""
    ) -> Response:
        """Its answer. `ApiError` if there is none in time; UNSUPPORTED_VERSION if it has not this one."""


class Forwarding:
    """`routes` are the requests that are passed on as they are; other handlers use `forward`."""

    def __init__(self, forwarder: Forwarder, own_view: OwnView | None = None) -> None:
        """Without a view of its own, a broker answers as soon as the controller does."""
        self._forwarder = forwarder
        self._own_view = own_view

    def routes(self) -> list[Route]:
        return [Route(one, self._forward_and_show if one in _SHOWN else self.forward) for one in _AS_THEY_ARE]

    async def _forward_and_show(
        self, context: RequestContext, header: RequestHeader, request: Request
    ) -> Response:
        """Passes on what changes topics, and answers when the change is seen here."""
        if self._own_view is None:
            return await self.forward(context, header, request)
        loop = asyncio.get_running_loop()
        began, ids = loop.time(), self._own_view.ids_of(request)
        response = await self.forward(context, header, request)
        assert isinstance(request, _SHOWN)
        left_ms = request.timeout_ms - (loop.time() - began) * 1000
        await self._own_view.shows(request, response, ids, left_ms)
        return response

    async def forward(self, context: RequestContext, header: RequestHeader, request: Request) -> Response:
        version = header.request_api_version
        try:
            return await self._forwarder.forward(
                request, version, context.principal, context.client_id, context.client_host
            )
        except ApiError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise  # the client is disconnected
            return _refused(request, error, version)


def limit_to_controller(table: RouteTable, forwarder: Forwarder) -> None:
    """Of what is passed on, the ApiVersions of a table lists only what the active controller has as well."""
    for version in ApiVersionsRequest.__versions__:
        at = route_id(ApiVersionsRequest.__key__, version)
        handler, response_cls = table.by_route_id[at]
        table.by_route_id[at] = _limited(handler, forwarder), response_cls


def _limited(handler: Handler, forwarder: Forwarder) -> Handler:
    def answer(context: RequestContext, header: RequestHeader, request: Request) -> Any:
        response = handler(context, header, request)
        assert isinstance(response, ApiVersionsResponse)
        theirs = forwarder.controller_versions
        if theirs is not None:
            response.api_keys = [
                one for one in response.api_keys if one.api_key not in _KEYS or _is_common(one, theirs)
            ]
        return response

    return answer


def _is_common(ours: ApiVersionsResponse.ApiVersion, theirs: Mapping[int, range]) -> bool:
    """Narrows an entry to what both have; whether there is anything."""
    versions = theirs.get(ours.api_key, range(0))
    ours.min_version = max(ours.min_version, versions.start)
    ours.max_version = min(ours.max_version, versions.stop - 1)
    return ours.min_version <= ours.max_version


def _refused(request: Request, error: ApiError, version: int) -> Response:
    """The response that says that the active controller was not reached."""
    make = _REFUSALS.get(type(request))
    return refusal(request, error, version) if make is None else make(error)


# What a controller never refuses, or only as part of the quorum.
_REFUSALS: Final[Mapping[type[Request], Callable[[ApiError], Response]]] = {
    DescribeQuorumRequest: lambda error: DescribeQuorumResponse(
        error_code=error.code, error_message=error.message, topics=[]
    ),
    AddRaftVoterRequest: lambda error: AddRaftVoterResponse(
        throttle_time_ms=0, error_code=error.code, error_message=error.message
    ),
    RemoveRaftVoterRequest: lambda error: RemoveRaftVoterResponse(
        throttle_time_ms=0, error_code=error.code, error_message=error.message
    ),
    ListPartitionReassignmentsRequest: lambda error: ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=error.code, error_message=error.message, topics=[]
    ),
}
