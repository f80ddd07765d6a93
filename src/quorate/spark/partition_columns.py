"""Rectangles of partition records as Arrow columns, their JSON among them, by operations on whole columns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.metadata.blocks import Column
from quorate.metadata.distinct_ids import distinct
from quorate.metadata.partition_records import Rectangle
from quorate.metadata.records import PartitionChangeRecord, PartitionRecord
from quorate.metadata.shapes import ABSENT, ChangeShape
from quorate.protocol.types import Uuid
from quorate.spark.schemas import ARROW_IDS

__all__ = ["rectangle_columns"]

# JSON in pieces: what is the same in every row is a str, what is not is a column of strings.
_Pieces = list[str | pa.Array]


def rectangle_columns(rectangle: Rectangle) -> dict[str, pa.Array]:
    """The columns that the records of a rectangle fill themselves."""
    return _Columns(rectangle).all()


class _Columns:
    def __init__(self, rectangle: Rectangle) -> None:
        self._rectangle = rectangle
        self._shape = rectangle.shape
        self._count = len(rectangle.rows)
        self._topic_ids = _names(rectangle.topic_ids)
        self._partitions = _numbers(rectangle, "partition_id")

    def all(self) -> dict[str, pa.Array]:
        shape, count = self._shape, self._count
        if isinstance(shape, ChangeShape):
            declared, json = PartitionChangeRecord.__name__, self._change_json(shape)
            leader = self._number("leader") if shape.has_leader else pa.nulls(count, pa.int32())
            replicas = pa.nulls(count, ARROW_IDS)
        else:
            declared, json = PartitionRecord.__name__, self._partition_json()
            leader, replicas = self._number("leader"), self._lists("replicas", shape.replicas)
        return {
            "type": pa.repeat(pa.scalar(declared), count),
            "version": pa.repeat(pa.scalar(shape.version, pa.int32()), count),
            "broker_id": pa.nulls(count, pa.int32()),
            "broker_epoch": pa.nulls(count, pa.int64()),
            "topic_id": self._topic_ids,
            "topic": pa.nulls(count, pa.string()),
            "partition": self._partitions,
            "leader": leader,
            "isr": self._lists("isr", shape.isr),
            "replicas": replicas,
            "fields": json,
        }

    # JSON, in the order in which the fields are declared

    def _change_json(self, shape: ChangeShape) -> pa.Array:
        pieces = self._head()
        if shape.isr != ABSENT:
            pieces += [',"isr":', *self._ids("isr")]
        if shape.has_leader:
            pieces += [',"leader":', self._text("leader")]
        if shape.has_recovery_state:
            pieces += [',"leaderRecoveryState":', self._text("recovery_state")]
        return _joined([*pieces, *self._eligible(), "}"], self._count)

    def _partition_json(self) -> pa.Array:
        shape = self._shape
        assert not isinstance(shape, ChangeShape)
        pieces = [
            *self._head(),
            ',"replicas":',
            *self._ids("replicas"),
            ',"isr":',
            *self._ids("isr"),
            ',"removingReplicas":',
            *self._ids("removing"),
            ',"addingReplicas":',
            *self._ids("adding"),
            ',"leader":',
            self._text("leader"),
        ]
        if shape.has_recovery_state:
            pieces += [',"leaderRecoveryState":', self._text("recovery_state")]
        pieces += [',"leaderEpoch":', self._text("leader_epoch")]
        pieces += [',"partitionEpoch":', self._text("partition_epoch")]
        if shape.version >= 1:
            pieces += [',"directories":', *self._directories(shape.directories)]
        return _joined([*pieces, *self._eligible(), "}"], self._count)

    def _head(self) -> _Pieces:
        partition = self._partitions.cast(pa.string())
        return ['{"partitionId":', partition, ',"topicId":"', self._topic_ids, '"']

    def _eligible(self) -> _Pieces:
        pieces: _Pieces = []
        if self._shape.elr != ABSENT:
            pieces += [',"eligibleLeaderReplicas":', *self._ids("elr")]
        if self._shape.last_known_leader != ABSENT:
            pieces += [',"lastKnownElr":', *self._ids("last_known_leader")]
        return pieces

    def _directories(self, count: int) -> _Pieces:
        if not count:
            return ["[]"]
        names = _names(self._rectangle.rows["directories"].reshape(-1))
        columns = np.arange(self._count * count).reshape(self._count, count)
        pieces: _Pieces = []
        for at in range(count):
            pieces += ['","' if at else '["', names.take(pa.array(columns[:, at]))]
        return [*pieces, '"]']

    # Columns

    def _number(self, name: str) -> pa.Array:
        return _numbers(self._rectangle, name)

    def _text(self, name: str) -> pa.Array:
        return self._number(name).cast(pa.string())

    def _lists(self, name: str, length: int) -> pa.Array:
        if length == ABSENT:
            return pa.nulls(self._count, ARROW_IDS)
        bounds = np.arange(self._count + 1, dtype=np.int32) * length
        values = np.ascontiguousarray(self._rectangle.ids(name)).reshape(-1)
        return pa.ListArray.from_arrays(pa.array(bounds), pa.array(values, pa.int32()), type=ARROW_IDS)

    def _ids(self, name: str) -> _Pieces:
        """An array of broker ids as JSON. Distinct ones are few: each is written once."""
        ids = self._rectangle.ids(name)
        if not ids.shape[1]:
            return ["[]"]
        rows = np.ascontiguousarray(ids)
        found = _few_distinct(rows)
        if found is None:
            pieces: _Pieces = []
            for at in range(rows.shape[1]):
                pieces += ["," if at else "[", pa.array(np.ascontiguousarray(rows[:, at])).cast(pa.string())]
            return [*pieces, "]"]
        first, numbers = found
        texts = ["[" + ",".join(map(str, row)) + "]" for row in rows[first].tolist()]
        return [pa.array(texts, pa.string()).take(pa.array(numbers))]


def _numbers(rectangle: Rectangle, name: str) -> pa.Array:
    return pa.array(rectangle.rows[name].astype(np.int32))


def _names(ids: Column) -> pa.Array:
    """Ids of 16 bytes as Kafka prints them; each distinct one is printed once."""
    ids = np.ascontiguousarray(ids)
    first, numbers = distinct(ids)
    texts = [_text_of(one) for one in ids[first].tolist()]
    return pa.array(texts, pa.string()).take(pa.array(numbers))


@lru_cache(1 << 16)
def _text_of(raw: bytes) -> str:
    return str(Uuid(raw))


_KEY_BITS: Final = 63
_DISTINCT_SHARE: Final = 8  # of this many rows at most one may be distinct, or it is not worth while


def _few_distinct(rows: Column) -> tuple[Column, Column] | None:
    """Where each distinct row stands first, and which of them every row is; None if there are many of them,
    or if they do not fit into a number."""
    width = rows.shape[1]
    low, high = int(rows.min()), int(rows.max())
    bits = max(1, int(high - low).bit_length())
    if bits * width > _KEY_BITS:
        return None
    keys = np.zeros(len(rows), np.int64)
    for at in range(width):
        keys = keys << bits | (rows[:, at].astype(np.int64) - low)
    if bits * width <= 16:
        place = np.full(1 << bits * width, -1, np.int64)
        place[keys[::-1]] = np.arange(len(keys))[::-1]  # backwards: the first one stays
        used = np.flatnonzero(place >= 0)
        number = np.empty(len(place), np.int32)
        number[used] = np.arange(len(used))
        return place[used], number[keys]
    codes: Any = pa.array(keys).dictionary_encode()
    if len(codes.dictionary) * _DISTINCT_SHARE > len(rows):
        return None
    numbers = codes.indices.to_numpy()
    first = np.empty(len(codes.dictionary), np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return first, numbers


def _joined(pieces: _Pieces, count: int) -> pa.Array:
    """The pieces of every row, joined."""
    parts: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str) and parts and isinstance(parts[-1], str):
            parts[-1] += piece
        else:
            parts.append(piece)
    scalars = [pa.scalar(part) if isinstance(part, str) else part for part in parts]
    joined = pc.binary_join_element_wise(*scalars, "")
    return joined if isinstance(joined, pa.Array) else pa.repeat(joined, count)
