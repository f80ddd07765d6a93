"""The short way of heartbeats to consumer groups: of members that have what they shall, and say nothing.

Nearly every heartbeat is one. Nothing is to be decided then: the member lives, and is told its epoch.
"""

from __future__ import annotations

from quorate.coordinator.consumer_group import ConsumerGroup
from quorate.coordinator.consumer_members import Member
from quorate.coordinator.effects import Caller
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest

__all__ = ["is_settled", "says_nothing_of_itself"]


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


def says_nothing_of_itself(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> bool:
    """Whether all that is known of a member stays as it is."""
    return (
        member.client_id == caller.client_id
        and member.client_host == caller.client_host
        and request.instance_id is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
    )
