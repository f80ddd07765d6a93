"""The project for Spark Declarative Pipelines: the rules that it depends on, and what a run of it says."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from metadata_directories import copy_of, leads
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.sql import SparkSession

import quorate.spark
from quorate.spark.declarative import copy_project
from quorate.spark.java import find_java_home
from quorate.spark.raw_tables import LOGS
from quorate.spark.views import ANSWERS, HISTORY, inputs

SOURCES = Path(quorate.spark.__file__).parent
FUNCTIONS = sorted([*SOURCES.glob("history*.py"), *SOURCES.glob("answers*.py"), SOURCES / "intervals.py"])
# Each makes Spark look at its input at once, and lose the edge of the graph that leads to it.
EAGER = {
    *(
        "withColumn",
        "withColumns",
        "withColumnRenamed",
        "withColumnsRenamed",
        "withMetadata",
        "withWatermark",
    ),
    *("drop", "fillna", "dropna", "replace", "sample", "sampleBy", "to", "randomSplit", "unpivot", "melt"),
    *("columns", "schema", "dtypes", "collect", "toPandas", "first", "head", "isEmpty"),
}


def test_tables_only_select():
    assert len(FUNCTIONS) > 5
    found = [
        f"{path.name}:{node.lineno}: .{node.attr}"
        for path in FUNCTIONS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in EAGER
        and not (isinstance(node.value, ast.Name) and node.value.id == "F")
    ]
    assert found == []


class Definitions:
    """Collects what a project defines, in place of the server."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.flows: list[Any] = []

    def register_output(self, output: Any) -> None:
        self.outputs.append(output)

    def register_flow(self, flow: Any) -> None:
        self.flows.append(flow)


@pytest.fixture
def definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Definitions:
    monkeypatch.setattr(SparkSession, "active", SimpleNamespace)
    log = copy_of(tmp_path / "log", (0, [leads(0, 1)]))
    spec = copy_project(tmp_path / "project", logs=[str(log)])
    found = Definitions()
    with graph_element_registration_context(found):  # type: ignore[arg-type]
        for file in sorted(spec.parent.glob("transformations/*.py")):
            module = importlib.util.spec_from_file_location(file.stem, file)
            assert module is not None
            assert module.loader is not None
            module.loader.exec_module(importlib.util.module_from_spec(module))
    return found


def test_every_table_is_defined_with_exactly_one_flow(definitions: Definitions):
    flows = Counter(flow.target for flow in definitions.flows)
    assert set(flows) == {*LOGS, "end_offsets", *HISTORY, *ANSWERS}
    assert set(flows.values()) == {1}
    assert {output.name for output in definitions.outputs} == set(flows)


def test_every_input_of_a_table_is_a_table(definitions: Definitions):
    names = {output.name for output in definitions.outputs}
    for function in (*HISTORY.values(), *ANSWERS.values()):
        assert set(inputs(function)) <= names, function.__name__


def test_a_project_is_written_once_and_knows_what_to_read(tmp_path: Path):
    spec = copy_project(tmp_path / "project", cluster="127.0.0.1:9092", controllers="127.0.0.1:9093")
    assert f"storage: file://{tmp_path}/project/storage" in spec.read_text()
    said = json.loads((spec.parent / "origin.json").read_text())
    options = {"bootstrap.servers": "127.0.0.1:9092", "controllers": "127.0.0.1:9093"}
    assert said == {"tables": list(LOGS), "options": options}
    with pytest.raises(FileExistsError):
        copy_project(tmp_path / "project", cluster="127.0.0.1:9092")
    with pytest.raises(ValueError, match="not both"):
        copy_project(tmp_path / "other", cluster="127.0.0.1:9092", logs=["/x"])


UPDATES = """
import json, sys, warnings
from pathlib import Path

from metadata_directories import copy_of, data, leads
from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession

from quorate.spark.declarative import copy_project
from quorate.spark.session import recommended_settings

home = Path(sys.argv[1])
log = [leads(0, 1, leader=1, voters=[1]), data(1, 1, 3)]
copy_of(home / "log", (0, log))
spec_path = copy_project(home / "project", logs=[str(home / "log")])
spec = load_pipeline_spec(spec_path)
# As spark-pipelines makes its session: the source is found by its name. If it were registered, the client of
# Spark 4.3 would not understand what the server says at the end of an update.
settings = recommended_settings("local[2]") | {
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.api.mode": "connect",
    "spark.driver.memory": "1g",
    "spark.local.dir": str(home),
    "spark.sql.warehouse.dir": str(home / "warehouse"),
    "spark.sql.catalogImplementation": "hive",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:declarative;create=true",
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={home}",
    "spark.sql.pipelines.execution.streamstate.pollingInterval": "0",
    "spark.sql.pipelines.maxFlowRetryAttempts": "0",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
spark = SparkSession.builder.master("local[2]")
for key, value in settings.items():
    spark = spark.config(key, value)
warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)
spark = spark.getOrCreate()

def update():
    graph = create_dataflow_graph(spark, default_catalog=None, default_database=None, sql_conf={})
    registry = SparkConnectGraphElementRegistry(spark, graph)
    register_definitions(spec_path, registry, spec, spark, graph)
    wanted = ["records", "controller_terms", "broker_states", "flapping"]
    events = start_run(spark, graph, full_refresh=[], full_refresh_all=False, refresh=wanted, dry=False,
                       storage=spec.storage)
    list(events)
    offsets = sorted(row.offset for row in spark.table("records").collect())
    terms = sorted(row.epoch for row in spark.table("controller_terms").collect())
    return {"offsets": offsets, "terms": terms, "columns": spark.table("flapping").columns}

found = [update()]
copy_of(home / "log", (0, [*log, leads(4, 2, leader=1, voters=[1]), data(5, 2, 2)]))
found.append(update())
(home / "found.json").write_text(json.dumps(found))
spark.stop()
"""


@pytest.mark.spark
def test_the_second_update_sees_what_is_new(tmp_path: Path):
    """If a table forgot what it is made of, it would be one update behind from here on."""
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", UPDATES, str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": f"{tests}:{tests / 'spark'}",
            "JAVA_HOME": str(find_java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (tmp_path / "found.json").exists(), done.stdout[-3000:] + done.stderr[-6000:]
    first, second = json.loads((tmp_path / "found.json").read_text())
    assert (first["offsets"], first["terms"]) == ([0, 1, 2, 3], [1])
    assert (second["offsets"], second["terms"]) == ([0, 1, 2, 3, 4, 5, 6], [1, 2])
    assert "fence_count" in second["columns"], "a table of tables is there"
