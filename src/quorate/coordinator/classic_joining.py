"""JoinGroup to a classic group: who may join, and what comes of it.

| who asks                                | what comes of it                                               |
|-----------------------------------------|----------------------------------------------------------------|
| no id, from v4 on                       | is given an id, and has to come again with it                  |
| no id, before v4                        | is a member under a new id                                     |
| no id, an instance id that nobody has   | is a member under a new id                                     |
| no id, an instance id that is known     | takes the place of the one before, whose id is fenced          |
| an id that was given out                | is a member                                                    |
| a member, while the group prepares      | waits with the others                                          |
| a member, while the leader works        | is told again; if it wants something else the group rebalances |
| a follower of a stable group            | the same                                                       |
| the leader of a stable group            | the group rebalances: it may have seen topics change           |

A new member waits for at most `new_member_join_timeout_ms`. It cannot send heartbeats, since it does not know
its id, and its connection says nothing while a request waits; so a client that went away and came back would
otherwise leave a dead member behind each time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from quorate.coordinator.classic import Cause, ClassicGroup, State, Trigger
from quorate.coordinator.classic_answers import join_refused, joined
from quorate.coordinator.classic_members import (
    MEMBER_BYTES,
    NAME_BYTES,
    NOBODY,
    Member,
    Protocols,
    Waiting,
)
from quorate.coordinator.classic_rebalance import (
    complete_if_all_joined,
    prepare,
    prepare_or_complete,
    remove,
    send_away,
)
from quorate.coordinator.effects import Caller, Ticket
from quorate.coordinator.events import MemberFenced, MemberRefused
from quorate.coordinator.step import REASON_MAX, Step
from quorate.protocol.api.groups import JoinGroupRequest
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["Joiner", "join"]

_PREFIX_MAX: Final = 255  # characters of the client's id, or the instance id, that a member id begins with
_SKIPS_ASSIGNMENT: Final = 9
_NEEDS_KNOWN_ID: Final = 4


class Joiner(NamedTuple):
    """One request to join, with all that is known of who asks. `new_id` is new in the world, for one that has
    none."""

    ticket: Ticket
    request: JoinGroupRequest
    caller: Caller
    new_id: str

    @property
    def protocols(self) -> Protocols:
        return [(protocol.name, bytes(protocol.metadata)) for protocol in self.request.protocols]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The first version did not know two time-outs."""
        if self.caller.version == 0:
            return self.request.session_timeout_ms
        return max(self.request.rebalance_timeout_ms, 0)

    @property
    def reason(self) -> str:
        return (self.request.reason or "")[:REASON_MAX]

    @property
    def waiting(self) -> Waiting:
        return Waiting(self.ticket, self.caller.version)

    @property
    def new_member_id(self) -> str:
        return f"{(self.request.group_instance_id or self.caller.client_id)[:_PREFIX_MAX]}-{self.new_id}"

    def member(self, member_id: str) -> Member:
        return Member(
            member_id=member_id,
            instance_id=self.request.group_instance_id,
            client_id=self.caller.client_id,
            client_host=self.caller.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            protocols=self.protocols,
        )


def join(group: ClassicGroup, joiner: Joiner, step: Step) -> None:
    """Answers, or lets the request wait. What the request alone shows to be wrong has been refused before."""
    request = joiner.request
    try:
        _check_size(group, joiner, step)
        _check_protocols(group, joiner, step)
        if request.member_id == NOBODY:
            _join_new(group, joiner, step)
        else:
            _join_known(group, joiner, step)
    except ApiError as error:
        _tell_refusal(group, joiner, error, step)
        # Whoever is turned away for good has no id any more.
        member_id = NOBODY if error.code is ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
        step.answer(joiner.ticket, join_refused(joiner.caller.version, error.code, member_id))


# Who may


def _check_size(group: ClassicGroup, joiner: Joiner, step: Step) -> None:
    """Who waits already, or is a member while nobody has to wait, has its place.

    While the group prepares only those count who are there: if it has become too large (because the limit was
    lowered), whoever comes back last is put out.
    """
    members, limit = group.members, step.settings.group_max_size
    member = members.get(joiner.request.member_id)
    if group.state is State.PREPARING:
        fits = members.joining < limit or (member is not None and member.joining is not None)
    elif group.state is State.COMPLETING or group.state is State.STABLE:
        fits = member is not None or len(members) < limit
    else:
        fits = True
    if fits:
        return
    members.pending.pop(joiner.request.member_id, None)
    step.cancel_timer(group.session(joiner.request.member_id))
    if member is not None:
        remove(group, member, Trigger.OVERSIZED, step)
    complete_if_all_joined(group, step)
    raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {limit} members, as many as it may")


