"""Making partitions begin later, because somebody says so: DeleteRecords.

The leader raises the start of its log at once, and answers when every replica whose broker is alive has done
the same: followers learn of it from what they fetch, and tell their own start with the next fetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quorate.broker.handlers.topic_creation import INTERNAL_TOPICS
from quorate.broker.handlers.whereabouts import replica_named
from quorate.broker.partition import Partition
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.broker.waiting import CommitWait
from quorate.net.routes import RequestContext, Route
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import DeleteRecordsRequest, DeleteRecordsResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.errors import StorageError

__all__ = ["DeletingRecords"]

_HIGH_WATERMARK: Final = -1  # instead of an offset
_NO_LOW_WATERMARK: Final = -1

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

    async def delete_records(
        self, context: RequestContext, _header: RequestHeader, request: DeleteRecordsRequest
    ) -> DeleteRecordsResponse:
        topics: list[tuple[str, list[_Deletion]]] = []
        for topic in request.topics:
            may = self._broker.authorize(context, Operation.DELETE, ResourceKind.TOPIC, topic.name)
            deletions = []
            for asked in topic.partitions:
                one = _Deletion(asked.partition_index)
                deletions.append(one)
                try:
                    if not may:
                        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    await self._delete(one, topic.name, asked.offset)
                except ApiError as error:
                    one.code = error.code
            topics.append((topic.name, deletions))
        await _everywhere([one for _, some in topics for one in some], request.timeout_ms)
        return _response(topics)

    async def _delete(self, deletion: _Deletion, topic: str, offset: int) -> None:
        """On this broker."""
        if topic not in self._broker.image.topics.by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is not for clients")
        partition = replica_named(self._broker, topic, deletion.partition_id)
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
