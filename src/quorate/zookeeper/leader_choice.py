"""Who leads next. Pure: assignments and states go in, states come out; None where nobody can be chosen.

A leader is taken from the in-sync replicas, in the order of the assignment. Every choice begins a new leader
epoch. Who must be told of it is part of the choice: a replica that stays where it is has to follow another
leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from quorate.zookeeper.znodes import PartitionAssignment, PartitionState

__all__ = [
    "Choice",
    "first_leader",
    "for_controlled_shutdown",
    "for_preferred",
    "for_reassignment",
    "when_offline",
    "without_replica",
]

NO_LEADER: Final = -1

Test = Callable[[int], bool]


class Choice(NamedTuple):
    """A state to write, and the brokers that are told what to do."""

    state: PartitionState
    recipients: tuple[int, ...]


def first_leader(assignment: PartitionAssignment, is_online: Test, controller_epoch: int) -> Choice | None:
    """Of a new partition: the first replica that is alive leads, and all that are alive are in sync."""
    alive = tuple(one for one in assignment.replicas if is_online(one))
    if not alive:
        return None
    return Choice(PartitionState(alive[0], 0, alive, controller_epoch), alive)


def when_offline(
    assignment: PartitionAssignment,
    state: PartitionState,
    is_online: Test,
    controller_epoch: int,
    *,
    allows_unclean: Callable[[], bool],
) -> Choice | None:
    """Whoever is in sync and alive; or, where the topic allows that records are lost, whoever is alive."""
    alive = tuple(one for one in assignment.replicas if is_online(one))
    leader = next((one for one in alive if one in state.isr), NO_LEADER)
    if leader != NO_LEADER:
        isr = tuple(one for one in state.isr if is_online(one))
        return Choice(_next(state, leader, isr, controller_epoch), alive)
    if not alive or not allows_unclean():
        return None
    changed = _next(state, alive[0], alive[:1], controller_epoch)
    return Choice(changed._replace(is_recovering=True), alive)


def for_preferred(
    assignment: PartitionAssignment, state: PartitionState, is_online: Test, controller_epoch: int
) -> Choice | None:
    """The first replica, if it is alive and in sync."""
    first = assignment.replicas[0]
    if not is_online(first) or first not in state.isr:
        return None
    return Choice(_next(state, first, state.isr, controller_epoch), assignment.replicas)


def for_reassignment(
    assignment: PartitionAssignment, state: PartitionState, is_online: Test, controller_epoch: int
) -> Choice | None:
    """The first of the target that is alive and in sync."""
    target = assignment.target
    leader = next((one for one in target if is_online(one) and one in state.isr), NO_LEADER)
    if leader == NO_LEADER:
        return None
    return Choice(_next(state, leader, state.isr, controller_epoch), target)


def for_controlled_shutdown(
    assignment: PartitionAssignment,
    state: PartitionState,
    is_reachable: Test,
    is_shutting_down: Test,
    controller_epoch: int,
) -> Choice | None:
    """Whoever is in sync and stays; those that go leave the in-sync replicas as well."""
    reachable = tuple(one for one in assignment.replicas if is_reachable(one))
    leader = next((one for one in reachable if one in state.isr and not is_shutting_down(one)), NO_LEADER)
    if leader == NO_LEADER:
        return None
    isr = tuple(one for one in state.isr if not is_shutting_down(one))
    return Choice(_next(state, leader, isr, controller_epoch), reachable)


def without_replica(state: PartitionState, broker_id: int, controller_epoch: int) -> PartitionState | None:
    """The in-sync replicas without one that is gone. The last one is never taken out: it alone may have
    everything. None if nothing changes."""
    if broker_id not in state.isr:
        return None
    isr = state.isr if len(state.isr) == 1 else tuple(one for one in state.isr if one != broker_id)
    leader = NO_LEADER if state.leader == broker_id else state.leader
    if isr == state.isr and leader == state.leader:
        return None
    return _next(state, leader, isr, controller_epoch)


def _next(state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int) -> PartitionState:
    return state._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
    )
