"""All tables by name: raw ones from the warehouse, history and answers by the functions of their names.

A function's parameters are named after the tables that it reads, so this is all the wiring there is.
Nothing is computed until somebody asks, and no metastore is needed: the views belong to a session.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from quorate.spark import answers, history
from quorate.spark.ingest import read_raw
from quorate.spark.raw_tables import RAW_TABLES
from quorate.spark.warehouse import Contents, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "ANSWERS",
    "HISTORY",
    "TABLES",
    "Tables",
    "compute",
    "each_once",
    "held_tables",
    "inputs",
    "is_short",
    "register_views",
    "suited_to",
]

Function = Callable[..., "DataFrame"]

HISTORY: Final[Mapping[str, Function]] = {name: getattr(history, name) for name in history.TABLES}
ANSWERS: Final[Mapping[str, Function]] = {name: getattr(answers, name) for name in answers.TABLES}
TABLES: Final = (*RAW_TABLES, *HISTORY, *ANSWERS)

_WORD: Final = re.compile(r"\w+")
_FEW_ROWS: Final = 100_000
_SHORT_ROWS: Final = 20_000
_SHORT_BYTES: Final = 4 << 20  # of files; in memory it is some ten times as much
_FOR_FEW_ROWS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Each query is described in full for a page that nobody looks at.
    "spark.sql.maxPlanStringLength": "0",
    "spark.sql.ui.explainMode": "simple",
}


def inputs(function: Function) -> tuple[str, ...]:
    """The tables that a function reads: its parameters that have no default."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(one.name for one in parameters if one.default is inspect.Parameter.empty)


def compute(name: str, given: Callable[[str], DataFrame]) -> DataFrame:
    """A table of history or answers out of others."""
    function = HISTORY.get(name) or ANSWERS[name]
    return function(**{one: given(one) for one in inputs(function)})


class Tables:
    """The tables of one version of a warehouse, each made when it is first asked for.

    `fresh` computes answers anew; otherwise they are those that the last run left, if it did.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse, contents: Contents) -> None:
        self._spark, self._warehouse = spark, warehouse
        self.contents = contents
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def fresh(self, name: str) -> DataFrame:
        """A table as it follows from the raw tables now."""
        return self._make_raw(name) if name in RAW_TABLES else compute(name, self.fresh_input)

    def fresh_input(self, name: str) -> DataFrame:
        """The same, and the same frame for all that are made of it."""
        key = f"fresh {name}"
        if key not in self._made:
            self._made[key] = self.fresh(name)
        return self._made[key]

    def give(self, name: str, frame: DataFrame) -> None:
        """What a table is, for all that are made of it."""
        self._made[f"fresh {name}"] = frame

    def _make(self, name: str) -> DataFrame:
        if name in self.contents.answers:
            place = self._warehouse.answer_place(self.contents.answers[name].name)
            return self._spark.read.parquet(str(place))
        return self._make_raw(name) if name in RAW_TABLES else compute(name, self.__getitem__)

    def _make_raw(self, name: str) -> DataFrame:
        frame = read_raw(self._spark, self._warehouse, self.contents, name)
        return each_once(frame) if name == "events" else frame


def each_once(events: DataFrame) -> DataFrame:
    """An event that was read from a journal and from the topic, or published twice, is one event."""
    has_identity = F.col("incarnation").isNotNull() & F.col("sequence").isNotNull()
    known = events.where(has_identity).dropDuplicates(["cluster_id", "node_id", "incarnation", "sequence"])
    return known.unionByName(events.where(~has_identity))


def is_short(contents: Contents) -> bool:
    """Whether a history has so few rows that they can be held in memory."""
    parts = [part for parts in contents.tables.values() for part in parts]
    parts += [part for by_cluster in contents.unconfirmed.values() for part in by_cluster.values()]
    return (
        sum(part.rows for part in parts) < _SHORT_ROWS
        and sum(part.size_bytes for part in parts) < _SHORT_BYTES
    )


@contextmanager
def suited_to(spark: SparkSession, contents: Contents) -> Iterator[None]:
    """The plans of tables are long, and most histories short: then compiling them, and dividing and adapting
    the work, takes many times longer than the work."""
    rows = sum(part.rows for parts in contents.tables.values() for part in parts)
    wanted = _FOR_FEW_ROWS if rows < _FEW_ROWS else {}
    before = {key: spark.conf.get(key) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value_before in before.items():
            spark.conf.set(key, value_before or "")


@contextmanager
def held_tables(spark: SparkSession, warehouse: Warehouse) -> Iterator[Tables]:
    """The tables of the newest version, which stay there until the block ends."""
    contents, held = warehouse.hold()
    try:
        yield Tables(spark, warehouse, contents)
    finally:
        if held is not None:
            held.release()


def register_views(tables: Tables, spark_sql: str | None = None) -> list[str]:
    """Makes the tables that a query names, or all, views of the session; their names."""
    names: Iterable[str] = (
        TABLES if spark_sql is None else sorted(set(_WORD.findall(spark_sql.lower())) & set(TABLES))
    )
    for name in names:
        tables[name].createOrReplaceTempView(name)
    return list(names)
