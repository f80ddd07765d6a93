"""Making partitions begin later, because somebody says so: DeleteRecords.

The leader raises the start of its log at once, and answers when every replica whose broker is alive has done
the same: followers learn of it from what they fetch, and tell their own start with the next fetch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from quorate.broker.handlers.topic_creation import INTERNAL_TOPICS
from quorate.broker.handlers.whereabouts import replica_named
from quorate.broker.partition import Partition
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.broker.waiting import CommitWait
from quorate.net.routes import Answer, RequestContext, Route
from quorate.net.slices import Work, in_slices
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import DeleteRecordsRequest, DeleteRecordsResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.errors import StorageError

__all__ = ["DeletingRecords"]

_HIGH_WATERMARK: Final = -1  # instead of an offset
_NO_LOW_WATERMARK: Final = -1
_ANSWER_BYTES: Final = 14  # what is said of a partition

TopicResult = DeleteRecordsResponse.TopicResult
PartitionResult = TopicResult.PartitionResult


class _Deletion:
    """What is asked of one partition, and what came of it."""

    __slots__ = ("code", "low_watermark", "partition", "partition_id", "target")

    def __init__(self, partition_id: int) -> None:
        self.partition_id = partition_id
        self.partition: Partition | None = None
        self.target = 0
        self.low_watermark = _NO_LOW_WATERMARK
        self.code = ErrorCode.NONE

    def ended(self, code: ErrorCode) -> None:
        assert self.partition is not None
        self.code = code
        if code is ErrorCode.NONE:
            self.low_watermark = self.partition.low_watermark
        elif code is not ErrorCode.REQUEST_TIMED_OUT:
            self.low_watermark = _NO_LOW_WATERMARK


class DeletingRecords:
    """Answers DeleteRecords."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        return [Route(DeleteRecordsRequest, self.delete_records)]

    def delete_records(
        self, context: RequestContext, _header: RequestHeader, request: DeleteRecordsRequest
    ) -> Answer | Awaitable[Answer]:
        """Each partition once: what is said of it last counts."""
        wanted: dict[str, dict[int, int]] = {}
        for topic in request.topics:
            if topic.partitions:
                offsets = wanted.setdefault(topic.name, {})
                offsets.update((one.partition_index, one.offset) for one in topic.partitions)
        context.expect(_ANSWER_BYTES * sum(map(len, wanted.values())))
        return in_slices(self._deleted(context, wanted, request.timeout_ms))

    def _deleted(
        self, context: RequestContext, wanted: Mapping[str, Mapping[int, int]], timeout_ms: int
    ) -> Work[DeleteRecordsResponse]:
        topics: list[tuple[str, list[_Deletion]]] = []
        for name, offsets in wanted.items():
            may = self._broker.authorize(context, Operation.DELETE, ResourceKind.TOPIC, name)
            deletions = []
            for partition_id, offset in offsets.items():
                one = _Deletion(partition_id)
                deletions.append(one)
                try:
                    if not may:
                        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    partition = self._partition(name, partition_id)
                    yield self._delete(one, partition, offset)
                except ApiError as error:
                    one.code = error.code
                    yield None
            topics.append((name, deletions))
            yield None
        yield _everywhere([one for _, some in topics for one in some], timeout_ms)
        return _response(topics)

    def _partition(self, topic: str, partition_id: int) -> Partition:
        if topic not in self._broker.image.topics.by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is not for clients")
        return replica_named(self._broker, topic, partition_id)

    async def _delete(self, deletion: _Deletion, partition: Partition, offset: int) -> None:
        """On this broker."""
        try:
            deletion.target = await partition.delete_before(None if offset == _HIGH_WATERMARK else offset)
            deletion.low_watermark = partition.low_watermark
        except StorageError as error:
            self._broker.replicas.offline(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        deletion.partition = partition


async def _everywhere(deletions: Sequence[_Deletion], timeout_ms: int) -> None:
    """Until every replica of what was deleted here begins where it should, or the time is over."""
    waiting = [one for one in deletions if one.partition is not None]
    if not waiting:
        return
    wait = CommitWait(len(waiting), timeout_ms)
    try:
        for number, one in enumerate(waiting):
            assert one.partition is not None
            one.partition.when_begun(one.target, wait, number)
        await wait.done
    finally:
        wait.end()
    for number, one in enumerate(waiting):
        try:
            one.ended(wait.errors.get(number, ErrorCode.NONE))
        except ApiError as error:  # it was the leader until just now
            one.ended(error.code)


def _response(topics: Sequence[tuple[str, Sequence[_Deletion]]]) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            TopicResult(
                name=name,
                partitions=[
                    PartitionResult(
                        partition_index=one.partition_id,
                        low_watermark=one.low_watermark,
                        error_code=one.code,
                    )
                    for one in deletions
                ],
            )
            for name, deletions in topics
        ],
    )
