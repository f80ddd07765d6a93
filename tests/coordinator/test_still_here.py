"""Heartbeats that are known: they are taken as the whole step would take them, or not at all."""

import pytest
from group_story import OK, Consumer, Groups

from quorate.coordinator.deadlines import Deadlines
from quorate.coordinator.known_members import KnownMember
from quorate.protocol.api.groups import HeartbeatRequest
from quorate.protocol.errors import ErrorCode


def beat_of(member: Consumer, **changes: object) -> HeartbeatRequest:
    request = HeartbeatRequest(
        group_id=member.group_id, generation_id=member.generation, member_id=member.member_id
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def known_of(member: Consumer, **changes: object) -> KnownMember | None:
    return member.groups.shard.known_heartbeat(beat_of(member, **changes))


def is_still_here(member: Consumer, **changes: object) -> bool:
    known = known_of(member, **changes)
    return known is not None and known.is_taken(member.groups.moment.now_ms)


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


def test_what_is_known_is_taken_until_something_changes() -> None:
    (member,) = Groups().started("a")
    known = known_of(member)
    assert known is not None
    assert known.answer.error_code is OK
    groups = member.groups
    for _ in range(3):
        groups.passes(9_000)
        assert known.is_taken(groups.moment.now_ms)
    groups.consumer("b").joins()
    assert not known.is_taken(groups.moment.now_ms)


def test_what_is_known_of_one_generation_is_not_known_of_the_next() -> None:
    (member,) = Groups().started("a")
    known = known_of(member)
    assert known is not None
    member.joins()
    member.groups.settles(member)
    assert member.groups.state == "Stable"
    assert not known.is_taken(member.groups.moment.now_ms)
    assert is_still_here(member)


def test_a_coordinator_that_is_gone_takes_nothing_any_more() -> None:
    (member,) = Groups().started("a")
    known = known_of(member)
    assert known is not None
    member.groups.shard.unload()
    assert not known.is_taken(member.groups.moment.now_ms)


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
