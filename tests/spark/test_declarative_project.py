"""The project for Spark Declarative Pipelines: the rules that it depends on, and what a run of it says."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.sql import SparkSession

import quorate.spark
from quorate.spark.declarative import copy_project
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
    spec = copy_project(tmp_path / "project", logs=["/somewhere"])
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
    assert said == {"bootstrap.servers": "127.0.0.1:9092", "controllers": "127.0.0.1:9093"}
    with pytest.raises(FileExistsError):
        copy_project(tmp_path / "project", cluster="127.0.0.1:9092")
    with pytest.raises(ValueError, match="not both"):
        copy_project(tmp_path / "other", cluster="127.0.0.1:9092", logs=["/x"])
