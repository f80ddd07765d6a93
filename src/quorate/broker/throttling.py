"""What a request costs its client: put on account when there is an answer, which says how long to be quiet.

An answer leaves at once, whatever it says, and the connection is then not read from for as long (KIP-219):
see `net.conversation`. Whoever is told to wait by several quotas waits for the longest.

- The bytes of a Produce count when it is answered, with acks=0 as well.
- The time of a handler counts as percent of a second. Exempt is what brokers ask of each other, and Produce
  with acks=0, whose client would not hear of it.
- Fetches are put on account by their handler (`charge_fetch`): a consumer that has had too much gets nothing.
- What the controller says of partitions that are created and deleted is passed on by the answer itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from quorate.broker.quotas import Quotas
from quorate.net.routes import NoResponse, RequestContext
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import FetchRequest, ProduceRequest
from quorate.protocol.api.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from quorate.protocol.api.transactions import WriteTxnMarkersRequest
from quorate.protocol.message import Request
from quorate.protocol.types import Buffer

__all__ = ["FetchCharge", "Throttling", "charge_fetch", "charge_produce", "produced_bytes"]

# Answered for by their handlers, or asked by brokers.
EXEMPT: Final[frozenset[type[Request]]] = frozenset({FetchRequest, WriteTxnMarkersRequest})
_MUTATIONS: Final = frozenset({CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest})

# What stands around the records of a request, about: in the newest versions, which name topics by ids.
_REQUEST_BYTES: Final = 22
_TOPIC_BYTES: Final = 18
_PARTITION_BYTES: Final = 8


class Throttling:
    """`settle` is told of every answer that a broker gives, and of the time that its handler took."""

    def __init__(self, quotas: Quotas, now_ms: Callable[[], float]) -> None:
        self._quotas = quotas
        self._now_ms = now_ms

    def settle(
        self, context: RequestContext, _header: RequestHeader, request: Any, answer: Any, local_ms: float
    ) -> None:
        quotas = self._quotas
        cls = request.__class__
        if cls in _MUTATIONS and answer.throttle_time_ms:
            quotas.mutations.add(answer.throttle_time_ms)
        if not quotas.request.is_set or cls in EXEMPT or isinstance(answer, NoResponse):
            return
        throttle_ms = quotas.request.charge(
            context.principal, context.client_id, local_ms / 10, self._now_ms()
        )
        if throttle_ms > getattr(answer, "throttle_time_ms", throttle_ms):
            quotas.request.throttles.add(throttle_ms)
            answer.throttle_time_ms = throttle_ms


def charge_produce(quotas: Quotas, context: RequestContext, request: ProduceRequest, now_ms: float) -> int:
    """For how long a producer is to be quiet after this request."""
    quota = quotas.produce
    if not quota.is_set:
        return 0
    size_bytes = produced_bytes(request) + len(context.client_id)
    throttle_ms = quota.charge(context.principal, context.client_id, size_bytes, now_ms)
    if throttle_ms:
        quota.throttles.add(throttle_ms)
    return throttle_ms


def produced_bytes(request: ProduceRequest) -> int:
    """The size of a request, to within a few bytes."""
    size_bytes = _REQUEST_BYTES
    for topic in request.topic_data:
        size_bytes += _TOPIC_BYTES + len(topic.name)
        for one in topic.partition_data:
            records = cast("Buffer | None", one.records)
            size_bytes += _PARTITION_BYTES + (0 if records is None else len(records))
    return size_bytes


class FetchCharge(NamedTuple):
    """For how long a consumer is to be quiet, and whether it gets nothing instead of what it asked for."""

    throttle_ms: int
    is_withheld: bool


def charge_fetch(
    quotas: Quotas, context: RequestContext, size_bytes: int, local_ms: float, now_ms: float
) -> FetchCharge:
    """What a consumer does not get does not count.

    One batch may be more than the quota allows for the whole window: it is given to whoever has had nothing
    else, and waited for afterwards, or its reader would never get past it. (Apache's would not.)
    """
    principal, client_id = context.principal, context.client_id
    bytes_ms = quotas.fetch.charge(principal, client_id, size_bytes, now_ms)
    time_ms = quotas.request.charge(principal, client_id, local_ms / 10, now_ms)
    throttle_ms = max(bytes_ms, time_ms)
    if not throttle_ms:
        return FetchCharge(0, is_withheld=False)
    (quotas.fetch if bytes_ms > time_ms else quotas.request).throttles.add(throttle_ms)
    if bytes_ms and quotas.fetch.has_used_no_more(principal, client_id, size_bytes, now_ms):
        return FetchCharge(throttle_ms, is_withheld=False)
    quotas.fetch.give_back(principal, client_id, size_bytes, now_ms)
    return FetchCharge(throttle_ms, is_withheld=True)
