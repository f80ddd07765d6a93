"""`format("quorate")` with `log` = `groups`: `__consumer_offsets`, decoded, from brokers or from files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from quorate.spark.group_columns import GroupPlace, group_record_batch
from quorate.spark.group_files import GroupChunk, PartitionLog, read_group_chunk, read_partition_logs
from quorate.spark.internal_topic import InternalTopic, InternalTopicReader, InternalTopicStreamReader
from quorate.spark.log_places import GROUPS, find_places
from quorate.spark.log_reader import (
    LogReader,
    LogStreamReader,
    Position,
    PushingLogReader,
    Source,
    why_lost,
)
from quorate.spark.log_scan import ScanCache
from quorate.spark.metadata_options import LogOptions, read_log_options
from quorate.spark.schemas import GROUP_RECORDS

__all__ = ["reader", "schema", "stream_reader"]


def schema(_options: Mapping[str, str]) -> StructType:
    return GROUP_RECORDS


def reader(options: Mapping[str, str], _schema: StructType) -> DataSourceReader:
    read = read_log_options(options)
    if not read.paths:
        return InternalTopicReader(GroupTopic(read))
    return (PushingLogReader if read.pushdown else LogReader)(read, _files, read_group_chunk)


def stream_reader(options: Mapping[str, str], _schema: StructType) -> DataSourceStreamReader:
    read = read_log_options(options)
    if not read.paths:
        return InternalTopicStreamReader(GroupTopic(read))
    return LogStreamReader(read, _files, read_group_chunk)


class GroupTopic(InternalTopic):
    """The topic on the brokers. What is shown of it is committed."""

    def __init__(self, options: LogOptions) -> None:
        super().__init__("__consumer_offsets", options)
        self._types = options.wanted.types

    def decode(self, rows: pa.RecordBatch, cluster_id: str, partition: int) -> pa.RecordBatch:
        return group_record_batch(
            rows.column("key"),
            rows.column("value"),
            rows.column("offset").to_numpy().astype(np.int64),
            rows.column("timestamp"),
            rows.column("leaderEpoch"),
            rows.column("gap"),
            GroupPlace(cluster_id=cluster_id, partition=partition, types=self._types),
        )


def _files(options: LogOptions) -> Source:
    return _Files(options)


class _Files:
    """In a checkpoint, a log is named by its cluster and its partition."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._cache = ScanCache()
        self.known: dict[str, PartitionLog] = {}

    def ends(self, begin: Mapping[str, Position], *, is_confirmed_only: bool) -> dict[str, Position]:  # noqa: ARG002
        places = find_places(self._options.paths, GROUPS, self._options.cluster_id)
        self.known = {log.name: log for log in read_partition_logs(places.found, self._cache)}
        ends = {}
        for log in self.known.values():
            end_offset = log.confirmed_end if is_confirmed_only else log.end_offset
            if end_offset:
                ends[log.name] = {"next": end_offset, "epoch": log.epoch_at(end_offset - 1)}
        return ends

    def at_most(self, log: str, begin_offset: int, rows: int, end: Position) -> Position:
        near = begin_offset + rows
        return end if near >= end["next"] else {"next": near, "epoch": self.known[log].epoch_at(near - 1)}

    def chunks(self, log: str, start_offset: int, end_offset: int) -> list[GroupChunk]:
        return self.known[log].chunks(start_offset, end_offset)

    def lost(self, log: str, begin: Position | None, end: Position) -> str | None:
        return why_lost(self.known.get(log), begin, end)

    def close(self) -> None:
        """Nothing is open between two looks."""
