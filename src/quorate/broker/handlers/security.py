"""Access rights and delegation tokens, as far as they mean anything.

Without an authorizer there are no rights that anybody would look at: whoever asks for some is told so, and
does not believe that something is protected now. Tokens stand for somebody who has shown who they are, so
they are not given to those who have not.
"""

from __future__ import annotations

from typing import Final

from quorate.broker.handlers.forwarding import Forwarding
from quorate.broker.handlers.metadata import CLUSTER_NAME
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.controller.acls import describe_acls
from quorate.controller.refusals import refusal
from quorate.net.routes import RequestContext, Route
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.security import (
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response

__all__ = ["Security"]

_REQUESTER_SINCE: Final = 3  # in the answer to whoever wants a token

ANONYMOUS: Final = "User:ANONYMOUS"

_DISABLED: Final = ApiError(ErrorCode.SECURITY_DISABLED, "No authorizer is configured")
_NOT_ALLOWED: Final = ApiError(
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "tokens are for those who have authenticated themselves"
)


class Security:
    """`routes` are the requests about rights and tokens."""

    def __init__(self, broker: Broker, forwarding: Forwarding) -> None:
        self._broker = broker
        self._forwarding = forwarding

    def routes(self) -> list[Route]:
        return [
            Route(DescribeAclsRequest, self.describe_acls),
            Route(CreateAclsRequest, self.alter_acls),
            Route(DeleteAclsRequest, self.alter_acls),
            Route(CreateDelegationTokenRequest, self.alter_tokens),
            Route(RenewDelegationTokenRequest, self.alter_tokens),
            Route(ExpireDelegationTokenRequest, self.alter_tokens),
            Route(DescribeDelegationTokenRequest, self.describe_tokens),
        ]

    def describe_acls(
        self, context: RequestContext, _header: RequestHeader, request: DescribeAclsRequest
    ) -> DescribeAclsResponse:
        error = None
        if not self._broker.settings.has_authorizer:
            error = _DISABLED
        elif not self._broker.authorize(context, Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
            error = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "this takes DESCRIBE")
        if error is None:
            return describe_acls(self._broker.image, request)
        return DescribeAclsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, resources=[]
        )

    async def alter_acls(self, context: RequestContext, header: RequestHeader, request: Request) -> Response:
        if not self._broker.settings.has_authorizer:
            return refusal(request, _DISABLED, header.request_api_version)
        return await self._forwarding.forward(context, header, request)

    async def alter_tokens(
        self, context: RequestContext, header: RequestHeader, request: Request
    ) -> Response:
        if context.principal == ANONYMOUS:
            refused = refusal(request, _NOT_ALLOWED, header.request_api_version)
            if isinstance(refused, CreateDelegationTokenResponse):
                _say_who(refused, context.principal, header.request_api_version)
            return refused
        return await self._forwarding.forward(context, header, request)

    def describe_tokens(
        self, context: RequestContext, _header: RequestHeader, _request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse:
        """This broker takes no token as a proof of anything, and so it tells of none."""
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        if context.principal == ANONYMOUS:
            code = _NOT_ALLOWED.code
        return DescribeDelegationTokenResponse(error_code=code, tokens=[], throttle_time_ms=0)


def _say_who(response: CreateDelegationTokenResponse, principal: str, version: int) -> None:
    """Whose token it would have been."""
    kind, _, name = principal.partition(":")
    response.principal_type, response.principal_name = kind, name
    if version >= _REQUESTER_SINCE:
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
