"""Questions about offsets, each of which only the leader of a partition can answer.

`ask_leaders` sends one request to every leader that leads any of the partitions, all at the same time, and
says who answered what. What failed in a way that may pass, the caller asks again: `list_offsets` does until
its time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar, cast

from quorate.client.cluster import Cluster, LeaderOf
from quorate.client.errors import all_failures, code_of
from quorate.client.metadata import TopicPartition
from quorate.protocol.api.produce_fetch import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "EpochEnd", "ListedOffset", "ask_leaders", "list_offsets"]

# In place of a timestamp: the end of a partition, its beginning, and its newest record by timestamp.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

_CONSUMER: Final = -1

T = TypeVar("T")

# What a leader said about a partition: an error code, and the answer if there is none.
Answers = Mapping[TopicPartition, tuple[ErrorCode, T]]


class ListedOffset(NamedTuple):
    """The first record at or after a timestamp: -1 and -1 if there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """Where a leader epoch, or the one before it that the log has, ended: -1 and -1 if none is known."""

    epoch: int
    end_offset: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[tuple[str, int], int],
    *,
    isolation_level: int = 0,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, ListedOffset]:
    """The offset for each timestamp, which may be `EARLIEST`, `LATEST` or `MAX_TIMESTAMP`.

    With isolation level 1 the end is that of the committed records.
    """
    loop = asyncio.get_running_loop()
    settings = cluster.settings
    deadline = loop.time() + (settings.deadline_ms if timeout_ms is None else timeout_ms) / 1000
    left = {TopicPartition(*at): timestamp for at, timestamp in wanted.items()}
    found: dict[TopicPartition, ListedOffset] = {}
    for topic in dict.fromkeys(at.topic for at in left):
        await cluster.topic(topic, timeout_ms=(deadline - loop.time()) * 1000)
    attempt = 0
    while True:
        listed = await listed_offsets(cluster, left, isolation_level)
        found |= {at: offset for at, (code, offset) in listed.items() if not code}
        failures = {at: code for at, (code, _) in listed.items() if code}
        if not failures:
            return {TopicPartition(*at): found[TopicPartition(*at)] for at in wanted}
        left = {at: left[at] for at in failures}
        attempt += 1
        delay_ms = settings.backoff.delay_ms(attempt, cluster.random)
        is_late = loop.time() + delay_ms / 1000 >= deadline
        final = {at: code for at, code in failures.items() if is_late or not code.retriable}
        if final:
            raise all_failures([ApiError(code, f"offsets of {at}") for at, code in final.items()])
        cluster.refresh_soon()
        await asyncio.sleep(delay_ms / 1000)


async def listed_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation_level: int
) -> Answers[ListedOffset]:
    """One attempt at `list_offsets`."""

    def ask(partitions: list[TopicPartition]) -> Request:
        topics: dict[str, ListOffsetsRequest.Topic] = {}
        for at in partitions:
            topic = topics.setdefault(at.topic, ListOffsetsRequest.Topic(name=at.topic, partitions=[]))
            topic.partitions.append(
                ListOffsetsRequest.Topic.Partition(
                    partition_index=at.partition,
                    current_leader_epoch=_epoch(cluster, at),
                    timestamp=wanted[at],
                )
            )
        timeout_ms = int(cluster.settings.request_timeout_ms)
        return ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=isolation_level,
            topics=list(topics.values()),
            timeout_ms=timeout_ms,
        )

    def read(response: Response) -> Iterable[tuple[TopicPartition, int, ListedOffset]]:
        for topic in cast("ListOffsetsResponse", response).topics:
            for one in topic.partitions:
                at = TopicPartition(topic.name, one.partition_index)
                yield at, one.error_code, ListedOffset(one.offset, one.timestamp, one.leader_epoch)

    return await ask_leaders(cluster, wanted, ask, read)


async def epoch_ends(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> Answers[EpochEnd]:
    """Where the leaders say that these epochs ended: one attempt."""

    def ask(partitions: list[TopicPartition]) -> Request:
        topics: dict[str, OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
        for at in partitions:
            topic = topics.setdefault(
                at.topic, OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=at.topic, partitions=[])
            )
            topic.partitions.append(
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
                    partition=at.partition,
                    current_leader_epoch=_epoch(cluster, at),
                    leader_epoch=epochs[at],
                )
            )
        return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))

    def read(response: Response) -> Iterable[tuple[TopicPartition, int, EpochEnd]]:
        for topic in cast("OffsetForLeaderEpochResponse", response).topics:
            for one in topic.partitions:
                end = EpochEnd(one.leader_epoch, one.end_offset)
                yield TopicPartition(topic.topic, one.partition), one.error_code, end

    return await ask_leaders(cluster, epochs, ask, read)


async def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[list[TopicPartition]], Request],
    read: Callable[[Response], Iterable[tuple[TopicPartition, int, T]]],
) -> Answers[T]:
    """Asks every leader about its partitions, once. One without an answer gets a code that may pass."""
    by_leader: dict[int, list[TopicPartition]] = {}
    answers: dict[TopicPartition, tuple[ErrorCode, T]] = {}
    nothing = cast("T", None)
    for at in partitions:
        leader = cluster.metadata.leader(at)
        answers[at] = ErrorCode.LEADER_NOT_AVAILABLE, nothing
        if leader is not None:
            by_leader.setdefault(leader.id, []).append(at)

    async def ask_one(leader: int, asked: list[TopicPartition]) -> None:
        try:
            response = await cluster.request(leader, ask(asked), retries=0)
        except ConnectionError:
            code = ErrorCode.NETWORK_EXCEPTION
        except ApiError as error:
            code = error.code
        else:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # for those about which it says nothing
            for at, number, answer in read(response):
                answers[at] = code_of(number), answer
            asked = []
        for at in asked:
            answers[at] = code, nothing

    await asyncio.gather(*(ask_one(leader, asked) for leader, asked in by_leader.items()))
    return answers


def _epoch(cluster: Cluster, at: LeaderOf | TopicPartition) -> int:
    partition = cluster.metadata.partition(at)
    return -1 if partition is None else partition.leader_epoch
