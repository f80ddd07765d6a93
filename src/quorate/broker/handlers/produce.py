"""Produce: batches of clients into the logs that we lead.

Each partition of a request has its own outcome, and what fails for one holds up no other. With acks=0 nobody
is answered, so the only way to say that something failed is to close the connection. With acks=1 the answer
is there as soon as the batches are in our log; with acks=-1 it waits until all of them are committed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, cast

from quorate.broker.admission import RefusedRecordsError, check_form
from quorate.broker.handlers.topic_creation import INTERNAL_TOPICS
from quorate.broker.handlers.whereabouts import Leaders, replica_by_id, replica_named
from quorate.broker.partition import Appended, Partition
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.broker.throttling import charge_produce
from quorate.broker.waiting import CommitWait
from quorate.net.routes import NO_RESPONSE, Answer, NoResponse, RequestContext
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import ProduceRequest, ProduceResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID, Buffer, Uuid
from quorate.storage.errors import StorageError

__all__ = ["ProduceHandler"]

MAY_WRITE_INTERNAL_TOPICS: Final = "__admin_client"  # a client id

ALL: Final = -1
NOBODY: Final = 0
_ACKS: Final = frozenset({ALL, NOBODY, 1})

_TOPIC_IDS_SINCE: Final = 13
_LEADERS_SINCE: Final = 10

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse


class _Batch:
    """What a request has for one partition, and what became of it."""

    __slots__ = ("appended", "data", "error", "is_transactional", "malformed", "partition", "partition_id")

    def __init__(self, partition_id: int, records: Buffer | None, version: int) -> None:
        self.partition_id = partition_id
        self.partition: Partition | None = None
        self.appended: Appended | None = None
        self.error: ApiError | None = None
        self.malformed: ApiError | None = None
        self.is_transactional = False
        self.data = memoryview(b"" if records is None else records)
        try:
            self.is_transactional = check_form(self.data, version)
        except ApiError as error:
            self.malformed = error


class _Topic:
    """The batches for one topic. It is called by its id if it has one; its name may be unknown, then."""

    __slots__ = ("batches", "id", "is_writable", "name")

    def __init__(self, name: str, topic_id: Uuid | None, batches: list[_Batch], *, is_writable: bool) -> None:
        self.name = name
        self.id = topic_id
        self.batches = batches
        self.is_writable = is_writable


class ProduceHandler:
    """Answers Produce."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(
        self, context: RequestContext, header: RequestHeader, request: ProduceRequest
    ) -> Answer | Awaitable[Answer]:
        version, acks = header.request_api_version, request.acks
        topics = self._topics(context, version, request)
        refusal = self._refusal(context, request.transactional_id, topics)
        for topic in topics:
            for batch in topic.batches:
                try:
                    self._append(context, topic, batch, acks, refusal)
                except ApiError as error:
                    batch.error = error
        if acks == NOBODY:
            for topic in topics:
                for batch in topic.batches:
                    if batch.error is not None:
                        raise batch.error
            throttle_ms = self._charge(context, request)
            return NoResponse(throttle_ms) if throttle_ms else NO_RESPONSE
        if acks == ALL:
            waiting = _not_committed(topics)
            if waiting:
                return self._when_committed(context, version, request, topics, waiting)
        return self._answer(context, version, request, topics)

    def _charge(self, context: RequestContext, request: ProduceRequest) -> int:
        quotas = self._broker.quotas
        if not quotas.produce.is_set:
            return 0
        return charge_produce(quotas, context, request, self._broker.now_ms())

    def _topics(self, context: RequestContext, version: int, request: ProduceRequest) -> list[_Topic]:
        broker, found = self._broker, []
        for topic in request.topic_data:
            name, topic_id = topic.name, None
            if version >= _TOPIC_IDS_SINCE:
                topic_id = topic.topic_id
                known = broker.image.topics.by_id.get(topic_id)
                name = "" if known is None else known.name
            batches = [
                _Batch(one.index, cast("Buffer | None", one.records), version) for one in topic.partition_data
            ]
            # Of a topic that nobody knows, everybody may know that it is not there.
            is_writable = not name or broker.authorize(context, Operation.WRITE, ResourceKind.TOPIC, name)
            found.append(_Topic(name, topic_id, batches, is_writable=is_writable))
        return found

    def _refusal(
        self, context: RequestContext, transactional_id: str | None, topics: list[_Topic]
    ) -> ApiError | None:
        """Why nothing of the request is taken, if a transaction is in it that is not the asker's."""
        if not any(batch.is_transactional for topic in topics for batch in topic.batches):
            return None
        if transactional_id is not None and self._broker.authorize(
            context, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id
        ):
            return None
        reason = "transactional records of a producer without a transactional id that it may use"
        return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason)

    def _append(
        self, context: RequestContext, topic: _Topic, batch: _Batch, acks: int, refusal: ApiError | None
    ) -> None:
        """Appends a batch, if it may be. What is wrong is said in Kafka's order."""
        if refusal is not None:
            raise refusal
        if not topic.is_writable:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        not_here = self._find(topic, batch)
        if batch.malformed is not None:
            raise batch.malformed
        if acks not in _ACKS:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}")
        if topic.name in INTERNAL_TOPICS and context.client_id != MAY_WRITE_INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is not for clients")
        if batch.partition is None:
            assert not_here is not None
            raise not_here
        try:
            batch.appended = batch.partition.append(batch.data, acks)
        except StorageError as error:
            self._broker.replicas.offline(batch.partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _find(self, topic: _Topic, batch: _Batch) -> ApiError | None:
        """Finds our replica; says if there is none, unless there is no such partition at all."""
        try:
            if topic.id is None:
                batch.partition = replica_named(self._broker, topic.name, batch.partition_id)
            else:
                batch.partition = replica_by_id(self._broker, topic.id, batch.partition_id)
        except ApiError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return error
            raise
        return None

    async def _when_committed(
        self,
        context: RequestContext,
        version: int,
        request: ProduceRequest,
        topics: list[_Topic],
        waiting: list[_Batch],
    ) -> Answer:
        wait = CommitWait(len(waiting), request.timeout_ms)
        try:
            for number, batch in enumerate(waiting):
                assert batch.partition is not None
                assert batch.appended is not None
                batch.partition.when_committed(batch.appended.last_offset, wait, number)
            await wait.done
        finally:
            wait.end()
        for number, code in wait.errors.items():
            waiting[number].error = _not_committed_because(code)
        return self._answer(context, version, request, topics)

    def _answer(
        self, context: RequestContext, version: int, request: ProduceRequest, topics: list[_Topic]
    ) -> ProduceResponse:
        leaders = Leaders(self._broker, context.listener)
        has_leaders = version >= _LEADERS_SINCE
        responses = []
        for topic in topics:
            answers = []
            for batch in topic.batches:
                error, appended = batch.error, batch.appended
                log_start_offset = -1 if batch.partition is None else batch.partition.log.start_offset
                if error is None:
                    assert appended is not None
                    answers.append(
                        PartitionAnswer(
                            index=batch.partition_id,
                            error_code=0,
                            base_offset=appended.base_offset,
                            log_append_time_ms=appended.log_append_time_ms,
                            log_start_offset=log_start_offset,
                        )
                    )
                    continue
                answer = _refused(batch.partition_id, error, log_start_offset)
                if has_leaders and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader = leaders.of(topic.name, batch.partition_id)
                    if leader is not None:
                        answer.current_leader = PartitionAnswer.LeaderIdAndEpoch(
                            leader_id=leader.broker_id, leader_epoch=leader.epoch
                        )
                answers.append(answer)
            responses.append(
                TopicAnswer(name=topic.name, topic_id=topic.id or ZERO_UUID, partition_responses=answers)
            )
        return ProduceResponse(
            responses=responses,
            throttle_time_ms=self._charge(context, request),
            node_endpoints=leaders.endpoints(ProduceResponse.NodeEndpoint),
        )


def _not_committed(topics: list[_Topic]) -> list[_Batch]:
    """The batches that were appended and are yet to be committed. What the others came to is noted."""
    waiting = []
    for topic in topics:
        for batch in topic.batches:
            if batch.appended is not None:
                assert batch.partition is not None
                outcome = batch.partition.committed(batch.appended.last_offset)
                if outcome is None:
                    waiting.append(batch)
                elif outcome is not ErrorCode.NONE:
                    batch.error = _not_committed_because(outcome)
    return waiting


def _not_committed_because(code: ErrorCode) -> ApiError:
    return ApiError(code, "it was appended, and may or may not be committed")


def _refused(partition_id: int, error: ApiError, log_start_offset: int) -> PartitionAnswer:
    record_errors = error.records if isinstance(error, RefusedRecordsError) else ()
    return PartitionAnswer(
        index=partition_id,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=log_start_offset,
        record_errors=[
            PartitionAnswer.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in record_errors
        ],
        error_message=error.message or None,
    )
