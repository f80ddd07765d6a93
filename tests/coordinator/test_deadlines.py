"""Deadlines, compared with the plainest way to keep them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quorate.coordinator.deadlines import Deadlines

CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abcd"), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("expired"), st.just(""), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(CALLS)
def test_what_is_due_is_what_was_set_last(calls: list[tuple[str, str, int]]) -> None:
    deadlines, plain = Deadlines[str](), dict[str, int]()
    for call, key, at_ms in calls:
        if call == "set":
            deadlines.set(key, at_ms)
            plain[key] = at_ms
        elif call == "cancel":
            deadlines.cancel(key)
            plain.pop(key, None)
        else:
            due = [one for one in plain if plain[one] <= at_ms]
            expired = deadlines.expired(at_ms)
            assert sorted(expired) == sorted(due)
            assert [plain[key] for key in expired] == sorted(plain[key] for key in due)
            for one in due:
                del plain[one]
        assert len(deadlines) == len(plain)
        assert all(deadlines.get(key) == plain.get(key) for key in "abcd")
        next_ms = deadlines.next_ms()
        assert (next_ms is None) is (not plain)
        assert next_ms is None or next_ms <= min(plain.values())


def test_pushing_back_again_and_again_does_not_pile_up() -> None:
    deadlines = Deadlines[str]()
    for now_ms in range(10_000):
        deadlines.set("session", now_ms + 45_000)
    assert len(deadlines._queue) == 1
    for now_ms in range(10_000):
        deadlines.set("session", 45_000 - now_ms)
        deadlines.cancel("session")
    assert len(deadlines._queue) <= 66
