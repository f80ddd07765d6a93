"""InitProducerId: an id for every producer that wants to be idempotent.

Ids come from the controller in blocks. The next block is asked for when most of the present one is used, so
that producers do not wait for it. While there is none they wait a moment, and are then told to come again.
With a transactional id there is none to be had, and the error is one that no client tries again after.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.net.client import ConnectionLost
from quorate.net.routes import Answer, RequestContext
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.transactions import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["NO_TRANSACTIONS", "InitProducerIdHandler", "ProducerIds"]

NO_TRANSACTIONS: Final = "there are no transactions here yet: produce without a transactional id"

PREFETCH_AT: Final = 0.9  # of a block
RETRY_MS: Final = 50
WAIT_MS_MAX: Final = 1000

_NO_ID: Final = -1
_NO_EPOCH: Final = -1


class ProducerIds:
    """The ids that this broker may give away."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next_id = self._end = 0
        self._prefetch_from = 0
        self._following: range | None = None
        self._asking: asyncio.Task[None] | None = None
        self._ask_not_before_ms = 0.0

    def take(self) -> int | None:
        """An id that nobody has had; None if there is none now."""
        if self._next_id == self._end and self._following is not None:
            block, self._following = self._following, None
            self._next_id, self._end = block.start, block.stop
            self._prefetch_from = block.start + int(len(block) * PREFETCH_AT)
        found = self._next_id if self._next_id < self._end else None
        if found is not None:
            self._next_id += 1
        if self._next_id >= self._prefetch_from and self._following is None:
            self.prefetch()
        return found

    def prefetch(self) -> asyncio.Task[None] | None:
        """Asks for a block, unless that is being done, or has just failed. What to wait for."""
        if self._asking is None and self._broker.now_ms() >= self._ask_not_before_ms:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return self._asking

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        try:
            self._following = await self._broker.control_plane.allocate_producer_ids()
        except (ApiError, ConnectionLost) as error:
            self._ask_not_before_ms = self._broker.now_ms() + RETRY_MS
            logger = logging.getLogger(f"quorate.broker.{self._broker.settings.broker_id}")
            logger.info("no producer ids reason=%s", error)
        finally:
            self._asking = None


class InitProducerIdHandler:
    """Answers InitProducerId."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.ids = ProducerIds(broker)

    def __call__(
        self, context: RequestContext, _header: RequestHeader, request: InitProducerIdRequest
    ) -> Answer | Awaitable[Answer]:
        error = self._refusal(context, request)
        if error is not None:
            return _refused(error)
        producer_id = self.ids.take()
        if producer_id is None:
            asking = self.ids.prefetch()
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if asking is None else self._wait(asking)
        return _given(producer_id)

    def _refusal(self, context: RequestContext, request: InitProducerIdRequest) -> ErrorCode | None:
        authorize, transactional_id = self._broker.authorize, request.transactional_id
        if transactional_id is None:
            if not authorize(
                context, Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER, "kafka-cluster"
            ) and not authorize(context, Operation.WRITE, ResourceKind.TOPIC, "*"):
                return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif transactional_id:  # an empty one is no name
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if (request.producer_id == _NO_ID) != (request.producer_epoch == _NO_EPOCH):
            return ErrorCode.INVALID_REQUEST
        return None if transactional_id is None else ErrorCode.INVALID_REQUEST

    async def _wait(self, asking: asyncio.Task[None]) -> Answer:
        await asyncio.wait([asking], timeout=WAIT_MS_MAX / 1000)
        producer_id = self.ids.take()
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return _given(producer_id)


def _given(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=error, producer_id=_NO_ID, producer_epoch=_NO_EPOCH
    )
