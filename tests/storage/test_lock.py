"""Only one process uses a log directory."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from stored_batches import FILES

from quorate.storage.errors import StorageError
from quorate.storage.lock import lock_directory


def test_a_directory_is_locked_until_the_lock_is_closed(tmp_path: Path) -> None:
    lock = lock_directory(FILES, str(tmp_path))
    with pytest.raises(StorageError, match=rf"\.lock: {tmp_path} is in use by another process"):
        lock_directory(FILES, str(tmp_path))
    lock.close()
    lock_directory(FILES, str(tmp_path)).close()


def test_a_directory_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        lock_directory(FILES, str(tmp_path / "missing"))


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_lock_is_one_for_java_too(tmp_path: Path, is_ours: bool) -> None:
    """What `FileChannel.tryLock` does is a record lock, as that of `lockf` here."""
    path = tmp_path / ".lock"
    path.touch()
    with path.open("r+b") as java:
        if is_ours:
            lock = lock_directory(FILES, str(tmp_path))
            with pytest.raises(BlockingIOError):
                fcntl.lockf(java, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.close()
        fcntl.lockf(java, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(StorageError, match="in use by another process"):
            lock_directory(FILES, str(tmp_path))
    lock_directory(FILES, str(tmp_path)).close()
