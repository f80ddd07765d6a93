"""What a coordinator knows of a consumer group beside its state, and does not keep in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from quorate.coordinator import consumer_records as records
from quorate.coordinator.classic import ClassicGroup
from quorate.coordinator.consumer_events import GroupEpochBumped
from quorate.coordinator.consumer_members import Member, MemberState
from quorate.coordinator.consumer_rebalances import Rebalances
from quorate.coordinator.consumer_rules import ConsumerRules
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.effects import Caller, LogRecord
from quorate.coordinator.step import Step, Timer, TimerKind
from quorate.coordinator.topic_matches import TopicMatches
from quorate.coordinator.topics_view import TopicsView
from quorate.values import dataclass

if TYPE_CHECKING:
    from quorate.coordinator.consumer_resolution import Resolution

__all__ = [
    "MEMBER_TIMERS",
    "TOPICS_CHANGED",
    "ConsumerGroup",
    "MayDescribe",
    "Surroundings",
    "everybody_may",
    "next_epoch",
    "nobody_hears",
]

MEMBER_TIMERS: Final = (
    TimerKind.MEMBER_SESSION,
    TimerKind.REVOCATION,
    TimerKind.MEMBER_JOIN,
    TimerKind.MEMBER_SYNC,
)
"""What may be waited for of a member."""
TOPICS_CHANGED: Final = "the topics have changed"
"""A trigger that is no member's doing."""
_TOPICS_TOLD_MAX: Final = 10
"""Of the topics that have changed, so many are named."""


MayDescribe = Callable[[Caller, str], bool]
"""Whether somebody may know of a topic."""


def everybody_may(_caller: Caller, _topic: str) -> bool:
    return True


def nobody_hears(_group_id: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a decision depends on beside the group."""

    topics: TopicsView
    rules: ConsumerRules = field(default_factory=ConsumerRules)
    may_describe: MayDescribe = everybody_may
    """An expression matches only such topics."""
    matches: TopicMatches = field(default_factory=TopicMatches)
    resolve_soon: Callable[[str], None] = nobody_hears
    """Has the expressions of a group looked up."""


class ConsumerGroup:
    """One group: its state, and what only this coordinator knows."""

    __slots__ = (
        "_refreshed_epoch",
        "_wants_refresh",
        "changed_topics",
        "rebalances",
        "resolution",
        "resolve_again_ms",
        "revocation_epochs",
        "state",
        "successor",
    )

    def __init__(self, group_id: str) -> None:
        self.state = ConsumerGroupState(group_id)
        self.successor: ClassicGroup | None = None
        """The classic group that the last step has made of this one."""
        self.resolution: Resolution | None = None
        """While expressions are looked up."""
        self.resolve_again_ms = 0.0
        """Not before that, whether the log took what was found or not."""
        self.revocation_epochs: dict[str, int] = {}
        """The epochs of members at which they were told to give partitions back."""
        self.rebalances = Rebalances()
        self.changed_topics: set[str] = set()
        """Those that may be different since they were last looked at. What changed while another coordinated
        is not among them."""
        self._wants_refresh = True
        self._refreshed_epoch = 0

    def apply(self, record: LogRecord) -> None:
        """Takes in a record of this group that is in the log: when loading, and live after an append."""
        self.state.apply(record)

    @property
    def group_id(self) -> str:
        return self.state.group_id

    def timer(self, kind: TimerKind, member_id: str = "") -> Timer:
        return Timer(kind, self.state.group_id, member_id)

    def topics_changed(self, names: Iterable[str]) -> None:
        """The next heartbeat looks at the topics again. These are different."""
        if not self.wants_refresh:
            self.changed_topics.clear()
        self.changed_topics.update(names)
        self._wants_refresh = True

    @property
    def wants_refresh(self) -> bool:
        """Whether the topics must be looked at. What was found when a record was refused was not found."""
        return self._wants_refresh or self._refreshed_epoch > self.state.epoch

    def refreshed(self, epoch: int) -> None:
        self._wants_refresh = False
        self._refreshed_epoch = epoch

    def begin_sessions(self, around: Surroundings, step: Step) -> None:
        """This coordinator has just taken over, or could not put somebody out: every member gets all the time
        that there is."""
        for member in self.state.members.values():
            self.keep_alive(member, around.rules, step)
            self.time_revocation(member, step)
            step.put_off(self.timer(TimerKind.MEMBER_SESSION, member.member_id))
            step.put_off(self.timer(TimerKind.REVOCATION, member.member_id))

    def keep_alive(self, member: Member, rules: ConsumerRules, step: Step) -> None:
        """A member was heard of."""
        classic = member.classic
        timeout_ms = rules.session_timeout_ms if classic is None else classic.session_timeout_ms
        step.set_timer(self.timer(TimerKind.MEMBER_SESSION, member.member_id), timeout_ms)

    def time_revocation(self, member: Member, step: Step) -> None:
        """Whoever must give partitions back has only so long. Classic members have other time-outs."""
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self.revocation_epochs[member.member_id] = member.epoch
            timer = self.timer(TimerKind.REVOCATION, member.member_id)
            step.set_timer(timer, member.rebalance_timeout_ms)
        else:
            self.cancel_revocation(member.member_id, step)

    def cancel_revocation(self, member_id: str, step: Step) -> None:
        """A member has given its partitions back, or need not any more."""
        if self.revocation_epochs.pop(member_id, None) is not None:
            step.cancel_timer(self.timer(TimerKind.REVOCATION, member_id))

    def cancel_timers(self, member_id: str, step: Step) -> None:
        """Nothing of this member is waited for any more."""
        self.revocation_epochs.pop(member_id, None)
        for kind in MEMBER_TIMERS:
            step.cancel_timer(self.timer(kind, member_id))


def next_epoch(
    group: ConsumerGroup,
    metadata_hash: int,
    trigger: str,
    member: Member | None,
    step: Step,
    *,
    removed: Sequence[str] = (),
) -> LogRecord:
    """The record by which the group goes on to its next epoch. It is told why, and by whom; and, if it is
    nobody, which topics have changed. `removed` are members that are put out with it."""
    epoch = group.state.epoch + 1
    group.rebalances.goes_on(group.state, trigger, removed, step)
    topics = sorted(group.changed_topics) if member is None and group.wants_refresh else []
    step.tell(
        GroupEpochBumped(
            group_id=group.group_id,
            epoch=epoch,
            trigger=trigger,
            members=len(group.state.members),
            member_id="" if member is None else member.member_id,
            client_id="" if member is None else member.client_id,
            client_host="" if member is None else member.client_host,
            topics=tuple(topics[:_TOPICS_TOLD_MAX]),
            more_topics=len(topics[_TOPICS_TOLD_MAX:]),
        )
    )
    return records.group_epoch(group.group_id, epoch, metadata_hash)
