"""Questions about offsets: which one belongs to a time, and where an epoch of a leader ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from quorate.broker.handlers.whereabouts import replica_named
from quorate.broker.partition import Isolation, Partition
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.net.routes import Answer, RequestContext
from quorate.net.slices import Work, in_slices
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.epochs import EpochEnd
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import DamagedBatchError

__all__ = ["ListOffsetsHandler", "OffsetForLeaderEpochHandler"]


class Timestamp:
    """What stands for an offset instead of a time."""

    LATEST: Final = -1
    EARLIEST: Final = -2
    MAX: Final = -3
    EARLIEST_LOCAL: Final = -4
    LATEST_TIERED: Final = -5
    EARLIEST_PENDING_UPLOAD: Final = -6


_SINCE: Final = {
    Timestamp.LATEST: 1,
    Timestamp.EARLIEST: 1,
    Timestamp.MAX: 7,
    Timestamp.EARLIEST_LOCAL: 8,
    Timestamp.LATEST_TIERED: 9,
    Timestamp.EARLIEST_PENDING_UPLOAD: 11,
}
_OFFSET_NOT_AVAILABLE_SINCE: Final = 5

_CONSUMER: Final = -1
_DEBUGGING: Final = -2  # reads from any replica
_READ_COMMITTED: Final = 1
_CLUSTER: Final = "kafka-cluster"

_OFFSET_BYTES: Final = 28  # of an answer: what is said of a partition
_END_BYTES: Final = 18

_Asked = ListOffsetsRequest.Topic.Partition
TopicOffsets = ListOffsetsResponse.TopicResponse
PartitionOffset = TopicOffsets.PartitionResponse
TopicEpochs = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
PartitionEpochEnd = TopicEpochs.EpochEndOffset


class _Listed(NamedTuple):
    """An offset, with what is known of it."""

    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


_NOTHING: Final = _Listed()


class ListOffsetsHandler:
    """Answers ListOffsets."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(
        self, context: RequestContext, header: RequestHeader, request: ListOffsetsRequest
    ) -> Answer | Awaitable[Answer]:
        return in_slices(self._answers(context, header.request_api_version, request))

    def _answers(
        self, context: RequestContext, version: int, request: ListOffsetsRequest
    ) -> Work[ListOffsetsResponse]:
        """Each topic, and each partition of it, once: what is asked for more than once is refused."""
        wanted: dict[str, dict[int, _Asked | None]] = {}
        for topic in request.topics:
            of_topic = wanted.setdefault(topic.name, {}) if topic.partitions else {}
            for asked in topic.partitions:
                number = asked.partition_index
                of_topic[number] = None if number in of_topic else asked
        context.expect(_OFFSET_BYTES * sum(map(len, wanted.values())))
        topics = []
        for name, partitions in wanted.items():
            may_describe = self._broker.authorize(context, Operation.DESCRIBE, ResourceKind.TOPIC, name)
            answers = []
            for number, one in partitions.items():
                code = ErrorCode.INVALID_REQUEST if one is None else ErrorCode.NONE
                if not may_describe:
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif one is not None:
                    try:
                        answers.append(self._answer(version, request, name, one))
                    except ApiError as error:
                        code = error.code
                if code is not ErrorCode.NONE:
                    answers.append(PartitionOffset(partition_index=number, error_code=code))
                yield None
            topics.append(TopicOffsets(name=name, partitions=answers))
            yield None
        return ListOffsetsResponse(topics=topics)

    def _answer(
        self,
        version: int,
        request: ListOffsetsRequest,
        topic: str,
        asked: _Asked,
    ) -> PartitionOffset:
        timestamp = asked.timestamp
        if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
            reason = f"a timestamp of {timestamp} means nothing in version {version}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, reason)
        partition = replica_named(self._broker, topic, asked.partition_index)
        partition.check_epoch(asked.current_leader_epoch)
        if request.replica_id != _DEBUGGING:
            partition.leadership()
        if request.replica_id != _CONSUMER:
            isolation = Isolation.END
        elif request.isolation_level == _READ_COMMITTED:
            isolation = Isolation.STABLE
        else:
            isolation = Isolation.COMMITTED
        found = _on_disk(self._broker, partition, lambda: _look_up(partition, timestamp, isolation, version))
        return PartitionOffset(
            partition_index=asked.partition_index,
            error_code=0,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=found.leader_epoch if version >= 4 else -1,
        )


