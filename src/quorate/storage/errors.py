"""What can go wrong with what is on disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["AppendError", "StorageError", "storage_errors"]

_TOO_MANY_OPEN: Final = frozenset({errno.EMFILE, errno.ENFILE})


class StorageError(Exception):
    """A file or directory that cannot be used: the disk failed, or what it holds is not what it should be."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    @property
    def is_of_handles(self) -> bool:
        """Whether too many files are open, which says nothing about the disk."""
        return isinstance(self.__cause__, OSError) and self.__cause__.errno in _TOO_MANY_OPEN

    @classmethod
    def of(cls, path: str, error: OSError) -> StorageError:
        """What an operating system says about a path, in one line."""
        return cls(error.filename or path, error.strerror or str(error))


class AppendError(Exception):
    """Batches that do not continue the log they were meant for. Nothing of them was written."""


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turns what the operating system says about a path into a `StorageError` that names it."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(path, error) from error
