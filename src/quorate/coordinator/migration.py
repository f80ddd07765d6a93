"""How a group goes over from one protocol to the other while it is at work.

| what happens                                                | what comes of it                             |
|-------------------------------------------------------------|----------------------------------------------|
| a member of the consumer protocol joins an empty classic    | the group is replaced; its offsets stay      |
| one joins a classic group of consumers                      | it is *upgraded*: its members are members of |
|                                                             | a consumer group, and still speak classic    |
| a classic member joins an empty consumer group              | the group is replaced; its offsets stay      |
| a classic member joins a consumer group with members        | it is one of them: see `classic_in_consumer` |
| the last member of the consumer protocol goes, or is        | it is *downgraded*, if classic members are   |
| replaced by a classic one                                   | left: a classic group, which rebalances      |

`group.consumer.migration.policy` allows both (`bidirectional`), one (`upgrade`, `downgrade`) or none
(`disabled`).

In an upgrade the generation becomes the epoch. What members wait for is answered with REBALANCE_IN_PROGRESS,
so that they join anew. What the members have is taken from their assignments, which must be readable and
without data of an assignor's own: such a group cannot be assigned by anybody else. In a downgrade the epoch
becomes the generation, and members have what was their target.

A conversion is one batch of the log, with the tombstones of the old group and the records of the new. The
shard puts the new group in the place of the old before these are applied, and the old one back if they are
refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from quorate.coordinator import consumer_records as records
from quorate.coordinator.classic import Cause, ClassicGroup, State, Trigger
from quorate.coordinator.classic_members import Member as ClassicGroupMember
from quorate.coordinator.classic_rebalance import prepare, release_all
from quorate.coordinator.consumer_events import GroupConverted
from quorate.coordinator.consumer_group import ConsumerGroup, Surroundings
from quorate.coordinator.consumer_members import ClassicMember, Member
from quorate.coordinator.consumer_payloads import (
    assignment_bytes,
    partitions_by_id,
    read_assignment,
    read_subscription,
    version_of,
)
from quorate.coordinator.consumer_rules import ConsumerRules
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.effects import LogRecord
from quorate.coordinator.group_records import GroupMetadataKey
from quorate.coordinator.step import Step
from quorate.coordinator.subscriptions import CONSUMER
from quorate.coordinator.topics_view import metadata_hash
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["downgrade", "group_tombstones", "may_downgrade", "release", "upgraded"]


class _CustomAssignorError(Exception):
    """The leader divides by rules of its own: nobody else could go on with that."""


def upgraded(
    classic: ClassicGroup | None, group_id: str, member_epoch: int, around: Surroundings, step: Step
) -> tuple[ConsumerGroup, list[LogRecord]]:
    """The consumer group that a heartbeat belongs to where there was none, and the records that make it.

    The records are applied to it already; applying them again changes nothing. Raises GROUP_ID_NOT_FOUND.
    """
    if member_epoch != 0:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, _not_found(classic, group_id, member_epoch))
    group = ConsumerGroup(group_id)
    if classic is None:
        return group, []
    written = [LogRecord(GroupMetadataKey(group=group_id), None)]
    if classic.state is State.EMPTY:
        return group, written
    _check_upgrade(classic, around.rules)
    for record in _converted(classic, around):
        group.apply(record)
        written.append(record)
    for member in group.state.members.values():
        group.keep_alive(member, around.rules, step)
    return group, written


def _not_found(classic: ClassicGroup | None, group_id: str, member_epoch: int) -> str:
    if classic is not None:
        return f"Group {group_id} is not a consumer group."
    return f"Group {group_id} not found." if member_epoch < 0 else f"Consumer group {group_id} not found."


def release(classic: ClassicGroup, member_id: str, step: Step) -> None:
    """The classic group is no more: whoever waits in it must join the consumer group."""
    release_all(classic, ErrorCode.REBALANCE_IN_PROGRESS, step)
    classic.cancel_timers(step)
    step.tell(GroupConverted(classic.group_id, CONSUMER, classic.generation, len(classic.members), member_id))


def _check_upgrade(classic: ClassicGroup, rules: ConsumerRules) -> None:
    why = None
    if not rules.may_upgrade:
        why = "online upgrade is disabled"
    elif not classic.is_consumer:
        why = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > rules.max_size:
        why = "the group size exceeds the consumer group maximum size"
    if why is not None:
        raise _cannot_upgrade(classic, why)


def _cannot_upgrade(classic: ClassicGroup, why: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}.",
    )


def _converted(classic: ClassicGroup, around: Surroundings) -> list[LogRecord]:
    group_id, epoch = classic.group_id, classic.generation
    try:
        members = [_from_classic(classic, member, around) for member in classic.members]
    except ValueError as error:
        raise _cannot_upgrade(classic, f"the embedded consumer protocol is malformed: {error}") from error
    except _CustomAssignorError:
        raise _cannot_upgrade(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a"
            " default assignor before re-attempting the upgrade",
        ) from None
    wanted = frozenset[str]().union(*(member.topic_names for member in members))
    return [
        *(records.member_metadata(group_id, member) for member in members),
        records.group_epoch(group_id, epoch, metadata_hash(wanted, around.topics)),
        *(
            records.target_assignment(
                group_id,
                member.member_id,
                {topic_id: frozenset(held) for topic_id, held in member.assigned.items()},
            )
            for member in members
        ),
        # Without a time, so that the next target need not wait.
        records.target_epoch(group_id, epoch, 0),
        *(records.current_assignment(group_id, member) for member in members),
    ]


def _from_classic(classic: ClassicGroup, member: ClassicGroupMember, around: Surroundings) -> Member:
    """Raises ValueError if what the member says, or has, cannot be read; `_CustomAssignorError` if what it
    has carries data of an assignor's own."""
    protocol = classic.protocol or classic.members.choose_protocol()
    subscription = read_subscription(member.metadata(protocol))
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _CustomAssignorError
    epoch = classic.generation
    assigned = partitions_by_id(assignment.assigned_partitions, around.topics)
    return Member(
        member_id=member.member_id,
        epoch=epoch,
        previous_epoch=epoch,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        classic=ClassicMember(member.session_timeout_ms, tuple(member.protocols)),
        assigned={topic_id: dict.fromkeys(held, epoch) for topic_id, held in assigned.items()},
    )


