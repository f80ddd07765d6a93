"""How far topics reached, and when: the one thing that no log tells, so it is asked for and kept.

A sample cannot be taken again. So each is written to a file of its own before anything else happens to it;
the number in its name is its sequence, given once. Samples get from those files into the table
`end_offsets` like batches of a stream, and a file goes when its rows are in.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from quorate.client.admin import Admin
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.metadata import TopicPartition
from quorate.client.offsets import LATEST, listed_offsets
from quorate.net.tls import TlsSettings, client_context
from quorate.protocol.errors import ApiError
from quorate.spark.parts import look_at
from quorate.spark.swap import write_whole
from quorate.spark.warehouse import Contents, Part, StreamState, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Sampler", "sample_end_offsets", "spool_sample", "take_in_samples"]

_NAME: Final = re.compile(r"(\d{12})\.jsonl")
_SPOOLED_MAX: Final = 10_000
_CONSUMED: Final = "__consumer_offsets"  # nobody's lag is measured there
_SETTINGS: Final = ClusterSettings(deadline_ms=10_000)


async def sample_end_offsets(bootstrap: str, tls: TlsSettings | None = None) -> dict[TopicPartition, int]:
    """Where the partitions of all topics end. One attempt: those whose leader is away are left out."""
    settings = replace(_SETTINGS, tls=client_context(tls) if tls is not None else None)
    async with Cluster(bootstrap, settings=settings) as cluster:
        topics = await Admin(cluster).list_topics()
        asked = {
            TopicPartition(name, index): LATEST
            for name, topic in topics.items()
            if name != _CONSUMED
            for index in topic.partitions
        }
        await cluster.refresh(*{at.topic for at in asked})
        listed = await listed_offsets(cluster, asked, isolation_level=0)
        return {at: found.offset for at, (code, found) in listed.items() if not code}


def spool_sample(warehouse: Warehouse, cluster_id: str, ends: dict[TopicPartition, int], now_ms: int) -> int:
    """Writes a sample to a file, and only thereby gives it a sequence: which is returned."""
    directory = _directory(warehouse, cluster_id)
    directory.mkdir(parents=True, exist_ok=True)
    state = warehouse.contents().streams.get(_stream(cluster_id))
    taken_in = -1 if state is None else state.batch_id
    sequence = max([taken_in, *(number for number, _ in _spooled(directory))]) + 1
    lines = [
        json.dumps(
            {
                "cluster_id": cluster_id,
                "sequence": sequence,
                "ts_ms": now_ms,
                "topic": at.topic,
                "partition": at.partition,
                "end_offset": end,
            }
        )
        for at, end in sorted(ends.items())
    ]
    write_whole(directory / f"{sequence:012}.jsonl", ("\n".join(lines) + "\n").encode())
    return sequence


def take_in_samples(spark: SparkSession, warehouse: Warehouse) -> int:
    """Moves all spooled samples into the table; how many rows they had."""
    rows = 0
    for directory in sorted(warehouse.spool.glob("*")) if warehouse.spool.is_dir() else []:
        files = _spooled(directory)
        if files:
            first_line = json.loads(files[0][1].read_text().partition("\n")[0] or "{}")
            rows += _take_in(spark, warehouse, first_line.get("cluster_id", ""), files)
    return rows


class Sampler:
    """Takes a sample now and then, in a thread of its own, until it is closed. A cluster that does not answer
    leaves a hole, which is what the table should show."""

    def __init__(
        self,
        warehouse: Warehouse,
        cluster_id: str,
        bootstrap: str,
        every_s: float,
        tell: Callable[[str], None] = lambda _: None,
        tls: TlsSettings | None = None,
    ) -> None:
        self._warehouse, self._cluster_id, self._bootstrap = warehouse, cluster_id, bootstrap
        self._every_s, self._tell, self._tls = every_s, tell, tls
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(30)

    def sample(self) -> None:
        try:
            ends = asyncio.run(sample_end_offsets(self._bootstrap, self._tls))
        except (ApiError, ConnectionError) as error:
            self._tell(f"no sample of end offsets: {error}")
            return
        if ends and len(_spooled(_directory(self._warehouse, self._cluster_id))) < _SPOOLED_MAX:
            spool_sample(self._warehouse, self._cluster_id, ends, int(time.time() * 1000))

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            self.sample()


def _take_in(
    spark: SparkSession, warehouse: Warehouse, cluster_id: str, files: list[tuple[int, Path]]
) -> int:
    stream = _stream(cluster_id)
    state = warehouse.contents().streams.get(stream)
    fresh = [(number, path) for number, path in files if state is None or number > state.batch_id]
    rows = 0
    if fresh:
        schema = "cluster_id string, sequence long, ts_ms long, topic string, partition int, end_offset long"
        frame = spark.read.schema(schema).json([str(path) for _, path in fresh])
        columns = [
            "cluster_id",
            "sequence",
            "timestamp_millis(ts_ms) AS ts",
            "topic",
            "partition",
            "end_offset",
        ]
        with warehouse.new_part("end_offsets") as name:
            place = warehouse.table_place("end_offsets", name)
            frame.selectExpr(*columns).coalesce(1).write.partitionBy("cluster_id").parquet(str(place))
            found = look_at(place, "end_offsets")
            part = Part(name, found.rows, found.size_bytes, found.clusters)

            def published(newest: Contents) -> Contents:
                with_rows = newest.with_part("end_offsets", part) if found.rows else newest
                return with_rows.with_stream(stream, StreamState(fresh[-1][0], {}))

            warehouse.change(published)
        rows = found.rows
    for _, path in files:
        path.unlink()
    return rows


def _spooled(directory: Path) -> list[tuple[int, Path]]:
    if not directory.is_dir():
        return []
    names = ((_NAME.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(name[1]), path) for name, path in names if name)


def _directory(warehouse: Warehouse, cluster_id: str) -> Path:
    return warehouse.spool / quote(cluster_id, safe="")


def _stream(cluster_id: str) -> str:
    return f"end_offsets/{quote(cluster_id, safe='')}"
