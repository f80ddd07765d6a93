"""Leaving a classic group: one, many, those who are no members yet, the last one."""

import pytest
from group_story import OK, Groups

from quorate.coordinator.effects import Caller
from quorate.protocol.api.groups import LeaveGroupRequest
from quorate.protocol.errors import ErrorCode

IDENTITY = LeaveGroupRequest.MemberIdentity
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_and_the_others_rebalance(version: int) -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    assert b.leaves(version=version).code is OK
    assert b.beats() is UNKNOWN
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    a.joins()
    assert a.members == [a.member_id]


def test_several_leave_and_there_is_one_rebalance() -> None:
    groups = Groups()
    a, b, c = groups.started("a", "b", "c")
    answer = b.leaves(c)
    assert [one.error_code for one in answer.response.members] == [OK, OK]
    assert len(groups.told("RebalanceStarted")) == 2
    a.joins()
    assert a.generation == 2


def test_each_is_answered_by_itself() -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    stranger = groups.consumer("s", member_id="stranger")
    unknown_name = groups.consumer("n", instance_id="nobody")
    nameless = groups.consumer("m")
    answer = b.leaves(stranger, unknown_name, nameless)
    assert [one.error_code for one in answer.response.members] == [OK, UNKNOWN, UNKNOWN, UNKNOWN]
    assert answer.response.error_code == OK
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS


def test_nobody_left_and_nothing_changes() -> None:
    groups = Groups()
    groups.started("a")
    groups.consumer("s", member_id="stranger").leaves()
    assert groups.state == "Stable"
    assert groups.consumer("s", member_id="stranger").leaves(version=2).code is UNKNOWN


@pytest.mark.parametrize(
    ("version", "top", "members"), [(2, UNKNOWN, []), (3, OK, [UNKNOWN]), (5, OK, [UNKNOWN])]
)
def test_no_such_group(version: int, top: ErrorCode, members: list[ErrorCode]) -> None:
    answer = Groups().consumer("a", member_id="x").leaves(version=version)
    assert answer.code is top
    assert [one.error_code for one in answer.response.members] == members


def test_a_group_has_a_name() -> None:
    groups = Groups()
    request = LeaveGroupRequest(group_id="", members=[IDENTITY(member_id="x")])
    assert groups.asks_to_leave(request, Caller(5, "a", "/a")).code is ErrorCode.INVALID_GROUP_ID


def test_an_id_that_was_given_out_can_be_given_back() -> None:
    groups = Groups()
    (a,) = groups.started("a")
    b = groups.consumer("b")
    b.member_id = b.asks_to_join().response.member_id
    rejoined = a.joins()
    assert rejoined.waits
    assert b.leaves().response.members[0].error_code == OK
    assert rejoined.code is OK
    assert b.asks_to_join().code is UNKNOWN


def test_who_leaves_while_it_waits_is_answered() -> None:
    groups = Groups()
    _a, b = groups.started("a", "b")
    joining = b.asks_to_join(protocols=[])
    assert joining.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    c = groups.consumer("c")
    joining = c.joins()
    c.leaves()
    assert (joining.code, joining.response.member_id) == (UNKNOWN, "")


def test_who_leaves_while_it_waits_for_the_leader_is_answered() -> None:
    groups = Groups()
    a, b = groups.consumer("a"), groups.consumer("b")
    a.joins()
    b.joins()
    groups.passes(6_000)
    syncing = b.syncs()
    b.leaves()
    assert syncing.code is UNKNOWN
    assert groups.state == "PreparingRebalance"
    assert groups.waiting == 0


def test_the_last_one_who_has_not_come_back_leaves() -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    a.joins()
    b.leaves()
    assert (a.generation, a.members) == (2, [a.member_id])


def test_a_reason_is_told_but_not_at_any_length() -> None:
    groups = Groups()
    a, _b = groups.started("a", "b")
    a.leaves(reason="because " * 100)
    (removed,) = groups.told("MemberRemoved")
    assert removed.reason == ("because " * 100)[:255]
    assert groups.told("RebalanceStarted")[-1].reason == removed.reason
