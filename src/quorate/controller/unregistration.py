"""An administrator makes the cluster forget a broker.

Nobody asks whether it is stopped, nor whether it still has replicas: lists of replicas keep its id until they
are reassigned. One that is alive learns from its next heartbeat that its epoch is stale, and must be started
anew to come back.
"""

from __future__ import annotations

from quorate.controller import fencing
from quorate.controller.decision import Decision, Situation, check_count
from quorate.controller.events import BrokerUnregistered
from quorate.protocol.api.brokers import UnregisterBrokerRequest, UnregisterBrokerResponse
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["decide_unregistration"]


def decide_unregistration(situation: Situation, request: UnregisterBrokerRequest) -> Decision:
    """Takes the broker out of everything that it is in sync or eligible for, then forgets it."""
    broker = situation.image.brokers.get(request.broker_id)
    if broker is None:
        registered = ", ".join(str(one) for one in sorted(situation.image.brokers)) or "none"
        reason = f"broker {request.broker_id} is not registered; registered are: {registered}"
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, reason)
    found = fencing.unregister(situation, broker.id)
    check_count(found.records)
    event = BrokerUnregistered(broker.id, broker.epoch, found.partitions, found.leaderless, found.unclean)
    sessions = situation.sessions
    return Decision(
        reply=UnregisterBrokerResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None),
        records=found.records,
        events=[event],
        then=lambda _: sessions.forget(broker.id),
    )
