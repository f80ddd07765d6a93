"""What `quorate pipeline run` does: logs into raw tables, once; history as views; answers swapped in.

    update(spark, Warehouse.create("history"), [live_cluster("127.0.0.1:9092")])

One stream per log and cluster appends to the raw table of that log (`ingest`). When all are at the end,
what files do not prove is put beside it, problems are noted, small parts are merged (`compaction`), and the
answers are computed to a new place and published together (`publish_answers`). `follow` does the same again
and again while the streams go on. Running twice changes nothing; being killed at any point costs only time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.errors import PySparkException, StreamingQueryException

from quorate.spark.compaction import compact
from quorate.spark.ingest import BatchWriter, replace_unconfirmed
from quorate.spark.lag_sampler import Sampler, take_in_samples
from quorate.spark.origins import Origin
from quorate.spark.parts import count
from quorate.spark.raw_tables import LOGS
from quorate.spark.storage_formats import storage_of
from quorate.spark.views import ANSWERS, HISTORY, Tables, held_tables, inputs
from quorate.spark.warehouse import Contents, Part, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PipelineError", "Teller", "Update", "follow", "publish_answers", "update"]

SAMPLE_EVERY_S: Final = 30.0
_FAILURES_MAX: Final = 5  # of one stream in a row, while it follows a cluster
_PYTHON_ERROR: Final = re.compile(r"^((?!java|org\.|scala|py4j)[\w.]*[A-Z]\w*): (.+)$", re.MULTILINE)


class PipelineError(Exception):
    """A stream ended that should not have; the message says which and why."""


class Teller(Protocol):
    """Who is told of the progress."""

    def stage(self, text: str) -> None: ...
    def rows(self, table: str, cluster_id: str, count: int) -> None: ...
    def warn(self, text: str) -> None: ...


class Silent:
    def stage(self, text: str) -> None: ...
    def rows(self, table: str, cluster_id: str, count: int) -> None: ...
    def warn(self, text: str) -> None: ...


@dataclass(slots=True)
class Update:
    """What one pass added: rows by table, and whether answers were computed anew."""

    rows: dict[str, int] = field(default_factory=dict)
    has_new_answers: bool = False


def update(
    spark: SparkSession, warehouse: Warehouse, origins: Sequence[Origin], tell: Teller | None = None
) -> Update:
    """Reads what is new at all origins, and brings the answers up to date."""
    run = _Run(spark, warehouse, tuple(origins), tell or Silent())
    with warehouse.running():
        warehouse.tidy()
        for origin in origins:
            if origin.bootstrap is not None:
                Sampler(
                    warehouse, origin.cluster_id, origin.bootstrap, SAMPLE_EVERY_S, run.tell.warn
                ).sample()
        run.tell.stage("reading the logs")
        run.read_to_the_end()
        run.read_the_rest()
        run.settle()
    return run.done


def follow(
    spark: SparkSession,
    warehouse: Warehouse,
    origins: Sequence[Origin],
    *,
    stop: Event,
    every_s: float,
    trigger_s: float = 1.0,
    tell: Teller | None = None,
) -> Update:
    """Like `update`, but goes on until it is told to stop; answers are brought up to date now and then."""
    run = _Run(spark, warehouse, tuple(origins), tell or Silent())
    with warehouse.running(), run.samplers():
        warehouse.tidy()
        streams = {name: _Followed(run, origin, table, trigger_s) for name, origin, table in run.streams()}
        try:
            run.tell.stage("following the logs")
            while True:
                is_over = stop.wait(every_s)
                for name, stream in streams.items():
                    stream.check(name)
                run.read_the_rest()
                run.settle()
                if is_over:
                    return run.done
        finally:
            for stream in streams.values():
                stream.query.stop()


@dataclass(slots=True)
class _Run:
    """One run of the pipeline, and what it has done so far."""

    spark: SparkSession
    warehouse: Warehouse
    origins: tuple[Origin, ...]
    tell: Teller
    done: Update = field(default_factory=Update)

    def streams(self) -> Iterator[tuple[str, Origin, str]]:
        for origin in self.origins:
            for table in LOGS:
                if table in origin.options:
                    yield f"{table} of cluster {origin.cluster_id}", origin, table

    def read_to_the_end(self) -> None:
        """All streams, side by side, up to where the logs end now."""
        queries: list[tuple[str, StreamingQuery]] = []
        try:
            for name, origin, table in self.streams():
                queries.append((name, self.start(origin, table, availableNow=True)))
            for name, query in queries:
                try:
                    query.awaitTermination()
                except StreamingQueryException as error:
                    raise PipelineError(f"{name}: {cause_of(error)}") from None
        finally:
            for _, query in queries:
                query.stop()

    def start(self, origin: Origin, table: str, **trigger: Any) -> StreamingQuery:
        stream = origin.stream(table)
        writer = BatchWriter(
            self.warehouse,
            storage_of(self.spark, self.warehouse),
            table=table,
            cluster_id=origin.cluster_id,
            stream=stream,
            tell=lambda count: self.count(table, origin.cluster_id, count),
        )
        source = self.spark.readStream.format("quorate").option("log", LOGS[table])
        rows = source.options(**origin.options[table]).load()
        checkpoint = str(self.warehouse.checkpoint(stream))
        return (
            rows.writeStream.foreachBatch(writer)
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .start()
        )

    def count(self, table: str, cluster_id: str, count: int) -> None:
        if count:
            self.done.rows[table] = self.done.rows.get(table, 0) + count
            self.tell.rows(table, cluster_id, count)

    def read_the_rest(self) -> None:
        """What no stream gives: rows that files do not prove, samples, problems."""
        for _, origin, table in self.streams():
            if origin.kind == "files" and table != "events":
                self._read_unconfirmed(origin, table)
        self.count("end_offsets", "all", take_in_samples(self.spark, self.warehouse))

    def settle(self) -> None:
        """Merges what is small, and computes the answers if anything is new."""
        compact(self.spark, self.warehouse)
        self.tell.stage("computing the answers")
        self.done.has_new_answers |= publish_answers(self.spark, self.warehouse)
        self.warehouse.tidy()

    @contextmanager
    def samplers(self) -> Iterator[None]:
        """Somebody asks each live cluster how far its topics reach, for the time of the block."""
        started = []
        for origin in self.origins:
            if origin.bootstrap is not None:
                where = origin.cluster_id, origin.bootstrap
                sampler = Sampler(self.warehouse, *where, SAMPLE_EVERY_S, self.tell.warn)
                sampler.start()
                started.append(sampler)
        try:
            yield
        finally:
            for sampler in started:
                sampler.close()

    def _read_unconfirmed(self, origin: Origin, table: str) -> None:
        source = self.spark.read.format("quorate").option("log", LOGS[table])
        rows = source.options(**origin.options[table]).option("include", "unconfirmed").load()
        replace_unconfirmed(self.warehouse, table, origin.cluster_id, rows)


class _Followed:
    """A stream that is started again if it fails, unless it fails again and again."""

    def __init__(self, run: _Run, origin: Origin, table: str, trigger_s: float) -> None:
        self._start: Callable[[], StreamingQuery] = lambda: run.start(
            origin, table, processingTime=f"{int(trigger_s * 1000)} milliseconds"
        )
        self._tell = run.tell
        self._failures = 0
        self.query = self._start()

    def check(self, name: str) -> None:
        if self.query.isActive:
            self._failures = 0
            return
        error = self.query.exception()
        reason = cause_of(error) if error is not None else "it ended by itself"
        self._failures += 1
        if self._failures >= _FAILURES_MAX:
            raise PipelineError(f"{name}: {reason}")
        self._tell.warn(f"{name}: {reason}; started again")
        self.query = self._start()


# Answers


def publish_answers(spark: SparkSession, warehouse: Warehouse) -> bool:
    """Computes all answers to a new place, and makes them the answers in one step; whether that was
    needed."""
    with held_tables(spark, warehouse) as tables:
        of = _fingerprint(tables.contents)
        if tables.contents.answers_of == of:
            return False
        with ExitStack() as unpublished, _kept_at_hand(tables):
            parts = {}
            for name in ANSWERS:
                part_name = unpublished.enter_context(warehouse.new_answer())
                place = warehouse.answer_place(part_name)
                tables.fresh(name).coalesce(1).write.parquet(str(place))
                parts[name] = Part(part_name, *count(place))
            now_ms = int(time.time() * 1000)
            warehouse.change(lambda newest: replace(newest, answers=parts, answers_ms=now_ms, answers_of=of))
    return True


@contextmanager
def _kept_at_hand(tables: Tables) -> Iterator[None]:
    """History that several answers are made of is computed once."""
    uses = [one for function in ANSWERS.values() for one in inputs(function)]
    shared: list[DataFrame] = [tables.fresh_input(one) for one in HISTORY if uses.count(one) > 1]
    for frame in shared:
        frame.persist()
    try:
        yield
    finally:
        for frame in shared:
            frame.unpersist()


def _fingerprint(contents: Contents) -> str:
    """What answers are answers to: the same as long as no row is new."""
    from quorate import __version__

    streams: Mapping[str, Any] = {name: one.covered for name, one in sorted(contents.streams.items())}
    samples = sum(part.rows for part in contents.tables.get("end_offsets", ()))
    unconfirmed = sorted(
        part.name for parts in contents.unconfirmed.values() for part in parts.values() if part.rows
    )
    return json.dumps([__version__, streams, samples, unconfirmed])


def cause_of(error: PySparkException | Exception) -> str:
    """What Python said, out of all that Spark says about it; the first line if Python said nothing."""
    text = str(error)
    found = _PYTHON_ERROR.findall(text)
    ours = [said for name, said in found if not name.startswith("pyspark.")]
    if ours or found:
        return str(ours[-1] if ours else found[-1][1])
    return text.strip().partition("\n")[0]
