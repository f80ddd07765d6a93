"""The internal logs with the oldest Spark that is supported: at once, filtered, as variants, as a stream."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from metadata_directories import copy_of, data, leads
from test_topic_spark_4_0 import ROOT, environment

pytestmark = pytest.mark.spark

PROGRAM = """
import json, sys
import pyspark
from quorate.spark import session

logs, later, home = sys.argv[1:]
spark = session("local[2]")
read = spark.read.format("quorate").option("log", "metadata")
rows = read.load(logs)

def stream(path):
    source = spark.readStream.format("quorate").option("log", "metadata").option("maxOffsetsPerTrigger", "3")
    rows = source.load(path)
    writer = rows.writeStream.format("parquet").option("checkpointLocation", home + "/checkpoint")
    query = writer.option("path", home + "/rows").trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(row.offset for row in spark.read.parquet(home + "/rows").collect())

LEADER = "variant_get(fields, '$.leaderId', 'int') leader"
variants = read.option("fields", "variant").load(logs).where("type = 'LeaderChange'")
found = {
    "version": pyspark.__version__.split(".")[:2],
    "rows": rows.count(),
    "filtered": [row.offset for row in rows.where("type = 'LeaderChange' and offset > 0").collect()],
    "variants": [row.leader for row in variants.selectExpr(LEADER).collect()],
    "streamed": [stream(logs), stream(later)],
}
print("FOUND", json.dumps(found))
spark.stop()
"""


def test_metadata_logs_are_read(tmp_path: Path) -> None:
    log = [leads(0, 1), data(1, 1, 3), data(4, 1), leads(5, 2), data(6, 2, 2)]
    copy_of(tmp_path / "logs", (0, log))
    copy_of(tmp_path / "later", (0, [*log, leads(8, 3), data(9, 3)]))

    done = subprocess.run(
        [str(environment()), "-c", PROGRAM, *(str(tmp_path / name) for name in ("logs", "later", "home"))],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )

    line = next((one for one in done.stdout.splitlines() if one.startswith("FOUND")), None)
    assert line is not None, done.stderr
    assert json.loads(line.removeprefix("FOUND ")) == {
        "version": ["4", "0"],
        "rows": 8,
        "filtered": [5],
        "variants": [1, 1],
        "streamed": [list(range(5)), list(range(8))],
    }
