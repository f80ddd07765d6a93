"""Too many open files: those that nobody needs now are closed, and opened again; no disk is blamed for it."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from failing_files import FailingFiles
from stored_batches import SMALL, a_batch, opened, read_all

from quorate.storage.errors import StorageError
from quorate.storage.files import RealFiles
from quorate.storage.log_file import LogFile
from quorate.storage.segment import LOG_SUFFIX, segment_path


def test_a_log_that_nobody_uses_has_no_file_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = RealFiles()
        log = await opened(tmp_path / "t-0", SMALL, files=files)
        await log.close()
        files = RealFiles()
        log = await opened(tmp_path / "t-0", SMALL, files=files, recovery_point=None)
        assert (files.open_files, log.size_bytes, log.segments[0].index_bytes) == (0, 0, 0)
        log.abandon()
        log = await opened(tmp_path / "t-0", SMALL, files=files)  # as after a crash
        assert files.open_files == 0
        names = [path.name for path in sorted((tmp_path / "t-0").iterdir())]
        assert names == [f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]
        log.append([a_batch(0)], 0)
        assert files.open_files == 1
        await log.close()
        assert files.open_files == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("files_max", [1, 2, 5])
def test_logs_with_more_segments_than_may_be_open_are_written_read_cut_and_closed(
    tmp_path: Path, files_max: int
) -> None:
    async def scenario() -> None:
        files = RealFiles(files_max=files_max)
        logs = [await opened(tmp_path / f"t-{number}", SMALL, files=files) for number in range(3)]
        batches = [a_batch(number, value_bytes=300) for number in range(30)]
        for batch in batches:
            for log in logs:
                log.append([batch], 0)
                assert files.open_files <= files_max
        assert files.log_files.closed_for_others > 20
        assert logs[0].segment_count > 5
        assert [read_all(log) for log in logs] == [batches] * 3
        await logs[0].truncate_to(17)
        logs[0].append([a_batch(17, epoch=1)], 0)
        await asyncio.gather(*(log.flush() for log in logs))
        assert read_all(logs[0]) == [*batches[:17], a_batch(17, epoch=1)]
        for log in logs:
            await log.close()
        assert files.open_files == 0
        again = await opened(tmp_path / "t-1", SMALL, files=files, recovery_point=None)
        assert (read_all(again), again.recovery.rebuilt_indexes) == (batches, [])
        again.abandon()
        suspect = await opened(tmp_path / "t-2", SMALL, files=files)
        assert (read_all(suspect), suspect.recovery.damage) == (batches, "")
        suspect.abandon()

    asyncio.run(scenario())


def test_what_was_written_before_a_file_was_closed_is_synced_after_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        files.log_files.open_max = 1
        first = await opened(tmp_path / "t-0", files=files)
        second = await opened(tmp_path / "t-1", files=files)
        first.append([a_batch(0)], 0)
        second.append([a_batch(0)], 0)
        files.operations.clear()
        assert await first.flush() == 1
        assert ("fsync", f"{0:020d}.log") in files.operations
        files.broken.add(("fsync", ".log"))
        with pytest.raises(StorageError):
            await second.flush()

    asyncio.run(scenario())


def test_ranges_under_way_keep_their_file_and_everything_beyond_is_refused_for_a_while(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        files = RealFiles(files_max=1)
        first = await opened(tmp_path / "t-0", files=files)
        second = await opened(tmp_path / "t-1", files=files)
        first.append([a_batch(0)], 0)
        held = first.range(0, 1000, 1000)
        assert held is not None
        with pytest.raises(StorageError, match=r"1 files are open.*ulimit -n") as raised:
            second.append([a_batch(0)], 0)
        assert raised.value.is_of_handles
        assert held.read() == a_batch(0)
        held.release()
        await second.flush()  # the log goes on, as after every write that failed
        second.append([a_batch(0)], 0)
        assert (read_all(second), files.open_files) == ([a_batch(0)], 1)

    asyncio.run(scenario())


def test_a_log_whose_directory_gets_another_name_finds_its_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = RealFiles(files_max=1)
        log = await opened(tmp_path / "t-0", SMALL, files=files)
        batches = [a_batch(number, value_bytes=300) for number in range(12)]
        for batch in batches:
            log.append([batch], 0)
        (tmp_path / "t-0").rename(tmp_path / "t-0.moved")
        log.is_now_in(str(tmp_path / "t-0.moved"))
        assert read_all(log) == batches
        log.append([a_batch(12)], 0)
        await log.close()
        assert not (tmp_path / "t-0").exists()

    asyncio.run(scenario())


def test_who_closed_a_file_for_good_cannot_open_it_again(tmp_path: Path) -> None:
    files = RealFiles()
    path = segment_path(str(tmp_path), 0, LOG_SUFFIX)
    file = LogFile.made(files, path)
    file.append([b"abc"])
    file.rest()
    assert not file.is_open
    assert (file.size(), file.read(1, 2)) == (3, b"bc")
    file.close()
    assert files.open_files == len(files.log_files) == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 1)


def test_the_one_that_was_not_used_gives_way(tmp_path: Path) -> None:
    files = RealFiles(files_max=3)
    made = [LogFile.made(files, f"{tmp_path}/{number}") for number in range(5)]
    for file in made[:3]:
        file.append([b"a"])
    made[3].append([b"a"])  # all three were used: the marks go, and then the first
    assert [file.is_open for file in made] == [False, True, True, True, False]
    made[1].read(0, 1)
    made[4].append([b"a"])
    assert [file.is_open for file in made] == [False, True, False, True, True]


@pytest.mark.parametrize(("code", "is_of_handles"), [(errno.EMFILE, True), (errno.EIO, False), (None, False)])
def test_what_is_of_handles(code: int | None, is_of_handles: bool) -> None:
    error = StorageError("t-0", "no")
    error.__cause__ = None if code is None else OSError(code, "no")
    assert error.is_of_handles is is_of_handles
