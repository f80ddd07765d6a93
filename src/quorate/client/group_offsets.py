"""How far a group has read: what it has committed, told to its coordinator and asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast

from quorate.client.cluster import Cluster, CoordinatorOf
from quorate.client.errors import code_of
from quorate.client.metadata import TopicPartition
from quorate.protocol.api.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Response
from quorate.values import dataclass

__all__ = ["NOBODY", "Committed", "Member", "commit_offsets", "committed_offsets"]

# The last version that names topics; later ones know them by id only.
_LAST_VERSION_BY_NAME: Final = 9


class Committed(NamedTuple):
    """Where a group goes on, the leader epoch of the record before that (-1 if unknown), and a remark."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """Who commits: a member of the group at its generation or epoch, or somebody outside."""

    id: str = ""
    generation: int = -1
    instance_id: str | None = None


NOBODY: Final = Member()


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    member: Member = NOBODY,
    *,
    timeout_ms: float | None = None,
) -> None:
    """Stores all of them, or raises the first error of any partition: then some may be stored."""
    topics: dict[str, list[OffsetCommitRequest.Topic.Partition]] = {}
    for at, one in sorted(offsets.items()):
        topics.setdefault(at.topic, []).append(
            OffsetCommitRequest.Topic.Partition(
                partition_index=at.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    if not topics:
        return
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.id,
        group_instance_id=member.instance_id,
        topics=[OffsetCommitRequest.Topic(name=name, partitions=some) for name, some in topics.items()],
    )
    await cluster.request(
        CoordinatorOf(group),
        request,
        version_cap=_LAST_VERSION_BY_NAME,
        error_of=_commit_error,
        timeout_ms=timeout_ms,
    )


async def committed_offsets(
    cluster: Cluster,
    group: str,
    partitions: Iterable[tuple[str, int]] | None = None,
    member: Member = NOBODY,
    *,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, Committed]:
    """What the group has committed for these partitions, or for all: only those where it has."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        topics.setdefault(topic, []).append(partition)
    asked = OffsetFetchRequest.Group(
        group_id=group,
        member_id=member.id or None,
        member_epoch=member.generation if member.id else -1,
        topics=None
        if partitions is None
        else [
            OffsetFetchRequest.Group.Topics(name=name, partition_indexes=sorted(some))
            for name, some in sorted(topics.items())
        ],
    )
    response = cast(
        "OffsetFetchResponse",
        await cluster.request(
            CoordinatorOf(group),
            OffsetFetchRequest(groups=[asked], require_stable=True),
            version_cap=_LAST_VERSION_BY_NAME,
            error_of=_fetch_error,
            timeout_ms=timeout_ms,
        ),
    )
    return {
        TopicPartition(topic.name, one.partition_index): Committed(
            one.committed_offset, one.committed_leader_epoch, one.metadata or ""
        )
        for topic in response.groups[0].topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


def _commit_error(response: Response) -> ErrorCode:
    assert isinstance(response, OffsetCommitResponse)
    codes = (code_of(one.error_code) for topic in response.topics for one in topic.partitions)
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)


def _fetch_error(response: Response) -> ErrorCode:
    assert isinstance(response, OffsetFetchResponse)
    if len(response.groups) != 1:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{len(response.groups)} groups instead of one")
    (group,) = response.groups
    codes = (code_of(one.error_code) for topic in group.topics for one in topic.partitions)
    first = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
    return code_of(group.error_code) if group.error_code else first