def _check_protocols(group: ClassicGroup, joiner: Joiner, step: Step) -> None:
    request = joiner.request
    names, size_bytes = [], 0
    for protocol in request.protocols:
        names.append(protocol.name)
        size_bytes += NAME_BYTES + len(protocol.name) + len(protocol.metadata)
    if not group.speaks(request.protocol_type, names):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"protocol type {request.protocol_type!r} with {names} has nothing in common with the group",
        )
    if size_bytes > step.settings.member_metadata_max_bytes:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{size_bytes} bytes of metadata are too many")
    client_id, instance_id = joiner.caller.client_id, request.group_instance_id or ""
    _check_room(group, joiner, MEMBER_BYTES + len(client_id) + len(instance_id) + size_bytes, step)


def _check_room(group: ClassicGroup, joiner: Joiner, said_bytes: int, step: Step) -> None:
    """Whether the coordinator can remember what all members say, with this one. A member may always say what
    it has said before, or less."""
    members, limit_bytes = group.members, step.settings.group_metadata_max_bytes
    if members.said_bytes + said_bytes <= limit_bytes:
        return
    member_id, instance_id = joiner.request.member_id, joiner.request.group_instance_id
    if member_id == NOBODY and instance_id is not None:
        known = members.get(members.by_instance.get(instance_id, NOBODY))
    else:
        known = members.get(member_id)
    more_bytes = said_bytes if known is None else said_bytes - known.said_bytes
    if more_bytes <= 0 or members.said_bytes + more_bytes <= limit_bytes:
        return
    reason = f"the members say {members.said_bytes} bytes about themselves, and may not say {more_bytes} more"
    if known is not None:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, reason)
    if member_id in members.pending:
        del members.pending[member_id]
        step.cancel_timer(group.session(member_id))
        complete_if_all_joined(group, step)
    raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)


# Those without an id


def _join_new(group: ClassicGroup, joiner: Joiner, step: Step) -> None:
    instance_id = joiner.request.group_instance_id
    if instance_id is not None:
        old_id = group.members.by_instance.get(instance_id)
        if old_id is None:
            _add(group, joiner, joiner.new_member_id, step)
        else:
            _replace(group, joiner, group.members[old_id], step)
    elif joiner.caller.version >= _NEEDS_KNOWN_ID:
        _give_id(group, joiner, step)
    else:
        _add(group, joiner, joiner.new_member_id, step)


