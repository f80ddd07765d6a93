"""How a generation of a classic group begins and ends: time to join, time to sync, sessions, the leader."""

import pytest
from group_story import OK, Consumer, Groups, subscription

from quorate.protocol.errors import ErrorCode


def completing(groups: Groups, *client_ids: str, **about: object) -> tuple[Consumer, ...]:
    """Consumers that were told their generation; the first one leads, and has not assigned yet."""
    consumers = tuple(groups.consumer(client_id, **about) for client_id in client_ids)
    for consumer in consumers:
        consumer.joins()
    groups.passes(6_000)
    assert groups.state == "CompletingRebalance"
    return consumers


def keep_alive(groups: Groups, ms: int, *consumers: Consumer) -> None:
    """Time passes, and these are heard of meanwhile."""
    for _ in range(ms // 5_000):
        for consumer in consumers:
            consumer.beats()
        groups.passes(5_000)


@pytest.mark.parametrize("rebalance_ms", [0, 1, 999])
def test_static_members_that_have_no_time_to_come_back_do_not_keep_the_coordinator_awake(
    rebalance_ms: int,
) -> None:
    groups = Groups()
    a = groups.consumer("a", instance_id="i", session_ms=30_000)
    a.joins()
    groups.passes(3_000)
    groups.settles(a)
    again = a.restarts()
    again.rebalance_ms = rebalance_ms
    assert again.joins().code is OK
    passing = groups.consumer("b")
    passing.member_id = passing.asks_to_join().response.member_id
    passing.leaves()
    groups.passes(29_000)
    assert groups.state == "PreparingRebalance"  # it is up to the static member, whose session lasts
    assert again.joins().code is OK
    assert again.generation == 2


def test_a_static_member_that_had_no_time_to_come_back_is_waited_for_until_its_session_ends() -> None:
    groups = Groups()
    a = groups.consumer("a", instance_id="i", rebalance_ms=0)
    a.joins()
    groups.passes(3_000)
    a.syncs({a: b"1"})
    groups.consumer("b").joins()  # with a generation of its own, as soon as there is no time left
    groups.passes(60_000)
    assert groups.state == "Empty"


class TestTheEndOfPreparing:
    def test_it_ends_when_everybody_has_joined(self) -> None:
        groups = Groups()
        a, b = groups.started("a", "b")
        c = groups.consumer("c")
        c.joins()
        a.joins()
        assert groups.state == "PreparingRebalance"
        b.joins()
        assert [one.generation for one in (a, b, c)] == [2, 2, 2]

    def test_when_the_time_is_over_who_is_missing_is_put_out(self) -> None:
        groups = Groups()
        a, b = groups.started("a", "b")
        b.protocols = [("range", subscription("u"))]
        b.joins()
        keep_alive(groups, 60_000, a)
        assert (b.generation, b.leads, b.members) == (2, True, [b.member_id])
        assert a.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_slowest_member_decides_how_long(self) -> None:
        groups = Groups()
        a, b = groups.consumer("a", rebalance_ms=10_000), groups.consumer("b", rebalance_ms=30_000)
        a.joins()
        b.joins()
        groups.passes(6_000)
        groups.settles(a, b)
        joined = a.joins()
        keep_alive(groups, 25_000, b)
        assert joined.waits
        keep_alive(groups, 5_000, b)
        assert a.generation == 2

    def test_a_static_member_may_be_missing(self) -> None:
        groups = Groups()
        a = groups.consumer("a")
        b = groups.consumer("b", instance_id="i", session_ms=300_000)
        a.joins()
        b.joins()
        groups.passes(6_000)
        groups.settles(a, b)
        a.joins()
        groups.passes(60_000)
        assert (a.generation, a.members) == (2, [a.member_id, b.member_id])

    def test_a_leader_that_is_missing_is_replaced_by_one_who_is_there(self) -> None:
        groups = Groups()
        a = groups.consumer("a", instance_id="i", session_ms=300_000)
        b = groups.consumer("b")
        a.joins()
        b.joins()
        groups.passes(6_000)
        groups.settles(a, b)
        assert a.leads
        b.protocols = [("range", subscription("u"))]
        b.joins()
        groups.passes(60_000)
        assert (b.leads, b.members) == (True, [a.member_id, b.member_id])

    def test_if_nobody_comes_back_it_is_up_to_the_sessions(self) -> None:
        groups = Groups()
        a = groups.consumer("a", instance_id="i", session_ms=100_000)
        b = groups.consumer("b")
        a.joins()
        b.joins()
        groups.passes(6_000)
        groups.settles(a, b)
        b.leaves()
        groups.passes(60_000)
        assert groups.state == "PreparingRebalance"
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        groups.passes(100_000)
        assert groups.state == "Empty"

    def test_the_last_one_leaves_an_empty_group_behind(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        a.leaves()
        assert groups.state == "Empty"
        value = groups.records()[-1].value
        assert value is not None
        assert (value.generation, value.members, value.protocol, value.leader) == (2, [], None, None)
        assert value.protocol_type == "consumer"

    def test_that_a_group_is_empty_need_not_be_stored(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert a.leaves().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.state == "Empty"
        groups.fails_over()
        assert groups.state == "Stable"
        groups.passes(10_000)
        assert groups.state == "Empty"


class TestSyncing:
    def test_the_leader_first(self) -> None:
        groups = Groups()
        a, b = completing(groups, "a", "b")
        assert a.syncs({a: b"1", b: b"2"}).assignment == b"1"
        assert b.syncs().assignment == b"2"
        assert groups.state == "Stable"

    def test_the_leader_last(self) -> None:
        groups = Groups()
        a, b = completing(groups, "a", "b")
        follower = b.syncs()
        assert follower.waits
        a.syncs({a: b"1", b: b"2"})
        assert follower.assignment == b"2"
        assert (follower.response.protocol_type, follower.response.protocol_name) == ("consumer", "range")

    def test_who_was_forgotten_gets_nothing_and_who_was_made_up_is_not_there(self) -> None:
        groups = Groups()
        a, b = completing(groups, "a", "b")
        stranger = groups.consumer("s", member_id="stranger")
        a.syncs({a: b"1", stranger: b"3"})
        assert b.syncs().assignment == b""
        stored = groups.records()[-1].value
        assert stored is not None
        assert [member.member_id for member in stored.members] == [a.member_id, b.member_id]

    def test_a_follower_cannot_assign(self) -> None:
        groups = Groups()
        a, b = completing(groups, "a", "b")
        assert b.syncs({a: b"evil", b: b"evil"}).waits
        a.syncs({a: b"1"})
        assert b.syncs().assignment == b""

    def test_the_leader_cannot_assign_twice(self) -> None:
        groups = Groups()
        a, b = completing(groups, "a", "b")
        a.syncs({a: b"1", b: b"2"})
        assert a.syncs({a: b"3", b: b"4"}).assignment == b"1"
        assert b.syncs().assignment == b"2"

    def test_a_member_that_asks_twice_is_answered_twice(self) -> None:
        groups = Groups()
        a, b = completing(groups, "a", "b")
        first, second = b.syncs(), b.syncs()
        assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
        a.syncs({b: b"2"})
        assert second.assignment == b"2"

    def test_a_change_sends_those_back_who_wait(self) -> None:
        groups = Groups()
        _a, b = completing(groups, "a", "b")
        waits = b.syncs()
        groups.consumer("c").joins()
        assert waits.code is ErrorCode.REBALANCE_IN_PROGRESS
        assert b.syncs().code is ErrorCode.REBALANCE_IN_PROGRESS

    def test_who_does_not_sync_in_time_is_put_out(self) -> None:
        groups = Groups()
        a, b, c = completing(groups, "a", "b", "c")
        waits = b.syncs()
        keep_alive(groups, 60_000, a, c)
        assert waits.code is ErrorCode.REBALANCE_IN_PROGRESS
        assert [one.beats() for one in (a, c)] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
        assert b.beats() is ErrorCode.REBALANCE_IN_PROGRESS

    def test_even_if_the_group_has_become_stable_without_it(self) -> None:
        groups = Groups()
        a, b = completing(groups, "a", "b")
        a.syncs({a: b"1", b: b"2"})
        keep_alive(groups, 60_000, a, b)
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        assert b.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_and_even_if_it_is_static(self) -> None:
        groups = Groups()
        a = groups.consumer("a")
        b = groups.consumer("b", instance_id="i", session_ms=300_000)
        a.joins()
        b.joins()
        groups.passes(6_000)
        a.syncs({a: b"1", b: b"2"})
        keep_alive(groups, 60_000, a)
        assert b.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_assignment_that_cannot_be_stored_is_not_handed_out(self) -> None:
        groups = Groups()
        a, b = completing(groups, "a", "b")
        waits = b.syncs()
        groups.refuses = ErrorCode.MESSAGE_TOO_LARGE
        assert a.syncs({a: b"1", b: b"2"}).code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert waits.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert groups.state == "PreparingRebalance"
        a.joins()
        b.joins()
        groups.passes(1000)
        groups.settles(a, b)
        assert a.generation == 2

    def test_while_nothing_can_be_stored_there_is_a_generation_per_second(self) -> None:
        """However fast members come back. What they wait for cannot be had any sooner."""
        groups = Groups()
        a, b = completing(groups, "a", "b")
        for _ in range(3):
            generation, waits = a.generation, b.syncs()
            groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
            a.syncs({a: b"1", b: b"2"})
            assert waits.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (a.joins().waits, b.joins().waits) == (True, True)
            groups.passes(600)
            assert b.joins().waits, "it has given up waiting, and asks again"
            groups.passes(399)
            assert a.generation == generation
            groups.passes(1)
            assert (a.generation, b.generation) == (generation + 1, generation + 1)
        groups.settles(a, b)
        assert groups.state == "Stable"

    def test_a_group_that_nobody_is_left_in_does_not_wait_for_the_log(self) -> None:
        groups = Groups()
        (a,) = completing(groups, "a")
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        a.syncs({a: b"1"})
        a.leaves()
        assert groups.state == "Empty"

    def test_an_assignment_leaves_only_when_it_is_committed(self) -> None:
        groups = Groups()
        a, b, c = completing(groups, "a", "b", "c")
        b_waits = b.syncs()
        groups.commits = False
        a_waits = a.syncs({a: b"1", b: b"2", c: b"3"})
        c_waits = c.syncs()  # the group is stable, but that is not committed
        assert a_waits.waits
        assert b_waits.waits
        assert c_waits.waits
        groups.is_committed()
        assert [one.assignment for one in (a_waits, b_waits, c_waits)] == [b"1", b"2", b"3"]

    def test_an_assignment_that_is_not_committed_in_time(self) -> None:
        groups = Groups()
        (a,) = completing(groups, "a")
        groups.commits = False
        waits = a.syncs({a: b"1"})
        groups.times_out()
        assert waits.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.state == "Stable"  # it is in the log, and may be committed yet

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_name": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_type": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"group_instance_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"group_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ],
    )
    def test_refusals(self, changes: dict[str, object], code: ErrorCode) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        assert a.syncs(**changes).code is code

    def test_before_v5_protocols_were_not_named(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        assert a.syncs(version=4, protocol_name=None, protocol_type=None).code is OK

    def test_an_empty_group_has_nothing_to_assign(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        a.leaves()
        assert a.syncs().code is ErrorCode.UNKNOWN_MEMBER_ID


class TestSessions:
    def test_silence_puts_a_member_out(self) -> None:
        groups = Groups()
        a, b = groups.started("a", "b")
        groups.passes(9_000)
        assert a.beats() is OK
        groups.passes(1_000)
        assert b.beats() is ErrorCode.UNKNOWN_MEMBER_ID
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        a.joins()
        assert (a.generation, a.members) == (2, [a.member_id])

    def test_a_heartbeat_that_was_due_and_came_counts(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        for _ in range(50):
            groups.passes(9_999)
            assert a.beats() is OK

    def test_who_waits_to_join_need_not_be_heard(self) -> None:
        groups = Groups()
        a, b = groups.started("a", "b")
        joined = a.joins()
        keep_alive(groups, 55_000, b)
        assert joined.waits
        b.joins()
        assert a.generation == 2

    def test_who_waits_to_sync_need_not_be_heard(self) -> None:
        groups = Groups()
        a, b = completing(groups, "a", "b")
        waits = b.syncs()
        keep_alive(groups, 55_000, a)
        a.syncs({b: b"2"})
        assert waits.assignment == b"2"
        groups.passes(9_999)
        assert b.beats() is OK

    def test_its_session_begins_anew_with_the_answer(self) -> None:
        groups = Groups()
        a, b = groups.started("a", "b")
        a.joins()
        keep_alive(groups, 30_000, b)
        b.joins()
        assert groups.state == "CompletingRebalance"
        groups.passes(9_999)
        assert a.beats() is OK

    def test_a_session_that_ends_while_the_leader_works_ends_the_generation(self) -> None:
        groups = Groups()
        _a, b = completing(groups, "a", "b")
        waits = b.syncs()
        groups.passes(10_000)
        assert waits.code is ErrorCode.REBALANCE_IN_PROGRESS
        assert groups.state == "PreparingRebalance"

    def test_a_session_that_ends_while_the_group_prepares_may_complete_it(self) -> None:
        groups = Groups()
        a, b = groups.started("a", "b")
        b.protocols = [("range", subscription("u"))]
        b.joins()
        groups.passes(10_000)
        assert (b.generation, b.members) == (2, [b.member_id])
        assert a.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_new_member_may_wait_for_five_minutes(self) -> None:
        groups = Groups()
        (a,) = groups.started("a", rebalance_ms=600_000)
        b = groups.consumer("b", rebalance_ms=600_000)
        waits = b.joins()
        keep_alive(groups, 295_000, a)
        assert waits.waits
        keep_alive(groups, 5_000, a)
        assert (waits.code, waits.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
        assert groups.state == "PreparingRebalance"

    def test_a_commit_is_a_sign_of_life(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        groups.passes(9_000)
        a.commits(1)
        groups.passes(9_000)
        assert a.beats() is OK

    def test_a_session_time_out_can_be_changed_by_joining_again(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        a.session_ms = 30_000
        a.joins()
        groups.settles(a)
        groups.passes(29_999)
        assert a.beats() is OK
