"""All consumer groups of a shard: the fold over their records, and what requests make of them.

Topics and the dynamic configuration of groups are not in the shard's log. The host brings them
(`topics_changed`, `configure`) before the first request, and again whenever they change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from quorate.coordinator import classic_in_consumer
from quorate.coordinator.classic import ClassicGroup
from quorate.coordinator.classic_joining import Joiner
from quorate.coordinator.consumer import (
    ConsumerGroup,
    Hearing,
    Surroundings,
    describe,
    expire,
    first_heartbeat,
    heartbeat,
)
from quorate.coordinator.consumer_announcing import announce
from quorate.coordinator.consumer_describe import describe_missing
from quorate.coordinator.consumer_expressions import resolve
from quorate.coordinator.consumer_group import MayDescribe, everybody_may, nobody_hears
from quorate.coordinator.consumer_rules import ConsumerRules, rules_of
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.deadlines import Deadlines
from quorate.coordinator.effects import Caller, LogRecord, Ticket
from quorate.coordinator.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from quorate.coordinator.known_members import KnownConsumer, is_settled
from quorate.coordinator.migration import group_tombstones
from quorate.coordinator.settings import GroupSettings
from quorate.coordinator.step import Step, Timer
from quorate.coordinator.topic_matches import Allowance, TopicMatches
from quorate.coordinator.topics_view import Topics, TopicsView
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
)

__all__ = ["CONSUMER_KEYS", "ConsumerGroups", "ConsumerKey"]

ConsumerKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
CONSUMER_KEYS: Final = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
"""The keys of the records that `apply` takes."""
_KEY_CLASSES: Final = frozenset(CONSUMER_KEYS)


class ConsumerGroups:
    def __init__(
        self,
        may_describe: MayDescribe = everybody_may,
        matches: TopicMatches | None = None,
        resolve_soon: Callable[[str], None] = nobody_hears,
    ) -> None:
        self._may_describe = may_describe
        self._matches = TopicMatches() if matches is None else matches
        self._resolve_soon = resolve_soon
        self._groups: dict[str, ConsumerGroup] = {}
        self._new: dict[str, ConsumerGroup] = {}  # whose first records are about to be appended
        self._topics: TopicsView = Topics()
        self._configs: dict[str, Mapping[str, str]] = {}
        self._rules: tuple[GroupSettings, ConsumerRules] | None = (
            None  # of groups that have none of their own
        )
        self._usual: Surroundings | None = None  # as they were last

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    def unload(self) -> None:
        for group in self:
            group.state = ConsumerGroupState(group.group_id)
        self._groups.clear()
        self._new.clear()

    # The log

    def apply(self, record: LogRecord) -> None:
        """A record of a consumer group that is in the log: when loading, and live after an append."""
        key: Any = record.key
        assert type(key) in _KEY_CLASSES, f"not of a consumer group: {key}"
        group = self._groups.get(key.group_id)
        if group is None:
            if record.value is None:
                return  # a tombstone of something that was compacted away
            group = self._new.pop(key.group_id) if key.group_id in self._new else ConsumerGroup(key.group_id)
            self._groups[key.group_id] = group
        group.state.apply(record)
        if record.value is None and key.__class__ is ConsumerGroupMetadataKey:
            del self._groups[key.group_id]

    def loaded(self, step: Step) -> None:
        """The whole log was applied: members have their full time to be heard of."""
        for group in self._groups.values():
            group.begin_sessions(self._around(group.group_id, step), step)

    def append_refused(self, group_ids: Collection[str], step: Step) -> None:
        """What groups wanted to store was not stored: they are what they were.

        Timers of members that were about to go are set again, and those of all others with them.
        """
        for group_id in group_ids:
            self._new.pop(group_id, None)
            group = self._groups.get(group_id)
            if group is not None:
                group.successor = None
                group.begin_sessions(self._around(group_id, step), step)

    # The cluster's metadata

    @property
    def topics(self) -> TopicsView:
        return self._topics

    def topics_changed(self, topics: TopicsView, names: Iterable[str]) -> None:
        """The topics as they are now. These were created or deleted, or have changed."""
        self._topics = topics
        changed = set(names)
        for group in self._groups.values():
            if subscribed := group.state.subscribed_among(changed):
                group.topics_changed(subscribed)

    def configure(self, group_id: str, config: Mapping[str, str]) -> bool:
        """The dynamic configuration of a group, all of it. Whether it was another before."""
        if config == self._configs.get(group_id, {}):
            return False
        if config:
            self._configs[group_id] = dict(config)
        else:
            del self._configs[group_id]
        return True

    # Requests

    def heartbeat(self, hearing: Hearing, classic: ClassicGroup | None, step: Step) -> None:
        """Answers ConsumerGroupHeartbeat. `classic` is the classic group of that name, if there is one."""
        group_id = hearing.request.group_id
        around = self._around(group_id, step)
        group = self._groups.get(group_id)
        if group is not None:
            heartbeat(group, hearing, around, step)
            return
        begun = first_heartbeat(classic, hearing, around, step)
        if begun is not None:
            self._new[group_id] = begun

    def announce(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, step: Step) -> None:
        """Notes a member that will be heard a moment later: see `consumer_announcing`."""
        group = self._groups.get(request.group_id)
        if group is not None:
            announce(group, request, caller, self._around(request.group_id, step), step)

    def expire(self, timer: Timer, step: Step) -> None:
        """A timer of a consumer group has come."""
        group = self._groups.get(timer.group_id)
        if group is not None:
            expire(group, timer, self._around(timer.group_id, step), step)

    def resolve(self, group_id: str, allowance: Allowance, step: Step) -> None:
        """Looks up some of what the expressions of a group match."""
        group = self._groups.get(group_id)
        if group is not None:
            resolve(group, self._around(group_id, step), allowance, step)

    def is_resolving(self, group_id: str) -> bool:
        """Whether there is more of it to look up."""
        group = self._groups.get(group_id)
        return group is not None and group.resolution is not None

    def describe(
        self, group_id: str, classic: ClassicGroup | None, step: Step
    ) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """`classic` is the classic group of that name, if there is one."""
        group = self._groups.get(group_id)
        if group is None:
            return describe_missing(group_id, classic)
        return describe(group, self._around(group_id, step))

    def delete(self, group: ConsumerGroup, step: Step) -> None:
        """Ends a group, which must be empty."""
        assert group.state.is_empty, f"group {group.group_id} has members"
        step.records += group_tombstones(group.state)

    # Requests of the classic protocol. The group must be one of these, and have members.

    def join(self, group: ConsumerGroup, joiner: Joiner, step: Step) -> None:
        classic_in_consumer.join(group, joiner, self._around(group.group_id, step), step)

    def sync(self, group: ConsumerGroup, ticket: Ticket, request: SyncGroupRequest, step: Step) -> None:
        classic_in_consumer.sync(group, ticket, request, self._around(group.group_id, step), step)

    def known_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        settings: GroupSettings,
        deadlines: Deadlines[Timer],
    ) -> KnownConsumer | None:
        """That of a member that has nothing to say and nothing to be told; None if that is not so."""
        group = self._groups.get(request.group_id)
        if group is None or not is_settled(group, request, caller):
            return None
        rules = self._rules_of(request.group_id, settings)
        return KnownConsumer(group, request.member_id, rules, self._configs, deadlines)

    def member_heartbeat(
        self, group: ConsumerGroup, ticket: Ticket, request: HeartbeatRequest, step: Step
    ) -> None:
        classic_in_consumer.heartbeat(group, ticket, request, self._around(group.group_id, step), step)

    def leave(
        self, group: ConsumerGroup, leaving: Iterable[LeaveGroupRequest.MemberIdentity], step: Step
    ) -> list[LeaveGroupResponse.MemberResponse]:
        return classic_in_consumer.leave(group, leaving, self._around(group.group_id, step), step)

    def _around(self, group_id: str, step: Step) -> Surroundings:
        rules, usual = self._rules_of(group_id, step.settings), self._usual
        if usual is None or usual.rules is not rules or usual.topics is not self._topics:
            usual = self._usual = Surroundings(
                self._topics, rules, self._may_describe, self._matches, self._resolve_soon
            )
        return usual

    def _rules_of(self, group_id: str, settings: GroupSettings) -> ConsumerRules:
        """Groups without a configuration of their own share one answer."""
        overrides = self._configs.get(group_id)
        if overrides is not None:
            return rules_of(settings, overrides)
        if self._rules is None or self._rules[0] is not settings:
            self._rules = settings, rules_of(settings)
        return self._rules[1]
