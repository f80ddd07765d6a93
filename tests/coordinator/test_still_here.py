"""The short way of a heartbeat, which most take: it says what the whole step would say, or nothing."""

import pytest
from group_story import OK, Consumer, Groups

from quorate.coordinator.deadlines import Deadlines
from quorate.protocol.api.groups import HeartbeatRequest
from quorate.protocol.errors import ErrorCode


def is_still_here(member: Consumer, **changes: object) -> bool:
    request = HeartbeatRequest(
        group_id=member.group_id, generation_id=member.generation, member_id=member.member_id
    )
    for name, value in changes.items():
        setattr(request, name, value)
    groups = member.groups
    return groups.shard.is_still_here(request, groups.moment.now_ms)


def test_a_member_of_a_stable_group_stays_alive_by_it() -> None:
    (member,) = Groups().started("a")
    for _ in range(3):
        member.groups.passes(9_000)
        assert is_still_here(member)
    assert member.beats() is OK
    member.groups.passes(10_000)
    assert member.beats() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "changes",
    [{"generation_id": 7}, {"member_id": "x"}, {"group_id": "other"}, {"group_instance_id": "i"}],
)
def test_whatever_else_there_is_to_say_needs_the_whole_step(changes: dict[str, object]) -> None:
    (member,) = Groups().started("a")
    assert not is_still_here(member, **changes)


def test_it_keeps_nobody_alive_that_it_does_not_answer() -> None:
    (member,) = Groups().started("a")
    member.groups.passes(9_000)
    assert not is_still_here(member, generation_id=7)
    member.groups.passes(1_000)
    assert member.beats() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_rebalances_tells_so() -> None:
    (member,) = Groups().started("a")
    member.groups.consumer("b").joins()
    assert not is_still_here(member)
    assert member.beats() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_without_its_assignment_needs_the_whole_step() -> None:
    groups = Groups()
    member = groups.consumer("a")
    member.joins()
    groups.passes(3_000)
    assert groups.state == "CompletingRebalance"
    assert not is_still_here(member)


def test_a_deadline_that_is_pushed_back_is_later_or_untouched() -> None:
    deadlines = Deadlines[str]()
    assert not deadlines.push_back("a", 10)
    assert "a" not in deadlines
    deadlines.set("a", 10)
    assert deadlines.push_back("a", 30)
    assert not deadlines.push_back("a", 20)
    assert deadlines.get("a") == 30
    assert deadlines.take(29) is None
    assert deadlines.take(30) == "a"
