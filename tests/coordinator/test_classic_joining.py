"""Joining a classic group: ids, protocols, the first generation, and who is let in."""

import pytest
from group_story import OK, Consumer, Groups, subscription

from quorate.coordinator.settings import GroupSettings
from quorate.protocol.errors import ErrorCode


class TestIds:
    def test_from_v4_on_a_newcomer_is_given_an_id_to_come_with(self) -> None:
        groups = Groups()
        a = groups.consumer("a")
        first = a.asks_to_join()
        assert first.code is ErrorCode.MEMBER_ID_REQUIRED
        assert first.response.member_id == "a-id1"
        assert (first.response.generation_id, first.response.protocol_name) == (-1, None)
        a.member_id = first.response.member_id
        assert a.asks_to_join().waits
        groups.passes(3000)
        assert (a.generation, a.member_id) == (1, "a-id1")

    @pytest.mark.parametrize("version", range(4))
    def test_before_v4_it_is_a_member_at_once(self, version: int) -> None:
        groups = Groups()
        a = groups.consumer("a", join_version=version)
        assert a.asks_to_join().waits
        groups.passes(3000)
        assert (a.generation, a.member_id, a.protocol) == (1, "a-id1", "range")

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_an_id_is_given_out_before_it_is_stored_that_the_group_exists(self, is_committed: bool) -> None:
        groups = Groups()
        groups.commits = False
        a = groups.consumer("a")
        a.member_id = a.asks_to_join().response.member_id
        assert groups.kinds_of_records() == ["GroupMetadata"]
        if is_committed:
            groups.is_committed()
        else:
            groups.times_out()
        assert a.asks_to_join().waits
        groups.passes(3000)
        assert a.generation == 1

    def test_no_id_is_given_out_if_nothing_can_be_stored(self) -> None:
        groups = Groups()
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert groups.consumer("a").asks_to_join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_a_static_member_is_never_sent_away_for_an_id(self) -> None:
        groups = Groups()
        a = groups.consumer("a", instance_id="i")
        assert a.asks_to_join().waits
        groups.passes(3000)
        assert a.member_id == "i-id1"

    def test_an_id_that_is_not_used_is_forgotten_after_the_session_time_out(self) -> None:
        groups = Groups()
        a = groups.consumer("a")
        a.member_id = a.asks_to_join().response.member_id
        groups.passes(10_000)
        assert a.asks_to_join().code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_id_that_is_not_used_holds_up_the_generation(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        groups.consumer("b").asks_to_join()
        a.protocols = [("range", subscription("t", "u"))]
        rejoined = a.joins()
        assert rejoined.waits
        groups.passes(9_999)
        assert rejoined.waits
        groups.passes(1)
        assert a.generation == 2

    def test_unknown_ids(self) -> None:
        groups = Groups()
        assert groups.consumer("a", member_id="x").asks_to_join().code is ErrorCode.UNKNOWN_MEMBER_ID
        assert groups.log == []
        groups.started("b")
        assert groups.consumer("a", member_id="x").asks_to_join().code is ErrorCode.UNKNOWN_MEMBER_ID
        assert groups.state == "Stable"

    def test_a_pending_id_with_an_instance_id_makes_no_sense(self) -> None:
        groups = Groups()
        a = groups.consumer("a")
        a.member_id = a.asks_to_join().response.member_id
        assert a.asks_to_join(group_instance_id="i").code is ErrorCode.UNKNOWN_SERVER_ERROR

    def test_of_too_many_ids_that_are_not_used_the_oldest_is_forgotten(self) -> None:
        groups = Groups(pending_members_max=2)
        many = [groups.consumer("a", session_ms=1_800_000) for _ in range(100)]
        for one in many:
            reply = one.asks_to_join()
            assert reply.code is ErrorCode.MEMBER_ID_REQUIRED
            one.member_id = reply.response.member_id
        assert [one.asks_to_join().code for one in many[:98]] == [ErrorCode.UNKNOWN_MEMBER_ID] * 98
        waiting = [one.asks_to_join() for one in many[98:]]
        groups.passes(6_000)
        assert [one.code for one in waiting] == [OK, OK]

    def test_an_id_that_is_forgotten_holds_up_no_generation(self) -> None:
        groups = Groups(pending_members_max=1)
        (a,) = groups.started("a", session_ms=60_000)
        first, second = groups.consumer("b", session_ms=30_000), groups.consumer("c")
        first.asks_to_join()
        second.member_id = second.asks_to_join().response.member_id
        second.joins()
        a.joins()
        assert (a.generation, second.generation) == (2, 2)
        groups.settles(a, second)
        a.beats()
        groups.passes(9_000)
        second.beats()
        groups.passes(1_000)
        assert groups.state == "Stable"
        groups.passes(8_999)
        assert second.beats() is OK

    def test_the_timer_of_an_id_that_is_forgotten_goes_with_it(self) -> None:
        groups = Groups(pending_members_max=3)
        for _ in range(1_000):
            groups.consumer("a", session_ms=1_800_000).asks_to_join()
        assert len(groups.shard._deadlines) == 3 + 1  # and that of old offsets

    def test_a_long_client_id_does_not_make_an_id_that_no_answer_can_carry(self) -> None:
        groups = Groups()
        reply = groups.consumer("x" * 32_767, join_version=4).asks_to_join()
        assert len(reply.response.member_id) < 300


class TestRequests:
    def test_a_group_has_a_name(self) -> None:
        groups = Groups()
        assert groups.consumer("a", group_id="").asks_to_join().code is ErrorCode.INVALID_GROUP_ID

    @pytest.mark.parametrize(
        ("session_ms", "code"),
        [
            (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
            (6_000, ErrorCode.MEMBER_ID_REQUIRED),
            (1_800_000, ErrorCode.MEMBER_ID_REQUIRED),
            (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
            (-1, ErrorCode.INVALID_SESSION_TIMEOUT),
        ],
    )
    def test_session_time_outs_have_bounds(self, session_ms: int, code: ErrorCode) -> None:
        groups = Groups()
        assert groups.consumer("a", session_ms=session_ms).asks_to_join().code is code

    def test_somebody_who_may_not_join_does_not_make_a_group(self) -> None:
        groups = Groups()
        assert groups.consumer("a", protocols=[]).asks_to_join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        without_type = groups.consumer("a", protocol_type="")
        assert without_type.asks_to_join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert groups.log == []
        assert groups.listed() == []

    def test_metadata_have_a_limit(self) -> None:
        groups = Groups(member_metadata_max_bytes=100)
        a = groups.consumer("a", protocols=[("x", b"." * 60), ("y", b"." * 60)])
        assert a.asks_to_join().code is ErrorCode.MESSAGE_TOO_LARGE
        assert groups.listed() == []

    def test_many_protocols_that_say_nothing_are_much_to_remember_as_well(self) -> None:
        groups = Groups(member_metadata_max_bytes=10_000)
        a = groups.consumer("a", protocols=[(str(number), b"") for number in range(100)])
        assert a.asks_to_join().code is ErrorCode.MESSAGE_TOO_LARGE

    def test_a_new_group_is_written_down_before_anybody_is_in_it(self) -> None:
        groups = Groups()
        groups.consumer("a").asks_to_join()
        (record,) = groups.records()
        assert record.value is not None
        assert record.value.members == []
        assert (record.value.generation, record.value.protocol_type) == (0, "")

    def test_a_new_group_that_could_not_be_written_down_is_not_there(self) -> None:
        groups = Groups()
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        refused = groups.consumer("a").asks_to_join()
        assert refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert refused.response.member_id == ""
        groups.refuses = ErrorCode.NOT_LEADER_OR_FOLLOWER
        old = groups.consumer("b", join_version=3).asks_to_join()
        assert (old.code, old.response.protocol_name) == (ErrorCode.NOT_COORDINATOR, "")
        assert groups.listed() == []
        groups.passes(1_000_000)
        assert groups.log == []


class TestProtocols:
    def test_members_need_a_protocol_and_a_type_in_common(self) -> None:
        groups = Groups()
        groups.started("a", protocols=[("range", b""), ("sticky", b"")])
        other = groups.consumer("b", protocols=[("roundrobin", b"")])
        assert other.joins().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        worker = groups.consumer("c", protocol_type="connect")
        assert worker.joins().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert groups.consumer("d", protocols=[("sticky", b"")]).joins().waits

    @pytest.mark.parametrize(
        ("likings", "chosen"),
        [
            (["xy", "xy", "yx"], "x"),
            (["xy", "yx", "yx"], "y"),
            (["xy", "yx"], "x"),  # in a tie, the one that was named first
            (["xyz", "zy", "yz"], "y"),  # x is not spoken by all; the votes are y, z, y
        ],
    )
    def test_votes(self, likings: list[str], chosen: str) -> None:
        groups = Groups()
        members = [
            groups.consumer(f"m{i}", protocols=[(name, name.encode()) for name in liking])
            for i, liking in enumerate(likings)
        ]
        for member in members:
            member.joins()
        groups.passes(6000)
        assert {member.protocol for member in members} == {chosen}

    def test_the_leader_is_told_what_members_say_under_the_chosen_protocol(self) -> None:
        groups = Groups()
        a = groups.consumer("a", protocols=[("x", b"ax"), ("y", b"ay")])
        b = groups.consumer("b", protocols=[("y", b"by")], instance_id="i")
        joined = a.joins()
        follower = b.joins()
        groups.passes(6000)
        listing = [(one.group_instance_id, bytes(one.metadata)) for one in joined.response.members]
        assert listing == [(None, b"ay"), ("i", b"by")]
        assert follower.response.members == []
        assert {joined.response.leader, follower.response.leader} == {a.member_id}
        assert joined.response.protocol_type == "consumer"

    def test_a_member_that_speaks_another_protocol_alone_is_refused(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        a.protocols = [("sticky", b"")]
        assert a.joins().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class TestFirstGeneration:
    def test_it_waits_for_others(self) -> None:
        groups = Groups()
        a = groups.consumer("a")
        joined = a.joins()
        groups.passes(2_999)
        assert joined.waits
        groups.passes(1)
        assert a.generation == 1

    def test_a_late_one_makes_it_wait_again(self) -> None:
        groups = Groups()
        a, b = groups.consumer("a"), groups.consumer("b")
        joined = a.joins()
        groups.passes(2_000)
        b.joins()
        groups.passes(3_999)
        assert joined.waits
        groups.passes(1)
        assert (a.generation, b.generation) == (1, 1)
        assert a.members == [a.member_id, b.member_id]

    def test_but_not_longer_than_the_rebalance_time_out_of_the_first(self) -> None:
        groups = Groups()
        first = groups.consumer("a", rebalance_ms=10_000)
        joined = first.joins()
        for number in range(4):
            groups.passes(2_499)
            assert joined.waits
            groups.consumer(f"late-{number}").joins()
        groups.passes(3)
        assert joined.waits
        groups.passes(1)
        assert first.generation == 1
        assert len(first.members) == 5

    def test_there_may_be_no_delay(self) -> None:
        groups = Groups(group_initial_rebalance_delay_ms=0)
        a = groups.consumer("a")
        a.joins()
        groups.passes(0)
        assert a.generation == 1

    def test_the_second_generation_does_not_wait(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        b = groups.consumer("b")
        b.joins()
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        a.joins()
        assert (a.generation, b.generation) == (2, 2)

    def test_a_member_that_leaves_meanwhile_does_not_end_it(self) -> None:
        groups = Groups()
        a, b = groups.consumer("a"), groups.consumer("b")
        joined = a.joins()
        gone = b.joins()
        b.leaves()
        assert gone.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert joined.waits

    def test_an_id_that_expires_meanwhile_does_end_it(self) -> None:
        groups = Groups(group_initial_rebalance_delay_ms=20_000)
        a = groups.consumer("a")
        groups.consumer("b").asks_to_join()
        groups.passes(1_000)
        joined = a.joins()
        groups.passes(9_000)
        assert not joined.waits
        assert a.generation == 1


class TestSize:
    def test_a_group_may_be_full(self) -> None:
        groups = Groups(group_max_size=2)
        groups.started("a", "b")
        refused = groups.consumer("c").joins()
        assert (refused.code, refused.response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert groups.state == "Stable"

    @pytest.mark.parametrize("version", [3, 9])
    def test_nobody_comes_to_a_full_group_while_the_leader_works(self, version: int) -> None:
        groups = Groups(group_max_size=2)
        a, b = groups.consumer("a"), groups.consumer("b")
        a.joins()
        b.joins()
        groups.passes(6_000)
        refused = groups.consumer("c", join_version=version).asks_to_join()
        assert (refused.code, refused.response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert groups.state == "CompletingRebalance"
        assert b.joins().code is OK  # who is a member has its place
        groups.settles(a, b)
        assert groups.state == "Stable"

    def test_to_an_empty_group_everybody_may_come(self) -> None:
        groups = Groups(group_max_size=1)
        (a,) = groups.started("a")
        a.leaves()
        assert groups.state == "Empty"
        several = [groups.consumer("b").asks_to_join().code for _ in range(3)]
        assert several == [ErrorCode.MEMBER_ID_REQUIRED] * 3
        assert groups.consumer("c", join_version=3).asks_to_join().waits
        assert groups.consumer("d", join_version=3).asks_to_join().code is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_who_comes_with_its_id_to_a_group_that_has_become_full_gives_it_back(self) -> None:
        groups = Groups(group_max_size=2)
        (a,) = groups.started("a")
        b, late = groups.consumer("b"), groups.consumer("c")
        for one in (b, late):
            one.member_id = one.asks_to_join().response.member_id
        waiting = [b.asks_to_join(), a.joins()]
        assert all(one.waits for one in waiting)  # for the last one
        refused = late.asks_to_join()
        assert (refused.code, refused.response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert [one.code for one in waiting] == [OK, OK]
        assert late.asks_to_join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
        b.leaves()
        assert late.asks_to_join().code is ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("state", ["CompletingRebalance", "Stable"])
    def test_who_comes_with_its_id_too_late(self, state: str) -> None:
        groups = Groups(group_max_size=1)
        a, late = groups.consumer("a"), groups.consumer("c")
        late.member_id = late.asks_to_join().response.member_id
        a.joins()
        groups.passes(3_000)
        if state == "Stable":
            groups.settles(a)
        assert groups.state == state
        refused = late.asks_to_join()
        assert (refused.code, refused.response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert groups.state == state
        assert a.beats() is OK

    def test_members_of_a_full_group_may_join_again(self) -> None:
        groups = Groups(group_max_size=2)
        a, b = groups.started("a", "b")
        a.joins()
        assert b.joins().code is OK
        assert (a.generation, b.generation) == (2, 2)

    def test_while_it_prepares_only_those_count_who_wait(self) -> None:
        groups = Groups(group_max_size=2)
        first, second = groups.consumer("a"), groups.consumer("b")
        late = groups.consumer("c")
        first.joins()
        second.joins()
        assert late.asks_to_join().code is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_a_group_that_has_become_too_large_puts_out_who_comes_last(self) -> None:
        groups = Groups()
        a, b, c = groups.started("a", "b", "c")
        groups.settings = type(groups.settings)(group_max_size=2)
        groups.fails_over()
        assert groups.state == "PreparingRebalance"
        a.joins()
        b.joins()
        assert c.joins().code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (a.generation, len(a.members)) == (2, 2)


class TestWhatAllSayTogether:
    """A group whose members say three times 100,000 bytes, and may say no more."""

    def full(self, groups: Groups) -> list[Consumer]:
        groups.settings = GroupSettings(group_metadata_max_bytes=310_000)
        groups.fails_over()
        return list(groups.started("a", "b", "c", protocols=[("x", b"." * 100_000)]))

    @pytest.mark.parametrize("version", [0, 3, 4, 9])
    def test_a_newcomer_for_whom_there_is_no_room_is_turned_away(self, version: int) -> None:
        groups = Groups()
        self.full(groups)
        large = groups.consumer("d", protocols=[("x", b"." * 100_000)], join_version=version)
        refused = large.asks_to_join()
        assert (refused.code, refused.response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert groups.state == "Stable"
        small = groups.consumer("e", protocols=[("x", b".")])
        assert small.joins().waits

    def test_what_was_never_a_generation_counts_as_well(self) -> None:
        groups = Groups(group_metadata_max_bytes=310_000)
        said = [("x", b"." * 100_000)]
        codes = []
        for number in range(150):
            reply = groups.consumer(f"m{number}", protocols=said, join_version=3).joins()
            codes.append(None if reply.waits else reply.code)
        assert codes == [None] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 147

    def test_client_ids_count_as_well(self) -> None:
        groups = Groups(group_metadata_max_bytes=310_000)
        replies = [groups.consumer("c" * 30_000, join_version=3).joins() for _ in range(150)]
        assert sum(reply.waits for reply in replies) == 9

    def test_who_goes_makes_room(self) -> None:
        groups = Groups()
        _a, b, _c = self.full(groups)
        b.leaves()
        assert groups.consumer("d", protocols=[("x", b"." * 100_000)]).joins().waits

    def test_who_came_with_an_id_gives_it_back(self) -> None:
        groups = Groups()
        a, b, c = self.full(groups)
        d = groups.consumer("d", protocols=[("x", b".")])
        d.member_id = d.asks_to_join().response.member_id
        a.joins()
        b.protocols = [("x", b"!" * 100_000)]
        assert b.joins().waits
        assert c.joins().waits  # for the one who has an id
        d.protocols = [("x", b"." * 100_000)]
        assert d.asks_to_join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (a.generation, b.generation, c.generation) == (2, 2, 2)

    def test_a_member_may_say_something_else_but_not_more(self) -> None:
        groups = Groups()
        a, b, c = self.full(groups)
        b.protocols = [("x", b"!" * 200_000)]
        refused = b.joins()
        assert (refused.code, refused.response.member_id) == (ErrorCode.MESSAGE_TOO_LARGE, b.member_id)
        assert groups.state == "Stable"
        b.protocols = [("x", b"!" * 100_000)]
        assert b.joins().waits
        a.joins()
        c.joins()
        assert b.generation == 2

    def test_a_static_member_takes_the_place_of_the_one_before(self) -> None:
        groups = Groups(group_metadata_max_bytes=310_000)
        said = [("x", b"." * 100_000)]
        a = groups.consumer("a", instance_id="i", protocols=said)
        others = [groups.consumer(name, protocols=said) for name in ("b", "c")]
        for one in (a, *others):
            one.joins()
        groups.passes(6_000)
        groups.settles(a, *others)
        for _ in range(3):
            assert a.restarts().joins().code is OK

    def test_who_has_no_name_is_not_taken_for_one_whose_name_is_empty(self) -> None:
        groups = Groups(group_metadata_max_bytes=150_000)
        said = [("x", b"." * 100_000)]
        assert groups.consumer("a", instance_id="", protocols=said).joins().waits
        assert groups.consumer("b", protocols=said).asks_to_join().code is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_a_group_that_says_more_than_it_may_by_now_goes_on(self) -> None:
        groups = Groups()
        a, b, c = groups.started("a", "b", "c", protocols=[("x", b"." * 100_000)])
        groups.settings = GroupSettings(group_metadata_max_bytes=200_000)
        groups.fails_over()
        waiting = [one.joins() for one in (a, b, c)]
        assert waiting[0].code is OK
        assert (a.generation, groups.state) == (2, "CompletingRebalance")


class TestJoiningAgain:
    def test_a_follower_that_wants_the_same_is_told_the_same(self) -> None:
        groups = Groups()
        a, b = groups.started("a", "b")
        again = b.joins()
        assert (again.code, b.generation, again.response.members) == (OK, 1, [])
        assert again.response.leader == a.member_id
        assert groups.state == "Stable"

    @pytest.mark.parametrize(
        "changed",
        [
            [("range", subscription("t", "u"))],
            [("range", subscription("t")), ("sticky", b"")],
        ],
    )
    def test_a_follower_that_wants_something_else_makes_the_group_rebalance(
        self, changed: list[tuple[str, bytes]]
    ) -> None:
        groups = Groups()
        a, b = groups.started("a", "b")
        b.protocols = changed
        assert b.joins().waits
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        a.joins()
        assert (a.generation, b.generation) == (2, 2)

    def test_the_leader_makes_the_group_rebalance(self) -> None:
        groups = Groups()
        a, _b = groups.started("a", "b")
        assert a.joins().waits
        assert groups.state == "PreparingRebalance"

    def test_while_the_leader_works_everybody_is_told_again(self) -> None:
        groups = Groups()
        a, b = groups.consumer("a"), groups.consumer("b")
        a.joins()
        b.joins()
        groups.passes(6_000)
        assert groups.state == "CompletingRebalance"
        assert [one.member_id for one in a.joins().response.members] == [a.member_id, b.member_id]
        assert b.joins().response.members == []
        assert (a.generation, b.generation) == (1, 1)

    def test_while_the_leader_works_something_else_ends_its_work(self) -> None:
        groups = Groups()
        a, b = groups.consumer("a"), groups.consumer("b")
        a.joins()
        b.joins()
        groups.passes(6_000)
        follower = b.syncs()
        a.protocols = [("range", subscription("u"))]
        assert a.joins().waits
        assert follower.code is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_member_that_asks_twice_is_answered_twice(self) -> None:
        groups = Groups()
        a, b = groups.started("a", "b")
        first = a.joins()
        second = a.joins()
        assert (first.code, first.response.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, a.member_id)
        b.joins()
        assert second.code is OK

    def test_a_member_of_a_group_that_has_become_empty(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        groups.passes(10_000)
        assert groups.state == "Empty"
        assert a.joins().code is ErrorCode.UNKNOWN_MEMBER_ID
        a.member_id = ""
        a.joins()
        groups.passes(3_000)
        assert a.generation == 3  # becoming empty was one as well

    def test_v0_has_one_time_out_for_everything(self) -> None:
        groups = Groups()
        a, b = groups.started("a", "b", join_version=0, session_ms=20_000)
        b.protocols = [("range", subscription("x"))]
        joined = b.joins()
        groups.passes(19_999)
        a.beats()
        assert joined.waits
        groups.passes(1)
        assert (b.generation, b.leads) == (2, True)
