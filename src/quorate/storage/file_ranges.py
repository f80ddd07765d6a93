"""A range of a file that a response can send without copying it through Python."""

from __future__ import annotations


class FileRange:
    """`len()` bytes of a file from `position` on, for `os.sendfile`, or to be read.

    The file stays open while the range is there, even if it is deleted meanwhile; `release`, or the end of
    the last reference, lets it go.
    """

    position: int
    size_bytes: int
    next_offset: int  # the offset after the last batch in it

    @property
    def descriptor(self) -> int | None:
        """None where there is no real file: then `read`."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.size_bytes

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError
