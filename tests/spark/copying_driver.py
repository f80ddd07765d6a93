"""A driver that copies a topic into a table of files, and that into another topic, until a file appears.

Started as a process of its own, so that it can be killed:

    python copying_driver.py SERVERS HOME FORMAT [JARS]

`FORMAT` is the source that reads the topic: `quorate`, or `kafka` for Spark's own connector.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from topic_data import awaited

from quorate.spark import session

SCHEMA = "key binary, value binary"


def into_the_table(spark: SparkSession, servers: str, home: Path, source: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "subscribe": "from", "startingOffsets": "earliest"}
    frame = spark.readStream.format(source).options(**options, maxOffsetsPerTrigger="700").load()
    writer = frame.writeStream.format("parquet").option("path", str(home / "table"))
    writer = writer.option("checkpointLocation", str(home / "in"))
    awaited(writer.trigger(availableNow=True).start)


def into_the_topic(spark: SparkSession, servers: str, home: Path) -> None:
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(home / "table"))
    writer = frame.select("key", "value").writeStream.format("quorate")
    writer = writer.options(**{"bootstrap.servers": servers, "topic": "to", "kafka.batch.size": "2000"})
    writer = writer.option("checkpointLocation", str(home / "out"))
    awaited(writer.trigger(availableNow=True).start)


def main(servers: str, home: Path, source: str, jars: str = "") -> None:
    spark = session("local[2]", settings={"spark.jars": jars} if jars else {})
    while True:
        is_last = (home / "enough").exists()
        into_the_table(spark, servers, home, source)
        into_the_topic(spark, servers, home)
        if is_last:
            break
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
