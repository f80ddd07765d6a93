"""A leader proposes who is in sync (AlterPartition), and says when it has recovered.

What can be wrong with a proposal is tried in this order, because the leader acts on the answer:

| what                                                                     | answer                      |
|--------------------------------------------------------------------------|-----------------------------|
| the sender is not the registered incarnation of its broker               | STALE_BROKER_EPOCH, for all |
| there is no such topic                                                   | UNKNOWN_TOPIC_ID            |
| there is no such partition                                               | UNKNOWN_TOPIC_OR_PARTITION  |
| it knows later epochs than we do: then it is we who lag                  | NOT_CONTROLLER              |
| its leader epoch is over                                                 | FENCED_LEADER_EPOCH         |
| it does not lead                                                         | INVALID_REQUEST             |
| the partition has changed since it looked                                | INVALID_UPDATE_VERSION      |
| the ISR repeats somebody, names a non-replica, or leaves out the leader  | INVALID_REQUEST             |
| it recovers with others in sync, or recovers without an unclean election | INVALID_REQUEST             |
| a member is unknown, shutting down, fenced, or was restarted since       | INELIGIBLE_REPLICA          |

A proposal can complete a reassignment, and that can take the leadership from the leader that proposed. Then
the change is made, and the answer is NEW_LEADER_ELECTED all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quorate.controller.decision import Decision, Situation
from quorate.controller.elections import Changes
from quorate.controller.partition_change import Wanted
from quorate.controller.partition_events import AlterPartitionRefused
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import Partition
from quorate.metadata.topics import Topic
from quorate.protocol.api.brokers import AlterPartitionRequest, AlterPartitionResponse
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["check_broker_epoch", "decide_alter_partition"]

_Proposal = AlterPartitionRequest.TopicData.PartitionData
_Member = AlterPartitionRequest.TopicData.PartitionData.BrokerState
_TopicResult = AlterPartitionResponse.TopicData
_Result = AlterPartitionResponse.TopicData.PartitionData

_WITH_EPOCHS: Final = 3  # the version from which on members come with their broker epochs
_ANY_EPOCH: Final = -1
_RECOVERED: Final = 0
_RECOVERING: Final = 1


def decide_alter_partition(situation: Situation, request: AlterPartitionRequest) -> Decision:
    """Every partition is decided on its own; one that is refused does not keep the others back."""
    check_broker_epoch(situation.image, request.broker_id, request.broker_epoch)
    changes = Changes(situation)
    refused: dict[ErrorCode, list[str]] = {}
    topics = []
    for asked in request.topics:
        topic = situation.image.topics.by_id.get(asked.topic_id)
        results = []
        for proposal in asked.partitions:
            members = _members(proposal, situation.asker.api_version)
            try:
                if topic is None:
                    reason = f"there is no topic with id {asked.topic_id}"
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, reason)
                partition = _checked(changes, topic, proposal, members, request.broker_id)
                results.append(_alter(changes, topic, partition, proposal, members))
            except ApiError as error:
                refused.setdefault(error.code, []).append(error.message)
                results.append(_failure(proposal.partition_index, error.code))
        topics.append(_TopicResult(topic_id=asked.topic_id, partitions=results))
    events = [
        AlterPartitionRefused(request.broker_id, request.broker_epoch, code.name, len(reasons), reasons[0])
        for code, reasons in refused.items()
    ]
    return Decision(
        reply=AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics),
        records=changes.records,
        events=[*events, *changes.events("reassignment")],
    )


def check_broker_epoch(image: ClusterImage, broker_id: int, epoch: int) -> None:
    """Only the registered incarnation of a broker may speak for it."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        registered = "it is not registered" if broker is None else f"it is registered at epoch {broker.epoch}"
        reason = f"broker {broker_id} sent epoch {epoch}, but {registered}"
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, reason)


def _members(proposal: _Proposal, api_version: int) -> Sequence[_Member]:
    if api_version >= _WITH_EPOCHS:
        return proposal.new_isr_with_epochs
    return [_Member(broker_id=one, broker_epoch=_ANY_EPOCH) for one in proposal.new_isr]


