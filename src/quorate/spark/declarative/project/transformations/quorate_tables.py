"""History and answers: the functions of `quorate.spark`, each a materialized view that is computed anew.

The functions only select, join and group. Methods such as `withColumn` would look at their input at once, and
Spark would then no longer know that one table is made of another: from the second run on it would be a run
behind.
Readers see these views empty for the time of an update.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from quorate.spark.views import ANSWERS, HISTORY, compute, each_once

spark = SparkSession.active()


def table_named(name: str) -> DataFrame:
    table = spark.read.table(name)
    return each_once(table) if name == "events" else table


def define(name: str) -> None:
    @dp.materialized_view(name=name, comment="see docs/history.md")
    def rows() -> DataFrame:
        return compute(name, table_named)


for name in (*HISTORY, *ANSWERS):
    define(name)
