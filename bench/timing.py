"""How things are measured: both sides in one run, in turns, and the best of each."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROUNDS = 15
ROUND_SECONDS = 0.02


@dataclass(frozen=True)
class Row:
    """One line of the report: a ratio, and the target it was set."""

    what: str
    ratio: float
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    def __str__(self) -> str:
        if self.at_most is not None:
            target, met = f"<= {self.at_most:g}", self.ratio <= self.at_most
        elif self.at_least is not None:
            target, met = f">= {self.at_least:g}", self.ratio >= self.at_least
        else:
            return f"{self.what:<84} {self.ratio:7.2f}           {self.note}"
        return f"{self.what:<84} {self.ratio:7.2f}  {target:<8} {'met' if met else 'MISSED'} {self.note}"


def compare(base: Callable[[], Any], other: Callable[[], Any]) -> float:
    """The time of `other` over the time of `base`: the best round of each, the rounds taken in turns."""
    counts = [_calls_per_round(base), _calls_per_round(other)]
    best = [float("inf"), float("inf")]
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for side, function in enumerate((base, other)):
                best[side] = min(best[side], _seconds(function, counts[side]) / counts[side])
    finally:
        gc.enable()
    return best[1] / best[0]


def _calls_per_round(function: Callable[[], Any]) -> int:
    calls = 1
    while (seconds := _seconds(function, calls)) < ROUND_SECONDS / 4:
        calls *= 4
    return max(1, int(calls * ROUND_SECONDS / seconds))


def _seconds(function: Callable[[], Any], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        function()
    return time.perf_counter() - started
