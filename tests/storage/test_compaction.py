"""Compaction of a log: of every key the last record stays, and everything else is as it was."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from compacted_logs import (
    NOW_MS,
    SMALL_COMPACTED,
    a_keyed,
    a_task,
    all_batches,
    all_records,
    compacted,
    last_values,
    written,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_logs import opened_partition, produce
from stored_batches import FILES

from quorate.protocol.batch import Record, TimestampType, build, records, set_append_time, validate_produced
from quorate.protocol.compression import Codec
from quorate.storage.compaction import SourceSegment, group_segments
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import PartitionLog
from quorate.storage.places import DamagedBatchError

PAIRS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d", "e" * 20, "f" * 300, ""]), st.sampled_from(["1", "22", "", None])
    ),
    min_size=1,
    max_size=6,
)
BATCHES = st.lists(st.tuples(PAIRS, st.sampled_from(list(Codec))), min_size=1, max_size=12)


def expected(before: list[Record], dirty_offset: int, end_offset: int) -> list[Record]:
    """The law: a record stays unless a later one of its key lies in the dirty part that was cleaned."""
    last = {one.key: one.offset for one in before if dirty_offset <= one.offset < end_offset}
    return [one for one in before if one.offset >= end_offset or last.get(one.key, -1) <= one.offset]


@settings(max_examples=120, deadline=None)
@given(BATCHES, st.data())
def test_of_every_key_the_last_record_stays(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[list[tuple[str, str | None]], Codec]],
    data: st.DataObject,
) -> None:
    async def scenario() -> None:
        batches = [
            a_keyed(pairs, codec=codec, timestamp=1000 + 7 * i) for i, (pairs, codec) in enumerate(drawn)
        ]
        fitting = [one for one in batches if len(one) <= SMALL_COMPACTED.segment_bytes]
        log = await written(tmp_path_factory.mktemp("log"), fitting)
        bases = [one.base_offset for one in log.segments]
        upper = data.draw(st.sampled_from(bases))
        dirty = data.draw(st.integers(0, upper))
        map_bytes = data.draw(st.sampled_from([0, 1 << 20]))
        before = all_records(log)
        if upper == 0:
            return
        done = await compacted(
            FILES,
            log,
            a_task(log, dirty_offset=dirty, upper_offset=upper, map_bytes=map_bytes, map_load_factor=0.2),
        )
        assert dirty < done.end_offset <= upper or dirty == upper
        after = all_records(log)
        assert after == expected(before, dirty, done.end_offset)
        assert last_values(after) == last_values(before)
        assert done.records_kept <= done.records_read
        await check_readable_everywhere(log, after)
        await log.close()
        again = await opened_partition(log.directory, SMALL_COMPACTED, recovery_point=0)
        assert all_records(again) == after
        assert again.end_offset == log.end_offset
        again.abandon()

    asyncio.run(scenario())


async def check_readable_everywhere(log: PartitionLog, kept: list[Record]) -> None:
    """Whatever offset is asked for, what comes next comes next; and so for times."""
    for offset in range(log.start_offset, log.end_offset):
        following = [one for one in kept if one.offset >= offset]
        data = log.read(offset, 1)
        if following:
            header = validate_any(bytes(data))
            assert header.last_offset >= offset
    for record in kept[:5]:
        found = log.offset_for_time(record.timestamp)
        assert found is not None
        assert found.offset == next(one.offset for one in kept if one.timestamp >= record.timestamp)


def validate_any(data: bytes):  # type: ignore[no-untyped-def]
    from quorate.protocol.batch import validate

    return validate(data)


def test_rounds_go_on_where_the_map_was_full(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = random.Random(3)
        names = [f"key-{n}" for n in range(40)]
        batches = [a_keyed([(source.choice(names), str(i)) for _ in range(4)]) for i in range(60)]
        log = await written(tmp_path, batches)
        before, dirty, rounds = all_records(log), 0, 0
        upper = log.segments[-1].base_offset
        while dirty < upper:
            done = await compacted(
                FILES, log, a_task(log, dirty_offset=dirty, upper_offset=upper, map_bytes=0)
            )
            assert done.end_offset > dirty
            dirty, rounds = done.end_offset, rounds + 1
        assert rounds > 5
        assert all_records(log) == expected(before, 0, upper)

    asyncio.run(scenario())


def test_a_batch_keeps_what_it_covers_and_whose_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = a_keyed([("a", "1"), ("b", "1"), ("c", "1")], producer_id=7, sequence=0, timestamp=5000)
        log = await written(tmp_path, [first])
        for number in range(20):
            produce(log, a_keyed([("a", "2"), ("c", "2")], timestamp=6000 + number))
        await compacted(FILES, log, a_task(log))
        header, data = all_batches(log)[0]
        assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 1)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)
        assert header.base_timestamp == header.max_timestamp == 5001
        assert records(data, header) == [Record(1, 5001, b"b", b"1", ())]

    asyncio.run(scenario())


def test_times_of_the_leader_stay(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, SMALL_COMPACTED)
        for number in range(20):
            batch = a_keyed([("a", str(number)), (f"k{number}", "x")])
            set_append_time(batch, 0, 9000 + number)
            log.append_produced(batch, validate_produced(batch), 0, 0)
        await compacted(FILES, log, a_task(log))
        header, data = all_batches(log)[0]
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert (header.max_timestamp, header.record_count) == (9000, 1)
        assert [one.timestamp for one in records(data, header)] == [9000]

    asyncio.run(scenario())


# Deleted keys


async def with_a_deleted_key(directory: Path) -> PartitionLog:
    """`a` was deleted at offset 1."""
    log = await written(directory, [a_keyed([("a", "1"), ("a", None), ("b", "1")])])
    for number in range(20):
        produce(log, a_keyed([("c", str(number))]))
    return log


def test_a_deletion_stays_until_its_horizon(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await with_a_deleted_key(tmp_path)
        await compacted(FILES, log, a_task(log, now_ms=NOW_MS, delete_retention_ms=500))
        header, data = all_batches(log)[0]
        assert header.delete_horizon_ms == NOW_MS + 500
        assert [(one.offset, one.timestamp, one.value) for one in records(data, header)] == [
            (1, 1001, None),
            (2, 1002, b"1"),
        ]
        assert header.max_timestamp == 1002
        for now_ms, stays in ((NOW_MS + 499, True), (NOW_MS + 500, False)):
            upper = log.segments[-1].base_offset
            await compacted(
                FILES, log, a_task(log, dirty_offset=upper, now_ms=now_ms, delete_retention_ms=500)
            )
            header, data = all_batches(log)[0]
            assert (b"a" in [one.key for one in records(data, header)]) == stays
            assert header.delete_horizon_ms == NOW_MS + 500  # the first one counts

    asyncio.run(scenario())


def test_a_time_that_no_horizon_can_be_written_for_does_no_harm(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, SMALL_COMPACTED)
        batch = build([Record(0, -(2**62), b"a", b"1"), Record(1, -(2**62), b"a", None)])
        log.append_produced(batch, validate_produced(batch), 0, 0)
        for number in range(20):
            produce(log, a_keyed([("c", str(number))]))
        await compacted(FILES, log, a_task(log, now_ms=2**62 + 5))
        assert all_records(log)[0] == Record(1, -(2**62), b"a", None, ())

    asyncio.run(scenario())


# Segments


def test_small_neighbours_become_one_segment(tmp_path: Path) -> None:
    async def scenario() -> None:
        batches = [a_keyed([("a", "x" * 40), (f"k{n // 5}", "x" * 40)]) for n in range(40)]
        log = await written(tmp_path, batches)
        before = log.segments
        await compacted(FILES, log, a_task(log))
        assert len(log.segments) == len(before)  # that they would fit together shows only now
        await compacted(FILES, log, a_task(log, dirty_offset=log.segments[-1].base_offset))
        after = log.segments
        assert len(after) < len(before)
        assert after[0].base_offset == 0
        assert after[-1] == before[-1]
        assert all(one.size_bytes <= SMALL_COMPACTED.segment_bytes for one in after)
        names = {path.name.split(".")[0] for path in tmp_path.glob("*.log")}
        assert names == {f"{one.base_offset:020d}" for one in after}
        assert not [path for path in tmp_path.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sizes", "limit", "groups"),
    [
        ([10, 10, 10], 30, [3]),
        ([10, 10, 11], 30, [2, 1]),
        ([40, 1, 1], 30, [1, 2]),
        ([0, 0, 30], 30, [3]),
        ([], 30, []),
    ],
)
def test_groups_by_size(sizes: list[int], limit: int, groups: list[int]) -> None:
    segments = [SourceSegment(i * 10, i * 10 + 10, size, 0, 0, 0) for i, size in enumerate(sizes)]
    found = group_segments(segments, limit, 1000, len(sizes) * 10)
    assert [len(one) for one in found] == groups


def test_groups_by_index_and_span() -> None:
    full = [SourceSegment(i * 10, i * 10 + 10, 1, 600, 0, 0) for i in range(2)]
    assert [len(one) for one in group_segments(full, 100, 1000, 20)] == [1, 1]
    far = [SourceSegment(0, 10, 1, 0, 0, 0), SourceSegment(2**31 - 10, 2**31 + 10, 1, 0, 0, 0)]
    assert [len(one) for one in group_segments(far, 100, 1000, 2**31 + 10)] == [1, 1]


def test_readers_of_what_was_replaced_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await written(tmp_path, [a_keyed([("a", str(n))]) for n in range(40)])
        held = log.range(0, 400)
        assert held is not None
        before = held.read()
        await compacted(FILES, log, a_task(log))
        assert held.read() == before
        held.release()

    asyncio.run(scenario())


@pytest.mark.parametrize(("position", "reason"), [(40, "checksum"), (76, "offsets"), (79, "batch")])
def test_what_was_damaged_is_not_compacted(tmp_path: Path, position: int, reason: str) -> None:
    async def scenario() -> None:
        log = await written(tmp_path, [a_keyed([("a", str(n))]) for n in range(40)])
        path = tmp_path / f"{0:020d}.log"
        raw = bytearray(path.read_bytes())
        raw[position] ^= 1
        path.write_bytes(raw)
        with pytest.raises(DamagedBatchError, match=reason):
            await compacted(FILES, log, a_task(log))
        assert not list(tmp_path.glob("*.cleaned"))

    asyncio.run(scenario())


def test_a_batch_larger_than_the_buffer(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = LogConfig(segment_bytes=300_000, index_interval_bytes=100, is_compacted=True)
        big = a_keyed([("a", "x" * 100_000), ("b", "y" * 100_000)])
        log = await written(
            tmp_path, [big, a_keyed([("a", "2" * 150_000)]), a_keyed([("c", "3" * 200_000)])], config
        )
        await compacted(FILES, log, a_task(log, io_bytes=1))
        assert [one.key for one in all_records(log)] == [b"b", b"a", b"c"]

    asyncio.run(scenario())
