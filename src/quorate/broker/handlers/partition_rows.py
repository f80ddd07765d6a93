"""Partitions as answers describe them, to a client of one listener.

A few partitions are described one after the other. Many are encoded from the columns of the partition table,
those of all topics at once, and every topic gets its part of the bytes: a topic of a thousand partitions, or
a thousand topics, cost a handful of array operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.broker.listeners import Reachable
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import Block, Partition, Rows, Run
from quorate.metadata.topics import Topic
from quorate.protocol.api.topics import DescribeTopicPartitionsResponse, MetadataResponse
from quorate.protocol.encoder import PreEncoded
from quorate.protocol.errors import ErrorCode
from quorate.protocol.rows import Ragged, encode_rows

__all__ = ["Described", "described_page", "described_partitions"]

FEW: Final = 8  # so many are faster one by one
_NO_LEADER: Final = -1
_ITEM_BYTES: Final = 4  # of arrays of ids
_WITH_LISTENER_ERRORS: Final = 6  # of Metadata: before, there is no leader where there is no listener

Column = NDArray[Any]
Columns = dict[str, Column | Ragged | int]
Described = list[Any] | PreEncoded
EncodeMany = Callable[[Rows, Column], tuple[PreEncoded, Columns]]

_Metadata = MetadataResponse.Topic.Partition
_Description = DescribeTopicPartitionsResponse.Topic.Partition


class Part(NamedTuple):
    """Some partitions of a topic: `[first, end)`."""

    topic: Topic
    first: int
    end: int


def described_partitions(
    image: ClusterImage, reachable: Reachable, topics: Sequence[Topic], version: int
) -> list[Described]:
    """For each topic its partitions, as Metadata in some version has them."""
    parts = [Part(topic, 0, image.partitions.count_of(topic.slot)) for topic in topics]

    def one(partition_id: int, state: Partition) -> _Metadata:
        return _metadata_of(image, reachable, partition_id, state, version)

    def many(rows: Rows, partition_ids: Column) -> tuple[PreEncoded, Columns]:
        columns = _metadata_columns(image, reachable, rows, version)
        columns["partition_index"] = partition_ids
        return encode_rows(_Metadata, MetadataResponse, version, columns), columns

    return _described(image, parts, one, many)


def described_page(image: ClusterImage, reachable: Reachable, parts: Sequence[Part]) -> list[Described]:
    """For each part of a topic its partitions, as DescribeTopicPartitions has them."""

    def one(partition_id: int, state: Partition) -> _Description:
        return _description_of(reachable, partition_id, state)

    def many(rows: Rows, partition_ids: Column) -> tuple[PreEncoded, Columns]:
        columns = _description_columns(reachable, rows)
        columns["partition_index"] = partition_ids
        return encode_rows(_Description, DescribeTopicPartitionsResponse, 0, columns), columns

    return _described(image, parts, one, many)


# One by one


def _metadata_of(
    image: ClusterImage, reachable: Reachable, partition_id: int, state: Partition, version: int
) -> _Metadata:
    replicas, isr = state.replicas, state.isr
    code, leader = ErrorCode.NONE, state.leader
    if version == 0:
        replicas = tuple(filter(reachable.is_alive, replicas))
        isr = tuple(filter(reachable.is_alive, isr))
        if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    if leader not in reachable.endpoints:
        is_there = leader in image.brokers and version >= _WITH_LISTENER_ERRORS
        code = ErrorCode.LISTENER_NOT_FOUND if is_there else ErrorCode.LEADER_NOT_AVAILABLE
        leader = _NO_LEADER
    return _Metadata(
        error_code=code,
        partition_index=partition_id,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=_offline(reachable, state),
    )


def _description_of(reachable: Reachable, partition_id: int, state: Partition) -> _Description:
    return _Description(
        error_code=ErrorCode.NONE,
        partition_index=partition_id,
        leader_id=state.leader if state.leader in reachable.endpoints else _NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=[] if state.last_known_leader < 0 else [state.last_known_leader],
        offline_replicas=_offline(reachable, state),
    )


def _offline(reachable: Reachable, state: Partition) -> list[int]:
    return [
        one
        for one, directory in zip(state.replicas, state.directories, strict=True)
        if reachable.is_offline(one, directory)
    ]


# Columns


def _metadata_columns(image: ClusterImage, reachable: Reachable, rows: Rows, version: int) -> Columns:
    block, index = rows.block, rows.index
    replicas, leader = block.replicas[index], block.leader[index]
    has_replica, in_sync = replicas >= 0, _bits(block, block.isr[index])
    code: Column | int = 0
    if version == 0:
        is_alive = reachable.alive_among(replicas)
        is_missing = (has_replica & ~is_alive).any(axis=1)  # those in sync are replicas
        code = np.where(is_missing, np.int16(ErrorCode.REPLICA_NOT_AVAILABLE), np.int16(0))
        has_replica, in_sync = has_replica & is_alive, in_sync & is_alive
    is_led = reachable.reachable_among(leader)
    if not is_led.all():
        is_there = np.isin(leader, list(image.brokers)) & (version >= _WITH_LISTENER_ERRORS)
        without = np.where(
            is_there, np.int16(ErrorCode.LISTENER_NOT_FOUND), np.int16(ErrorCode.LEADER_NOT_AVAILABLE)
        )
        code = np.where(is_led, code, without)
        leader = np.where(is_led, leader, np.int32(_NO_LEADER))
    columns: Columns = {
        "error_code": code,
        "leader_id": leader,
        "leader_epoch": block.leader_epoch[index],
        "replica_nodes": Ragged(replicas, has_replica),
        "isr_nodes": Ragged(replicas, in_sync),
    }
    if version >= 5:
        columns["offline_replicas"] = _offline_column(reachable, rows, replicas)
    return columns


def _description_columns(reachable: Reachable, rows: Rows) -> Columns:
    block, index = rows.block, rows.index
    replicas, leader = block.replicas[index], block.leader[index]
    last_known = block.last_known_leader[index]
    return {
        "error_code": 0,
        "leader_id": np.where(reachable.reachable_among(leader), leader, np.int32(_NO_LEADER)),
        "leader_epoch": block.leader_epoch[index],
        "replica_nodes": Ragged(replicas, replicas >= 0),
        "isr_nodes": Ragged(replicas, _bits(block, block.isr[index])),
        "eligible_leader_replicas": Ragged(replicas, _bits(block, block.elr[index])),
        "last_known_elr": Ragged(last_known[:, None], last_known[:, None] >= 0),
        "offline_replicas": _offline_column(reachable, rows, replicas),
    }


def _offline_column(reachable: Reachable, rows: Rows, replicas: Column) -> Ragged:
    is_offline = reachable.offline_among(rows, replicas)
    if not is_offline.any():
        return Ragged(replicas[:, :0], is_offline[:, :0])  # nothing to be left out, row by row
    return Ragged(replicas, is_offline)


def _bits(block: Block, masks: Column) -> NDArray[np.bool_]:
    """Which positions are marked in each mask."""
    positions = np.arange(block.width, dtype=masks.dtype)
    marked: NDArray[np.bool_] = (masks[:, None] >> positions) & masks.dtype.type(1) != 0
    return marked


# Topics


def _described(
    image: ClusterImage,
    parts: Sequence[Part],
    one: Callable[[int, Partition], Any],
    many: EncodeMany,
) -> list[Described]:
    if sum(part.end - part.first for part in parts) <= FEW:
        return [list(_one_by_one(image, part, one)) for part in parts]
    described: list[Described] = [PreEncoded(0, b"")] * len(parts)
    by_width: dict[int, list[tuple[int, Part, Run]]] = {}
    for number, part in enumerate(parts):
        run = image.partitions.runs.get(part.topic.slot)
        if run is not None:
            by_width.setdefault(run.width, []).append((number, part, run))
    for width, group in by_width.items():
        places = [(run.start, part.first, part.end) for _, part, run in group]
        encoded = _together(image.partitions.blocks[width], places, many)
        for (number, _, _), partitions in zip(group, encoded, strict=True):
            described[number] = partitions
    return described


def _one_by_one(image: ClusterImage, part: Part, one: Callable[[int, Partition], Any]) -> Iterator[Any]:
    for partition_id in range(part.first, part.end):
        state = image.partitions.get(part.topic.slot, partition_id)
        if state is not None:
            yield one(partition_id, state)


def _together(
    block: Block,
    places: Sequence[tuple[int, int, int]],
    many: EncodeMany,
) -> list[PreEncoded]:
    """Parts of runs in one block: where the run starts, and from where to where in it."""
    starts, firsts, ends = np.array(places, np.int64).T
    counts = ends - firsts
    numbers = np.repeat(np.arange(len(places)), counts)  # of the part that a row belongs to
    before = np.cumsum(counts) - counts
    partition_ids = np.arange(len(numbers)) - (before - firsts)[numbers]
    index = starts[numbers] + partition_ids
    is_there = block.topic[index] >= 0
    if not is_there.all():  # ids that were skipped
        index, partition_ids, numbers = index[is_there], partition_ids[is_there], numbers[is_there]
        counts = np.bincount(numbers, minlength=len(places))
    encoded, columns = many(Rows(block, index), partition_ids)
    return [encoded] if len(places) == 1 else list(_cut(encoded, columns, counts))


def _cut(encoded: PreEncoded, columns: Columns, counts: Column) -> Iterator[PreEncoded]:
    """Rows that were encoded together, so many for each part."""
    arrays = [one.chosen.sum(axis=1) for one in columns.values() if isinstance(one, Ragged)]
    sizes = np.sum(arrays, axis=0) * _ITEM_BYTES
    if len(sizes):  # beside the items of their arrays all rows are of one size
        sizes += (len(encoded.data) - int(sizes.sum())) // len(sizes)
    row_ends = np.concatenate([[0], np.cumsum(sizes)])
    part_ends = row_ends[np.cumsum(counts)].tolist()
    data, begin = memoryview(encoded.data), 0
    for count, end in zip(counts.tolist(), part_ends, strict=True):
        yield PreEncoded(count, data[begin:end])
        begin = end
