"""Membership in a classic group: join, be given a part by the leader, stay by heartbeats, join again.

Every member that joins says which topics it wants. One of them is made the leader, and divides the partitions
among all: by ranges here, topic by topic, which every other client understands. When somebody comes or goes,
heartbeats are answered with REBALANCE_IN_PROGRESS, and everyone gives up what it has and joins again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from quorate.client.cluster import Cluster, CoordinatorOf
from quorate.client.errors import Unavailable
from quorate.client.group_offsets import Member
from quorate.client.membership import MembershipSettings
from quorate.client.metadata import TopicPartition
from quorate.coordinator.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from quorate.protocol.api.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer

__all__ = ["ClassicMembership", "divide_by_ranges"]

_PROTOCOL: Final = "range"
_VERSION: Final = 0  # of what members tell each other: the oldest, which everybody understands
_LEAVE_VERSION: Final = 2  # the last in which one member leaves; later ones have lists
_JOIN_SLACK_MS: Final = 5_000  # the coordinator answers when the time for joining is over

# Whoever hears one of these is not a member any more, and what it read may be read by others.
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_AGAIN: Final = _LOST | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}


class ClassicMembership:
    """A `Membership`."""

    def __init__(
        self, cluster: Cluster, group: str, topics: Sequence[str], settings: MembershipSettings
    ) -> None:
        self.news = asyncio.Event()
        self.news.set()
        self._cluster = cluster
        self._group = group
        self._topics = sorted(set(topics))
        self._settings = settings
        self._connections = cluster.open_connections()  # a join waits for the others, and its connection too
        self._member = Member(instance_id=settings.instance_id)
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._must_join = True
        self._has_lost = False
        self._error: Exception | None = None
        self._joining: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None  # until it is told to join again

    @property
    def member(self) -> Member:
        return self._member

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset() if self._must_join else self._assigned

    @property
    def to_revoke(self) -> frozenset[TopicPartition]:
        return self._assigned if self._must_join else frozenset()

    def lose_all(self) -> bool:
        had_lost, self._has_lost = self._has_lost, False
        return had_lost

    async def settle(self) -> None:
        self.news.clear()
        if self._error is not None:
            raise self._error
        # A join that began before may have ended since, and what it led to as well.
        while self._must_join or self._joining is not None:
            if self._joining is None:
                self._joining = asyncio.get_running_loop().create_task(self._join_until_in())
            joining = self._joining
            try:
                await asyncio.shield(joining)
            finally:
                if joining.done():
                    self._joining = None

    async def close(self) -> None:
        for task in (self._joining, self._beating):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._member.id and self._settings.instance_id is None:
            request = LeaveGroupRequest(group_id=self._group, member_id=self._member.id)
            with contextlib.suppress(ApiError, Unavailable):  # the session will end anyway
                await self._cluster.request(
                    CoordinatorOf(self._group), request, version_cap=_LEAVE_VERSION, timeout_ms=_JOIN_SLACK_MS
                )
        await self._cluster.close_connections(self._connections)

    # Joining

    async def _join_until_in(self) -> None:
        self._assigned = frozenset()
        while self._must_join:
            try:
                await self._join()
            except ApiError as error:
                if error.code not in _AGAIN:
                    raise
                if error.code in _LOST:
                    self._member = Member(instance_id=self._settings.instance_id)
            else:
                self._must_join = False
                self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def _join(self) -> None:
        settings = self._settings
        subscription = ConsumerProtocolSubscription(topics=self._topics)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self._member.id,
            group_instance_id=settings.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name=_PROTOCOL, metadata=_versioned(subscription))],
        )
        joined = cast("JoinGroupResponse", await self._ask(request, self._note_id))
        self._member = Member(joined.member_id, joined.generation_id, settings.instance_id)
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            wanted = {one.member_id: _topics_of(one.metadata) for one in joined.members}
            divided = divide_by_ranges(wanted, await self._partition_counts(wanted))
            assignments = [
                SyncGroupRequest.Assignment(member_id=member_id, assignment=_versioned(_assignment(some)))
                for member_id, some in divided.items()
            ]
        request_to_sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=settings.instance_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        synced = cast("SyncGroupResponse", await self._ask(request_to_sync))
        self._assigned = frozenset(_partitions_of(synced.assignment))

    def _note_id(self, response: Any) -> ErrorCode:
        """A new member is given an id first, with which it must ask again."""
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = Member(response.member_id, -1, self._settings.instance_id)
        return ErrorCode(response.error_code)

    async def _ask(
        self, request: Any, error_of: Any = lambda response: ErrorCode(response.error_code)
    ) -> Any:
        return await self._cluster.request(
            CoordinatorOf(self._group),
            request,
            timeout_ms=self._settings.rebalance_timeout_ms + _JOIN_SLACK_MS,
            error_of=error_of,
            connections=self._connections,
        )

    async def _partition_counts(self, wanted: Mapping[str, Sequence[str]]) -> dict[str, int]:
        names = sorted({name for some in wanted.values() for name in some})
        await self._cluster.refresh(*names)
        known = self._cluster.metadata.topics
        return {name: len(known[name].partitions) for name in names if name in known}

    # Staying

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
            member = self._member
            request = HeartbeatRequest(
                group_id=self._group,
                generation_id=member.generation,
                member_id=member.id,
                group_instance_id=member.instance_id,
            )
            try:
                await self._cluster.request(
                    CoordinatorOf(self._group), request, timeout_ms=self._settings.session_timeout_ms
                )
            except (ApiError, Unavailable) as error:
                code = error.code if isinstance(error, ApiError) else None
                if code in _LOST or isinstance(error, Unavailable):
                    self._has_lost = True
                    self._member = Member(instance_id=self._settings.instance_id)
                elif code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    self._error = error
                self._must_join = True
                self.news.set()
                return


def divide_by_ranges(
    wanted: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Who reads what: for every topic the members that want it, in order, get ranges of like size.

    >>> divide_by_ranges({"a": ["t"], "b": ["t"]}, {"t": 3})
    {'a': [TopicPartition(topic='t', partition=0), TopicPartition(topic='t', partition=1)], \
'b': [TopicPartition(topic='t', partition=2)]}
    """
    divided: dict[str, list[TopicPartition]] = {member: [] for member in sorted(wanted)}
    for topic in sorted(partition_counts):
        members = [member for member in divided if topic in wanted[member]]
        each, more = divmod(partition_counts[topic], len(members)) if members else (0, 0)
        first = 0
        for number, member in enumerate(members):
            last = first + each + (1 if number < more else 0)
            divided[member] += [TopicPartition(topic, partition) for partition in range(first, last)]
            first = last
    return divided


def _versioned(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment) -> bytes:
    return _VERSION.to_bytes(2, "big") + bytes(encode(message, _VERSION))


def _topics_of(metadata: Buffer) -> list[str]:
    version = min(int.from_bytes(metadata[:2], "big"), ConsumerProtocolSubscription.__versions__[-1])
    return list(decode(ConsumerProtocolSubscription, version, memoryview(metadata)[2:]).topics)


def _assignment(partitions: Sequence[TopicPartition]) -> ConsumerProtocolAssignment:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=some)
            for topic, some in topics.items()
        ]
    )


def _partitions_of(assignment: Buffer) -> list[TopicPartition]:
    if not assignment:
        return []
    version = min(int.from_bytes(assignment[:2], "big"), ConsumerProtocolAssignment.__versions__[-1])
    found = decode(ConsumerProtocolAssignment, version, memoryview(assignment)[2:])
    return [
        TopicPartition(one.topic, partition)
        for one in found.assigned_partitions
        for partition in one.partitions
    ]
