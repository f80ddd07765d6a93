"""Who leads next: tables of assignments, in-sync replicas and who is alive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.zookeeper.leader_choice import (
    first_leader,
    for_controlled_shutdown,
    for_preferred,
    for_reassignment,
    when_offline,
    without_replica,
)
from quorate.zookeeper.znodes import PartitionAssignment, PartitionState

EPOCH = 9


def state(isr, leader=1):
    return PartitionState(leader, 5, tuple(isr), 3, partition_epoch=8)


def among(*live):
    return lambda one: one in live


@pytest.mark.parametrize(
    ("replicas", "live", "leader", "isr"),
    [
        ((1, 2, 3), (1, 2, 3), 1, (1, 2, 3)),
        ((1, 2, 3), (3, 2), 2, (2, 3)),
        ((1, 2, 3), (), None, None),
    ],
)
def test_the_first_replica_that_is_alive_leads_a_new_partition(replicas, live, leader, isr):
    choice = first_leader(PartitionAssignment(replicas), among(*live), EPOCH)
    if leader is None:
        assert choice is None
    else:
        assert (choice.state.leader, choice.state.isr, choice.state.leader_epoch) == (leader, isr, 0)
        assert choice.recipients == isr


@pytest.mark.parametrize(
    ("isr", "live", "unclean", "leader", "new_isr", "is_recovering"),
    [
        ((1, 2, 3), (2, 3), False, 2, (2, 3), False),
        ((3, 2), (2, 3), False, 2, (3, 2), False),  # in the order of the assignment
        ((3,), (2, 3), False, 3, (3,), False),
        ((1,), (2, 3), False, None, None, None),
        ((1,), (2, 3), True, 2, (2,), True),
        ((1,), (), True, None, None, None),
    ],
)
def test_whoever_is_in_sync_and_alive_leads(isr, live, unclean, leader, new_isr, is_recovering):
    choice = when_offline(
        PartitionAssignment((1, 2, 3)), state(isr), among(*live), EPOCH, allows_unclean=lambda: unclean
    )
    if leader is None:
        assert choice is None
        return
    chosen = choice.state
    assert (chosen.leader, chosen.isr, chosen.is_recovering) == (leader, new_isr, is_recovering)
    assert (chosen.leader_epoch, chosen.controller_epoch, chosen.partition_epoch) == (6, EPOCH, 8)
    assert choice.recipients == live


def test_topics_are_asked_whether_records_may_be_lost_only_when_it_matters():
    def never():
        raise AssertionError("asked")

    found = when_offline(PartitionAssignment((1, 2)), state((1, 2)), among(2), EPOCH, allows_unclean=never)
    assert found.state.leader == 2


@pytest.mark.parametrize(
    ("isr", "live", "leader"), [((1, 2), (1, 2), 1), ((2,), (1, 2), None), ((1, 2), (2,), None)]
)
def test_the_preferred_leader_must_be_alive_and_in_sync(isr, live, leader):
    choice = for_preferred(PartitionAssignment((1, 2)), state(isr, 2), among(*live), EPOCH)
    assert (choice and choice.state.leader) == leader
    if choice:
        assert choice.state.isr == isr


def test_a_reassigned_partition_is_led_by_one_of_its_target():
    moving = PartitionAssignment((4, 5, 1), (4, 5), (1,))
    choice = for_reassignment(moving, state((1, 5)), among(1, 4, 5), EPOCH)
    assert (choice.state.leader, choice.recipients) == (5, (4, 5))
    assert for_reassignment(moving, state((1,)), among(1, 4, 5), EPOCH) is None


@pytest.mark.parametrize(
    ("isr", "leaving", "leader", "new_isr"),
    [
        ((1, 2, 3), (1,), 2, (2, 3)),
        ((1, 3), (1,), 3, (3,)),
        ((1, 2, 3), (1, 2), 3, (3,)),
        ((1,), (1,), None, ()),
    ],
)
def test_whoever_goes_hands_over(isr, leaving, leader, new_isr):
    choice = for_controlled_shutdown(
        PartitionAssignment((1, 2, 3)), state(isr), among(1, 2, 3), among(*leaving), EPOCH
    )
    assert (choice and choice.state.leader) == leader
    if choice:
        assert choice.state.isr == new_isr
        assert choice.recipients == (1, 2, 3)


@pytest.mark.parametrize(
    ("isr", "leader", "gone", "expected"),
    [
        ((1, 2), 1, 2, (1, (1,))),
        ((1, 2), 1, 1, (-1, (2,))),
        ((1,), 1, 1, (-1, (1,))),  # the last one stays: it alone may have everything
        ((1,), -1, 1, None),
        ((1, 2), 1, 3, None),
    ],
)
def test_a_replica_that_is_gone_is_not_in_sync(isr, leader, gone, expected):
    found = without_replica(state(isr, leader), gone, EPOCH)
    assert (found and (found.leader, found.isr)) == expected
    if found:
        assert found.leader_epoch == 6


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5, unique=True),
    st.sets(st.integers(1, 6)),
    st.sets(st.integers(1, 6)),
)
def test_a_leader_is_alive_and_in_sync_and_the_isr_never_grows(replicas, in_sync, live):
    isr = tuple(one for one in replicas if one in in_sync)
    choice = when_offline(
        PartitionAssignment(tuple(replicas)), state(isr), among(*live), EPOCH, allows_unclean=lambda: False
    )
    if choice is None:
        assert not live & set(isr)
    else:
        assert choice.state.leader in live & set(isr)
        assert set(choice.state.isr) == live & set(isr)
