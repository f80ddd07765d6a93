"""Not more than so many bytes in a second."""

from __future__ import annotations

__all__ = ["Pace"]


class Pace:
    """Says how long to wait after each piece, so that all of them together keep to a rate.

    >>> pace = Pace(1000.0)
    >>> pace.delay_s(500, now_s=10.0), pace.delay_s(500, now_s=10.5), pace.delay_s(0, now_s=99.0)
    (0.5, 0.5, 0.0)
    """

    __slots__ = ("_bytes_per_second", "_next_s")

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._next_s = 0.0

    def delay_s(self, moved_bytes: int, now_s: float) -> float:
        """So many bytes were just moved: how long until the next may be."""
        self._next_s = max(self._next_s, now_s) + moved_bytes / self._bytes_per_second
        return self._next_s - now_s
