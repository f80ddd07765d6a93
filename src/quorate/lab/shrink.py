"""Makes a failing list of faults small: delta debugging that demands the same violation.

A smaller list that fails differently is another bug, and following it would lose this one. The control to run
afterwards: the corrected code must pass the small list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

__all__ = ["shrink"]

_T = TypeVar("_T")


def shrink(faults: Sequence[_T], run: Callable[[list[_T]], str | None], runs_max: int = 500) -> list[_T]:
    """The smallest list found that fails as the whole one does. `run` gives the name of the violation, or
    None.

    The result keeps the order. If `runs_max` suffices, leaving out any single fault of it makes the violation
    go away or become another one.
    """
    current = list(faults)
    violation = run(current)
    assert violation is not None, "the whole list does not fail"
    runs = 1
    pieces = 2
    while len(current) > 1 and runs < runs_max:
        bounds = [len(current) * index // pieces for index in range(pieces + 1)]
        for start, end in pairwise(bounds):
            without = current[:start] + current[end:]
            runs += 1
            if run(without) == violation:
                current, pieces = without, max(2, pieces - 1)
                break
            if runs >= runs_max:
                break
        else:
            if pieces >= len(current):
                break
            pieces = min(len(current), 2 * pieces)
    if len(current) == 1 and runs < runs_max and run([]) == violation:
        return []  # it needs no fault at all
    return current
