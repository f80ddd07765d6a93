"""OffsetCommit, OffsetFetch and OffsetDelete: what is written, and what is answered.

Whether the group takes a commit at all is the group's business (`classic_requests`, `consumer`); here it is
known that it does. All partitions of a request are written in one batch, and so are stored together or not at
all. A partition that is refused, because of its metadata, is refused alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeVar, cast

from quorate.coordinator.committed_offsets import Committed, CommittedOffsets
from quorate.coordinator.effects import LogRecord, Producer
from quorate.coordinator.group_records import OffsetCommitKey, OffsetCommitValue
from quorate.coordinator.refusals import refuse
from quorate.coordinator.step import Step
from quorate.protocol.api.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from quorate.protocol.errors import ErrorCode

__all__ = [
    "Judge",
    "answer_one_group",
    "commit",
    "commit_in_transaction",
    "delete",
    "fetch",
    "fetch_one_group",
    "forget",
    "forget_all",
    "java_length",
]

A_co = TypeVar("A_co", covariant=True)

_GROUP_ERRORS_SINCE: Final = 2
_NO_RETENTION: Final = -1
_TIMESTAMP_MAX: Final = (1 << 63) - 1
_NOTHING: Final = Committed(-1, -1, "", -1, -1, -1)
"""What is answered where nothing was committed."""


Judge = Callable[[str, int], ErrorCode]
"""Says of a partition, by its topic and number, whether it may be committed."""


def commit(request: OffsetCommitRequest, judge: Judge | None, step: Step) -> OffsetCommitResponse:
    """v2 to v4 could say for how long offsets are to be kept."""
    retention_ms = request.retention_time_ms
    expire_ms = -1 if retention_ms == _NO_RETENTION else min(step.wall_ms + retention_ms, _TIMESTAMP_MAX)
    answered = OffsetCommitResponse.Topic
    answer = answered.Partition
    topics = []
    for topic in request.topics:
        name, group_id = topic.name, request.group_id
        partitions = _write_commits(step, group_id, name, topic.partitions, judge, expire_ms, answer)
        topics.append(answered(name=name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetCommitResponse(topics=topics)


def commit_in_transaction(
    request: TxnOffsetCommitRequest, judge: Judge | None, step: Step
) -> TxnOffsetCommitResponse:
    """The same records, as part of a producer's transaction."""
    answered = TxnOffsetCommitResponse.Topic
    answer = answered.Partition
    topics = []
    for topic in request.topics:
        name, group_id = topic.name, request.group_id
        partitions = _write_commits(step, group_id, name, topic.partitions, judge, -1, answer)
        topics.append(answered(name=name, partitions=partitions))
    step.write_for(Producer(request.producer_id, request.producer_epoch))
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)


class _Commit(Protocol):
    """A partition of either request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class _Answer(Protocol[A_co]):
    """Makes what a partition is answered, in either response."""

    def __call__(self, *, partition_index: int, error_code: int) -> A_co: ...


def _write_commits(
    step: Step,
    group_id: str,
    topic: str,
    commits: Iterable[_Commit],
    judge: Judge | None,
    expire_ms: int,
    answer: _Answer[A_co],
) -> list[A_co]:
    """Writes what may be committed. What each partition is answered."""
    wall_ms, write = step.wall_ms, step.records.append
    characters_max = step.settings.offset_metadata_max_bytes
    answers = []
    for one in commits:
        partition, metadata = one.partition_index, one.committed_metadata or ""
        code = ErrorCode.NONE if judge is None else judge(topic, partition)
        if 2 * len(metadata) > characters_max and java_length(metadata) > characters_max:
            code = code or ErrorCode.OFFSET_METADATA_TOO_LARGE
        answers.append(answer(partition_index=partition, error_code=code))
        if code is ErrorCode.NONE:
            value = OffsetCommitValue(
                offset=one.committed_offset,
                leader_epoch=one.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=wall_ms,
                expire_timestamp=expire_ms,
            )
            write(LogRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value))
    return answers


def java_length(text: str) -> int:
    """Characters as Java counts them: UTF-16 code units. The limit of metadata is called one of bytes, and is
    one of these."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


