"""Produce: batches of clients into the logs that we lead.

Each partition of a request has its own outcome, and what fails for one holds up no other. With acks=0 nobody
is answered, so the only way to say that something failed is to close the connection. With acks=1 the answer
is there as soon as the batches are in our log; with acks=-1 it waits until all of them are committed.

A producer with several requests under way sends them faster than they can be handled one by one, so what it
has sent for a partition is written at once for all requests that came together (`series`): those with acks=1,
and those with acks=-1 where nobody has to be waited for because nobody else has a replica.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Final, cast

from quorate.broker.admission import RefusedRecordsError, check_form
from quorate.broker.handlers.produce_plain import PlainForms, PlainProduce
from quorate.broker.handlers.producer_ids import NO_TRANSACTIONS
from quorate.broker.handlers.topic_creation import INTERNAL_TOPICS
from quorate.broker.handlers.whereabouts import Leaders, replica_by_id, replica_named
from quorate.broker.partition import Appended, Partition
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.broker.throttling import charge_produce
from quorate.broker.waiting import CommitWait
from quorate.net.eventual import afterwards
from quorate.net.routes import NO_RESPONSE, Answer, NoResponse, RequestContext, Series
from quorate.net.shortcuts import Shortcut
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import ProduceRequest, ProduceResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.inflated import Inflated
from quorate.protocol.types import ZERO_UUID, Buffer, Uuid
from quorate.storage.errors import StorageError

__all__ = ["Batch", "ProduceHandler"]

MAY_WRITE_INTERNAL_TOPICS: Final = "__admin_client"  # a client id

ALL: Final = -1
NOBODY: Final = 0
_ACKS: Final = frozenset({ALL, NOBODY, 1})

_TOPIC_IDS_SINCE: Final = 13
_LEADERS_SINCE: Final = 10

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse


class Batch:
    """What a request has for one partition, and what became of it."""

    __slots__ = ("appended", "data", "error", "is_transactional", "malformed", "partition", "partition_id")

    def __init__(self, partition_id: int, records: Buffer | None, version: int) -> None:
        self.partition_id = partition_id
        self.partition: Partition | None = None
        self.appended: Appended | None = None
        self.error: ApiError | None = None
        self.malformed: ApiError | None = None
        self.is_transactional = False
        self.data = records if records.__class__ is memoryview else memoryview(records or b"")
        try:
            self.is_transactional = check_form(self.data, version)
        except ApiError as error:
            self.malformed = error.with_traceback(None)  # as of all errors that are kept

    def forget_data(self) -> None:
        """The memory that it lies in is somebody else's from now on."""
        self.data = memoryview(b"")


class _Topic:
    """The batches for one topic. It is called by its id if it has one; its name may be unknown, then."""

    __slots__ = ("batches", "id", "is_writable", "name")

    def __init__(self, name: str, topic_id: Uuid | None, batches: list[Batch], *, is_writable: bool) -> None:
        self.name = name
        self.id = topic_id
        self.batches = batches
        self.is_writable = is_writable


