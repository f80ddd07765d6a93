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
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException, StreamingQueryException

from quorate.spark.compaction import compact
from quorate.spark.found_problems import Problem
from quorate.spark.ingest import BatchWriter, note_problems, read_raw, replace_unconfirmed
from quorate.spark.lag_sampler import Sampler, take_in_samples
from quorate.spark.origins import Origin
from quorate.spark.parts import texts_of
from quorate.spark.problems import file_problems, problem_batch, problems_in, replaced_rows
from quorate.spark.publishing import publish_answers
from quorate.spark.raw_tables import LOGS
from quorate.spark.schemas import PROBLEMS
from quorate.spark.storage_formats import in_parts, storage_of
from quorate.spark.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PipelineError", "Teller", "Update", "follow", "read_logs", "update"]

SAMPLE_EVERY_S: Final = 30.0
_STREAMS_AT_ONCE: Final = 2
# A busy machine takes longer to start a Python process than Spark waits for it.
_NO_WORKER: Final = re.compile(r"failed to connect back|CANNOT_OPEN_SOCKET|Python worker exited unexpectedly")
_LOST: Final = re.compile(r"\bDataLoss\w*:")
_ATTEMPTS_MAX: Final = 3
_CHECK_EVERY_S: Final = 5.0  # whether a stream that is followed has failed
_ALERTS_TOLD_MAX: Final = 20  # of one batch
_FAILURES_MAX: Final = 5  # of one stream in a row, while it follows a cluster
# The last line of a traceback of Python's, among those of Java's.
_PYTHON_ERROR: Final = re.compile(
    r"^(?!java|org\.|scala|py4j)((?:\w+\.)+[A-Z]\w*|[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE
)
# The same of anybody's, Java's too, and with or without words.
_ANY_ERROR: Final = re.compile(
    r"^(?:Caused by: |: )?((?:(?:\w+\.)+[A-Z][\w$]*|[A-Z]\w*(?:Error|Exception))(?:: .+)?)$", re.MULTILINE
)


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
        run.read()
        run.settle()
    return run.done


