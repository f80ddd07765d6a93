"""FindCoordinator: who coordinates a group or a transactional id.

Nobody does as yet, and whoever asks is told to ask again later. It is served nevertheless: librdkafka takes
it for a sign of what a broker understands, and compresses with lz4 only for those who have it.
"""

from __future__ import annotations

from typing import Final

from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.net.routes import RequestContext
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.errors import ErrorCode

__all__ = ["FindCoordinatorHandler"]

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_MANY_SINCE: Final = 4
_SHARES_SINCE: Final = 6
_NOBODY: Final = -1


class FindCoordinatorHandler:
    """Answers FindCoordinator."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(
        self, context: RequestContext, header: RequestHeader, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        version = header.request_api_version
        keys = list(request.coordinator_keys) if version >= _MANY_SINCE else [request.key]
        codes = [self._code(context, version, request.key_type, key) for key in keys]
        if version < _MANY_SINCE:
            return FindCoordinatorResponse(
                error_code=codes[0], error_message=codes[0].name, node_id=_NOBODY, host="", port=_NOBODY
            )
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=_NOBODY, host="", port=_NOBODY, error_code=code, error_message=code.name
                )
                for key, code in zip(keys, codes, strict=True)
            ]
        )

    def _code(self, context: RequestContext, version: int, kind: int, key: str) -> ErrorCode:
        authorize = self._broker.authorize
        if kind == _TRANSACTION:
            if not authorize(context, Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, key):
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif kind == _GROUP:
            if not authorize(context, Operation.DESCRIBE, ResourceKind.GROUP, key):
                return ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif kind != _SHARE or version < _SHARES_SINCE:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
