"""Producer ids, which are given to brokers in blocks and never twice."""

from __future__ import annotations

from typing import Final

from quorate.controller.decision import Decision, Situation
from quorate.metadata.records import ProducerIdsRecord
from quorate.protocol.api.brokers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["BLOCK_SIZE", "decide_allocate_producer_ids"]

BLOCK_SIZE: Final = 1000
_INT64_MAX: Final = (1 << 63) - 1


def decide_allocate_producer_ids(situation: Situation, request: AllocateProducerIdsRequest) -> Decision:
    """The next block. One whose reply is lost is lost as well; there are enough."""
    broker = situation.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        registered = "is not registered" if broker is None else f"is registered at epoch {broker.epoch}"
        reason = f"broker {request.broker_id} sent epoch {request.broker_epoch}, but it {registered}"
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, reason)
    first = situation.image.next_producer_id
    if first > _INT64_MAX - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"all producer ids up to {first} are used up")
    record = ProducerIdsRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=first + BLOCK_SIZE
    )
    reply = AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id_start=first, producer_id_len=BLOCK_SIZE
    )
    return Decision(reply=reply, records=[record])
