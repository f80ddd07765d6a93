"""How a replica stands, as far as that is counted; and how many stand how.

The counts are kept while replicas change. To go through all of them for whoever asks would take most of a
broker's time just when thousands change leaders, and everybody asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

__all__ = ["FAILED", "FOLLOWING", "Standing", "Standings", "leading"]


class Standing(NamedTuple):
    is_failed: bool = False
    is_led: bool = False
    is_under_replicated: bool = False
    is_under_min_isr: bool = False
    is_at_min_isr: bool = False


FAILED: Final = Standing(is_failed=True)
FOLLOWING: Final = Standing()


@cache  # thousands of replicas share a few
def leading(in_sync: int, replicas: int, min_isr: int) -> Standing:
    return Standing(
        is_led=True,
        is_under_replicated=in_sync < replicas,
        is_under_min_isr=in_sync < min_isr,
        is_at_min_isr=in_sync == min_isr,
    )


class Standings:
    """Of all replicas of a broker.

    >>> standings = Standings()
    >>> standings.change(None, FOLLOWING)
    >>> standings.change(FOLLOWING, leading(in_sync=1, replicas=2, min_isr=1))
    >>> standings.count(lambda one: one.is_led), standings.count(lambda one: one.is_failed)
    (1, 0)
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[Standing] = Counter()

    def change(self, before: Standing | None, now: Standing | None) -> None:
        """One replica stands otherwise than before; None while it is not there."""
        if before is not None:
            self._counts[before] -= 1
        if now is not None:
            self._counts[now] += 1

    def count(self, is_meant: Callable[[Standing], bool]) -> int:
        return sum(count for standing, count in self._counts.items() if is_meant(standing))
