"""How fast connections are taken on: so many in a second, of a listener and of a broker altogether.

Pure; time is an argument. Who comes too fast is not refused. It waits until it would have been its turn, as
if each listener had one acceptor that takes one after the other, and is idle for a while when there were too
many. So connections of a listener are served in the order in which they came. Only so many wait, as many as a
system holds back for an acceptor that is slow; else who makes connections and drops them could take the turns
of hours.

The limit of the broker does not count for a listener that is protected (see `net.admitted`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from quorate.broker.quotas_rates import CLIENT_WINDOW, Rate, Window
from quorate.values import dataclass

__all__ = ["NO_LIMIT", "WAITING_MAX", "ConnectionRates", "CreationLimits"]

NO_LIMIT: Final = (1 << 31) - 1
WAITING_MAX: Final = 128
"""Connections of a listener that wait for their turn."""


@dataclass(frozen=True, slots=True)
class CreationLimits:
    """How many connections may come in a second."""

    of_all: int
    """And of each listener that has no number of its own."""
    of_listener: Mapping[str, int]
    protected: str = ""


class ConnectionRates:
    """Keeps the turns of new connections. `limits` may be replaced."""

    def __init__(self, limits: CreationLimits, window: Window = CLIENT_WINDOW) -> None:
        self.limits = limits
        self._window = window
        self._of_all = Rate(window)
        self._of_listener: dict[str, Rate] = {}
        self._turns_ms: dict[str, deque[float]] = {}  # by listener, of those that wait, in order

    def turn_ms(self, listener: str, now_ms: float) -> float | None:
        """A connection has come. For how many milliseconds it waits for its turn; None if too many do."""
        limits = self.limits
        limit = limits.of_listener.get(listener, limits.of_all)
        if limit >= NO_LIMIT and (limits.of_all >= NO_LIMIT or listener == limits.protected):
            return 0.0
        turns_ms = self._turns_ms.setdefault(listener, deque())
        while turns_ms and turns_ms[0] <= now_ms:
            turns_ms.popleft()
        if len(turns_ms) >= WAITING_MAX:
            return None
        begin_ms = turns_ms[-1] if turns_ms else now_ms
        delay_ms = self._delay_ms(self._of_listener.setdefault(listener, Rate(self._window)), limit, begin_ms)
        if listener != limits.protected:
            delay_ms = max(delay_ms, self._delay_ms(self._of_all, limits.of_all, begin_ms))
        turns_ms.append(begin_ms + delay_ms)
        return begin_ms + delay_ms - now_ms

    def _delay_ms(self, rate: Rate, limit: int, now_ms: float) -> float:
        rate.record(1, now_ms)
        return min(rate.delay_ms(limit, now_ms), self._window.sample_ms)
