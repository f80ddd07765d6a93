"""What a member of a consumer group says of itself with a heartbeat: only what is new, as a rule nothing."""

from __future__ import annotations

from quorate.coordinator.consumer_members import Member
from quorate.coordinator.effects import Caller
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest

__all__ = ["as_it_says", "says_nothing_of_itself"]


def as_it_says(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """The member after what it says about itself; the same, if it says nothing new."""
    if member.classic is None and _says_what_is_known(member, request, caller):
        return member
    return member.saying(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topic_names=member.topic_names
        if request.subscribed_topic_names is None
        else frozenset(request.subscribed_topic_names),
        topic_regex=member.topic_regex
        if request.subscribed_topic_regex is None
        else request.subscribed_topic_regex,
        server_assignor=member.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
        classic=None,
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


def _says_what_is_known(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> bool:
    """The same of a member that may say again what it has said before, as one that was announced does."""
    return (
        member.client_id == caller.client_id
        and member.client_host == caller.client_host
        and request.instance_id in {None, member.instance_id}
        and request.rack_id in {None, member.rack_id}
        and request.rebalance_timeout_ms in {-1, member.rebalance_timeout_ms}
        and request.subscribed_topic_regex in {None, member.topic_regex}
        and request.server_assignor in {None, member.server_assignor}
        and (
            request.subscribed_topic_names is None
            or member.topic_names == frozenset(request.subscribed_topic_names)
        )
    )
