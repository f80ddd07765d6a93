"""A topic as a table: real Spark on a real cluster, and everything that can be asked wrongly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from topic_data import create, delete, delete_records, fill

from quorate.spark.topic_offsets import DataLossError
from quorate.spark.topic_options import read_topic_options
from quorate.spark.topic_reader import TopicReader
from quorate.testing import Cluster

pytestmark = pytest.mark.spark

T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Two partitions with 1,000 and 500 records, the second half of each an hour later."""
    with Cluster(mode="processes") as kafka:
        address = kafka.bootstrap_servers
        create(address, "orders", 2)
        for begin, hour in ((0, 0), (500, 1)):
            fill(address, "orders", [row(0, begin + n) for n in range(500)], now_ms=T0 + hour * 3_600_000)
            fill(
                address, "orders", [row(1, begin // 2 + n) for n in range(250)], now_ms=T0 + hour * 3_600_000
            )
        yield address


def row(partition: int, number: int) -> dict[str, object]:
    headers = [{"key": "trace", "value": b"%d" % number}, {"key": "none", "value": None}]
    return {
        "partition": partition,
        "key": None if number % 5 == 0 else b"key-%d" % number,
        "value": None if number % 7 == 0 else b"value-%d" % number,
        "headers": headers if number % 3 == 0 else None,
    }


def read(spark: SparkSession, servers: str, **options: object) -> DataFrame:
    given = {"subscribe": "orders", "bootstrap.servers": servers, **options}
    if "assign" in given or "subscribePattern" in given:
        del given["subscribe"]
    return spark.read.format("quorate").options(**given).load()  # type: ignore[arg-type]


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for partition, offset in sorted(frame.select("partition", "offset").collect()):
        found.setdefault(partition, []).append(offset)
    return found


def test_every_record_with_every_column(spark: SparkSession, servers: str) -> None:
    frame = read(spark, servers, includeHeaders="true", includeGaps="true")
    rows = {(one.partition, one.offset): one for one in frame.collect()}
    assert len(rows) == frame.count() == 1500
    for (partition, offset), one in rows.items():
        expected = row(partition, offset)
        assert (one.key, one.value) == (expected["key"], expected["value"])
        headers = None if one.headers is None else [pair.asDict() for pair in one.headers]
        assert headers == expected["headers"]
        assert (one.topic, one.timestampType, one.gap) == ("orders", 0, None)
    late = frame.where("timestamp >= timestamp_millis(1700003600000)").count()
    assert late == 750


def test_filters_on_offsets_partitions_and_topics_are_taken_over(spark: SparkSession, servers: str) -> None:
    frame = read(spark, servers)
    last = frame.where("offset >= 990 and offset < 995 and partition = 0")
    assert offsets(last) == {0: [990, 991, 992, 993, 994]}
    plan = last._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan
    assert last.rdd.getNumPartitions() == 1
    assert offsets(frame.where("offset in (3, 5) and value is not null")) == {0: [3, 5], 1: [3, 5]}
    assert frame.where("topic = 'payments'").count() == 0
    assert frame.where("offset > 5 and offset < 3").count() == 0
    same = read(spark, servers, pushdown="false").where("offset >= 990 and offset < 995 and partition = 0")
    assert "Filter (" in same._jdf.queryExecution().executedPlan().toString()
    assert same.exceptAll(last).count() == last.exceptAll(same).count() == 0


def test_from_where_to_where(spark: SparkSession, servers: str) -> None:
    by_offset = read(
        spark,
        servers,
        startingOffsets='{"orders":{"0":10,"1":-2}}',
        endingOffsets='{"orders":{"0":13,"1":2}}',
    )
    assert offsets(by_offset) == {0: [10, 11, 12], 1: [0, 1]}
    by_time = read(spark, servers, startingTimestamp=T0 + 1, endingOffsets='{"orders":{"0":502,"1":251}}')
    assert offsets(by_time) == {0: [500, 501], 1: [250]}
    until = read(spark, servers, endingTimestamp=T0 + 1, assign='{"orders":[1]}')
    assert offsets(until) == {1: list(range(250))}
    each = json.dumps({"orders": {"0": T0, "1": T0 + 3_600_000}})
    assert read(spark, servers, startingOffsetsByTimestamp=each).count() == 1000 + 250
    beyond = read(
        spark, servers, startingTimestamp=T0 + 9_000_000, startingOffsetsByTimestampStrategy="latest"
    )
    assert beyond.count() == 0


def test_partitions_are_split_and_patterns_match_whole_names(spark: SparkSession, servers: str) -> None:
    split = read(spark, servers, subscribePattern="ord.*", minPartitions="6")
    assert split.rdd.getNumPartitions() == 6
    assert offsets(split) == {0: list(range(1000)), 1: list(range(500))}
    assert read(spark, servers, subscribePattern="rder").count() == 0
    assert read(spark, servers, maxRecordsPerPartition="400").rdd.getNumPartitions() == 5


def test_a_table_has_the_columns_that_are_asked_for(spark: SparkSession, servers: str) -> None:
    narrow = read(spark, servers, columns="offset,value")
    assert narrow.columns == ["offset", "value"]
    assert narrow.where("offset = 998").count() == 1


def test_the_beginning_is_deleted(spark: SparkSession, servers: str) -> None:
    create(servers, "old")
    fill(servers, "old", [{"value": b"%d" % n} for n in range(100)])
    delete_records(servers, "old", 0, 40)
    assert read(spark, servers, subscribe="old").count() == 60
    start = '{"old":{"0":5}}'
    with pytest.raises(
        PySparkException, match=r"startingOffsets is out of range: old-0 has 40 to 100, not 5"
    ):
        read(spark, servers, subscribe="old", startingOffsets=start).count()
    lenient = {"startingOffsets": start, "failOnDataLoss": "false", "includeGaps": "true"}
    kept = read(spark, servers, subscribe="old", **lenient)
    assert (kept.count(), kept.where("gap is not null").count()) == (60, 0)
    end = '{"old":{"0":300}}'
    with pytest.raises(PySparkException, match="endingOffsets is out of range"):
        read(spark, servers, subscribe="old", endingOffsets=end).count()
    assert read(spark, servers, subscribe="old", endingOffsets=end, failOnDataLoss="false").count() == 60


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscribe": "nothing"}, "there is no topic 'nothing'"),
        ({"assign": '{"orders":[7]}'}, "names orders-7, but 'orders' has 2 partitions"),
        ({"startingOffsets": '{"orders":{"0":1}}'}, "nothing is said about orders-1"),
        ({"startingOffsets": '{"orders":{"0":1,"1":1,"2":1}}'}, "orders-2 is not read"),
        ({"startingOffsets": '{"orders":'}, "not JSON"),
        ({"startingTimestamp": str(T0 * 2)}, "no records at or after the starting timestamp"),
        ({"log": "nonsense"}, "allowed is topic, metadata, groups, events"),
        (
            {"bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1500"},
            "no broker answers .127.0.0.1:1",
        ),
    ],
)
def test_bad_input_is_told(spark: SparkSession, servers: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises(PySparkException, match=reason):
        read(spark, servers, **options).count()


def test_a_topic_that_is_created_anew_is_another_one(spark: SparkSession, servers: str) -> None:
    create(servers, "again")
    fill(servers, "again", [{"value": b"old"}] * 3)
    options = read_topic_options({"bootstrap.servers": servers, "subscribe": "again"}, streaming=False)
    reader = TopicReader(options)
    (planned,) = reader.partitions()
    delete(servers, "again")
    create(servers, "again")
    fill(servers, "again", [{"value": b"new"}] * 3)
    assert {one.value for one in read(spark, servers, subscribe="again").collect()} == {b"new"}
    with pytest.raises(DataLossError, match=r"again-0 \[0, 3\): the topic with id .* was deleted"):
        list(reader.read(planned))


def test_spark_finds_the_source_by_itself(servers: str, tmp_path: Path) -> None:
    """Without our session, in which filters are Spark's."""
    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "source = spark.read.format('quorate').option('subscribe', 'orders')\n"
        f"frame = source.option('bootstrap.servers', '{servers}').load()\n"
        "print(frame.where('offset < 10').count(), 'rows')\n"
        "spark.stop()\n"
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert "20 rows" in done.stdout, done.stderr
