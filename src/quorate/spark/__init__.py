"""The logs of a cluster as tables of Spark: the data source, the history, the answers.

from quorate.spark import session

spark = session()
orders = (
    spark.read.format("quorate")
    .option("bootstrap.servers", "127.0.0.1:9092")
    .option("subscribe", "orders")
    .load()
)
"""

from __future__ import annotations

# The function takes the name of its module: what the package offers is a session, not where it is made.
from quorate.spark.session import register, session

__all__ = ["register", "session"]
