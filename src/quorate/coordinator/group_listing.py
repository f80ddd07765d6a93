"""Groups as operators see them: ListGroups, and DescribeGroups for classic ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quorate.coordinator.classic import ClassicGroup, State
from quorate.coordinator.consumer_group import ConsumerGroup
from quorate.coordinator.subscriptions import CONSUMER
from quorate.protocol.api.groups import DescribeGroupsResponse, ListGroupsRequest, ListGroupsResponse
from quorate.protocol.errors import ErrorCode

__all__ = ["CLASSIC", "describe_classic", "describe_unknown", "list_classic", "list_consumer", "matching"]

CLASSIC = "classic"
"""The type of these groups, as ListGroups calls it."""

Described = DescribeGroupsResponse.DescribedGroup
Listed = ListGroupsResponse.ListedGroup


def list_classic(group: ClassicGroup) -> Listed:
    return Listed(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=str(group.state),
        group_type=CLASSIC,
    )


def list_consumer(group: ConsumerGroup) -> Listed:
    return Listed(
        group_id=group.group_id,
        protocol_type=CONSUMER,
        group_state=str(group.state.phase),
        group_type=CONSUMER,
    )


def matching(request: ListGroupsRequest, groups: Sequence[Listed]) -> list[Listed]:
    """Those that are in one of the states and of one of the types that are asked for, if any are."""
    states = _asked(request.states_filter, (one.group_state for one in groups))
    types = _asked(request.types_filter, (one.group_type for one in groups))
    return [one for one in groups if one.group_state in states and one.group_type in types]


def _asked(asked: Sequence[str], found: Iterable[str]) -> set[str]:
    """What is asked for of what there is, of which there is little: all, if nothing is named."""
    there = {one.lower(): one for one in found}
    if not asked:
        return set(there.values())
    return {there[low] for one in asked if (low := one.lower()) in there}


def describe_classic(group: ClassicGroup) -> Described:
    """Only of a stable group is it certain which protocol the members' metadata are of."""
    is_stable = group.state is State.STABLE
    protocol = (group.protocol or "") if is_stable else ""
    return Described(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=str(group.state),
        protocol_type=group.protocol_type,
        protocol_data=protocol,
        members=[
            Described.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def describe_unknown(group_id: str, consumer: ConsumerGroup | None, version: int) -> Described:
    """Until v6 a group that is not there, or is of the other protocol, was a dead one, and no error."""
    tells = version >= 6
    reason = "not found" if consumer is None else "is not a classic group"
    return Described(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if tells else ErrorCode.NONE,
        error_message=f"Group {group_id} {reason}." if tells else None,
        group_id=group_id,
        group_state=str(State.DEAD),
        protocol_type="",
        protocol_data="",
        members=[],
    )
