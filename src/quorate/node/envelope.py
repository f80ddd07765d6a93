"""Requests that a broker forwards for a client: one inside another, with the client's name on it."""

from __future__ import annotations

import inspect
from dataclasses import replace
from struct import Struct
from typing import Final

from quorate.net.routes import NO_RESPONSE, RequestContext, RouteTable
from quorate.protocol.api.brokers import EnvelopeRequest, EnvelopeResponse
from quorate.protocol.api.security import DefaultPrincipalData
from quorate.protocol.codec import decode
from quorate.protocol.errors import ErrorCode, ProtocolError
from quorate.protocol.frame import encode_response, open_envelope
from quorate.protocol.types import Buffer

__all__ = ["serve_envelope"]

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
    version = header.request_api_version
    handler = routes.handler(header.request_api_key, version)
    if handler is None:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    client = replace(context, principal=principal, client_id=header.client_id or "")
    answer = handler(client, header, request)
    response = await answer if inspect.isawaitable(answer) else answer
    if response is NO_RESPONSE:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)  # so that the broker asks another
    frame = encode_response(response, version, header.correlation_id)
    return EnvelopeResponse(response_data=bytes(frame[4:]), error_code=ErrorCode.NONE)


def _principal(data: Buffer | None) -> str:
    if data is None:
        return "User:ANONYMOUS"
    raw = bytes(data)
    if len(raw) < _VERSION.size or _VERSION.unpack_from(raw)[0] != 0:
        raise ProtocolError("EnvelopeRequest", 0, "request_principal", 0, "is not of version 0")
    found = decode(DefaultPrincipalData, 0, raw, _VERSION.size)
    return f"{found.type}:{found.name}"
