"""A classic group: members that agree, through a leader of their own, on who does what.

    Empty                nobody is in it; it may have offsets
    PreparingRebalance   members are called together: each has to join anew
    CompletingRebalance  a generation has begun; the leader works out the assignment, the others wait for it
    Stable               everybody has its assignment
    Dead                 deleted, or given up because another broker coordinates it now

Theory of operation. A member *joins* and waits. The answers leave together once everybody is there, or once
the time to come back is over: that is the beginning of a *generation*, whose number only goes up. Every
member hears the number and who leads; the leader alone hears who is in the group, and what each says about
itself. Then everybody *syncs*: the leader brings the assignment of all, the others wait for theirs. The
coordinator never looks into an assignment. It writes the generation with its assignments to the log, and only
then is the group stable. Nothing else of all this is written, but that a group is empty and that a static
member was replaced; so the next coordinator finds the last generation that was complete.

From then on members send *heartbeats*. Whoever is silent for longer than its session time-out is put out.
When a member comes, goes, or wants something else, the group prepares again: the next heartbeat of each
member is answered REBALANCE_IN_PROGRESS, and it joins anew. A heartbeat while the leader still works is an
ordinary one.

An empty group waits a little for more members before its first generation, since they tend to start together.

Which state follows which, and upon what, stands in `TRANSITIONS`. `classic_rebalance` does what the states
ask for, `classic_joining` and `classic_requests` look at what members say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from quorate.coordinator.classic_members import NOBODY, Member, Members
from quorate.coordinator.group_records import GroupMetadataKey, GroupMetadataValue
from quorate.coordinator.step import Step, Timer, TimerKind
from quorate.coordinator.subscriptions import CONSUMER, topics_of
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.values import dataclass, plain_members

__all__ = ["TRANSITIONS", "Cause", "ClassicGroup", "State", "TransitionError", "Trigger"]


@plain_members
class State(StrEnum):
    """The names are those that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@plain_members
class Trigger(StrEnum):
    """What changes a state. The words are those of the events that tell of it."""

    JOINED = "a member joined"
    LEFT = "members left"
    EXPIRED = "a member missed its heartbeats"
    CHANGED = "a member changed its subscription"
    LEADER_REJOINED = "the leader joined again"
    REPLACED = "a static member was replaced"
    SYNC_OVERDUE = "members did not ask for their assignment in time"
    NOT_STORED = "the assignment could not be stored"
    OVERSIZED = "the group is larger than it may be"
    COMPLETE = "everybody joined, or the time was over"
    ABANDONED = "nobody is left"
    ASSIGNED = "the assignment is stored"
    DELETED = "deleted"
    UPGRADED = "became a consumer group"
    UNLOADED = "another broker coordinates it"


TRANSITIONS: Final[Mapping[tuple[State, Trigger], State]] = {
    (State.EMPTY, Trigger.JOINED): State.PREPARING,
    (State.STABLE, Trigger.JOINED): State.PREPARING,
    (State.STABLE, Trigger.LEFT): State.PREPARING,
    (State.STABLE, Trigger.EXPIRED): State.PREPARING,
    (State.STABLE, Trigger.CHANGED): State.PREPARING,
    (State.STABLE, Trigger.LEADER_REJOINED): State.PREPARING,
    # Only if the group would choose another protocol; otherwise nobody notices.
    (State.STABLE, Trigger.REPLACED): State.PREPARING,
    (State.STABLE, Trigger.SYNC_OVERDUE): State.PREPARING,
    (State.STABLE, Trigger.OVERSIZED): State.PREPARING,
    (State.COMPLETING, Trigger.JOINED): State.PREPARING,
    (State.COMPLETING, Trigger.LEFT): State.PREPARING,
    (State.COMPLETING, Trigger.EXPIRED): State.PREPARING,
    (State.COMPLETING, Trigger.CHANGED): State.PREPARING,
    (State.COMPLETING, Trigger.REPLACED): State.PREPARING,
    (State.COMPLETING, Trigger.SYNC_OVERDUE): State.PREPARING,
    (State.COMPLETING, Trigger.NOT_STORED): State.PREPARING,
    (State.COMPLETING, Trigger.ASSIGNED): State.STABLE,
    (State.PREPARING, Trigger.COMPLETE): State.COMPLETING,
    (State.PREPARING, Trigger.ABANDONED): State.EMPTY,
    # Also when it makes room for a consumer group.
    (State.EMPTY, Trigger.DELETED): State.DEAD,
    **{(state, Trigger.UPGRADED): State.DEAD for state in (State.PREPARING, State.COMPLETING, State.STABLE)},
    **{(state, Trigger.UNLOADED): State.DEAD for state in State if state is not State.DEAD},
}


class TransitionError(Exception):
    """Something happened in a state in which it cannot."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a group rebalances: what happened, and by whom."""

    trigger: Trigger
    member: Member | None = None
    reason: str = ""


