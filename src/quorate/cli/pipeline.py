"""`quorate pipeline`: the history of clusters as tables, and questions to them."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from quorate.cli.asking import NOT_ASKED, JsonOption, fail, pairs, print_table
from quorate.cli.spark_session import (
    MasterOption,
    SparkConfOption,
    WarehouseOption,
    require_spark,
    spark_session,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quorate.spark.origins import Origin
    from quorate.spark.pipeline import Update
    from quorate.spark.warehouse import Warehouse

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="The history of clusters, on Spark: who was a member, who led what, what was unavailable.",
)

_CELL_MAX: Final = 60


@app.command()
def run(
    warehouse: WarehouseOption,
    cluster: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="Brokers of a live cluster, ours or Apache's.")
    ] = "",
    logs: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="A node's log directory, or a copy; may be given many times."),
    ] = None,
    more_logs: Annotated[list[str] | None, typer.Argument(metavar="[DIR]...", help="More of them.")] = None,
    controllers: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="The controllers, if brokers cannot name them.")
    ] = "",
    master: MasterOption = "local[*]",
    is_continuous: Annotated[bool, typer.Option("--continuous", help="Go on until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="With --continuous: how often answers are renewed.")
    ] = 30.0,
    table_format: Annotated[
        str, typer.Option("--format", help="Of the raw tables: parquet; delta or iceberg with their jars.")
    ] = "parquet",
    spark_conf: SparkConfOption = None,
    kafka_conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="How --cluster is secured: security.protocol, ssl.*; may be given often.",
        ),
    ] = None,
    environment: Annotated[
        str,
        typer.Option(metavar="FILE", help="A packed environment for executors (see pipeline pack)."),
    ] = "",
) -> None:
    """Reads what is new in the logs of clusters into tables, and brings the answers up to date."""
    require_spark()
    from quorate.spark.origins import NothingToRead
    from quorate.spark.packing import executor_settings
    from quorate.spark.storage_formats import session_settings
    from quorate.spark.warehouse import FORMATS, Warehouse, WarehouseError

    directories = [*(logs or []), *(more_logs or [])]
    if bool(cluster) == bool(directories):
        fail("say what to read: --cluster HOST:PORT,... or --logs DIR, and not both", NOT_ASKED)
    if table_format not in FORMATS:
        fail(f"--format {table_format!r}: allowed is {', '.join(FORMATS)}", NOT_ASKED)
    settings = pairs(spark_conf or [], "--spark-conf")
    try:
        origins = _origins(cluster, controllers, directories, pairs(kafka_conf or [], "--kafka-conf"))
        house = Warehouse.create(warehouse, table_format)
        settings = {**session_settings(house), **executor_settings(environment), **settings}
        with house.running():
            pass  # one that is in use is noticed before Spark starts
        with spark_session(master, settings) as spark:
            began = time.monotonic()
            done = _run(spark, house, origins, every_s=every if is_continuous else None)
            _say_done(done, house, time.monotonic() - began)
    except NothingToRead as error:
        fail(str(error), NOT_ASKED)
    except (WarehouseError, OSError) as error:
        fail(str(error))


@app.command()
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="In Spark's words; - reads it from the input.")],
    warehouse: WarehouseOption,
    as_json: JsonOption = False,
    rows: Annotated[int, typer.Option(help="At most so many rows.")] = 1000,
    master: MasterOption = "local[*]",
    spark_conf: SparkConfOption = None,
) -> None:
    """Asks the tables, also while a pipeline runs. `SHOW VIEWS` lists them."""
    require_spark()
    from quorate.spark.pipeline import cause_of
    from quorate.spark.storage_formats import session_settings
    from quorate.spark.views import held_tables, register_views, suited_to
    from quorate.spark.warehouse import Warehouse, WarehouseError

    sql = sys.stdin.read() if sql == "-" else sql
    try:
        house = Warehouse.open(warehouse)
        settings = {**session_settings(house), **pairs(spark_conf or [], "--spark-conf")}
        with spark_session(master, settings) as spark, held_tables(spark, house) as tables:
            from pyspark.errors import PySparkException

            try:
                with suited_to(spark, tables.contents):
                    register_views(tables, None if "SHOW" in sql.upper() else sql)
                    _print_rows(spark.sql(sql), rows, as_json)
            except PySparkException as error:
                fail(cause_of(error))
    except WarehouseError as error:
        fail(str(error))


@app.command()
def pack(
    file: Annotated[str, typer.Argument(metavar="FILE", help="As in environment.tar.gz.")],
) -> None:
    """Packs this Python environment for the executors of a Spark cluster."""
    require_spark()
    from quorate.spark.packing import pack_environment

    packed = pack_environment(file)
    print(f"{file}: {packed.size_bytes / 1e6:.0f} MB, {', '.join(packed.names)}")
    print(f"use it: quorate pipeline run --environment {file} --master spark://HOST:PORT ...")


# Running


def _origins(
    cluster: str, controllers: str, directories: list[str], security: Mapping[str, str]
) -> list[Origin]:
    from quorate.spark.origins import files_in, live_cluster
    from quorate.spark.security_options import SECURITY

    for name in security:
        if name not in SECURITY:
            fail(f"--kafka-conf {name}: allowed is {', '.join(sorted(SECURITY))}", NOT_ASKED)
    if not cluster:
        return files_in(directories)
    secured = {f"kafka.{name}": value for name, value in security.items()}
    return [live_cluster(cluster, controllers or None, secured)]


def _run(spark: SparkSession, house: Warehouse, origins: list[Origin], every_s: float | None) -> Update:
    from quorate.spark.pipeline import PipelineError, cause_of, follow, update
    from quorate.spark.storage_formats import storage_of

    storage_of(spark, house)  # a format that Spark has not is noticed before anything is read
    tell = _Lines()
    try:
        if every_s is None:
            return update(spark, house, origins, tell)
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        return follow(spark, house, origins, stop=stop, every_s=every_s, tell=tell)
    except PipelineError as error:
        fail(str(error))
    except Exception as error:
        from pyspark.errors import PySparkException

        if isinstance(error, PySparkException):
            fail(cause_of(error))
        raise


class _Lines:
    """The progress as lines on the standard error, not too many of each table."""

    _PAUSE_S: Final = 1.0

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._counts: dict[str, int] = {}
        self._said_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def stage(self, text: str) -> None:
        self._say(text)

    def warn(self, text: str) -> None:
        self._say(text)

    def rows(self, table: str, cluster_id: str, count: int) -> None:
        with self._lock:
            name = f"{table} of {cluster_id}"
            self._counts[name] = self._counts.get(name, 0) + count
            now = time.monotonic()
            if name not in self._said_at or now - self._said_at[name] >= self._PAUSE_S:
                self._said_at[name] = now
                self._say(f"{name}: {self._counts[name]:,} rows")

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", file=sys.stderr, flush=True)


def _say_done(done: Update, house: Warehouse, seconds: float) -> None:
    added = ", ".join(f"{count:,} {table}" for table, count in sorted(done.rows.items())) or "nothing new"
    answers = "answers renewed" if done.has_new_answers else "answers as they were"
    print(f"{house.directory}: {added}; {answers}; {seconds:.1f} s")


# Showing


def _print_rows(frame: DataFrame, rows_max: int, as_json: bool) -> None:
    found = frame.limit(rows_max + 1).collect()
    shown = [row.asDict(recursive=True) for row in found[:rows_max]]
    if as_json:
        print(json.dumps(shown, indent=1, default=_plain))
    else:
        names = frame.columns
        print_table(names, [[_cell(row[name]) for name in names] for row in shown], "no rows")
    if len(found) > rows_max:
        print(f"quorate: only the first {rows_max} rows; --rows asks for more", file=sys.stderr)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()  # Spark gives it in the zone of this machine
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds")[:23]
    text = json.dumps(value, default=_plain) if isinstance(value, (list, dict)) else str(value)
    return text if len(text) <= _CELL_MAX else text[: _CELL_MAX - 1] + "…"
