"""The history of a large cluster, recomputed from its records: seconds on two cores.

Five million records in Parquet, as the pipeline keeps them: a hundred brokers that are fenced and come back,
and the changes of 60,000 partitions that follow. Each table is computed in full, its rows counted and thrown
away; the second time counts, when Java has compiled what it needs. QUORATE_BENCH_RECORDS=1000000 chooses
another size.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from bench.timing import Row
from quorate.spark import answers, history, session, time_travel
from quorate.spark.schemas import RECORDS, arrow_schema
from quorate.spark.session import FOR_MANY_ROWS

RECORDS_COUNT = 5_000_000
PARTITIONS = 60_000
PER_TOPIC = 100
BROKERS = 100
CHUNK = 500_000
START_US = 1_767_268_800_000_000

SCHEMA = arrow_schema(RECORDS)


def section() -> Iterator[Row]:
    count = int(os.environ.get("QUORATE_BENCH_RECORDS", RECORDS_COUNT))
    with tempfile.TemporaryDirectory() as home:
        place = Path(home) / "records"
        place.mkdir()
        _write(place, count)
        settings = {**FOR_MANY_ROWS, "spark.driver.memory": "3g", "spark.local.dir": home}
        spark = session("local[2]", settings=settings)
        try:
            yield from _measure(spark.read.parquet(str(place)), count)
        finally:
            spark.stop()


def _measure(records: DataFrame, count: int) -> Iterator[Row]:
    label = f"{count:>9,} records"
    tables: dict[str, Callable[[], DataFrame]] = {
        "read": lambda: records,
        "broker_states": lambda: history.broker_states(records),
        "controller_terms": lambda: history.controller_terms(records),
        "partition_leaders": lambda: history.partition_leaders(records),
        "partition_isr": lambda: history.partition_isr(records),
        "partition_states": lambda: history.partition_states(records),
        "the partitions at an offset": lambda: time_travel.image_at_offset(records, count // 2).partitions,
        "availability": lambda: answers.availability(
            history.partition_states(records), history.configs(records), records
        ),
    }
    for name, table in tables.items():
        seconds = [_seconds(table()) for _ in range(2)]
        goal = 10.0 if name in ("broker_states", "partition_leaders", "partition_states") else None
        yield Row(f"{label}: seconds for {name}", seconds[1], at_most=goal, note=f"first {seconds[0]:.1f}")


def _seconds(table: DataFrame) -> float:
    started = time.perf_counter()
    table.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def _write(place: Path, count: int) -> None:
    """Topics, brokers and partitions, then the changes, in files of half a million."""
    random = np.random.default_rng(7)
    first = _beginnings()
    pq.write_table(first, place / "00.parquet", compression="zstd")
    offset = len(first)
    for number in range(1, 1 + -(-(count - offset) // CHUNK)):
        size = min(CHUNK, count - offset)
        pq.write_table(_changes(random, offset, size), place / f"{number:02}.parquet", compression="zstd")
        offset += size


def _beginnings() -> pa.Table:
    topics = [
        _row(at, "TopicRecord", topic_id=_topic_id(at), topic=f"topic-{at}", fields="{}")
        for at in range(PARTITIONS // PER_TOPIC)
    ]
    brokers = [
        _row(
            len(topics) + at,
            "RegisterBrokerRecord",
            broker_id=at,
            broker_epoch=len(topics) + at,
            fields=f'{{"brokerId":{at},"incarnationId":"i{at}","fenced":false,"rack":null,"endPoints":[]}}',
        )
        for at in range(BROKERS)
    ]
    offset = len(topics) + len(brokers)
    partitions = [
        _row(
            offset + at,
            "PartitionRecord",
            topic_id=_topic_id(at // PER_TOPIC),
            partition=at % PER_TOPIC,
            leader=at % BROKERS,
            isr=_replicas(at),
            replicas=_replicas(at),
            fields='{"leaderEpoch":0,"partitionEpoch":0}',
        )
        for at in range(PARTITIONS)
    ]
    return pa.Table.from_pylist([*topics, *brokers, *partitions], schema=SCHEMA)


def _changes(random: np.random.Generator, offset: int, size: int) -> pa.Table:
    """One in 600 is about a broker, the others about partitions; half of these name a leader."""
    offsets = np.arange(offset, offset + size)
    is_broker = offsets % 600 == 0
    which = random.integers(0, PARTITIONS, size)
    topic_ids = pa.array([_topic_id(at) for at in range(PARTITIONS // PER_TOPIC)])
    names_leader = random.random(size) < 0.5
    leaders = (which + random.integers(0, 3, size)) % BROKERS
    isr_sizes = random.integers(1, 4, size)
    ends = np.concatenate([[0], np.cumsum(isr_sizes)])
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], isr_sizes)
    isr = pa.ListArray.from_arrays(
        pa.array(ends.astype(np.int32)),
        pa.array(((np.repeat(which, isr_sizes) + within) % BROKERS).astype(np.int32)),
    )
    brokers = (offsets // 600) % BROKERS
    fenced = np.where((offsets // 600 // BROKERS) % 2, -1, 1)
    of_brokers = pc.binary_join_element_wise(
        '{"brokerId":',
        pa.array(brokers).cast("string"),
        ',"fenced":',
        pa.array(fenced).cast("string"),
        "}",
        "",
    )
    of_partitions = pc.binary_join_element_wise(
        '{"partitionId":',
        pa.array(which % PER_TOPIC).cast("string"),
        ',"topicId":"',
        topic_ids.take(pa.array(which // PER_TOPIC)),
        '","leader":',
        pa.array(leaders).cast("string"),
        ',"isr":[1,2,3]}',
        "",
    )
    nothing = pa.scalar(None, pa.int32())

    def only(mask: np.ndarray, values: pa.Array, empty: pa.Scalar = nothing) -> pa.Array:
        return pc.if_else(pa.array(mask), values, empty)

    columns = {
        "cluster_id": pa.repeat(pa.scalar("bench"), size),
        "origin": pa.repeat(pa.scalar("log"), size),
        "offset": pa.array(offsets),
        "position": pa.repeat(pa.scalar(0, pa.int32()), size),
        "epoch": pa.array((offsets // 1_000_000).astype(np.int32)),
        "ts": pa.array(START_US + offsets // 100 * 100_000).cast(pa.timestamp("us", tz="UTC")),
        "type": pc.if_else(pa.array(is_broker), "BrokerRegistrationChangeRecord", "PartitionChangeRecord"),
        "broker_id": only(is_broker, pa.array(brokers.astype(np.int32))),
        "broker_epoch": only(
            is_broker, pa.array(brokers + PARTITIONS // PER_TOPIC), pa.scalar(None, pa.int64())
        ),
        "topic_id": only(
            ~is_broker, topic_ids.take(pa.array(which // PER_TOPIC)), pa.scalar(None, pa.string())
        ),
        "partition": only(~is_broker, pa.array((which % PER_TOPIC).astype(np.int32))),
        "leader": only(~is_broker & names_leader, pa.array(leaders.astype(np.int32))),
        "isr": only(~is_broker, isr, pa.scalar(None, isr.type)),
        "fields": pc.if_else(pa.array(is_broker), of_brokers, of_partitions),
        "is_confirmed": pa.repeat(pa.scalar(True), size),
    }
    arrays = [
        columns[one.name].cast(one.type) if one.name in columns else pa.nulls(size, one.type)
        for one in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _row(offset: int, kind: str, **what: object) -> dict[str, object]:
    from datetime import UTC, datetime

    return {
        "cluster_id": "bench",
        "origin": "log",
        "offset": offset,
        "position": 0,
        "epoch": 0,
        "ts": datetime.fromtimestamp(START_US / 1_000_000, UTC),
        "type": kind,
        "is_confirmed": True,
        **what,
    }


def _topic_id(number: int) -> str:
    return f"t{number:021}"


def _replicas(partition: int) -> list[int]:
    return [(partition + at) % BROKERS for at in range(3)]