# Fetch


def fetch(
    offsets: CommittedOffsets, group: OffsetFetchRequest.Group, require_stable: Callable[[str, int], bool]
) -> OffsetFetchResponse.Group:
    """What one group has committed, of all topics if it names none. A group that is not known has nothing.

    `require_stable` says of a partition whether the answer is not certain: a transaction may change it.
    """
    answered = OffsetFetchResponse.Group.Topics
    if group.topics is None:
        committed = offsets.of(group.group_id)
        topics = [answered(name=topic, partitions=[]) for topic in committed]
        wanted: list[Iterable[int]] = [list(partitions) for partitions in committed.values()]
    else:
        topics = [answered(name=topic.name, topic_id=topic.topic_id, partitions=[]) for topic in group.topics]
        wanted = [topic.partition_indexes for topic in group.topics]
    for topic, partitions in zip(topics, wanted, strict=True):
        for partition in partitions:
            is_unstable = require_stable(topic.name, partition)
            found = None if is_unstable else offsets.get(group.group_id, topic.name, partition)
            known = found or _NOTHING
            topic.partitions.append(
                answered.Partitions(
                    partition_index=partition,
                    committed_offset=known.offset,
                    committed_leader_epoch=known.leader_epoch,
                    metadata=known.metadata,
                    error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE,
                )
            )
    return OffsetFetchResponse.Group(group_id=group.group_id, topics=topics)


def fetch_one_group(request: OffsetFetchRequest) -> OffsetFetchRequest.Group:
    """What a request before v8 asks for, in today's form."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequest.Group.Topics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequest.Group(group_id=request.group_id, topics=topics)


def answer_one_group(
    request: OffsetFetchRequest, version: int, group: OffsetFetchResponse.Group
) -> OffsetFetchResponse:
    """The answer to such a request. Before v2 what is wrong with the whole group had no place of its own: it
    is said of every partition that was asked for, or nothing would seem to have been committed."""
    if version < _GROUP_ERRORS_SINCE and group.error_code != ErrorCode.NONE:
        return cast("OffsetFetchResponse", refuse(request, version, ErrorCode(group.error_code)))
    answered = OffsetFetchResponse.Topic
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            answered(
                name=topic.name,
                partitions=[
                    answered.Partition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


# Delete


def delete(
    offsets: CommittedOffsets,
    request: OffsetDeleteRequest,
    is_subscribed: Callable[[str], bool],
    step: Step,
) -> OffsetDeleteResponse:
    """Topics that the group still consumes keep their offsets. What is asked for twice is done once."""
    answered = OffsetDeleteResponse.Topic
    topics = []
    forgotten: set[tuple[str, int]] = set()
    for topic in request.topics:
        in_use = is_subscribed(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
        partitions = [partition.partition_index for partition in topic.partitions]
        if not in_use:
            for partition in partitions:
                if (topic.name, partition) not in forgotten:
                    _forget_if_known(offsets, request.group_id, topic.name, partition, step)
                    forgotten.add((topic.name, partition))
        topics.append(
            answered(
                name=topic.name,
                partitions=[
                    answered.Partition(partition_index=partition, error_code=code) for partition in partitions
                ],
            )
        )
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)


def _forget_if_known(
    offsets: CommittedOffsets, group_id: str, topic: str, partition: int, step: Step
) -> None:
    is_known = offsets.get(group_id, topic, partition) is not None
    if is_known or offsets.is_pending(group_id, topic, partition):
        forget(group_id, topic, partition, step)


def forget(group_id: str, topic: str, partition: int, step: Step) -> None:
    """Writes a tombstone."""
    step.write(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def forget_all(offsets: CommittedOffsets, group_id: str, step: Step) -> int:
    """Writes tombstones for all that a group has committed, or may have once a transaction is over."""
    partitions: Iterator[tuple[str, int]] = offsets.partitions_of(group_id)
    number = 0
    for topic, partition in partitions:
        forget(group_id, topic, partition, step)
        number += 1
    return number
