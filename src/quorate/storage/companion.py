"""What a log tells those that keep something beside it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["LogCompanion"]


class LogCompanion(Protocol):
    """What is kept beside a log, in the same directory, and changes with it. Each call comes in the middle of
    a change of the log, which fails with an OSError of the companion as with one of its own."""

    def ends_at(self, offset: int) -> None:
        """A segment is finished. What comes next, if anything does, goes into a new one, from here on."""

    def is_cleared(self) -> None:
        """Everything will be deleted."""

    async def is_cut(self) -> None:
        """The log now ends earlier. Nothing is appended before this is done."""

    async def sync(self) -> None:
        """What the companion wrote must survive a power failure, too."""
