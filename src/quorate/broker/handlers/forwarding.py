"""What only the active controller can do: a broker passes it on in the client's name, and passes the answer
back.

A client may only be offered versions that the controller has as well, so ApiVersions answers with what both
serve (`limit_to_controller`). A client that asks in a version that the controller does not have, because
another one became active, is disconnected, and negotiates again.

Most requests are passed on as they are. Configurations of brokers are the exception: they are asked of the
broker that they are for, which says no to what it would not take.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, Protocol

from quorate.broker.serving import Broker
from quorate.controller.config_descriptions import BROKER_LOGGER
from quorate.controller.refusals import refusal
from quorate.metadata.image import BROKER
from quorate.net.routes import Handler, RequestContext, Route, RouteTable, route_id
from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
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

# Passed on as they are. Beside them, configurations: see `Forwarding`.
_AS_THEY_ARE: Final[tuple[type[Request], ...]] = (
    AddRaftVoterRequest,
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ExpireDelegationTokenRequest,
    ListPartitionReassignmentsRequest,
    RemoveRaftVoterRequest,
    RenewDelegationTokenRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
FORWARDED: Final[tuple[type[Request], ...]] = (
    *_AS_THEY_ARE,
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
)

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
    """`routes` are everything that is passed on. `static` are a broker's keys that only its file can set."""

    def __init__(self, broker: Broker, forwarder: Forwarder, static: Container[str] = ()) -> None:
        self._broker = broker
        self._forwarder = forwarder
        self._static = static

    def routes(self) -> list[Route]:
        return [
            *(Route(one, self.forward) for one in _AS_THEY_ARE),
            Route(AlterConfigsRequest, self.alter_configs),
            Route(IncrementalAlterConfigsRequest, self.alter_configs),
        ]

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

    async def alter_configs(
        self,
        context: RequestContext,
        header: RequestHeader,
        request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    ) -> Response:
        """Configurations of another broker, those that cannot change while it runs, and levels of loggers
        are refused; the rest is passed on."""
        objections = [(one, self._objection(one)) for one in request.resources]
        passed_on = [one for one, objection in objections if objection is None]
        answers: list[Any] = [
            refusal(_with(request, [one]), ApiError(ErrorCode.INVALID_REQUEST, objection), 0)
            for one, objection in objections
            if objection is not None
        ]
        if passed_on or not answers:
            answers.insert(0, await self.forward(context, header, _with(request, passed_on)))
        response: AlterConfigsResponse | IncrementalAlterConfigsResponse = answers[0]
        response.responses = [one for answer in answers for one in answer.responses]
        return response

    def _objection(
        self,
        resource: AlterConfigsRequest.Resource | IncrementalAlterConfigsRequest.AlterConfigsResource,
    ) -> str | None:
        kind, name, me = resource.resource_type, resource.resource_name, self._broker.settings.broker_id
        if kind == BROKER and name not in ("", str(me)):
            return f"this is broker {me}: what is set for broker {name} must be asked of that one"
        fixed = [one.name for one in resource.configs if one.value is not None and one.name in self._static]
        if kind == BROKER and fixed:
            return f"{', '.join(fixed)}: allowed is to set it in the file of a broker, not while it runs"
        if kind == BROKER_LOGGER:
            return "the levels of loggers are not set over this protocol"
        return None


def _with(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest, resources: Sequence[Any]
) -> AlterConfigsRequest | IncrementalAlterConfigsRequest:
    """The same for some of the resources."""
    return type(request)(resources=list(resources), validate_only=request.validate_only)


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
