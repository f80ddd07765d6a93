"""How fast something goes, and for how long nothing more may come until that is slow enough: Kafka's windows.

Pure. What is recorded is summed up in samples of a second or so each, and the rate is the sum of the last few
divided by the time that they cover:

    |----- -----|-- -  --|---- ----|          |-- ---|--
    sample 1     2        3          (nobody)   4      5: under way
    `- the oldest that counts begins here              now -'

- A sample in which nothing was recorded for the whole window (`samples` times `sample_ms`) does not count.
- Whoever has only begun is not judged by a moment. `span_of_clients` supposes that all but the last sample
  had passed before, without anything in them; so a client may begin with what ten seconds of its quota are.
  `span_of_replicas` supposes one sample.

If the rate R is above the limit L over a span S, then a delay D makes it right again where R * S / (S + D) is
L: D = (R - L) / L * S.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from quorate.values import dataclass

__all__ = ["CLIENT_WINDOW", "Rate", "Window", "span_of_clients", "span_of_replicas"]


@dataclass(frozen=True, slots=True)
class Window:
    """Kafka's `quota.window.num` and `quota.window.size.seconds`."""

    samples: int = 11
    sample_ms: float = 1000.0

    @property
    def total_ms(self) -> float:
        return self.samples * self.sample_ms

    @property
    def begun_s(self) -> float:
        """What whoever has only begun is supposed to have behind him."""
        return (self.samples - 1) * self.sample_ms / 1000


CLIENT_WINDOW: Final = Window()

# How long a time a rate is taken over, given how long ago the oldest sample began.
Span = Callable[[Window, float], float]


def span_of_clients(window: Window, elapsed_ms: float) -> float:
    """
    >>> [span_of_clients(CLIENT_WINDOW, ms) for ms in (0, 300, 4200, 10_900, 11_500)]
    [10000.0, 10300.0, 10200.0, 10900, 11500]
    """
    missing = window.samples - 1 - elapsed_ms // window.sample_ms
    return max(elapsed_ms + missing * window.sample_ms if missing > 0 else elapsed_ms, 1.0)


def span_of_replicas(window: Window, elapsed_ms: float) -> float:
    return max(elapsed_ms, window.sample_ms)


class _Sample:
    __slots__ = ("begun_ms", "last_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.begun_ms = self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """What was recorded of late, per second."""

    __slots__ = ("_samples", "_span", "_total", "_window")

    def __init__(self, window: Window = CLIENT_WINDOW, span: Span = span_of_clients) -> None:
        self._window = window
        self._span = span
        self._samples: deque[_Sample] = deque()
        self._total = 0.0

    def record(self, value: float, now_ms: float) -> None:
        """Something has come; a value below 0 takes back what was recorded just now."""
        samples = self._samples
        sample = samples[-1] if samples else None
        if sample is None or now_ms - sample.begun_ms >= self._window.sample_ms:
            sample = _Sample(now_ms)
            samples.append(sample)
            # One more than there are in the window: the oldest may overlap it.
            if len(samples) > self._window.samples + 1:
                self._total -= samples.popleft().total
        sample.total += value
        sample.last_ms = now_ms
        self._total += value

    def total(self, now_ms: float) -> float:
        """What was recorded in the window."""
        self._span_ms(now_ms)
        return self._total

    def per_second(self, now_ms: float) -> float:
        span_ms = self._span_ms(now_ms)
        return self._total / span_ms * 1000

    def delay_ms(self, limit: float, now_ms: float) -> float:
        """For how long nothing may come until the rate is the limit; 0 or less if it is not above."""
        span_ms = self._span_ms(now_ms)
        if self._total <= limit * span_ms / 1000:
            return 0.0
        return self._total / limit * 1000 - span_ms if limit > 0 else self._window.total_ms

    def _span_ms(self, now_ms: float) -> float:
        samples, total_ms = self._samples, self._window.total_ms
        while samples and now_ms - samples[0].last_ms >= total_ms:
            self._total -= samples.popleft().total
        if not samples:
            self._total = 0.0  # whatever rounding has left
            return self._span(self._window, 0.0)
        return self._span(self._window, now_ms - samples[0].begun_ms)
