"""An internal topic of a live cluster, decoded: what `groups` and `events` read if they are not given files.

How it is read is that of any topic. That there is none yet is no error here: a cluster that never had a group
has no `__consumer_offsets`; as soon as it has one, it is read from its beginning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from quorate.client.admin import Admin
from quorate.client.cluster import Cluster
from quorate.client.fetcher import Isolation
from quorate.client.offsets import EARLIEST, LATEST
from quorate.spark.metadata_options import LogOptions
from quorate.spark.topic_client import client_of
from quorate.spark.topic_offsets import TopicRange
from quorate.spark.topic_options import AtOffsets, Subscribed, TopicOptions
from quorate.spark.topic_reader import TopicReader, read_range
from quorate.spark.topic_stream import Position, TopicStreamReader

__all__ = ["InternalTopic", "InternalTopicReader", "InternalTopicStreamReader"]

_COLUMNS = ("key", "value", "partition", "offset", "timestamp", "gap", "leaderEpoch")


class InternalTopic(ABC):
    """Which topic it is, and what its records become."""

    def __init__(self, topic: str, options: LogOptions) -> None:
        if options.bootstrap is None:
            raise ValueError(f"option bootstrap.servers is missing: {topic} is on the brokers")
        self.topic = topic
        self.options = TopicOptions(
            bootstrap=options.bootstrap,
            what=Subscribed((topic,)),
            starting=AtOffsets(EARLIEST),
            ending=AtOffsets(LATEST),
            fail_on_data_loss=options.fail_on_data_loss,
            columns=_COLUMNS,
            isolation=Isolation.READ_COMMITTED,
            max_offsets_per_trigger=options.max_offsets_per_trigger,
            tls=options.tls,
        )

    @abstractmethod
    def decode(self, rows: pa.RecordBatch, cluster_id: str, partition: int) -> pa.RecordBatch:
        """The rows of the table, of records of one partition."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRange)
        if partition.start_offset >= partition.end_offset:
            return
        # What was deleted before it was read is not lost to anybody who could have had it.
        options = replace(self.options, fail_on_data_loss=False)
        for rows in read_range(partition, options):
            yield self.decode(rows, self._cluster_id(), partition.partition)

    async def exists(self, cluster: Cluster) -> bool:
        return self.topic in await Admin(cluster).list_topics()

    def _cluster_id(self) -> str:
        client = client_of(
            self.options.bootstrap, self.options.client_id, self.options.deadline_ms, self.options.tls
        )
        if client.cluster.metadata.cluster_id is None:
            client.run(client.cluster.refresh())
        return client.cluster.metadata.cluster_id or ""


class InternalTopicReader(TopicReader):
    """The topic at once."""

    def __init__(self, topic: InternalTopic) -> None:
        super().__init__(topic.options)
        self._topic = topic

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._topic.read(partition)

    async def _plan(self, cluster: Cluster) -> list[TopicRange]:
        return await super()._plan(cluster) if await self._topic.exists(cluster) else []


class InternalTopicStreamReader(TopicStreamReader):
    """The topic as a stream."""

    def __init__(self, topic: InternalTopic) -> None:
        super().__init__(topic.options)
        self._topic = topic

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._topic.read(partition)

    async def _initial(self) -> Position:
        """Of nothing: every partition that there is later is read from its beginning."""
        cluster = self._client().cluster
        await cluster.refresh()
        return _nothing(cluster)

    async def _latest(self, cluster: Cluster) -> Position:
        return await super()._latest(cluster) if await self._topic.exists(cluster) else _nothing(cluster)


def _nothing(cluster: Cluster) -> Position:
    return {"cluster": cluster.metadata.cluster_id or "", "ids": {}, "offsets": {}}
