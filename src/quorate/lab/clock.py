"""The clock of a simulated machine: it starts somewhere, runs a little too fast or slow, and its date may
jump."""

from __future__ import annotations

import math
import random

__all__ = ["MachineClock"]

_WALL_START_MS = 1_750_000_000_000
_DRIFT_PPM_MAX = 200
_WALL_SKEW_MS_MAX = 50.0


class MachineClock:
    """Monotonic and wall time of one machine, as functions of the world's `now_ns`."""

    __slots__ = ("_base_s", "_since_ns", "_wall_offset_ms", "rate")

    def __init__(self, source: random.Random, now_ns: int = 0) -> None:
        self.rate = 1.0 + source.uniform(-_DRIFT_PPM_MAX, _DRIFT_PPM_MAX) * 1e-6
        self._base_s = source.uniform(1.0, 100_000.0)
        self._since_ns = now_ns
        skew_ms = source.uniform(-_WALL_SKEW_MS_MAX, _WALL_SKEW_MS_MAX)
        self._wall_offset_ms = _WALL_START_MS + now_ns / 1e6 + skew_ms - self._base_s * 1000

    def monotonic_s(self, now_ns: int) -> float:
        return self._base_s + (now_ns - self._since_ns) * self.rate * 1e-9

    def wall_ms(self, now_ns: int) -> int:
        return int(self._wall_offset_ms + self.monotonic_s(now_ns) * 1000)

    def instant_ns(self, deadline_s: float) -> int:
        """The first instant at which this clock shows the deadline or later.

        Rounding up matters: `while time() < deadline: await sleep(rest)` would spin for ever at one instant
        if a timer were a nanosecond early.
        """
        instant_ns = self._since_ns + math.ceil((deadline_s - self._base_s) / self.rate * 1e9)
        while self.monotonic_s(instant_ns) < deadline_s:
            instant_ns += 1
        return instant_ns

    def set_rate(self, now_ns: int, rate: float) -> None:
        """From now on a second of the world counts as `rate` seconds. What was shown stays: no jump."""
        assert rate > 0, rate
        self._base_s, self._since_ns, self.rate = self.monotonic_s(now_ns), now_ns, rate

    def jump_wall(self, delta_ms: float) -> None:
        """An operator or a time server set the date; monotonic time does not notice."""
        self._wall_offset_ms += delta_ms

    def reboot(self, now_ns: int, uptime_s: float) -> None:
        """Monotonic time counts from the boot of a machine; the date goes on."""
        shown_ms = self._wall_offset_ms + self.monotonic_s(now_ns) * 1000
        self._base_s, self._since_ns = uptime_s, now_ns
        self._wall_offset_ms = shown_ms - uptime_s * 1000
