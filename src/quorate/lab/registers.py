"""What was written to places that hold one value, and whether what is read there later can be right.

Nobody knows when a write takes effect: at some moment between its beginning and its answer, and of a write
that was never answered, at any later moment or never. So a reader may find the value of a write unless
another one began after it had been answered, and was itself answered before the reader asked.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

from quorate.values import dataclass

__all__ = ["Registers", "Write"]


@dataclass(slots=True)
class Write:
    """One attempt. It ends when it is answered; one that was refused has had no effect."""

    value: object
    begun: float
    ended: float = inf
    is_refused: bool = False

    def succeeded(self, now: float) -> None:
        self.ended = now

    def refused(self) -> None:
        """The answer says that nothing was written."""
        self.is_refused = True


class Registers:
    """The histories of many places."""

    def __init__(self) -> None:
        self._writes: dict[Hashable, list[Write]] = {}
        self.reads = 0

    def begin(self, place: Hashable, value: object, now: float) -> Write:
        write = Write(value, now)
        self._writes.setdefault(place, []).append(write)
        return write

    def problem(self, place: Hashable, value: object, begun: float) -> str | None:
        """Why a value cannot be what somebody read who began at a time; None for a value that was never
        written stands for the beginning."""
        self.reads += 1
        writes = [one for one in self._writes.get(place, ()) if not one.is_refused]
        last = [one for one in writes if one.ended < begun]
        candidates = [one for one in writes if one.value == value]
        if value is None and not candidates:
            candidates = [Write(None, -inf, -inf)]
        for one in candidates:
            if not any(other.begun > one.ended for other in last):
                return None
        if not candidates:
            return f"{place} holds {value!r}, which nobody wrote"
        newest = max(last, key=lambda one: one.ended)
        return f"{place} holds {value!r} again, after {newest.value!r} had been acknowledged"

    def forget(self, place: Hashable) -> None:
        self._writes.pop(place, None)

    def places(self) -> list[Hashable]:
        return list(self._writes)

    def last_acknowledged(self, place: Hashable) -> int | None:
        """The number that was acknowledged last, if one was."""
        ended = [one for one in self._writes.get(place, ()) if one.ended < inf and isinstance(one.value, int)]
        newest = max(ended, key=lambda one: one.ended, default=None)
        return None if newest is None else int(str(newest.value))
