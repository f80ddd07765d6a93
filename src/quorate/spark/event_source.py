"""`format("quorate")` with `log` = `events`: what nodes noticed, from `__cluster_events` or their journals.

The topic gets an event at least once, and a journal holds what the topic holds: node, incarnation and
sequence together are the identity of an event, for who reads both.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from quorate.node.event_publisher import TOPIC
from quorate.spark.event_columns import Line, event_batch
from quorate.spark.event_files import EventChunk, JournalLog, read_event_chunk, read_journals
from quorate.spark.internal_topic import InternalTopic, InternalTopicReader, InternalTopicStreamReader
from quorate.spark.log_places import EVENTS_DIRECTORY, find_places
from quorate.spark.log_reader import LogReader, LogStreamReader, Position, Source
from quorate.spark.metadata_options import LogOptions, read_log_options
from quorate.spark.schemas import EVENTS

__all__ = ["reader", "schema", "stream_reader"]


def schema(_options: Mapping[str, str]) -> StructType:
    return EVENTS


def reader(options: Mapping[str, str], _schema: StructType) -> DataSourceReader:
    read = read_log_options(options)
    return LogReader(read, _files, read_event_chunk) if read.paths else InternalTopicReader(EventTopic(read))


def stream_reader(options: Mapping[str, str], _schema: StructType) -> DataSourceStreamReader:
    read = read_log_options(options)
    if not read.paths:
        return InternalTopicStreamReader(EventTopic(read))
    return LogStreamReader(read, _files, read_event_chunk)


class EventTopic(InternalTopic):
    def __init__(self, options: LogOptions) -> None:
        super().__init__(TOPIC, options)

    def decode(self, rows: pa.RecordBatch, cluster_id: str, partition: int) -> pa.RecordBatch:
        offsets, values = rows.column("offset").to_pylist(), rows.column("value").to_pylist()
        lines = [Line(partition, offset, value or b"") for offset, value in zip(offsets, values, strict=True)]
        return event_batch(cluster_id, lines)


def _files(options: LogOptions) -> Source:
    return _Files(options)


class _Files:
    """In a checkpoint, a journal is named by its cluster and its directory, and a place in it is a line."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self.known: dict[str, JournalLog] = {}

    def ends(self, begin: Mapping[str, Position], *, is_confirmed_only: bool) -> dict[str, Position]:  # noqa: ARG002
        places = find_places(self._options.paths, EVENTS_DIRECTORY, self._options.cluster_id)
        self.known = {log.name: log for log in read_journals(places.found)}
        return {log.name: {"next": log.end, "epoch": None} for log in self.known.values() if log.end}

    def at_most(self, log: str, begin_offset: int, rows: int, end: Position) -> Position:
        return {"next": min(end["next"], self.known[log].after(begin_offset, rows)), "epoch": None}

    def chunks(self, log: str, start_offset: int, end_offset: int) -> list[EventChunk]:
        return self.known[log].chunks(start_offset, end_offset)

    def lost(self, log: str, begin: Position | None, end: Position) -> str | None:  # noqa: ARG002
        found = self.known.get(log)
        if found is None or found.end < end["next"]:
            return "lines of the journal that were to be read are not there any more"
        return None

    def close(self) -> None:
        """Nothing is open between two looks."""
