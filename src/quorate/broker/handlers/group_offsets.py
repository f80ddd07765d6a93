"""How far groups have consumed: committed, fetched and deleted.

Coordinators know topics by name, and believe that they exist. Here ids become names, what does not exist or
is not the asker's is taken out of the request, and is added to the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from quorate.broker.coordinators import Hosted
from quorate.broker.groups import Groups
from quorate.broker.handlers.commit_again import CommitsAgain
from quorate.broker.handlers.group_members import caller_of, refuse
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.coordinator.effects import Caller
from quorate.coordinator.offsets import answer_one_group, fetch_one_group
from quorate.coordinator.shard import GroupShard
from quorate.net.many import answers_for_each
from quorate.net.routes import Answer, RequestContext, Route
from quorate.net.shortcuts import Shortcut
from quorate.net.slices import Work, in_slices
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

__all__ = ["GroupOffsets"]

_TOPIC_IDS_SINCE: Final = 10
_MANY_GROUPS_SINCE: Final = 8

R = TypeVar("R")
T = TypeVar("T")
FetchedGroup = OffsetFetchResponse.Group
FetchedTopic = OffsetFetchResponse.Group.Topics
FetchedPartition = OffsetFetchResponse.Group.Topics.Partitions


class _Refused(NamedTuple):
    """A partition that is not the coordinator's business."""

    topic: str
    topic_id: Uuid
    partition_id: int
    error: ErrorCode


