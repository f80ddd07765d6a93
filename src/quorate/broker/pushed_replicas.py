"""What a controller's requests mean for the replicas of one broker: which are taken, and which are too old.

Pure. Four numbers say whether a request, or a part of it, still counts. The broker epoch: it may be meant for
an earlier life of this broker. The controller epoch: it may be from a controller that has been replaced and
does not know it. The leader epoch: it may have been overtaken by a later decision about the partition. The
partition epoch: the answer to a proposal of ours may have been here first. See `Fences` for the first two;
they hold for all three kinds of requests together, so whoever asks must have nobody beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quorate.metadata.partition import MIGRATING, UNASSIGNED
from quorate.metadata.partitions import Partition as PartitionState
from quorate.protocol.api.zookeeper_era import LeaderAndIsrPartitionState, StopReplicaRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["Fences", "Held", "judge_state", "judge_stop", "state_of"]

EPOCH_UNKNOWN: Final = -1
_ABSENT, _DURING_DELETION = -1, -2  # leader epochs of StopReplica that stand for none
_RECOVERING: Final = 1

_Stop = StopReplicaRequest.TopicState.PartitionState


@dataclass(slots=True)
class Fences:
    """Who may tell this broker what to do."""

    broker_epoch: int = EPOCH_UNKNOWN  # of our registration
    controller_epoch: int = -1  # the largest that was heard of

    def admit(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        """Whether a request counts; if it does, whoever sent it is the controller from now on.

        A broker epoch above ours is not refused: the controller may have seen our registration before we
        have heard of it ourselves.
        """
        if EPOCH_UNKNOWN < broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Held:
    """A replica that this broker has open."""

    topic_id: Uuid
    leader_epoch: int
    has_failed: bool = False


def judge_state(
    broker_id: int,
    topic_id: Uuid,
    state: LeaderAndIsrPartitionState,
    held: Held | None,
    *,
    is_equal_allowed: bool = False,
) -> ErrorCode:
    """Whether a replica becomes what LeaderAndIsr says; `held` is the open one of the same topic name.

    The same leader epoch once more is nothing new, and is normal after another controller has taken over; a
    KRaft controller may repeat it on purpose (`is_equal_allowed`).
    """
    if held is not None and held.has_failed:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if held is not None and held.topic_id != topic_id:
        return ErrorCode.INCONSISTENT_TOPIC_ID
    if held is not None:
        least = held.leader_epoch + (0 if is_equal_allowed else 1)
        if state.leader_epoch < least:
            return ErrorCode.STALE_CONTROLLER_EPOCH
    if broker_id not in state.replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def judge_stop(state: _Stop, held: Held | None) -> ErrorCode:
    """Whether a replica stops. A topic that is being deleted has no epoch to compare."""
    if held is None:
        return ErrorCode.NONE
    if held.has_failed:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if state.leader_epoch in (_ABSENT, _DURING_DELETION) or state.leader_epoch >= held.leader_epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH


def state_of(state: LeaderAndIsrPartitionState) -> PartitionState:
    """The partition as the rest of a broker knows it. Nobody keeps in mind which disk a replica is on: it is
    where it is found, and a new one is where there is room."""
    replicas = tuple(state.replicas)
    among: Callable[[int], bool] = replicas.__contains__
    return PartitionState(
        replicas=replicas,
        directories=(UNASSIGNED if state.is_new else MIGRATING,) * len(replicas),
        isr=tuple(filter(among, state.isr)),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        removing=tuple(filter(among, state.removing_replicas)),
        adding=tuple(filter(among, state.adding_replicas)),
        is_recovering=state.leader_recovery_state == _RECOVERING,
    )
