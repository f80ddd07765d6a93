"""Many groups, large groups, and whatever else may come over a connection."""

from __future__ import annotations

import sys
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from group_story import GROUP, OK, Consumer, Groups
from hypothesis import given

from quorate.coordinator.classic import ClassicGroup
from quorate.coordinator.group_records import GroupMetadataValue
from quorate.coordinator.subscriptions import topics_of
from quorate.protocol.errors import ErrorCode


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called: what something costs, however busy the machine is."""
    number = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal number
        number += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return number


def group_of(groups: Groups, size: int, group_id: str = GROUP) -> list[Consumer]:
    members = [groups.consumer(f"m{number}", group_id=group_id, join_version=3) for number in range(size)]
    for member in members:
        member.joins()
    groups.passes(6_000)
    members[0].syncs(dict.fromkeys(members, b"x"))
    for member in members[1:]:
        assert member.syncs().code is OK
    return members


def test_a_heartbeat_costs_the_same_in_a_group_of_500() -> None:
    small, large = Groups(), Groups()
    (one,) = group_of(small, 1)
    many = group_of(large, 500)
    few = calls_of(lambda: [one.beats() for _ in range(500)])
    more = calls_of(lambda: [member.beats() for member in many])
    assert more <= few * 1.05


def test_a_heartbeat_costs_the_same_with_1000_groups() -> None:
    small, large = Groups(), Groups()
    (one,) = group_of(small, 1)
    for number in range(1_000):
        large.consumer("c", group_id=f"group-{number}", join_version=3).joins()
    (other,) = group_of(large, 1)
    few = calls_of(lambda: [one.beats() for _ in range(300)])
    more = calls_of(lambda: [other.beats() for _ in range(300)])
    assert more <= few * 1.05


def test_a_group_of_500_loses_one_and_goes_on() -> None:
    groups = Groups()
    members = group_of(groups, 500)
    members[7].leaves()
    left = [member for member in members if member is not members[7]]
    for member in left:
        assert member.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        member.joins()
    assert {member.generation for member in left} == {2}
    assert len(members[0].members) == 499


@given(st.binary(max_size=60))
def test_what_members_say_about_themselves_may_be_anything(metadata: bytes) -> None:
    groups = Groups()
    (a,) = groups.started("a", protocols=[("range", metadata)])
    a.commits(1)
    groups.deletes_offsets("t", [0])
    assert a.beats() is OK
    topics_of([metadata])
    groups.fails_over()
    assert a.beats() is OK


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.binary(max_size=3)), max_size=5))
def test_protocols_may_be_named_twice(protocols: list[tuple[str, bytes]]) -> None:
    groups = Groups()
    a, b = groups.consumer("a", protocols=protocols), groups.consumer("b", protocols=protocols[::-1])
    first, second = a.joins(), b.joins()
    groups.passes(6_000)
    if not protocols:
        assert {first.code, second.code} == {ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    else:
        assert (first.code, second.code) == (OK, OK)
        b.protocols = protocols
        b.joins()
        a.leaves()


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1, 2**31 - 1])
def test_any_rebalance_time_out(timeout_ms: int) -> None:
    groups = Groups()
    a = groups.consumer("a", rebalance_ms=timeout_ms)
    a.joins()
    groups.passes(3_000)
    assert a.generation == 1


def test_the_last_generation_there_is() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer", generation=2**31 - 1, protocol=None, leader=None, members=[]
    )
    group = ClassicGroup.load("g", value)
    group.state = group.state.PREPARING
    group.begin_generation(0)
    assert group.generation == 0


def test_a_stored_group_of_an_old_broker() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="somebody who is gone",
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id="m",
                client_id="c",
                client_host="/c",
                session_timeout=10_000,
                subscription=b"",
                assignment=b"a",
            )
        ],
    )
    group = ClassicGroup.load("g", value)
    assert (group.members["m"].rebalance_timeout_ms, group.leader) == (10_000, "m")
    assert (group.state, group.topics) == (group.state.STABLE, None)


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_names_may_be_anything(group_id: str, client_id: str, instance_id: str) -> None:
    groups = Groups()
    a = groups.consumer(client_id, group_id=group_id, instance_id=instance_id)
    joined = a.joins()
    groups.passes(3_000)
    assert joined.code is (OK if group_id else ErrorCode.INVALID_GROUP_ID)
