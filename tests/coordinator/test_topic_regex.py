"""Regular expressions for topics: the syntax of RE2, and no way to make matching slow.

What RE2/J 1.8 says, which Kafka uses, was asked of it and written down in `re2j-verdicts.txt`.
"""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.coordinator.topic_regex import STATES_MAX, TopicRegex, check_expression, resolve_expressions
from quorate.coordinator.topic_regex_syntax import LENGTH_MAX, RegexError
from quorate.protocol.errors import ApiError, ErrorCode

# The first line has the names; then come an expression and those that it matches, or ! if it is none.
FIRST, *REST = (Path(__file__).parent / "re2j-verdicts.txt").read_text(encoding="utf-8").splitlines()
NAMES = FIRST.split()
VERDICTS = [tuple(line.split("\t")) for line in REST]


@pytest.mark.parametrize(("expression", "matched"), [row for row in VERDICTS if row[1] != "!"])
def test_an_expression_matches_what_re2_says(expression: str, matched: str) -> None:
    regex = TopicRegex(expression)
    assert " ".join(filter(regex.matches, NAMES)) == matched


@pytest.mark.parametrize("expression", [row[0] for row in VERDICTS if row[1] == "!"])
def test_what_re2_refuses_is_refused(expression: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_expression(expression)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert f"`{expression}`" in refused.value.message


@pytest.mark.parametrize(
    "expression",
    [
        "a" * (LENGTH_MAX + 1),
        "(" * 200 + ")" * 200,
        "((a{1000}){1000})",
        f"a{{1000}}{'b{1000}' * (STATES_MAX // 1000)}",
        "[" + "a-z" * 2000,
    ],
)
def test_an_expression_that_is_too_much_is_refused(expression: str) -> None:
    with pytest.raises(RegexError):
        TopicRegex(expression)


@pytest.mark.parametrize(
    "expression",
    ["(a+)+b", "(a|aa)+b", "(.*a){20}", "(a*)*b", "(a|a)*b", "([a-z]+)*[0-9]", "a?" * 100 + "a" * 100],
)
def test_what_ruins_other_matchers_is_linear_here(expression: str) -> None:
    """A matcher that tries one way after the other would not come back from these."""
    regex = TopicRegex(expression)
    for length in range(201, 249):
        assert regex.matches("a" * length) is expression.startswith("(.*a)")


def test_what_is_remembered_is_limited() -> None:
    regex = TopicRegex(".*a.{9}")
    for number in range(3000):
        regex.matches(f"{number:b}".replace("0", "a").replace("1", "b") * 8)
    assert len(regex._remembered) <= 1001


def test_expressions_are_looked_up_together() -> None:
    assert resolve_expressions(["a.*", "b", "("], ["a", "ab", "b"]) == {
        "a.*": {"a", "ab"},
        "b": {"b"},
        "(": set(),
    }


LITERALS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "\\d", "\\w", "x-", "(?:)", "\\b"])


def expressions() -> st.SearchStrategy[str]:
    return st.recursive(
        LITERALS,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map("|".join).map("(?:{})".format),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])).map(
                lambda parts: f"(?:{parts[0]}){parts[1]}"
            ),
        ),
        max_leaves=6,
    )


@given(expressions(), st.text(alphabet="abx-1", max_size=6))
def test_where_python_means_the_same_it_says_the_same(expression: str, name: str) -> None:
    assert TopicRegex(expression).matches(name) is (re.fullmatch(expression, name, re.ASCII) is not None)


@given(st.text(alphabet=string.ascii_lowercase[:3] + "()[]{}|*+?^$.\\-:,0123pQExiP<>", max_size=12))
def test_whatever_is_written_is_an_expression_or_is_refused(expression: str) -> None:
    try:
        regex = TopicRegex(expression)
    except RegexError:
        return
    regex.matches("abc-123")
