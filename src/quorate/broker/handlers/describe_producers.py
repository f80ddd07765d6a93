"""DescribeProducers: the producers of a partition, as its leader or any other replica remembers them.

Operators look here for a transaction that hangs: it is open at a partition, and no coordinator knows of it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from quorate.broker.handlers.whereabouts import replica_named
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.net.many import answers_for_each
from quorate.net.routes import Answer, RequestContext, Route
from quorate.net.slices import Work, in_slices
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.transactions import DescribeProducersRequest, DescribeProducersResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.producer_state import ProducerState

__all__ = ["DescribingProducers"]

_ANSWER_BYTES: Final = 40  # what is said of a partition, if that is that there is none

TopicResponse = DescribeProducersResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse


class DescribingProducers:
    """Answers DescribeProducers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        return [Route(DescribeProducersRequest, self.describe_producers)]

    def describe_producers(
        self, context: RequestContext, _header: RequestHeader, request: DescribeProducersRequest
    ) -> Answer | Awaitable[Answer]:
        context.expect(_ANSWER_BYTES * sum(len(one.partition_indexes) for one in request.topics))
        return in_slices(self._answers(context, request))

    def _answers(
        self, context: RequestContext, request: DescribeProducersRequest
    ) -> Work[DescribeProducersResponse]:
        topics = []
        kind = PartitionResponse, DescribeProducersResponse, 0
        for topic in request.topics:
            describe = partial(self._answer, context, topic.name)
            answers = yield from answers_for_each(context, topic.partition_indexes, describe, kind, int)
            topics.append(TopicResponse(name=topic.name, partitions=answers))
            yield None
        return DescribeProducersResponse(throttle_time_ms=0, topics=topics)

    def _answer(self, context: RequestContext, topic: str, partition_id: int) -> PartitionResponse:
        answer = PartitionResponse(partition_index=partition_id, error_code=0, active_producers=[])
        try:
            if not self._broker.authorize(context, Operation.READ, ResourceKind.TOPIC, topic):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "this takes READ on the topic")
            answer.active_producers = self._producers(topic, partition_id)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.message
        return answer

    def _producers(self, topic: str, partition_id: int) -> list[PartitionResponse.ProducerState]:
        partition = replica_named(self._broker, topic, partition_id)
        partition.check_epoch(-1)  # it is not offline
        return [_described(one) for one in partition.log.producers]


def _described(producer: ProducerState) -> PartitionResponse.ProducerState:
    first_offset = producer.transaction_first_offset
    return PartitionResponse.ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=-1 if first_offset is None else first_offset,
    )
