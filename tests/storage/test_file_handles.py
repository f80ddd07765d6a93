"""Too many open files: segments are refused in time, and no disk is blamed for it."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from stored_batches import SMALL, a_batch, opened, read_all

from quorate.storage.errors import StorageError
from quorate.storage.files import RealFiles


def test_a_segment_that_would_be_one_too_many_is_refused_and_the_log_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = RealFiles(files_max=5)
        log = await opened(tmp_path / "t-0", SMALL, files=files)
        batches = [a_batch(number, value_bytes=600) for number in range(5)]
        for batch in batches[:4]:
            log.append([batch], 0)
        assert (files.open_files, len(log.segments)) == (6, 2)
        with pytest.raises(StorageError, match=r"6 files are open.*ulimit -n") as raised:
            log.append([batches[4]], 0)
        assert raised.value.is_of_handles
        files._files_max = 100
        log.append([batches[4]], 0)  # at once: nothing was written, so nothing must be synced before
        assert read_all(log) == batches
        await log.close()
        assert files.open_files == 0

    asyncio.run(scenario())


def test_a_log_that_cannot_be_opened_leaves_no_file_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = RealFiles(files_max=0)
        with pytest.raises(StorageError) as raised:
            await opened(tmp_path / "t-0", SMALL, files=files)
        assert raised.value.is_of_handles
        assert files.open_files == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(("code", "is_of_handles"), [(errno.EMFILE, True), (errno.EIO, False), (None, False)])
def test_what_is_of_handles(code: int | None, is_of_handles: bool) -> None:
    error = StorageError("t-0", "no")
    error.__cause__ = None if code is None else OSError(code, "no")
    assert error.is_of_handles is is_of_handles
