"""One Spark session for all tests of a worker: starting one takes seconds, and a process has only one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quorate.spark import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """In classic mode, two cores, a heap of 1 GB, tables in memory and files where the tests' files are."""
    home: Path = tmp_path_factory.mktemp("spark")
    spark = session(
        "local[2]",
        app_name="tests",
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "local"),
            # Tests have few rows: to optimise the code for many takes Java longer than all they do.
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={home / 'derby'}",
            "spark.sql.streaming.metricsEnabled": "false",
        },
    )
    yield spark
    spark.stop()
