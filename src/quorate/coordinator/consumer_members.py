"""A member of a consumer group: what it said about itself, and what it holds. A value; it never changes.

A member holds partitions in one of two ways: they are *assigned* to it, or it was told to give them back and
has not yet said that it did (*pending revocation*). For each it is known at which epoch the member got it, so
that a late commit of an offset can be told from a stale one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import IntEnum
from typing import Final, Protocol

from quorate.coordinator.classic_members import MEMBER_BYTES, NAME_BYTES
from quorate.coordinator.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from quorate.protocol.types import Uuid
from quorate.values import dataclass, plain_members

__all__ = [
    "LEAVE_EPOCH",
    "NOTHING_HELD",
    "NO_PARTITIONS",
    "STATIC_LEAVE_EPOCH",
    "ClassicMember",
    "Held",
    "Member",
    "MemberState",
    "Partitions",
    "contains_all",
    "partitions_of",
    "with_current_assignment",
    "with_metadata",
    "without_assignment",
]

LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2

Partitions = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id. A topic without partitions is not in it."""
Held = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic id, each with the epoch at which it was assigned."""

NO_PARTITIONS: Final[Partitions] = {}
NOTHING_HELD: Final[Held] = {}


class TopicPartitions(Protocol):
    """What the structs of several messages have in common."""

    topic_id: Uuid
    partitions: list[int]


@plain_members
class MemberState(IntEnum):
    """How far a member has come on its way to its target assignment; the numbers stand in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It was told to give partitions back, and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """Partitions of its target are still held by others."""
    UNKNOWN = 127
    """The log has a state that we do not know."""

    @classmethod
    def _missing_(cls, _value: object) -> MemberState:
        return cls.UNKNOWN


_STATES: Final[Mapping[int, MemberState]] = {state.value: state for state in MemberState}
"""As they are looked up for each record: a call of the enumeration takes several times as long."""


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What is known of a member that speaks the classic protocol: the log keeps it with the member."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata, in the member's order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a consumer group."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    assigned: Held = field(default_factory=dict)
    pending_revocation: Held = field(default_factory=dict)

    @property
    def said_bytes(self) -> int:
        """About how much memory all takes that the member has said."""
        size_bytes = MEMBER_BYTES + len(self.member_id) + len(self.client_id) + len(self.topic_regex or "")
        for name in self.topic_names:
            size_bytes += NAME_BYTES + len(name)
        if self.classic is not None:
            for name, metadata in self.classic.protocols:
                size_bytes += NAME_BYTES + len(name) + len(metadata)
        return size_bytes

    @property
    def regex(self) -> str | None:
        """The expression that it subscribes to, if any; an empty one says: none any more."""
        return self.topic_regex or None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch at which the member got a partition that it still holds."""
        for held in (self.assigned, self.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def at_epoch(self, epoch: int, state: MemberState, assigned: Held, pending_revocation: Held) -> Member:
        """The member one step further; the epoch it comes from is remembered."""
        return self._holding(epoch, self.epoch, state, assigned, pending_revocation)

    def _holding(
        self, epoch: int, previous_epoch: int, state: MemberState, assigned: Held, pending_revocation: Held
    ) -> Member:
        """What `replace` does, which goes through all fields by name: a rebalance is mostly this."""
        return Member(
            member_id=self.member_id,
            epoch=epoch,
            previous_epoch=previous_epoch,
            state=state,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topic_names=self.topic_names,
            topic_regex=self.topic_regex,
            server_assignor=self.server_assignor,
            classic=self.classic,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def saying(
        self,
        *,
        instance_id: str | None,
        rack_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        topic_names: frozenset[str],
        topic_regex: str | None,
        server_assignor: str | None,
        classic: ClassicMember | None,
    ) -> Member:
        """The member after it has said all this of itself, with what it holds. For `replace` see above."""
        return Member(
            member_id=self.member_id,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state,
            instance_id=instance_id,
            rack_id=rack_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            topic_names=topic_names,
            topic_regex=topic_regex,
            server_assignor=server_assignor,
            classic=classic,
            assigned=self.assigned,
            pending_revocation=self.pending_revocation,
        )


def with_metadata(member: Member, value: ConsumerGroupMemberMetadataValue) -> Member:
    """The member after it has said this about itself."""
    classic = value.classic_member_metadata
    return member.saying(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )


def with_current_assignment(member: Member, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
    """The member with the partitions that the record gives it."""
    return member._holding(
        value.member_epoch,
        value.previous_member_epoch,
        _STATES.get(value.state, MemberState.UNKNOWN),
        _held(value.assigned_partitions, value.member_epoch),
        _held(value.partitions_pending_revocation, value.member_epoch),
    )


def without_assignment(member: Member) -> Member:
    """The member after its partitions were taken away, as the first step of its removal."""
    return replace(
        member,
        epoch=LEAVE_EPOCH,
        previous_epoch=LEAVE_EPOCH,
        state=MemberState.STABLE,
        assigned=NOTHING_HELD,
        pending_revocation=NOTHING_HELD,
    )


def partitions_of(listed: Iterable[TopicPartitions]) -> Partitions:
    """Partitions by topic id, out of the list of a message; what is listed twice counts once."""
    collected: dict[Uuid, frozenset[int]] = {}
    for entry in listed:
        if entry.partitions:
            collected[entry.topic_id] = collected.get(entry.topic_id, frozenset()).union(entry.partitions)
    return collected


def contains_all(held: Held, partitions: Partitions) -> bool:
    """Whether every one of the partitions is held."""
    return all(wanted <= held.get(topic_id, {}).keys() for topic_id, wanted in partitions.items())


def _held(
    listed: Sequence[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int
) -> Held:
    held: dict[Uuid, dict[int, int]] = {}
    for entry in listed:
        epochs = entry.assignment_epochs or ()
        if len(epochs) != len(entry.partitions):
            # Written before Kafka 4.3, which did not keep these epochs: the member's is the closest.
            epochs = [member_epoch] * len(entry.partitions)
        if entry.partitions:
            held.setdefault(entry.topic_id, {}).update(zip(entry.partitions, epochs, strict=True))
    return held
