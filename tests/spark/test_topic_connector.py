"""Spark's own Kafka connector on a cluster of ours: the same rows, read and written, at once or streamed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from apache_oracle import missing
from spark_connector import connector_jars
from topic_data import create, fill, values

from quorate.testing import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.interop]

# Another Java machine than that of the other tests: jars are given to one when it starts.
PROGRAM = """
import json, sys
from quorate.spark import session

servers, home, jars = sys.argv[1:]
spark = session("local[2]", settings={"spark.jars": jars})
to = {"kafka.bootstrap.servers": servers}

def read(source, topic, **more):
    options = {**to, "subscribe": topic, "includeHeaders": "true", **more}
    return spark.read.format(source).options(**options).load()

theirs, ours = read("kafka", "orders"), read("quorate", "orders")
found = {
    "schema": theirs.schema == ours.schema,
    "rows": theirs.count(),
    "differences": theirs.exceptAll(ours).count() + ours.exceptAll(theirs).count(),
    "by time": read("kafka", "orders", startingTimestamp="1700000000001").count()
    - read("quorate", "orders", startingTimestamp="1700000000001").count(),
    "a range": read(
        "kafka",
        "orders",
        startingOffsets='{"orders":{"0":5,"1":-2}}',
        endingOffsets='{"orders":{"0":9,"1":3}}',
    ).count(),
}
ours.select("key", "value", "headers").write.format("kafka").options(**to, topic="by-kafka").save()
theirs.select("key", "value", "headers").write.format("quorate").mode("append").options(
    **to, topic="by-quorate"
).save()
columns = "key", "value", "headers", "partition"
by_kafka, by_quorate = (
    read("quorate", topic).select(*columns) for topic in ("by-kafka", "by-quorate")
)
keyed = "key is not null"
found["written differently"] = (
    by_kafka.where(keyed).exceptAll(by_quorate.where(keyed)).count()
    + by_quorate.where(keyed).exceptAll(by_kafka.where(keyed)).count()
)

stream = spark.readStream.format("kafka").options(**to, subscribe="orders", startingOffsets="earliest").load()
writer = stream.select("key", "value").writeStream.format("kafka").options(**to, topic="streamed")
writer.option("checkpointLocation", home).trigger(availableNow=True).start().awaitTermination()
print("FOUND", json.dumps(found))
spark.stop()
"""


def test_both_see_and_write_the_same(tmp_path: Path) -> None:
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with Cluster(mode="processes") as kafka:
        servers = kafka.bootstrap_servers
        create(servers, "orders", 2)
        for topic in ("by-kafka", "by-quorate", "streamed"):
            create(servers, topic, 3)
        for now_ms in (1_700_000_000_000, 1_700_000_000_001):
            fill(servers, "orders", [row(number) for number in range(500)], now_ms=now_ms)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, servers, str(tmp_path), connector_jars()],
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        line = next((one for one in done.stdout.splitlines() if one.startswith("FOUND")), None)
        assert line is not None, done.stderr
        assert json.loads(line.removeprefix("FOUND ")) == {
            "schema": True,
            "rows": 1000,
            "differences": 0,
            "by time": 0,
            "a range": 4 + 3,
            "written differently": 0,
        }
        assert sorted(map(repr, values(servers, "streamed"))) == sorted(map(repr, values(servers, "orders")))


def row(number: int) -> dict[str, object]:
    headers = [{"key": "trace", "value": b"%d" % number}, {"key": "none", "value": None}]
    return {
        "partition": number % 2,
        "key": None if number % 5 == 0 else b"key-%d" % number,
        "value": None if number % 7 == 0 else b"value-%d" % number,
        "headers": headers if number % 3 == 0 else None,
    }
