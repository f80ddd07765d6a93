"""What a topic may be called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.controller.topic_names import NAME_LENGTH_MAX, Collisions, check_name
from quorate.protocol.errors import ApiError, ErrorCode


@pytest.mark.parametrize(
    "name", ["a", "A-z_0.9", "-", "_", "...", ".a", "__consumer_offsets", "x" * NAME_LENGTH_MAX]
)
def test_good_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "cannot be called"),
        ("..", "cannot be called"),
        ("x" * (NAME_LENGTH_MAX + 1), "at most 249"),
        ("a b", "letters, digits"),
        ("a/b", "letters, digits"),
        ("a\n", "letters, digits"),
        ("a\0", "letters, digits"),
        ("größe", "letters, digits"),
        ("٣", "letters, digits"),
        ("a:b", "letters, digits"),
    ],
)
def test_bad_names(name: str, reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as caught:
        check_name(name)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("existing", "name", "found"),
    [
        ("a.b", "a_b", "a.b"),
        ("a_b", "a.b", "a_b"),
        ("a.b_c", "a_b.c", "a.b_c"),
        ("a-b", "a_b", None),
        ("ab", "a_b", None),
        ("a", "a_", None),
        ("a.", "a_", "a."),
        (".a", "_a", ".a"),
        (".".join("abcdefghijkl"), "_".join("abcdefghijkl"), ".".join("abcdefghijkl")),
        (".".join("abcdefghijkl"), "_".join("abcdefghijkm"), None),
    ],
)
def test_names_that_differ_only_in_dots_and_underscores_collide(
    existing: str, name: str, found: str | None
) -> None:
    assert Collisions([existing, "another"]).find(name) == found


names = st.text("ab._", min_size=1, max_size=10)


@given(st.sets(names, max_size=20), names)
def test_collisions_are_found_whatever_the_number_of_separators(existing: set[str], name: str) -> None:
    others = existing - {name}
    alike = {one for one in others if one.replace(".", "_") == name.replace(".", "_")}
    found = Collisions(sorted(others)).find(name)
    assert found in alike if alike else found is None
