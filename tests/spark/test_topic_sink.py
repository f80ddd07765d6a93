"""DataFrames into topics: what is written, once, whoever dies when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from topic_data import awaited, create, delete, fill, values

from quorate.client.metadata import TopicPartition
from quorate.protocol.batch import Record, build
from quorate.spark.topic_client import client_of
from quorate.spark.topic_commit import commit_pieces
from quorate.spark.topic_offsets import DataLossError
from quorate.spark.topic_staging import Piece, Staging
from quorate.testing import Cluster

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Cluster(mode="processes") as kafka:
        create(kafka.bootstrap_servers, "refused")
        yield kafka.bootstrap_servers


def test_rows_arrive_with_their_keys_headers_and_partitions(spark: SparkSession, servers: str) -> None:
    create(servers, "rows-a", 3)
    create(servers, "rows-b", 1)
    made = spark.range(3000).selectExpr(
        "if(id % 10 = 0, null, concat('key-', id)) as key",
        "concat('value-', id) as value",
        "if(id % 2 = 0, 'rows-a', 'rows-b') as topic",
        "if(id % 4 = 0, 2, null) as partition",
        "if(id % 3 = 0, array(struct('n' as key, cast(concat('', id) as binary) as value)), null) as headers",
        "id as ignored",
    )
    made.write.format("quorate").mode("append").options(
        **{"bootstrap.servers": servers, "kafka.compression.type": "lz4", "kafka.batch.size": "10000"}
    ).save()
    options = {"bootstrap.servers": servers, "subscribe": "rows-a,rows-b", "includeHeaders": "true"}
    found = spark.read.format("quorate").options(**options).load()
    columns = ["cast(key as string) key", "cast(value as string) value", "topic", "headers"]
    got, wanted = found.selectExpr(*columns), made.select("key", "value", "topic", "headers")
    assert got.count() == 3000
    assert got.exceptAll(wanted).count() == wanted.exceptAll(got).count() == 0
    fixed = found.where("topic = 'rows-a' and substring(cast(value as string), 7) % 4 = 0")
    assert {one.partition for one in fixed.select("partition").distinct().collect()} == {2}
    keyed = found.where(
        "topic = 'rows-a' and key is not null and substring(cast(value as string), 7) % 4 != 0"
    )
    assert {one.partition for one in keyed.select("partition").distinct().collect()} == {0, 1, 2}


@pytest.mark.parametrize(
    ("expression", "options", "reason"),
    [
        ("'v' as value", {"topic": "no-such-topic"}, "there is no topic 'no-such-topic'"),
        ("'v' as value", {}, "A column topic, or an option topic, is needed"),
        ("id as value", {"topic": "refused"}, "column value is bigint"),
        ("'v' as value, 9 as partition", {"topic": "refused"}, "partition 9, but 'refused' has 1 partitions"),
        ("repeat('v', 2000000) as value", {"topic": "refused"}, "MESSAGE_TOO_LARGE"),
    ],
)
def test_what_cannot_be_written_is_told(
    spark: SparkSession, servers: str, expression: str, options: dict[str, str], reason: str
) -> None:
    frame = spark.sql(f"select {expression} from range(1)")
    with pytest.raises(PySparkException, match=reason):
        frame.write.format("quorate").mode("append").options(
            **{"bootstrap.servers": servers, **options}
        ).save()


def test_a_topic_is_only_appended_to(spark: SparkSession, servers: str) -> None:
    writer = spark.range(1).selectExpr("'v' as value").write.format("quorate").mode("overwrite")
    with pytest.raises(PySparkException, match="can only be appended to"):
        writer.options(**{"bootstrap.servers": servers, "topic": "any"}).save()


# A stream, by Spark


def test_a_stream_is_written_once_though_its_last_batch_is_repeated(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    create(servers, "from", 2)
    create(servers, "to", 2)
    fill(servers, "from", [{"key": b"%d" % n, "value": b"%d" % n} for n in range(600)])

    def copy() -> None:
        source = {"bootstrap.servers": servers, "subscribe": "from", "startingOffsets": "earliest"}
        source["maxOffsetsPerTrigger"] = "250"
        sink = {"bootstrap.servers": servers, "topic": "to", "checkpointLocation": str(tmp_path)}
        frame = spark.readStream.format("quorate").options(**source).load().select("key", "value")
        awaited(frame.writeStream.format("quorate").options(**sink).trigger(availableNow=True).start)

    copy()
    assert sorted(map(int, filter(None, values(servers, "to")))) == list(range(600))
    last = max(int(one.name) for one in (tmp_path / "commits").iterdir() if one.name.isdecimal())
    (tmp_path / "commits" / f"{last}").unlink()
    (tmp_path / "commits" / f".{last}.crc").unlink(missing_ok=True)
    fill(servers, "from", [{"key": b"%d" % n, "value": b"%d" % n} for n in range(600, 700)])
    copy()
    assert sorted(map(int, filter(None, values(servers, "to")))) == list(range(700))


def test_a_stream_needs_a_place(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        sink = {"bootstrap.servers": servers, "topic": "any"}
        with pytest.raises((StreamingQueryException, PySparkException), match="stagingLocation is needed"):
            frame.writeStream.format("quorate").options(**sink).trigger(once=True).start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


# The steps of a micro-batch, killed at every point


class Killed(BaseException):
    """Whoever published is gone."""


def staged(staging: Staging, batch_id: int, topic: str, begin: int, task: str = "task") -> list:
    """A micro-batch of 40 records for two partitions, in batches of four, and where it is."""
    file, out = staging.open(batch_id, task)
    pieces, position = [], 0
    for index in range(10):
        numbers = range(begin + 4 * index, begin + 4 * index + 4)
        data = build([Record(n, 0, None, b"%d" % number) for n, number in enumerate(numbers)])
        out.write(data)
        pieces.append((TopicPartition(topic, index % 2), Piece(file, position, len(data), 4)))
        position += len(data)
    out.close()
    return pieces


def dies_at(point: int) -> Callable[[str], None]:
    left = point

    def reached(_: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    return reached


def test_a_micro_batch_is_published_once_wherever_it_is_killed(servers: str, tmp_path: Path) -> None:
    """Killed at the first point, begun anew, killed at the second, and so on, until nobody kills it. Every
    attempt stages its rows anew, in another order: what was planned first counts."""
    client = client_of(servers)
    topic = "killed"
    create(servers, topic, 2)
    staging = Staging(str(tmp_path), "query")
    for batch_id, kills in enumerate(([0], [1, 1, 1], [3, 2], list(range(20)), [])):
        begin = 40 * batch_id
        for attempt, point in enumerate([*kills, 1000]):
            pieces = staged(staging, batch_id, topic, begin, f"task-{attempt}")
            pieces = pieces if attempt % 2 == 0 else pieces[::-1]
            try:
                commit_pieces(client, staging, batch_id, pieces, dies_at(point))
            except Killed:
                continue
            except BaseExceptionGroup as group:
                assert group.subgroup(Killed) is not None
                continue
        found = sorted(map(int, filter(None, values(servers, topic))))
        assert found == list(range(begin + 40)), f"micro-batch {batch_id}"
    commit_pieces(client, staging, 4, staged(staging, 4, topic, 160, "once more"))
    assert len(values(servers, topic)) == 200


def test_somebody_thought_dead_does_no_harm(servers: str, tmp_path: Path) -> None:
    """While one publishes, another one publishes the same micro-batch from its beginning to its end."""
    create(servers, "two-at-once", 2)
    client = client_of(servers)
    staging = Staging(str(tmp_path), "query")
    pieces = staged(staging, 0, "two-at-once", 0)
    other = client_of(servers, "the-other")
    calls = 0

    def reached(point: str) -> None:
        nonlocal calls
        calls += 1
        if point == "published" and calls:
            commit_pieces(other, staging, 0, pieces)

    commit_pieces(client, staging, 0, pieces, reached)
    assert sorted(map(int, filter(None, values(servers, "two-at-once")))) == list(range(40))


def test_a_plan_for_a_topic_that_is_gone_is_refused(servers: str, tmp_path: Path) -> None:
    create(servers, "moved-on", 2)
    client = client_of(servers)
    staging = Staging(str(tmp_path), "query")
    pieces = staged(staging, 0, "moved-on", 0)
    with pytest.raises(Killed):
        commit_pieces(client, staging, 0, pieces, dies_at(1))
    delete(servers, "moved-on")
    create(servers, "moved-on", 2)
    with pytest.raises(DataLossError):
        commit_pieces(client, staging, 0, pieces)
    assert values(servers, "moved-on") == []


def test_what_was_written_before_is_forgotten(servers: str, tmp_path: Path) -> None:
    create(servers, "tidy", 2)
    client = client_of(servers)
    staging = Staging(str(tmp_path), "query")
    for batch_id in range(5):
        commit_pieces(client, staging, batch_id, staged(staging, batch_id, "tidy", 40 * batch_id))
    left = sorted(one.name for one in (tmp_path / "query").iterdir())
    assert left == ["3.done.json", "4", "4.done.json", "4.plan.json"]


def test_a_damaged_plan_is_told(servers: str, tmp_path: Path) -> None:
    (tmp_path / "query").mkdir()
    (tmp_path / "query" / "0.plan.json").write_text('{"format": 1, "tar')
    staging = Staging(f"file://{tmp_path}", "query")
    with pytest.raises(ValueError, match=r"0.plan.json is damaged"):
        commit_pieces(client_of(servers), staging, 0, staged(staging, 0, "any", 0))
