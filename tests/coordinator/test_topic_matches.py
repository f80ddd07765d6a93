"""Which topics expressions mean, found out in parts: each name is compared once, and later only new ones."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.coordinator import topic_matches
from quorate.coordinator.topic_matches import Allowance, Matches, TopicMatches
from quorate.coordinator.topic_regex import TopicRegex
from quorate.coordinator.topics_view import Topic, Topics
from quorate.protocol.types import Uuid

PLENTY = 1 << 40


class Cluster:
    """Topics that come and go."""

    def __init__(self, *names: str) -> None:
        self.matches = TopicMatches()
        self.names = dict.fromkeys(names)
        self.changes(*names)

    def changes(self, *changed: str) -> None:
        topics = Topics([Topic(Uuid(bytes(16)), name, 1) for name in self.names])
        self.matches.topics_changed(topics, changed)

    def has(self, *names: str) -> None:
        self.names |= dict.fromkeys(names)
        self.changes(*names)

    def loses(self, name: str) -> None:
        del self.names[name]
        self.changes(name)

    def found(self, expression: str, steps: int = PLENTY) -> Matches:
        found = self.matches.of(expression)
        while not found.is_complete:
            found.go_on(Allowance(steps))
        return found


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that any expression is compared with."""
    seen: list[str] = []

    class Noting(TopicRegex):
        def matches(self, name: str) -> bool:
            seen.append(name)
            return super().matches(name)

    monkeypatch.setattr(topic_matches, "TopicRegex", Noting)
    return seen


def test_what_is_found_is_shared_and_only_new_names_are_compared_later(compared: list[str]) -> None:
    cluster = Cluster("a1", "a2", "b")
    first = cluster.matches.of("a.*")
    first.go_on(Allowance(1))
    second = cluster.found("a.*")
    assert second is first
    assert first.names() == ["a1", "a2"]
    assert compared == ["a1", "a2", "b"]
    cluster.has("a3", "c")
    cluster.loses("a1")
    assert not first.is_complete
    assert cluster.found("a.*").names() == ["a2", "a3"]
    assert compared == ["a1", "a2", "b", "a3", "c"]


def test_a_part_takes_the_steps_that_are_allowed() -> None:
    cluster = Cluster(*(f"{number:0200}" for number in range(100)))
    regex = TopicRegex("0*5.*|x{100}")
    allowance = Allowance(regex.compiling_steps + 10 * regex.steps("0" * 200))
    found = cluster.matches.of("0*5.*|x{100}")
    parts = 0
    while not found.is_complete:
        allowance = Allowance(regex.compiling_steps + 10 * regex.steps("0" * 200))
        found.go_on(allowance)
        assert allowance.is_spent
        parts += 1
    assert parts == 10


def test_what_is_no_expression_matches_nothing() -> None:
    assert Cluster("a", "(").found("(").names() == []


def test_so_many_expressions_are_remembered(monkeypatch: pytest.MonkeyPatch, compared: list[str]) -> None:
    monkeypatch.setattr(topic_matches, "KEPT_MAX", 2)
    cluster = Cluster("a")
    for expression in ("a", "b", "c", "b", "c"):
        cluster.found(expression)
    assert len(compared) == 3
    cluster.found("a")
    assert len(compared) == 4


def test_so_many_names_are_remembered(monkeypatch: pytest.MonkeyPatch, compared: list[str]) -> None:
    monkeypatch.setattr(topic_matches, "NAMES_KEPT_MAX", 5)
    cluster = Cluster("a", "b", "c")
    cluster.found("[abc]")
    cluster.found("[ab]")
    cluster.found("[abc]")
    assert len(compared) == 6
    cluster.found("[bc]")
    compared.clear()
    cluster.found("[abc]")
    assert len(compared) == 3


def test_whoever_is_in_the_middle_goes_on_though_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_matches, "KEPT_MAX", 1)
    cluster = Cluster("a1", "a2")
    one, other = cluster.matches.of("a1"), cluster.matches.of("a2")
    for found in (one, other, one, other):
        assert cluster.matches.of(found.expression, found) is found
        found.go_on(Allowance(1))
    assert (one.names(), other.names()) == (["a1"], ["a2"])


def test_names_that_are_gone_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_matches, "_STALE_MIN", 10)
    cluster = Cluster("a")
    found = cluster.found("a.*")
    for number in range(100):
        cluster.has(f"a{number}")
        cluster.loses(f"a{number}")
        found = cluster.matches.of("a.*", found)
        assert len(found.listed) <= 2 + 10 + 1
        while not found.is_complete:
            found.go_on(Allowance(1))
        assert found.names() == ["a"]


NAMES = [first + second for first in "abx" for second in ("", "1", "-2", "ab")]
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("has"), st.sampled_from(NAMES)),
        st.tuples(st.just("loses"), st.sampled_from(NAMES)),
        st.tuples(st.just("go on"), st.integers(1, 5_000)),
    ),
    max_size=30,
)


@given(st.sampled_from(["a.*", "[ab]1?", ".*-2", "x|a", "nothing", "b("]), CHANGES)
def test_whatever_happens_in_between_the_end_is_what_one_look_would_find(
    expression: str, changes: list[tuple[str, object]]
) -> None:
    cluster = Cluster("a", "b1")
    found = cluster.matches.of(expression)
    for what, subject in changes:
        if isinstance(subject, int):
            found = cluster.matches.of(expression, found)
            found.go_on(Allowance(subject))
        elif what == "has":
            cluster.has(str(subject))
        elif subject in cluster.names:
            cluster.loses(str(subject))
    valid = expression if expression != "b(" else "(?!)"
    assert set(cluster.found(expression).names()) == {
        name for name in cluster.names if re.fullmatch(valid, name)
    }
