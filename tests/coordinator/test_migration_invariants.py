"""Groups that go back and forth between the protocols under load: nothing is ever in two hands.

Members of both protocols come and go. While nobody speaks the new protocol the group is classic, and its
leader assigns; with the first who does it is a consumer group, with the last it is classic again.
"""

from __future__ import annotations

from typing import Any

from classic_payloads import assigned, assignment_payload
from consumer_story import OK, ClassicConsumer, Consumer, ConsumerStory
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from quorate.coordinator.consumer_payloads import read_subscription
from quorate.protocol.api.groups import SyncGroupRequest
from quorate.protocol.errors import ErrorCode

WHO = st.integers(0, 3)
DROPS_ALL = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class Eager:
    """A classic client with an eager assignor, which does the next thing whenever it is asked to."""

    def __init__(self, story: ConsumerStory, name: str) -> None:
        self.story = story
        self.member: ClassicConsumer = story.classic(name, rebalance_ms=20_000)
        self.member.names = ["t", "u"]
        self.waits_for = 0  # the ticket of a request that is not answered
        self.does = "join"

    @property
    def held(self) -> dict[str, set[int]]:
        return self.member.held

    def goes_on(self) -> None:
        if self.waits_for:
            response = self.story.replies.get(self.waits_for)
            if response is None:
                return
            self.waits_for = 0
            self._heard(response)
        getattr(self, f"_{self.does}")()

    def lost_connection(self) -> None:
        """The coordinator is another: what was asked of the one before is not answered."""
        if self.waits_for and self.waits_for not in self.story.replies:
            self.waits_for, self.does = 0, "join"

    def _join(self) -> None:
        self.member.held = {}  # eager: everything is given back first
        self._asked(self.member.asks_to_join())

    def _sync(self) -> None:
        self._asked(self.member.syncs(assignments=self.shares))

    def _beat(self) -> None:
        self._told(self.member.beats())

    def _asked(self, response: Any) -> None:
        if response is None:
            self.waits_for = self.story.ticket
        else:
            self._heard(response)

    def _heard(self, response: Any) -> None:
        code = ErrorCode(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member.id = response.member_id
        elif code is not OK:
            self._told(code)
        elif self.does == "join":
            self.member.id, self.member.generation = response.member_id, response.generation_id
            self.shares = self._shared_out(response)
            self.does = "sync"
        else:
            self.member.held = assigned(response.assignment)
            self.does = "beat"

    def _told(self, code: ErrorCode) -> None:
        if code in DROPS_ALL:
            self.member.held = {}
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member.id = ""
        if code is not OK:
            self.does = "join"

    def _shared_out(self, response: Any) -> list[SyncGroupRequest.Assignment]:
        """What a leader does."""
        members = [
            (one.member_id, set(read_subscription(bytes(one.metadata)).topics)) for one in response.members
        ]
        shares: dict[str, dict[str, set[int]]] = {member_id: {} for member_id, _ in members}
        for name, size in self.story.sizes.items():
            wanting = [member_id for member_id, names in members if name in names]
            for number, member_id in enumerate(wanting):
                shares[member_id][name] = set(range(number, size, len(wanting)))
        return [
            SyncGroupRequest.Assignment(member_id=member_id, assignment=assignment_payload(share))
            for member_id, share in shares.items()
        ]


class Mixed(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.story = ConsumerStory({"t": 4, "u": 2}, group_initial_rebalance_delay_ms=0)
        self.old: dict[int, Eager] = {}
        self.new: dict[int, Consumer] = {}
        self.names = iter(range(1_000_000))

    @rule(who=WHO)
    def an_old_one_goes_on(self, who: int) -> None:
        if who not in self.old:
            self.old[who] = Eager(self.story, f"old{next(self.names)}")
        self.old[who].goes_on()

    @rule(who=WHO)
    def a_new_one_goes_on(self, who: int) -> None:
        if who not in self.new:
            self.new[who] = self.story.member(f"new{next(self.names)}", rebalance_ms=20_000)
        self._talks(self.new[who])

    def _talks(self, member: Consumer) -> None:
        if member.epoch > 0:
            member.gives_back()
        else:
            member.joins("t", "u")
        if member.error in DROPS_ALL:
            member.epoch, member.held = 0, {}

    @rule()
    def everybody_goes_on(self) -> None:
        for one in self.old.values():
            one.goes_on()
        for member in self.new.values():
            self._talks(member)

    @rule(who=WHO)
    def an_old_one_leaves(self, who: int) -> None:
        one = self.old.pop(who, None)
        if one is not None and one.member.id and not one.waits_for:
            one.member.leaves()

    @rule(who=WHO)
    def a_new_one_leaves(self, who: int) -> None:
        member = self.new.pop(who, None)
        if member is not None and member.epoch > 0:
            member.leaves()

    @rule(who=WHO)
    def one_vanishes(self, who: int) -> None:
        self.old.pop(who, None)
        self.new.pop(who, None)

    @rule(ms=st.sampled_from([0, 1_000, 10_000, 30_000]))
    def time_passes(self, ms: int) -> None:
        self.story.passes(ms)

    @rule()
    def another_coordinates(self) -> None:
        self.story.fails_over()
        for one in self.old.values():
            one.lost_connection()

    @invariant()
    def no_partition_is_in_two_hands(self) -> None:
        hands: dict[tuple[str, int], object] = {}
        for one in (*self.old.values(), *self.new.values()):
            member_id = one.member.id if isinstance(one, Eager) else one.id
            for name, partitions in one.held.items():
                for partition in partitions if self._is_member(member_id) else ():
                    assert hands.setdefault((name, partition), one) is one, (name, partition)

    def _is_member(self, member_id: str) -> bool:
        """Whoever was put out and has not heard of it yet stops when its own session is over."""
        group, classic = self.story.group, self.story.classic_group
        if group is not None:
            return member_id in group.state.members
        return classic is not None and member_id in classic.members

    @invariant()
    def a_group_has_one_protocol(self) -> None:
        assert self.story.group is None or self.story.classic_group is None

    def teardown(self) -> None:
        """With somebody of the new protocol in it, the group comes to rest."""
        if not hasattr(self, "story"):
            return
        self.a_new_one_goes_on(0)
        for _ in range(30):
            self.everybody_goes_on()
            self.story.passes(4_000)
            self.no_partition_is_in_two_hands()
        state = self.story.state
        assert state.phase == "Stable"
        held = [
            (name, partition)
            for one in (*self.old.values(), *self.new.values())
            for name, partitions in one.held.items()
            for partition in partitions
        ]
        assert sorted(held) == [(name, p) for name in ("t", "u") for p in range(self.story.sizes[name])]
        assert len(state.members) == len(self.old) + len(self.new)


TestMixed = Mixed.TestCase
TestMixed.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
