"""Groups as an operator sees them: which there are, who is in them, how far they are; and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from quorate.client.cluster import Cluster, CoordinatorOf
from quorate.client.errors import code_of
from quorate.client.group_offsets import Committed, committed_offsets
from quorate.client.metadata import TopicPartition
from quorate.client.offsets import LATEST, list_offsets
from quorate.coordinator.consumer_protocol import ConsumerProtocolAssignment
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from quorate.protocol.codec import decode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Response
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError
from quorate.values import dataclass

__all__ = ["Group", "GroupMember", "GroupSummary", "Groups", "Lag"]

CONSUMER: Final = "consumer"
_MEANS_ANOTHER_KIND: Final = frozenset(
    {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_GROUP_ID,  # only a classic group may have an empty name
    }
)


class GroupSummary(NamedTuple):
    """One line of a list. State and kind are empty if the broker is too old to say."""

    group: str
    protocol_type: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member, where it is, and what it reads."""

    id: str
    client_id: str
    host: str
    instance_id: str | None = None
    epoch: int | None = None  # of a consumer group's member
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A group in full. `protocol` is the assignor; `epoch` is known of consumer groups only."""

    group: str
    kind: str
    state: str
    protocol: str
    coordinator: int
    epoch: int | None = None
    members: tuple[GroupMember, ...] = ()


class Lag(NamedTuple):
    """How far a group is in a partition, and how far it could be. None is unknown."""

    at: TopicPartition
    committed: Committed | None
    end_offset: int | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed.offset)


class Groups:
    """Asks coordinators."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def all(self, *, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[GroupSummary]:
        """All groups of the cluster, by name: every broker is asked for its own."""
        await self._cluster.refresh()
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))
        answers = await asyncio.gather(
            *(self._cluster.request(one, request) for one in sorted(self._cluster.metadata.brokers))
        )
        found = [
            GroupSummary(one.group_id, one.protocol_type, one.group_state, one.group_type)
            for answer in answers
            for one in cast("ListGroupsResponse", answer).groups
        ]
        return sorted(found)

    async def describe(self, group: str) -> Group:
        """A group of either kind. `ApiError`, GROUP_ID_NOT_FOUND, if there is none."""
        try:
            return await self._describe_consumer(group)
        except ApiError as error:
            if error.code not in _MEANS_ANOTHER_KIND:
                raise
        return await self._describe_classic(group)

    async def lag(self, group: str) -> list[Lag]:
        """Every partition for which the group has committed, or that one of its members reads."""
        committed = await committed_offsets(self._cluster, group)
        try:
            members = (await self.describe(group)).members
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND or not committed:
                raise
            members = ()
        places = sorted({*committed, *(at for one in members for at in one.partitions)})
        ends = await self._ends(places)
        return [Lag(at, committed.get(at), ends.get(at)) for at in places]

    async def delete(self, group: str) -> None:
        """Deletes a group without members, and what it has committed."""

        def error_of(response: Response) -> ErrorCode:
            return code_of(cast("DeleteGroupsResponse", response).results[0].error_code)

        await self._cluster.request(
            CoordinatorOf(group), DeleteGroupsRequest(groups_names=[group]), error_of=error_of
        )

    # How

    async def _describe_consumer(self, group: str) -> Group:
        def error_of(response: Response) -> ErrorCode:
            (said,) = cast("ConsumerGroupDescribeResponse", response).groups
            code = code_of(said.error_code)
            if said.error_message and code is not ErrorCode.NONE and not code.retriable:
                raise ApiError(code, said.error_message)
            return code

        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        answer = await self._cluster.request(CoordinatorOf(group), request, error_of=error_of)
        (said,) = cast("ConsumerGroupDescribeResponse", answer).groups
        return Group(
            group,
            CONSUMER,
            said.group_state,
            said.assignor_name,
            await self._coordinator(group),
            said.group_epoch,
            tuple(
                GroupMember(
                    one.member_id,
                    one.client_id,
                    one.client_host,
                    one.instance_id,
                    one.member_epoch,
                    tuple(
                        TopicPartition(topic.topic_name, partition)
                        for topic in one.assignment.topic_partitions
                        for partition in topic.partitions
                    ),
                )
                for one in said.members
            ),
        )

    async def _describe_classic(self, group: str) -> Group:
        def error_of(response: Response) -> ErrorCode:
            return code_of(cast("DescribeGroupsResponse", response).groups[0].error_code)

        request = DescribeGroupsRequest(groups=[group])
        answer = await self._cluster.request(CoordinatorOf(group), request, error_of=error_of)
        (said,) = cast("DescribeGroupsResponse", answer).groups
        if said.group_state == "Dead":
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
        return Group(
            group,
            "classic",
            said.group_state,
            said.protocol_data,
            await self._coordinator(group),
            None,
            tuple(
                GroupMember(
                    one.member_id,
                    one.client_id,
                    one.client_host,
                    one.group_instance_id,
                    None,
                    _assigned(one.member_assignment) if said.protocol_type == CONSUMER else (),
                )
                for one in said.members
            ),
        )

    async def _coordinator(self, group: str) -> int:
        return (await self._cluster.coordinator(group)).id

    async def _ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end; those that are gone, or have no leader, are left out."""
        await self._cluster.refresh(*sorted({at.topic for at in places}))
        known = [at for at in places if self._cluster.metadata.leader(at) is not None]
        listed = await list_offsets(self._cluster, dict.fromkeys(known, LATEST))
        return {at: one.offset for at, one in listed.items()}


def _assigned(assignment: Buffer) -> tuple[TopicPartition, ...]:
    """What a member reads, as far as the leader of the group wrote that as consumers do."""
    if len(assignment) < 2:
        return ()
    version = min(int.from_bytes(assignment[:2], "big"), ConsumerProtocolAssignment.__versions__[-1])
    try:
        found = decode(ConsumerProtocolAssignment, version, memoryview(assignment)[2:])
    except (ApiError, MalformedError):
        return ()
    return tuple(
        TopicPartition(one.topic, partition)
        for one in found.assigned_partitions
        for partition in one.partitions
    )
