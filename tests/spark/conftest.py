"""One Spark session for all tests of a worker: starting one takes seconds, and a process has only one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quorate.spark import session
from quorate.spark.session import recommended_settings

# As the pipeline has it for short histories: to compile and to adapt plans takes longer than they do.
FOR_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
MASTER = "local[2]"
JAVA_OPTIONS = recommended_settings(MASTER)["spark.driver.extraJavaOptions"]


@pytest.fixture(scope="module")
def as_for_many_rows(spark: SparkSession) -> Iterator[None]:
    """Plans are compiled and adapted, as those of long histories are."""
    for key in FOR_FEW_ROWS:
        spark.conf.unset(key)
    yield
    for key, value in FOR_FEW_ROWS.items():
        spark.conf.set(key, value)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """In classic mode, two cores, a heap of 1 GB, tables in memory and files where the tests' files are."""
    home: Path = tmp_path_factory.mktemp("spark")
    spark = session(
        MASTER,
        app_name="tests",
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "local"),
            "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dderby.system.home={home / 'derby'}",
            # To note the line that made each column, for messages, takes Python long.
            "spark.python.sql.dataFrameDebugging.enabled": "false",
            "spark.sql.streaming.metricsEnabled": "false",
            **FOR_FEW_ROWS,
        },
    )
    yield spark
    spark.stop()
