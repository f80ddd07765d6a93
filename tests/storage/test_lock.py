"""Only one process uses a log directory."""

from __future__ import annotations

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