def _alter(
    changes: Changes, topic: Topic, partition: Partition, proposal: _Proposal, members: Sequence[_Member]
) -> _Result:
    proposed = {one.broker_id for one in members}
    wanted = Wanted(
        election=changes.election(topic),
        isr=[one for one in partition.replicas if one in proposed],
        is_recovering=proposal.leader_recovery_state == _RECOVERING,
    )
    record = changes.build(topic, proposal.partition_index, wanted)
    sender = partition.leader
    if record is not None:
        partition = changes.add(topic, record)
    if partition.leader != sender:
        return _failure(proposal.partition_index, ErrorCode.NEW_LEADER_ELECTED)
    return _Result(
        partition_index=proposal.partition_index,
        error_code=ErrorCode.NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=_RECOVERING if partition.is_recovering else _RECOVERED,
        partition_epoch=partition.partition_epoch,
    )


def _failure(partition_id: int, code: ErrorCode) -> _Result:
    return _Result(
        partition_index=partition_id, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
    )


# The checks, in their order


def _checked(
    changes: Changes, topic: Topic, proposal: _Proposal, members: Sequence[_Member], sender: int
) -> Partition:
    """The partition that the proposal is for, if it may be granted."""
    partition = changes.partition(topic, proposal.partition_index)
    code, problem = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"
    if partition is not None:
        code, problem = (
            _outdated(partition, proposal, sender)
            or _wrong(partition, proposal, [one.broker_id for one in members])
            or _ineligible(changes.image, members)
            or (ErrorCode.NONE, "")
        )
        if code is ErrorCode.NONE:
            return partition
    raise ApiError(code, f"{topic.name}-{proposal.partition_index} {problem}")


def _outdated(partition: Partition, proposal: _Proposal, sender: int) -> tuple[ErrorCode, str] | None:
    leader_epoch, partition_epoch = proposal.leader_epoch, proposal.partition_epoch
    if leader_epoch > partition.leader_epoch:
        reason = f"is at leader epoch {partition.leader_epoch} here, and the leader is ahead: {leader_epoch}"
        return ErrorCode.NOT_CONTROLLER, reason
    if partition_epoch > partition.partition_epoch:
        epoch = partition.partition_epoch
        reason = f"is at partition epoch {epoch} here, and the leader is ahead: {partition_epoch}"
        return ErrorCode.NOT_CONTROLLER, reason
    if leader_epoch < partition.leader_epoch:
        return (
            ErrorCode.FENCED_LEADER_EPOCH,
            f"is at leader epoch {partition.leader_epoch}, not {leader_epoch}",
        )
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST, f"is led by {partition.leader}, not by {sender}"
    if partition_epoch < partition.partition_epoch:
        reason = f"is at partition epoch {partition.partition_epoch}, not {partition_epoch}"
        return ErrorCode.INVALID_UPDATE_VERSION, reason
    return None


def _wrong(partition: Partition, proposal: _Proposal, isr: Sequence[int]) -> tuple[ErrorCode, str] | None:
    code, state = ErrorCode.INVALID_REQUEST, proposal.leader_recovery_state
    if len(set(isr)) < len(isr):
        return code, f"cannot have an ISR with repetitions: {isr}"
    if not set(isr) <= set(partition.replicas):
        return code, f"has the replicas {list(partition.replicas)}; others are in the ISR: {isr}"
    if partition.leader not in isr:
        return code, f"cannot have an ISR without its leader {partition.leader}: {isr}"
    if state not in (_RECOVERED, _RECOVERING):
        return code, f"cannot have the leader recovery state {state}: 0 is recovered, 1 is recovering"
    if state == _RECOVERING and len(isr) > 1:
        return code, f"cannot have more than its leader in the ISR while that is recovering: {isr}"
    if state == _RECOVERING and not partition.is_recovering:
        return code, "has recovered, and only an unclean election makes it recover again"
    return None


def _ineligible(image: ClusterImage, members: Sequence[_Member]) -> tuple[ErrorCode, str] | None:
    for one in members:
        broker = image.brokers.get(one.broker_id)
        if broker is None:
            problem = "is not registered"
        elif broker.is_shutting_down:
            problem = "is shutting down"
        elif broker.is_fenced:
            problem = "is fenced"
        elif one.broker_epoch not in (_ANY_EPOCH, broker.epoch):
            problem = f"is registered at epoch {broker.epoch}, not {one.broker_epoch}"
        else:
            continue
        return ErrorCode.INELIGIBLE_REPLICA, f"cannot have broker {one.broker_id} in its ISR: it {problem}"
    return None
