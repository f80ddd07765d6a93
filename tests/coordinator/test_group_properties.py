"""Laws of classic groups and their offsets, under everything that consumers, time and the log can do.

Consumers behave as clients do, and as badly as clients can: they send what they please, in any order.
Whatever happens, every request is answered once, a generation never goes back, nobody has what another has,
and the log says what the coordinator knows.
"""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
from group_story import OK, Consumer, Groups, Reply
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quorate.coordinator.classic import State
from quorate.coordinator.step import Timer, TimerKind
from quorate.protocol.errors import ErrorCode

GROUP_IDS = ("g", "h")
consumers = st.integers(min_value=0, max_value=7)
partitions = st.integers(min_value=0, max_value=2)
producers = st.integers(min_value=1, max_value=2)


class GroupsUnderFire(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups(group_max_size=4, group_initial_rebalance_delay_ms=1_000, pending_members_max=3)
        self.consumers = [self._consumer(number) for number in range(8)]
        self.generations: dict[str, int] = {}
        self.handed_out: dict[tuple[int, str, int], dict[str, bytes]] = {}
        self.coordinator = 0  # counts those that there have been
        self.counted = 0

    def _consumer(self, number: int) -> Consumer:
        is_static = number % 4 in {2, 3}
        protocols = [("x", b"x%d" % number), ("y", b"y")] if number % 2 else [("y", b"y"), ("x", b"x")]
        return self.groups.consumer(
            f"c{number}",
            group_id=GROUP_IDS[number // 4],
            instance_id=f"static-{number}" if is_static else None,
            join_version=(9, 3, 5, 9)[number % 4],
            session_ms=(6_000, 10_000)[number % 2],
            rebalance_ms=(5_000, 20_000)[number // 2 % 2],
            protocols=protocols,
        )

    # What consumers do

    @rule(number=consumers)
    def joins(self, number: int) -> None:
        consumer = self.consumers[number]
        reply = consumer.joins()
        if not reply.waits and reply.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            consumer.member_id = ""

    @rule(number=consumers, extra=st.binary(max_size=2))
    def joins_with_something_else(self, number: int, extra: bytes) -> None:
        consumer = self.consumers[number]
        consumer.protocols = [(name, metadata + extra) for name, metadata in consumer.protocols][::-1]
        self.joins(number=number)

    @rule(number=consumers)
    def restarts(self, number: int) -> None:
        self.consumers[number] = self.consumers[number].restarts()

    @rule(number=consumers, rebalance_ms=st.sampled_from([0, 1, 7, 300, 20_000]))
    def comes_back_with_another_time_out(self, number: int, rebalance_ms: int) -> None:
        self.restarts(number=number)
        self.consumers[number].rebalance_ms = rebalance_ms
        self.joins(number=number)

    @rule(number=consumers)
    def asks_for_an_id_and_gives_it_back(self, number: int) -> None:
        group_id, client_id = GROUP_IDS[number // 4], f"c{number}"
        passing = self.groups.consumer(client_id, group_id=group_id, protocols=self.consumers[0].protocols)
        reply = passing.asks_to_join()
        if reply.code is ErrorCode.MEMBER_ID_REQUIRED:
            passing.member_id = reply.response.member_id
            passing.leaves()

    @rule(number=consumers)
    def syncs(self, number: int) -> None:
        consumer = self.consumers[number]
        key = (self._lives(consumer.group_id), consumer.group_id, consumer.generation)
        assignments = {
            self.groups.consumer("any", member_id=member_id): b"%d of %d" % (place, consumer.generation)
            for place, member_id in enumerate(consumer.members)
        }
        is_first = consumer.leads and key not in self.handed_out
        if consumer.leads:
            self.handed_out.setdefault(
                key, {one.member_id: assignment for one, assignment in assignments.items()}
            )
        member_id, version = consumer.member_id, 5
        reply = consumer.syncs(assignments, version=version)
        reply.heard = self._hears(key, member_id)
        if not reply.waits:
            reply.heard(reply.response)
        if is_first and not reply.waits and reply.code is not OK:
            del self.handed_out[key]  # of a group that is there no more, and may begin anew

    def _lives(self, group_id: str) -> int:
        """Counts how often a group may have begun anew, with the same generations."""
        deleted = sum(event.group_id == group_id for event in self.groups.told("GroupDeleted"))
        return self.coordinator + deleted

    def _hears(self, key: tuple[int, str, int], member_id: str) -> Any:
        def hears(response: Any) -> None:
            if response.error_code == OK and key in self.handed_out:
                given = self.handed_out[key].get(member_id, b"")
                assert bytes(response.assignment) in {given, b""} or self._was_replaced(key, response)

        return hears

    def _was_replaced(self, key: tuple[int, str, int], response: Any) -> bool:
        """A static member has what the one before it had."""
        return bytes(response.assignment) in self.handed_out[key].values()

    @rule(number=consumers)
    def beats(self, number: int) -> None:
        self.consumers[number].beats()

    @rule(number=consumers)
    def leaves(self, number: int) -> None:
        self.consumers[number].leaves()

    @rule(number=consumers, partition=partitions, offset=st.integers(min_value=0, max_value=100))
    def commits(self, number: int, partition: int, offset: int) -> None:
        self.consumers[number].commits(offset, "t", partition)

    @rule(partition=partitions, group_id=st.sampled_from(GROUP_IDS))
    def fetches(self, partition: int, group_id: str) -> None:
        self.groups.fetched("t", partition, group_id, stable=True)

    @rule(producer_id=producers, partition=partitions, group_id=st.sampled_from(GROUP_IDS))
    def commits_in_transaction(self, producer_id: int, partition: int, group_id: str) -> None:
        self.groups.commits_in_transaction(producer_id, 1, "t", partition, group_id=group_id)

    @rule(producer_id=producers, marker=st.sampled_from(["commit", "abort"]))
    def transaction_ends(self, producer_id: int, marker: str) -> None:
        self.groups.marks(producer_id, marker)

    # What else happens

    @rule(ms=st.sampled_from([1, 500, 1_000, 5_000, 10_000, 30_000, 700_000, 8 * 86_400_000]))
    def time_passes(self, ms: int) -> None:
        self.groups.passes(ms)

    @precondition(lambda self: self.groups.refuses is None)
    @rule(code=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE]))
    def the_log_will_refuse(self, code: ErrorCode) -> None:
        self.groups.refuses = code

    @rule()
    def fails_over(self) -> None:
        self.groups.fails_over()
        self.coordinator += 1
        self.generations.clear()
        assert self.groups.waiting == 0

    @rule(group_id=st.sampled_from(GROUP_IDS))
    def deletes_group(self, group_id: str) -> None:
        (code,) = self.groups.deletes(group_id)
        if code is OK:
            self.generations.pop(group_id, None)

    @rule(partition=partitions, group_id=st.sampled_from(GROUP_IDS))
    def deletes_offset(self, partition: int, group_id: str) -> None:
        self.groups.deletes_offsets("t", [partition], group_id)

    @rule()
    def deletes_topic(self) -> None:
        self.groups.deletes_topics("t")

    # What is always true

    @invariant()
    def generations_never_go_back(self) -> None:
        alive = {group.group_id: group.generation for group in self.groups.shard.classic_groups}
        for group_id, generation in self.generations.items():
            if group_id in alive:
                has_begun_anew = (
                    alive[group_id] == 0 and not self.groups.shard.classic_groups.get(group_id).members
                )  # type: ignore[union-attr]
                assert alive[group_id] >= generation or has_begun_anew
        self.generations = alive

    @invariant()
    def nobody_has_what_another_has(self) -> None:
        for group in self.groups.shard.classic_groups:
            held = [member.assignment for member in group.members if member.assignment]
            if group.state is State.STABLE:
                assert len(held) == len(set(held))

    @invariant()
    def the_log_says_what_the_coordinator_knows(self) -> None:
        live, replayed = self.groups.shard, self.groups.replayed()
        assert replayed.classic_groups.stored == live.classic_groups.stored
        assert replayed.committed_offsets == live.committed_offsets

    @invariant()
    def a_stable_group_is_the_stored_one(self) -> None:
        shard = self.groups.shard
        for group in shard.classic_groups:
            stored = shard.classic_groups.stored.get(group.group_id)
            if group.state is State.STABLE:
                assert stored is not None
                assert stored.generation == group.generation
                assert {one.member_id: bytes(one.assignment) for one in stored.members} == {
                    one.member_id: one.assignment for one in group.members
                }

    @invariant()
    def members_add_up(self) -> None:
        for group in self.groups.shard.classic_groups:
            members = group.members
            assert members.joining == sum(member.joining is not None for member in members)
            assert members.said_bytes == sum(member.said_bytes for member in members)
            assert not members.pending.keys() & members.by_id.keys()
            assert group.awaited_syncs <= members.by_id.keys()
            assert {
                one.instance_id: one.member_id for one in members if one.instance_id
            } == members.by_instance
            assert (members.leader in members) == bool(members)
            assert bool(members) or group.state in {State.EMPTY, State.PREPARING}
            assert group.state is not State.EMPTY or not members
            # Static ones that do not come back are not put out, and others may come meanwhile.
            dynamic = [one for one in members if one.instance_id is None]
            assert len(dynamic) <= 4 or group.state is State.PREPARING

    @invariant()
    def whatever_waits_has_an_end(self) -> None:
        deadlines = self.groups.shard._deadlines
        for group in self.groups.shard.classic_groups:
            for member in group.members:
                assert member.is_excused or group.session(member.member_id) in deadlines
            for member_id in group.members.pending:
                assert group.session(member_id) in deadlines
            assert (group.timer(TimerKind.JOIN) in deadlines) == (group.state is State.PREPARING)
            if group.awaited_syncs:
                assert group.timer(TimerKind.SYNC) in deadlines

    @invariant()
    def nothing_is_waited_for_in_vain(self) -> None:
        shard = self.groups.shard
        for timer in _timers(shard):
            group = shard.classic_groups.get(timer.group_id)
            if timer.kind is TimerKind.SESSION:
                assert group is not None
                assert timer.member_id in group.members or timer.member_id in group.members.pending
            elif timer.kind in {TimerKind.JOIN, TimerKind.SYNC}:
                assert group is not None
        assert math.isfinite(shard.next_deadline_ms)

    @invariant()
    def requests_wait_only_with_members(self) -> None:
        members = [member for group in self.groups.shard.classic_groups for member in group.members]
        waiting = sum((one.joining is not None) + (one.syncing is not None) for one in members)
        assert self.groups.waiting == waiting

    def teardown(self) -> None:
        self.groups.refuses = None
        self.groups.fails_over()
        assert self.groups.waiting == 0
        for reply in self.groups.replies.values():
            assert isinstance(reply, Reply)
            assert reply.response is not None


def _timers(shard: Any) -> list[Timer]:
    return list(shard._deadlines._due_ms)


class GroupsWithoutPatience(GroupsUnderFire):
    """Members of groups that were stable give the others no time to speak of to come back."""

    @rule(numbers=st.lists(consumers, unique=True, min_size=1, max_size=3), data=st.data())
    def are_in_a_generation_and_some_come_back(self, numbers: list[int], data: Any) -> None:
        for number in numbers:
            self.joins(number=number)
            self.generations_never_go_back()
        self.groups.passes(2_000)
        for number in numbers * 2:
            self.syncs(number=number)
            self.generations_never_go_back()
        for number in data.draw(st.lists(st.sampled_from(numbers), unique=True)):
            rebalance_ms = data.draw(st.sampled_from([0, 0, 1, 7]))
            self.comes_back_with_another_time_out(number=number, rebalance_ms=rebalance_ms)
            self.generations_never_go_back()


GroupsUnderFire.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
GroupsWithoutPatience.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestGroupsUnderFire = GroupsUnderFire.TestCase
TestGroupsWithoutPatience = GroupsWithoutPatience.TestCase
