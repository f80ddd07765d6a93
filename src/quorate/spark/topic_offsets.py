"""From where to where: what options say becomes offsets of partitions, and those become pieces of work.

Offsets are asked of the leaders, and the end of a partition is its high watermark (or the end of what is
committed, for who reads only that): nothing is planned that could still be taken back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from quorate.client.admin import Admin
from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable
from quorate.client.metadata import Topic, TopicPartition
from quorate.client.offsets import EARLIEST, LATEST, list_offsets
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.spark.topic_options import (
    Assigned,
    AtTimestamps,
    Position,
    Subscribed,
    SubscribedPattern,
    TopicOptions,
)

__all__ = [
    "DataLossError",
    "Offsets",
    "TopicChangedError",
    "TopicRange",
    "check_id",
    "known_partitions",
    "planned",
    "resolved",
    "within_limits",
]

Offsets: TypeAlias = dict[TopicPartition, int]


class DataLossError(RuntimeError):
    """Records that were asked for, or planned, are not there any more."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. With the option failOnDataLoss=false reading goes on without them.")


class TopicChangedError(Exception):
    """A topic was deleted and created again while something was asked of it by its id."""


def check_id(cluster: Cluster, topic: str, topic_id: str, code: ErrorCode) -> ErrorCode:
    """The code of a response. What may pass does not if the topic with this id is gone for good."""
    if code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
        known = cluster.metadata.topics.get(topic)
        if known is not None and str(known.id) != topic_id:
            raise TopicChangedError(
                f"the topic {topic!r} with id {topic_id} was deleted; the one of that name has id {known.id}"
            )
    return code


