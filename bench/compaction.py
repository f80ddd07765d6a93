"""Compaction: how fast, and in how much memory.

A partition is written with records of 100 bytes to a tenth as many keys, and compacted by the process that a
broker starts for it. `QUORATE_BENCH_COMPACTION_MB` is its size (256); the memory bound is that of the map
(`log.cleaner.dedupe.buffer.size`), of a buffer, and of Python itself, whatever the size. Rows are figures,
not ratios: megabytes and thousands of records in a second, megabytes of memory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import numpy as np
from fastcrc.crc32 import iscsi as crc32c

from bench.timing import Row
from quorate.node.cleaner_workers import ProcessCompactor
from quorate.node.host import real_host
from quorate.protocol.batch import HEADER_BYTES, Record, build, read_header
from quorate.protocol.types import Uuid
from quorate.storage.compaction import CleanedGroup, Compacted, CompactionTask, SourceSegment
from quorate.storage.files import RealFiles
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import PartitionLog

SIZE_MB = int(os.environ.get("QUORATE_BENCH_COMPACTION_MB", "256"))
MAP_MB = int(os.environ.get("QUORATE_BENCH_COMPACTION_MAP_MB", "128"))
DIRECTORY = os.environ.get("QUORATE_BENCH_DIRECTORY")
RECORDS_IN_A_BATCH = 64
KEY_BYTES = 14
VALUE_BYTES = 80
RECORD_BYTES = 103  # with what stands before the two, and its share of the header
CRC = Struct(">I")
CONFIG = LogConfig(segment_bytes=min(1 << 30, max(1 << 20, SIZE_MB * (1 << 20) // 16)), is_compacted=True)


def section() -> Iterator[Row]:
    directory = Path(tempfile.mkdtemp(prefix="quorate-compaction-", dir=DIRECTORY))
    try:
        yield from asyncio.run(_measured(directory / "t-0"))
    finally:
        shutil.rmtree(directory)


async def _measured(directory: Path) -> list[Row]:
    log = await PartitionLog.open(
        RealFiles(), str(directory), CONFIG, topic_id=Uuid(bytes(16)), now_ms=0, recovery_point=0
    )
    _fill(log)
    await log.flush()
    start = real_host("bench").start_process
    assert start is not None
    compactor = ProcessCompactor(start, "bench")
    rows: list[Row] = []
    mine_before_mb = _peak_mb(os.getpid())
    dirty_offset, upper_offset, rounds = 0, log.segments[-1].base_offset, 0
    seconds = 0.0
    total = Compacted()
    swaps_s = 0.0

    async def swap(group: CleanedGroup) -> None:
        nonlocal swaps_s
        began = time.perf_counter()
        await log.replace_segments(
            group.old, group.new, cuts=log.cuts, largest_timestamp_ms=group.largest_timestamp_ms
        )
        swaps_s += time.perf_counter() - began

    worker_mb = 0.0
    while dirty_offset < upper_offset:
        began = time.perf_counter()
        done = await compactor.run(_task(log, dirty_offset, upper_offset), swap, float("inf"))
        seconds += time.perf_counter() - began
        dirty_offset, rounds = done.end_offset, rounds + 1
        total.read_bytes += done.read_bytes
        total.records_read += done.records_read
        total.records_kept = done.records_kept
        assert compactor.process_id is not None
        worker_mb = max(worker_mb, _peak_mb(compactor.process_id))
    await compactor.close()
    note = f"({SIZE_MB} MB, {total.records_read:,} records looked at, {rounds} rounds, {seconds:.1f} s)"
    rows.append(Row("compaction: MB of log compacted in a second", SIZE_MB / seconds, note=note))
    rows.append(Row("compaction: thousand records looked at in a second", total.records_read / seconds / 1e3))
    rows.append(Row("compaction: MB read in a second, both times", total.read_bytes / seconds / 1e6))
    rows.append(
        Row(
            "memory of the process at its peak, MB",
            worker_mb,
            at_most=MAP_MB + 120,
            note=f"(map {MAP_MB} MB)",
        )
    )
    mine_mb = _peak_mb(os.getpid()) - mine_before_mb
    rows.append(Row("memory that the broker needed besides, MB", mine_mb, at_most=32))
    rows.append(Row("putting segments in place, seconds in all", swaps_s, note="(mostly syncs)"))
    log.abandon()
    return rows


def _fill(log: PartitionLog) -> None:
    """Batches whose keys are drawn at random. They differ in nothing else, so that they are made quickly."""
    count = SIZE_MB * (1 << 20) // RECORD_BYTES
    keys = max(1, count // 10)
    chance = np.random.default_rng(1)
    made = [Record(at, at, bytes(KEY_BYTES), bytes(VALUE_BYTES)) for at in range(RECORDS_IN_A_BATCH)]
    batch = build(made)
    table = np.frombuffer(batch, np.uint8)[HEADER_BYTES:].reshape(RECORDS_IN_A_BATCH, -1)
    key_at = bytes(table[0]).index(bytes([2 * KEY_BYTES])) + 1
    powers = 10 ** np.arange(KEY_BYTES - 1, -1, -1)
    for first in range(0, count, RECORDS_IN_A_BATCH):
        drawn = chance.integers(0, keys, RECORDS_IN_A_BATCH)
        table[:, key_at : key_at + KEY_BYTES] = drawn[:, None] // powers % 10 + ord("0")
        CRC.pack_into(batch, 17, crc32c(memoryview(batch)[21:]))
        log.append_produced(batch, read_header(batch), 0, first)


def _task(log: PartitionLog, dirty_offset: int, upper_offset: int) -> CompactionTask:
    segments = [one for one in log.segments if one.base_offset < upper_offset]
    return CompactionTask(
        directory=log.directory,
        segments=[
            SourceSegment(
                one.base_offset,
                one.next_offset,
                one.size_bytes,
                one.index_bytes,
                one.time_index_bytes,
                one.largest_timestamp_ms,
            )
            for one in segments
        ],
        later_base_offsets=[upper_offset],
        dirty_offset=dirty_offset,
        upper_offset=upper_offset,
        producers={},
        now_ms=0,
        delete_retention_ms=1,
        segment_bytes=CONFIG.segment_bytes,
        index_bytes=CONFIG.index_bytes,
        index_interval_bytes=CONFIG.index_interval_bytes,
        map_bytes=MAP_MB << 20,
        map_load_factor=0.9,
        io_bytes=256 << 10,
    )


def _peak_mb(process_id: int) -> float:
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
