"""A log as Spark reads it, at once or as a stream, wherever it comes from.

A position in a stream is what Spark keeps in its checkpoint: for each log, by its name, the offset that comes
next, and the epoch of the record before it where that is known.

    {"logs": {"<cluster id>": {"next": 42, "epoch": 3}}}

What a stream has to read, or has read, may be gone or replaced by the time it comes back; that is an error,
unless the option `failOnDataLoss` says otherwise. Only what is confirmed is streamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from quorate.spark.metadata_options import LogOptions, wanted_by
from quorate.spark.stream_limits import ReadLimit, SupportsTriggerAvailableNow, limit_of, rows_max

__all__ = [
    "DataLossError",
    "FileLog",
    "LogReader",
    "LogStreamReader",
    "Position",
    "PushingLogReader",
    "Source",
    "why_lost",
]

Position = dict[str, Any]  # in one log: `next`, and `epoch` or None
SourceOf = Callable[[LogOptions], "Source"]
ReadChunk = Callable[[Any, frozenset[str] | None], Iterator[pa.RecordBatch]]


class DataLossError(Exception):
    """What a stream has to read, or has read, is no longer there."""


class Source(Protocol):
    """Where logs come from: files, or a live cluster. Each log has a name."""

    @property
    def known(self) -> Mapping[str, object]:
        """The logs that were seen at the last look."""

    def ends(self, begin: Mapping[str, Position], *, is_confirmed_only: bool) -> dict[str, Position]:
        """Up to where each log can be read; what is before `begin` need not be looked at."""

    def at_most(self, log: str, begin_offset: int, rows: int, end: Position) -> Position:
        """A nearer end, so many rows after the beginning."""

    def chunks(self, log: str, start_offset: int, end_offset: int) -> list[Any]: ...

    def lost(self, log: str, begin: Position | None, end: Position) -> str | None:
        """Why a range cannot be read as it should be."""

    def close(self) -> None: ...


class FileLog(Protocol):
    """What is in the files of one log."""

    @property
    def end_offset(self) -> int: ...
    def epoch_at(self, offset: int) -> int | None: ...


def why_lost(log: FileLog | None, begin: Position | None, end: Position) -> str | None:
    """Why a range of a log in files cannot be read as it should be: it ends too early, or was replaced."""
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


# At once


class LogReader(DataSourceReader):
    """`source_of` and `read_chunk` say what log it is. What is pickled goes to the workers."""

    def __init__(self, options: LogOptions, source_of: SourceOf, read_chunk: ReadChunk) -> None:
        self._options = options
        self._source_of = source_of
        self._read_chunk = read_chunk
        self._wanted = options.wanted

    def partitions(self) -> list[InputPartition]:
        wanted = self._wanted
        source = self._source_of(self._options)
        try:
            ends = source.ends({}, is_confirmed_only=self._options.include == "confirmed")
            found = [
                InputPartition(chunk)
                for log, end in ends.items()
                for chunk in source.chunks(
                    log, max(0, wanted.first_offset), min(end["next"], wanted.end_offset)
                )
                if self._options.include != "unconfirmed" or not chunk.is_confirmed
            ]
        finally:
            source.close()
        # Spark takes an empty list for a single piece of work that it knows nothing about.
        return found or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from self._read_chunk(partition.value, self._wanted.types)


class PushingLogReader(LogReader):
    """Takes filters over; a session refuses it that does not allow that."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self._wanted, left = wanted_by(filters, self._wanted)
        return left


# As a stream


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as its query; only `read` is called elsewhere."""

    def __init__(self, options: LogOptions, source_of: SourceOf, read_chunk: ReadChunk) -> None:
        self._options = options
        self._source_of = source_of
        self._read_chunk = read_chunk
        self._source: Source | None = None
        self._target: dict[str, Position] | None = None  # of a run that ends at what there was when it began
        self._given: dict[str, Position] | None = None  # what was said last

    def __getstate__(self) -> dict[str, Any]:
        """What goes to the workers: nothing that is open."""
        return self.__dict__ | {"_source": None}

    def initialOffset(self) -> dict[str, Any]:
        return {"logs": {}}

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        begin = start["logs"] if start is not None else self._given
        source = self._opened()
        ends = self._target if self._target is not None else source.ends(begin or {}, is_confirmed_only=True)
        if begin is None:
            # Spark before 4.2 does not say where it is: what limits there are count from the next time on.
            self._given = ends
        else:
            rows = rows_max(limit, self._options.max_offsets_per_trigger)
            self._given = self._limited(source, begin, ends, rows)
        return {"logs": self._given}

    def getDefaultReadLimit(self) -> ReadLimit:
        return limit_of(self._options.max_offsets_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._opened().ends({}, is_confirmed_only=True)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {"logs": self._target} if self._target is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        source = self._opened()
        begin, upto = start["logs"], end["logs"]
        self._given = self._given or upto
        if any(log not in source.known for log in upto):
            source.ends(begin, is_confirmed_only=True)  # after a restart nobody has looked yet
        chunks: list[Any] = []
        for log, position in upto.items():
            start_offset = begin.get(log, {"next": 0})["next"]
            if start_offset < position["next"]:
                self._check(source, log, begin.get(log), position)
                chunks += source.chunks(log, start_offset, position["next"])
        return [InputPartition(chunk) for chunk in chunks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read_chunk(partition.value, self._options.wanted.types)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept for what was read."""

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()

    def _opened(self) -> Source:
        if self._source is None:
            self._source = self._source_of(self._options)
        return self._source

    def _limited(
        self, source: Source, begin: dict[str, Position], ends: dict[str, Position], rows: int | None
    ) -> dict[str, Position]:
        """Each log up to its end, and all together not much more than so many rows."""
        found = dict(begin)
        ahead = {one: end for one, end in ends.items() if end["next"] > begin.get(one, {"next": 0})["next"]}
        for number, (log, end) in enumerate(sorted(ahead.items())):
            self._check(source, log, begin.get(log), end)
            if rows is not None:
                share = max(1, rows // (len(ahead) - number))
                begin_offset = begin.get(log, {"next": 0})["next"]
                end = source.at_most(log, begin_offset, share, end)  # noqa: PLW2901
                rows = max(0, rows - (end["next"] - begin_offset))
            found[log] = end
        return found

    def _check(self, source: Source, log: str, begin: Position | None, end: Position) -> None:
        """That what was read last is still what it was, and that what comes next is there."""
        reason = source.lost(log, begin, end)
        if reason and self._options.fail_on_data_loss:
            raise DataLossError(f"{log}: {reason} (option failOnDataLoss=false reads on)")
