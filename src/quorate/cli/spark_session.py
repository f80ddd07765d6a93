"""How commands that need Spark get a session, and what they say if there cannot be one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.cli.asking import NOT_ASKED, fail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MasterOption", "SparkConfOption", "WarehouseOption", "require_spark", "spark_session"]

MasterOption = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], spark://HOST:PORT...")
]
SparkConfOption = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", metavar="KEY=VALUE", help="A setting of Spark's; may be given many times."),
]
WarehouseOption = Annotated[
    str, typer.Option("--warehouse", metavar="DIR", help="The directory with the tables.")
]


def require_spark() -> None:
    """Ends the command with what to install if Spark is not."""
    absent = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if absent:
        fail(f"{', '.join(absent)} not installed: pip install 'quorate[spark]'", NOT_ASKED)


@contextmanager
def spark_session(master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for the time of the block. Without Java, or without the master, the command ends here."""
    from quorate.spark.java import JavaMissing
    from quorate.spark.session import session

    try:
        spark = session(master, settings=settings)
    except JavaMissing as error:
        fail(str(error), NOT_ASKED)
    except Exception as error:  # Spark has many words for it
        fail(f"Spark does not start with --master {master}: {_first_line(error)}", NOT_ASKED)
    try:
        yield spark
    finally:
        _stop(spark)


def _stop(spark: Any) -> None:
    try:
        spark.stop()
    except Exception as error:
        print(f"quorate: Spark did not stop in order: {_first_line(error)}", file=sys.stderr)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
