"""A commit that a member makes again and again, for the same partitions: only the offsets go on.

What of it stays the same is made once: the keys of its records and how they look, the values but for their
numbers, and the answer if all is well. That answer is given many times, so nobody may change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from quorate.coordinator.effects import Caller, LogRecord
from quorate.coordinator.group_records import OffsetCommitKey, OffsetCommitValue
from quorate.coordinator.log_format import encode
from quorate.protocol.api.groups import OffsetCommitRequest, OffsetCommitResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.holes import holes_between

__all__ = ["KnownCommit"]

Topic = OffsetCommitRequest.Topic
Answered = OffsetCommitResponse.Topic

_NUMBERS: Final = Struct(">qi")  # offset and leader epoch, which stand behind each other
_TIME: Final = Struct(">q")


class _Partition:
    """What is written for one partition, and how."""

    __slots__ = ("_encoded_key", "_encoded_value", "_key", "_metadata", "_numbers_at", "_time_at")

    def __init__(self, group_id: str, topic: str, one: Topic.Partition) -> None:
        self._key = OffsetCommitKey(group=group_id, topic=topic, partition=one.partition_index)
        self._metadata = one.committed_metadata or ""
        self._encoded_key, zeros = self._encoded(0, 0, 0)
        self._encoded_value = bytearray(zeros)
        numbers, time = (holes_between(zeros, self._encoded(*some)[1]) for some in ((-1, -1, 0), (0, 0, -1)))
        assert [hole.stop - hole.start for hole in (*numbers, *time)] == [_NUMBERS.size, _TIME.size]
        self._numbers_at, self._time_at = numbers[0].start, time[0].start

    def _value(self, offset: int, epoch: int, wall_ms: int) -> OffsetCommitValue:
        return OffsetCommitValue(
            offset=offset, leader_epoch=epoch, metadata=self._metadata, commit_timestamp=wall_ms
        )

    def _encoded(self, offset: int, epoch: int, wall_ms: int) -> tuple[bytes, bytes]:
        key, value = encode(LogRecord(self._key, self._value(offset, epoch, wall_ms)))
        assert value is not None
        return key, value

    def record(self, offset: int, epoch: int, wall_ms: int) -> LogRecord:
        encoded = self._encoded_value
        _NUMBERS.pack_into(encoded, self._numbers_at, offset, epoch)
        _TIME.pack_into(encoded, self._time_at, wall_ms)
        return LogRecord(self._key, self._value(offset, epoch, wall_ms), (self._encoded_key, bytes(encoded)))


class KnownCommit:
    """A request without its numbers: these are the offset and the leader epoch of each partition, in order.
    Its topics have names, and it says nothing of how long offsets are kept."""

    __slots__ = ("_partitions", "caller", "metadata_characters", "request", "response")

    def __init__(self, request: OffsetCommitRequest, caller: Caller) -> None:
        self.request = request
        self.caller = caller
        partitions = [(topic.name, one) for topic in request.topics for one in topic.partitions]
        self._partitions = [_Partition(request.group_id, topic, one) for topic, one in partitions]
        self.metadata_characters = max(
            (len(one.committed_metadata or "") for _, one in partitions), default=0
        )
        self.response = OffsetCommitResponse(
            topics=[
                Answered(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        Answered.Partition(partition_index=one.partition_index, error_code=ErrorCode.NONE)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def records(self, numbers: Sequence[int], wall_ms: int) -> list[LogRecord]:
        """What is written if all of it is taken."""
        at = iter(numbers)
        return [
            partition.record(offset, epoch, wall_ms)
            for partition, offset, epoch in zip(self._partitions, at, at, strict=True)
        ]

    def said_with(self, numbers: Sequence[int]) -> OffsetCommitRequest:
        """The whole request."""
        request, at = self.request, iter(numbers)
        return OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            topics=[
                Topic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        Topic.Partition(
                            partition_index=one.partition_index,
                            committed_offset=next(at),
                            committed_leader_epoch=next(at),
                            committed_metadata=one.committed_metadata,
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
