"""The raw tables: one stream per log, appended to by exactly one flow.

Two flows into one table of files lose rows without a word: each has its own count of batches, and the table
has only one list of what is done. Several clusters are one flow too: the source reads them all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from quorate.spark.raw_tables import LOGS, RAW_TABLES

spark = SparkSession.active()
ORIGIN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "origin.json").read_text())


def define(table: str, log: str) -> None:
    @dp.table(
        name=table,
        comment=f"from the log {log}: see docs/pipeline.md",
        partition_cols=["cluster_id"],
    )
    def rows() -> DataFrame:
        return spark.readStream.format("quorate").option("log", log).options(**ORIGIN["options"]).load()


def define_empty(table: str, why: str) -> None:
    columns = [
        f"CAST(NULL AS {one.dataType.simpleString()}) AS {one.name}" for one in RAW_TABLES[table].fields
    ]

    @dp.temporary_view(name=table, comment=why)
    def rows() -> DataFrame:
        return spark.sql(f"SELECT {', '.join(columns)} WHERE false")


for table, log in LOGS.items():
    if table in ORIGIN["tables"]:
        define(table, log)
    else:
        define_empty(table, f"there is no log {log} where this reads")
define_empty("end_offsets", "nobody samples end offsets here: quorate pipeline run does")
