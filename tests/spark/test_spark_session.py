"""What the session registers bears what Spark does with it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from quorate.spark.session import register

pytestmark = pytest.mark.spark


def test_streams_may_write_into_the_environment_of_the_source_at_once(spark: SparkSession):
    before = dict(spark.sparkContext.environment)
    register(spark)
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource("quorate").dataSourceCls().envVars()
    assert environment.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
    assert dict(environment) == before
    assert spark.sparkContext.environment == before
    assert isinstance(spark.sparkContext.environment, dict)