def _look_up(partition: Partition, timestamp: int, isolation: int, version: int) -> _Listed:
    log, limit = partition.log, partition.limit(isolation)
    if timestamp == Timestamp.LATEST:
        if _is_high_watermark_behind(partition, isolation):
            raise _not_available(partition, version)
        return _Listed(limit, leader_epoch=partition.leader_epoch)
    if timestamp in (Timestamp.EARLIEST, Timestamp.EARLIEST_LOCAL):
        epoch = log.epochs.epoch_at(log.start_offset)
        return _Listed(log.start_offset, leader_epoch=-1 if epoch is None else epoch)
    if timestamp in (Timestamp.LATEST_TIERED, Timestamp.EARLIEST_PENDING_UPLOAD):
        return _NOTHING  # nothing is ever tiered here
    if timestamp == Timestamp.MAX:
        found = log.max_timestamp(before_offset=limit)
    else:
        found = log.offset_for_time(timestamp, before_offset=limit)
    if found is None:
        if _is_high_watermark_behind(partition, isolation):
            raise _not_available(partition, version)
        return _NOTHING
    return _Listed(found.offset, found.timestamp_ms, found.leader_epoch)


def _is_high_watermark_behind(partition: Partition, isolation: int) -> bool:
    """Whether more may be committed than a new leader knows: it has not heard from its followers yet."""
    leading = partition.leading
    return (
        isolation != Isolation.END
        and leading is not None
        and leading.high_watermark < leading.epoch_start_offset
    )


def _not_available(partition: Partition, version: int) -> ApiError:
    is_known = version >= _OFFSET_NOT_AVAILABLE_SINCE
    code = ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
    return ApiError(code, f"{partition.key} has a new leader that does not know yet what is committed")


class OffsetForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(
        self, context: RequestContext, _header: RequestHeader, request: OffsetForLeaderEpochRequest
    ) -> Answer | Awaitable[Answer]:
        context.expect(_END_BYTES * sum(len(one.partitions) for one in request.topics))
        return in_slices(self._answers(context, request))

    def _answers(
        self, context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> Work[OffsetForLeaderEpochResponse]:
        authorize = self._broker.authorize
        is_broker = authorize(context, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, _CLUSTER)
        topics = []
        for topic in request.topics:
            may_describe = is_broker or authorize(
                context, Operation.DESCRIBE, ResourceKind.TOPIC, topic.topic
            )
            answers = []
            for asked in topic.partitions:
                try:
                    if not may_describe:
                        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    end = self._end(topic.topic, asked)
                    answer = PartitionEpochEnd(
                        error_code=0,
                        partition=asked.partition,
                        leader_epoch=end.epoch,
                        end_offset=end.end_offset,
                    )
                except ApiError as error:
                    answer = PartitionEpochEnd(error_code=error.code, partition=asked.partition)
                answers.append(answer)
                yield None
            topics.append(TopicEpochs(topic=topic.topic, partitions=answers))
            yield None
        return OffsetForLeaderEpochResponse(topics=topics)

    def _end(
        self, topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
    ) -> EpochEnd:
        partition = replica_named(self._broker, topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        partition.leadership()
        return partition.log.end_offset_of(asked.leader_epoch)


def _on_disk(broker: Broker, partition: Partition, look_up: Callable[[], _Listed]) -> _Listed:
    """What is looked up in a log, or what a client is told of a disk that fails."""
    try:
        return look_up()
    except DamagedBatchError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    except StorageError as error:
        broker.replicas.offline(partition, error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
