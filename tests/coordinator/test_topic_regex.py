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

from quorate.coordinator.topic_regex import (
    INSTRUCTIONS_MAX,
    LENGTH_MAX,
    RegexError,
    TopicRegex,
    check_expression,
)
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


TOO_COSTLY = "expression has too many counted repetitions and Unicode classes"


# What RE2 says itself, and RE2/J does not.
@pytest.mark.parametrize(
    "expression", [r"\C", "(?P<n>a)(?P<n>b)", "[[:]", "(?P<é>a)", "a{99999999999}", "{*"]
)
def test_what_only_re2j_refuses_is_an_expression(expression: str) -> None:
    check_expression(expression)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a(b", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("*", "missing argument to repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?P<1>a)(?P<n", "invalid named capture"),
        ("\\", "trailing backslash at end of expression"),
        ("\\1", "invalid escape sequence"),
        ("[z-a]", "invalid character class range"),
        ("a" * (LENGTH_MAX + 1), f"expression is longer than {LENGTH_MAX} characters"),
        ("\\pL" * 51, TOO_COSTLY),
        ("(a){1,1000}" * 3, TOO_COSTLY),
        ("(){1000}\\Pd" * 9, TOO_COSTLY),
        ("(a?){200,}" * 51, TOO_COSTLY),
        (".{1000}.{1000}", "expression is too large"),
        ("(((aaaaaaaaaaa){10}){10}){10}", "expression is too large"),
        ("\\pL{1000}", "expression is too large"),
    ],
)
def test_who_brings_none_is_told_why(expression: str, reason: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_expression(expression)
    assert refused.value.message.endswith(f"` is not a valid regular expression: {reason}.")
    assert len(refused.value.message) <= 1_200


@pytest.mark.parametrize(
    "repeated",
    [
        "((((((){1000}){1000}){1000}){1000}){1000}){1000}",
        "(){1000}{2}",
        "((){1000}){2}",
        "((a{10}){10}){11}",
        "((a{1,1000}){0,2})*",
        "(?:(?:^){500}){3}",
        "((|){1000}){1000}",
        "((a{1000}){1000})",
    ],
)
def test_no_more_than_a_thousand_repetitions_of_repetitions(repeated: str) -> None:
    with pytest.raises(ApiError, match=r"invalid repeat count|invalid nested repetition operator"):
        check_expression(repeated)


@pytest.mark.parametrize("repeated", ["((a{10}){10}){10}", "(a{1000})(b{1000})", "(){1000}", "((){10}){100}"])
def test_a_thousand_repetitions_are_not_too_many(repeated: str) -> None:
    check_expression(repeated)


@pytest.mark.parametrize("depth", [100, 2_000])
def test_brackets_may_be_in_brackets(depth: int) -> None:
    assert TopicRegex("(" * depth + "a" + ")" * depth).matches("a")


@pytest.mark.parametrize(
    "expression",
    ["(a+)+b", "(a|aa)+b", "(.*a){20}", "(a*)*b", "(a|a)*b", "([a-z]+)*[0-9]", "(a?){100}a{100}"],
)
def test_what_ruins_other_matchers_is_linear_here(expression: str) -> None:
    """A matcher that tries one way after the other would not come back from these."""
    regex = TopicRegex(expression)
    for length in range(201, 249):
        assert regex.matches("a" * length) is expression.startswith("(.*a)")


def test_what_a_name_costs_is_known_before() -> None:
    regex = TopicRegex("[ab]*(a[ab]{199})")
    assert regex.steps("a" * 200) - regex.steps("") == 200 * regex.instructions
    assert 200 <= regex.instructions <= INSTRUCTIONS_MAX
    assert regex.compiling_steps > regex.instructions


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
