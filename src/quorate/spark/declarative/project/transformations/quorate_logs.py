"""The raw tables: one stream per log, appended to by exactly one flow.

Two flows into one table of files lose rows without a word: each has its own count of batches, and the table
has only one list of what is done. Several clusters are one flow too: the source reads them all.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from quorate.spark.raw_tables import END_OFFSETS, LOGS

spark = SparkSession.active()
OPTIONS: dict[str, str] = json.loads((Path(__file__).parents[1] / "origin.json").read_text())


def define(table: str, log: str) -> None:
    @dp.table(
        name=table,
        comment=f"from the log {log}: see docs/pipeline.md",
        partition_cols=["cluster_id"],
    )
    def rows() -> DataFrame:
        return spark.readStream.format("quorate").option("log", log).options(**OPTIONS).load()


for table, log in LOGS.items():
    define(table, log)


@dp.temporary_view(name="end_offsets", comment="nobody samples end offsets here: quorate pipeline run does")
def end_offsets() -> DataFrame:
    columns = [f"CAST(NULL AS {one.dataType.simpleString()}) AS {one.name}" for one in END_OFFSETS.fields]
    return spark.sql(f"SELECT {', '.join(columns)} WHERE false")
