"""What a listener without SASL says to those who want to authenticate themselves: nobody is asked to.

Without an answer a client would connect again and again; with this one it gives up, and says why.
"""

from __future__ import annotations

from typing import Final

from quorate.net.routes import RequestContext, Route
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from quorate.protocol.errors import ErrorCode

__all__ = ["NO_SASL"]


def _no_mechanisms(
    _context: RequestContext, _header: RequestHeader, _request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def _not_now(
    _context: RequestContext, _header: RequestHeader, _request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )


NO_SASL: Final = (Route(SaslHandshakeRequest, _no_mechanisms), Route(SaslAuthenticateRequest, _not_now))
