"""A topic as a table, once: from where to where is settled when the query is planned.

`PushingTopicReader` also takes filters over: those on `partition` and `topic` leave partitions out, those on
`offset` shorten the ranges. They are exact, so Spark need not look again. A session that does not allow it
refuses a reader that would, which is why there are two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from quorate.client.cluster import Cluster
from quorate.client.metadata import TopicPartition
from quorate.spark.topic_client import client_of
from quorate.spark.topic_offsets import (
    TopicRange,
    known_partitions,
    planned,
    resolved,
    within_limits,
)
from quorate.spark.topic_options import AtOffsets, TopicOptions
from quorate.spark.topic_range import RangeReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

__all__ = ["PushingTopicReader", "TopicReader", "Wanted", "read_range"]

_OFFSET_MAX: Final = (1 << 63) - 1


class TopicReader(DataSourceReader):
    """Plans ranges where the query begins, and reads them where Spark wants."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        client = client_of(
            self._options.bootstrap, self._options.client_id, self._options.deadline_ms, self._options.tls
        )
        # Spark takes an empty list for a single piece of work that it knows nothing about.
        return [*client.run(self._plan(client.cluster))] or [TopicRange("", "", 0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRange)
        return read_range(partition, self._options)

    async def _plan(self, cluster: Cluster) -> list[TopicRange]:
        options = self._options
        known = await known_partitions(cluster, options.what)
        sides = []
        for name, position in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
            offsets = await resolved(cluster, position, known, options)
            if isinstance(position, AtOffsets) and position.each is not None:
                offsets = await within_limits(cluster, offsets, options, name)
            sides.append(offsets)
        starts, ends = (
            {at: self._wanted.clip(offset) for at, offset in side.items() if self._wanted.includes(at)}
            for side in sides
        )
        return planned(
            starts,
            ends,
            known,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )


class PushingTopicReader(TopicReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes what it can, and gives back what Spark must do itself."""
        return [one for one in filters if not self._wanted.take(one)]


def read_range(whole: TopicRange, options: TopicOptions) -> Iterator[pa.RecordBatch]:
    """The records of a range, in the order of their offsets: the same ones however often it is asked."""
    if whole.start_offset >= whole.end_offset:
        return
    from quorate.spark.topic_arrow import record_batches

    client = client_of(options.bootstrap, options.client_id, options.deadline_ms, options.tls)
    reader = RangeReader(client, whole, options)
    yield from record_batches(reader, whole.start_offset, whole.end_offset, options.columns)


@dataclass(slots=True)
class Wanted:
    """What filters leave of a topic: whole partitions, and a range of offsets for all of them."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start_offset: int = 0
    end_offset: int = _OFFSET_MAX

    def includes(self, at: TopicPartition) -> bool:
        return (self.topics is None or at.topic in self.topics) and (
            self.partitions is None or at.partition in self.partitions
        )

    def clip(self, offset: int) -> int:
        return max(min(offset, self.end_offset), self.start_offset)

    def take(self, one: Filter) -> bool:
        """Whether everything that this filter says is taken into account from now on."""
        from pyspark.sql import datasource as spark

        column = getattr(one, "attribute", ())
        if column not in (("topic",), ("partition",), ("offset",)):
            return False
        match one:
            case spark.IsNotNull():
                return True  # they never are
            case spark.EqualTo(value=value):
                return self._only(column[0], {value})
            case spark.In(value=values):
                return self._only(column[0], set(values))
            case spark.GreaterThan(value=value) if column == ("offset",):
                return self._from(value + 1)
            case spark.GreaterThanOrEqual(value=value) if column == ("offset",):
                return self._from(value)
            case spark.LessThan(value=value) if column == ("offset",):
                return self._until(value)
            case spark.LessThanOrEqual(value=value) if column == ("offset",):
                return self._until(value + 1)
        return False

    def _only(self, column: str, values: set[Any]) -> bool:
        if column == "topic":
            self.topics = frozenset(values if self.topics is None else self.topics & values)
            return True
        if column == "partition":
            self.partitions = frozenset(values if self.partitions is None else self.partitions & values)
            return True
        self._from(min(values, default=_OFFSET_MAX))
        self._until(max(values, default=-1) + 1)
        return len(values) == 1  # of several, those between are for Spark to leave out

    def _from(self, offset: int) -> bool:
        self.start_offset = max(self.start_offset, offset)
        return True

    def _until(self, offset: int) -> bool:
        self.end_offset = min(self.end_offset, offset)
        return True
