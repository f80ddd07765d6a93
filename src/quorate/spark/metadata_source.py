"""`format("quorate")` with `log` = `metadata`: the metadata log as a table, at once or as a stream.

In a checkpoint a log has the name of its cluster, and the checkpoint of another cluster is refused. Of files,
only what is known to be committed is streamed; the rest is for who reads them at once, with the option
`include` = `unconfirmed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from quorate.spark.log_files import Chunk, ClusterLog, read_chunk, read_clusters
from quorate.spark.log_places import METADATA, find_places
from quorate.spark.log_reader import (
    LogReader,
    LogStreamReader,
    Position,
    PushingLogReader,
    Source,
    why_lost,
)
from quorate.spark.log_scan import ScanCache
from quorate.spark.metadata_live import LiveChunk, LiveMetadata, read_live
from quorate.spark.metadata_options import LogOptions, read_log_options
from quorate.spark.schemas import RECORDS
from quorate.spark.variants import as_variants, with_variants

__all__ = ["reader", "schema", "stream_reader"]


def schema(options: Mapping[str, str]) -> StructType:
    return with_variants(RECORDS) if read_log_options(options).has_variants else RECORDS


def reader(options: Mapping[str, str], _schema: StructType) -> DataSourceReader:
    read = read_log_options(options)
    read_chunk = _read_variants if read.has_variants else _read
    return (PushingLogReader if read.pushdown else LogReader)(read, _source_of, read_chunk)


def stream_reader(options: Mapping[str, str], _schema: StructType) -> DataSourceStreamReader:
    read = read_log_options(options)
    return LogStreamReader(read, _source_of, _read_variants if read.has_variants else _read)


def _read(chunk: Chunk | LiveChunk, types: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    return read_live(chunk, types) if isinstance(chunk, LiveChunk) else read_chunk(chunk, types)


def _read_variants(chunk: Chunk | LiveChunk, types: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    return map(as_variants, _read(chunk, types))


def _source_of(options: LogOptions) -> Source:
    return _Files(options) if options.paths else _Live(options)


class _Files:
    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._cache = ScanCache()
        self.known: dict[str, ClusterLog] = {}

    def ends(self, begin: Mapping[str, Position], *, is_confirmed_only: bool) -> dict[str, Position]:
        places = find_places(self._options.paths, METADATA, self._options.cluster_id)
        if not places.found:
            reasons = "; ".join(f"{one.source}: {one.text}" for one in places.problems)
            raise ValueError(f"no metadata log in {', '.join(self._options.paths)}: {reasons}")
        logs = read_clusters(places.found, self._cache, lambda one: begin.get(one, {"next": 0})["next"])
        self.known = {log.cluster_id: log for log in logs}
        ends = {}
        for log in logs:
            end_offset = min(log.confirmed_end, log.end_offset) if is_confirmed_only else log.end_offset
            if end_offset:
                ends[log.cluster_id] = _position(log, end_offset)
        return ends

    def at_most(self, cluster_id: str, begin_offset: int, rows: int, end: Position) -> Position:
        log = self.known[cluster_id]
        near = max(begin_offset, log.begin_offset) + rows
        return end if near >= end["next"] else _position(log, near)

    def chunks(self, cluster_id: str, start_offset: int, end_offset: int) -> list[Chunk]:
        return self.known[cluster_id].chunks(start_offset, end_offset)

    def lost(self, cluster_id: str, begin: Position | None, end: Position) -> str | None:
        return why_lost(self.known.get(cluster_id), begin, end)

    def close(self) -> None:
        """Nothing is open between two looks."""


def _position(log: ClusterLog, next_offset: int) -> Position:
    return {"next": next_offset, "epoch": log.epoch_at(next_offset - 1)}


class _Live:
    def __init__(self, options: LogOptions) -> None:
        self._metadata = LiveMetadata(
            bootstrap=options.bootstrap, controllers=options.controllers, tls=options.tls
        )
        self.known: dict[str, object] = {}

    def ends(self, begin: Mapping[str, Position], *, is_confirmed_only: bool) -> dict[str, Position]:  # noqa: ARG002
        """A leader shows only what is committed."""
        state = self._metadata.state()
        others = [one for one in begin if one != state.cluster_id]
        if others:
            raise ValueError(
                f"this is the checkpoint of cluster {others[0]}, and the cluster is {state.cluster_id}"
            )
        self.known = {state.cluster_id: state}
        return {state.cluster_id: {"next": state.high_watermark, "epoch": None}}

    def at_most(self, cluster_id: str, begin_offset: int, rows: int, end: Position) -> Position:  # noqa: ARG002
        begin_offset = max(begin_offset, self._metadata.begin_offset(begin_offset))
        return {"next": min(end["next"], begin_offset + rows), "epoch": None}

    def chunks(self, cluster_id: str, start_offset: int, end_offset: int) -> list[LiveChunk]:  # noqa: ARG002
        return self._metadata.chunks(start_offset, end_offset)

    def lost(self, cluster_id: str, begin: Position | None, end: Position) -> str | None:  # noqa: ARG002
        high_watermark = self._metadata.state().high_watermark
        if high_watermark < end["next"]:
            return f"the log was to be read up to offset {end['next']}, and it ends at {high_watermark}"
        return None

    def close(self) -> None:
        self._metadata.close()
