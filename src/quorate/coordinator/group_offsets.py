"""The offsets of all groups of a shard: who may commit, fetch and delete them, and which are forgotten.

A group is of one of two protocols, or nothing but its offsets; each has its own idea of whose commit counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from quorate.coordinator import classic_requests, offsets
from quorate.coordinator.classic import State
from quorate.coordinator.classic_groups import ClassicGroups
from quorate.coordinator.committed_offsets import CommittedOffsets
from quorate.coordinator.consumer_describe import (
    CommitCheck,
    check_offset_commit,
    check_offset_fetch,
    check_txn_offset_commit,
)
from quorate.coordinator.consumer_groups import ConsumerGroups
from quorate.coordinator.deadlines import Deadlines
from quorate.coordinator.effects import Caller, Ticket
from quorate.coordinator.events import GroupDeleted
from quorate.coordinator.group_records import GroupMetadataKey
from quorate.coordinator.known_commits import KnownCommit
from quorate.coordinator.known_members import KnownClassic
from quorate.coordinator.offset_expiry import (
    RECORDS_MAX,
    Deletions,
    age_in_classic_group,
    expire,
    since_commit,
)
from quorate.coordinator.refusals import refuse
from quorate.coordinator.settings import GroupSettings
from quorate.coordinator.step import DELETIONS, EXPIRY, Step, Timer
from quorate.protocol.api.groups import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID

__all__ = ["GroupOffsets"]

_GROUPS_PER_STEP: Final = 200  # that are looked through for old offsets before others get their turn
_PAUSE_MS: Final = 5  # between such steps


class GroupOffsets:
    def __init__(self, classic: ClassicGroups, consumer: ConsumerGroups) -> None:
        self.committed = CommittedOffsets()
        self._classic = classic
        self._consumer = consumer
        self._deletions = Deletions()
        self._to_expire: deque[str] = deque()

    # Requests

    def commit(self, ticket: Ticket, request: OffsetCommitRequest, caller: Caller, step: Step) -> None:
        try:
            judge = self._commit_judge(request, caller, step)
        except ApiError as error:
            step.answer(ticket, refuse(request, caller.version, error.code))
        else:
            step.answer(ticket, offsets.commit(request, judge, step))

    def committer(
        self, commit: KnownCommit, settings: GroupSettings, deadlines: Deadlines[Timer]
    ) -> KnownClassic | None:
        """Who makes it, if it is a member of a classic group, and nothing is too long: then it is taken
        whenever the member is. That holds until this is unloaded."""
        request = commit.request
        classic = self._classic.get(request.group_id)
        if (
            classic is None
            or self._consumer.get(request.group_id) is not None
            or commit.metadata_characters > settings.offset_metadata_max_bytes
        ):
            return None
        member_id, generation = request.member_id, request.generation_id_or_member_epoch
        try:
            return KnownClassic(classic, member_id, request.group_instance_id, generation, deadlines)
        except ApiError:
            return None

    def takes_all(self, commit: KnownCommit, settings: GroupSettings) -> bool:
        """Whether all of it is taken now from anybody else: from a member of a consumer group, or from
        somebody who belongs to none."""
        request = commit.request
        if commit.metadata_characters > settings.offset_metadata_max_bytes:
            return False
        epoch, member_id = request.generation_id_or_member_epoch, request.member_id
        consumer = self._consumer.get(request.group_id)
        if consumer is not None:
            try:
                return check_offset_commit(consumer, member_id, epoch, commit.caller.version) is None
            except ApiError:
                return False
        classic = self._classic.get(request.group_id)
        return classic is not None and epoch < 0 and classic.state is State.EMPTY

    def _commit_judge(self, request: OffsetCommitRequest, caller: Caller, step: Step) -> offsets.Judge | None:
        """Says of each partition whether it may be committed; None if all may. `ApiError` if none may."""
        epoch = request.generation_id_or_member_epoch
        consumer = self._consumer.get(request.group_id)
        classic = self._classic.get(request.group_id)
        if consumer is not None:
            check = check_offset_commit(consumer, request.member_id, epoch, caller.version)
            return None if check is None else self._by_name(check)
        if classic is not None:
            classic_requests.check_commit(classic, request, step)
        elif epoch >= 0:
            is_new = caller.version >= 9
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION)
        return None

    def commit_in_transaction(
        self, ticket: Ticket, request: TxnOffsetCommitRequest, caller: Caller, step: Step
    ) -> None:
        try:
            judge = self._txn_judge(request)
        except ApiError as error:
            step.answer(ticket, refuse(request, caller.version, error.code))
        else:
            step.answer(ticket, offsets.commit_in_transaction(request, judge, step))

    def _txn_judge(self, request: TxnOffsetCommitRequest) -> offsets.Judge | None:
        """An epoch that is stale is a generation that is over, for producers."""
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        consumer = self._consumer.get(request.group_id)
        classic = self._classic.get(request.group_id)
        if consumer is not None:
            try:
                check = check_txn_offset_commit(
                    consumer, request.member_id, request.group_instance_id, request.generation_id
                )
            except ApiError as error:
                raise ApiError(_for_producers(error.code), error.message) from error
            if check is None:
                return None
            judge = self._by_name(check)
            return lambda topic, partition: _for_producers(judge(topic, partition))
        if classic is not None:
            classic_requests.check_txn_commit(classic, request)
        elif request.generation_id >= 0:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {request.group_id}")
        return None

    def _by_name(self, check: CommitCheck) -> offsets.Judge:
        """Consumer groups know topics by their ids. One that is not known is held by nobody."""

        def judge(name: str, partition: int) -> ErrorCode:
            topic = self._consumer.topics.by_name(name)
            return check(ZERO_UUID if topic is None else topic.id, partition)

        return judge

    def fetch(self, ticket: Ticket, request: OffsetFetchRequest, caller: Caller, step: Step) -> None:
        step.read_uncommitted()
        is_batch = caller.version >= 8
        wanted = request.groups if is_batch else [offsets.fetch_one_group(request)]
        groups = [self._fetch(group, require_stable=request.require_stable) for group in wanted]
        if is_batch:
            step.answer(ticket, OffsetFetchResponse(groups=groups))
        else:
            step.answer(ticket, offsets.answer_one_group(request, caller.version, groups[0]))

    def _fetch(self, group: OffsetFetchRequest.Group, *, require_stable: bool) -> OffsetFetchResponse.Group:
        def is_unstable(topic: str, partition: int) -> bool:
            return require_stable and self.committed.is_pending(group.group_id, topic, partition)

        consumer = self._consumer.get(group.group_id)
        if consumer is not None:
            try:
                check_offset_fetch(consumer, group.member_id, group.member_epoch)
            except ApiError as error:
                return OffsetFetchResponse.Group(group_id=group.group_id, topics=[], error_code=error.code)
        return offsets.fetch(self.committed, group, is_unstable)

    def delete(self, ticket: Ticket, request: OffsetDeleteRequest, caller: Caller, step: Step) -> None:
        consumer = self._consumer.get(request.group_id)
        classic = self._classic.get(request.group_id)
        if consumer is not None:
            step.answer(ticket, offsets.delete(self.committed, request, consumer.state.is_subscribed, step))
        elif classic is None:
            step.answer(ticket, refuse(request, caller.version, ErrorCode.GROUP_ID_NOT_FOUND))
        elif classic.state is not State.EMPTY and not classic.is_consumer:
            step.answer(ticket, refuse(request, caller.version, ErrorCode.NON_EMPTY_GROUP))
        else:
            step.answer(ticket, offsets.delete(self.committed, request, classic.is_subscribed, step))

    # Groups that end

    def delete_group(self, group_id: str, step: Step) -> ErrorCode:
        """Deletes a group with all its offsets, if it is empty."""
        consumer = self._consumer.get(group_id)
        classic = self._classic.get(group_id)
        if consumer is None and classic is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        is_empty = (
            consumer.state.is_empty
            if consumer is not None
            else classic is not None and (classic.state is State.EMPTY)
        )
        if not is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        number = offsets.forget_all(self.committed, group_id, step)
        self._end_group(group_id, step)
        step.tell(GroupDeleted(group_id, "somebody asked for it", number))
        return ErrorCode.NONE

    def _end_group(self, group_id: str, step: Step) -> None:
        consumer = self._consumer.get(group_id)
        if consumer is not None:
            self._consumer.delete(consumer, step)
        else:
            step.write(GroupMetadataKey(group=group_id), None)

    # Time

    def expire_some(self, step: Step) -> None:
        """Looks through some of the groups; the others get their turn soon."""
        if not self._to_expire:
            self._to_expire.extend(group.group_id for group in self._classic)
            self._to_expire.extend(group.group_id for group in self._consumer)
        for _ in range(min(_GROUPS_PER_STEP, len(self._to_expire))):
            if self._is_over(self._to_expire[0], step):
                self._end_group(self._to_expire[0], step)
                step.tell(GroupDeleted(self._to_expire[0], "it is empty and has no offsets left", 0))
            if len(step.records) >= RECORDS_MAX:
                break  # of the same group there may be more
            self._to_expire.popleft()
        if self._to_expire:
            step.set_timer(EXPIRY, _PAUSE_MS)
        else:
            step.set_timer_again(EXPIRY, step.settings.offsets_retention_check_interval_ms)

    def _is_over(self, group_id: str, step: Step) -> bool:
        """Forgets what is too old. Whether nothing is left of the group then."""
        consumer = self._consumer.get(group_id)
        if consumer is not None:
            return expire(consumer.state, since_commit, self.committed, step) and consumer.state.is_empty
        classic = self._classic.get(group_id)
        since = None if classic is None else age_in_classic_group(classic)
        if classic is None or since is None or not expire(classic, since, self.committed, step):
            return False
        return classic.state is State.EMPTY and not classic.members.pending

    def unload(self) -> None:
        self.committed = CommittedOffsets()
        self._deletions = Deletions()
        self._to_expire.clear()

    # Topics that are gone

    def topics_deleted(self, names: Iterable[str], step: Step) -> None:
        self._deletions.add(names, self.committed)
        self.delete_some(step)

    def delete_some(self, step: Step) -> None:
        """Forgets some offsets of deleted topics; the others get their turn soon."""
        self._deletions.take(self.committed, step)
        if self._deletions:
            step.set_timer(DELETIONS, _PAUSE_MS)

    def appended(self) -> None:
        """The last step is in the log."""
        self._deletions.settle()

    def append_refused(self, step: Step) -> None:
        """It is not: deleted topics are tried again, and a look that is not over goes on later. All else is
        tried at the next look."""
        if self._deletions.put_back():
            step.set_timer_again(DELETIONS, 0)
        if self._to_expire:
            step.set_timer_again(EXPIRY, 0)


def _for_producers(code: ErrorCode) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code
