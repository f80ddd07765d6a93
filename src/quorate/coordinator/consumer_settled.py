"""The short way of heartbeats to consumer groups: of members that have what they shall, and say nothing.

Nearly every heartbeat is one. Nothing is to be decided then: the member lives, and is told its epoch. As long
as that is so it is the same answer each time, and nobody may change it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from quorate.coordinator.consumer_group import ConsumerGroup
from quorate.coordinator.consumer_says import says_nothing_of_itself
from quorate.coordinator.effects import Caller
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from quorate.protocol.errors import ErrorCode

__all__ = ["is_settled", "settled_answer"]

_ANSWERS_MAX: Final = 10_000  # that are remembered


def is_settled(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> bool:
    """Whether a heartbeat leads to nothing but a later deadline; `consumer.heartbeat` would say the same."""
    state = group.state
    member = state.members.get(request.member_id)
    return (
        member is not None
        and member.classic is None
        and request.member_epoch == member.epoch == state.epoch
        and member.is_reconciled_to(state.target_epoch)
        and not group.wants_refresh
        and not state.regex_counts  # expressions are looked up again from time to time
        and request.topic_partitions is None
        and says_nothing_of_itself(member, request, caller)
    )


@lru_cache(maxsize=_ANSWERS_MAX)
def settled_answer(
    member_id: str, member_epoch: int, heartbeat_interval_ms: int
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=member_id,
        member_epoch=member_epoch,
        heartbeat_interval_ms=heartbeat_interval_ms,
        assignment=None,
    )
