"""Metadata logs on Spark: how fast records are decoded and written, and whether that depends on their number.

The logs are what a cluster of a hundred brokers writes that is busy electing leaders: of a hundred records 87
change partitions, 10 create them, 3 are others. One voter, so that all of it is confirmed. Spark runs on two
cores with a heap of 1 GB. *Decoded* rows go nowhere; *written* ones become parquet, in which case most of the
time is the writing. The memory is the largest that the Java machine and its Python workers had resident
meanwhile. QUORATE_BENCH_RECORDS=1000000,10000000,50000000 chooses other sizes.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.timing import Row
from quorate.metadata.log_format import encode_record
from quorate.metadata.records import BrokerRegistrationChangeRecord, NoOpRecord
from quorate.metadata.sections import SectionBuilder
from quorate.metadata.shapes import ChangeShape, PartitionShape
from quorate.protocol.batch import ControlType, build_control, build_encoded
from quorate.protocol.codec import encode
from quorate.raft.records import LeaderChangeMessage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES: Final = (1_000_000, 10_000_000)
BROKERS: Final = 100
TOPICS: Final = 2_000
PARTITIONS_PER_TOPIC: Final = 100
SECTION_RECORDS: Final = 10_000
SEGMENT_BYTES: Final = 512 << 20
GROWTH_MAX: Final = 1.5


def section() -> Iterator[Row]:
    from quorate.spark import session

    chosen = os.environ.get("QUORATE_BENCH_RECORDS")
    sizes = [int(one) for one in chosen.split(",")] if chosen else SIZES
    with tempfile.TemporaryDirectory() as directory:
        spark = session("local[2]", app_name="bench", settings={"spark.driver.memory": "1g"})
        try:
            yield from _section(spark, Path(directory), sizes)
        finally:
            spark.stop()


def _section(spark: SparkSession, root: Path, sizes: list[int] | tuple[int, ...]) -> Iterator[Row]:
    warm = write_log(root / "warm", 100_000)
    _decode(spark, warm)
    _write(spark, warm, root / "rows")
    decoded: dict[int, float] = {}
    written: dict[int, float] = {}
    for size in sizes:
        log = write_log(root / f"log-{size}", size)
        label = f"{size:>10,} records"
        with _Memory() as memory:
            before_s = _cpu_seconds()
            decoded[size] = size / _decode(spark, log)
            note = f"{(_cpu_seconds() - before_s) / size * 1e6:.1f} CPU seconds per million"
            yield Row(f"{label}: millions of records decoded per second", decoded[size] / 1e6, note=note)
            before_s = _cpu_seconds()
            written[size] = size / _write(spark, log, root / "rows")
            note = f"{(_cpu_seconds() - before_s) / size * 1e6:.1f} CPU seconds per million"
        note += f"; Java {memory.java_mb:,.0f} MB, Python workers {memory.python_mb:,.0f} MB together"
        what = f"{label}: millions of records written to parquet per second"
        yield Row(what, written[size] / 1e6, note=note)
        _remove(log)
    for what, speeds in (("decode", decoded), ("write", written)):
        first, last = sizes[0], sizes[-1]
        if first != last:
            name = f"time to {what} a record of {last:,} against one of {first:,}"
            yield Row(name, speeds[first] / speeds[last], at_most=GROWTH_MAX)


def _decode(spark: SparkSession, log: Path) -> float:
    return _seconds(lambda: _rows(spark, log).write.format("noop").mode("overwrite").save())


def _write(spark: SparkSession, log: Path, target: Path) -> float:
    took = _seconds(lambda: _rows(spark, log).write.mode("overwrite").parquet(str(target)))
    count = spark.read.parquet(str(target)).count()
    expected = int((log / "count").read_text())
    assert count == expected, f"{count} rows of {expected}"
    return took


def _rows(spark: SparkSession, log: Path) -> DataFrame:
    return spark.read.format("quorate").option("log", "metadata").load(str(log))


def _seconds(work: object) -> float:
    assert callable(work)
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# Logs


def write_log(root: Path, size: int) -> Path:
    """The log directory of one voter with so many records."""
    directory = root / "__cluster_metadata-0"
    directory.mkdir(parents=True)
    (root / "meta.properties").write_text("version=1\ncluster.id=bench\nnode.id=1\n")
    random = np.random.default_rng(7)
    topic_ids = np.frombuffer(random.bytes(16 * TOPICS), "V16")
    file, written_bytes = None, 0
    offset = 0
    while offset < size:
        if file is None or written_bytes > SEGMENT_BYTES:
            if file is not None:
                file.close()
            file, written_bytes = (directory / f"{offset:020d}.log").open("wb"), 0
        if offset == 0:
            batch = _leader_change()
            count = 1
        else:
            count = min(SECTION_RECORDS, size - offset)
            batch = _changes(random, topic_ids, offset, count)
        file.write(batch)
        written_bytes += len(batch)
        offset += count
    if file is not None:
        file.close()
    (root / "count").write_text(str(offset))
    return root


def _changes(random: np.random.Generator, topic_ids: np.ndarray, offset: int, count: int) -> bytearray:
    builder = SectionBuilder(SECTION_RECORDS)
    created, others = count // 10, count * 3 // 100
    isr_of_three = (count - created - others) // 2
    for replicas, rows in ((3, isr_of_three), (2, count - created - others - isr_of_three)):
        leaders = random.integers(0, BROKERS, rows)
        builder.add_rows(
            ChangeShape(2, replicas, has_leader=True, has_recovery_state=False, elr=-1, last_known_leader=-1),
            {
                "partition_id": random.integers(0, PARTITIONS_PER_TOPIC, rows),
                "topic_id": topic_ids[random.integers(0, TOPICS, rows)],
                "isr": np.stack([(leaders + at) % BROKERS for at in range(replicas)], 1),
                "leader": leaders,
            },
        )
    leaders = random.integers(0, BROKERS, created)
    placed = np.stack([(leaders + at) % BROKERS for at in range(3)], 1)
    builder.add_rows(
        PartitionShape(2, 3, 3, 0, 0, 3, has_recovery_state=False, elr=-1, last_known_leader=-1),
        {
            "partition_id": random.integers(0, PARTITIONS_PER_TOPIC, created),
            "topic_id": topic_ids[random.integers(0, TOPICS, created)],
            "replicas": placed,
            "isr": placed,
            "leader": leaders,
            "leader_epoch": np.zeros(created),
            "partition_epoch": np.zeros(created),
            "directories": np.zeros((created, 3), "V16"),
        },
    )
    for at in range(others):
        change = BrokerRegistrationChangeRecord(broker_id=at % BROKERS, broker_epoch=offset, fenced=at % 2)
        builder.add(encode_record(change, 1) if at % 3 else encode_record(NoOpRecord(), 0))
    (section,) = builder.finish()
    assert section.count == count
    return build_encoded(
        section.data, count, base_offset=offset, leader_epoch=1, timestamp=1_700_000_000_000 + offset
    )


def _leader_change() -> bytearray:
    voter = LeaderChangeMessage.Voter(voter_id=1)
    message = LeaderChangeMessage(version=0, leader_id=1, voters=[voter], granting_voters=[voter])
    return build_control(
        [(ControlType.LEADER_CHANGE, bytes(encode(message, 0)))], timestamp=1, leader_epoch=1
    )


def _remove(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_file():
            path.unlink()
        else:
            path.rmdir()


# Memory


class _Memory:
    """Looks now and then how much memory the processes below this one have resident, and keeps the most."""

    java_mb = python_mb = 0.0

    def __enter__(self) -> _Memory:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.2):
            java = python = 0.0
            for _, name, resident_mb in _descendants(os.getpid()):
                if name == "java":
                    java += resident_mb
                else:
                    python += resident_mb
            self.java_mb, self.python_mb = max(self.java_mb, java), max(self.python_mb, python)


def _cpu_seconds() -> float:
    """What the processes below this one have computed so far: less a matter of who else is busy."""
    total = 0.0
    for process, _, _ in _descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _descendants(process: int) -> Iterator[tuple[int, str, float]]:
    """All descendants of a process, by id, name and how many megabytes each has resident."""
    children: dict[int, list[tuple[int, str, float]]] = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except OSError:
            continue  # it ended
        resident_mb = int(lines.get("VmRSS", "0 kB").split()[0]) / 1024
        found = int(path.parent.name), lines["Name"].strip(), resident_mb
        children.setdefault(int(lines["PPid"]), []).append(found)
    waiting = [process]
    while waiting:
        for found in children.get(waiting.pop(), []):
            waiting.append(found[0])
            yield found
