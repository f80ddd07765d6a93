"""How much is sent: enough for figures that can be trusted, or just enough to see that it works."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

SCALE_VARIABLE = "QUORATE_BENCH_BROKER_SCALE"


@dataclass(frozen=True)
class Sizes:
    megabytes: int  # of every measured flow
    singles: int  # records, one after the other
    rounds: int

    @classmethod
    def chosen(cls) -> Sizes:
        """By the environment: 1 is the whole size, 0.01 is for a try."""
        return cls.scaled(float(os.environ.get(SCALE_VARIABLE, "1")))

    @classmethod
    def scaled(cls, scale: float) -> Sizes:
        return cls(max(4, int(500 * scale)), max(50, int(4000 * scale)), 4 if scale >= 1 else 1)


def best(rounds: int, *sides: Callable[[], tuple[float, ...]]) -> list[tuple[float, ...]]:
    """The smallest that each side comes to, of each of its figures; in turns, after a round that does not
    count."""
    for side in sides:
        side()
    found = [[side() for side in sides] for _ in range(rounds)]
    return [tuple(map(min, zip(*of_one, strict=True))) for of_one in zip(*found, strict=True)]