def _give_id(group: ClassicGroup, joiner: Joiner, step: Step) -> None:
    """So that a join whose answer was lost does not leave a member behind.

    Whoever was given one and does not come with it keeps nobody out: if there are too many, the oldest one is
    forgotten. Its owner, should it come after all, is unknown, and asks for another.
    """
    pending = group.members.pending
    if len(pending) >= step.settings.pending_members_max:
        oldest = next(iter(pending))
        del pending[oldest]
        step.cancel_timer(group.session(oldest))
    member_id = joiner.new_member_id
    pending[member_id] = None
    step.set_timer(group.session(member_id), joiner.request.session_timeout_ms)
    version = joiner.caller.version
    step.answer(joiner.ticket, join_refused(version, ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _add(group: ClassicGroup, joiner: Joiner, member_id: str, step: Step) -> None:
    member = joiner.member(member_id)
    member.is_new = True
    if not group.members:
        group.protocol_type = joiner.request.protocol_type
    group.has_newcomer = True
    group.members.add(member)
    group.members.await_join(member, joiner.waiting)
    step.set_timer(group.session(member_id), step.settings.new_member_join_timeout_ms)
    prepare_or_complete(group, Cause(Trigger.JOINED, member, joiner.reason), step)


# Static members that come back


def _replace(group: ClassicGroup, joiner: Joiner, old: Member, step: Step) -> None:
    """It is still the client and host that came first, to whoever describes the group: what Kafka does."""
    leader_before = group.leader
    member = replace(
        joiner.member(joiner.new_member_id),
        client_id=old.client_id,
        client_host=old.client_host,
        assignment=old.assignment,
    )
    _fence(group, joiner, old, member, step)
    group.members.replace(old, member)
    step.cancel_timer(group.session(old.member_id))
    group.keep_alive(member, step)
    group.replace_awaited(old, member)
    if group.state is State.STABLE and group.members.choose_protocol() == group.protocol:
        _take_over(group, joiner, member, leader_before, step)
        group.replaced = (old, member)
        return
    group.members.await_join(member, joiner.waiting)
    # The leader may be working out an assignment for the id that is fenced now, so that ends as well.
    prepare_or_complete(group, Cause(Trigger.REPLACED, member, joiner.reason), step)


def _take_over(group: ClassicGroup, joiner: Joiner, member: Member, leader_before: str, step: Step) -> None:
    """Nobody else notices. A leader must not assign again, because nobody would ask for it.

    Until v9 that could not be said: such a member is told that the one before it leads, and so it follows.
    """
    group.write(step, {each.member_id: each.assignment for each in group.members})
    answer = joined(group, member)
    if joiner.caller.version >= _SKIPS_ASSIGNMENT:
        answer.skip_assignment = member.member_id == group.leader
    else:
        answer.leader = leader_before
        answer.members = []
    step.answer(joiner.ticket, answer)


def _fence(group: ClassicGroup, joiner: Joiner, old: Member, member: Member, step: Step) -> None:
    """Whoever waits under the old id hears that the name is taken."""
    send_away(group, old, ErrorCode.FENCED_INSTANCE_ID, step)
    assert member.instance_id is not None
    step.tell(
        MemberFenced(
            group_id=group.group_id,
            generation=group.generation,
            instance_id=member.instance_id,
            fenced_member_id=old.member_id,
            member_id=member.member_id,
            client_id=joiner.caller.client_id,
            client_host=joiner.caller.client_host,
        )
    )


# Those with an id


def _join_known(group: ClassicGroup, joiner: Joiner, step: Step) -> None:
    request = joiner.request
    if request.member_id in group.members.pending:
        if request.group_instance_id is not None:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "a static member was never given an id to come with"
            )
        _add(group, joiner, request.member_id, step)
        return
    member = group.members.check(request.member_id, request.group_instance_id)
    protocols = joiner.protocols
    is_same = member.protocols == protocols
    match group.state:
        case State.PREPARING:
            _wait_again(group, joiner, member, protocols, Trigger.JOINED, step)
        case State.COMPLETING | State.STABLE if is_same and not _leads_again(group, member):
            step.answer(joiner.ticket, joined(group, member))
        case State.COMPLETING:
            _wait_again(group, joiner, member, protocols, Trigger.CHANGED, step)
        case State.STABLE:
            leads = member.member_id == group.leader
            trigger = Trigger.LEADER_REJOINED if leads else Trigger.CHANGED
            _wait_again(group, joiner, member, protocols, trigger, step)
        case _:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the group is empty")


def _leads_again(group: ClassicGroup, member: Member) -> bool:
    """The leader of a stable group, which wants a new generation."""
    return group.state is State.STABLE and member.member_id == group.leader


def _wait_again(
    group: ClassicGroup, joiner: Joiner, member: Member, protocols: Protocols, trigger: Trigger, step: Step
) -> None:
    request = joiner.request
    group.members.update(member, protocols, joiner.rebalance_timeout_ms, request.session_timeout_ms)
    before = group.members.await_join(member, joiner.waiting)
    if before is not None:
        # It has asked again, so it does not listen for the first answer any more.
        refused = join_refused(before.version, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        step.answer(before.ticket, refused)
    if group.state is State.PREPARING:
        complete_if_all_joined(group, step)
    else:
        prepare(group, Cause(trigger, member, joiner.reason), step)


def _tell_refusal(group: ClassicGroup, joiner: Joiner, error: ApiError, step: Step) -> None:
    step.tell(
        MemberRefused(
            group_id=group.group_id,
            member_id=joiner.request.member_id,
            client_id=joiner.caller.client_id,
            client_host=joiner.caller.client_host,
            error=error.code.name,
            reason=error.message,
        )
    )
