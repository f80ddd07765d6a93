"""The screen that tests look at shows what a terminal shows."""

import pytest
from terminals import Screen


def screen(*texts: str, columns: int = 10, height: int = 5) -> Screen:
    found = Screen(columns, height)
    for text in texts:
        found.feed(text)
    return found


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\r\ntwo", ["one", "two"]),
        ("one\rtwo", ["two"]),
        ("three\rtwo", ["twoee"]),
        ("one\r\n\x1b[1A\x1b[2Ktwo", ["two", ""]),
        ("abc\b\bX", ["aXc"]),
        ("abc\x1b[2D\x1b[K", ["a"]),
        ("one\r\ntwo\r\nthree\x1b[2A\r\x1b[J", [""]),
        ("\x1b[32mgreen\x1b[0m\x1b[?25l", ["green"]),
        ("a\x1b[3Cb", ["a   b"]),
    ],
)
def test_orders_are_obeyed(text: str, lines: list[str]):
    found = screen(text)
    assert found.lines == lines
    assert found.unknown == []
    for cut in range(len(text)):  # however it arrives
        assert screen(text[:cut], text[cut:]).lines == lines


def test_a_line_may_fill_the_terminal_and_no_more():
    assert screen("0123456789\r\nab").too_long == []
    found = screen("0123456789ab\r\n")
    assert found.too_long == ["0123456789"]
    assert found.lines == ["0123456789", "ab", ""]


def test_what_has_scrolled_away_is_out_of_reach():
    found = screen("".join(f"{number}\r\n" for number in range(8)), "\x1b[20AX")
    assert found.lines[:3] == ["0", "1", "2"]
    assert found.lines[4] == "X"


@pytest.mark.parametrize(
    ("text", "colours"),
    [
        ("\x1b[1mbold\x1b[0m", []),
        ("\x1b[2mdim\x1b[22m", []),
        ("\x1b[32mgreen", ["32"]),
        ("\x1b[1;31mred", ["1;31"]),
        ("\x1b[38;5;197mpink", ["38;5;197"]),
        ("\x1b[97;44m", ["97;44"]),
    ],
)
def test_colours_are_noted(text: str, colours: list[str]):
    assert screen(text).colours == colours


def test_what_was_painted_over_was_shown():
    found = screen("10%\r", "20%\r", "done\r\n")
    assert found.shown == ["10%", "20%", "done"]
