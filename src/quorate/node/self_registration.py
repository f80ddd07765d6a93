"""A controller makes itself known: where it is and which features it knows, as a record in the log.

It asks the active controller, which may be itself, until the log says what it wants to say. The answer does
not matter: the record does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from quorate.controller.settings import ControllerSettings
from quorate.metadata.versions import CONTROLLER_REGISTRATION
from quorate.net.client import ConnectionLost
from quorate.net.connections import Backoff
from quorate.node.cluster_state import ClusterState
from quorate.node.host import Host
from quorate.protocol.api.brokers import ControllerRegistrationRequest
from quorate.protocol.errors import ApiError, ErrorCode, ProtocolError
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid
from quorate.raft.voters import Endpoint

__all__ = ["register_self"]

_BACKOFF: Final = Backoff(first_ms=100, max_ms=120_000)
_CHECK_S: Final = 0.2
_SEEN_S: Final = 1.0

AskActive = Callable[[Request], Awaitable[Response]]


async def register_self(
    host: Host,
    settings: ControllerSettings,
    incarnation_id: Uuid,
    endpoint: Endpoint,
    state: ClusterState,
    ask_active: AskActive,
) -> None:
    """Goes on for as long as the node runs: a log that was replaced may not have the record any more."""
    logger = logging.getLogger(f"quorate.node.{host.name}")
    request = ControllerRegistrationRequest(
        controller_id=settings.node_id,
        incarnation_id=incarnation_id,
        zk_migration_ready=False,
        listeners=[
            ControllerRegistrationRequest.Listener(
                name=endpoint.name, host=endpoint.host, port=endpoint.port, security_protocol=0
            )
        ],
        features=[
            ControllerRegistrationRequest.Feature(
                name=name, min_supported_version=lowest, max_supported_version=highest
            )
            for name, (lowest, highest) in settings.features.items()
        ],
    )
    failures = 0
    while True:
        await asyncio.sleep(_CHECK_S)
        image = state.image
        known = image.controllers.get(settings.node_id)
        if known is not None and known.incarnation_id == incarnation_id:
            failures = 0
            continue
        if image.metadata_version < CONTROLLER_REGISTRATION or state.leadership.leader_id is None:
            continue
        try:
            response = await ask_active(request)
            error = _error_in(response)
        except (ConnectionLost, ApiError, ProtocolError) as problem:
            error = getattr(problem, "code", ErrorCode.NETWORK_EXCEPTION)
        if error is ErrorCode.NONE:
            await asyncio.sleep(_SEEN_S)  # the record is on its way
        else:
            failures += 1
            delay_ms = _BACKOFF.delay_ms(failures, host.random)
            logger.info("not registered as a controller yet error=%s retry_ms=%d", error.name, delay_ms)
            await asyncio.sleep(delay_ms / 1000)


def _error_in(response: Response) -> ErrorCode:
    """What the active controller says; a later release may say what we do not know."""
    try:
        return ErrorCode(getattr(response, "error_code", 0))
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
