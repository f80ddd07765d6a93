"""Whether a history of reads and writes of one register can be explained by one order of single steps.

Each operation takes effect at one instant between its beginning and its end; the instants must be chosen so
that every read finds what was written last before it. A write whose answer never came may take effect at any
time after its beginning, or never; a read without an answer says nothing and is left out.

The search is Wing and Gong's: of the operations that could be next, since none that must come before it is
left, take one; if the rest cannot be explained, take another. What was tried is remembered, as the set of
operations taken and the value after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

__all__ = ["Operation", "UndecidedError", "explain", "order_problem"]

STATES_MAX: Final = 1_000_000


class UndecidedError(Exception):
    """The history has too many operations at once to find out."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A read or a write, and when it began and ended; `ended` is infinite if nobody knows."""

    is_write: bool
    value: object
    begun: float
    ended: float = inf

    def __str__(self) -> str:
        what = f"writes {self.value!r}" if self.is_write else f"reads {self.value!r}"
        until = "?" if self.ended == inf else f"{self.ended:.3f}"
        return f"{self.begun:.3f}-{until} {what}"


def explain(history: Sequence[Operation], first: object = None) -> str | None:
    """Why a history cannot be: the operations around the first that no order explains; None if it can be."""
    known = sorted(
        (one for one in history if one.is_write or one.ended < inf), key=lambda one: (one.begun, one.ended)
    )
    until = _search(known, first)
    if until is None:
        return None
    stuck = [one for one in known if one.begun <= until][-6:]
    return f"no order of steps explains: {'; '.join(map(str, stuck))}"


def _search(operations: Sequence[Operation], first: object) -> float | None:
    """None if an order explains all operations that have ended; else until when one does."""
    count = len(operations)
    must = sum(1 << index for index, one in enumerate(operations) if one.ended < inf)
    seen: set[tuple[int, object]] = set()
    stack: list[tuple[int, object]] = [(0, first)]
    latest = 0.0
    while stack:
        taken, value = stack.pop()
        if taken & must == must:
            return None
        if (taken, value) in seen:
            continue
        seen.add((taken, value))
        if len(seen) > STATES_MAX:
            raise UndecidedError(f"{count} operations: more than {STATES_MAX:,} orders were tried")
        # Nothing may be next that began after something else, which is left, had ended.
        low = _lowest_free(taken)
        earliest_end = inf
        index = low
        candidates = []
        while index < count and operations[index].begun <= earliest_end:
            if not taken >> index & 1:
                candidates.append(index)
                earliest_end = min(earliest_end, operations[index].ended)
            index += 1
        latest = max(latest, min(earliest_end, operations[min(index, count - 1)].begun))
        for one in candidates:
            operation = operations[one]
            if operation.begun > earliest_end:
                continue
            if operation.is_write:
                stack.append((taken | 1 << one, operation.value))
            elif operation.value == value:
                stack.append((taken | 1 << one, value))
    return latest


def _lowest_free(taken: int) -> int:
    """The lowest bit that is not set."""
    return (~taken & (taken + 1)).bit_length() - 1


def order_problem(appended: Sequence[tuple[float, float, int]]) -> str | None:
    """Of appends with their beginnings, ends and offsets: one that ended before another began has the lower
    offset. The first pair for which that is not so."""
    by_begin = sorted(appended)
    by_end = sorted(appended, key=lambda one: one[1])
    highest, position = -1, 0
    for begun, _, offset in by_begin:
        while position < len(by_end) and by_end[position][1] < begun:
            highest = max(highest, by_end[position][2])
            position += 1
        if offset < highest:
            return f"offset {offset} was given after offset {highest} had been acknowledged"
    return None
