"""Static members: they keep their place while they are away, and there is only one of each name."""

import pytest
from group_story import OK, Consumer, Groups, subscription

from quorate.protocol.errors import ErrorCode


def started(groups: Groups, join_version: int = 9) -> tuple[Consumer, Consumer]:
    """Two static members of a stable group, the first one leads."""
    a = groups.consumer("a", instance_id="i", join_version=join_version)
    b = groups.consumer("b", instance_id="j", join_version=join_version)
    a.joins()
    b.joins()
    groups.passes(6_000)
    groups.settles(a, b)
    return a, b


class TestRestarts:
    @pytest.mark.parametrize("version", [5, 8, 9])
    def test_a_follower_comes_back_and_nobody_notices(self, version: int) -> None:
        groups = Groups()
        a, b = started(groups, version)
        again = b.restarts()
        assert again.joins().code is OK
        assert again.member_id != b.member_id
        assert (again.generation, again.leader, again.members) == (1, a.member_id, [])
        assert again.syncs().assignment == b"b"
        assert groups.state == "Stable"
        assert a.beats() is OK

    def test_a_leader_comes_back_and_must_not_assign_again(self) -> None:
        groups = Groups()
        a, b = started(groups)
        again = a.restarts()
        again.joins()
        assert (again.leads, again.skips_assignment) == (True, True)
        assert again.members == [again.member_id, b.member_id]
        assert again.syncs().assignment == b"a"
        assert groups.state == "Stable"

    def test_before_v9_it_is_told_that_it_follows(self) -> None:
        groups = Groups()
        a, _b = started(groups, 8)
        again = a.restarts()
        again.joins()
        assert (again.leads, again.leader, again.members) == (False, a.member_id, [])
        assert again.syncs().assignment == b"a"

    def test_the_one_who_came_back_leads_all_the_same(self) -> None:
        groups = Groups()
        a, b = started(groups, 8)
        again = a.restarts()
        again.joins()
        again.joins()
        assert groups.state == "PreparingRebalance"
        b.joins()
        assert again.leads

    def test_it_is_written_down(self) -> None:
        groups = Groups()
        _a, b = started(groups)
        again = b.restarts()
        again.joins()
        groups.fails_over()
        assert again.beats() is OK
        assert b.beats() is ErrorCode.FENCED_INSTANCE_ID

    def test_if_it_cannot_be_written_down_all_is_as_before(self) -> None:
        groups = Groups()
        a, b = started(groups)
        again = b.restarts()
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        refused = again.joins()
        assert (refused.code, refused.response.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        assert b.beats() is OK
        assert b.syncs().assignment == b"b"
        groups.passes(9_999)
        assert (a.beats(), b.beats()) == (OK, OK)
        groups.passes(10_000)
        assert b.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_if_it_cannot_be_written_down_it_must_still_ask_for_its_assignment(self) -> None:
        groups = Groups()
        a = groups.consumer("a", instance_id="i", rebalance_ms=9_000)
        b = groups.consumer("b", instance_id="j", rebalance_ms=9_000)
        a.joins()
        b.joins()
        groups.passes(6_000)
        a.syncs({a: b"a", b: b"b"})
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        b.restarts().joins()
        groups.passes(8_999)
        assert (a.beats(), b.beats()) == (OK, OK)
        groups.passes(1)
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        assert b.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_it_is_shown_as_the_client_that_came_first(self) -> None:
        groups = Groups()
        _a, b = started(groups)
        again = b.restarts()
        again.client_id = "another"
        again.joins()
        assert [one.client_id for one in groups.described().members] == ["a", "b"]
        (fenced,) = groups.told("MemberFenced")
        assert fenced.client_id == "another"

    def test_it_is_heard_of_under_its_new_id(self) -> None:
        groups = Groups()
        a, b = started(groups)
        groups.passes(5_000)
        again = b.restarts()
        again.joins()
        groups.passes(4_999)
        a.beats()
        groups.passes(5_000)
        assert again.beats() is OK

    def test_another_protocol_makes_the_group_rebalance(self) -> None:
        groups = Groups()
        a = groups.consumer("a", instance_id="i", protocols=[("x", b""), ("y", b"")])
        b = groups.consumer("b", instance_id="j", protocols=[("x", b""), ("y", b"")])
        a.joins()
        b.joins()
        groups.passes(6_000)
        groups.settles(a, b)
        again = b.restarts()
        again.protocols = [("y", b"")]
        assert again.joins().waits
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS

    def test_another_subscription_does_not(self) -> None:
        groups = Groups()
        _a, b = started(groups)
        again = b.restarts()
        again.protocols = [("range", subscription("other"))]
        assert again.joins().code is OK
        assert groups.state == "Stable"

    def test_while_the_leader_works_the_group_begins_again(self) -> None:
        groups = Groups()
        a = groups.consumer("a", instance_id="i")
        b = groups.consumer("b", instance_id="j")
        a.joins()
        b.joins()
        groups.passes(6_000)
        waits = a.syncs(member_id=b.member_id, group_instance_id="j")
        again = b.restarts()
        assert again.joins().waits
        assert waits.code is ErrorCode.FENCED_INSTANCE_ID
        assert groups.state == "PreparingRebalance"
        a.joins()
        assert (a.generation, again.generation) == (2, 2)

    def test_while_the_group_prepares_the_one_before_is_sent_away(self) -> None:
        groups = Groups()
        a = groups.consumer("a", instance_id="i")
        waits = a.joins()
        again = a.restarts()
        again.joins()
        assert (waits.code, waits.response.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "i-id1")
        groups.passes(6_000)
        assert (again.generation, again.members) == (1, ["i-id2"])

    def test_who_has_not_synced_must_still(self) -> None:
        groups = Groups()
        a = groups.consumer("a", session_ms=300_000)
        b = groups.consumer("b", instance_id="j", session_ms=300_000)
        a.joins()
        b.joins()
        groups.passes(6_000)
        a.syncs({a: b"1", b: b"2"})
        again = b.restarts()
        again.joins()
        assert groups.state == "Stable"
        groups.passes(60_000)
        assert again.beats() is ErrorCode.UNKNOWN_MEMBER_ID


class TestFencing:
    def test_a_twin_locks_the_first_out(self) -> None:
        groups = Groups()
        _a, b = started(groups)
        b.restarts().joins()
        assert b.beats() is ErrorCode.FENCED_INSTANCE_ID
        assert b.syncs().code is ErrorCode.FENCED_INSTANCE_ID
        assert b.joins().code is ErrorCode.FENCED_INSTANCE_ID
        assert b.leaves().response.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
        committed = b.commits(1).response.topics[0].partitions[0]
        assert committed.error_code == ErrorCode.FENCED_INSTANCE_ID

    def test_an_instance_that_nobody_has(self) -> None:
        groups = Groups()
        a, _b = started(groups)
        assert a.beats(group_instance_id="x") is ErrorCode.UNKNOWN_MEMBER_ID


class TestGoing:
    def test_a_session_ends_for_static_members_too(self) -> None:
        groups = Groups()
        a, b = started(groups)
        groups.passes(9_000)
        a.beats()
        groups.passes(1_000)
        assert b.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_it_can_be_removed_by_its_name_alone(self) -> None:
        groups = Groups()
        a, b = started(groups)
        administrator = groups.consumer("admin", instance_id="j")
        answer = administrator.leaves()
        (left,) = answer.response.members
        assert (left.member_id, left.group_instance_id, left.error_code) == ("", "j", OK)
        assert b.beats() is ErrorCode.UNKNOWN_MEMBER_ID
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS

    def test_after_that_the_name_is_free(self) -> None:
        groups = Groups()
        a, b = started(groups)
        b.leaves()
        again = b.restarts()
        again.joins()
        a.joins()
        assert again.generation == 2