@dataclass(frozen=True)
class TopicRange(InputPartition):
    """Some offsets of one partition: from `start_offset` to before `end_offset`."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.at} [{self.start_offset}, {self.end_offset})"


async def known_partitions(
    cluster: Cluster, what: Subscribed | SubscribedPattern | Assigned
) -> dict[TopicPartition, str]:
    """The partitions that are read now, and the ids of their topics."""
    if isinstance(what, SubscribedPattern):
        expression = re.compile(what.pattern)
        everything = await Admin(cluster).list_topics()
        names = sorted(
            name for name, one in everything.items() if not one.is_internal and expression.fullmatch(name)
        )
    elif isinstance(what, Subscribed):
        names = sorted(what.topics)
    else:
        names = sorted({at.topic for at in what.partitions})
    topics = await _topics(cluster, names)
    if isinstance(what, Assigned):
        for at in what.partitions:
            if at.partition not in topics[at.topic].partitions:
                there_are = f"{at.topic!r} has {len(topics[at.topic].partitions)} partitions"
                raise ValueError(f"option assign names {at}, but {there_are}")
        return {at: str(topics[at.topic].id) for at in sorted(what.partitions)}
    return {
        TopicPartition(name, index): str(topic.id)
        for name, topic in topics.items()
        for index in sorted(topic.partitions)
    }


async def _topics(cluster: Cluster, names: Sequence[str]) -> dict[str, Topic]:
    """As they are now, not as they were when this process heard of them first."""
    await _refreshed(cluster, names)
    found = {}
    for name in names:
        try:
            found[name] = await cluster.topic(name)
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ValueError(f"there is no topic {name!r} on this cluster") from None
            raise
    return found


async def _refreshed(cluster: Cluster, names: Sequence[str]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + cluster.settings.deadline_ms / 1000
    attempt = 0
    while True:
        try:
            return await cluster.refresh(*names)
        except Unavailable:
            attempt += 1
            delay = cluster.settings.backoff.delay_ms(attempt, cluster.random) / 1000
            if loop.time() + delay >= deadline:
                raise
        await asyncio.sleep(delay)


async def resolved(
    cluster: Cluster, position: Position, partitions: Iterable[TopicPartition], options: TopicOptions
) -> Offsets:
    """The offset of each partition that a position names."""
    all_of_them = list(partitions)
    if isinstance(position, AtTimestamps):
        return await _at_timestamps(cluster, position, all_of_them, options)
    if position.everywhere is not None:
        return await _listed(cluster, dict.fromkeys(all_of_them, position.everywhere), options)
    each = _each(position.each or {}, all_of_them)
    asked = {at: number for at, number in each.items() if number in (EARLIEST, LATEST)}
    return {**each, **await _listed(cluster, asked, options)}


async def within_limits(cluster: Cluster, offsets: Offsets, options: TopicOptions, name: str) -> Offsets:
    """Offsets that somebody wrote down, if the partitions have them; or the nearest, if that is allowed."""
    earliest = await _listed(cluster, dict.fromkeys(offsets, EARLIEST), options)
    latest = await _listed(cluster, dict.fromkeys(offsets, LATEST), options)
    kept = {at: min(max(offset, earliest[at]), latest[at]) for at, offset in offsets.items()}
    moved = [at for at in offsets if kept[at] != offsets[at]]
    if moved and options.fail_on_data_loss:
        told = ", ".join(f"{at} has {earliest[at]} to {latest[at]}, not {offsets[at]}" for at in moved)
        raise DataLossError(f"option {name} is out of range: {told}")
    return kept


def planned(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    ids: Mapping[TopicPartition, str],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[TopicRange]:
    """A piece for each partition that has something, or more and smaller ones if that is asked for."""
    whole = [
        TopicRange(at.topic, ids[at], at.partition, starts[at], ends[at])
        for at in sorted(starts)
        if starts[at] < ends[at]
    ]
    total = sum(one.end_offset - one.start_offset for one in whole)
    pieces: list[TopicRange] = []
    for one in whole:
        size = one.end_offset - one.start_offset
        count = 1
        if min_partitions is not None and min_partitions > len(whole):
            count = max(1, round(size / total * min_partitions))
        if max_records is not None:
            count = max(count, -(-size // max_records))
        pieces += split(one, min(count, size))
    return pieces


def split(whole: TopicRange, count: int) -> list[TopicRange]:
    """As many ranges, as equal as can be.

    >>> [(one.start_offset, one.end_offset) for one in split(TopicRange("orders", "", 0, 10, 17), 3)]
    [(10, 12), (12, 14), (14, 17)]
    """
    size = whole.end_offset - whole.start_offset
    cuts = [whole.start_offset + size * index // count for index in range(count + 1)]
    return [
        TopicRange(whole.topic, whole.topic_id, whole.partition, start, end) for start, end in pairwise(cuts)
    ]


async def _at_timestamps(
    cluster: Cluster, position: AtTimestamps, partitions: list[TopicPartition], options: TopicOptions
) -> Offsets:
    if position.everywhere_ms is not None:
        wanted = dict.fromkeys(partitions, position.everywhere_ms)
    else:
        wanted = _each(position.each_ms or {}, partitions)
    found = await _listed(cluster, wanted, options)
    none = [at for at, offset in found.items() if offset < 0]
    if none and not position.latest_if_none:
        told = ", ".join(f"{at} from {wanted[at]} ms on" for at in none)
        raise ValueError(
            f"no records at or after the starting timestamp: {told}."
            " With startingOffsetsByTimestampStrategy=latest reading begins at the end there."
        )
    return {**found, **await _listed(cluster, dict.fromkeys(none, LATEST), options)}


async def _listed(cluster: Cluster, wanted: Offsets, options: TopicOptions) -> Offsets:
    if not wanted:
        return {}
    asked: dict[tuple[str, int], int] = dict(wanted.items())
    listed = await list_offsets(cluster, asked, isolation_level=options.isolation)
    return {at: one.offset for at, one in listed.items()}


def _each(given: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]) -> Offsets:
    """What each partition is given: nobody may be forgotten, and nobody invented."""
    missing = [str(at) for at in partitions if at not in given]
    unknown = [str(at) for at in given if at not in set(partitions)]
    if missing or unknown:
        told = "; ".join(
            [
                *([f"nothing is said about {', '.join(missing)}"] if missing else []),
                *([f"{', '.join(unknown)} is not read"] if unknown else []),
            ]
        )
        raise ValueError(f"offsets or timestamps by partition must name every partition that is read: {told}")
    return {at: given[at] for at in partitions}
