"""Publishes a micro-batch that is wholly staged, on the driver: see `topic_staging` for the four steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from quorate.client.cluster import Cluster
from quorate.client.metadata import TopicPartition
from quorate.client.offsets import LATEST, list_offsets
from quorate.protocol.batch import BatchHeader
from quorate.spark.topic_client import Client
from quorate.spark.topic_offsets import DataLossError, TopicChangedError, TopicRange
from quorate.spark.topic_options import AtOffsets, Subscribed, TopicOptions
from quorate.spark.topic_publish import (
    Identity,
    Publisher,
    SequenceRefusedError,
    new_identity,
    next_sequence,
    records_of,
)
from quorate.spark.topic_range import RangeReader
from quorate.spark.topic_staging import Done, Piece, Plan, Staging, Target

__all__ = ["commit_pieces"]

_LOOKS_MAX: Final = 10


def commit_pieces(
    client: Client,
    staging: Staging,
    batch_id: int,
    pieces: Sequence[tuple[TopicPartition, Piece]],
    reached: Callable[[str], None] = lambda _: None,
) -> None:
    """Publishes these pieces, or what an earlier attempt at the same micro-batch has planned.

    `reached` is told of every point at which it could be killed.
    """
    if staging.done(batch_id) is not None:
        return
    before = staging.last_done(batch_id)
    plan = staging.plan(batch_id)
    is_repeated = plan is not None
    if plan is None:
        reached("staged")
        plan = client.run(_planned(client.cluster, before, pieces))
        staging.write_plan(batch_id, plan)
    reached("planned")
    sequences = _published(client, staging, plan, reached, is_repeated=is_repeated)
    reached("published")
    kept = before.sequences if before is not None and before.identity == plan.identity else {}
    staging.write_done(batch_id, Done(plan.identity, {**kept, **sequences}))
    reached("done")
    staging.forget(batch_id)


async def _planned(
    cluster: Cluster, before: Done | None, pieces: Iterable[tuple[TopicPartition, Piece]]
) -> Plan:
    by_partition: dict[TopicPartition, list[Piece]] = {}
    for at, piece in pieces:
        by_partition.setdefault(at, []).append(piece)
    identity = before.identity if before is not None else await new_identity(cluster)
    sequences = before.sequences if before is not None else {}
    ends = await list_offsets(cluster, dict.fromkeys(by_partition, LATEST))
    targets = {}
    for at in sorted(by_partition):
        topic = await cluster.topic(at.topic)
        targets[at] = Target(str(topic.id), ends[at].offset, sequences.get(at, 0), tuple(by_partition[at]))
    return Plan(identity, targets)


def _published(
    client: Client, staging: Staging, plan: Plan, reached: Callable[[str], None], *, is_repeated: bool
) -> dict[TopicPartition, int]:
    """Publishes what is not there yet; returns the sequence numbers that come next."""
    ids = {at.topic: target.topic_id for at, target in plan.targets.items()}
    publisher = Publisher(client.cluster, plan.identity, topic_ids=ids)
    for look in range(_LOOKS_MAX):
        changes: ExceptionGroup[TopicChangedError] | None = None
        left = {at: target.pieces for at, target in plan.targets.items()}
        publisher.sequences = {at: target.sequence for at, target in plan.targets.items()}
        if is_repeated or look:
            for at, target in plan.targets.items():
                left[at], publisher.sequences[at] = _left(client, plan.identity, at, target)
        try:
            client.run(
                publisher.publish_all(
                    {at: _batches(staging, some, reached) for at, some in left.items() if some}
                )
            )
        except* SequenceRefusedError as errors:
            # Somebody who was thought dead has come further than we knew: look again.
            refusals = errors
        except* TopicChangedError as errors:
            changes = errors  # raised here, some releases of Python 3.11 put it in a group
        else:
            return dict(publisher.sequences)
        if changes is not None:
            raise DataLossError(f"the micro-batch was for another topic: {changes.exceptions[0]}")
    raise DataLossError(f"a topic lost records that had been acknowledged: {refusals.exceptions[0]}")


def _left(
    client: Client, identity: Identity, at: TopicPartition, target: Target
) -> tuple[tuple[Piece, ...], int]:
    """The pieces that the partition does not have, and the sequence number of the first of them."""
    sequence = target.sequence
    planned = sum(piece.count for piece in target.pieces)
    there = records_of(identity, sequence, planned, _stored(client, at, target))
    for index, piece in enumerate(target.pieces):
        if there == 0:
            return target.pieces[index:], sequence
        if piece.count > there:
            raise RuntimeError(f"{at} has part of a batch under sequence number {sequence}: {piece}")
        there -= piece.count
        sequence = next_sequence(sequence, piece.count)
    return (), sequence


def _stored(client: Client, at: TopicPartition, target: Target) -> Iterator[BatchHeader]:
    """The headers of what has come to a partition since the plan was made."""
    end_offset = client.run(list_offsets(client.cluster, {at: LATEST}))[at].offset
    whole = TopicRange(at.topic, target.topic_id, at.partition, target.start_offset, end_offset)
    options = TopicOptions(
        bootstrap="", what=Subscribed((at.topic,)), starting=AtOffsets(), ending=AtOffsets()
    )
    if target.start_offset < end_offset:
        for part in RangeReader(client, whole, options).parts():
            yield from part.stored


def _batches(
    staging: Staging, pieces: Iterable[Piece], reached: Callable[[str], None]
) -> Iterator[tuple[int, bytearray]]:
    """The batches in the files, one at a time."""
    name, file = "", None
    try:
        for piece in pieces:
            if file is None or piece.file != name:
                if file is not None:
                    file.close()
                name, file = piece.file, staging.read(piece.file)
            data = bytearray(file.read_at(piece.length, piece.position))
            if len(data) != piece.length:
                raise RuntimeError(f"{piece} is cut short: {len(data)} bytes are there")
            reached("publishing")
            yield piece.count, data
    finally:
        if file is not None:
            file.close()
