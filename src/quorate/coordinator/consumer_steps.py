"""What a member's words lead to: another epoch of the group, another target, and a step of the member."""

from __future__ import annotations

from collections.abc import Callable

from quorate.coordinator import consumer_records as records
from quorate.coordinator.consumer_admission import Admitted
from quorate.coordinator.consumer_events import TargetComputed
from quorate.coordinator.consumer_expressions import note_expression
from quorate.coordinator.consumer_group import (
    TOPICS_CHANGED,
    ConsumerGroup,
    Surroundings,
    next_epoch,
)
from quorate.coordinator.consumer_members import Member, Partitions
from quorate.coordinator.consumer_reconciliation import Reconciliation, reconcile
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.consumer_target import TargetAssignment, compute_target, subscribed_ids
from quorate.coordinator.effects import Caller, LogRecord
from quorate.coordinator.events import MemberFenced
from quorate.coordinator.step import Step
from quorate.coordinator.topics_view import metadata_hash
from quorate.protocol.types import Uuid

__all__ = ["may_assign", "take_steps"]


def take_steps(
    group: ConsumerGroup,
    admitted: Admitted,
    says: Member,
    owned: Partitions | None,
    caller: Caller,
    around: Surroundings,
    step: Step,
) -> tuple[list[LogRecord], Member]:
    """What a member's words lead to, of either protocol: the records, and the member afterwards.

    In this order: the member is noted; the group's epoch goes up if there is a reason; the target is computed
    if it is behind the group; the member takes a step towards it.
    """
    state = group.state
    regex = note_expression(group, admitted.member, says, caller, around, step)
    written = _replacing(group, admitted, caller, step)
    if says is not admitted.member and says != admitted.member:
        written.append(records.member_metadata(state.group_id, says))
    names_changed = (
        says.topic_names is not admitted.member.topic_names
        and says.topic_names != admitted.member.topic_names
    )
    written += regex.records
    before = state.members.get((admitted.replaces or admitted.member).member_id)
    trigger = _trigger(state, admitted, names_changed=names_changed, regex_matters=regex.matters)
    epoch = state.epoch
    if trigger is not None or group.wants_refresh:
        wanted = state.subscribed_topics(without=[] if before is None else [before], plus=says)
        found_hash = metadata_hash(wanted, around.topics)
        whose: Member | None = says
        if trigger is None and found_hash != state.metadata_hash:
            trigger, whose = TOPICS_CHANGED, None  # this member is only the first to be heard since
        if trigger is not None:
            epoch += 1
            written.append(next_epoch(group, found_hash, trigger, whose, step))
        group.refreshed(epoch)
        if state.has_partition_metadata:
            written.append(records.partition_metadata_tombstone(state.group_id))
    target = _target(group, before, says, epoch, around, step)
    written += target.records
    after = _towards(group, target, admitted, says, owned, names_changed or regex.changed, around)
    if after is not says:
        written.append(records.current_assignment(state.group_id, after))
        group.time_revocation(after, step)
    if written:
        group.rebalances.stepped(state, before, after, step, epoch=epoch, target_epoch=target.epoch)
    return written, after


def _towards(
    group: ConsumerGroup,
    target: TargetAssignment,
    admitted: Admitted,
    says: Member,
    owned: Partitions | None,
    subscription_changed: bool,
    around: Surroundings,
) -> Member:
    """The member a step nearer to its target; the same object if there is none to take."""
    state = group.state
    if says.is_reconciled_to(target.epoch) and not subscription_changed:
        return says  # nearly every heartbeat: there is nothing to look up
    return reconcile(
        says,
        Reconciliation(
            target_epoch=target.epoch,
            target=target.of_member,
            subscribed=subscribed_ids(state, says, around.topics),
            owner_of=_owners(state, admitted),
            owned=owned,
            subscription_changed=subscription_changed,
        ),
    )


def _trigger(
    state: ConsumerGroupState, admitted: Admitted, *, names_changed: bool, regex_matters: bool
) -> str | None:
    """Why the group's epoch has to go up, as far as the member is the reason."""
    if names_changed or regex_matters:
        is_new = admitted.replaces is None and admitted.member.member_id not in state.members
        return "a member joined" if is_new else "a member changed its subscription"
    return None


def _replacing(group: ConsumerGroup, admitted: Admitted, caller: Caller, step: Step) -> list[LogRecord]:
    """The records by which a member takes the place of a static one, which is fenced by it."""
    replaced, member, group_id = admitted.replaces, admitted.member, group.state.group_id
    if replaced is None:
        return []
    group.cancel_timers(replaced.member_id, step)
    step.tell(
        MemberFenced(
            group_id=group_id,
            generation=group.state.epoch,
            instance_id=replaced.instance_id or "",
            fenced_member_id=replaced.member_id,
            member_id=member.member_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
        )
    )
    return [
        *records.member_tombstones(group_id, replaced.member_id),
        records.member_metadata(group_id, member),
        records.target_assignment(group_id, member.member_id, group.state.target_of(replaced)),
        records.current_assignment(group_id, member),
    ]


def _target(
    group: ConsumerGroup,
    before: Member | None,
    says: Member,
    epoch: int,
    around: Surroundings,
    step: Step,
) -> TargetAssignment:
    """The target that holds now: a new one if the group has moved on and the last is old enough."""
    state, rules = group.state, around.rules
    if epoch <= state.target_epoch or not may_assign(state, rules.assignment_interval_ms, step.wall_ms):
        return TargetAssignment(state.target_epoch, state.target_of(says), [])
    assignor = state.preferred_assignor(rules.assignors[0], without=before, plus=says)
    if assignor not in rules.assignors:
        assignor = rules.assignors[0]  # it was configured away while a member still asks for it
    target = compute_target(state, says, around.topics, epoch=epoch, assignor=assignor, wall_ms=step.wall_ms)
    members = len(state.members) + (before is None)
    step.tell(TargetComputed(state.group_id, epoch, assignor, members, len(target.records) - 1))
    return target


def may_assign(state: ConsumerGroupState, interval_ms: int, wall_ms: int) -> bool:
    """Targets do not follow each other too fast. A clock that was set back must not hold them up."""
    since_ms = wall_ms - state.target_wall_ms
    return not state.target_wall_ms or not 0 <= since_ms < interval_ms


def _owners(state: ConsumerGroupState, admitted: Admitted) -> Callable[[Uuid, int], str | None]:
    """Who holds what; a member that takes another's place holds what that one held."""
    if admitted.replaces is None:
        return state.owner_of
    old, new = admitted.replaces.member_id, admitted.member.member_id

    def owner_of(topic_id: Uuid, partition: int) -> str | None:
        owner = state.owner_of(topic_id, partition)
        return new if owner == old else owner

    return owner_of
