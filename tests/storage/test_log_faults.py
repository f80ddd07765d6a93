"""A log on a disk that fails, and on one that is slow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from failing_files import FailingFiles
from stored_batches import SMALL, a_batch, opened, read_all

from quorate.storage import indexes
from quorate.storage.errors import StorageError
from quorate.storage.limits import LogConfig
from quorate.storage.log import Log

FIRST = "00000000000000000000"


@pytest.mark.parametrize(
    ("suffix", "interval_bytes", "epoch"),
    [(".log", 0, 2), (".index", 0, 2), (".timeindex", 0, 2), (".log", 4096, 1)],  # the last one is plain
)
def test_a_torn_append_is_cut_off_and_the_log_goes_on_after_a_flush(
    tmp_path: Path, suffix: str, interval_bytes: int, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "_UNWRITTEN_BYTES_MAX", 0)  # entries are written at once

    async def scenario() -> None:
        files = FailingFiles()
        log = await opened(tmp_path, LogConfig(index_interval_bytes=interval_bytes), files=files)
        log.append([a_batch(0, 3, epoch=1), a_batch(3, 3, epoch=1)], 0)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        summary = log.segments[0]
        files.broken = {("append", suffix)}
        with pytest.raises(StorageError, match=rf"{FIRST}\.log: the disk is broken"):
            log.append([a_batch(6, 3, epoch=epoch, timestamp=5000)], 0)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        assert (log.end_offset, list(log.epochs), log.segments[0]) == (6, [(1, 0)], summary)
        files.broken = set()
        with pytest.raises(StorageError, match="must be flushed before an append"):
            log.append([a_batch(6, 3, epoch=epoch)], 0)
        await log.flush()
        log.append([a_batch(6, 3, epoch=epoch)], 0)
        assert len(read_all(log)) == 3
        await log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("before", [0, 1])
def test_a_torn_append_that_cannot_be_cut_off_ends_the_log(tmp_path: Path, before: int) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened(tmp_path, files=files)
        for at in range(before):
            log.append([a_batch(at, epoch=0)], 0)
        await log.flush()
        files.broken = {("append", ".log"), ("truncate", ".log")}
        with pytest.raises(StorageError, match="a torn append cannot be cut off"):
            log.append([a_batch(before, epoch=0)], 0)
        files.broken = set()
        for _ in range(2):
            with pytest.raises(StorageError, match="a torn append cannot be cut off"):
                await log.flush()
        log.abandon()
        again = await opened(tmp_path)
        assert again.end_offset == before
        await again.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "broken", [("fsync", ".log"), ("fsync_dir", ""), ("rename", "leader-epoch-checkpoint")]
)
def test_after_a_failed_sync_the_log_refuses_everything(tmp_path: Path, broken: tuple[str, str]) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened(tmp_path, files=files)
        log.append([a_batch(0, 3, epoch=1)], 0)
        log.roll(0)
        files.broken = {broken}
        with pytest.raises(StorageError, match="the disk is broken") as failure:
            await log.flush()
        assert str(tmp_path) in str(failure.value)
        files.broken = set()
        assert log.flushed_offset == 0
        for call in (
            lambda: log.append([a_batch(3, epoch=1)], 0),
            lambda: log.read(0, 100),
            lambda: log.roll(0),
            lambda: log.assign_epoch(9),
        ):
            with pytest.raises(StorageError, match="the disk is broken"):
                call()
        for wait in (
            log.flush(),
            log.truncate_to(0),
            log.restart_at(9, 0),
            log.delete_until(3, 0),
            log.close(),
        ):
            with pytest.raises(StorageError, match="the disk is broken"):
                await wait
        log.abandon()

    asyncio.run(scenario())


def test_a_roll_that_fails_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened(tmp_path, files=files)
        log.append([a_batch(0, 3)], 0)
        for broken in (("create", ".log"), ("create", ".timeindex"), ("append", ".timeindex")):
            files.broken = {broken}
            with pytest.raises(StorageError, match="the disk is broken"):
                log.roll(0)
        files.broken = set()
        assert len(log.segments) == 1
        log.append([a_batch(3, 3)], 0)
        log.roll(0)
        log.append([a_batch(6, 3)], 0)
        await log.close()
        again = await opened(tmp_path, recovery_point=None)
        assert read_all(again) == [a_batch(0, 3), a_batch(3, 3), a_batch(6, 3)]
        await again.close()

    asyncio.run(scenario())


def test_a_read_that_fails_names_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened(tmp_path, files=files)
        log.append([a_batch(0, 3)], 0)
        files.broken = {("read", ".log")}
        with pytest.raises(StorageError, match=rf"{FIRST}\.log: the disk is broken"):
            log.read(0, 100)
        files.broken = set()
        (tmp_path / f"{FIRST}.log").write_bytes(bytes(len(a_batch(0, 3))))
        with pytest.raises(StorageError, match=rf"{FIRST}\.log: position 0: no record batch has magic 0"):
            log.read(0, 100)
        await log.close()

    asyncio.run(scenario())


def test_a_log_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path)
        log.append([a_batch(0)], 0)
        await log.close()
        files = FailingFiles()
        for broken in (("fsync", ".log"), ("fsync_dir", ""), ("create", ".index")):
            files.broken = {broken}
            for index in tmp_path.glob("*.index"):
                index.unlink()
            with pytest.raises(StorageError, match="the disk is broken"):
                await opened(tmp_path, files=files)

    asyncio.run(scenario())


# What is synced, and when


def test_a_log_without_a_batch_is_not_synced_before_its_first_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened(tmp_path / "t-0", files=files)
        log.assign_epoch(3)
        await log.close()
        syncs = [operation for operation in files.operations if operation[0].startswith("fsync")]
        assert syncs == []
        log = await opened(tmp_path / "t-0", files=files, recovery_point=None)
        log.append([a_batch(0)], 0)
        await log.flush()
        for synced in (("fsync", f"{FIRST}.log"), ("fsync_dir", "t-0"), ("fsync_dir", tmp_path.name)):
            assert synced in files.operations
        log.abandon()
        files.operations.clear()
        log = await opened(tmp_path / "t-0", files=files)
        assert ("fsync_dir", tmp_path.name) in files.operations, "who made it may not have come to this"
        log.abandon()

    asyncio.run(scenario())


def test_an_append_costs_one_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened(tmp_path, files=files)
        log.append([a_batch(0, 3)], 0)
        await log.flush()
        files.operations.clear()
        log.append([a_batch(3, 3)], 0)
        await log.flush()
        await log.flush()
        assert files.operations == [("append", f"{FIRST}.log"), ("fsync", f"{FIRST}.log")]
        await log.close()

    asyncio.run(scenario())


def test_a_roll_syncs_both_segments_the_indexes_and_the_names(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened(tmp_path, files=files)
        log.append([a_batch(0, 3)], 0)
        log.roll(0)
        log.append([a_batch(3, 3)], 0)
        files.operations.clear()
        assert await log.flush() == 6
        synced = [name for operation, name in files.operations if operation == "fsync"]
        second = f"{3:020d}.log"
        epochs = "leader-epoch-checkpoint.tmp"
        assert synced == [f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.timeindex", second, epochs]
        assert ("fsync_dir", tmp_path.name) in files.operations
        await log.close()

    asyncio.run(scenario())


def test_a_cut_is_synced_before_the_next_append(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened(tmp_path, files=files)
        for index in range(40):
            log.append([a_batch(index, 1, value_bytes=200)], 0)
        assert len(log.segments) > 3
        files.operations.clear()
        await log.truncate_to(3)
        done = [
            one for one in files.operations if one[0] != "read" and one[1].endswith((".log", tmp_path.name))
        ]
        removed = [name for operation, name in done if operation == "unlink"]
        assert removed == sorted(removed, reverse=True), "from the last to the first"
        pairs = [("unlink", name) for name in removed]
        assert done[: 2 * len(pairs) : 2] == pairs
        assert set(done[1 : 2 * len(pairs) : 2]) == {("fsync_dir", tmp_path.name)}, "each before the next"
        after = done[2 * len(pairs) :]
        assert after[:2] == [("truncate", f"{FIRST}.log"), ("fsync", f"{FIRST}.log")]
        await log.close()

    asyncio.run(scenario())


def test_a_flush_that_began_before_a_torn_append_does_not_settle_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, files = await held_up(tmp_path)
        flush = asyncio.create_task(log.flush())
        await until_waiting()
        files.broken = {("append", ".log")}
        with pytest.raises(StorageError, match="the disk is broken"):
            log.append([a_batch(3)], 0)
        files.broken = set()
        files.held.set()
        await flush
        with pytest.raises(StorageError, match="must be flushed before an append"):
            log.append([a_batch(3)], 0)
        await log.flush()
        log.append([a_batch(3)], 0)
        await log.close()

    asyncio.run(scenario())


async def held_up(tmp_path: Path) -> tuple[Log, FailingFiles]:
    files = FailingFiles()
    log = await opened(tmp_path, SMALL, files=files)
    log.append([a_batch(0, 3)], 0)
    files.held.clear()
    return log, files


async def until_waiting() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_appends_go_on_during_a_flush_and_are_not_promised_by_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, files = await held_up(tmp_path)
        flush = asyncio.create_task(log.flush())
        await until_waiting()
        log.append([a_batch(3, 3)], 0)
        log.roll(0)
        log.append([a_batch(6, 3)], 0)
        second = asyncio.create_task(log.flush())
        await until_waiting()
        assert log.flushed_offset == 0
        files.held.set()
        await flush
        assert log.flushed_offset in (3, 9), "the second may be done as well"
        assert await second == log.flushed_offset == 9
        await log.close()

    asyncio.run(scenario())


def test_a_flush_whose_caller_has_gone_comes_to_its_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, files = await held_up(tmp_path)
        flush = asyncio.create_task(log.flush())
        await until_waiting()
        flush.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flush
        assert log.flushed_offset == 0
        files.held.set()
        assert await log.flush() == 3
        assert files.operations.count(("fsync", f"{FIRST}.log")) == 1
        await log.close()

    asyncio.run(scenario())


def test_a_sync_that_fails_after_its_caller_has_gone_is_not_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, files = await held_up(tmp_path)
        flush = asyncio.create_task(log.flush())
        await until_waiting()
        flush.cancel()
        files.broken = {("fsync", ".log")}
        files.held.set()
        await until_waiting()
        files.broken = set()
        with pytest.raises(StorageError, match="the disk is broken"):
            await log.flush()
        log.abandon()

    asyncio.run(scenario())


def test_nothing_is_appended_while_the_log_is_being_cut(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, files = await held_up(tmp_path)
        cut = asyncio.create_task(log.truncate_to(0))
        await until_waiting()
        assert bytes(log.read(0, 100)) == b"", "what is being cut is not read any more"
        with pytest.raises(StorageError, match="must be flushed before an append"):
            log.append([a_batch(0)], 0)
        files.held.set()
        assert await cut == 0
        log.append([a_batch(0)], 0)
        await log.close()

    asyncio.run(scenario())
