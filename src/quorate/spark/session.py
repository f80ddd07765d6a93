"""A Spark session that suits the pipeline, with the data source registered and a Java found.

    from quorate.spark import session

    spark = session("local[2]")
    source = spark.read.format("quorate").option("bootstrap.servers", "127.0.0.1:9092")
    orders = source.option("subscribe", "orders").load()

Spark finds the source by itself too, through the module `pyspark_quorate`; but one broken module of that
kind of anybody's makes it find none, and a source that takes filters over is refused unless the session
allows it. So the session registers it, in the form that takes filters over.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from quorate.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FOR_MANY_ROWS", "recommended_settings", "register", "session"]

_SHUFFLE_PARTITIONS_MAX: Final = 16
_SETTINGS: Final = {
    # Java's second compiler takes as long as all the rest of a run over a short history: see `FOR_MANY_ROWS`.
    # Without it Java keeps room for a fifth of the code, which is full after some minutes: then it throws
    # away what it has compiled, and compiles it again.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.log.level": "ERROR",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # The default one is refused by stateful streams that keep more than one value.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
FOR_MANY_ROWS: Final = {"spark.driver.extraJavaOptions": "-XX:+TieredCompilation"}
"""Settings for a history of millions of rows: with all of Java's compilers it takes half the time."""

_LOCAL: Final = re.compile(r"local(?:\[([0-9]+|\*)(?:,[0-9]+)?\])?")


def session(
    master: str = "local[*]", *, app_name: str = "quorate", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, made if there is none: Spark has one Java machine per process.

    `settings` are Spark's own keys and win over the recommended ones; those of a machine that runs already,
    such as its memory, cannot be changed any more.
    """
    from pyspark.sql import SparkSession

    with _surroundings(master):
        builder = SparkSession.builder.master(master).appName(app_name)
        for key, value in {**recommended_settings(master), **(settings or {})}.items():
            builder = builder.config(key, value)
        with warnings.catch_warnings():
            # A Connect session applies all settings twice, and complains of those that are fixed by then.
            warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)
            spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Makes `format("quorate")` known to a session that somebody else built."""
    from pyspark.errors import PySparkException

    from quorate.spark.source import PushingQuorateSource, QuorateSource

    pushes = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false") == "true"
    try:
        with _threads_may_write_environment(spark):
            spark.dataSource.register(PushingQuorateSource if pushes else QuorateSource)
    except PySparkException as error:
        # Spark 4.0 has found it by itself, and does not let that be replaced.
        if error.getErrorClass() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def recommended_settings(master: str) -> dict[str, str]:
    """What differs from Spark's defaults, and why: see `docs/pipeline.md`.

    >>> recommended_settings("local[2]")["spark.sql.shuffle.partitions"]
    '2'
    """
    settings = dict(_SETTINGS)
    local = _LOCAL.fullmatch(master)
    if local:
        # 200 tiny tasks, which is the default, cost more than the shuffle on one machine.
        cores = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
        settings["spark.sql.shuffle.partitions"] = str(min(cores, _SHUFFLE_PARTITIONS_MAX))
    return settings


@contextmanager
def _threads_may_write_environment(spark: SparkSession) -> Iterator[None]:
    """Functions made meanwhile have an environment that bears threads.

    Every stream that starts writes into the one that came with the source, in a thread of its own. Two at
    once can leave Java's plain map with a wrong size, and no task of the session can be read ever after.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:  # over Connect, where the server makes functions
        yield
        return
    context = spark.sparkContext
    before = context.environment
    context.environment = jvm.java.util.concurrent.ConcurrentHashMap(before)
    try:
        yield
    finally:
        context.environment = before


@contextmanager
def _surroundings(master: str) -> Iterator[None]:
    """The environment that the Java machine and its Python workers start in; afterwards it is as it was."""
    wanted = {"JAVA_HOME": str(find_java_home()), "PYSPARK_PYTHON": sys.executable}
    if _LOCAL.fullmatch(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {key: os.environ.get(key) for key in wanted}
    for key, value in wanted.items():
        if key == "JAVA_HOME" or before[key] is None:
            os.environ[key] = value
    try:
        yield
    finally:
        for key, value_before in before.items():
            if value_before is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value_before
