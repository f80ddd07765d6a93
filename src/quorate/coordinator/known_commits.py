"""A commit that a member makes again and again, for the same partitions: only the offsets go on.

What of it stays the same is made once: the keys of its records and how they look, the values but for their
numbers, and the answer if all is well. That answer is given many times, so nobody may change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from quorate.coordinator.committed_offsets import Committed, CommittedOffsets
from quorate.coordinator.effects import Caller, LogRecord
from quorate.coordinator.group_records import OffsetCommitKey, OffsetCommitValue
from quorate.coordinator.log_format import NO_EXPIRY, encode
from quorate.protocol.api.groups import OffsetCommitRequest, OffsetCommitResponse
from quorate.protocol.batch import HEADER_BYTES, TimelessBatch
from quorate.protocol.errors import ErrorCode
from quorate.protocol.holes import holes_between
from quorate.protocol.record import NO_HEADERS, encode_plain_record

__all__ = ["KnownCommit"]

Topic = OffsetCommitRequest.Topic
Answered = OffsetCommitResponse.Topic


class _Partition:
    """What is written for one partition, and how."""

    __slots__ = (
        "_between",
        "_group_id",
        "_key",
        "_metadata",
        "_numbers",
        "_numbers_at",
        "_partition_id",
        "_topic",
        "encoded",
    )

    def __init__(self, group_id: str, topic: str, one: Topic.Partition) -> None:
        self._group_id, self._topic, self._partition_id = group_id, topic, one.partition_index
        self._key = OffsetCommitKey(group=group_id, topic=topic, partition=one.partition_index)
        self._metadata = one.committed_metadata or ""
        self.encoded = self._encoded(0, 0, 0)
        _, zeros = self.encoded
        places, time = (
            holes_between(zeros, self._encoded(*some)[1])[0] for some in ((-1, -1, 0), (0, 0, -1))
        )
        self._numbers_at, self._between = places.start, zeros[places.stop : time.start]
        self._numbers = Struct(f">qi{len(self._between)}sq")  # offset and epoch, what does not change, time
        assert time.stop - places.start == self._numbers.size

    def _value(self, offset: int, epoch: int, wall_ms: int) -> OffsetCommitValue:
        return OffsetCommitValue(
            offset=offset, leader_epoch=epoch, metadata=self._metadata, commit_timestamp=wall_ms
        )

    def _encoded(self, offset: int, epoch: int, wall_ms: int) -> tuple[bytes, bytes]:
        key, value = encode(LogRecord(self._key, self._value(offset, epoch, wall_ms)))
        assert value is not None
        return key, value

    def record(self, offset: int, epoch: int, wall_ms: int) -> LogRecord:
        key, zeros = self.encoded
        value = bytearray(zeros)
        self.fill(value, 0, offset, epoch, wall_ms)
        return LogRecord(self._key, self._value(offset, epoch, wall_ms), (key, bytes(value)))

    def fill(self, buffer: bytearray, at: int, offset: int, epoch: int, wall_ms: int) -> None:
        """Puts its numbers into the value that begins there."""
        self._numbers.pack_into(buffer, at + self._numbers_at, offset, epoch, self._between, wall_ms)

    def put(
        self, committed: CommittedOffsets, offset: int, epoch: int, wall_ms: int, record_offset: int
    ) -> None:
        """What is committed once its record is in the log."""
        found = Committed(offset, epoch, self._metadata, wall_ms, NO_EXPIRY, record_offset)
        committed.put(self._group_id, self._topic, self._partition_id, found)


class KnownCommit:
    """A request without its numbers: these are the offset and the leader epoch of each partition, in order.
    Its topics have names, and it says nothing of how long offsets are kept."""

    __slots__ = (
        "_batch",
        "_partitions",
        "_values",
        "caller",
        "metadata_characters",
        "request",
        "response",
    )

    def __init__(self, request: OffsetCommitRequest, caller: Caller) -> None:
        self.request = request
        self.caller = caller
        partitions = [(topic.name, one) for topic in request.topics for one in topic.partitions]
        self._partitions = [_Partition(request.group_id, topic, one) for topic, one in partitions]
        self._batch, self._values = self._empty_batch()
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

    def _empty_batch(self) -> tuple[TimelessBatch, list[tuple[_Partition, int]]]:
        """A batch of all that is written, without the numbers, and where in it the values are."""
        section, values = b"", []
        for number, partition in enumerate(self._partitions):
            key, value = partition.encoded
            section += encode_plain_record(number, key, value)
            values.append((partition, HEADER_BYTES + len(section) - len(NO_HEADERS) - len(value)))
        return TimelessBatch(section, len(values)), values

    @property
    def count(self) -> int:
        """How many records it is."""
        return len(self._partitions)

    @property
    def batch_bytes(self) -> int:
        return len(self._batch.data)

    def records(self, numbers: Sequence[int], wall_ms: int) -> list[LogRecord]:
        """What is written if all of it is taken."""
        at = iter(numbers)
        return [
            partition.record(offset, epoch, wall_ms)
            for partition, offset, epoch in zip(self._partitions, at, at, strict=True)
        ]

    def batch(self, numbers: Sequence[int], wall_ms: int) -> bytearray:
        """The same as a batch that has yet to be given its place in the log. It is the same object each time,
        and whoever asks for the next has done with this one."""
        batch, at = self._batch, iter(numbers)
        for (partition, value_at), offset, epoch in zip(self._values, at, at, strict=True):
            partition.fill(batch.data, value_at, offset, epoch, wall_ms)
        batch.set_time(wall_ms)
        return batch.data

    def put(
        self, committed: CommittedOffsets, numbers: Sequence[int], wall_ms: int, record_offset: int
    ) -> None:
        """What is committed once that batch is in the log, its first record at an offset: what its records
        say one by one."""
        at = iter(numbers)
        for partition, offset, epoch in zip(self._partitions, at, at, strict=True):
            partition.put(committed, offset, epoch, wall_ms, record_offset)
            record_offset += 1

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
