"""The state of a consumer group: a fold over its records. `apply` is its only writer.

Beside what the records say, it keeps what decisions ask again and again: who holds a partition, how many
members subscribe to a topic or an expression, which assignor is named how often, how many have come to which
epoch. All of it follows from the members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Set
from enum import StrEnum
from typing import Any, Final, TypeVar

from quorate.coordinator.consumer_members import (
    NO_PARTITIONS,
    Held,
    Member,
    MemberState,
    Partitions,
    partitions_of,
    with_current_assignment,
    with_metadata,
    without_assignment,
)
from quorate.coordinator.consumer_targets import Targets
from quorate.coordinator.effects import LogRecord
from quorate.coordinator.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["INITIAL_EPOCH", "ConsumerGroupState", "GroupPhase", "ResolvedRegex"]

Counted = TypeVar("Counted", bound=Hashable)

INITIAL_EPOCH: Final = 1
"""Of a group of which nothing is known: the first change makes it 2. Targets begin at 0."""


class GroupPhase(StrEnum):
    """What a group is busy with. The names are those that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment is older than the group."""
    RECONCILING = "Reconciling"
    """Some member does not have its target yet."""
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """What an expression matched, and when that was."""

    topics: frozenset[str]
    version: int
    wall_ms: int


class ConsumerGroupState:
    """What the log says about one group."""

    __slots__ = (
        "_owners",
        "assignor_counts",
        "classic_count",
        "classic_protocol_counts",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "name_counts",
        "regex_counts",
        "regexes",
        "said_bytes",
        "stable_counts",
        "static",
        "subscription_counts",
        "target_epoch",
        "target_wall_ms",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._clear()

    def _clear(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_wall_ms = 0
        self.has_partition_metadata = False
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # member ids by instance id
        self.targets = Targets()
        self.regexes: dict[str, ResolvedRegex] = {}
        self._owners: dict[Uuid, dict[int, str]] = {}
        self.name_counts: Counter[str] = Counter()
        self.regex_counts: Counter[str] = Counter()
        self.subscription_counts: Counter[tuple[frozenset[str], str | None]] = Counter()
        self.assignor_counts: Counter[str] = Counter()
        self.classic_count = 0
        self.said_bytes = 0
        """About how much memory all takes that members have said."""
        self.classic_protocol_counts: Counter[str] = Counter()
        self.stable_counts: Counter[int] = Counter()  # members that are STABLE, by their epoch

    # What the log says

    def apply(self, record: LogRecord) -> None:
        """Takes in one record of this group, which is in the log."""
        _APPLY[type(record.key)](self, record.key, record.value)

    def _apply_group(self, _key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        if value is None:
            self._clear()
            return
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def _apply_partition_metadata(
        self, _key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
    ) -> None:
        self.has_partition_metadata = value is not None

    def _apply_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self._replace(member, with_metadata(member or Member(member_id=key.member_id), value))
        elif member is not None:
            self._replace(member, None)

    def _apply_target_epoch(
        self,
        _key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        self.target_epoch = 0 if value is None else value.assignment_epoch
        self.target_wall_ms = 0 if value is None else value.assignment_timestamp

    def _apply_target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.targets.drop(key.member_id)
        else:
            self.targets.put(key.member_id, partitions_of(value.topic_partitions))

    def _apply_current(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self._replace(member, with_current_assignment(member or Member(member_id=key.member_id), value))
        elif member is not None:
            self._replace(member, without_assignment(member))

    def _apply_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            topics = frozenset(value.topics)
            self.regexes[key.regular_expression] = ResolvedRegex(topics, value.version, value.timestamp)

    # What follows from the members

    def _replace(self, old: Member | None, new: Member | None) -> None:
        if old is None or new is None or not _says_the_same(old, new):
            if old is not None:
                self._count(old, -1)
            if new is not None:
                self._count(new, 1)
        if old is None or new is None or old.epoch != new.epoch or old.state is not new.state:
            if old is not None and old.state is MemberState.STABLE:
                _bump(self.stable_counts, old.epoch, -1)
            if new is not None and new.state is MemberState.STABLE:
                _bump(self.stable_counts, new.epoch, 1)
        if new is not None:
            self.members[new.member_id] = new
            if new.instance_id is not None:
                self.static[new.instance_id] = new.member_id
        elif old is not None:
            del self.members[old.member_id]
            if old.instance_id is not None and self.static.get(old.instance_id) == old.member_id:
                del self.static[old.instance_id]
        if old is not None and (new is None or new.assigned is not old.assigned):
            self._disown(old.member_id, old.assigned)
            self._disown(old.member_id, old.pending_revocation)
        if new is not None and (old is None or new.assigned is not old.assigned):
            self._own(new.member_id, new.assigned)
            self._own(new.member_id, new.pending_revocation)

    def _count(self, member: Member, change: int) -> None:
        _bump(self.subscription_counts, (member.topic_names, member.regex), change)
        for name in member.topic_names:
            _bump(self.name_counts, name, change)
        if member.regex is not None:
            _bump(self.regex_counts, member.regex, change)
        if member.server_assignor is not None:
            _bump(self.assignor_counts, member.server_assignor, change)
        self.said_bytes += change * member.said_bytes
        if member.classic is not None:
            self.classic_count += change
            for name in {name for name, _ in member.classic.protocols}:
                _bump(self.classic_protocol_counts, name, change)

    def _own(self, member_id: str, held: Held) -> None:
        for topic_id, partitions in held.items():
            self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _disown(self, member_id: str, held: Held) -> None:
        for topic_id, partitions in held.items():
            owners = self._owners.get(topic_id, {})
            for partition in partitions:
                # Somebody else may have it by now, if the log was compacted between two of its records.
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self._owners.pop(topic_id, None)

    # What decisions ask

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def phase(self) -> GroupPhase:
        if not self.members:
            return GroupPhase.EMPTY
        if self.epoch > self.target_epoch:
            return GroupPhase.ASSIGNING
        return GroupPhase.STABLE if self.is_settled else GroupPhase.RECONCILING

    @property
    def is_settled(self) -> bool:
        """Whether nobody is on the way to another assignment, be it that nobody is there. Does not look at
        each member."""
        number = len(self.members)
        if self.epoch == self.target_epoch:
            return self.stable_counts.get(self.epoch, 0) == number
        return not number

    def owner_of(self, topic_id: Uuid, partition: int) -> str | None:
        """The member that holds the partition, be it only to give it back."""
        owners = self._owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: Member) -> Partitions:
        """What the member shall have; one that takes a static member's place shall have what that one had."""
        target = self.targets.get(member.member_id)
        if target is None and member.instance_id is not None:
            target = self.targets.get(self.static.get(member.instance_id, ""))
        return NO_PARTITIONS if target is None else target

    def topics_of(self, member: Member) -> frozenset[str]:
        """The names that the member subscribes to, and what its expression is known to match."""
        resolved = self.regexes.get(member.regex) if member.regex is not None else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def subscribed_topics(
        self, *, without: Collection[Member] = (), plus: Member | None = None
    ) -> frozenset[str]:
        """The names that anybody subscribes to, were some members gone and one there, in its new form."""
        names, regexes = set(self.name_counts), set(self.regex_counts)
        if without:
            names -= _alone(self.name_counts, (name for one in without for name in one.topic_names))
            going = (one.regex for one in without if one.regex is not None)
            regexes -= _alone(self.regex_counts, going)
        if plus is not None:
            names |= plus.topic_names
            if plus.regex is not None:
                regexes.add(plus.regex)
        for regex in regexes:
            if (resolved := self.regexes.get(regex)) is not None:
                names |= resolved.topics
        return frozenset(names)

    def subscribed_among(self, names: Set[str]) -> set[str]:
        """Which of these any member subscribes to, by name or by an expression that is resolved."""
        found = self.name_counts.keys() & names
        for regex in self.regex_counts:
            if (resolved := self.regexes.get(regex)) is not None:
                found |= resolved.topics & names
        return found

    def is_subscribed(self, topic: str) -> bool:
        """Whether any member subscribes to the topic, by name or by an expression that is resolved."""
        if topic in self.name_counts:
            return True
        return any(
            topic in self.regexes[regex].topics for regex in self.regex_counts if regex in self.regexes
        )

    def preferred_assignor(
        self, default: str, *, without: Member | None = None, plus: Member | None = None
    ) -> str:
        """The assignor that most members name; the first of them in the alphabet if several are."""
        counts = Counter(self.assignor_counts)
        if without is not None and without.server_assignor is not None:
            counts[without.server_assignor] -= 1
        if plus is not None and plus.server_assignor is not None:
            counts[plus.server_assignor] += 1
        named = [(-count, name) for name, count in counts.items() if count > 0]
        return min(named)[1] if named else default

    def waits_for_others(self, member: Member) -> bool:
        """Whether others still hold what the member shall have."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {})
            and self.owner_of(topic_id, partition) is not None
            for topic_id, partitions in self.target_of(member).items()
            for partition in partitions
        )

    def last_resolution(self) -> tuple[int, int]:
        """When expressions were last resolved, and against which version of the topics; long ago if never."""
        resolved: Iterable[ResolvedRegex] = self.regexes.values()
        if not self.regexes:
            return -(1 << 62), -1
        return max(regex.wall_ms for regex in resolved), min(regex.version for regex in resolved)


def _says_the_same(one: Member, other: Member) -> bool:
    """As far as members are counted by it. A step towards the target leaves these what they are."""
    return (
        one.topic_names is other.topic_names
        and one.client_id is other.client_id
        and one.topic_regex is other.topic_regex
        and one.server_assignor is other.server_assignor
        and one.classic is other.classic
    )


def _alone(counts: Counter[str], going: Iterable[str]) -> set[str]:
    """What nobody has any more if these go."""
    return {name for name, number in Counter(going).items() if counts[name] <= number}


def _bump(counts: Counter[Counted], name: Counted, change: int) -> None:
    counts[name] += change
    if not counts[name]:
        del counts[name]


_APPLY: Final[Mapping[type, Callable[[ConsumerGroupState, Any, Any], None]]] = {
    ConsumerGroupMetadataKey: ConsumerGroupState._apply_group,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupState._apply_partition_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerGroupState._apply_member,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupState._apply_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupState._apply_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupState._apply_current,
    ConsumerGroupRegularExpressionKey: ConsumerGroupState._apply_regex,
}
