"""The cluster at any moment: against the image that nodes keep, and in a story."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from random_logs import Log, random_logs
from story_logs import bad_day, clock

from quorate.metadata.history import History, moment_at
from quorate.metadata.image import ClusterImage
from quorate.spark import time_travel

pytestmark = pytest.mark.spark

Things = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]


def test_it_is_the_image_that_nodes_have_at_that_offset(spark: SparkSession) -> None:
    random = Random(5)
    tables: list[pa.Table] = []
    expected: dict[str, Things] = {}
    for log in random_logs(range(100, 112)):
        if not log.cluster_id.startswith("whole"):
            continue
        for offset in random.sample(range(len(log.entries)), 3):
            name = f"{log.cluster_id}@{offset}"
            tables.append(_beginning(log, offset, name))
            expected[name] = _things(moment_at(History(log=log.batches), offset).image)
    records = spark.createDataFrame(pa.concat_tables(tables))

    image = time_travel.image(records)

    columns = {
        "brokers": (
            ("broker_id",),
            ("broker_epoch", "incarnation_id", "rack", "is_fenced", "is_shutting_down"),
        ),
        "topics": (("topic_id",), ("topic",)),
        "partitions": (
            ("topic_id", "partition"),
            (
                "topic",
                "leader",
                "leader_epoch",
                "partition_epoch",
                "isr",
                "replicas",
                "adding_replicas",
                "removing_replicas",
            ),
        ),
        "configs": (("resource_type", "resource_name", "name"), ("value",)),
        "features": (("name",), ("level",)),
    }
    for table, (keys, state) in columns.items():
        found: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {name: {} for name in expected}
        for row in rows_of(getattr(image, table)):
            thing = found[row["cluster_id"]]
            thing[tuple(row[one] for one in keys)] = tuple(_plain(one, row[one]) for one in state)
        assert found == {name: things[table] for name, things in expected.items()}, table


def test_a_story_can_be_looked_at_at_any_time(spark: SparkSession) -> None:
    story = bad_day()
    records = spark.createDataFrame(story.table()).cache()

    fenced = time_travel.image_at_time(records, clock(105))
    before = time_travel.image_at_time(records, clock(99.9))

    brokers = {row["broker_id"]: row for row in rows_of(fenced.brokers)}
    assert {broker_id: row["is_fenced"] for broker_id, row in brokers.items()} == {
        1: False,
        2: True,
        3: False,
    }
    assert (brokers[2]["since_ts"], brokers[2]["is_since_known"]) == (clock(100), True)
    assert brokers[2]["endpoints"] == [
        {"name": "PLAINTEXT", "host": "host2", "port": 9092, "security_protocol": 0}
    ]
    changes = {(row["kind"], row["name"]): row for row in rows_of(time_travel.difference(before, fenced))}
    assert {key: row["change"] for key, row in changes.items()} == {
        ("broker", "2"): "changed",
        ("partition", "orders 0"): "changed",
        ("partition", "orders 1"): "changed",
        ("partition", "orders 2"): "changed",
        ("partition", "solo 0"): "changed",
    }
    was, now = (json.loads(changes["partition", "solo 0"][one]) for one in ("before", "after"))
    assert (was["leader"], now["leader"]) == (2, -1)


def test_a_difference_says_what_came_and_went(spark: SparkSession) -> None:
    story = bad_day()
    records = spark.createDataFrame(story.table()).cache()
    nothing = time_travel.image_at_offset(records, 0)
    end = time_travel.image_at_offset(records, story.next_offset)

    came = rows_of(time_travel.difference(nothing, end))
    went = rows_of(time_travel.difference(end, nothing))

    names = sorted((row["kind"], row["name"]) for row in came)
    assert ("config", "2 orders min.insync.replicas") in names
    assert ("topic", "solo") in names
    assert {row["change"] for row in came} == {"added"}
    assert {row["change"] for row in went} == {"removed"}
    assert names == sorted((row["kind"], row["name"]) for row in went)
    assert rows_of(time_travel.difference(end, end)) == []


def _beginning(log: Log, offset: int, name: str) -> pa.Table:
    table = pa.Table.from_batches(log.tables)
    table = table.filter(pc.less_equal(table["offset"], offset))
    return table.set_column(0, table.schema.field(0), pa.array([name] * len(table)))


def _things(image: ClusterImage) -> Things:
    partitions = {}
    for topic in image.topics:
        for partition_id, one in image.partitions.of(topic.slot):
            partitions[str(topic.id), partition_id] = (
                topic.name,
                one.leader,
                one.leader_epoch,
                one.partition_epoch,
                sorted(one.isr),
                list(one.replicas),
                sorted(one.adding),
                sorted(one.removing),
            )
    return {
        "brokers": {
            (one.id,): (one.epoch, str(one.incarnation_id), one.rack, one.is_fenced, one.is_shutting_down)
            for one in image.brokers.values()
        },
        "topics": {(str(topic.id),): (topic.name,) for topic in image.topics},
        "partitions": partitions,
        "configs": {
            (kind, name, key): (value,)
            for (kind, name), values in image.configs.items()
            for key, value in values.items()
        },
        "features": {(name,): (level,) for name, level in image.features.items()},
    }


def _plain(name: str, value: Any) -> Any:
    return sorted(value) if name in ("adding_replicas", "removing_replicas") else value


def rows_of(table: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.toArrow().to_pylist()
    return rows
