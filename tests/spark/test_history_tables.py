"""The tables of history against a naive fold over random logs, all clusters in one DataFrame."""

from __future__ import annotations

import json
from typing import Any

import pytest
from naive_fold import naive_history
from pyspark.sql import DataFrame, SparkSession
from random_logs import Log, as_table, random_logs

from quorate.spark import history
from quorate.spark.history_schemas import TABLES

pytestmark = pytest.mark.spark

OF_RECORDS = (
    "broker_sessions",
    "broker_states",
    "controller_terms",
    "partition_leaders",
    "partition_isr",
    "partition_states",
    "topics",
    "configs",
    "features",
)


@pytest.fixture(scope="module")
def logs() -> list[Log]:
    return random_logs(range(16))


@pytest.fixture(scope="module")
def naive(logs: list[Log]) -> list[dict[str, list[dict[str, Any]]]]:
    return [naive_history(log) for log in logs]


@pytest.fixture(scope="module")
def records(spark: SparkSession, as_for_many_rows: None, logs: list[Log]) -> DataFrame:  # noqa: ARG001
    return spark.createDataFrame(as_table(logs)).cache()


@pytest.mark.parametrize("table", OF_RECORDS)
def test_a_table_agrees_with_a_naive_fold(
    table: str, records: DataFrame, naive: list[dict[str, list[dict[str, Any]]]]
) -> None:
    found = rows_of(getattr(history, table)(records))

    expected = canonical([row for tables in naive for row in tables[table]])
    assert len(expected) > 30
    assert canonical(found) == expected


@pytest.mark.parametrize("table", OF_RECORDS)
def test_a_table_is_as_it_was_declared(table: str, records: DataFrame) -> None:
    schema = getattr(history, table)(records).schema

    assert [(one.name, one.dataType.simpleString(), one.metadata) for one in schema] == [
        (one.name, one.dataType.simpleString(), one.metadata) for one in TABLES[table]
    ]


def rows_of(table: DataFrame) -> list[dict[str, Any]]:
    return table.toArrow().to_pylist()


def canonical(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
