"""A topic as a stream: offsets in, micro-batches out, each of them the same however often it is asked for.

A position in the stream is what Spark keeps in its checkpoint:

    {"cluster": "...", "ids": {"orders": "..."}, "offsets": {"orders": {"0": 42, "1": 17}}}

The id of the cluster keeps the checkpoint of one cluster from being used with another. The ids of the topics
tell a topic that was deleted and created again, whose offsets mean other records, from one that lives on.
Partitions that are added are read from their beginning.

Spark before 4.2 neither limits what a source gives it nor tells it where a batch begins. There the limit
counts from what the reader gave out last, and available-now runs take what is there in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from quorate.client.cluster import Cluster
from quorate.client.metadata import TopicPartition
from quorate.client.offsets import EARLIEST, LATEST, list_offsets
from quorate.spark.stream_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from quorate.spark.topic_client import Client, client_of
from quorate.spark.topic_offsets import (
    DataLossError,
    Offsets,
    TopicRange,
    known_partitions,
    planned,
    resolved,
    within_limits,
)
from quorate.spark.topic_options import AtOffsets, TopicOptions
from quorate.spark.topic_reader import read_range

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Position", "TopicStreamReader", "limited"]


class Position(TypedDict):
    """Where a stream is, as it stands in Spark's checkpoint."""

    cluster: str
    ids: dict[str, str]
    offsets: dict[str, dict[str, int]]


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as its query; only `read` is called elsewhere."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options
        self._target: Position | None = None  # of a run that ends at what there was when it began
        self._given: Position | None = None  # what was said last

    def initialOffset(self) -> dict[str, Any]:
        return self._said(self._client().run(self._initial()))

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        client = self._client()
        end = self._target or client.run(self._latest(client.cluster))
        begin = _position(start) if start is not None else self._given
        rows_max = self._rows_max(limit)
        if begin is None:
            return self._said(end)
        begin = client.run(self._continued(client.cluster, begin, end))
        return self._said(_at_most(begin, end, rows_max))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        client = self._client()
        self._target = client.run(self._latest(client.cluster))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        client = self._client()
        return dict(self._target or client.run(self._latest(client.cluster)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        client = self._client()
        upto = _position(end)
        begin = client.run(self._continued(client.cluster, _position(start), upto))
        self._given = self._given or upto
        ids = {at: upto["ids"][at.topic] for at in _offsets(upto)}
        return [
            *planned(
                _offsets(begin),
                _offsets(upto),
                ids,
                min_partitions=self._options.min_partitions,
                max_records=self._options.max_records_per_partition,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRange)
        return read_range(partition, self._options)

    # How

    def _client(self) -> Client:
        return client_of(
            self._options.bootstrap, self._options.client_id, self._options.deadline_ms, self._options.tls
        )

    def _said(self, position: Position) -> dict[str, Any]:
        self._given = position
        return dict(position)

    def _rows_max(self, limit: ReadLimit | None) -> int | None:
        if limit is None:
            return self._options.max_offsets_per_trigger
        return limit.max_rows if isinstance(limit, ReadMaxRows) else None

    async def _initial(self) -> Position:
        cluster, options = self._client().cluster, self._options
        known = await known_partitions(cluster, options.what)
        offsets = await resolved(cluster, options.starting, known, options)
        if isinstance(options.starting, AtOffsets) and options.starting.each is not None:
            offsets = await within_limits(cluster, offsets, options, "startingOffsets")
        return _made(cluster, known, offsets)

    async def _latest(self, cluster: Cluster) -> Position:
        known = await known_partitions(cluster, self._options.what)
        listed = await list_offsets(
            cluster, dict.fromkeys(known, LATEST), isolation_level=self._options.isolation
        )
        return _made(cluster, known, {at: one.offset for at, one in listed.items()})

    async def _continued(self, cluster: Cluster, begin: Position, end: Position) -> Position:
        """Where reading goes on, in the topics as they are at the end.

        Partitions that have come begin where they begin; those of topics that were created anew too, if
        losing the rest of the old ones is allowed.
        """
        if begin["cluster"] != end["cluster"]:
            raise ValueError(
                f"this checkpoint is of the cluster {begin['cluster']}, and this is {end['cluster']}:"
                " a stream cannot go on in another cluster"
            )
        before, upto = _offsets(begin), _offsets(end)
        gone = sorted(str(at) for at in before if at not in upto)
        anew = sorted(name for name, one in begin["ids"].items() if end["ids"].get(name, one) != one)
        if self._options.fail_on_data_loss and (gone or anew):
            told = [f"{name} was deleted and created again" for name in anew]
            told += [f"{', '.join(gone)} is not there any more"] if gone else []
            raise DataLossError("; ".join(told))
        new = [at for at in upto if at not in before or at.topic in anew]
        listed = await list_offsets(cluster, dict.fromkeys(new, EARLIEST)) if new else {}
        starts = {at: min(listed[at].offset if at in listed else before[at], upto[at]) for at in upto}
        behind = [at for at in upto if at not in listed and before[at] > upto[at]]
        if behind and self._options.fail_on_data_loss:
            told = [f"{at} was read up to {before[at]}, and ends at {upto[at]} now" for at in behind]
            raise DataLossError(", ".join(told))
        return {**end, "offsets": _by_topic(starts)}


def limited(starts: Offsets, ends: Offsets, rows_max: int) -> Offsets:
    """Ends so that there are about so many offsets in all, each partition having its share of what waits.

    A partition with anything gets at least one offset, or it would starve.

    >>> a, b = TopicPartition("orders", 0), TopicPartition("orders", 1)
    >>> list(limited({a: 0, b: 10}, {a: 900, b: 110}, 100).values())
    [90, 20]
    """
    waiting = {at: max(0, ends[at] - starts[at]) for at in ends}
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(ends)
    return {
        at: starts[at] + (max(1, rows_max * some // total) if some else 0) for at, some in waiting.items()
    }


def _at_most(begin: Position, end: Position, rows_max: int | None) -> Position:
    if rows_max is None:
        return end
    return {**end, "offsets": _by_topic(limited(_offsets(begin), _offsets(end), rows_max))}


def _made(cluster: Cluster, known: Mapping[TopicPartition, str], offsets: Offsets) -> Position:
    return {
        "cluster": cluster.metadata.cluster_id or "",
        "ids": {at.topic: topic_id for at, topic_id in known.items()},
        "offsets": _by_topic(offsets),
    }


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        found.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return found


def _offsets(position: Position) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in position["offsets"].items()
        for partition, offset in partitions.items()
    }


def _position(said: Mapping[str, Any]) -> Position:
    missing = {"cluster", "ids", "offsets"} - said.keys()
    if missing:
        raise ValueError(f"this checkpoint is not of a topic read with quorate: {dict(said)!r}")
    return {"cluster": said["cluster"], "ids": said["ids"], "offsets": said["offsets"]}
