"""One step of a member towards its target: every state, and what it depends on."""

from __future__ import annotations

import pytest

from quorate.coordinator.consumer_members import Member, MemberState, Partitions
from quorate.coordinator.consumer_reconciliation import STEPS, Reconciliation, reconcile
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

T, U = Uuid(bytes(15) + b"\1"), Uuid(bytes(15) + b"\2")
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def held(*partitions: int, epoch: int = 1) -> dict[Uuid, dict[int, int]]:
    return {T: dict.fromkeys(partitions, epoch)} if partitions else {}


def member(state: MemberState, *assigned: int, pending: tuple[int, ...] = (), epoch: int = 1) -> Member:
    return Member(
        member_id="m",
        epoch=epoch,
        previous_epoch=epoch,
        state=state,
        assigned=held(*assigned),
        pending_revocation=held(*pending),
    )


def step(
    target: set[int],
    owned: set[int] | None = None,
    others: tuple[int, ...] = (),
    own: tuple[int, ...] = (),
    epoch: int = 2,
    subscribed: tuple[Uuid, ...] = (T,),
    changed: bool = False,
) -> Reconciliation:
    owners = dict.fromkeys(others, "other") | dict.fromkeys(own, "m")
    wanted: Partitions = {T: frozenset(target)} if target else {}
    said: Partitions | None = None if owned is None else ({T: frozenset(owned)} if owned else {})
    return Reconciliation(
        target_epoch=epoch,
        target=wanted,
        subscribed=frozenset(subscribed),
        owner_of=lambda _topic_id, partition: owners.get(partition),
        owned=said,
        subscription_changed=changed,
    )


def seen(after: Member) -> tuple[int, MemberState, set[int], set[int]]:
    return after.epoch, after.state, set(after.assigned.get(T, ())), set(after.pending_revocation.get(T, ()))


@pytest.mark.parametrize(
    ("before", "asked", "expected"),
    [
        # Stable, and the target is another
        (member(STABLE, 1, 2), step({1, 2}), (2, STABLE, {1, 2}, set())),
        (member(STABLE, 1, 2), step({1, 2, 3}), (2, STABLE, {1, 2, 3}, set())),
        (member(STABLE, 1, 2), step({2, 3}, others=(3,)), (1, UNREVOKED, {2}, {1})),
        (member(STABLE, 1, 2), step({2, 3}, owned={2}), (2, STABLE, {2, 3}, set())),
        (member(STABLE, 1, 2), step({2, 3}, owned={2}, others=(3,)), (2, UNRELEASED, {2}, set())),
        (member(STABLE, 1), step({1, 2, 3}, others=(3,)), (2, UNRELEASED, {1, 2}, set())),
        (member(STABLE, 1), step({1, 2}, others=(2,)), (2, UNRELEASED, {1}, set())),
        (member(STABLE), step(set()), (2, STABLE, set(), set())),
        # Unrevoked
        (member(UNREVOKED, 2, pending=(1,)), step({2, 3}), (1, UNREVOKED, {2}, {1})),
        (member(UNREVOKED, 2, pending=(1,)), step({2, 3}, owned={1, 2}), (1, UNREVOKED, {2}, {1})),
        (member(UNREVOKED, 2, pending=(1,)), step({2, 3}, owned={2}, own=(1,)), (2, STABLE, {2, 3}, set())),
        (member(UNREVOKED, 2, pending=(1,)), step({2}, owned=set(), own=(1,)), (2, STABLE, {2}, set())),
        # What it was giving back is its own again in a newer target
        (
            member(UNREVOKED, 2, pending=(1,)),
            step({1, 2}, owned={2}, own=(1,), epoch=3),
            (3, STABLE, {1, 2}, set()),
        ),
        # It gave back what was asked, and a newer target asks for more
        (
            member(UNREVOKED, 2, pending=(1,)),
            step({3}, owned={2}, own=(1,), epoch=3),
            (1, UNREVOKED, set(), {2}),
        ),
        # Unreleased
        (member(UNRELEASED, 1, epoch=2), step({1, 2}, others=(2,)), (2, UNRELEASED, {1}, set())),
        (member(UNRELEASED, 1, epoch=2), step({1, 2}), (2, STABLE, {1, 2}, set())),
        (member(UNRELEASED, 1, epoch=2), step({1, 2, 3}, others=(3,)), (2, UNRELEASED, {1, 2}, set())),
        (member(UNRELEASED, 1, epoch=2), step({2}, others=(2,), epoch=3), (2, UNREVOKED, set(), {1})),
        # It no longer subscribes
        (
            member(STABLE, 1, 2),
            step({1, 2}, epoch=1, subscribed=(U,), changed=True),
            (1, UNREVOKED, set(), {1, 2}),
        ),
        (
            member(STABLE, 1),
            step({1}, owned=set(), epoch=1, subscribed=(), changed=True),
            (1, STABLE, set(), set()),
        ),
        (member(STABLE, 1), step({1}, epoch=1, changed=True), (1, STABLE, {1}, set())),
        (member(STABLE, 1), step({1}, epoch=2, subscribed=()), (1, UNREVOKED, set(), {1})),
        (
            member(UNREVOKED, 2, pending=(1,)),
            step({2}, owned={1, 2}, subscribed=(), changed=True),
            (1, UNREVOKED, set(), {1, 2}),
        ),
    ],
)
def test_a_step(
    before: Member, asked: Reconciliation, expected: tuple[int, MemberState, set[int], set[int]]
) -> None:
    assert seen(reconcile(before, asked)) == expected


def test_whoever_has_come_round_is_left_alone() -> None:
    before = member(STABLE, 1, epoch=2)
    assert reconcile(before, step({1, 2})) is before


def test_a_step_that_changes_nothing_is_none() -> None:
    before = member(UNRELEASED, 1, epoch=2)
    assert reconcile(before, step({1, 2}, others=(2,))) is before


def test_what_is_new_is_known_by_its_epoch() -> None:
    after = reconcile(member(STABLE, 1), step({1, 2}))
    assert after.assigned == {T: {1: 1, 2: 2}}
    assert after.previous_epoch == 1


def test_a_state_of_the_future_has_to_begin_again() -> None:
    before = member(MemberState(99), 1)
    assert before.state is MemberState.UNKNOWN
    with pytest.raises(ApiError) as refused:
        reconcile(before, step({1}))
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert seen(reconcile(before, step({1}, owned=set()))) == (2, STABLE, {1}, set())


def test_every_state_has_its_step() -> None:
    assert set(STEPS) == set(MemberState)
