"""What consumer groups have to say beside what all groups do: see `events`."""

from __future__ import annotations

from quorate.metadata.event import Event
from quorate.values import dataclass

__all__ = ["GroupConverted", "GroupEpochBumped", "TargetComputed"]


@dataclass(frozen=True, slots=True)
class GroupEpochBumped(Event):
    """Something changed, so that the group needs another assignment."""

    group_id: str
    epoch: int
    trigger: str
    members: int  # before
    member_id: str = ""  # whose doing it was; empty if it was nobody's
    client_id: str = ""
    client_host: str = ""

    def line(self) -> str:
        who = (
            f" member={self.member_id} client={self.client_id} host={self.client_host}"
            if self.member_id
            else ""
        )
        return f"Group {self.group_id} is at epoch {self.epoch}: {self.trigger}{who} members={self.members}"


@dataclass(frozen=True, slots=True)
class TargetComputed(Event):
    group_id: str
    epoch: int
    assignor: str
    members: int
    changed: int  # members whose target is another now

    def line(self) -> str:
        return (
            f"Assigned group {self.group_id} at epoch {self.epoch} assignor={self.assignor}"
            f" members={self.members} changed={self.changed}"
        )


@dataclass(frozen=True, slots=True)
class GroupConverted(Event):
    """A group has gone over to the other protocol."""

    group_id: str
    to: str  # classic, or consumer
    epoch: int
    members: int
    member_id: str  # whose doing it was

    def line(self) -> str:
        return (
            f"Converted group {self.group_id} to the {self.to} protocol epoch={self.epoch}"
            f" members={self.members} member={self.member_id}"
        )
