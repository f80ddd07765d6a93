"""What consumer groups have to say beside what all groups do: see `events`."""

from __future__ import annotations

from quorate.metadata.event import Event
from quorate.values import dataclass

__all__ = ["ConsumerRebalanceEnded", "GroupConverted", "GroupEpochBumped", "TargetComputed"]


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
    topics: tuple[str, ...] = ()  # that have changed, if that is why and it is known; the first of them
    more_topics: int = 0  # that have changed too

    def line(self) -> str:
        who = (
            f" member={self.member_id} client={self.client_id} host={self.client_host}"
            if self.member_id
            else ""
        )
        more = f" and {self.more_topics} more" if self.more_topics else ""
        topics = f" topics={','.join(self.topics)}{more}" if self.topics else ""
        return (
            f"Group {self.group_id} is at epoch {self.epoch}: {self.trigger}{who}{topics}"
            f" members={self.members}"
        )


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
class ConsumerRebalanceEnded(Event):
    """Every member has what it shall have at the group's epoch, or nobody is left."""

    group_id: str
    epoch: int  # that all have come to; there may have been several on the way
    members: int
    duration_ms: int | None  # None if it began under another coordinator: the log does not say when
    trigger: str = ""  # of its start; empty if that is not known
    removed: tuple[str, ...] = ()  # members that were put out on the way; the first of them

    def line(self) -> str:
        duration = "unknown" if self.duration_ms is None else self.duration_ms
        removed = f" removed={','.join(self.removed)}" if self.removed else ""
        trigger = f" trigger={self.trigger!r}" if self.trigger else ""
        what = (
            f"Stabilized group {self.group_id} epoch {self.epoch} with {self.members} members"
            if self.members
            else f"Group {self.group_id} with epoch {self.epoch} is now empty"
        )
        return f"{what} duration_ms={duration}{removed}{trigger}"


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
