"""What a heartbeat to a classic group is answered, in every state."""

import pytest
from group_story import OK, Consumer, Groups

from quorate.coordinator.refusals import refuse
from quorate.protocol.api.groups import HeartbeatRequest
from quorate.protocol.errors import ErrorCode

FENCED, ILLEGAL = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION
UNKNOWN, REBALANCING = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS


def in_state(state: str) -> Consumer:
    """A member of a group in a state, or one that was."""
    groups = Groups()
    member = groups.consumer("a", instance_id="i")
    member.joins()
    groups.passes(3_000)
    if state != "CompletingRebalance":
        member.syncs({member: b""})
    if state == "PreparingRebalance":
        groups.consumer("b").joins()
    if state == "Empty":
        member.leaves()
    assert groups.state == state
    return member


@pytest.mark.parametrize(
    ("state", "ok", "wrong_generation", "unknown", "fenced"),
    [
        ("Empty", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        ("PreparingRebalance", REBALANCING, ILLEGAL, UNKNOWN, FENCED),
        ("CompletingRebalance", OK, ILLEGAL, UNKNOWN, FENCED),
        ("Stable", OK, ILLEGAL, UNKNOWN, FENCED),
    ],
)
def test_every_state(
    state: str, ok: ErrorCode, wrong_generation: ErrorCode, unknown: ErrorCode, fenced: ErrorCode
) -> None:
    member = in_state(state)
    assert member.beats() is ok
    assert member.beats(generation_id=7) is wrong_generation
    assert member.beats(member_id="x", group_instance_id=None) is unknown
    assert member.beats(member_id="x") is fenced


def test_no_group() -> None:
    groups = Groups()
    assert groups.consumer("a", member_id="x").beats() is UNKNOWN
    assert groups.consumer("a", group_id="").beats() is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_no_coordinator(code: ErrorCode) -> None:
    assert refuse(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, code).error_code == code


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_each_is_a_sign_of_life(state: str) -> None:
    member = in_state(state)
    for _ in range(3):
        member.groups.passes(9_000)
        assert member.beats() in {OK, REBALANCING}


def test_one_that_is_refused_is_not() -> None:
    member = in_state("Stable")
    member.groups.passes(9_000)
    assert member.beats(generation_id=7) is ILLEGAL
    member.groups.passes(1_000)
    assert member.beats() is UNKNOWN