class ProduceHandler:
    """Answers Produce."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.series = Series(self._is_answered_at_once, self._answer_several)
        self._forms = PlainForms()

    def shortcut(self) -> Shortcut:
        """For a connection."""
        return PlainProduce(self, self._broker, self._forms)

    def __call__(
        self, context: RequestContext, header: RequestHeader, request: ProduceRequest
    ) -> Answer | Awaitable[Answer]:
        version, acks = header.request_api_version, request.acks
        topics = self._topics(context, version, request)
        self.append(self._admissible(context, request, topics))
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

    # Several at once

    def _is_answered_at_once(self, header: RequestHeader, request: ProduceRequest) -> bool:
        quotas = self._broker.quotas
        if quotas.produce.is_set or quotas.request.is_set:
            return False
        if request.acks == ALL:
            return self._is_alone(header.request_api_version, request)
        return request.acks == 1

    def _is_alone(self, version: int, request: ProduceRequest) -> bool:
        """Whether nobody but this broker has a replica of what is produced to."""
        replicas = self._broker.replicas
        for topic in request.topic_data:
            for one in topic.partition_data:
                if version >= _TOPIC_IDS_SINCE:
                    partition = replicas.of_topic(topic.topic_id, one.index)
                else:
                    partition = replicas.named(topic.name, one.index)
                if partition is None or partition.leading is None or partition.leading.followers:
                    return False
        return True

    def _answer_several(
        self, context: RequestContext, requests: Sequence[tuple[RequestHeader, Any]]
    ) -> list[ProduceResponse]:
        taken = []
        batches: list[Batch] = []
        for header, request in requests:
            topics = self._topics(context, header.request_api_version, request)
            batches += self._admissible(context, request, topics)
            taken.append((header.request_api_version, request, topics))
        self.append(batches)
        for _, request, topics in taken:
            if request.acks == ALL:
                waiting = _not_committed(topics)
                assert not waiting, f"{waiting[0].partition} has followers"
        return [self._answer(context, *one) for one in taken]

    # Plain ones

    def plain_batch(
        self, partition_id: int, data: memoryview, version: int, partition: Partition
    ) -> Batch | None:
        """A batch for a partition that was found; None if there is something about it to be refused."""
        batch = Batch(partition_id, data, version)
        if batch.malformed is not None or batch.is_transactional:
            return None
        batch.partition = partition
        return batch

    def answered(
        self, context: RequestContext, version: int, request: ProduceRequest, topic: str, batch: Batch
    ) -> ProduceResponse:
        """The answer to a request for what became of its one batch."""
        return self._answer(context, version, request, [_only(request, version, topic, batch)])

    def committed(
        self, context: RequestContext, version: int, request: ProduceRequest, topic: str, batch: Batch
    ) -> Answer | Awaitable[Answer]:
        """The same, once the batch is committed."""
        topics = [_only(request, version, topic, batch)]
        waiting = _not_committed(topics)
        if waiting:
            return self._when_committed(context, version, request, topics, waiting)
        return self._answer(context, version, request, topics)

    # One by one

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
                Batch(one.index, cast("Buffer | None", one.records), version) for one in topic.partition_data
            ]
            # Of a topic that nobody knows, everybody may know that it is not there.
            is_writable = not name or broker.authorize(context, Operation.WRITE, ResourceKind.TOPIC, name)
            found.append(_Topic(name, topic_id, batches, is_writable=is_writable))
        return found

    def _admissible(
        self, context: RequestContext, request: ProduceRequest, topics: list[_Topic]
    ) -> list[Batch]:
        """The batches that may be appended, as far as one can tell without a look at their records."""
        refusal = _refusal(topics)
        found = []
        for topic in topics:
            for batch in topic.batches:
                try:
                    self._check(context, topic, batch, request.acks, refusal)
                except ApiError as error:
                    batch.error = error.with_traceback(None)
                else:
                    found.append(batch)
        return found

    def _check(
        self, context: RequestContext, topic: _Topic, batch: Batch, acks: int, refusal: ApiError | None
    ) -> None:
        """Finds the partition of a batch. What is wrong is said in Kafka's order."""
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
        batch.partition.check_append(acks)

    def append(self, batches: list[Batch]) -> None:
        """Appends all batches, in one write for each partition, and notes what became of them."""
        inflated = Inflated()
        if len(batches) == 1:
            self._append_to(batches[0].partition, batches, inflated)
            return
        by_partition: dict[Partition | None, list[Batch]] = {}
        for batch in batches:
            by_partition.setdefault(batch.partition, []).append(batch)
        for partition, some in by_partition.items():
            self._append_to(partition, some, inflated)

    def _append_to(self, partition: Partition | None, batches: list[Batch], inflated: Inflated) -> None:
        assert partition is not None
        failure: StorageError | None = None
        outcomes = _outcomes(partition, [batch.data for batch in batches], inflated)
        topic, count_appended = partition.key.topic, self._broker.count_appended
        for batch, outcome in zip(batches, outcomes, strict=True):
            if outcome.__class__ is Appended:
                batch.appended = outcome
                records = outcome.last_offset - outcome.base_offset + 1
                count_appended(topic, records, len(batch.data))
            elif isinstance(outcome, ApiError):
                batch.error = outcome
            else:
                assert isinstance(outcome, StorageError)
                batch.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(outcome))
                failure = outcome
        if failure is not None:
            self._broker.replicas.offline(partition, failure)

    def _find(self, topic: _Topic, batch: Batch) -> ApiError | None:
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

    def _when_committed(
        self,
        context: RequestContext,
        version: int,
        request: ProduceRequest,
        topics: list[_Topic],
        waiting: list[Batch],
    ) -> Awaitable[Answer]:
        wait = CommitWait(len(waiting), request.timeout_ms)
        for number, batch in enumerate(waiting):
            assert batch.partition is not None
            assert batch.appended is not None
            batch.partition.when_committed(batch.appended.last_offset, wait, number)

        def answer() -> Answer:
            for number, code in wait.errors.items():
                waiting[number].error = _not_committed_because(code)
            return self._answer(context, version, request, topics)

        return afterwards(wait.done, wait.end, answer)

    def _answer(
        self, context: RequestContext, version: int, request: ProduceRequest, topics: list[_Topic]
    ) -> ProduceResponse:
        leaders: Leaders | None = None  # who leads what we do not
        responses = []
        for topic in topics:
            answers = []
            for batch in topic.batches:
                error = batch.error
                if error is None:
                    answers.append(_said_of(batch))
                    continue
                answer = _refused(batch, error)
                if version >= _LEADERS_SINCE and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leaders = leaders or Leaders(self._broker, context.listener)
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
            node_endpoints=[] if leaders is None else leaders.endpoints(ProduceResponse.NodeEndpoint),
        )


def _refusal(topics: list[_Topic]) -> ApiError | None:
    """Why nothing of the request is taken, if there is a transaction in it."""
    if any(batch.is_transactional for topic in topics for batch in topic.batches):
        return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    return None


def _only(request: ProduceRequest, version: int, topic: str, batch: Batch) -> _Topic:
    topic_id = request.topic_data[0].topic_id if version >= _TOPIC_IDS_SINCE else None
    return _Topic(topic, topic_id, [batch], is_writable=True)


def _outcomes(
    partition: Partition, sent: Sequence[memoryview], inflated: Inflated
) -> Sequence[Appended | ApiError | StorageError]:
    """Appends batches to a partition, which may have lost its disk to another one's just now."""
    try:
        if len(sent) == 1:
            return [partition.append(sent[0], inflated)]
        return partition.append_many(sent, inflated)
    except (ApiError, StorageError) as error:
        return [error] * len(sent)


def _not_committed(topics: list[_Topic]) -> list[Batch]:
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


def _said_of(batch: Batch) -> PartitionAnswer:
    partition, appended = batch.partition, batch.appended
    assert partition is not None
    assert appended is not None
    return PartitionAnswer(
        index=batch.partition_id,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.timestamp_ms if partition.config.has_append_time else -1,
        log_start_offset=partition.log.start_offset,
    )


def _refused(batch: Batch, error: ApiError) -> PartitionAnswer:
    record_errors = error.records if isinstance(error, RefusedRecordsError) else ()
    return PartitionAnswer(
        index=batch.partition_id,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=-1 if batch.partition is None else batch.partition.log.start_offset,
        record_errors=[
            PartitionAnswer.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in record_errors
        ],
        error_message=error.message or None,
    )