# Back


def may_downgrade(
    state: ConsumerGroupState, going: Collection[Member], rules: ConsumerRules, *, staying: int = 0
) -> bool:
    """Whether only classic members are left when these go. `staying` come in their place."""
    left = len(state.members) - len(going)
    classic_left = state.classic_count - sum(member.classic is not None for member in going)
    is_mixed = any(member.classic is None for member in going)
    return (
        is_mixed
        and 0 < left + staying <= rules.classic_max_size
        and classic_left == left
        and rules.may_downgrade
    )


def downgrade(
    group: ConsumerGroup,
    going: Sequence[Member],
    around: Surroundings,
    step: Step,
    joining: Member | None = None,
) -> ClassicGroup:
    """Makes a classic group of those who stay, and of one who takes a static member's place, if any.

    The group rebalances because members went. If one was only replaced, it is up to the caller.
    """
    state = group.state
    classic = ClassicGroup(state.group_id, step.wall_ms)
    classic.generation = state.epoch
    classic.protocol_type = CONSUMER
    gone = {member.member_id for member in going}
    staying = [member for member in state.members.values() if member.member_id not in gone]
    if joining is not None:
        staying.append(joining)
    for member in staying:
        classic.members.add(_to_classic(member))
    classic.protocol = classic.members.choose_protocol()
    classic.state = classic.previous = State.STABLE
    classic.topics = classic.read_topics()
    assignments = {}
    for member in staying:
        version = _version(classic.members[member.member_id].metadata(classic.protocol))
        assignments[member.member_id] = assignment_bytes(state.target_of(member), around.topics, version)
        classic.members[member.member_id].assignment = assignments[member.member_id]
    step.records += group_tombstones(state)
    classic.write(step, assignments)
    for member_id in state.members:
        group.cancel_timers(member_id, step)
    for classic_member in classic.members:
        classic.keep_alive(classic_member, step)
    group.successor = classic
    who = going[0].member_id if going else joining.member_id if joining is not None else ""
    step.tell(GroupConverted(state.group_id, "classic", state.epoch, len(staying), who))
    if joining is None:
        prepare(classic, Cause(Trigger.LEFT), step)
    return classic


def _version(payload: bytes) -> int:
    """Classic members were read when they joined; what another coordinator let in may be anything."""
    try:
        return version_of(payload)
    except ValueError:
        return 0


def _to_classic(member: Member) -> ClassicGroupMember:
    assert member.classic is not None, "only classic members are left"
    return ClassicGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=list(member.classic.protocols),
    )


def group_tombstones(state: ConsumerGroupState) -> list[LogRecord]:
    """The records by which a consumer group ends: deleted, or converted."""
    return records.group_tombstones(
        state.group_id, state.members, state.regexes, has_partition_metadata=state.has_partition_metadata
    )