def read_logs(
    spark: SparkSession, warehouse: Warehouse, origins: Sequence[Origin], tell: Teller | None = None
) -> Update:
    """Only the first half of `update`: the raw tables. Answers stay what they were."""
    run = _Run(spark, warehouse, tuple(origins), tell or Silent())
    with warehouse.running():
        run.read()
        compact(spark, warehouse)
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
        trigger = {"processingTime": f"{int(trigger_s * 1000)} milliseconds"}
        streams = {
            name: _Followed(run, name, origin, table, partial(run.start, origin, table, **trigger))
            for name, origin, table in run.streams()
        }
        for origin in origins:
            if "records" in origin.options:
                name = f"alerts of cluster {origin.cluster_id}"
                start = partial(run.start_alerts, origin, **trigger)
                streams[name] = _Followed(run, name, origin, "records", start)
        try:
            run.tell.stage("following the logs")
            while True:
                is_over = _checked_until(stop, every_s, streams.values())
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
    looked_at: dict[str, int] = field(default_factory=dict)  # for problems, by table: up to how many rows
    lost: set[tuple[str, str]] = field(default_factory=set)  # streams that read on after a loss

    def streams(self) -> Iterator[tuple[str, Origin, str]]:
        for origin in self.origins:
            for table in LOGS:
                if table in origin.options:
                    yield f"{table} of cluster {origin.cluster_id}", origin, table

    def read(self) -> None:
        """All that is new, once."""
        self.warehouse.tidy()
        for origin in self.origins:
            if origin.bootstrap is not None:
                where = origin.cluster_id, origin.bootstrap
                Sampler(self.warehouse, *where, SAMPLE_EVERY_S, self.tell.warn, origin.tls).sample()
        self.tell.stage("reading the logs")
        self.read_to_the_end()
        self.read_the_rest()

    def read_to_the_end(self) -> None:
        """All streams, a few at a time, up to where the logs end now."""
        with ThreadPoolExecutor(_STREAMS_AT_ONCE, "pipeline") as pool:
            reads = [pool.submit(self._read_stream, *stream) for stream in self.streams()]
            try:
                for read in reads:
                    read.result()
            except BaseException:
                for read in reads:
                    read.cancel()
                raise

    def _read_stream(self, name: str, origin: Origin, table: str) -> None:
        attempt = 0
        while True:
            attempt += 1
            try:
                query = self.start(origin, table, availableNow=True)
            except Exception as error:  # of Spark, or of Java, which has many kinds
                if attempt >= _ATTEMPTS_MAX or not _NO_WORKER.search(str(error)):
                    raise
                self.tell.warn(f"{name}: {cause_of(error)}; starting again")
                continue
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                reason = cause_of(error)
                if attempt >= _ATTEMPTS_MAX or not self.may_go_on(origin, table, error):
                    raise PipelineError(f"{name}: {reason}") from None
                self.tell.warn(f"{name}: {reason}; reading on")
            else:
                return
            finally:
                query.stop()

    def may_go_on(self, origin: Origin, table: str, error: Exception) -> bool:
        """Whether a stream that failed may be started again. What was lost or replaced in a log is a problem
        to be noted, and no reason not to read the rest."""
        if _LOST.search(str(error)):
            self.lost.add((origin.cluster_id, table))
            self.note([Problem("loss", origin.where(table), cause_of(error), origin.cluster_id)])
            if table == "records" and origin.kind == "files":
                self._note_replaced(origin)
            return True
        # What Java alone complains of, such as a worker that it could not reach, passes more often than not.
        return not _PYTHON_ERROR.search(str(error)) or bool(_NO_WORKER.search(str(error)))

    def note(self, problems: Sequence[Problem]) -> None:
        if problems:
            rows = self.spark.createDataFrame(pa.Table.from_batches([problem_batch(problems)]), PROBLEMS)
            self.count("problems", "all", note_problems(self.spark, self.warehouse, rows))

    def _note_replaced(self, origin: Origin) -> None:
        before = read_raw(self.spark, self.warehouse, self.warehouse.contents(), "records")
        source = self.spark.read.format("quorate").option("log", "metadata")
        now = source.options(**origin.options["records"]).option("include", "confirmed").load()
        found = replaced_rows(before, now, ", ".join(json.loads(origin.options["records"]["paths"])))
        self.count("problems", origin.cluster_id, note_problems(self.spark, self.warehouse, found))

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
        if (origin.cluster_id, table) in self.lost:
            source = source.option("failOnDataLoss", "false")
        rows = source.options(**origin.options[table]).load()
        checkpoint = str(self.warehouse.checkpoint(stream))
        return (
            rows.writeStream.foreachBatch(writer)
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .start()
        )

    def start_alerts(self, origin: Origin, **trigger: Any) -> StreamingQuery:
        """The stateful stream that says at once what is wrong."""
        from quorate.spark import alerts

        stream = origin.stream("alerts")
        writer = BatchWriter(
            self.warehouse,
            in_parts(self.spark, self.warehouse),
            table="alerts",
            cluster_id=origin.cluster_id,
            stream=stream,
            tell=self._tell_alerts,
        )
        source = self.spark.readStream.format("quorate").option("log", LOGS["records"])
        rows = source.option("failOnDataLoss", "false").options(**origin.options["records"]).load()
        checkpoint = str(self.warehouse.checkpoint(stream))
        return (
            alerts.raised(alerts.watch(rows))
            .writeStream.foreachBatch(writer)
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .start()
        )

    def _tell_alerts(self, count: int) -> None:
        if count:
            newest = self.warehouse.contents().tables["alerts"][-1]
            for text in texts_of(self.warehouse.table_place("alerts", newest.name), _ALERTS_TOLD_MAX):
                self.tell.warn(text)

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
        paths = [path for origin in self.origins for path in origin.paths]
        self.note(file_problems(paths) if paths else [])
        contents = self.warehouse.contents()
        for table in ("records", "group_records"):
            if self.looked_at.get(table) != self.done.rows.get(table, 0):
                self.looked_at[table] = self.done.rows.get(table, 0)
                rows = read_raw(self.spark, self.warehouse, contents, table)
                found = problems_in(rows, f"table {table}")
                self.count("problems", "all", note_problems(self.spark, self.warehouse, found))

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
                sampler = Sampler(self.warehouse, *where, SAMPLE_EVERY_S, self.tell.warn, origin.tls)
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


def _checked_until(stop: Event, seconds: float, streams: Iterable[_Followed]) -> bool:
    """Waits, and starts streams again meanwhile that have failed; whether it was told to stop."""
    deadline = time.monotonic() + seconds
    while True:
        is_over = stop.wait(max(0.0, min(_CHECK_EVERY_S, deadline - time.monotonic())))
        for stream in streams:
            stream.check()
        if is_over or time.monotonic() >= deadline:
            return is_over


class _Followed:
    """A stream that is started again if it fails, unless it fails again and again."""

    def __init__(
        self, run: _Run, name: str, origin: Origin, table: str, start: Callable[[], StreamingQuery]
    ) -> None:
        self._run, self._name, self._origin, self._table = run, name, origin, table
        self._start = start
        self._failures = 0
        self.query = start()

    def check(self) -> None:
        if self.query.isActive:
            self._failures = 0
            return
        error = self.query.exception()
        reason = cause_of(error) if error is not None else "it ended by itself"
        self._failures += 1
        if self._failures >= _FAILURES_MAX:
            raise PipelineError(f"{self._name}: {reason}")
        if error is not None:
            self._run.may_go_on(self._origin, self._table, error)
        self._run.tell.warn(f"{self._name}: {reason}; started again")
        self.query = self._start()


def cause_of(error: PySparkException | Exception) -> str:
    """What Python said, of all that Spark says about it; else the innermost error; else the first line."""
    text = str(error)
    found = _PYTHON_ERROR.findall(text)
    ours = [said for name, said in found if not name.startswith("pyspark.")]
    if ours or found:
        return str(ours[-1] if ours else found[-1][1])
    errors = _ANY_ERROR.findall(text)
    return str(errors[-1]) if errors else text.strip().partition("\n")[0]
