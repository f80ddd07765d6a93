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
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quorate.coordinator.classic_answers import join_refused, sync_refused
from quorate.coordinator.classic_groups import ClassicGroups
from quorate.coordinator.classic_joining import Joiner
from quorate.coordinator.committed_offsets import CommittedOffsets
from quorate.coordinator.consumer import Hearing
from quorate.coordinator.consumer_group import MayDescribe, everybody_may, nobody_hears
from quorate.coordinator.consumer_groups import CONSUMER_KEYS, ConsumerGroups
from quorate.coordinator.deadlines import Deadlines
from quorate.coordinator.effects import Answer, Caller, Effects, LogRecord, Moment, Ticket, Written
from quorate.coordinator.events import GroupAppendRefused, GroupsLoaded, GroupsUnloaded
from quorate.coordinator.group_listing import (
    describe_classic,
    describe_unknown,
    list_classic,
    list_consumer,
    matching,
)
from quorate.coordinator.group_offsets import GroupOffsets
from quorate.coordinator.group_records import (
    GroupMetadataKey,
    OffsetCommitKey,
)
from quorate.coordinator.known_commits import KnownCommit
from quorate.coordinator.known_members import KnownClassic, KnownMember
from quorate.coordinator.refusals import refused, storage_error
from quorate.coordinator.settings import GroupSettings
from quorate.coordinator.step import DELETIONS, EXPIRY, Step, Timer, TimerKind
from quorate.coordinator.topic_matches import Allowance, TopicMatches
from quorate.coordinator.topics_view import TopicsView
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
    SyncGroupRequest,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["GroupShard"]

_CLASSIC_TIMERS = frozenset({TimerKind.SESSION, TimerKind.JOIN, TimerKind.SYNC})


