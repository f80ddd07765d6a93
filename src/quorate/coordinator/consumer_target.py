"""The target assignment of a group: which member shall have which partitions in the end."""

from __future__ import annotations

from collections.abc import Mapping

from quorate.coordinator import consumer_records as records
from quorate.coordinator.assignor_uniform import reassign_same
from quorate.coordinator.assignors import ASSIGNORS, UNIFORM, MemberSpec
from quorate.coordinator.consumer_members import Member, Partitions
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.effects import LogRecord
from quorate.coordinator.topics_view import TopicsView
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["Subscriptions", "TargetAssignment", "compute_target", "subscribed_ids"]


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """A target, and the records that say how it differs from the one before."""

    epoch: int
    of_member: Partitions
    """What the member shall have that is being heard."""
    records: list[LogRecord]


def subscribed_ids(state: ConsumerGroupState, member: Member, topics: TopicsView) -> frozenset[Uuid]:
    """The ids of the topics that a member subscribes to: of those that exist."""
    found = map(topics.by_name, state.topics_of(member))
    return frozenset([topic.id for topic in found if topic is not None])


class Subscriptions:
    """The ids of the topics that members subscribe to. Members that want the same share the answer."""

    __slots__ = ("_known", "_state", "_topics")

    def __init__(self, state: ConsumerGroupState, topics: TopicsView) -> None:
        self._state = state
        self._topics = topics
        self._known: dict[tuple[frozenset[str], str | None], frozenset[Uuid]] = {}

    def of(self, member: Member) -> frozenset[Uuid]:
        key = (member.topic_names, member.regex)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = subscribed_ids(self._state, member, self._topics)
        return known


def compute_target(
    state: ConsumerGroupState,
    heard: Member,
    topics: TopicsView,
    *,
    epoch: int,
    assignor: str,
    wall_ms: int,
) -> TargetAssignment:
    """The target at `epoch`, with one member as it is about to be. If that one takes the place of a static
    member, it stands for it in every respect."""
    changed = None
    if assignor == UNIFORM:
        changed = _reassigned(state, heard, topics)
    if changed is None:
        changed = _assigned(state, heard, topics, assignor)
    targets = state.targets
    written = [
        records.target_assignment(state.group_id, member_id, changed[member_id])
        for member_id in sorted(changed)
        if targets.get(member_id) != changed[member_id]
    ]
    written.append(records.target_epoch(state.group_id, epoch, wall_ms))
    found = changed.get(heard.member_id)
    return TargetAssignment(epoch, state.target_of(heard) if found is None else found, written)


def _reassigned(state: ConsumerGroupState, heard: Member, topics: TopicsView) -> dict[str, Partitions] | None:
    """What changes where all want the same, without looking at each. None if that is not so, or if somebody's
    place is taken."""
    counts = state.subscription_counts
    before = state.members.get(heard.member_id)
    others = len(state.members) - (before is not None)
    same = counts[(heard.topic_names, heard.regex)]
    if before is not None and (before.topic_names, before.regex) == (heard.topic_names, heard.regex):
        same -= 1
    is_return = heard.instance_id is not None and (
        state.static.get(heard.instance_id, heard.member_id) != heard.member_id
    )
    if same != others or is_return:
        return None
    topic_ids = subscribed_ids(state, heard, topics)
    found = map(topics.by_id, topic_ids)
    sizes = {topic.id: topic.partition_count for topic in found if topic is not None}
    member_ids = state.members.keys() if before is not None else [*state.members, heard.member_id]
    return reassign_same(state.targets, member_ids, topic_ids, sizes)


def _assigned(
    state: ConsumerGroupState, heard: Member, topics: TopicsView, assignor: str
) -> dict[str, Partitions]:
    """The targets of all members."""
    subscriptions = Subscriptions(state, topics)
    members = dict(state.members)
    replaced = state.static.get(heard.instance_id) if heard.instance_id is not None else None
    if replaced is not None:
        members.pop(replaced, None)
    members[heard.member_id] = heard
    specs = {
        member_id: MemberSpec(subscriptions.of(member), state.target_of(member), member.instance_id)
        for member_id, member in members.items()
    }
    return ASSIGNORS[assignor](specs, _partition_counts(specs, topics))


def _partition_counts(specs: Mapping[str, MemberSpec], topics: TopicsView) -> dict[Uuid, int]:
    wanted: set[Uuid] = set()
    for topic_ids in {spec.topic_ids for spec in specs.values()}:
        wanted |= topic_ids
    found = map(topics.by_id, sorted(wanted))
    return {topic.id: topic.partition_count for topic in found if topic is not None}
