"""A heartbeat that says what the one before it said, of a member of which nothing has changed.

Nearly every heartbeat is one, and nothing is to be decided then: the member lives, and is told what it was
told before. So what that depends on is looked up once, and from then on it is enough that all of it is still
the same. Whatever is not known to be needs the whole step.

An answer that is given again and again may be changed by nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Protocol

from quorate.coordinator.classic import ClassicGroup, State
from quorate.coordinator.consumer_group import ConsumerGroup
from quorate.coordinator.consumer_rules import ConsumerRules
from quorate.coordinator.consumer_says import says_nothing_of_itself
from quorate.coordinator.deadlines import Deadlines
from quorate.coordinator.effects import Caller
from quorate.coordinator.step import Timer, TimerKind
from quorate.protocol.api.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatResponse,
)
from quorate.protocol.errors import ErrorCode

__all__ = ["KnownClassic", "KnownConsumer", "KnownMember", "is_settled"]

_ANSWERS_MAX: Final = 10_000  # that are remembered
_TAKEN: Final = HeartbeatResponse(error_code=ErrorCode.NONE)


class KnownMember(Protocol):
    """As long as it is taken, it is given this answer."""

    @property
    def group_id(self) -> str: ...
    @property
    def answer(self) -> HeartbeatResponse | ConsumerGroupHeartbeatResponse: ...
    def is_taken(self, now_ms: float) -> bool:
        """Notes that the member lives, if nothing but the answer follows from that."""
        ...


class KnownClassic:
    """Of a member of a classic group, in one of its generations."""

    __slots__ = ("_deadlines", "_generation", "_group", "_member", "_timer", "answer", "group_id")

    def __init__(
        self,
        group: ClassicGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        deadlines: Deadlines[Timer],
    ) -> None:
        """`ApiError` if there is no such member in this generation."""
        self.group_id = group.group_id
        self._group = group
        self._generation = generation
        self._member = group.check(member_id, instance_id, generation)
        self._timer = group.session(member_id)
        self._deadlines = deadlines
        self.answer = _TAKEN

    def is_taken(self, now_ms: float) -> bool:
        """A static member that is replaced gets another id, and a group that is no more is not stable."""
        group, member, timer = self._group, self._member, self._timer
        return (
            group.state is State.STABLE
            and group.generation == self._generation
            and group.members.by_id.get(timer.member_id) is member
            and self._deadlines.push_back(timer, now_ms + member.session_timeout_ms)
        )


class KnownConsumer:
    """Of a member of a consumer group that has what it shall, and says nothing of itself. A member is another
    value as soon as anything about it changes, and so are the settings of a group."""

    __slots__ = (
        "_config",
        "_configs",
        "_deadlines",
        "_group",
        "_member",
        "_session_ms",
        "_timer",
        "answer",
        "group_id",
    )

    def __init__(
        self,
        group: ConsumerGroup,
        member_id: str,
        rules: ConsumerRules,
        configs: Mapping[str, Mapping[str, str]],
        deadlines: Deadlines[Timer],
    ) -> None:
        """The group is settled, as far as this member goes. `configs` are the settings of all groups."""
        self.group_id = group.group_id
        self._group = group
        self._member = member = group.state.members[member_id]
        self._configs, self._config = configs, configs.get(group.group_id)
        self._session_ms = rules.session_timeout_ms
        self._timer = group.timer(TimerKind.MEMBER_SESSION, member_id)
        self._deadlines = deadlines
        self.answer = _settled_answer(member_id, member.epoch, rules.heartbeat_interval_ms)

    def is_taken(self, now_ms: float) -> bool:
        group, timer = self._group, self._timer
        state = group.state
        return (
            state.members.get(timer.member_id) is self._member
            and self._member.epoch == state.epoch == state.target_epoch
            and not group.wants_refresh
            and not state.regex_counts
            and self._configs.get(timer.group_id) is self._config
            and self._deadlines.push_back(timer, now_ms + self._session_ms)
        )


def is_settled(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> bool:
    """Whether a heartbeat leads to nothing but a later deadline; `consumer.heartbeat` would say the same."""
    state = group.state
    member = state.members.get(request.member_id)
    return (
        member is not None
        and member.classic is None
        and request.member_epoch == member.epoch == state.epoch
        and member.is_reconciled_to(state.target_epoch)
        and not group.wants_refresh
        and not state.regex_counts  # expressions are looked up again from time to time
        and request.topic_partitions is None
        and says_nothing_of_itself(member, request, caller)
    )


@lru_cache(maxsize=_ANSWERS_MAX)
def _settled_answer(
    member_id: str, member_epoch: int, heartbeat_interval_ms: int
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=member_id,
        member_epoch=member_epoch,
        heartbeat_interval_ms=heartbeat_interval_ms,
        assignment=None,
    )
