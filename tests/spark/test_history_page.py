"""The page about history lists the tables; the code keeps to what Declarative Pipelines can follow."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tools.list_history_tables import PAGE, written

from quorate.spark import answers, history

SOURCE = Path(history.__file__).parent
MODULES = sorted(
    path
    for pattern in ("intervals.py", "history*.py", "answers*.py", "time_travel.py", "alerts.py")
    for path in SOURCE.glob(pattern)
)

# In a function that Declarative Pipelines calls, these look a table up at once, and the pipeline forgets that
# one table depends on the other.
EAGER = {
    "withColumn",
    "withColumns",
    "withColumnRenamed",
    "withColumnsRenamed",
    "withMetadata",
    "withWatermark",
    "drop",
    "fillna",
    "dropna",
    "replace",
    "sample",
    "na",
    "to",
    "columns",
    "schema",
    "dtypes",
    "sparkContext",
    "collect",
    "toPandas",
    "rdd",
}


def test_the_page_lists_the_tables_as_they_are() -> None:
    page = PAGE.read_text()

    assert written(page) == page, "run `python -m tools.list_history_tables`"
    assert all(f"### {name}\n" in page for name in (*history.TABLES, *answers.TABLES))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_selects_and_does_no_more(path: Path) -> None:
    used = {
        node.attr: node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }

    assert not {name: line for name, line in used.items() if name in EAGER}
