"""`quorate pipeline run` as a whole: the first run over a log, one over what is new, and one over nothing.

The log is that of `spark_logs`. Spark runs on two cores with a heap of 1 GB, and is warm. A run reads what is
new, notes problems and computes all answers from the whole history; *reading* is the run without the answers.
QUORATE_BENCH_RECORDS=1000000 chooses another size.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.spark_logs import SECTION_RECORDS, write_log
from bench.timing import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE: Final = 200_000
READ_S: Final = 10.0
UPDATE_S: Final = 60.0


def section() -> Iterator[Row]:
    from quorate.spark import session

    size = int(os.environ.get("QUORATE_BENCH_RECORDS", str(SIZE)))
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        spark = session("local[2]", app_name="bench", settings={"spark.driver.memory": "1g"})
        try:
            yield from _section(spark, root, size)
        finally:
            spark.stop()


def _section(spark: SparkSession, root: Path, size: int) -> Iterator[Row]:
    from quorate.spark.warehouse import Warehouse

    _run(spark, Warehouse.create(root / "warm-house"), write_log(root / "warm", 1 + SECTION_RECORDS))
    warehouse = Warehouse.create(root / "house")
    first = _run(spark, warehouse, write_log(root / "first", 1 + size))
    label = f"{size:,} records"
    yield Row(f"the first run over {label}, in s", sum(first), note=f"reading {first[0]:.1f} s")
    grown = write_log(root / "grown", 1 + size + SECTION_RECORDS)
    more = _run(spark, warehouse, grown)
    note = f"with answers {sum(more):.1f} s"
    yield Row(f"reading {SECTION_RECORDS:,} more, in s", more[0], at_most=READ_S, note=note)
    yield Row(f"a run over {SECTION_RECORDS:,} more, answers renewed, in s", sum(more), at_most=UPDATE_S)
    yield Row("a run over nothing new, in s", sum(_run(spark, warehouse, grown)), at_most=READ_S)


def _run(spark: SparkSession, warehouse: object, log: Path) -> tuple[float, float]:
    """The seconds of reading, and those of the answers."""
    from quorate.spark.origins import files_in
    from quorate.spark.pipeline import update
    from quorate.spark.warehouse import Warehouse

    class Clock:
        """Notes when the answers are begun."""

        answers = 0.0

        def stage(self, text: str) -> None:
            if "answers" in text:
                self.answers = time.perf_counter()

        def rows(self, table: str, cluster_id: str, count: int) -> None: ...

        def warn(self, text: str) -> None: ...

    assert isinstance(warehouse, Warehouse)
    clock, began = Clock(), time.perf_counter()
    update(spark, warehouse, files_in([str(log)]), clock)
    return clock.answers - began, time.perf_counter() - clock.answers
