"""AlterPartition in a ZooKeeper cluster: a leader proposes other in-sync replicas, and the controller writes
them. The judgement is pure; the order of its checks is Apache Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from quorate.protocol.api.brokers import AlterPartitionRequest, AlterPartitionResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID
from quorate.zookeeper.context import Context, Key
from quorate.zookeeper.leader_choice import Choice
from quorate.zookeeper.office import Office
from quorate.zookeeper.znodes import PartitionState

__all__ = ["alter_partitions", "judge"]

_WITH_IDS: Final = 2
_WITH_EPOCHS: Final = 3
_RECOVERING: Final = 1

_Asked = AlterPartitionRequest.TopicData.PartitionData
_Result = AlterPartitionResponse.TopicData.PartitionData
_TopicResult = AlterPartitionResponse.TopicData


class _Proposed(NamedTuple):
    isr: tuple[int, ...]
    is_recovering: bool
    leader_epoch: int
    partition_epoch: int
    broker_epochs: dict[int, int]


async def alter_partitions(
    office: Office, request: AlterPartitionRequest, version: int
) -> tuple[AlterPartitionResponse, list[Key]]:
    """The answer, and the partitions that have changed."""
    context = office.context
    member = context.members.get(request.broker_id)
    if member is None or member.epoch != request.broker_epoch:
        registered = "is not registered" if member is None else f"is registered at {member.epoch}"
        reason = f"broker {request.broker_id} sent epoch {request.broker_epoch}, but it {registered}"
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, reason)
    verdicts: dict[Key, ErrorCode] = {}
    wanted: dict[Key, _Proposed] = {}
    topics: list[tuple[_TopicResult, str | None, Sequence[_Asked]]] = []
    for asked in request.topics:
        name = context.names.get(asked.topic_id) if version >= _WITH_IDS else asked.topic_name
        name = name if name in context.topics and name not in office.forgotten else None
        result = _TopicResult(topic_name=asked.topic_name, topic_id=asked.topic_id, partitions=[])
        topics.append((result, name, asked.partitions))
        if name is None:
            continue
        for one in asked.partitions:
            key = name, one.partition_index
            proposed = _proposed(one, version)
            verdict = judge(context, key, proposed, version)
            if verdict is None:
                wanted[key] = proposed
            else:
                verdicts[key] = verdict
    changed = await office.change(wanted, lambda key, state: _changed_to(wanted[key], state, context.epoch))
    for key in changed.failed:
        verdicts[key] = ErrorCode.INVALID_UPDATE_VERSION
    batch = office.batch()
    batch.tell_everyone(changed.done)
    if changed.done:
        office.send(batch)
    for result, name, partitions in topics:
        for one in partitions:
            if name is None:
                code = (
                    ErrorCode.UNKNOWN_TOPIC_ID
                    if version >= _WITH_IDS and result.topic_id != ZERO_UUID
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                result.partitions.append(_failure(one.partition_index, code))
                continue
            key = name, one.partition_index
            verdict = verdicts.get(key, ErrorCode.NONE)
            state = context.states.get(key)
            if verdict is not ErrorCode.NONE or state is None:
                result.partitions.append(_failure(one.partition_index, verdict))
            else:
                result.partitions.append(_success(one.partition_index, state))
    response = AlterPartitionResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, topics=[result for result, _, _ in topics]
    )
    return response, list(changed.done)


def _proposed(asked: _Asked, version: int) -> _Proposed:
    if version >= _WITH_EPOCHS:
        members = {one.broker_id: one.broker_epoch for one in asked.new_isr_with_epochs}
    else:
        members = dict.fromkeys(asked.new_isr, -1)
    return _Proposed(
        tuple(members),
        asked.leader_recovery_state == _RECOVERING,
        asked.leader_epoch,
        asked.partition_epoch,
        members,
    )


def _changed_to(proposed: _Proposed, state: PartitionState, controller_epoch: int) -> Choice | None:
    """None if the partition is not any more what the proposal was judged by."""
    if state.leader_epoch != proposed.leader_epoch or state.partition_epoch != proposed.partition_epoch:
        return None
    changed = state._replace(
        isr=proposed.isr, is_recovering=proposed.is_recovering, controller_epoch=controller_epoch
    )
    return Choice(changed, ())


def judge(context: Context, key: Key, proposed: _Proposed, version: int) -> ErrorCode | None:
    """None grants it. NONE says that it is so already."""
    state, assignment = context.states.get(key), context.assignment(key)
    if state is None or assignment is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if proposed.leader_epoch > state.leader_epoch or proposed.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # it knows of what we do not: a newer controller's doing
    if proposed.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if set(proposed.isr) == set(state.isr) and proposed.is_recovering == state.is_recovering:
        return ErrorCode.NONE
    if proposed.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if state.leader not in proposed.isr or not set(proposed.isr) <= set(assignment.replicas):
        return ErrorCode.INVALID_REQUEST
    if proposed.is_recovering and (len(proposed.isr) > 1 or not state.is_recovering):
        return ErrorCode.INVALID_REQUEST
    for broker_id, epoch in proposed.broker_epochs.items():
        member = context.members.get(broker_id)
        is_same = member is not None and epoch in (-1, member.epoch)
        if not context.is_live(broker_id) or not is_same:
            return ErrorCode.INELIGIBLE_REPLICA if version > 1 else ErrorCode.OPERATION_NOT_ATTEMPTED
    return None


def _failure(partition_id: int, code: ErrorCode) -> _Result:
    return _Result(
        partition_index=partition_id, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
    )


def _success(partition_id: int, state: PartitionState) -> _Result:
    return _Result(
        partition_index=partition_id,
        error_code=ErrorCode.NONE,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=int(state.is_recovering),
        partition_epoch=state.partition_epoch,
    )
