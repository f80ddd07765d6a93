"""The groups of one partition of `__consumer_offsets`, of both protocols, and their offsets.

One `GroupShard` lives as long as a broker leads the partition. Its host

    loads it      `apply` for every record of the log up to its end, `commit_transaction` or
                  `abort_transaction` for every marker, then once `loaded`
    asks it       one method for each request; `tick` whenever `next_deadline_ms` has come
    carries out   what comes back (see `effects`): append, `apply` each record with its offset, answer once
                  it is committed; or `append_refused`, if it could not be appended
    drops it      `unload`, whose answers leave at once

Nothing else may be called between a step and its `apply` or `append_refused`. Requests that the shard must
not see (while it loads, or when this broker does not lead the partition) are answered with `refusals.refuse`.

`apply` alone writes what the log keeps: the stored groups and the offsets. What the log does not keep (who
waits, when a session ends, a rebalance that is under way) is lost with the shard, and may be: members find
out from the answers of the next coordinator.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from quorate.coordinator import classic_requests, offsets
from quorate.coordinator.classic import ClassicGroup, State
from quorate.coordinator.classic_answers import join_refused, sync_refused
from quorate.coordinator.classic_groups import ClassicGroups
from quorate.coordinator.classic_joining import Joiner
from quorate.coordinator.committed_offsets import CommittedOffsets
from quorate.coordinator.deadlines import Deadlines
from quorate.coordinator.effects import Answer, Caller, Effects, LogRecord, Moment, Ticket
from quorate.coordinator.events import GroupAppendRefused, GroupDeleted, GroupsLoaded, GroupsUnloaded
from quorate.coordinator.group_listing import describe_classic, describe_unknown, list_classic, matching
from quorate.coordinator.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from quorate.coordinator.offset_expiry import RECORDS_MAX, Deletions, age_in_classic_group, expire
from quorate.coordinator.refusals import refuse, refused, storage_error
from quorate.coordinator.settings import GroupSettings
from quorate.coordinator.step import DELETIONS, EXPIRY, Step, Timer
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["GroupShard"]

_GROUPS_PER_STEP: Final = 200  # that are looked through for old offsets before others get their turn
_PAUSE_MS: Final = 5  # between such steps
_RETRY_MS: Final = 1000  # until offsets of deleted topics are tried again that the log did not take


class GroupShard:
    """`new_id` returns the text of a new random UUID at each call: member ids are made of it."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_id = new_id
        self._deadlines: Deadlines[Timer] = Deadlines()
        self._moment = Moment(0, 0)
        self._is_loaded = False
        self._classic = ClassicGroups()
        self._offsets = CommittedOffsets()
        self._deletions = Deletions()
        self._to_expire: deque[str] = deque()

    @property
    def classic_groups(self) -> ClassicGroups:
        """To look at, not to change."""
        return self._classic

    @property
    def committed_offsets(self) -> CommittedOffsets:
        """To look at, not to change."""
        return self._offsets

    # The log

    def apply(self, record: LogRecord, offset: int, producer_id: int = -1) -> None:
        """Takes over what the log says at an offset: when loading, and live after an append.

        A record of a transactional batch comes with its producer's id, and counts once its transaction is
        committed. Records of kinds that are not known must not be given (`log_format.decode` returns None).
        """
        match record.key, record.value:
            case OffsetCommitKey() as key, (OffsetCommitValue() | None) as value:
                self._offsets.apply(key, value, offset, producer_id)
                if self._is_loaded and value is not None:
                    self._classic.add_simple(key.group)
            case GroupMetadataKey() as key, (GroupMetadataValue() | None) as value:
                if self._is_loaded:
                    self._classic.apply(key, value, self._step(self._moment))
                else:
                    self._classic.replay(key, value)
            case _:
                pass
        self._deletions.settle()

    def commit_transaction(self, producer_id: int) -> None:
        """The log has a COMMIT marker of this producer."""
        self._offsets.commit(producer_id)

    def abort_transaction(self, producer_id: int) -> None:
        """The log has an ABORT marker of this producer."""
        self._offsets.abort(producer_id)

    def loaded(self, moment: Moment) -> Effects:
        """The whole log was applied: sessions begin, each with its full time-out. Before this no request."""
        step = self._step(moment)
        self._is_loaded = True
        self._classic.loaded(step)
        for group_id in self._offsets.group_ids():
            self._classic.add_simple(group_id)
        step.set_timer(EXPIRY, self._settings.offsets_retention_check_interval_ms)
        step.tell(
            GroupsLoaded(
                groups=len(self._classic),
                members=sum(len(group.members) for group in self._classic),
                offsets=len(self._offsets),
                open_transactions=self._offsets.open_transactions,
            )
        )
        return step.effects()

    def append_refused(self, effects: Effects, code: ErrorCode, moment: Moment) -> Effects:
        """Nothing of a step was applied, because the log refused its records: what to do instead.

        `code` is the log's own (NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE, ...); members are told what it means
        to them (`refusals.storage_error`). The same is to be called, with REQUEST_TIMED_OUT, for a step whose
        records were appended and applied but not committed within `offsets.commit.timeout.ms`, or whose
        answers had to wait for such: then only the answers change, since the log may keep the records.
        """
        step = self._step(moment)
        told = storage_error(code)
        step.answers += [Answer(one.ticket, refused(one.response, told)) for one in effects.answers]
        if effects.records:
            groups = dict.fromkeys(_group_of(record) for record in effects.records)
            step.tell(GroupAppendRefused(tuple(groups), len(effects.records), code.name, told.name))
        if code is ErrorCode.REQUEST_TIMED_OUT:
            return step.effects()
        for record in effects.records:
            if isinstance(record.key, GroupMetadataKey) and record.value is not None:
                self._classic.append_refused(record.key.group, told, step)
        if self._deletions.put_back():
            step.set_timer(DELETIONS, _RETRY_MS)
        return step.effects()

    def unload(self) -> Effects:
        """This broker leads the partition no more: everyone who waits is answered NOT_COORDINATOR."""
        step = self._step(self._moment)
        number = len(self._classic)
        self._classic.unload(step)
        self._deadlines = Deadlines()
        step.tell(GroupsUnloaded(number, len(step.answers)))
        return step.effects()

    # Time

    @property
    def next_deadline_ms(self) -> float:
        """When `tick` may have something to do, on the clock of `Moment.now_ms`; infinity if never."""
        next_ms = self._deadlines.next_ms()
        return math.inf if next_ms is None else next_ms

    def tick(self, moment: Moment) -> Effects:
        """Does one thing that is due. Call it again, after its effects, while `next_deadline_ms` has passed.

        One at a time, because what is due next may be answered by what comes of the first.
        """
        step = self._step(moment)
        timer = self._deadlines.take(moment.now_ms)
        if timer == EXPIRY:
            self._expire_some(step)
        elif timer == DELETIONS:
            self._delete_some(step)
        elif timer is not None:
            self._classic.due(timer, step)
        return step.effects()

    def _expire_some(self, step: Step) -> None:
        """Looks through some of the groups; the others get their turn soon."""
        if not self._to_expire:
            self._to_expire.extend(group.group_id for group in self._classic)
        for _ in range(min(_GROUPS_PER_STEP, len(self._to_expire))):
            group = self._classic.get(self._to_expire[0])
            if group is not None:
                self._expire(group, step)
            if len(step.records) >= RECORDS_MAX:
                break  # of the same group there may be more
            self._to_expire.popleft()
        is_done = not self._to_expire
        step.set_timer(EXPIRY, self._settings.offsets_retention_check_interval_ms if is_done else _PAUSE_MS)

    def _expire(self, group: ClassicGroup, step: Step) -> None:
        since = age_in_classic_group(group)
        if since is None or not expire(group, since, self._offsets, step):
            return
        if group.state is State.EMPTY and not group.members.pending:
            step.write(GroupMetadataKey(group=group.group_id), None)
            step.tell(GroupDeleted(group.group_id, "it is empty and has no offsets left", 0))

    def _delete_some(self, step: Step) -> None:
        self._deletions.take(self._offsets, step)
        if self._deletions:
            step.set_timer(DELETIONS, _PAUSE_MS)

    # Classic groups. Members of consumer groups that speak the classic protocol are answered as well.

    def join(self, ticket: Ticket, request: JoinGroupRequest, caller: Caller, moment: Moment) -> Effects:
        """May be answered by a later step, of any kind."""
        step = self._step(moment)
        settings = self._settings
        shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not request.group_id:
            step.answer(ticket, join_refused(caller.version, ErrorCode.INVALID_GROUP_ID, request.member_id))
        elif not shortest <= request.session_timeout_ms <= longest:
            code = ErrorCode.INVALID_SESSION_TIMEOUT
            step.answer(ticket, join_refused(caller.version, code, request.member_id))
        else:
            self._classic.join(Joiner(ticket, request, caller, self._new_id()), step)
        return step.effects()

    def sync(self, ticket: Ticket, request: SyncGroupRequest, caller: Caller, moment: Moment) -> Effects:
        """May be answered by a later step, of any kind. From v5 on both protocols must be named."""
        step = self._step(moment)
        if not request.group_id:
            step.answer(ticket, sync_refused(ErrorCode.INVALID_GROUP_ID))
        elif caller.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            step.answer(ticket, sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        else:
            self._classic.sync(ticket, request, caller, step)
        return step.effects()

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, caller: Caller, moment: Moment) -> Effects:
        step = self._step(moment)
        if not request.group_id:
            step.answer(ticket, HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        else:
            self._classic.heartbeat(ticket, request, step)
        return step.effects()

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, caller: Caller, moment: Moment) -> Effects:
        """Before v3 one member at a time could leave, and its error is that of the whole."""
        step = self._step(moment)
        if not request.group_id:
            step.answer(ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
            return step.effects()
        is_batch = caller.version >= 3
        one = LeaveGroupRequest.MemberIdentity(member_id=request.member_id)
        left = self._classic.leave(request.group_id, request.members if is_batch else [one], step)
        if is_batch:
            step.answer(ticket, LeaveGroupResponse(error_code=ErrorCode.NONE, members=left))
        else:
            step.answer(ticket, LeaveGroupResponse(error_code=left[0].error_code))
        return step.effects()

    # Consumer groups

    def consumer_group_heartbeat(
        self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, caller: Caller, moment: Moment
    ) -> Effects:
        step = self._step(moment)
        step.answer(ticket, refuse(request, caller.version, ErrorCode.UNSUPPORTED_VERSION))
        return step.effects()

    # Offsets. Topics are names here: whoever calls has put the names of v10's topic ids into the requests,
    # has left out topics and partitions that do not exist or are not allowed, and adds them to the answer.

    def offset_commit(
        self, ticket: Ticket, request: OffsetCommitRequest, caller: Caller, moment: Moment
    ) -> Effects:
        step = self._step(moment)
        try:
            self._check_commit(request, caller, step)
        except ApiError as error:
            step.answer(ticket, refuse(request, caller.version, error.code))
        else:
            step.answer(ticket, offsets.commit(request, step))
        return step.effects()

    def _check_commit(self, request: OffsetCommitRequest, caller: Caller, step: Step) -> None:
        group = self._classic.get(request.group_id)
        if group is not None:
            classic_requests.check_commit(group, request, step)
        elif request.generation_id_or_member_epoch >= 0:
            is_new = caller.version >= 9
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION)

    def txn_offset_commit(
        self, ticket: Ticket, request: TxnOffsetCommitRequest, caller: Caller, moment: Moment
    ) -> Effects:
        """`Effects.producer` says whose transaction the records belong to."""
        step = self._step(moment)
        group = self._classic.get(request.group_id)
        try:
            if group is not None:
                classic_requests.check_txn_commit(group, request)
            elif request.generation_id >= 0:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {request.group_id}")
        except ApiError as error:
            step.answer(ticket, refuse(request, caller.version, error.code))
        else:
            step.answer(ticket, offsets.commit_in_transaction(request, step))
        return step.effects()

    def offset_fetch(
        self, ticket: Ticket, request: OffsetFetchRequest, caller: Caller, moment: Moment
    ) -> Effects:
        """Of one group below v8, of those in `request.groups` from there on: only those of this partition."""
        step = self._step(moment)
        step.read_uncommitted()
        is_batch = caller.version >= 8
        wanted = request.groups if is_batch else [offsets.fetch_one_group(request)]
        groups = [self._fetch(group, require_stable=request.require_stable) for group in wanted]
        if is_batch:
            step.answer(ticket, OffsetFetchResponse(groups=groups))
        else:
            step.answer(ticket, offsets.answer_one_group(groups[0]))
        return step.effects()

    def _fetch(self, group: OffsetFetchRequest.Group, *, require_stable: bool) -> OffsetFetchResponse.Group:
        def is_unstable(topic: str, partition: int) -> bool:
            return require_stable and self._offsets.is_pending(group.group_id, topic, partition)

        return offsets.fetch(self._offsets, group, is_unstable)

    def offset_delete(
        self, ticket: Ticket, request: OffsetDeleteRequest, caller: Caller, moment: Moment
    ) -> Effects:
        step = self._step(moment)
        group = self._classic.get(request.group_id)
        if group is None:
            step.answer(ticket, refuse(request, caller.version, ErrorCode.GROUP_ID_NOT_FOUND))
        elif group.state is not State.EMPTY and not group.is_consumer:
            step.answer(ticket, refuse(request, caller.version, ErrorCode.NON_EMPTY_GROUP))
        else:
            step.answer(ticket, offsets.delete(self._offsets, request, group.is_subscribed, step))
        return step.effects()

    # Administration. A request names groups of many partitions: give each shard its own, join the answers.

    def list_groups(self, request: ListGroupsRequest, caller: Caller) -> list[ListGroupsResponse.ListedGroup]:
        return matching(request, map(list_classic, self._classic))

    def describe(
        self, request: DescribeGroupsRequest, caller: Caller
    ) -> list[DescribeGroupsResponse.DescribedGroup]:
        described = []
        for group_id in request.groups:
            group = self._classic.get(group_id)
            unknown = describe_unknown(group_id, caller.version)
            described.append(unknown if group is None else describe_classic(group))
        return described

    def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, caller: Caller
    ) -> list[ConsumerGroupDescribeResponse.DescribedGroup]:
        response: ConsumerGroupDescribeResponse = refuse(
            request, caller.version, ErrorCode.GROUP_ID_NOT_FOUND
        )
        return list(response.groups)

    def delete_groups(
        self, ticket: Ticket, request: DeleteGroupsRequest, caller: Caller, moment: Moment
    ) -> Effects:
        """Each group alone is deleted or not. Only empty ones are."""
        step = self._step(moment)
        results = [
            DeleteGroupsResponse.DeletableGroupResult(
                group_id=group_id, error_code=self._delete_group(group_id, step)
            )
            for group_id in dict.fromkeys(request.groups_names)
        ]
        step.answer(ticket, DeleteGroupsResponse(throttle_time_ms=0, results=results))
        return step.effects()

    def _delete_group(self, group_id: str, step: Step) -> ErrorCode:
        group = self._classic.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        number = offsets.forget_all(self._offsets, group_id, step)
        step.write(GroupMetadataKey(group=group_id), None)
        step.tell(GroupDeleted(group_id, "somebody asked for it", number))
        return ErrorCode.NONE

    # The cluster's metadata

    def topics_with_offsets(self) -> set[str]:
        """For which topics groups have committed: those that are gone are to be given to `topics_deleted`."""
        return {topic for group in self._classic for topic in self._offsets.of(group.group_id)}

    def topics_deleted(self, names: Iterable[str], moment: Moment) -> Effects:
        """These topics are gone, and with them what groups have committed for them: now and in next ticks."""
        step = self._step(moment)
        self._deletions.add(names, self._offsets)
        self._delete_some(step)
        return step.effects()

    # Inside

    def _step(self, moment: Moment) -> Step:
        self._moment = moment
        return Step(self._settings, self._deadlines, moment)


def _group_of(record: LogRecord) -> str:
    key = record.key
    return str(getattr(key, "group", "") or getattr(key, "group_id", ""))
