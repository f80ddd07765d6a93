"""A file that gets its name when it is complete: whoever finds the name finds all of it."""

from __future__ import annotations

from quorate.protocol.types import Buffer
from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import File, Files

__all__ = ["PartFile"]


class PartFile:
    """Until `publish`, the file is called `<path>.part`."""

    __slots__ = ("_file", "_files", "_final_path", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.path = path + ".part"
        self._final_path = path
        self._files = files
        with storage_errors(self.path):
            if files.exists(self.path):
                files.unlink(self.path)  # of an attempt that a crash ended
            self._file: File | None = files.open(self.path, create=True)

    @property
    def size_bytes(self) -> int:
        return self._opened().size()

    def append(self, data: Buffer) -> None:
        """After an error there is no file any more."""
        try:
            self._opened().append([data])
        except OSError as error:
            self.remove()
            raise StorageError.of(self.path, error) from error

    async def publish(self) -> None:
        """Syncs the file, gives it its name, and syncs that."""
        file = self._opened()
        with storage_errors(self.path):
            await file.fsync()
            file.close()
            self._files.rename(self.path, self._final_path)
            self._file = None
            await self._files.fsync_dir(self._final_path.rpartition("/")[0])

    def remove(self) -> None:
        """Closes and deletes the file, if it has not got its name."""
        if self._file is not None:
            self._file.close()
            self._file = None
            with storage_errors(self.path):
                self._files.unlink(self.path)

    def _opened(self) -> File:
        if self._file is None:
            raise StorageError(self.path, "it was finished or given up")
        return self._file
