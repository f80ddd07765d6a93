"""Whatever members and the cluster do, in whatever order: no partition is in two hands, and all come round.

The members keep to the protocol, but answers get lost, members vanish without a word and come back, topics
grow and go, coordinators change and the log refuses. After each step:

- no partition is held by two members, by what they were told and have not given back
- epochs never go back, neither the group's nor a member's
- the log alone leads to the same state
- whenever all have come round, it was told

In the end, if everybody keeps talking, every partition that somebody wants is held.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from consumer_story import OK, Consumer, ConsumerStory, topic_id
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorate.coordinator.consumer_events import ConsumerRebalanceEnded
from quorate.coordinator.consumer_members import MemberState
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.protocol.errors import ErrorCode

TOPICS = ["t", "u", "v"]
WISHES = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True)
WHO = st.integers(0, 4)


def snapshot(state: ConsumerGroupState) -> dict[str, object]:
    return {name: getattr(state, name) for name in ConsumerGroupState.__slots__}


class Groups(RuleBasedStateMachine):
    @initialize(interval_ms=st.sampled_from([0, 1000]), assignor=st.sampled_from(["uniform", "range"]))
    def begin(self, interval_ms: int, assignor: str) -> None:
        assignors = (assignor, "range" if assignor == "uniform" else "uniform")
        self.story = ConsumerStory(
            {"t": 4, "u": 3},
            group_consumer_assignment_interval_ms=interval_ms,
            group_consumer_assignors=assignors,
        )
        self.members: dict[int, Consumer] = {}
        self.epoch = 0
        self.epochs: dict[str, int] = {}

    def _at(self, who: int) -> Consumer | None:
        return self.members.get(who)

    def _heard(self, who: int, member: Consumer) -> None:
        """What a client does with an answer."""
        if member.error in {
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        }:
            member.held, member.epoch = {}, 0  # it drops everything before it comes back
        elif member.error not in {OK, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            del self.members[who]

    @rule(who=WHO, names=WISHES, static=st.booleans(), regex=st.sampled_from([None, None, "[tu]", ".*"]))
    def joins(self, who: int, names: list[str], static: bool, regex: str | None) -> None:
        member = self._at(who)
        if member is None:
            member = self.members[who] = self.story.member(
                f"m{who}", instance=f"i{who}" if static else None, rebalance_ms=20_000
            )
        member.joins(*names, regex=regex)
        self._heard(who, member)

    @rule(several=st.lists(st.tuples(WHO, WISHES), unique_by=lambda one: one[0], max_size=4))
    def come_together(self, several: list[tuple[int, list[str]]]) -> None:
        """They are announced, and then heard."""
        joins = []
        for who, names in several:
            member = self._at(who)
            if member is None:
                member = self.members[who] = self.story.member(f"m{who}", rebalance_ms=20_000)
            joins.append(partial(member.joins, *names))
        self.story.join_together(joins)
        for who, _ in several:
            self._heard(who, self.members[who])

    @rule(who=WHO, kind=st.sampled_from(["beats", "gives_back", "repeats"]), lost=st.booleans())
    def talks(self, who: int, kind: str, lost: bool) -> None:
        member = self._at(who)
        if member is None or member.epoch <= 0:
            return
        if lost:
            # The answer does not arrive. What the member has is what it had; it will repeat itself.
            member.gives_back(keep=True)
            return
        getattr(member, kind)()
        self._heard(who, member)

    @rule(who=WHO, names=WISHES)
    def wants(self, who: int, names: list[str]) -> None:
        member = self._at(who)
        if member is not None and member.epoch > 0:
            member.wants(*names)
            self._heard(who, member)

    @rule(who=WHO)
    def leaves(self, who: int) -> None:
        member = self.members.pop(who, None)
        if member is not None and member.epoch > 0:
            member.leaves()

    @rule(who=WHO)
    def restarts(self, who: int) -> None:
        """A static member goes for a moment: the next one under its name has another id."""
        member = self._at(who)
        if member is None or member.epoch <= 0 or member.instance is None:
            return
        member.held = {}
        member.leaves(-2)
        if member.error is OK:
            successor = self.story.member(f"{member.id}'", instance=member.instance, rebalance_ms=20_000)
            self.members[who] = successor.joins(*(member.names or []), regex=member.regex)
        self._heard(who, self.members[who])

    @rule(who=WHO)
    def vanishes(self, who: int) -> None:
        """Without a word; what it has it does not have any more."""
        self.members.pop(who, None)

    @rule(ms=st.sampled_from([0, 500, 5_000, 20_000, 46_000]))
    def time_passes(self, ms: int) -> None:
        self.story.passes(ms)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 6))
    def grows(self, name: str, partitions: int) -> None:
        self.story.has_topic(name, max(partitions, self.story.sizes.get(name, 0)))

    @precondition(lambda self: len(self.story.sizes) > 1)
    @rule(name=st.sampled_from(TOPICS))
    def goes(self, name: str) -> None:
        if name in self.story.sizes:
            self.story.loses_topic(name)

    @rule()
    def fails_over(self) -> None:
        self.story.fails_over()

    @rule(who=WHO)
    def is_refused_by_the_log(self, who: int) -> None:
        member = self._at(who)
        if member is not None and member.epoch > 0:
            self.story.refuses = True
            member.gives_back()
            self.story.refuses = False
            self._heard(who, member)

    # What always holds

    @invariant()
    def no_partition_is_in_two_hands(self) -> None:
        if self.story.group is None:
            return
        hands: dict[tuple[str, int], str] = {}
        for member in self.members.values():
            # Whoever was put out and has not heard of it yet stops when its own session is over.
            if member.id not in self.story.state.members:
                continue
            for name, partitions in member.held.items():
                for partition in partitions:
                    assert hands.setdefault((name, partition), member.id) == member.id

    @invariant()
    def the_coordinator_knows_who_holds_what(self) -> None:
        if self.story.group is None:
            return
        state = self.story.state
        owners: dict[tuple[object, int], str] = {}
        for member in state.members.values():
            for held in (member.assigned, member.pending_revocation):
                for of_topic, partitions in held.items():
                    for partition in partitions:
                        assert (of_topic, partition) not in owners
                        owners[of_topic, partition] = member.member_id
        assert owners == {
            (of_topic, partition): owner
            for of_topic, held_by in state._owners.items()
            for partition, owner in held_by.items()
        }

    @invariant()
    def epochs_never_go_back(self) -> None:
        if self.story.group is None:
            return
        state = self.story.state
        assert state.epoch >= self.epoch
        assert state.target_epoch <= state.epoch
        self.epoch = state.epoch
        for member_id, member in state.members.items():
            assert member.epoch <= state.target_epoch
            if member.epoch > 0:
                assert member.epoch >= self.epochs.get(member_id, 0)
                self.epochs[member_id] = member.epoch

    @invariant()
    def what_all_say_is_added_up(self) -> None:
        if self.story.group is not None:
            state = self.story.state
            assert state.said_bytes == sum(one.said_bytes for one in state.members.values())

    @invariant()
    def it_is_told_when_all_have_come_round(self) -> None:
        if self.story.group is None:
            return
        state = self.story.state
        stable = [one.epoch for one in state.members.values() if one.state is MemberState.STABLE]
        assert state.stable_counts == Counter(stable)
        if state.is_settled:
            told = [one for one in self.story.events if isinstance(one, ConsumerRebalanceEnded)]
            assert (state.epoch, len(state.members)) in {(one.epoch, one.members) for one in told}

    @invariant()
    def the_log_alone_leads_to_the_same_state(self) -> None:
        if self.story.group is not None:
            assert snapshot(self.story.replayed()) == snapshot(self.story.state)

    @invariant()
    def so_does_the_log_after_compaction(self) -> None:
        if self.story.group is None:
            return
        last = {key: offset for offset, (key, _) in enumerate(self.story.log)}
        compacted = [
            entry
            for offset, entry in enumerate(self.story.log)
            if last[entry[0]] == offset and entry[1] is not None
        ]
        assert snapshot(self.story.replayed(compacted)) == snapshot(self.story.state)

    def teardown(self) -> None:
        """Everybody keeps talking, and all come round."""
        if not hasattr(self, "story") or not self.members:
            return
        for _ in range(30):
            for who, member in list(self.members.items()):
                if member.epoch > 0:
                    member.repeats()
                else:
                    member.joins(*(member.names or []), regex=member.regex)
                self._heard(who, member)
            self.story.passes(5_000)
        state = self.story.state
        talking = {member.id for member in self.members.values()}
        assert set(state.members) == talking, "who does not talk is put out"
        assert state.phase == "Stable"
        wanted = {
            (name, partition)
            for name in state.subscribed_topics()
            for partition in range(self.story.sizes.get(name, 0))
        }
        held = [
            (name, partition)
            for member in self.members.values()
            for name, partitions in member.held.items()
            for partition in partitions
        ]
        assert sorted(held) == sorted(wanted)
        assert all(state.owner_of(topic_id(name), partition) for name, partition in wanted)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
