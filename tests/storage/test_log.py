"""A log, one behaviour at a time."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from stored_batches import FILES, SMALL, a_batch, filled, opened, read_all, split

from quorate.protocol.batch import Record, build
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.errors import AppendError, StorageError
from quorate.storage.limits import BATCH_SPAN_MAX, LogConfig
from quorate.storage.log import Log
from quorate.storage.segment import Segment

TOPIC_ID = Uuid.parse("35t8hOT8SJuCXqRxLi11Zg")


def names(directory: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in directory.glob(f"*{suffix}"))


# Appending


def test_batches_are_written_as_they_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path)
        first, second, third = a_batch(0, 3, epoch=1), a_batch(3, 1, epoch=1), a_batch(4, 2, epoch=2)
        log.append([first, bytearray(second + third)], 0)
        assert (log.start_offset, log.end_offset, log.flushed_offset) == (0, 6, 0)
        assert (tmp_path / "00000000000000000000.log").read_bytes() == first + second + third
        assert list(log.epochs) == [(1, 0), (2, 4)]
        assert await log.flush() == log.flushed_offset == 6
        await log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (a_batch(4, epoch=5), "a batch at offset 4, not 3"),
        (a_batch(2, epoch=5), "a batch at offset 2, before 3"),
        (a_batch(3, epoch=5) + a_batch(5, epoch=5), "a batch at offset 5, not 4"),
        (a_batch(3, epoch=4), "a batch of epoch 4 after epoch 5"),
        (a_batch(3, epoch=6) + a_batch(4, epoch=5), "a batch of epoch 5 after epoch 6"),
        (a_batch(3, epoch=5)[:-1], "77 bytes at the end are no whole batch"),
        (a_batch(3, epoch=5) + b"12345", "5 bytes at the end are no whole batch"),
        (bytes(100), "no record batch has magic 0"),
    ],
)
def test_what_does_not_continue_the_log_is_refused(tmp_path: Path, batch: bytes, reason: str) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path)
        log.append([a_batch(0, 3, epoch=5)], 0)
        with pytest.raises(AppendError, match=reason):
            log.append([batch], 0)
        assert (log.end_offset, log.size_bytes) == (3, len(a_batch(0, 3)))
        log.append([a_batch(3, epoch=5)], 0)
        await log.close()

    asyncio.run(scenario())


def test_a_follower_of_a_compacted_log_takes_gaps(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = LogConfig(is_compacted=True)
        log = await opened(tmp_path, config)
        log.append_replicated([a_batch(5), a_batch(9)], 0)
        log.append_replicated([a_batch(9 + BATCH_SPAN_MAX)], 0)
        assert [segment.base_offset for segment in log.segments] == [0, 9 + BATCH_SPAN_MAX]
        assert split(log.read(0, 1000)) == [a_batch(5), a_batch(9)]
        assert split(log.read(10, 1000)) == [a_batch(9 + BATCH_SPAN_MAX)]
        with pytest.raises(AppendError, match="before"):
            log.append_replicated([a_batch(20)], 0)
        with pytest.raises(AppendError, match="too far apart"):
            log.append_replicated([a_batch(log.end_offset), a_batch(log.end_offset + BATCH_SPAN_MAX + 1)], 0)
        await log.close()
        again = await opened(tmp_path, config)
        assert read_all(again) == [a_batch(5), a_batch(9), a_batch(9 + BATCH_SPAN_MAX)]
        await again.close()

    asyncio.run(scenario())


def test_nothing_is_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path)
        log.append([], 0)
        log.append([b""], 0)
        assert log.end_offset == 0
        await log.close()

    asyncio.run(scenario())


def test_a_full_segment_is_followed_by_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await filled(tmp_path, 60)
        bases = [segment.base_offset for segment in log.segments]
        assert len(bases) > 2
        assert names(tmp_path, ".log") == [f"{base:020d}.log" for base in bases]
        assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
        huge = a_batch(180, 1, value_bytes=5000)
        log.append([huge], 0)
        assert log.segments[-1].base_offset == 180, "what is too large for any segment gets its own"
        assert read_all(log)[-1] == huge
        await log.close()

    asyncio.run(scenario())


def test_a_segment_is_closed_with_its_newest_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path)
        log.append([a_batch(0, 1, timestamp=500)], 0)
        log.append([a_batch(1, 1, timestamp=300)], 0)
        assert (tmp_path / "00000000000000000000.timeindex").read_bytes() == b""
        log.roll(0)
        log.roll(0)
        assert [segment.base_offset for segment in log.segments] == [0, 2], "an empty segment is not rolled"
        entry = (500).to_bytes(8, "big") + (0).to_bytes(4, "big")
        assert (tmp_path / "00000000000000000000.timeindex").read_bytes() == entry
        assert log.segments[0].largest_timestamp_ms == 500
        await log.close()

    asyncio.run(scenario())


# Reading


def test_a_reader_gets_whole_batches_within_its_limits(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path, LogConfig())
        made = [a_batch(0, 3), a_batch(3, 3), a_batch(6, 3)]
        log.append(made, 0)
        size = len(made[0])
        assert split(log.read(0, 10_000)) == made
        assert split(log.read(4, 10_000)) == made[1:], "the batch that holds the offset comes whole"
        assert split(log.read(0, 2 * size + 5)) == made[:2]
        assert split(log.read(0, 1)) == made[:1], "at least one"
        assert split(log.read_within(0, size - 1)) == []
        assert split(log.read_within(0, size)) == made[:1]
        assert split(log.read(0, 10_000, before_offset=6)) == made[:2]
        assert split(log.read(0, 10_000, before_offset=5)) == made[:1], "a batch is not shown in part"
        assert split(log.read(0, 10_000, before_offset=0)) == []
        assert split(log.read(9, 10_000)) == []
        await log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("offset", [-1, 5, 31])
def test_offsets_that_are_not_in_the_log_are_out_of_range(tmp_path: Path, offset: int) -> None:
    async def scenario() -> None:
        log = await filled(tmp_path, 10)
        await log.delete_until(6, 0)
        with pytest.raises(ApiError) as refusal:
            log.read(offset, 100)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert "from 6 to 30" in str(refusal.value)
        await log.close()

    asyncio.run(scenario())


# Taking away


def test_a_cut_within_a_batch_takes_all_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await filled(tmp_path, 40)
        await log.flush()
        assert await log.truncate_to(50) == 48
        assert (log.end_offset, log.flushed_offset) == (48, 48)
        log.append([a_batch(48, 2)], 0)
        assert read_all(log) == [a_batch(offset, 3) for offset in range(0, 48, 3)] + [a_batch(48, 2)]
        await log.close()

    asyncio.run(scenario())


def test_even_a_cut_that_cuts_nothing_forgets_an_epoch_without_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path)
        log.append([a_batch(0, 3, epoch=1)], 0)
        log.assign_epoch(4)
        assert list(log.epochs) == [(1, 0), (4, 3)]
        await log.truncate_to(3)
        assert list(log.epochs) == [(1, 0)]
        assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"
        await log.close()

    asyncio.run(scenario())


def test_a_log_starts_again_where_a_snapshot_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await filled(tmp_path, 40, epoch=3)
        await log.restart_at(500, 0)
        assert (log.start_offset, log.end_offset, log.flushed_offset) == (500, 500, 500)
        assert names(tmp_path, ".log") == ["00000000000000000500.log"]
        assert list(log.epochs) == []
        log.append([a_batch(500, 2, epoch=2)], 0)
        await log.close()
        again = await opened(tmp_path)
        assert (again.start_offset, again.end_offset, list(again.epochs)) == (500, 502, [(2, 500)])
        assert await again.truncate_to(30) == 30, "before everything that is left"
        assert (again.start_offset, again.end_offset) == (30, 30)
        await again.close()

    asyncio.run(scenario())


def test_old_segments_are_deleted_and_the_beginning_moves(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await filled(tmp_path, 40, epoch=1)
        bases = [segment.base_offset for segment in log.segments]
        await log.delete_until(bases[2] - 1, 0)
        assert [segment.base_offset for segment in log.segments] == bases[1:]
        assert log.start_offset == bases[2] - 1
        assert list(log.epochs) == [(1, bases[2] - 1)]
        await log.delete_until(log.end_offset, 0)
        assert (log.start_offset, log.end_offset, log.size_bytes) == (120, 120, 0)
        assert sorted(path.name[:20] for path in tmp_path.glob("0*")) == [f"{120:020d}"] * 3
        await log.delete_until(3, 0)
        assert log.start_offset == 120, "it never goes back"
        await log.close()

    asyncio.run(scenario())


# Opening


def test_a_new_log_can_begin_anywhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path / "a" / "t-0", start_offset=70)
        assert (log.start_offset, log.end_offset) == (70, 70)
        await log.close()

    asyncio.run(scenario())


def test_a_remembered_beginning_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        await (await filled(tmp_path, 10, epoch=2)).close()
        log = await opened(tmp_path, start_offset=12)
        assert (log.start_offset, log.end_offset, list(log.epochs)) == (12, 30, [(2, 12)])
        await log.close()
        log = await opened(tmp_path, start_offset=31)
        assert (log.start_offset, log.end_offset, log.size_bytes) == (31, 31, 0), "all of it was deleted"
        await log.close()

    asyncio.run(scenario())


def test_a_directory_belongs_to_one_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        directory = str(tmp_path / "t-0")
        log = await Log.open(FILES, directory, SMALL, now_ms=0, topic_id=TOPIC_ID)
        assert (tmp_path / "t-0" / "partition.metadata").read_bytes() == (
            b"version: 0\ntopic_id: 35t8hOT8SJuCXqRxLi11Zg"
        )
        await log.close()
        await (await Log.open(FILES, directory, SMALL, now_ms=0, topic_id=TOPIC_ID)).close()
        with pytest.raises(
            StorageError, match=r"partition\.metadata: topic_id is 35t8hOT8SJuCXqRxLi11Zg, but"
        ):
            await Log.open(FILES, directory, SMALL, now_ms=0, topic_id=Uuid(bytes(16)))
        for text, reason in [("version: 1\ntopic_id: x", "version '1', not 0"), ("version: 0\n", "topic_id")]:
            (tmp_path / "t-0" / "partition.metadata").write_text(text)
            with pytest.raises(StorageError, match=reason):
                await Log.open(FILES, directory, SMALL, now_ms=0, topic_id=TOPIC_ID)

    asyncio.run(scenario())


def test_a_closed_log_takes_no_more_calls(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await filled(tmp_path, 3)
        await log.close()
        with pytest.raises(StorageError, match="the log is closed"):
            log.append([a_batch(9)], 0)
        with pytest.raises(StorageError, match="the log is closed"):
            log.read(0, 100)
        with pytest.raises(StorageError, match="the log is closed"):
            await log.flush()
        log.abandon()

    asyncio.run(scenario())


def test_batches_without_timestamps_are_rolled_by_the_clock(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path, LogConfig(segment_ms=100))
        untimed = [bytes(build([Record(at, -1, None, b"")], base_offset=at)) for at in range(3)]
        log.append([untimed[0]], 50)
        log.append([untimed[1]], 100)
        assert [segment.largest_timestamp_ms for segment in log.segments] == [100]
        log.append([untimed[2]], 101)
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        await log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(20))
def test_a_plain_append_leaves_what_every_other_would(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of any size, age and epoch, into segments that are soon full, the short way and the long."""
    config = LogConfig(segment_bytes=2000, index_interval_bytes=300, segment_ms=500, index_bytes=64)
    append_plain = Segment.append_plain

    async def scenario(directory: Path) -> list[object]:
        rng, seen = random.Random(seed), list[object]()
        log = await opened(directory, config)
        epoch = timestamp = 0
        for _ in range(150):
            epoch += rng.random() < 0.1
            timestamp = max(0, timestamp + rng.randrange(-20, 50))
            batch = a_batch(
                log.end_offset,
                rng.randrange(1, 5),
                epoch=epoch,
                timestamp=timestamp,
                value_bytes=rng.randrange(200),
            )
            log.append([batch], rng.randrange(1000))
            seen.append((log.end_offset, log.segments, list(log.epochs)))
        await log.close()
        return [*seen, {one.name: one.read_bytes() for one in directory.iterdir()}]

    were_plain: list[bool] = []

    def noting(segment: Segment, *said: Any) -> bool:
        were_plain.append(append_plain(segment, *said))
        return were_plain[-1]

    monkeypatch.setattr(Segment, "append_plain", noting)
    plainly = asyncio.run(scenario(tmp_path / "plain"))
    assert {True, False} == set(were_plain)
    monkeypatch.setattr(Segment, "append_plain", lambda *_: False)
    assert asyncio.run(scenario(tmp_path / "other")) == plainly
