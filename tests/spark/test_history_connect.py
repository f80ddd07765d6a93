"""The same tables over Spark Connect, which is another process here: a process has one kind of session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import json
from inspect import Parameter, signature

from quorate.spark import alerts, answers, history, session, time_travel
from quorate.spark.raw_tables import RAW_TABLES
from story_logs import bad_day

settings = {
    "spark.api.mode": "connect",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
spark = session("local[2]", settings=settings)
tables = {name: spark.createDataFrame([], schema) for name, schema in RAW_TABLES.items()}
tables["records"] = spark.createDataFrame(bad_day().table())
for module in (history, answers):
    for name in module.TABLES:
        function = getattr(module, name)
        parameters = signature(function).parameters.values()
        inputs = [one.name for one in parameters if one.default is Parameter.empty]
        tables[name] = function(*[tables[one] for one in inputs])
asked = ("broker_states", "partition_states", "availability", "incidents")
found = {name: tables[name].count() for name in asked}
image = time_travel.image_at_offset(tables["records"], 10)
found["brokers"] = image.brokers.count()
found["difference"] = time_travel.difference(image, image).count()
found["alerts"] = alerts.raised(alerts.watch(tables["records"])).count()
print("found " + json.dumps(found))
spark.stop()
"""


def test_the_tables_are_the_same_over_connect() -> None:
    here = Path(__file__).parent
    paths = [str(here.parent), str(here), str(here.parent.parent)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        # It takes a port that is free, instead of one that another session may have.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SPARK_TESTING": "1"},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("found ")]
    assert json.loads(line.removeprefix("found ")) == {
        "broker_states": 18,
        "partition_states": 29,
        "availability": 10,
        "incidents": 7,
        "brokers": 3,
        "difference": 0,
        "alerts": 3,
    }
