"""`format("quorate")` with `log` = `metadata`: the metadata log as a table, at once or as a stream.

A position in the stream is what Spark keeps in its checkpoint, for each cluster the offset that comes next,
and the epoch of the record before it where files say so:

    {"clusters": {"<id>": {"next": 42, "epoch": 3}}}

What is read live is named by its cluster, and a checkpoint of another one is refused. Of files, only what is
known to be committed is streamed; the rest is for who reads them at once, with `include` = `unconfirmed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from quorate.spark.log_files import Chunk, ClusterLog, read_chunk, read_clusters
from quorate.spark.log_places import METADATA, find_places
from quorate.spark.log_scan import ScanCache
from quorate.spark.metadata_live import LiveChunk, LiveMetadata, read_live
from quorate.spark.metadata_options import LogOptions, read_log_options, wanted_by
from quorate.spark.schemas import RECORDS
from quorate.spark.stream_limits import ReadLimit, SupportsTriggerAvailableNow, limit_of, rows_max

__all__ = ["DataLossError", "MetadataReader", "MetadataStreamReader", "reader", "schema", "stream_reader"]

Position = dict[str, Any]  # of one cluster: `next`, and `epoch` or None
AnyChunk = Chunk | LiveChunk


class DataLossError(Exception):
    """What a stream has to read, or has read, is no longer there."""


def schema(_options: Mapping[str, str]) -> StructType:
    return RECORDS


def reader(options: Mapping[str, str], _schema: StructType) -> DataSourceReader:
    read = read_log_options(options)
    return PushingMetadataReader(read) if read.pushdown else MetadataReader(read)


def stream_reader(options: Mapping[str, str], _schema: StructType) -> DataSourceStreamReader:
    return MetadataStreamReader(read_log_options(options))


# At once


class MetadataReader(DataSourceReader):
    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._wanted = options.wanted

    def partitions(self) -> list[InputPartition]:
        wanted = self._wanted
        source = _source_of(self._options)
        ends = source.ends({}, is_confirmed_only=self._options.include == "confirmed")
        return [
            InputPartition(chunk)
            for cluster_id, end in ends.items()
            for chunk in source.chunks(
                cluster_id, max(0, wanted.first_offset), min(end["next"], wanted.end_offset)
            )
            if self._options.include != "unconfirmed" or not chunk.is_confirmed
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition.value, self._wanted.types)


class PushingMetadataReader(MetadataReader):
    """Takes filters over; a session refuses it that does not allow that."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self._wanted, left = wanted_by(filters, self._wanted)
        return left


def _read(chunk: AnyChunk, types: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    return read_live(chunk, types) if isinstance(chunk, LiveChunk) else read_chunk(chunk, types)


# As a stream


class MetadataStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as its query; only `read` is called elsewhere."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._source: _Source | None = None
        self._target: dict[str, Position] | None = None  # of a run that ends at what there was when it began
        self._given: dict[str, Position] | None = None  # what was said last

    def initialOffset(self) -> dict[str, Any]:
        return {"clusters": {}}

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        begin = start["clusters"] if start is not None else self._given or {}
        source = self._opened()
        ends = self._target if self._target is not None else source.ends(begin, is_confirmed_only=True)
        self._given = self._limited(
            source, begin, ends, rows_max(limit, self._options.max_offsets_per_trigger)
        )
        return {"clusters": self._given}

    def getDefaultReadLimit(self) -> ReadLimit:
        return limit_of(self._options.max_offsets_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._opened().ends({}, is_confirmed_only=True)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {"clusters": self._target} if self._target is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        source = self._opened()
        begin, upto = start["clusters"], end["clusters"]
        if any(cluster_id not in source.known for cluster_id in upto):
            source.ends(begin, is_confirmed_only=True)  # after a restart nobody has looked yet
        chunks: list[AnyChunk] = []
        for cluster_id, position in upto.items():
            start_offset = begin.get(cluster_id, {"next": 0})["next"]
            if start_offset < position["next"]:
                self._check(source, cluster_id, begin.get(cluster_id), position)
                chunks += source.chunks(cluster_id, start_offset, position["next"])
        return [InputPartition(chunk) for chunk in chunks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition.value, self._options.wanted.types)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept for what was read."""

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()

    def _opened(self) -> _Source:
        if self._source is None:
            self._source = _source_of(self._options)
        return self._source

    def _limited(
        self, source: _Source, begin: dict[str, Position], ends: dict[str, Position], rows: int | None
    ) -> dict[str, Position]:
        """Each cluster up to its end, and all together not much more than so many rows."""
        found = dict(begin)
        ahead = {one: end for one, end in ends.items() if end["next"] > begin.get(one, {"next": 0})["next"]}
        for number, (cluster_id, end) in enumerate(sorted(ahead.items())):
            self._check(source, cluster_id, begin.get(cluster_id), end)
            if rows is not None:
                share = max(1, rows // (len(ahead) - number))
                begin_offset = begin.get(cluster_id, {"next": 0})["next"]
                end = source.at_most(cluster_id, begin_offset, share, end)  # noqa: PLW2901
                rows = max(0, rows - (end["next"] - begin_offset))
            found[cluster_id] = end
        return found

    def _check(self, source: _Source, cluster_id: str, begin: Position | None, end: Position) -> None:
        """That what was read last is still what it was, and that what comes next is there."""
        reason = source.lost(cluster_id, begin, end)
        if reason and self._options.fail_on_data_loss:
            raise DataLossError(f"cluster {cluster_id}: {reason} (option failOnDataLoss=false reads on)")


# Where it comes from


class _Source(Protocol):
    """Files, or a live cluster."""

    @property
    def known(self) -> Mapping[str, object]:
        """The clusters that were seen at the last look."""

    def ends(self, begin: Mapping[str, Position], *, is_confirmed_only: bool) -> dict[str, Position]:
        """Up to where each cluster can be read; what is before `begin` need not be looked at."""

    def at_most(self, cluster_id: str, begin_offset: int, rows: int, end: Position) -> Position:
        """A nearer end, so many rows after the beginning."""

    def chunks(self, cluster_id: str, start_offset: int, end_offset: int) -> list[Any]: ...

    def lost(self, cluster_id: str, begin: Position | None, end: Position) -> str | None:
        """Why a range cannot be read as it should be."""

    def close(self) -> None: ...


def _source_of(options: LogOptions) -> _Source:
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
        log = self.known.get(cluster_id)
        if log is None or log.end_offset < end["next"]:
            there = "nothing" if log is None else f"what is before offset {log.end_offset}"
            return f"the log was to be read up to offset {end['next']}, and of it {there} is there"
        if begin is None or begin.get("epoch") is None:
            return None
        epoch = log.epoch_at(begin["next"] - 1)
        if epoch is not None and epoch != begin["epoch"]:
            return (
                f"offset {begin['next'] - 1} was of epoch {begin['epoch']} when it was read, and is of epoch"
                f" {epoch} now: the log was replaced after it had been read"
            )
        return None

    def close(self) -> None:
        """Nothing is open between two looks."""


def _position(log: ClusterLog, next_offset: int) -> Position:
    return {"next": next_offset, "epoch": log.epoch_at(next_offset - 1)}


class _Live:
    def __init__(self, options: LogOptions) -> None:
        self._metadata = LiveMetadata(bootstrap=options.bootstrap, controllers=options.controllers)
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
