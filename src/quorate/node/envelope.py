"""Requests that a broker forwards for a client: one inside another, with the client's name on it.

What brokers and controllers say in their own name is not forwarded, and refused if somebody tries.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from struct import Struct
from typing import Final

from quorate.net.routes import NoResponse, RequestContext, RouteTable
from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from quorate.protocol.api.brokers import EnvelopeRequest, EnvelopeResponse, UnregisterBrokerRequest
from quorate.protocol.api.quorum import AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DefaultPrincipalData,
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
)
from quorate.protocol.codec import decode
from quorate.protocol.errors import ErrorCode, ProtocolError
from quorate.protocol.frame import encode_response, open_envelope
from quorate.protocol.message import Request
from quorate.protocol.message import Struct as Part
from quorate.protocol.types import Buffer

__all__ = ["FORWARDED", "serve_envelope"]

# What clients ask of brokers, and brokers of the controller.
FORWARDED: Final[frozenset[type[Request]]] = frozenset(
    {
        AddRaftVoterRequest,
        AlterClientQuotasRequest,
        AlterConfigsRequest,
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
        IncrementalAlterConfigsRequest,
        ListPartitionReassignmentsRequest,
        RemoveRaftVoterRequest,
        RenewDelegationTokenRequest,
        UnregisterBrokerRequest,
        UpdateFeaturesRequest,
    }
)

_VERSION: Final = Struct(">h")


async def serve_envelope(
    context: RequestContext, envelope: EnvelopeRequest, routes: RouteTable
) -> EnvelopeResponse:
    """Answers what is inside as if the client itself had asked."""
    try:
        header, request = open_envelope(envelope)
        principal = _principal(envelope.request_principal)
    except ProtocolError as error:
        code = ErrorCode.UNSUPPORTED_VERSION if error.code is ErrorCode.UNSUPPORTED_VERSION else None
        return EnvelopeResponse(error_code=code or ErrorCode.INVALID_REQUEST)
    if type(request) not in FORWARDED:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    version = header.request_api_version
    handler = routes.handler(header.request_api_key, version)
    if handler is None:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    client = replace(context, principal=principal, client_id=header.client_id or "", is_forwarded=True)
    answer = handler(client, header, request)
    response = await answer if inspect.isawaitable(answer) else answer
    if isinstance(response, NoResponse):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if _is_of_a_standby(response):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)  # so that the broker asks another
    frame = encode_response(response, version, header.correlation_id)
    return EnvelopeResponse(response_data=bytes(frame[4:]), error_code=ErrorCode.NONE)


def _is_of_a_standby(part: Part) -> bool:
    """Whether an answer says NOT_CONTROLLER: as a whole, or about everything that was asked for, and so about
    the first of it."""
    for declared in part.__fields__:
        value = getattr(part, declared.name)
        if declared.name == "error_code" and value == ErrorCode.NOT_CONTROLLER:
            return True
        if isinstance(value, list) and value and isinstance(value[0], Part) and _is_of_a_standby(value[0]):
            return True
    return False


def _principal(data: Buffer | None) -> str:
    if data is None:
        return "User:ANONYMOUS"
    raw = bytes(data)
    if len(raw) < _VERSION.size or _VERSION.unpack_from(raw)[0] != 0:
        raise ProtocolError("EnvelopeRequest", 0, "request_principal", 0, "is not of version 0")
    found = decode(DefaultPrincipalData, 0, raw, _VERSION.size)
    return f"{found.type}:{found.name}"
