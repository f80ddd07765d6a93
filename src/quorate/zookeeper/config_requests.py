"""Requests that change configurations, quotas and credentials: any broker answers them, for they are written
to znodes that all brokers watch. What may be written is decided as in KRaft mode."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from quorate.controller.client_quotas import decide_alter_client_quotas
from quorate.controller.configs import decide_alter_configs, decide_incremental_alter_configs
from quorate.controller.decision import Decision, Situation
from quorate.controller.scram import decide_alter_user_scram_credentials
from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from quorate.protocol.api.security import AlterUserScramCredentialsRequest
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Record, Request, Response
from quorate.zookeeper.config_changes import ConfigChanges
from quorate.zookeeper.config_entities import changes_by_path
from quorate.zookeeper.errors import MalformedZnode, ZooKeeperError
from quorate.zookeeper.session import Session

__all__ = ["WRITTEN_BY_ANYBODY", "write_configs"]

WRITTEN_BY_ANYBODY: Final[Mapping[type[Request], Callable[[Situation, Any], Decision]]] = {
    AlterClientQuotasRequest: decide_alter_client_quotas,
    AlterConfigsRequest: decide_alter_configs,
    AlterUserScramCredentialsRequest: decide_alter_user_scram_credentials,
    IncrementalAlterConfigsRequest: decide_incremental_alter_configs,
}

_logger = logging.getLogger("quorate.zookeeper")


async def write_configs(
    session: Session, configs: ConfigChanges, situation: Situation, request: Request
) -> Response:
    """The answer, once the nodes are written. This broker hears of it as all others do."""
    decision = WRITTEN_BY_ANYBODY[type(request)](situation, request)
    assert decision.reply is not None
    records = [one for one in decision.records if isinstance(one, Record)]
    try:
        for entity_path, changes in changes_by_path(records).items():
            await configs.write(session, entity_path, changes)
    except (ZooKeeperError, MalformedZnode) as error:
        _logger.error("a configuration could not be written: %s", error)
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    return decision.reply
