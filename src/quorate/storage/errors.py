"""What can go wrong with what is on disk."""

__all__ = ["AppendError", "StorageError"]


class StorageError(Exception):
    """A file or directory that cannot be used: the disk failed, or what it holds is not what it should be."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    @classmethod
    def of(cls, path: str, error: OSError) -> "StorageError":
        """What an operating system says about a path, in one line."""
        return cls(error.filename or path, error.strerror or str(error))


class AppendError(Exception):
    """Batches that do not continue the log they were meant for. Nothing of them was written."""