class GroupShard:
    """`new_id` returns the text of a new random UUID at each call: member ids are made of it."""

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        partition: int,
        may_describe: MayDescribe = everybody_may,
        matches: TopicMatches | None = None,
        resolve_soon: Callable[[str], None] = nobody_hears,
    ) -> None:
        """`matches` is what all shards of a broker know of regular expressions together; the host tells it of
        topics. `resolve_soon` is told of groups whose own are to be looked up: see `resolve`."""
        self._settings = settings
        self._new_id = new_id
        self._partition = partition
        self._deadlines: Deadlines[Timer] = Deadlines()
        self._moment = Moment(0, 0)
        self._is_loaded = False
        self._classic = ClassicGroups()
        self._consumer = ConsumerGroups(may_describe, matches, resolve_soon)
        self._offsets = GroupOffsets(self._classic, self._consumer)

    # To look at, not to change

    @property
    def classic_groups(self) -> ClassicGroups:
        return self._classic

    @property
    def consumer_groups(self) -> ConsumerGroups:
        return self._consumer

    @property
    def committed_offsets(self) -> CommittedOffsets:
        return self._offsets.committed

    # The log

    def apply(self, record: LogRecord, offset: int, producer_id: int = -1) -> None:
        """Takes over what the log says at an offset: when loading, and live after an append.

        A record of a transactional batch comes with its producer's id, and counts once its transaction is
        committed. Records of kinds that are not known must not be given (`log_format.decode` returns None).
        """
        key: Any = record.key
        value: Any = record.value
        if key.__class__ is OffsetCommitKey:  # nearly every record
            self._offsets.committed.apply(key, value, offset, producer_id)
            if self._is_loaded and value is not None and self._classic.get(key.group) is None:
                self._add_simple(key.group)
        elif key.__class__ is GroupMetadataKey:
            self._apply_classic(key, value)
        else:
            self._consumer.apply(record)
        self._offsets.appended()

    def _apply_classic(self, key: Any, value: Any) -> None:
        if self._is_loaded:
            self._classic.apply(key, value, self._step(self._moment))
        else:
            self._classic.replay(key, value)

    def commit_transaction(self, producer_id: int) -> None:
        """The log has a COMMIT marker of this producer."""
        self._offsets.committed.commit(producer_id)

    def abort_transaction(self, producer_id: int) -> None:
        """The log has an ABORT marker of this producer."""
        self._offsets.committed.abort(producer_id)

    def loaded(self, moment: Moment) -> Effects:
        """The whole log was applied: sessions begin, each with its full time-out. Before this no request."""
        step = self._step(moment)
        self._is_loaded = True
        self._classic.loaded(step)
        self._consumer.loaded(step)
        for group_id in self.committed_offsets.group_ids():
            self._add_simple(group_id)
        step.set_timer(EXPIRY, self._settings.offsets_retention_check_interval_ms)
        members = sum(len(group.members) for group in self._classic)
        members += sum(len(group.state.members) for group in self._consumer)
        step.tell(
            GroupsLoaded(
                partition=self._partition,
                groups=len(self._classic) + len(self._consumer),
                members=members,
                offsets=len(self.committed_offsets),
                open_transactions=self.committed_offsets.open_transactions,
            )
        )
        return step.effects()

    def _add_simple(self, group_id: str) -> None:
        if self._consumer.get(group_id) is None:
            self._classic.add_simple(group_id)

    def append_refused(self, effects: Written, code: ErrorCode, moment: Moment) -> Effects:
        """Nothing of a step was applied, because the log refused its records: what to do instead.

        `code` is the log's own (NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE, ...); members are told what it means
        to them (`refusals.storage_error`). The same is to be called, with REQUEST_TIMED_OUT, for a step whose
        records were appended and applied but not committed within `offsets.commit.timeout.ms`, or whose
        answers had to wait for such: then only the answers change, since the log may keep the records.
        """
        step = self._step(moment)
        told = storage_error(code)
        step.answers += [Answer(one.ticket, refused(one.response, told)) for one in effects.answers]
        records = effects.records  # which may be made only now
        groups = dict.fromkeys(_group_of(record) for record in records)
        if groups:
            offsets = sum(isinstance(record.key, OffsetCommitKey) for record in records)
            step.tell(GroupAppendRefused(tuple(groups), len(records), code.name, told.name, offsets))
        if code is not ErrorCode.REQUEST_TIMED_OUT:
            for record in records:
                if isinstance(record.key, GroupMetadataKey) and record.value is not None:
                    self._classic.append_refused(record.key.group, told, step)
                    if self.committed_offsets.of(record.key.group):
                        self._add_simple(record.key.group)  # it had offsets before it had members
                elif isinstance(record.key, GroupMetadataKey):
                    self._classic.stays(record.key.group, step)
            changed = (record.key.group_id for record in records if isinstance(record.key, CONSUMER_KEYS))
            self._consumer.append_refused(dict.fromkeys(changed), step)
            self._offsets.append_refused(step)
        return step.effects()

    def unload(self) -> Effects:
        """This broker leads the partition no more: everyone who waits is answered NOT_COORDINATOR.

        Nothing is left of the groups, even to whoever still refers to one, as what is known of a request that
        may come again does.
        """
        step = self._step(self._moment)
        number = len(self._classic) + len(self._consumer)
        self._classic.unload(step)
        self._consumer.unload()
        self._offsets.unload()
        self._deadlines.clear()
        step.tell(GroupsUnloaded(self._partition, number, len(step.answers)))
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
            self._offsets.expire_some(step)
        elif timer == DELETIONS:
            self._offsets.delete_some(step)
        elif timer is not None and timer.kind in _CLASSIC_TIMERS:
            self._classic.due(timer, step)
        elif timer is not None:
            self._consumer.expire(timer, step)
            self._adopt(timer.group_id)
        return step.effects()

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
            self._join(Joiner(ticket, request, caller, "" if request.member_id else self._new_id()), step)
        return step.effects()

    def _join(self, joiner: Joiner, step: Step) -> None:
        """An empty consumer group makes room for a classic one, if the member is let in."""
        group_id = joiner.request.group_id
        consumer = self._consumer.get(group_id)
        if consumer is None:
            self._classic.join(joiner, step)
        elif not consumer.state.is_empty:
            self._consumer.join(consumer, joiner, step)
            self._adopt(group_id)
        else:
            self._classic.join(joiner, step)
            if step.records:
                written = list(step.records)
                step.records.clear()
                self._consumer.delete(consumer, step)
                step.records += written

    def sync(self, ticket: Ticket, request: SyncGroupRequest, caller: Caller, moment: Moment) -> Effects:
        """May be answered by a later step, of any kind. From v5 on both protocols must be named."""
        step = self._step(moment)
        consumer = self._consumer.get(request.group_id)
        if not request.group_id:
            step.answer(ticket, sync_refused(ErrorCode.INVALID_GROUP_ID))
        elif caller.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            step.answer(ticket, sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif consumer is not None:
            self._consumer.sync(consumer, ticket, request, step)
        else:
            self._classic.sync(ticket, request, caller, step)
        return step.effects()

    def known_heartbeat(self, request: HeartbeatRequest) -> KnownMember | None:
        """What is known of a heartbeat that may come again, until this is unloaded. None: ask `heartbeat`, as
        whenever it is not taken."""
        group = self._classic.get(request.group_id)
        if group is None or self._consumer.get(request.group_id) is not None:
            return None
        try:
            return KnownClassic(
                group, request.member_id, request.group_instance_id, request.generation_id, self._deadlines
            )
        except ApiError:
            return None

    def heartbeat(
        self, ticket: Ticket, request: HeartbeatRequest, _caller: Caller, moment: Moment
    ) -> Effects:
        step = self._step(moment)
        consumer = self._consumer.get(request.group_id)
        if not request.group_id:
            step.answer(ticket, HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        elif consumer is not None:
            self._consumer.member_heartbeat(consumer, ticket, request, step)
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
        leaving = request.members if is_batch else [one]
        consumer = self._consumer.get(request.group_id)
        if consumer is None:
            left = self._classic.leave(request.group_id, leaving, step)
        else:
            left = self._consumer.leave(consumer, leaving, step)
            self._adopt(request.group_id)
        if is_batch:
            step.answer(ticket, LeaveGroupResponse(error_code=ErrorCode.NONE, members=left))
        else:
            step.answer(ticket, LeaveGroupResponse(error_code=left[0].error_code))
        return step.effects()

    # Consumer groups

    def known_consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> KnownMember | None:
        """The same of the consumer protocol."""
        return self._consumer.known_heartbeat(request, caller, self._settings, self._deadlines)

    def consumer_group_heartbeat(
        self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, caller: Caller, moment: Moment
    ) -> Effects:
        step = self._step(moment)
        hearing = Hearing(ticket, request, caller, "" if request.member_id else self._new_id())
        self._consumer.heartbeat(hearing, self._classic.get(request.group_id), step)
        self._adopt(request.group_id)
        return step.effects()

    def announce(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, moment: Moment) -> Effects:
        """What can be written of a member that comes before it is heard, with others that come too; nothing
        if it is to be heard at once."""
        step = self._step(moment)
        self._consumer.announce(request, caller, step)
        return step.effects()

    def resolve(self, group_id: str, allowance: Allowance, moment: Moment) -> Effects:
        """Looks up what the regular expressions of a group match, or some of it. Call it again, after others,
        as long as it `is_resolving`."""
        step = self._step(moment)
        self._consumer.resolve(group_id, allowance, step)
        return step.effects()

    def is_resolving(self, group_id: str) -> bool:
        return self._consumer.is_resolving(group_id)

    def _adopt(self, group_id: str) -> None:
        """If a step has made a classic group of a consumer group, it is one from now on."""
        consumer = self._consumer.get(group_id)
        if consumer is not None and consumer.successor is not None:
            self._classic.adopt(consumer.successor)

    # Offsets. Topics are names here: whoever calls has put the names of v10's topic ids into the requests,
    # has left out topics and partitions that do not exist or are not allowed, and adds them to the answer.

    def offset_commit(
        self, ticket: Ticket, request: OffsetCommitRequest, caller: Caller, moment: Moment
    ) -> Effects:
        step = self._step(moment)
        self._offsets.commit(ticket, request, caller, step)
        return step.effects()

    def committer(self, commit: KnownCommit) -> KnownClassic | None:
        """The member that makes such a commit, until this is unloaded: all of it is taken whenever the member
        is. None: ask `takes_all`."""
        return self._offsets.committer(commit, self._settings, self._deadlines)

    def takes_all(self, commit: KnownCommit) -> bool:
        """Whether all of such a commit is taken now, whatever its numbers are."""
        return self._offsets.takes_all(commit, self._settings)

    def txn_offset_commit(
        self, ticket: Ticket, request: TxnOffsetCommitRequest, caller: Caller, moment: Moment
    ) -> Effects:
        """`Effects.producer` says whose transaction the records belong to."""
        step = self._step(moment)
        self._offsets.commit_in_transaction(ticket, request, caller, step)
        return step.effects()

    def offset_fetch(
        self, ticket: Ticket, request: OffsetFetchRequest, caller: Caller, moment: Moment
    ) -> Effects:
        """Of one group below v8, of those in `request.groups` from there on: only those of this partition."""
        step = self._step(moment)
        self._offsets.fetch(ticket, request, caller, step)
        return step.effects()

    def offset_delete(
        self, ticket: Ticket, request: OffsetDeleteRequest, caller: Caller, moment: Moment
    ) -> Effects:
        step = self._step(moment)
        self._offsets.delete(ticket, request, caller, step)
        return step.effects()

    # Administration. A request names groups of many partitions: give each shard its own, join the answers.

    def list_groups(
        self, request: ListGroupsRequest, _caller: Caller
    ) -> list[ListGroupsResponse.ListedGroup]:
        groups = [*map(list_classic, self._classic), *map(list_consumer, self._consumer)]
        return matching(request, groups)

    def describe(
        self, request: DescribeGroupsRequest, caller: Caller
    ) -> list[DescribeGroupsResponse.DescribedGroup]:
        """Classic groups. A consumer group is not known here."""
        described = []
        for group_id in request.groups:
            group = self._classic.get(group_id)
            if group is None:
                described.append(describe_unknown(group_id, self._consumer.get(group_id), caller.version))
            else:
                described.append(describe_classic(group))
        return described

    def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, _caller: Caller
    ) -> list[ConsumerGroupDescribeResponse.DescribedGroup]:
        """Consumer groups. A classic group is not known here."""
        step = self._step(self._moment)
        return [
            self._consumer.describe(group_id, self._classic.get(group_id), step)
            for group_id in request.group_ids
        ]

    def delete_groups(
        self, ticket: Ticket, request: DeleteGroupsRequest, _caller: Caller, moment: Moment
    ) -> Effects:
        """Each group alone is deleted or not. Only empty ones are."""
        step = self._step(moment)
        results = [
            DeleteGroupsResponse.DeletableGroupResult(
                group_id=group_id, error_code=self._offsets.delete_group(group_id, step)
            )
            for group_id in dict.fromkeys(request.groups_names)
        ]
        step.answer(ticket, DeleteGroupsResponse(throttle_time_ms=0, results=results))
        return step.effects()

    # The cluster's metadata

    def topics_with_offsets(self) -> set[str]:
        """For which topics groups have committed: those that are gone are to be given to `topics_deleted`."""
        committed = self.committed_offsets
        return {topic for group_id in committed.group_ids() for topic in committed.of(group_id)}

    def topics_deleted(self, names: Iterable[str], moment: Moment) -> Effects:
        """These topics are gone, and with them what groups have committed for them: now and in next ticks."""
        step = self._step(moment)
        self._offsets.topics_deleted(names, step)
        return step.effects()

    def topics_changed(self, topics: TopicsView, names: Iterable[str]) -> None:
        """The topics as they are now, before the first request and after every change of one.

        `names` are those that were created or deleted, or have other partitions or racks than before.
        """
        self._consumer.topics_changed(topics, names)

    def configure(self, group_id: str, config: Mapping[str, str]) -> bool:
        """The dynamic configuration of a group, all of it: before the first request, and when it changes.
        Whether it was another before."""
        return self._consumer.configure(group_id, config)

    def reconfigure(self, settings: GroupSettings) -> None:
        """Other settings for all groups, from the next step on."""
        self._settings = settings

    # Inside

    def _step(self, moment: Moment) -> Step:
        self._moment = moment
        return Step(self._settings, self._deadlines, moment)


def _group_of(record: LogRecord) -> str:
    key = record.key
    return str(getattr(key, "group", "") or getattr(key, "group_id", ""))
