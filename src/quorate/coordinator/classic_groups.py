"""All classic groups of a shard: what the log keeps of them, and the groups that live on top of it.

The fold is `stored`: the last record of each group. While the log is loaded there is nothing else; then each
record becomes a group, and from then on a record that was appended completes what the group wanted to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorate.coordinator import classic_requests
from quorate.coordinator.classic import Cause, ClassicGroup, State, Trigger
from quorate.coordinator.classic_answers import join_refused, sync_refused
from quorate.coordinator.classic_joining import Joiner, join
from quorate.coordinator.classic_members import NOBODY, Members
from quorate.coordinator.classic_rebalance import (
    end_join_time,
    end_session,
    end_sync_time,
    prepare,
    release_all,
)
from quorate.coordinator.effects import Caller, Ticket
from quorate.coordinator.group_records import GroupMetadataKey, GroupMetadataValue
from quorate.coordinator.step import AGAIN_MIN_MS, Step, Timer, TimerKind
from quorate.protocol.api.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["ClassicGroups"]


class ClassicGroups:
    def __init__(self) -> None:
        self.stored: dict[str, GroupMetadataValue] = {}
        self._groups: dict[str, ClassicGroup] = {}

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    # The log

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """A record of the log, while it is loaded."""
        if value is None:
            self.stored.pop(key.group, None)
        else:
            self.stored[key.group] = value

    def apply(self, key: GroupMetadataKey, value: GroupMetadataValue | None, step: Step) -> None:
        """A record that was appended. One that was not written by a group here makes a group of its own."""
        self.replay(key, value)
        group = self._groups.get(key.group)
        if value is None:
            if group is not None:
                is_empty = group.state is State.EMPTY
                self._drop(group, Trigger.DELETED if is_empty else Trigger.UPGRADED, step)
        elif group is not None:
            group.stored(value)
        else:
            self._begin(key.group, value, step)

    def loaded(self, step: Step) -> None:
        """Members have their full time to be heard of. Groups that have become too large must rebalance."""
        for group_id, value in self.stored.items():
            group = self._begin(group_id, value, step)
            if len(group.members) > step.settings.group_max_size:
                prepare(group, Cause(Trigger.OVERSIZED), step)

    def add_simple(self, group_id: str) -> None:
        """A group that has offsets and never had members."""
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id, -1)

    def adopt(self, group: ClassicGroup) -> None:
        """A group that was of the other protocol until now: its record is about to be appended."""
        self._groups[group.group_id] = group

    def unload(self, step: Step) -> None:
        for group in self._groups.values():
            release_all(group, ErrorCode.NOT_COORDINATOR, step)
            group.move(Trigger.UNLOADED, step.wall_ms)
            group.members = Members()
        self._groups.clear()
        self.stored.clear()

    def append_refused(self, group_id: str, code: ErrorCode, step: Step) -> None:
        """What a group wanted to store was not stored. `code` is what its members hear.

        That a group is empty need not be known: the generation before would come back with the next
        coordinator, and its members are long gone.
        """
        group = self._groups.get(group_id)
        if group is None:
            return
        if not group.is_stored:
            release_all(group, code, step)
            self._drop(group, Trigger.UNLOADED, step)
        elif group.replaced is not None:
            old, member = group.replaced
            group.replaced = None
            group.members.replace(member, old)
            group.replace_awaited(member, old)
            step.cancel_timer(group.session(member.member_id))
            group.keep_alive(old, step)
        elif group.state is State.COMPLETING:
            group.not_before_ms = step.now_ms + AGAIN_MIN_MS
            prepare(group, Cause(Trigger.NOT_STORED), step)

    def stays(self, group_id: str, step: Step) -> None:
        """A group could not be ended: it goes on, and its members have all the time that there is."""
        group = self._groups.get(group_id)
        if group is None or group.state is State.EMPTY:
            return
        group.members.pending.clear()
        for member in group.members:
            group.keep_alive(member, step)
        if group.state is State.PREPARING:
            step.set_timer(group.timer(TimerKind.JOIN), group.members.rebalance_timeout_ms)
        elif group.state is State.COMPLETING:
            group.awaited_syncs.update(group.members.by_id)
        if group.awaited_syncs:
            step.set_timer(group.timer(TimerKind.SYNC), group.members.rebalance_timeout_ms)

    # Requests

    def join(self, joiner: Joiner, step: Step) -> None:
        """A group begins with the first who wants to join it; but not for somebody who may not."""
        request = joiner.request
        group = self._groups.get(request.group_id)
        if group is not None:
            join(group, joiner, step)
            return
        if request.member_id != NOBODY:
            refused = join_refused(joiner.caller.version, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            step.answer(joiner.ticket, refused)
            return
        group = ClassicGroup(request.group_id, step.wall_ms)
        join(group, joiner, step)
        if group.members or group.members.pending:
            self._groups[request.group_id] = group
            _write_new(group, step)

    def sync(self, ticket: Ticket, request: SyncGroupRequest, caller: Caller, step: Step) -> None:
        try:
            classic_requests.sync(self._member_group(request.group_id), ticket, request, caller, step)
        except ApiError as error:
            step.answer(ticket, sync_refused(error.code))

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, step: Step) -> None:
        try:
            code = classic_requests.heartbeat(self._member_group(request.group_id), request, step)
        except ApiError as error:
            code = error.code
        step.answer(ticket, HeartbeatResponse(error_code=code))

    def leave(
        self, group_id: str, leaving: Iterable[LeaveGroupRequest.MemberIdentity], step: Step
    ) -> list[LeaveGroupResponse.MemberResponse]:
        """Of a group that is not there nobody is a member."""
        return classic_requests.leave(self._groups.get(group_id) or ClassicGroup(group_id, -1), leaving, step)

    def _member_group(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id}")
        return group

    # Time

    def due(self, timer: Timer, step: Step) -> None:
        group = self._groups.get(timer.group_id)
        if group is None:
            return
        match timer.kind:
            case TimerKind.SESSION:
                end_session(group, timer.member_id, step)
            case TimerKind.JOIN:
                end_join_time(group, step)
            case TimerKind.SYNC:
                end_sync_time(group, step)
            case _:
                raise AssertionError(timer)

    # Inside

    def _begin(self, group_id: str, value: GroupMetadataValue, step: Step) -> ClassicGroup:
        group = self._groups[group_id] = ClassicGroup.load(group_id, value)
        for member in group.members:
            group.keep_alive(member, step)
        return group

    def _drop(self, group: ClassicGroup, trigger: Trigger, step: Step) -> None:
        group.cancel_timers(step)
        group.move(trigger, step.wall_ms)
        del self._groups[group.group_id]


def _write_new(group: ClassicGroup, step: Step) -> None:
    """That a group exists is written down before it has had a generation, as Kafka does. Who joins waits for
    that generation, or is only given an id."""
    step.answer_at_once()
    step.write(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=step.wall_ms,
            members=[],
        ),
    )
