"""What the group coordinator has to say: why did a group rebalance, who was put out of it, and what was lost.

`RebalanceStarted` names the trigger: what happened, by which member, from which client and host, and the
reason that the client gave. `RebalanceEnded` closes it with the new generation, how long members waited, and
who did not come back; `AssignmentStored` says that the members have their partitions again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from quorate.metadata.event import Event
from quorate.values import dataclass

__all__ = [
    "AssignmentStored",
    "GroupAppendRefused",
    "GroupDeleted",
    "GroupsLoaded",
    "GroupsUnloaded",
    "MemberFenced",
    "MemberRefused",
    "MemberRemoved",
    "OffsetsExpired",
    "RebalanceEnded",
    "RebalanceStarted",
]


@dataclass(frozen=True, slots=True)
class RebalanceStarted(Event):
    group_id: str
    generation: int  # that ends with it
    trigger: str
    state: str  # that the group was in
    members: int
    member_id: str = ""  # whose doing it was; empty if it was nobody's
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str = ""  # that the client gave

    def line(self) -> str:
        who = (
            f" member={self.member_id} client={self.client_id} host={self.client_host}"
            if self.member_id
            else ""
        )
        instance = f" instance={self.instance_id}" if self.instance_id is not None else ""
        reason = f" reason={self.reason!r}" if self.reason else ""
        return (
            f"Preparing to rebalance group {self.group_id} in state {self.state}"
            f" with old generation {self.generation}: {self.trigger}{who}{instance}{reason}"
            f" members={self.members}"
        )


@dataclass(frozen=True, slots=True)
class RebalanceEnded(Event):
    group_id: str
    generation: int  # that begins with it
    trigger: str  # of its start
    members: int
    leader: str  # empty if nobody is left
    protocol: str
    duration_ms: int  # since it started
    removed: tuple[str, ...] = ()  # who did not come back in time

    def line(self) -> str:
        removed = f" removed={','.join(self.removed)}" if self.removed else ""
        if not self.members:
            return f"Group {self.group_id} with generation {self.generation} is now empty{removed}"
        return (
            f"Stabilized group {self.group_id} generation {self.generation} with {self.members} members"
            f" leader={self.leader} protocol={self.protocol} duration_ms={self.duration_ms}{removed}"
            f" trigger={self.trigger!r}"
        )


@dataclass(frozen=True, slots=True)
class AssignmentStored(Event):
    group_id: str
    generation: int
    leader: str
    members: int
    static_members: int
    without_assignment: int  # that the leader did not mention
    duration_ms: int  # since the members were told who is in the group

    def line(self) -> str:
        return (
            f"Assignment received from leader {self.leader} for group {self.group_id}"
            f" for generation {self.generation}: members={self.members} static={self.static_members}"
            f" without_assignment={self.without_assignment} duration_ms={self.duration_ms}"
        )


@dataclass(frozen=True, slots=True)
class MemberRemoved(Event):
    """A member went, or was put out."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    check: str  # left, missed heartbeats, ...
    session_timeout_ms: int
    reason: str = ""  # that the client gave

    def line(self) -> str:
        instance = f" instance={self.instance_id}" if self.instance_id is not None else ""
        reason = f" reason={self.reason!r}" if self.reason else ""
        return (
            f"Member {self.member_id} was removed from group {self.group_id}: {self.check}"
            f" generation={self.generation} client={self.client_id} host={self.client_host}{instance}"
            f" session_timeout_ms={self.session_timeout_ms}{reason}"
        )


@dataclass(frozen=True, slots=True)
class MemberFenced(Event):
    """A static member came back under the same name: whoever had it before is locked out."""

    warns: ClassVar[bool] = True
    group_id: str
    generation: int
    instance_id: str
    fenced_member_id: str
    member_id: str  # that has the name now
    client_id: str
    client_host: str

    def line(self) -> str:
        return (
            f"Static member {self.instance_id} of group {self.group_id} joined anew: member {self.member_id}"
            f" replaces {self.fenced_member_id}, which is fenced generation={self.generation}"
            f" client={self.client_id} host={self.client_host}"
        )


@dataclass(frozen=True, slots=True)
class MemberRefused(Event):
    """Somebody may not join; or speaks to a consumer group as a member that it is not, or is not any more."""

    warns: ClassVar[bool] = True
    group_id: str
    member_id: str
    client_id: str
    client_host: str
    error: str
    reason: str
    request: str = "join"  # or "heartbeat" or "leave", which are those of a consumer group

    def line(self) -> str:
        what = _REFUSED.get(self.request, f"Refused a {self.request} to group")
        return (
            f"{what} {self.group_id}: {self.reason} error={self.error}"
            f" member={self.member_id} client={self.client_id} host={self.client_host}"
        )


_REFUSED: Final[Mapping[str, str]] = {
    "join": "Refused to let a member join group",
    "heartbeat": "Refused a heartbeat to group",
    "leave": "Refused to let a member leave group",
}


@dataclass(frozen=True, slots=True)
class GroupDeleted(Event):
    group_id: str
    check: str  # asked for, or: its last offset expired
    offsets: int

    def line(self) -> str:
        return f"Group {self.group_id} was deleted: {self.check} offsets={self.offsets}"


@dataclass(frozen=True, slots=True)
class OffsetsExpired(Event):
    group_id: str
    offsets: int
    retention_ms: int

    def line(self) -> str:
        return f"Expired {self.offsets} offsets of group {self.group_id} retention_ms={self.retention_ms}"


@dataclass(frozen=True, slots=True)
class GroupAppendRefused(Event):
    """What was decided did not come to pass, because the log would not take it."""

    warns: ClassVar[bool] = True
    group_ids: tuple[str, ...]
    records: int
    error: str  # of the log
    answer: str  # that members get
    offsets: int = 0  # of these records: if all are, no member of a group is concerned

    def line(self) -> str:
        return (
            f"The log refused {self.records} records of group {', '.join(self.group_ids)}"
            f" error={self.error} answer={self.answer}"
        )


@dataclass(frozen=True, slots=True)
class GroupsLoaded(Event):
    """This broker coordinates the groups of a partition of `__consumer_offsets` from now on."""

    partition: int
    groups: int
    members: int
    offsets: int
    open_transactions: int

    def line(self) -> str:
        return (
            f"Loaded {self.groups} groups partition={self.partition} members={self.members}"
            f" offsets={self.offsets} open_transactions={self.open_transactions}"
        )


@dataclass(frozen=True, slots=True)
class GroupsUnloaded(Event):
    """It does not any more."""

    partition: int
    groups: int
    waiting: int  # requests that were sent away

    def line(self) -> str:
        return f"Unloaded {self.groups} groups partition={self.partition} waiting={self.waiting}"