class GroupOffsets:
    """Answers OffsetCommit, OffsetFetch and OffsetDelete."""

    def __init__(self, broker: Broker, groups: Groups) -> None:
        self._broker = broker
        self._groups = groups

    def routes(self) -> list[Route]:
        return [
            Route(OffsetCommitRequest, self._commit, shortcut=self._shortcut),
            Route(OffsetFetchRequest, self._fetch),
            Route(OffsetDeleteRequest, self._delete),
        ]

    # Commit

    def _shortcut(self) -> Shortcut:
        return CommitsAgain(self._broker, self._groups, self._is_known)

    def _commit(
        self, context: RequestContext, header: RequestHeader, request: OffsetCommitRequest
    ) -> Answer | Awaitable[Answer]:
        version = header.request_api_version
        if not self._broker.authorize(context, Operation.READ, ResourceKind.GROUP, request.group_id):
            return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if version < _TOPIC_IDS_SINCE and self._is_known(context, request.topics, version):
            hosted = self._groups.active(request.group_id)
            if hosted is not None:
                return _commit_to(hosted, context, version, request)
        ids = self._name_topics(request.topics) if version >= _TOPIC_IDS_SINCE else {}
        kept, refused = [], []
        for topic in request.topics:
            found, some = self._known_partitions(context, topic, Operation.READ)
            refused += some
            if found:
                topic.partitions = found
                kept.append(topic)
        request.topics = kept
        if not kept:
            return _with_refused_commits(OffsetCommitResponse(topics=[]), refused, ids)
        try:
            hosted = self._groups.of(request.group_id)
        except ApiError as error:
            answer = refuse(request, version, error.code)
            return _with_refused_commits(answer, refused, ids)
        answered = _commit_to(hosted, context, version, request)
        if not refused and not ids:
            return answered
        return _then(answered, lambda answer: _with_refused_commits(answer, refused, ids))

    # Fetch

    def _fetch(
        self, context: RequestContext, header: RequestHeader, request: OffsetFetchRequest
    ) -> Answer | Awaitable[Answer]:
        version = header.request_api_version
        if version < _MANY_GROUPS_SINCE:
            group = fetch_one_group(request)
            answer = self._fetch_group(context, version, group, is_stable=request.require_stable)
            return _then(answer, lambda found: answer_one_group(request, version, found))

        def fetched(group: OffsetFetchRequest.Group) -> FetchedGroup | Awaitable[FetchedGroup]:
            return self._fetch_group(context, version, group, is_stable=request.require_stable)

        def work() -> Work[OffsetFetchResponse]:
            kind = FetchedGroup, OffsetFetchResponse, version
            groups = yield from answers_for_each(context, request.groups, fetched, kind)
            return OffsetFetchResponse(groups=groups)

        return in_slices(work())

    def _fetch_group(
        self, context: RequestContext, version: int, group: OffsetFetchRequest.Group, *, is_stable: bool
    ) -> FetchedGroup | Awaitable[FetchedGroup]:
        broker = self._broker
        if not broker.authorize(context, Operation.DESCRIBE, ResourceKind.GROUP, group.group_id):
            return FetchedGroup(
                group_id=group.group_id, topics=[], error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
            )
        ids: dict[str, Uuid] = {}
        refused: list[FetchedTopic] = []
        is_all = group.topics is None
        if group.topics is not None:
            if version >= _TOPIC_IDS_SINCE:
                ids = self._name_topics(group.topics)
            kept = []
            for topic in group.topics:
                error = self._topic_error(context, topic, Operation.DESCRIBE)
                if error is ErrorCode.NONE:
                    kept.append(topic)
                else:
                    refused.append(_refused_fetch(topic, error))
            group.topics = kept

        def complete(answer: FetchedGroup) -> FetchedGroup:
            if is_all:
                answer.topics = [one for one in answer.topics if self._may_see(context, one.name)]
            if version >= _TOPIC_IDS_SINCE:
                answer.topics = self._with_ids(answer.topics, ids)
            if answer.error_code == ErrorCode.NONE:
                answer.topics = [*answer.topics, *refused]
            return answer

        # Asked in a version that has groups; what the version of the client changes, is changed above.
        request = OffsetFetchRequest(groups=[group], require_stable=is_stable)
        answer = self._ask_for_offsets(request, caller_of(context, max(version, _MANY_GROUPS_SINCE)))
        return _then(answer, lambda response: complete(response.groups[0]))

    def _ask_for_offsets(
        self, request: OffsetFetchRequest, caller: Caller
    ) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
        def refused(code: ErrorCode) -> OffsetFetchResponse:
            return cast("OffsetFetchResponse", refuse(request, caller.version, code))

        try:
            hosted = self._groups.of(request.groups[0].group_id)
        except ApiError as error:
            return refused(error.code)
        shard = hosted.shard
        return hosted.ask(lambda ticket, moment: shard.offset_fetch(ticket, request, caller, moment), refused)

    def _may_see(self, context: RequestContext, topic: str) -> bool:
        return self._broker.authorize(context, Operation.DESCRIBE, ResourceKind.TOPIC, topic)

    def _with_ids(self, topics: Iterable[FetchedTopic], ids: dict[str, Uuid]) -> list[FetchedTopic]:
        """Topics by their ids; those that are no more are left out."""
        found = []
        for topic in topics:
            known = self._broker.image.topics.by_name.get(topic.name)
            topic_id = ids.get(topic.name) or (None if known is None else known.id)
            if topic_id is not None:
                topic.topic_id = topic_id
                found.append(topic)
        return found

    # Delete

    def _delete(
        self, context: RequestContext, header: RequestHeader, request: OffsetDeleteRequest
    ) -> Answer | Awaitable[Answer]:
        version = header.request_api_version
        if not self._broker.authorize(context, Operation.DELETE, ResourceKind.GROUP, request.group_id):
            return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            return refuse(request, version, ErrorCode.INVALID_GROUP_ID)
        kept, refused = [], []
        for topic in request.topics:
            found, some = self._known_partitions(context, topic, Operation.READ)
            refused += some
            if found:
                topic.partitions = found
                kept.append(topic)
        request.topics = kept
        try:
            hosted = self._groups.of(request.group_id)
        except ApiError as error:
            return refuse(request, version, error.code)
        shard, caller = hosted.shard, caller_of(context, version)
        answered = hosted.ask(
            lambda ticket, moment: shard.offset_delete(ticket, request, caller, moment),
            lambda code: refuse(request, version, code),
        )
        return _then(answered, lambda answer: _with_refused_deletions(answer, refused))

    # Topics

    def _name_topics(self, topics: Iterable[Any]) -> dict[str, Uuid]:
        """Gives topics that were called by their ids their names. An unknown one has none."""
        ids = {}
        for topic in topics:
            known = self._broker.image.topics.by_id.get(topic.topic_id)
            topic.name = "" if known is None else known.name
            if known is not None:
                ids[known.name] = known.id
        return ids

    def _topic_error(self, context: RequestContext, topic: Any, operation: int) -> ErrorCode:
        if not topic.name and getattr(topic, "topic_id", None):
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._broker.authorize(context, operation, ResourceKind.TOPIC, topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE

    def _is_known(
        self, context: RequestContext, topics: Sequence[OffsetCommitRequest.Topic], version: int
    ) -> bool:
        """Whether all that a commit names exists and is the asker's, as it is nearly always. Topics have
        names, and also the ids that they were called by in versions with ids."""
        broker = self._broker
        image = broker.image
        for topic in topics:
            known = image.topics.by_name.get(topic.name)
            if known is None or not broker.authorize(context, Operation.READ, ResourceKind.TOPIC, topic.name):
                return False
            if version >= _TOPIC_IDS_SINCE and known.id != topic.topic_id:
                return False
            number = image.partitions.count_of(known.slot)
            for one in topic.partitions:
                if not 0 <= one.partition_index < number:
                    return False
            if not topic.partitions:
                return False
        return bool(topics)

    def _known_partitions(
        self, context: RequestContext, topic: Any, operation: int
    ) -> tuple[list[Any], list[_Refused]]:
        """The partitions of a topic in a request that exist and are the asker's, and the others."""
        error = self._topic_error(context, topic, operation)
        image = self._broker.image
        known = image.topics.by_name.get(topic.name)
        number = 0 if known is None else image.partitions.count_of(known.slot)
        kept, refused = [], []
        for one in topic.partitions:
            if error is ErrorCode.NONE and 0 <= one.partition_index < number:
                kept.append(one)
                continue
            why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is ErrorCode.NONE else error
            topic_id = getattr(topic, "topic_id", Uuid(bytes(16)))
            refused.append(_Refused(topic.name, topic_id, one.partition_index, why))
        return kept, refused


def _commit_to(
    hosted: Hosted[GroupShard], context: RequestContext, version: int, request: OffsetCommitRequest
) -> Answer | Awaitable[Answer]:
    shard, caller = hosted.shard, caller_of(context, version)
    return hosted.ask(
        lambda ticket, moment: shard.offset_commit(ticket, request, caller, moment),
        lambda code: refuse(request, version, code),
    )


def _with_refused_commits(
    answer: Any, refused: Iterable[_Refused], ids: dict[str, Uuid]
) -> OffsetCommitResponse:
    assert isinstance(answer, OffsetCommitResponse)
    topic_class = OffsetCommitResponse.Topic
    for topic in answer.topics:
        topic.topic_id = ids.get(topic.name, topic.topic_id)
    added = [
        topic_class(
            name=name,
            topic_id=topic_id,
            partitions=[
                topic_class.Partition(partition_index=one.partition_id, error_code=one.error) for one in some
            ],
        )
        for (name, topic_id), some in _by_topic(refused).items()
    ]
    if added:  # then each topic stands there once
        gathered: dict[tuple[str, Uuid], OffsetCommitResponse.Topic] = {}
        for topic in (*answer.topics, *added):
            first = gathered.setdefault((topic.name, topic.topic_id), topic)
            if first is not topic:
                first.partitions += topic.partitions
        answer.topics = list(gathered.values())
    return answer


def _with_refused_deletions(answer: Any, refused: Iterable[_Refused]) -> OffsetDeleteResponse:
    assert isinstance(answer, OffsetDeleteResponse)
    topic_class = OffsetDeleteResponse.Topic
    if answer.error_code == ErrorCode.NONE:
        added = [
            topic_class(
                name=name,
                partitions=[
                    topic_class.Partition(partition_index=one.partition_id, error_code=one.error)
                    for one in some
                ],
            )
            for (name, _), some in _by_topic(refused).items()
        ]
        answer.topics = [*answer.topics, *added]
    return answer


def _refused_fetch(topic: OffsetFetchRequest.Group.Topics, error: ErrorCode) -> FetchedTopic:
    return FetchedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            FetchedPartition(
                partition_index=one,
                committed_offset=-1,
                committed_leader_epoch=-1,
                metadata="",
                error_code=error,
            )
            for one in topic.partition_indexes
        ],
    )


def _by_topic(refused: Iterable[_Refused]) -> dict[tuple[str, Uuid], list[_Refused]]:
    found: dict[tuple[str, Uuid], list[_Refused]] = {}
    for one in refused:
        found.setdefault((one.topic, one.topic_id), []).append(one)
    return found


def _then(answer: R | Awaitable[R], change: Callable[[R], T]) -> T | Awaitable[T]:
    """What becomes of an answer, now or when it is there."""
    if not isinstance(answer, Awaitable):
        return change(answer)

    async def wait() -> T:
        return change(await answer)

    return wait()
