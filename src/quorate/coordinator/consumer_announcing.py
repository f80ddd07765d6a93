"""Members that come at the same time: the target is computed once for all of them.

Whoever comes to a group changes the targets of many others, and when hundreds come, each of those would be
written again and again. So a host may have a member announced first: it is noted, and the group is at another
epoch. When the host has nothing more to hear for now, each of them is heard as if it came only then: the
first one finds a target that is behind the group, and all others find one that holds.

Only those are announced of whom it is plain what they want; all others are heard at once.
"""

from __future__ import annotations

from quorate.coordinator import consumer_records as records
from quorate.coordinator.consumer_admission import check_request, check_room, check_size
from quorate.coordinator.consumer_group import ConsumerGroup, Surroundings, next_epoch
from quorate.coordinator.consumer_members import Member
from quorate.coordinator.consumer_says import as_it_says
from quorate.coordinator.effects import Caller
from quorate.coordinator.step import Step
from quorate.coordinator.topics_view import metadata_hash
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest
from quorate.protocol.errors import ApiError

__all__ = ["announce"]


def announce(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    around: Surroundings,
    step: Step,
) -> None:
    """Notes a member that comes to a group, if it is new and asks for topics by their names. What is wrong
    with it is said when it is heard."""
    state, member_id = group.state, request.member_id
    is_plain = (
        request.member_epoch == 0
        and request.instance_id is None
        and not request.subscribed_topic_regex
        and bool(request.subscribed_topic_names)
    )
    if not is_plain or not member_id or member_id in state.members or state.has_partition_metadata:
        return
    try:
        check_request(request, caller.version, around.rules.assignors)
        check_size(state, member_id, around.rules.max_size)
        says = as_it_says(Member(member_id=member_id), request, caller)
        check_room(state, says, around.rules.metadata_max_bytes)
    except ApiError:
        return
    found_hash = metadata_hash(state.subscribed_topics(plus=says), around.topics)
    step.records.append(records.member_metadata(state.group_id, says))
    step.records.append(next_epoch(group, found_hash, "a member joined", says, step))
    group.refreshed(state.epoch + 1)
