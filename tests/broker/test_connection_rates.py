"""Connections that come faster than they may are served later, in their order."""

from __future__ import annotations

import pytest

from quorate.broker.connection_rates import NO_LIMIT, WAITING_MAX, ConnectionRates, CreationLimits


def rates(of_all: int = NO_LIMIT, protected: str = "", **of_listener: int) -> ConnectionRates:
    return ConnectionRates(CreationLimits(of_all, of_listener, protected))


def waits(made: ConnectionRates, count: int, listener: str = "A", now_ms: float = 0.0) -> list[float]:
    found = [made.turn_ms(listener, now_ms) for _ in range(count)]
    return [one for one in found if one is not None]


def test_without_a_limit_nobody_waits() -> None:
    assert waits(rates(), 1000) == [0.0] * 1000


def test_a_burst_is_what_ten_seconds_allow_and_then_one_waits_for_the_other() -> None:
    """So Kafka counts: see `quotas_rates`."""
    found = waits(rates(of_all=5), 100)
    assert found[:50] == [0.0] * 50
    assert found[50:] == sorted(found[50:])
    assert found[50] == pytest.approx(200)
    assert found[99] >= 49 * 200


def test_in_the_end_as_many_are_served_in_a_second_as_may_be() -> None:
    made = rates(A=10)
    served = [now_ms + wait for now_ms in range(0, 60_000, 10) for wait in waits(made, 1, now_ms=now_ms)]
    assert served == sorted(served)
    late = [one for one in served if 40_000 <= one < 50_000]
    assert len(late) == pytest.approx(100, abs=10)


def test_only_so_many_wait_and_whoever_comes_later_finds_a_free_turn() -> None:
    made = rates(of_all=1)
    assert len(waits(made, 100_000)) == 10 + WAITING_MAX
    assert made.turn_ms("A", 0) is None
    longest = (WAITING_MAX + 10) * 1000
    assert made.turn_ms("A", longest) is not None


def test_no_single_wait_is_longer_than_a_window_even_if_nobody_may_come() -> None:
    assert waits(rates(of_all=0), 3) == [1000.0, 2000.0, 3000.0]


def test_a_listener_has_a_limit_of_its_own() -> None:
    made = rates(A=1)
    assert waits(made, 100, "B") == [0.0] * 100
    assert waits(made, 11)[-1] > 0


def test_the_limit_of_all_does_not_count_for_a_protected_listener() -> None:
    made = rates(of_all=1, protected="B", B=NO_LIMIT)
    assert waits(made, 100)[-1] > 0
    assert waits(made, 100, "B") == [0.0] * 100


def test_other_limits_count_at_once() -> None:
    made = rates(of_all=1)
    assert waits(made, 12)[-1] > 0
    made.limits = CreationLimits(NO_LIMIT, {}, "")
    assert waits(made, 100) == [0.0] * 100
