"""Partitions move to other replicas: what is asked for, what is under way, and how it is taken back.

While a partition moves it has the replicas of both sides: first those of the target, in their order, then
those that will go, which are `removing`. `adding` are those that it had not before the move began. It arrives
when those that it needs of the target are in sync; `build_change` knows which, and sees to it with whatever
change comes then, so a target that is in sync already is reached at once. A mere change of the order is no
move at all.

Another target for a partition that moves replaces the first one:

    removing    all that it has now and that are not in the new target, newcomers of the old one included
    adding      all of the new target that it had not before the move began

(Apache's controller takes as adding only what the partition has not now, and leaves the old list standing
where the new one would be empty. It then can go on towards the old target, or keep a newcomer that both
targets name when the move is cancelled.)

A cancelled move leaves the partition without its newcomers; those of a target that was replaced are removed
by the next move only. If only newcomers are in sync, the first of the others takes over without being in
sync: that may lose records, and only happens where the topic allows unclean elections.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from quorate.controller.assignment import check_assignment
from quorate.controller.decision import RECORDS_MAX, Decision, Situation, check_count
from quorate.controller.elections import Changes
from quorate.controller.partition_change import Election, Wanted
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import REPLICAS_MAX, Partition, Rows
from quorate.metadata.topics import Topic
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["Move", "decide_alter_partition_reassignments", "describe_reassignments", "move", "take_back"]

_TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Result = AlterPartitionReassignmentsResponse.ReassignableTopicResponse.ReassignablePartitionResponse
_Ongoing = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_OngoingPartition = ListPartitionReassignmentsResponse.OngoingTopicReassignment.OngoingPartitionReassignment


class Move(NamedTuple):
    """What a partition looks like while it moves."""

    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]


def move(partition: Partition, target: Sequence[int]) -> Move:
    """A partition on its way to a target, whether or not it is on its way elsewhere now."""
    original = set(partition.replicas) - set(partition.adding)
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    adding = tuple(sorted(set(target) - original))
    return Move((*target, *removing), removing, adding)


def take_back(partition: Partition) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The replicas without the newcomers of a move, and those of them that are in sync."""
    newcomers = set(partition.adding)
    replicas = tuple(one for one in partition.replicas if one not in newcomers)
    return replicas, tuple(one for one in partition.isr if one not in newcomers)


def decide_alter_partition_reassignments(
    situation: Situation, request: AlterPartitionReassignmentsRequest
) -> Decision:
    """Starts, replaces and cancels moves. Each partition is granted or refused on its own."""
    changes = Changes(situation)
    responses = []
    # What needs no change, since the last change that there was: it needs none when it is asked for again.
    needless: set[tuple[str, int, tuple[int, ...] | None]] = set()
    for asked in request.topics:
        results = []
        for one in asked.partitions:
            number, target = one.partition_index, None if one.replicas is None else tuple(one.replicas)
            try:
                if (asked.name, number, target) not in needless:
                    count = len(changes.records)
                    _reassign(changes, asked.name, number, target, request)
                    if len(changes.records) > count:
                        needless.clear()
                    else:
                        needless.add((asked.name, number, target))
                results.append(_result(number, ErrorCode.NONE, None))
            except ApiError as error:
                results.append(_result(number, error.code, error.message))
            if len(changes.records) > RECORDS_MAX:
                check_count(changes.records)
        responses.append(_TopicResult(name=asked.name, partitions=results))
    check_count(changes.records)
    reply = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=0,
        error_message=None,
        responses=responses,
    )
    events = changes.events("reassignment")
    return Decision(reply=reply, records=changes.records, events=events, is_atomic=True)


def describe_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The moves that are under way: all of them, or those among the partitions that are named."""
    under_way = {topic.name: (topic, partition_ids) for topic, partition_ids in _under_way(image)}
    if request.topics is None:
        found = list(under_way.values())
    else:
        named = [(asked, *under_way[asked.name]) for asked in request.topics if asked.name in under_way]
        found = [
            (topic, [one for one in asked.partition_indexes if one in partition_ids])
            for asked, topic, partition_ids in named
        ]
    topics = [_describe(image, topic, partition_ids) for topic, partition_ids in found]
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        topics=[one for one in topics if one.partitions],
    )


def _reassign(
    changes: Changes,
    name: str,
    partition_id: int,
    target: Sequence[int] | None,
    request: AlterPartitionReassignmentsRequest,
) -> None:
    topic = changes.image.topics.by_name.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = changes.partition(topic, partition_id)
    if partition is None:
        reason = f"Unable to find partition {name}:{partition_id}."
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    if target is None:
        wanted = _cancelled(partition, topic, partition_id, changes.election(topic))
    else:
        check_assignment(changes.image, target, None)
        if not request.allow_replication_factor_change:
            _check_size(partition, target)
        wanted = _moved(partition, target)
    record = changes.build(topic, partition_id, wanted)
    if record is not None:
        changes.add(topic, record)


def _check_size(partition: Partition, target: Sequence[int]) -> None:
    size = len(set(partition.replicas) - set(partition.removing))
    if len(target) != size:
        reason = f"The replication factor is changed from {size} to {len(target)}"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


def _moved(partition: Partition, target: Sequence[int]) -> Wanted:
    moving = move(partition, target)
    if len(moving.replicas) > REPLICAS_MAX:
        reason = (
            f"the partition would have {len(moving.replicas)} replicas while it moves, and can have"
            f" {REPLICAS_MAX}: move it in smaller steps"
        )
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return Wanted(replicas=moving.replicas, removing=moving.removing, adding=moving.adding)


def _cancelled(partition: Partition, topic: Topic, partition_id: int, election: Election) -> Wanted:
    if not partition.is_reassigning:
        reason = f"{topic.name}-{partition_id} is not being reassigned"
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, reason)
    replicas, isr = take_back(partition)
    assert replicas  # of what it had before the move nothing goes before all of the target is there
    if not isr and election is not Election.UNCLEAN:
        reason = (
            f"none of the original replicas {list(replicas)} of {topic.name}-{partition_id} is in sync;"
            " to cancel would need an unclean leader election, which the topic does not allow"
        )
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return Wanted(election=election, replicas=replicas, isr=isr or replicas[:1], removing=(), adding=())


def _result(partition_id: int, code: ErrorCode, message: str | None) -> _Result:
    return _Result(partition_index=partition_id, error_code=code, error_message=message)


# Reading


def _under_way(image: ClusterImage) -> list[tuple[Topic, Collection[int]]]:
    """The topics with partitions that move, in the order of their names, and which partitions."""
    found: dict[Topic, dict[int, None]] = {}
    for block in image.partitions.blocks.values():
        index = np.flatnonzero((block.adding[: block.end] | block.removing[: block.end]) != 0)
        slots = block.topic[index].tolist()
        partition_ids = image.partitions.partition_ids(Rows(block, index)).tolist()
        for slot, partition_id in zip(slots, partition_ids, strict=True):
            found.setdefault(image.topics.at(slot), {})[partition_id] = None
    return sorted(found.items(), key=lambda one: one[0])


def _describe(image: ClusterImage, topic: Topic, partition_ids: Iterable[int]) -> _Ongoing:
    described = []
    for partition_id in partition_ids:
        partition = image.partitions.get(topic.slot, partition_id)
        if partition is not None and partition.is_reassigning:
            described.append(
                _OngoingPartition(
                    partition_index=partition_id,
                    replicas=list(partition.replicas),
                    adding_replicas=sorted(partition.adding),
                    removing_replicas=sorted(partition.removing),
                )
            )
    return _Ongoing(name=topic.name, partitions=described)
