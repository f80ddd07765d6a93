"""What a controller's listener serves, and who answers it.

Three kinds: what replicas of the log say to each other goes to the replica; what changes the cluster goes to
the active controller's desk; what only reads is answered here, from what is committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from quorate.broker import loggers
from quorate.controller.acls import describe_acls
from quorate.controller.config_descriptions import describe_resource, what_is_asked
from quorate.controller.decision import Asker
from quorate.controller.endpoint_types import EndpointType, refused_endpoint_type
from quorate.controller.reassignment import describe_reassignments
from quorate.controller.refusals import refusal
from quorate.controller.requests import DECISIONS
from quorate.controller.scram import describe_user_scram_credentials
from quorate.controller.settings import ControllerSettings
from quorate.controller.tokens import describe_tokens
from quorate.metadata.versions import KRAFT_VERSION
from quorate.net.many import answers_for_each
from quorate.net.no_sasl import NO_SASL
from quorate.net.routes import Answer, Features, Handler, RequestContext, Route, RouteTable
from quorate.net.slices import Work, in_slices
from quorate.node.cluster_state import ClusterState
from quorate.node.desk import Desk
from quorate.node.envelope import serve_envelope
from quorate.node.metrics import NodeMetrics
from quorate.node.replica import Replica
from quorate.protocol.api.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from quorate.protocol.api.brokers import EnvelopeRequest, EnvelopeResponse
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.api.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from quorate.protocol.api.security import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentialsRequest,
)
from quorate.protocol.api.topics import ListPartitionReassignmentsRequest
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response

__all__ = ["ControllerRoutes"]

_QUORUM_REQUESTS: Final[tuple[type[Request], ...]] = (
    VoteRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
_ACLS: Final[tuple[type[Request], ...]] = (CreateAclsRequest, DeleteAclsRequest)
_NO_AUTHORIZER: Final = ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


class ControllerRoutes:
    """Its `table` is what the listener serves."""

    def __init__(
        self,
        replica: Replica,
        desk: Desk,
        state: ClusterState,
        settings: ControllerSettings,
        metrics: NodeMetrics,
    ) -> None:
        self._replica = replica
        self._desk = desk
        self._state = state
        self._settings = settings
        routes = [Route(request, self._ask_quorum) for request in _QUORUM_REQUESTS]
        routes += [Route(request, self._ask_controller) for request in DECISIONS if request not in _ACLS]
        routes += [
            *NO_SASL,
            *(Route(request, self._alter_acls) for request in _ACLS),
            Route(EnvelopeRequest, self._open_envelope),
            Route(DescribeQuorumRequest, _described_quorum(replica)),
            Route(DescribeClusterRequest, self._describe_cluster),
            Route(DescribeConfigsRequest, self._describe_configs),
            Route(DescribeAclsRequest, _read(self._describe_acls)),
            Route(
                DescribeUserScramCredentialsRequest,
                _read(lambda one: describe_user_scram_credentials(state.image, one)),
            ),
            Route(DescribeDelegationTokenRequest, self._describe_tokens),
            Route(
                ListPartitionReassignmentsRequest,
                _read(lambda one: describe_reassignments(state.image, one)),
            ),
        ]
        counted = [Route(one.request, _counted(one.handler, metrics)) for one in routes]
        self.table = RouteTable(counted, self._features)

    async def _ask_quorum(
        self, _context: RequestContext, header: RequestHeader, request: Request
    ) -> Response:
        return await self._replica.ask(request, header.request_api_version)

    async def _ask_controller(
        self, context: RequestContext, header: RequestHeader, request: Request
    ) -> Response:
        return await self._desk.ask(request, _asker(context, header))

    async def _alter_acls(self, context: RequestContext, header: RequestHeader, request: Request) -> Response:
        if not self._settings.has_authorizer:
            return refusal(request, _NO_AUTHORIZER, header.request_api_version)
        return await self._ask_controller(context, header, request)

    def _describe_acls(self, request: DescribeAclsRequest) -> DescribeAclsResponse:
        if self._settings.has_authorizer:
            return describe_acls(self._state.image, request)
        return DescribeAclsResponse(
            throttle_time_ms=0,
            error_code=_NO_AUTHORIZER.code,
            error_message=_NO_AUTHORIZER.message,
            resources=[],
        )

    def _describe_configs(
        self, context: RequestContext, header: RequestHeader, request: DescribeConfigsRequest
    ) -> Answer | Awaitable[Answer]:
        def result(asked: DescribeConfigsRequest.Resource) -> DescribeConfigsResponse.Result:
            return describe_resource(self._state.image, self._settings, asked, request, loggers.levels)

        def work() -> Work[DescribeConfigsResponse]:
            kind = DescribeConfigsResponse.Result, DescribeConfigsResponse, header.request_api_version
            results = yield from answers_for_each(context, request.resources, result, kind, what_is_asked)
            return DescribeConfigsResponse(throttle_time_ms=0, results=results)

        return in_slices(work())

    async def _open_envelope(
        self, context: RequestContext, _header: RequestHeader, request: EnvelopeRequest
    ) -> EnvelopeResponse:
        return await serve_envelope(context, request, self.table)

    def _describe_tokens(
        self, context: RequestContext, header: RequestHeader, request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse:
        # Only owners and renewers see a token, until there are access rights that could say otherwise.
        situation = self._desk.situation(_asker(context, header))
        try:
            return describe_tokens(situation, request, lambda _: False)
        except ApiError as error:
            return DescribeDelegationTokenResponse(error_code=error.code, tokens=[], throttle_time_ms=0)

    def _describe_cluster(
        self, _context: RequestContext, header: RequestHeader, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        refused = refused_endpoint_type(request, header.request_api_version, EndpointType.CONTROLLER)
        if refused is not None:
            return refused
        quorum = self._replica.quorum
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            endpoint_type=EndpointType.CONTROLLER,
            cluster_id=self._replica.cluster_id,
            controller_id=quorum.leader_id,
            brokers=[
                DescribeClusterResponse.Broker(broker_id=voter.key.id, host=one.host, port=one.port)
                for voter in quorum.voters.latest
                for one in voter.endpoints[:1]
            ],
        )

    def _features(self) -> Features:
        """What ApiVersions says of features: that of the quorum comes from there, the others from the log."""
        levels = {
            **self._state.image.features,
            KRAFT_VERSION: self._replica.quorum.voters.kraft_version,
        }
        return Features(
            supported={name: range(low, high + 1) for name, (low, high) in self._settings.features.items()},
            finalized=dict(sorted(levels.items())),
            finalized_epoch=self._state.position.offset - 1,
        )


def _asker(context: RequestContext, header: RequestHeader) -> Asker:
    return Asker(header.request_api_version, context.principal, context.client_id, context.is_forwarded)


def _described_quorum(replica: Replica) -> Handler:
    return lambda _context, header, request: replica.describe(request, header.request_api_version)


def _read(describe: Callable[[Any], Response]) -> Handler:
    return lambda _context, _header, request: describe(request)


def _counted(handler: Handler, metrics: NodeMetrics) -> Handler:
    def count_and_handle(context: RequestContext, header: RequestHeader, request: Any) -> Any:
        metrics.requested(type(request))
        return handler(context, header, request)

    return count_and_handle