@dataclass(slots=True)
class ClassicGroup:
    """One group: what the log keeps of it, and what only this coordinator knows."""

    group_id: str
    state_since_ms: int  # on the wall clock; -1 if an old record did not say
    generation: int = 0
    protocol_type: str = ""  # nothing if nobody was ever a member: then it only has offsets
    protocol: str | None = None
    members: Members = field(default_factory=Members)
    topics: frozenset[str] | None = None
    """What the members of the last generation have subscribed to; None if that is not known."""
    state: State = State.EMPTY
    previous: State = State.EMPTY
    awaited_syncs: set[str] = field(default_factory=set)
    """Who has not asked for its assignment in this generation."""
    is_stored: bool = False
    """Whether the log knows of it."""
    cause: Cause | None = None
    """Why it rebalances, or has last."""
    cause_ms: float = 0
    completing_ms: float = 0
    delay_until_ms: float = 0
    """How long the first generation may be put off, at most."""
    not_before_ms: float = 0
    """No generation begins before that, because the last could not be stored."""
    has_newcomer: bool = False
    """Somebody came since the first generation was last put off."""
    replaced: tuple[Member, Member] | None = None
    """A static member and its successor, while that is being stored."""

    @classmethod
    def load(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group as it stands in the log: empty, or stable at the last generation that was complete."""
        group = cls(group_id, value.current_state_timestamp)
        group.generation = value.generation
        group.protocol_type = value.protocol_type
        group.protocol = value.protocol
        group.is_stored = True
        for stored in value.members:
            has_rebalance_timeout = stored.rebalance_timeout != -1
            group.members.add(
                Member(
                    member_id=stored.member_id,
                    instance_id=stored.group_instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    rebalance_timeout_ms=stored.rebalance_timeout
                    if has_rebalance_timeout
                    else stored.session_timeout,
                    session_timeout_ms=stored.session_timeout,
                    protocols=[(value.protocol or "", bytes(stored.subscription))],
                    assignment=bytes(stored.assignment),
                )
            )
        if group.members:
            if value.leader is not None and value.leader in group.members:
                group.members.leader = value.leader
            group.state = group.previous = State.STABLE
        group.topics = group.read_topics()
        return group

    # States

    def move(self, trigger: Trigger, wall_ms: int) -> None:
        following = TRANSITIONS.get((self.state, trigger))
        if following is None:
            raise TransitionError(f"group {self.group_id} is {self.state}: {trigger}")
        self.previous, self.state, self.state_since_ms = self.state, following, wall_ms

    @property
    def is_delayed(self) -> bool:
        """Whether it waits for more members before its first generation."""
        return self.state is State.PREPARING and self.previous is State.EMPTY

    def begin_generation(self, wall_ms: int) -> None:
        """Preparing is over: the members are those who are here now."""
        self.generation = (self.generation + 1) & 0x7FFF_FFFF
        self.protocol = self.members.choose_protocol() if self.members else None
        self.topics = self.read_topics()
        self.awaited_syncs.clear()
        self.move(Trigger.COMPLETE if self.members else Trigger.ABANDONED, wall_ms)

    def replace_awaited(self, old: Member, new: Member) -> None:
        """A member that has taken another's place must ask for its assignment if the other had to."""
        if old.member_id in self.awaited_syncs:
            self.awaited_syncs.remove(old.member_id)
            self.awaited_syncs.add(new.member_id)

    # What the log keeps

    def write(self, step: Step, assignments: Mapping[str, bytes]) -> None:
        """Writes the group as it is, with these assignments."""
        step.write(
            GroupMetadataKey(group=self.group_id),
            GroupMetadataValue(
                protocol_type=self.protocol_type,
                generation=self.generation,
                protocol=self.protocol,
                leader=self.members.leader or None,
                current_state_timestamp=self.state_since_ms,
                members=[
                    GroupMetadataValue.MemberMetadata(
                        member_id=member.member_id,
                        group_instance_id=member.instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        rebalance_timeout=member.rebalance_timeout_ms,
                        session_timeout=member.session_timeout_ms,
                        subscription=member.metadata(self.protocol or ""),
                        assignment=assignments.get(member.member_id, b""),
                    )
                    for member in self.members
                ],
            ),
        )

    def stored(self, value: GroupMetadataValue) -> None:
        """The log has taken what `write` wrote."""
        self.is_stored = True
        self.replaced = None
        if self.state is State.COMPLETING and value.generation == self.generation:
            for member in value.members:
                self.members[member.member_id].assignment = bytes(member.assignment)
            self.move(Trigger.ASSIGNED, value.current_state_timestamp)

    # What members may do

    @property
    def is_consumer(self) -> bool:
        return self.protocol_type == CONSUMER

    def is_subscribed(self, topic: str) -> bool:
        """Whether a topic is in use. Where that is not known, consumers are taken to use it."""
        return self.is_consumer if self.topics is None else topic in self.topics

    def read_topics(self) -> frozenset[str] | None:
        if not self.is_consumer:
            return None
        protocol = self.protocol or ""
        return topics_of(member.metadata(protocol) for member in self.members)

    def speaks(self, protocol_type: str, names: list[str]) -> bool:
        """Whether somebody who speaks these protocols can be a member."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and self.members.can_speak(names)

    def check(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """The member that speaks, in this generation."""
        member = self.members.check(member_id, instance_id)
        if generation != self.generation:
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION, f"the generation is {self.generation}, not {generation}"
            )
        return member

    # Timers

    def timer(self, kind: TimerKind) -> Timer:
        return Timer(kind, self.group_id)

    def session(self, member_id: str) -> Timer:
        return Timer(TimerKind.SESSION, self.group_id, member_id)

    def keep_alive(self, member: Member, step: Step) -> None:
        """A member was heard of."""
        timer = Timer(TimerKind.SESSION, self.group_id, member.member_id)
        step.deadlines.set(timer, step.now_ms + member.session_timeout_ms)

    def cancel_timers(self, step: Step) -> None:
        """Nothing of this group is waited for any more."""
        step.cancel_timer(self.timer(TimerKind.JOIN))
        step.cancel_timer(self.timer(TimerKind.SYNC))
        for member_id in [*self.members.by_id, *self.members.pending]:
            step.cancel_timer(self.session(member_id))

    @property
    def leader(self) -> str:
        return self.members.leader or NOBODY
