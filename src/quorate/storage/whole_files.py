"""Small files that are read and replaced as a whole."""

from __future__ import annotations

from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import Files, replace_file
from quorate.storage.limits import WHOLE_FILE_BYTES_MAX

__all__ = ["read_whole", "store_whole"]


def read_whole(files: Files, path: str) -> bytes | None:
    """What is in a file; None if there is none."""
    with storage_errors(path):
        if not files.exists(path):
            return None
        file = files.open(path)
        try:
            size_bytes = file.size()
            if size_bytes > WHOLE_FILE_BYTES_MAX:
                raise StorageError(path, f"{size_bytes} bytes, more than the limit of {WHOLE_FILE_BYTES_MAX}")
            return file.read(0, size_bytes)
        finally:
            file.close()


async def store_whole(files: Files, path: str, data: bytes) -> None:
    """Makes `data` the content of a file, durably."""
    with storage_errors(path):
        await replace_file(files, path, data)
