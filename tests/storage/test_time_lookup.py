"""Which record is the first, or the newest, by time."""

from __future__ import annotations

import asyncio
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_logs import opened_partition, produce

from quorate.protocol.batch import Record, build, set_append_time
from quorate.protocol.columns import PART_RECORDS
from quorate.protocol.compression import Codec
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import DamagedBatchError, PartitionLog, TimedOffset

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)


def batch_of(timestamps: list[int], codec: Codec = Codec.NONE) -> bytearray:
    return build([Record(at, time, None, b"") for at, time in enumerate(timestamps)], codec=codec)


async def log_of(
    directory: Path | str, *times: list[int], config: LogConfig = CONFIG, leader_epoch: int = 0
) -> PartitionLog:
    log = await opened_partition(directory, config)
    for timestamps in times:
        produce(log, batch_of(timestamps), leader_epoch)
    return log


def test_the_first_record_at_or_after_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await log_of(tmp_path, [10, 30, 20], [15, 25], [40, 35, 40], leader_epoch=6)
        for timestamp, expected in [
            (-5, (10, 0)),
            (10, (10, 0)),
            (11, (30, 1)),
            (30, (30, 1)),
            (31, (40, 5)),
            (40, (40, 5)),
        ]:
            assert log.offset_for_time(timestamp) == TimedOffset(*expected, leader_epoch=6)
        assert log.offset_for_time(41) is None
        assert log.offset_for_time(31, before_offset=6) == TimedOffset(40, 5, 6)
        assert log.offset_for_time(31, before_offset=5) is None
        await log.delete_until(2, 0)
        assert log.offset_for_time(11) == TimedOffset(20, 2, 6), "what was deleted does not count"
        assert log.offset_for_time(26) == TimedOffset(40, 5, 6)
        await log.close()

    asyncio.run(scenario())


def test_the_newest_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await log_of(tmp_path, [10, 30, 20], [15, 40, 35, 40], [40], leader_epoch=6)
        assert log.max_timestamp() == TimedOffset(40, 4, 6)
        assert log.max_timestamp(before_offset=4) is None
        assert log.max_timestamp(before_offset=5) == TimedOffset(40, 4, 6)
        await log.delete_until(5, 0)
        assert log.max_timestamp() == TimedOffset(40, 6, 6)
        await log.truncate_to(3)
        assert log.max_timestamp() is None
        await log.close()

    asyncio.run(scenario())


def test_records_without_timestamps_are_never_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await log_of(tmp_path, [-1, -1])
        assert (log.offset_for_time(0), log.max_timestamp()) == (None, None)
        await log.close()

    asyncio.run(scenario())


def test_the_time_of_the_append_is_that_of_all_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await log_of(tmp_path)
        for time in (100, 200):
            buffer = batch_of([1, 2, 3])
            set_append_time(buffer, 0, time)
            produce(log, buffer)
        assert log.offset_for_time(101) == TimedOffset(200, 3, 0)
        assert log.max_timestamp() == TimedOffset(200, 3, 0)
        await log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("has_append_time", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_of_many_records_only_some_are_looked_at_at_a_time(
    tmp_path: Path, codec: Codec, has_append_time: bool
) -> None:
    count = 2 * PART_RECORDS + 100
    batch = batch_of([*range(count - 3), 7, count + 5, count], codec)
    if has_append_time:
        set_append_time(batch, 0, 2 * count)

    async def scenario() -> None:
        log = await opened_partition(tmp_path, LogConfig(segment_bytes=1 << 24))
        produce(log, batch)
        for timestamp, expected in [(5, 5), (PART_RECORDS, PART_RECORDS), (count - 2, count - 2)]:
            found = TimedOffset(2 * count, 0, 0) if has_append_time else TimedOffset(timestamp, expected, 0)
            if timestamp == count - 2 and not has_append_time:
                found = TimedOffset(count + 5, expected, 0)
            tracemalloc.start()
            assert log.offset_for_time(timestamp) == found
            taken_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert taken_bytes < 12 << 20
        log.abandon()

    asyncio.run(scenario())


def test_damage_in_the_batch_that_matters_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await log_of(tmp_path, [10], [20])
        path = tmp_path / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(DamagedBatchError, match="checksum"):
            log.offset_for_time(15)
        with pytest.raises(DamagedBatchError, match="checksum"):
            log.max_timestamp()
        assert log.offset_for_time(5) == TimedOffset(10, 0, 0)
        log.abandon()

    asyncio.run(scenario())


TIMES = st.lists(st.integers(0, 30), min_size=1, max_size=4)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(TIMES, st.sampled_from([Codec.NONE, Codec.GZIP])), min_size=1, max_size=25),
    st.floats(0, 1),
    st.sampled_from(["as it is", "closed", "killed"]),
)
def test_it_finds_what_looking_at_every_record_finds(
    batches: list[tuple[list[int], Codec]], deleted: float, end: str
) -> None:
    async def scenario(directory: str) -> None:
        log = await opened_partition(directory, CONFIG)
        for timestamps, codec in batches:
            produce(log, batch_of(timestamps, codec))
        start_offset = int(deleted * log.end_offset)
        await log.delete_until(start_offset, 0)
        if end == "closed":
            await log.close()
        elif end == "killed":
            log.abandon()
        if end != "as it is":
            recovery_point = None if end == "closed" else 0
            log = await opened_partition(
                directory, CONFIG, recovery_point=recovery_point, start_offset=start_offset
            )
        times = [time for timestamps, _ in batches for time in timestamps]
        for timestamp in range(32):
            found = log.offset_for_time(timestamp)
            left = [at for at in range(start_offset, len(times)) if times[at] >= timestamp]
            assert found == (TimedOffset(times[left[0]], left[0], 0) if left else None)
        log.abandon()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(scenario(directory))
