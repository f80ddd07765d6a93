"""Answers to members of classic groups, in the form that the version of their request has."""

from __future__ import annotations

from quorate.coordinator.classic import ClassicGroup
from quorate.coordinator.classic_members import NOBODY, Member
from quorate.protocol.api.groups import JoinGroupResponse, SyncGroupResponse
from quorate.protocol.errors import ErrorCode

__all__ = ["assigned", "join_refused", "joined", "listing", "sync_refused"]


def joined(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """The member is in this generation. The leader learns who else is."""
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=group.leader,
        member_id=member.member_id,
        members=listing(group) if member.member_id == group.leader else [],
    )


def join_refused(version: int, code: ErrorCode, member_id: str = NOBODY) -> JoinGroupResponse:
    """A protocol's name that is not there is null in newer versions, and was nothing before."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= 7 else "",
        leader=NOBODY,
        member_id=member_id,
        members=[],
    )


def listing(group: ClassicGroup) -> list[JoinGroupResponse.Member]:
    """Who is in the group, for its leader."""
    protocol = group.protocol or ""
    return [
        JoinGroupResponse.Member(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(protocol),
        )
        for member in group.members
    ]


def assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")
