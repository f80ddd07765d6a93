"""Sends whole batches, each of them once, and finds out afterwards which of them are there.

A producer is an id, an epoch and, for each partition, the sequence number that comes next. All of it stands
in the header of every batch, on disk too. So whoever knows them can look into the log and see how far a
producer came, even one that has died; and a batch that is sent again under the same numbers is stored once.

One batch of a partition is under way at a time. What becomes of it is then never in doubt for more than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from quorate.client.cluster import ANY, Cluster, LeaderOf
from quorate.client.errors import code_of
from quorate.client.metadata import TopicPartition
from quorate.protocol.api.produce_fetch import ProduceRequest, ProduceResponse
from quorate.protocol.api.transactions import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.batch import BatchHeader, set_producer
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Response
from quorate.protocol.types import ZERO_UUID
from quorate.spark.topic_offsets import TopicChangedError, check_id

__all__ = [
    "Identity",
    "Publisher",
    "SequenceRefusedError",
    "new_identity",
    "next_sequence",
]

_ACKS_ALL: Final = -1
_LAST_VERSION_BY_NAME: Final = 12
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_REFUSED: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class SequenceRefusedError(RuntimeError):
    """A leader has not the batch before this one, or has this one and many after it."""


@dataclass(slots=True)
class Publisher:
    """Sends batches under one identity. Which sequence number comes next is known for each partition."""

    cluster: Cluster
    identity: Identity
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    # Of topics that must not be others than those that were meant.
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    async def publish(self, at: TopicPartition, count: int, data: bytearray) -> int:
        """Sends the next batch of a partition, until it is there. Returns its offset, -1 if nobody said."""
        while True:
            sequence = self.sequences.get(at, 0)
            set_producer(data, 0, *self.identity, sequence)
            try:
                offset = await self._send(at, data)
                break
            except TopicChangedError:
                if at.topic in self.topic_ids:
                    raise
                # Nobody there knows this producer.
                self.sequences = {one: n for one, n in self.sequences.items() if one.topic != at.topic}
        self.sequences[at] = next_sequence(sequence, count)
        return offset

    async def publish_all(self, batches: Mapping[TopicPartition, Iterable[tuple[int, bytearray]]]) -> None:
        """All batches of all partitions; those of one partition one after the other."""

        async def one_by_one(at: TopicPartition) -> None:
            for count, data in batches[at]:
                await self.publish(at, count, data)

        async with asyncio.TaskGroup() as group:
            for at in batches:
                group.create_task(one_by_one(at))

    async def _send(self, at: TopicPartition, data: bytearray) -> int:
        known = self.cluster.metadata.topics.get(at.topic) or await self.cluster.topic(at.topic)
        topic_id = str(known.id)
        if self.topic_ids.get(at.topic, topic_id) != topic_id:
            raise TopicChangedError(f"{at.topic!r} has id {topic_id}, not {self.topic_ids[at.topic]}")
        kind = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=int(self.cluster.settings.request_timeout_ms * 3 / 4),
            topic_data=[
                kind(
                    name=at.topic,
                    topic_id=known.id,
                    partition_data=[kind.PartitionProduceData(index=at.partition, records=data)],
                )
            ],
        )
        try:
            response = await self.cluster.request(
                LeaderOf(*at),
                request,
                version_cap=_LAST_VERSION_BY_NAME if known.id == ZERO_UUID else None,
                error_of=lambda said: check_id(self.cluster, at.topic, topic_id, _error_of(said)),
            )
        except ApiError as error:
            if error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return -1
            if error.code in _REFUSED:
                raise SequenceRefusedError(f"{at}: {error}") from None
            raise ApiError(error.code, f"{at}: a batch of {len(data)} bytes: {error.message}") from None
        return cast("ProduceResponse", response).responses[0].partition_responses[0].base_offset


async def new_identity(cluster: Cluster) -> Identity:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    said = cast("InitProducerIdResponse", await cluster.request(ANY, request))
    return Identity(said.producer_id, said.producer_epoch)


def next_sequence(sequence: int, count: int) -> int:
    """After the last one there is, numbers begin again.

    >>> next_sequence(2**31 - 2, 5)
    3
    """
    return (sequence + count) & _SEQUENCE_MASK


def records_of(identity: Identity, sequence: int, count: int, stored: Iterable[BatchHeader]) -> int:
    """How many of the records that a producer numbered from `sequence` on, `count` in all, are among these
    batches of one partition. Their order is that of the numbers, so the newest batch tells."""
    found = 0
    for header in stored:
        if (header.producer_id, header.producer_epoch) == identity:
            after = (header.last_sequence - sequence & _SEQUENCE_MASK) + 1
            if after <= count:  # or it is older than what is looked for
                found = after
    return found


def _error_of(response: Response) -> ErrorCode:
    said = cast("ProduceResponse", response)
    if not said.responses or not said.responses[0].partition_responses:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code_of(said.responses[0].partition_responses[0].error_code)
