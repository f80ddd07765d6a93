"""A commit that a member makes again and again, for the same partitions: only the offsets go on.

What of it stays the same is made once: the keys of its records and how they look, the values but for their
numbers, and the answer if all is well. That answer is given many times, so nobody may change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final, Protocol

from quorate.coordinator.committed_offsets import Committed, CommittedOffsets
from quorate.coordinator.effects import Caller, LogRecord, Moment
from quorate.coordinator.group_records import OffsetCommitKey, OffsetCommitValue
from quorate.coordinator.known_members import KnownClassic
from quorate.coordinator.log_format import NO_EXPIRY, encode
from quorate.coordinator.offsets import java_length
from quorate.coordinator.refusals import refuse
from quorate.protocol.api.groups import OffsetCommitRequest, OffsetCommitResponse
from quorate.protocol.batch import HEADER_BYTES, TimelessBatch
from quorate.protocol.errors import ErrorCode
from quorate.protocol.holes import holes_between
from quorate.protocol.record import NO_HEADERS, place_record, plain_content

__all__ = ["KnownCommit"]

Topic = OffsetCommitRequest.Topic
Answered = OffsetCommitResponse.Topic

_new: Final = tuple.__new__  # what a named tuple does, but for the names of its arguments


class Committing(Protocol):
    """The state of a coordinator, as far as a commit must know; see `shard`."""

    @property
    def committed_offsets(self) -> CommittedOffsets: ...
    def committer(self, commit: KnownCommit) -> KnownClassic | None: ...
    def takes_all(self, commit: KnownCommit) -> bool: ...


class _Partition:
    """What is written for one partition: the numbers, and where they stand in a batch of known commits."""

    __slots__ = ("_between", "_numbers", "_numbers_at", "content", "metadata", "partition_id", "topic")

    def __init__(self, topic: str, one: Topic.Partition) -> None:
        self.topic, self.partition_id = topic, one.partition_index
        self.metadata = one.committed_metadata or ""
        self.content = slice(0, 0)  # of its record, in the batch

    def placed(self, group_id: str, number: int, section_at: int) -> bytes:
        """Its record without the numbers, as the one of that number, which begins there in the batch."""

        def encoded(offset: int, epoch: int, wall_ms: int) -> tuple[bytes, bytes]:
            key, value = encode(self.record(group_id, offset, epoch, wall_ms))
            assert value is not None
            return key, value

        key, zeros = encoded(0, 0, 0)
        places, time = (holes_between(zeros, encoded(*some)[1])[0] for some in ((-1, -1, 0), (0, 0, -1)))
        self._between = zeros[places.stop : time.start]
        self._numbers = _numbers_around(len(self._between))
        assert time.stop - places.start == self._numbers.size
        content = plain_content(key, zeros)
        placed = place_record(number, content)
        end = section_at + len(placed)
        self.content = slice(end - len(content), end)
        self._numbers_at = end - len(NO_HEADERS) - len(zeros) + places.start
        return placed

    def record(self, group_id: str, offset: int, epoch: int, wall_ms: int) -> LogRecord:
        key = OffsetCommitKey(group=group_id, topic=self.topic, partition=self.partition_id)
        value = OffsetCommitValue(
            offset=offset, leader_epoch=epoch, metadata=self.metadata, commit_timestamp=wall_ms
        )
        return LogRecord(key, value)

    def fill(self, batch: bytearray, offset: int, epoch: int, wall_ms: int) -> None:
        """Puts its numbers into the batch."""
        self._numbers.pack_into(batch, self._numbers_at, offset, epoch, self._between, wall_ms)


@lru_cache(maxsize=1000)
def _numbers_around(size_bytes: int) -> Struct:
    """Offset and epoch, so much that does not change, and the time."""
    return Struct(f">qi{size_bytes}sq")


class KnownCommit:
    """A request without its numbers: these are the offset and the leader epoch of each partition, in order.
    Its topics have names, and it says nothing of how long offsets are kept. A `PlainStep` for whoever hosts
    the coordinator."""

    __slots__ = (
        "_batch",
        "_member",
        "_partitions",
        "_shard",
        "answer",
        "batch_bytes",
        "caller",
        "count",
        "metadata_characters",
        "request",
    )

    def __init__(self, request: OffsetCommitRequest, caller: Caller) -> None:
        self.request = request
        self.caller = caller
        self._shard: Committing | None = None  # which has found out who commits
        self._member: KnownClassic | None = None
        partitions = [(topic.name, one) for topic in request.topics for one in topic.partitions]
        self._partitions = [_Partition(topic, one) for topic, one in partitions]
        self._batch = self._empty_batch()  # all that is written, without the numbers
        self.count = len(partitions)  # of its records
        self.batch_bytes = len(self._batch.data)
        self.metadata_characters = max(
            (java_length(one.committed_metadata or "") for _, one in partitions), default=0
        )
        self.answer = OffsetCommitResponse(
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

    def _empty_batch(self) -> TimelessBatch:
        section = b""
        for number, partition in enumerate(self._partitions):
            section += partition.placed(self.request.group_id, number, HEADER_BYTES + len(section))
        return TimelessBatch(section, len(self._partitions))

    def refuse(self, code: ErrorCode) -> Any:
        return refuse(self.request, self.caller.version, code)

    def is_taken(self, shard: Committing, moment: Moment) -> bool:
        """Whether all of it is, as nearly always. That a member of a classic group lives is noted then."""
        member = self._member
        if member is not None and self._shard is shard and member.is_taken(moment.now_ms):
            return True
        self._shard, self._member = shard, shard.committer(self)
        if self._member is None:
            return shard.takes_all(self)
        return self._member.is_taken(moment.now_ms)

    def batch(self, numbers: Sequence[int], wall_ms: int, offset: int, leader_epoch: int) -> bytearray:
        """What is written, as a batch for a place in the log. It is the same object each time, and whoever
        asks for the next has done with this one."""
        batch, at = self._batch, 0
        for partition in self._partitions:
            partition.fill(batch.data, numbers[at], numbers[at + 1], wall_ms)
            at += 2
        batch.place(offset, leader_epoch, wall_ms)
        return batch.data

    def section(self, number: int, numbers: Sequence[int], wall_ms: int) -> bytes:
        """The same as a part of the batch of others, its first record at a number."""
        section, data, at = b"", self._batch.data, 0
        for partition in self._partitions:
            partition.fill(data, numbers[at], numbers[at + 1], wall_ms)
            section += place_record(number, data[partition.content])
            number += 1
            at += 2
        return section

    def records(self, numbers: Sequence[int], wall_ms: int) -> list[LogRecord]:
        """The same as what it means."""
        at, group_id = iter(numbers), self.request.group_id
        return [
            partition.record(group_id, offset, epoch, wall_ms)
            for partition, offset, epoch in zip(self._partitions, at, at, strict=True)
        ]

    def apply(self, shard: Committing, numbers: Sequence[int], wall_ms: int, offset: int) -> None:
        """It is in the log, its first record at an offset: the same as what its records say one by one."""
        put, group_id, at = shard.committed_offsets.put, self.request.group_id, 0
        for one in self._partitions:
            found = numbers[at], numbers[at + 1], one.metadata, wall_ms, NO_EXPIRY, offset
            put(group_id, one.topic, one.partition_id, _new(Committed, found))
            offset += 1
            at += 2

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
