"""Rates over a window, against the plain rule: a ring of samples that are all looked at every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.quotas_rates import Rate, Window, span_of_replicas

SAMPLES, SAMPLE_MS = 11, 1000.0


class Ring:
    """Kafka's rule, word for word: nothing is kept from one question to the next but the samples."""

    def __init__(self) -> None:
        self.samples: list[list[float]] = []  # begin, last, sum
        self.current = 0

    def record(self, value: float, now_ms: float) -> None:
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0.0])
        elif now_ms - self.samples[self.current][0] >= SAMPLE_MS:
            self.current = (self.current + 1) % (SAMPLES + 1)
            if self.current == len(self.samples):
                self.samples.append([now_ms, now_ms, 0.0])
            else:
                self.samples[self.current] = [now_ms, now_ms, 0.0]
        self.samples[self.current][1] = now_ms
        self.samples[self.current][2] += value

    def measure(self, now_ms: float) -> tuple[float, float]:
        """The sum, and the time that it is divided by."""
        for one in self.samples:
            if now_ms - one[1] >= SAMPLES * SAMPLE_MS:
                one[:] = [now_ms, now_ms, 0.0]
        elapsed_ms = now_ms - min((one[0] for one in self.samples), default=now_ms)
        missing = SAMPLES - 1 - int(elapsed_ms // SAMPLE_MS)
        return sum(one[2] for one in self.samples), elapsed_ms + max(0, missing) * SAMPLE_MS


steps = st.lists(
    st.tuples(st.integers(0, 4000) | st.integers(9000, 13_000), st.integers(0, 100_000)), max_size=60
)


@given(steps, st.integers(1, 20_000))
def test_a_rate_and_its_delay_are_those_of_the_plain_rule(steps, limit):
    rate, ring, now_ms = Rate(), Ring(), 0.0
    for pause_ms, value in steps:
        now_ms += pause_ms
        rate.record(value, now_ms)
        ring.record(value, now_ms)
        total, span_ms = ring.measure(now_ms)
        per_second = total / span_ms * 1000
        assert rate.per_second(now_ms) == pytest.approx(per_second)
        expected_ms = max(0.0, (per_second - limit) / limit * span_ms)
        assert rate.delay_ms(limit, now_ms) == pytest.approx(expected_ms, abs=1e-6)


def test_whoever_has_only_begun_may_use_what_ten_seconds_bring():
    rate = Rate()
    rate.record(1000, 0)
    assert rate.delay_ms(100, 0) == 0
    rate.record(1, 0)
    assert rate.delay_ms(100, 0) == pytest.approx(10)


def test_waiting_as_told_brings_the_rate_to_the_limit():
    rate = Rate()
    rate.record(5000, 0)
    delay_ms = rate.delay_ms(100, 0)
    assert delay_ms == 40_000
    assert rate.per_second(0) == 500


def test_what_is_taken_back_was_never_there():
    rate = Rate()
    rate.record(400, 0)
    rate.record(900, 500)
    rate.record(-900, 500)
    assert rate.per_second(500) == pytest.approx(400 / 10.5)


def test_replicas_are_judged_by_a_second():
    rate = Rate(Window(), span_of_replicas)
    rate.record(3000, 0)
    assert rate.per_second(0) == 3000
    assert rate.delay_ms(1000, 0) == pytest.approx(2000)
    assert rate.delay_ms(1000, 2999) > 0
    assert rate.delay_ms(1000, 3000) == 0


def test_a_limit_of_nothing_never_divides_by_it():
    rate = Rate()
    rate.record(1, 0)
    assert rate.delay_ms(0, 0) == 11_000
