"""The lock of a log directory: two processes that wrote to the same one would destroy it."""

from __future__ import annotations

from typing import Final

from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import File, Files

__all__ = ["LOCK_NAME", "lock_directory"]

LOCK_NAME: Final = ".lock"


def lock_directory(files: Files, directory: str) -> File:
    """Takes the lock, until the file is closed or the process ends."""
    path = f"{directory}/{LOCK_NAME}"
    with storage_errors(path):
        file = files.lock(path)
    if file is None:
        raise StorageError(path, f"{directory} is in use by another process")
    return file
