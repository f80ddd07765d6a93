"""Histories of registers that can be explained, and those that cannot."""

from __future__ import annotations

import itertools
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.lab.linearizability import Operation, explain, order_problem
from quorate.lab.registers import Registers


def write(value: object, begun: float, ended: float = inf) -> Operation:
    return Operation(True, value, begun, ended)


def read(value: object, begun: float, ended: float) -> Operation:
    return Operation(False, value, begun, ended)


GOOD = {
    "nothing": [],
    "a read of the beginning": [read(None, 0, 1)],
    "one after the other": [write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7)],
    "reads during a write": [write(1, 0, 10), read(None, 1, 2), read(1, 3, 4)],
    "an unanswered write that counted": [write(1, 0), read(1, 5, 6)],
    "an unanswered write that did not": [write(1, 0), read(None, 5, 6)],
    "an unanswered write that came late": [write(1, 0), write(2, 1, 2), read(2, 3, 4), read(1, 5, 6)],
    "two writes at once": [write(1, 0, 5), write(2, 1, 4), read(1, 6, 7)],
}
BAD = {
    "what nobody wrote": [read(7, 0, 1)],
    "the beginning again": [write(1, 0, 1), read(None, 2, 3)],
    "an old value again": [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],
    "back and forth": [write(1, 0, 10), read(1, 1, 2), read(None, 3, 4)],
    "two that disagree": [write(1, 0, 5), write(2, 0, 5), read(1, 6, 7), read(2, 8, 9)],
    "a value from the future": [read(1, 0, 1), write(1, 2, 3)],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_history_that_can_be(history):
    assert explain(history) is None


@pytest.mark.parametrize("history", BAD.values(), ids=BAD)
def test_a_history_that_cannot_be(history):
    problem = explain(history)
    assert problem is not None
    assert "no order of steps explains" in problem


def by_hand(history: list[Operation]) -> bool:
    """Tries every order of every subset of the unanswered writes."""
    certain = [one for one in history if one.ended < inf]
    open_ended = [one for one in history if one.ended == inf and one.is_write]
    for count in range(len(open_ended) + 1):
        for extra in itertools.combinations(open_ended, count):
            for order in itertools.permutations([*certain, *extra]):
                if any(b.ended < a.begun for a, b in itertools.combinations(order, 2)):
                    continue
                value: object = None
                for one in order:
                    if one.is_write:
                        value = one.value
                    elif one.value != value:
                        break
                else:
                    return True
    return False


operations = st.builds(
    lambda is_write, value, begun, length: Operation(
        is_write, value, begun, inf if is_write and length == 0 else begun + length + 0.5
    ),
    st.booleans(),
    st.integers(1, 3),
    st.integers(0, 8),
    st.integers(0, 4),
)


@given(st.lists(operations, max_size=5))
def test_the_search_agrees_with_trying_everything(history):
    assert (explain(history) is None) == by_hand(history)


def test_a_long_history_of_many_clients_is_explained_quickly():
    history = []
    for round_number in range(500):
        at = round_number * 10
        history += [write((round_number, one), at + one, at + one + 4) for one in range(4)]
        history.append(read((round_number, 3), at + 8, at + 9))
    assert explain(history) is None
    history.append(read((3, 3), 6000, 6001))
    assert explain(history) is not None


def test_appends_keep_the_order_of_real_time():
    assert order_problem([(0, 5, 2), (1, 4, 1), (6, 7, 3)]) is None
    assert order_problem([(0, 1, 5), (2, 3, 4)]) == "offset 4 was given after offset 5 had been acknowledged"


def test_a_register_remembers_what_may_be_read():
    registers = Registers()
    assert registers.problem("p", None, 0) is None
    first = registers.begin("p", 10, 1)
    assert registers.problem("p", 10, 1.5) is None
    first.succeeded(2)
    registers.begin("p", 20, 3)  # nobody knows what became of it
    for value in (10, 20):
        assert registers.problem("p", value, 4) is None
    registers.begin("p", 30, 5).succeeded(6)
    assert registers.problem("p", 30, 7) is None
    assert registers.problem("p", 20, 7) is None  # it may have come late
    assert "again, after 30" in (registers.problem("p", 10, 7) or "")
    assert "nobody wrote" in (registers.problem("p", 99, 7) or "")
    assert registers.problem("p", None, 7) is not None
    assert registers.last_acknowledged("p") == 30
    registers.begin("q", 1, 0).refused()
    assert "nobody wrote" in (registers.problem("q", 1, 1) or "")
